//! Interprocedural segments of a run, which are paths across calls: a path of each caller, and a path of the last callee
//! ([`trodden_unit::segments`]). They are read from a stream ([`crate::stream::SegmentReader`]) or counted by a program that was built for
//! it ([`trodden_unit::SegmentWords`]).
//!
//! A segment may be the end of longer segments with more callers; [`sum_to_depth`] sums all segments that end with the same calls.

use crate::model::ImageProfile;
use crate::paths::{DecodedPath, PathEnd};
use crate::stream::FunctionIndex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::Node;
use trodden_unit::{EdgeKind, FunctionMap, SegmentWords, UnitMap};

/// A path of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionPath {
    /// The function.
    pub function: FunctionIndex,
    /// ID of the path.
    pub path: u64,
}

/// A segment: the paths of the callers, outermost first, followed by the path of the last callee.
pub type Segment = Vec<FunctionPath>;

/// Number of executions of each segment.
pub type CountsBySegment = BTreeMap<Segment, u64>;

/// Segment counts of a program that was instrumented to count segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedSegments {
    /// Number of executions of interesting segments, and of other segments that happen to have a counter of their own.
    pub counts: CountsBySegment,
    /// Interesting segments: those that the program was instrumented to count.
    pub interesting: BTreeSet<Segment>,
    /// Interesting segments that cannot be counted, because code without instrumentation makes one of their calls.
    pub unplaced: BTreeSet<Segment>,
    /// Number of executions whose segment is unknown, because their callers are not those of an interesting segment or their counter is
    /// shared.
    pub others: u64,
    /// Numbers of counters and of changed calls of each function that counts segments.
    pub counters: Vec<SegmentCounterStatistics>,
}

/// Number of counters of a function that counts segments, and how its calls were changed so that the function knows its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentCounterStatistics {
    /// The function.
    pub function: FunctionIndex,
    /// Number of counter words of the function.
    pub words: u64,
    /// Number of interesting segments that end in the function.
    pub interesting: u64,
    /// Number of call sites at which the function was inlined.
    pub inlined: u32,
    /// Number of call sites that call a duplicate of the function, to which they pass the context (the callers' paths) as an additional
    /// argument.
    pub duplicated: u32,
}

/// Returns whether any unit of an image was built to count segments.
pub fn counts_segments(image: &ImageProfile) -> bool {
    image.units.iter().any(|unit| unit.map.experiment.segments().is_some())
}

/// Decodes the segment counts of an image.
pub fn counted_segments(image: &ImageProfile) -> CountedSegments {
    let contexts = SegmentContexts::from_image(image);
    let mut out = CountedSegments::default();
    for (index, map, words) in functions(image) {
        let unit = &image.units[index.unit];
        let chains: Vec<Option<Segment>> = (0..=words.contexts.len() as u32)
            .map(|context| contexts.decode_callers(index, context, trodden_unit::segments::MAX_DEPTH))
            .collect();
        let segment = |context: u32, path: u64| {
            let mut chain = chains.get(context as usize)?.clone().filter(|chain| !chain.is_empty())?;
            chain.push(FunctionPath { function: index, path });
            Some(chain)
        };
        for (word, count) in unit.counts.counters_in_range(words.range()) {
            let pair = words.pair(word - words.first_word, map.counters);
            match pair.and_then(|(context, path)| segment(context, path)) {
                Some(segment) => *out.counts.entry(segment).or_default() += count,
                None => out.others = out.others.saturating_add(count),
            }
        }
        let interesting: Vec<Segment> = words.interesting.iter().filter_map(|(context, path)| segment(*context, *path)).collect();
        if words.words > 0 {
            let SegmentWords { words, inlined, duplicated, .. } = *words;
            out.counters.push(SegmentCounterStatistics {
                function: index,
                words,
                interesting: interesting.len() as u64,
                inlined,
                duplicated,
            });
        }
        out.unplaced.extend(interesting.iter().filter(|segment| contexts.has_unknown_caller(segment)).cloned());
        out.interesting.extend(interesting);
    }
    out
}

/// Adds up the counts of all segments that end with the same `depth` calls. Drops segments with fewer calls.
pub fn sum_to_depth(counts: &CountsBySegment, depth: usize) -> CountsBySegment {
    let mut sums = CountsBySegment::new();
    for (segment, count) in counts.iter().filter(|(segment, _)| segment.len() > depth) {
        *sums.entry(segment[segment.len() - 1 - depth..].to_vec()).or_default() += count;
    }
    sums
}

/// Returns the functions of an image that count segments or pass their context (the callers' paths) to callees.
fn functions(image: &ImageProfile) -> impl Iterator<Item = (FunctionIndex, &FunctionMap, &SegmentWords)> {
    image.units.iter().enumerate().flat_map(|(unit, profile)| {
        let functions = profile.map.functions.iter().enumerate();
        functions.filter_map(move |(function, map)| Some((FunctionIndex { unit, function }, map, map.segment_words()?)))
    })
}

struct SegmentContexts<'a> {
    image: &'a ImageProfile,
    /// Indices of functions by source file and linkage name.
    functions: HashMap<(&'a str, &'a str), FunctionIndex>,
}

impl<'a> SegmentContexts<'a> {
    fn from_image(image: &'a ImageProfile) -> SegmentContexts<'a> {
        let named =
            |(index, map, _): (FunctionIndex, &'a FunctionMap, _)| ((unit_map(image, index).source.as_str(), map.name.as_str()), index);
        SegmentContexts { image, functions: functions(image).map(named).collect() }
    }

    fn words(&self, index: FunctionIndex) -> Option<&'a SegmentWords> {
        self.image.units[index.unit].map.functions[index.function].segment_words()
    }

    /// Returns the paths of the callers that a context number denotes, outermost first. `None` if the map refers to an unknown function, or
    /// if there are more than `max` callers.
    fn decode_callers(&self, index: FunctionIndex, context: u32, max: u32) -> Option<Segment> {
        let Some(number) = context.checked_sub(1) else { return Some(Segment::new()) };
        let caller = self.words(index)?.contexts.get(number as usize)?;
        let function = *self.functions.get(&(caller.unit.as_str(), caller.name.as_str()))?;
        let mut chain = self.decode_callers(function, caller.context, max.checked_sub(1)?)?;
        chain.push(FunctionPath { function, path: caller.path });
        Some(chain)
    }

    /// Returns whether code without instrumentation makes one of the segment's calls.
    fn has_unknown_caller(&self, segment: &Segment) -> bool {
        segment.windows(2).any(|pair| {
            let [caller, callee] = pair else { return false };
            let (unit, map) = (unit_map(self.image, callee.function), function_map(self.image, callee.function));
            self.words(caller.function).is_some_and(|words| {
                words.unplaced.iter().any(|call| call.path == caller.path && call.name == map.name && call.unit == unit.source)
            })
        })
    }
}

/// Returns the block that makes the call at which a path ends; `None` if the path does not end at a call. It is the path's last block or,
/// for a tail call, possibly the block before it.
pub fn calling_block(function: &FunctionMap, walk: &DecodedPath) -> Option<Node> {
    let (last, before) = walk.blocks.split_last()?;
    let is_tail_call = |from: &Node| function.graph.flow_edges().any(|e| e.from == *from && e.to == *last && e.kind == EdgeKind::TailCall);
    match walk.end {
        None => Some(*last),
        Some(PathEnd::Exit(edge)) => match function.graph.kind(edge) {
            EdgeKind::NoReturn | EdgeKind::TailCall => Some(*last),
            _ => before.last().filter(|b| is_tail_call(b)).copied(),
        },
        Some(PathEnd::Stop | PathEnd::Cut(_)) => None,
    }
}

/// Returns whether a path ends with a tail call.
pub fn ends_with_tail_call(function: &FunctionMap, walk: &DecodedPath) -> bool {
    let stops = matches!(walk.end, Some(PathEnd::Exit(edge)) if function.graph.kind(edge) == EdgeKind::NoReturn);
    walk.end.is_some() && !stops && calling_block(function, walk).is_some()
}

/// Returns the map of a function's unit.
pub fn unit_map(image: &ImageProfile, index: FunctionIndex) -> &UnitMap {
    &image.units[index.unit].map
}

/// Returns the map of a function.
pub fn function_map(image: &ImageProfile, index: FunctionIndex) -> &FunctionMap {
    &image.units[index.unit].map.functions[index.function]
}
