//! Selects the segments that a build counts: the segments of a run, the most frequent of them, or everything that can follow executed
//! paths.
//!
//! Both schemes of Vaswani's thesis (section 3.5.2) for finding tested segments use this module. In the first scheme, a stream has the
//! segments that the tests took. In the second scheme, the paths of an ordinary run determine the calls that can occur (`calls:RUN`, stage
//! I). The segments then come from a build that counts what follows these calls (stage II).

use super::callees::{CalleeResolver, executed_paths, functions};
use super::observed::ObservedSegments;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use trodden_flow::Edge;
use trodden_profile::segments::{FunctionPath, Segment, function_map, sum_to_depth, unit_map};
use trodden_profile::stream::FunctionIndex;
use trodden_profile::{ImageProfile, Profile};
use trodden_stored::Folders;
use trodden_stored::named::{self, LAST_RUN_NAME};
use trodden_text::names::DemangledName;
use trodden_unit::{SegmentSet, SegmentSetBuilder};

type SegmentRows<'a> = Vec<(&'a ImageProfile, Segment, u64)>;

/// Returns the set of segments that `--segments` names, up to `depth`. `only` selects segments of a run, but has no effect on `calls:`,
/// `top:` and `share:`. Fails if the run does not exist or no segment remains.
pub fn requested_segments(depth: usize, only: &[String], wanted: &str, folders: &Folders) -> Result<SegmentSet> {
    let (kind, rest) = wanted.split_once(':').unwrap_or(("", wanted));
    let set = match kind {
        "calls" => segments_after_reached_calls(&named::load_profile(rest)?)?,
        "top" | "share" => {
            let (number, run) = rest.split_once(':').unwrap_or((rest, LAST_RUN_NAME));
            let observed = ObservedSegments::load(run, depth, folders)?;
            let mut rows = observed.segments_of_depth(depth);
            rows.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.1.cmp(&b.1)));
            let count = if kind == "top" { parse_top_count(number)? } else { parse_share(number, &rows)? };
            rows.truncate(count);
            segment_set_from_rows(&rows, run)
        }
        _ => {
            let observed = ObservedSegments::load(wanted, depth, folders)?;
            let mut rows: SegmentRows = (1..=depth).flat_map(|depth| observed.segments_of_depth(depth)).collect();
            for only in only {
                ensure!(
                    rows.iter().any(|r| has_function_named(r, only)),
                    "`{wanted}` has no segment (path across calls) named {only}. To list its segments, run `trodden segments {wanted}`"
                );
            }
            rows.retain(|r| only.is_empty() || only.iter().any(|only| has_function_named(r, only)));
            segment_set_from_rows(&rows, wanted)
        }
    };
    ensure!(
        !set.functions().is_empty(),
        "`{wanted}` has no segment (path across calls) of depth {depth}. Name a run in which instrumented functions call each other"
    );
    Ok(set)
}

/// Returns the segments for a build that counts all paths in the contexts of the tested segments, and in the contexts that arise if the
/// same paths call other functions, by name or through a pointer.
pub fn tested_contexts(wanted: &str, depth: usize, folders: &Folders) -> Result<SegmentSet> {
    let observed = ObservedSegments::load(wanted, depth, folders)?;
    let mut builder = SegmentSetBuilder::default();
    for (image, found) in observed.profile.images.iter().zip(&observed.images) {
        let mut callees = CalleeResolver::from_image(image);
        callees.record_pointer_calls(found.counts.keys());
        let mut numbers = FunctionNumbers::default();
        for segment in (1..=depth).flat_map(|depth| sum_to_depth(&found.counts, depth).into_keys()) {
            numbers.insert_segment(&mut builder, image, &segment);
            for at in 0..segment.len() {
                for callee in callees.callees_of(segment[at]) {
                    let callers = &segment[(at + 1).saturating_sub(depth)..=at];
                    numbers.add_context(&mut builder, image, callers, callee);
                }
            }
        }
    }
    add_edge_counts(&mut builder, wanted);
    Ok(builder.finish(true))
}

/// Returns the set of all segments that may follow the calls that a run's paths reached.
fn segments_after_reached_calls(profile: &Profile) -> Result<SegmentSet> {
    let mut builder = SegmentSetBuilder::default();
    for image in &profile.images {
        let mut callees = CalleeResolver::from_image(image);
        callees.infer_from_counts()?;
        let mut numbers = FunctionNumbers::default();
        for (place, function) in functions(image) {
            let executed: Vec<u64> = executed_paths(image, place, function).map(|(path, _)| path).collect();
            ensure!(
                executed.is_empty() || callees.has_paths_to_calls(place, function),
                "the set calls:RUN needs a run that recorded which paths of `{}` lead to calls, but this run did not. Build the program \
                 with `trodden-lab with --reach calls -- build`, and record again",
                function.plain_name()
            );
            for path in executed {
                let caller = FunctionPath { function: place, path };
                for callee in callees.callees_of(caller) {
                    numbers.add_context(&mut builder, image, &[caller], callee);
                }
            }
        }
    }
    Ok(builder.finish(true))
}

fn segment_set_from_rows(rows: &SegmentRows, run: &str) -> SegmentSet {
    let mut builder = SegmentSetBuilder::default();
    let mut numbers: HashMap<*const ImageProfile, FunctionNumbers> = HashMap::new();
    // The count of a shortest segment includes those of all longer segments that end with it, so only the shortest segments are added up.
    let shortest = rows.iter().map(|(_, segment, _)| segment.len()).min();
    for (image, segment, executions) in rows {
        let numbers = numbers.entry(std::ptr::from_ref(*image)).or_default();
        numbers.insert_segment(&mut builder, image, segment);
        if let Some(last) = segment.last().filter(|_| Some(segment.len()) == shortest) {
            let function = numbers.function_number(&mut builder, image, last.function);
            builder.add_executions(function, last.path, *executions);
        }
    }
    add_edge_counts(&mut builder, run);
    builder.finish(false)
}

/// Adds the execution counts of edges, if the run has a profile.
fn add_edge_counts(builder: &mut SegmentSetBuilder, run: &str) {
    let Ok(profile) = named::load_profile(run) else { return };
    let Ok(known) = profile.known_paths() else { return };
    // For a function whose events were streamed, the set refers to the graph of these events, whereas execution counts refer to the
    // function's own graph.
    let mut streamed = HashMap::new();
    for (_, unit, function) in profile.functions() {
        if let Some(words) = function.event_words() {
            let of_events = function.with_events_as_paths();
            streamed.insert(
                (unit.map.source.clone(), function.name.clone(), of_events.version()),
                (function, words, of_events.graph.edge_count()),
            );
        }
    }
    builder.set_edge_executions(|unit, name, version| {
        let Some((function, words, edges)) = streamed.get(&(unit.to_owned(), name.to_owned(), version)) else {
            return known.get(unit, name, version).map(|k| k.edges.clone());
        };
        let own = &known.get(unit, name, function.version())?.edges;
        let executions = |edge: u32| words.function_edge_of_event_edge(Edge(edge)).map_or(0, |own_edge| own[own_edge.index()]);
        Some((0..*edges as u32).map(executions).collect())
    });
}

/// Maps the functions of an image to their numbers in a `SegmentSet`.
#[derive(Default)]
struct FunctionNumbers {
    known: HashMap<FunctionIndex, u32>,
}

impl FunctionNumbers {
    fn function_number(&mut self, builder: &mut SegmentSetBuilder, image: &ImageProfile, place: FunctionIndex) -> u32 {
        *self.known.entry(place).or_insert_with(|| builder.add_function(unit_map(image, place), function_map(image, place)))
    }

    fn path_numbers(&mut self, builder: &mut SegmentSetBuilder, image: &ImageProfile, paths: &[FunctionPath]) -> Vec<(u32, u64)> {
        paths.iter().map(|at| (self.function_number(builder, image, at.function), at.path)).collect()
    }

    fn insert_segment(&mut self, builder: &mut SegmentSetBuilder, image: &ImageProfile, segment: &Segment) {
        let chain = self.path_numbers(builder, image, segment);
        if let Some(((function, path), callers)) = chain.split_last() {
            builder.insert(callers, *function, *path);
        }
    }

    fn add_context(&mut self, builder: &mut SegmentSetBuilder, image: &ImageProfile, callers: &[FunctionPath], callee: FunctionIndex) {
        let chain = self.path_numbers(builder, image, callers);
        let callee = self.function_number(builder, image, callee);
        builder.context(&chain, callee);
    }
}

/// Returns true if a segment has this name, for example `main:12 > parse:3`.
fn has_function_named((image, segment, _): &(&ImageProfile, Segment, u64), name: &str) -> bool {
    let parts: Vec<&str> = name.split('>').map(str::trim).collect();
    let is = |at: &FunctionPath, part: &str| {
        part.rsplit_once(':').is_some_and(|(function, path)| {
            path.parse() == Ok(at.path) && DemangledName::from_linkage(function_map(image, at.function).plain_name()).matches(function)
        })
    };
    parts.len() == segment.len() && segment.iter().zip(parts).all(|(at, part)| is(at, part))
}

fn parse_top_count(number: &str) -> Result<usize> {
    let parsed =
        number.parse().with_context(|| format!("invalid set of segments `top:{number}`: expected a number after `top:`, as in top:100"))?;
    ensure!(parsed > 0, "invalid set of segments `top:{number}`: the number must be at least 1");
    Ok(parsed)
}

/// Parses a percentage, and returns how many of the most frequent segments make up this share of all executions.
fn parse_share(text: &str, rows: &SegmentRows) -> Result<usize> {
    let number: Option<f64> = text.strip_suffix('%').and_then(|n| n.parse().ok());
    let Some(percent) = number.filter(|n| *n > 0.0 && *n <= 100.0) else {
        bail!("invalid share `{text}`: expected a percentage above 0% and at most 100%, such as 99%")
    };
    let all: f64 = rows.iter().map(|r| r.2 as f64).sum();
    let mut sum = 0.0;
    let wanted = rows.iter().take_while(|r| {
        let is_needed = sum < all * percent / 100.0;
        sum += r.2 as f64;
        is_needed
    });
    Ok(wanted.count())
}
