//! Interprocedural segments of a run, however they were observed: read off a stream ([`crate::stream::SegmentReader`]), or counted by a
//! program that was built to ([`trodden_unit::SegmentWords`]).
//!
//! What a segment is: [`trodden_unit::segments`]. Counts are by chains of paths; one that was observed with few calls around it may be the
//! end of a longer one. [`of_depth`] adds up what ends with the same calls.

use crate::model::ImageProfile;
use crate::paths::{PathEnd, PathWalk};
use crate::stream::FunctionPlace;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::Node;
use trodden_unit::{EdgeKind, FunctionMap, SegmentWords, UnitMap};

/// A path of a function of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionPath {
    /// The function.
    pub function: FunctionPlace,
    /// The path's number.
    pub path: u64,
}

/// A segment: callers' paths, outermost first, and the path of the function that was called last.
pub type Segment = Vec<FunctionPath>;

/// Executions of segments.
pub type SegmentCounts = BTreeMap<Segment, u64>;

/// What a program counted of segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedSegments {
    /// Executions; segments that the build did not ask for, too, where its counters distinguish them.
    pub counts: SegmentCounts,
    /// Segments that are interesting to the build.
    pub interesting: BTreeSet<Segment>,
    /// Interesting segments that no code can count: a function that is not instrumented makes the last call.
    pub unplaced: BTreeSet<Segment>,
    /// Executions of functions in contexts that are not interesting, or of several segments together.
    pub others: u64,
    /// How each function counts.
    pub counters: Vec<FunctionCounters>,
}

/// How a function counts its segments: how compact their numbers are, and how its code learns contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionCounters {
    /// The function.
    pub function: FunctionPlace,
    /// Its words of counters.
    pub words: u64,
    /// Interesting segments that end in it.
    pub interesting: u64,
    /// Calls in the place of which its code is.
    pub inlined: u32,
    /// Calls of a copy that takes the context as an argument.
    pub duplicated: u32,
}

/// Whether an image counts segments.
pub fn are_counted(image: &ImageProfile) -> bool {
    image.units.iter().any(|unit| unit.map.experiment.segments().is_some())
}

/// What an image that counts segments has counted.
pub fn counted(image: &ImageProfile) -> CountedSegments {
    let contexts = Contexts::from_image(image);
    let mut out = CountedSegments::default();
    for (place, map, words) in functions(image) {
        let unit = &image.units[place.unit];
        let chains: Vec<Option<Segment>> =
            (0..=words.contexts.len() as u32).map(|context| contexts.callers(place, context, trodden_unit::segments::DEEPEST)).collect();
        let segment = |context: u32, path: u64| {
            let mut chain = chains.get(context as usize)?.clone().filter(|chain| !chain.is_empty())?;
            chain.push(FunctionPath { function: place, path });
            Some(chain)
        };
        for (word, count) in unit.counts.within(words.range()) {
            let pair = words.pair(word - words.first_word, map.counters);
            match pair.and_then(|(context, path)| segment(context, path)) {
                Some(segment) => *out.counts.entry(segment).or_default() += count,
                None => out.others = out.others.saturating_add(count),
            }
        }
        let interesting: Vec<Segment> = words.interesting.iter().filter_map(|(context, path)| segment(*context, *path)).collect();
        if words.words > 0 {
            let SegmentWords { words, inlined, duplicated, .. } = *words;
            out.counters.push(FunctionCounters { function: place, words, interesting: interesting.len() as u64, inlined, duplicated });
        }
        out.unplaced.extend(interesting.iter().filter(|segment| contexts.is_unplaced(segment)).cloned());
        out.interesting.extend(interesting);
    }
    out
}

/// Executions by segments of exactly so many calls: of all longer chains that end so.
pub fn of_depth(counts: &SegmentCounts, depth: usize) -> SegmentCounts {
    let mut sums = SegmentCounts::new();
    for (segment, count) in counts.iter().filter(|(segment, _)| segment.len() > depth) {
        *sums.entry(segment[segment.len() - 1 - depth..].to_vec()).or_default() += count;
    }
    sums
}

/// Functions of an image that count segments, or give contexts to callees.
fn functions(image: &ImageProfile) -> impl Iterator<Item = (FunctionPlace, &FunctionMap, &SegmentWords)> {
    image.units.iter().enumerate().flat_map(|(unit, profile)| {
        let functions = profile.map.functions.iter().enumerate();
        functions.filter_map(move |(function, map)| Some((FunctionPlace { unit, function }, map, map.segment_words()?)))
    })
}

/// Functions by name, and their contexts.
struct Contexts<'a> {
    image: &'a ImageProfile,
    places: HashMap<(&'a str, &'a str), FunctionPlace>,
}

impl<'a> Contexts<'a> {
    fn from_image(image: &'a ImageProfile) -> Contexts<'a> {
        let named = |(place, map, _): (FunctionPlace, &'a FunctionMap, _)| ((unit(image, place).source.as_str(), map.name.as_str()), place);
        Contexts { image, places: functions(image).map(named).collect() }
    }

    fn words(&self, place: FunctionPlace) -> Option<&'a SegmentWords> {
        self.image.units[place.unit].map.functions[place.function].segment_words()
    }

    /// The callers' paths of a context, outermost first; none if the map names a function that there is not.
    fn callers(&self, place: FunctionPlace, context: u32, most: u32) -> Option<Segment> {
        let Some(number) = context.checked_sub(1) else { return Some(Segment::new()) };
        let caller = self.words(place)?.contexts.get(number as usize)?;
        let function = *self.places.get(&(caller.unit.as_str(), caller.name.as_str()))?;
        let mut chain = self.callers(function, caller.context, most.checked_sub(1)?)?;
        chain.push(FunctionPath { function, path: caller.path });
        Some(chain)
    }

    /// Whether no code makes a call of a segment.
    fn is_unplaced(&self, segment: &Segment) -> bool {
        segment.windows(2).any(|pair| {
            let [caller, callee] = pair else { return false };
            let (unit, map) = (unit(self.image, callee.function), map(self.image, callee.function));
            self.words(caller.function).is_some_and(|words| {
                words.unplaced.iter().any(|call| call.path == caller.path && call.name == map.name && call.unit == unit.source)
            })
        })
    }
}

/// The block whose calls follow a path: its last, or the one that a tail call leaves, if the path comes to a call at all.
pub fn calling_block(function: &FunctionMap, walk: &PathWalk) -> Option<Node> {
    let (last, before) = walk.blocks.split_last()?;
    let is_tail_call = |from: &Node| function.edges.iter().any(|e| e.from == *from && e.to == *last && e.kind == EdgeKind::TailCall);
    match walk.end {
        None => Some(*last),
        Some(PathEnd::Exit(edge)) => match function.edges[edge.index()].kind {
            EdgeKind::NoReturn | EdgeKind::TailCall => Some(*last),
            _ => before.last().filter(|b| is_tail_call(b)).copied(),
        },
        Some(PathEnd::Stop | PathEnd::Cut(_)) => None,
    }
}

/// Whether a path is left by a tail call.
pub fn ends_with_tail_call(function: &FunctionMap, walk: &PathWalk) -> bool {
    let stops = matches!(walk.end, Some(PathEnd::Exit(edge)) if function.edges[edge.index()].kind == EdgeKind::NoReturn);
    walk.end.is_some() && !stops && calling_block(function, walk).is_some()
}

/// The map of a function's unit.
pub fn unit(image: &ImageProfile, place: FunctionPlace) -> &UnitMap {
    &image.units[place.unit].map
}

/// The map of a function.
pub fn map(image: &ImageProfile, place: FunctionPlace) -> &FunctionMap {
    &image.units[place.unit].map.functions[place.function]
}
