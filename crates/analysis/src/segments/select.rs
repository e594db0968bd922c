//! Which segments a build counts: those of a run, the most frequent of them, or everything that can follow executed paths.
//!
//! Where segments become known (thesis, section 3.5.2), both schemes end here: a run with a stream says which segments the tests took;
//! without one, paths of an ordinary run say which calls there can be (`calls:RUN`, stage I), a build counts what follows them (stage
//! II), and that run says the same.

use super::callees::{Callees, executed, functions};
use super::observed::ObservedSegments;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use trodden_flow::Edge;
use trodden_profile::segments::{FunctionPath, Segment, map, of_depth, unit};
use trodden_profile::stream::FunctionPlace;
use trodden_profile::{ImageProfile, Profile};
use trodden_stored::Folders;
use trodden_stored::named::{self, LAST};
use trodden_text::names::Name;
use trodden_unit::{SegmentSet, SegmentSetBuilder};

/// Segments with their images and executions.
type Rows<'a> = Vec<(&'a ImageProfile, Segment, u64)>;

/// The set of segments of a depth that `--segments` names, with only the segments of `--only`.
///
/// # Errors
/// There is no such run, or nothing is left.
pub fn asked(depth: usize, only: &[String], wanted: &str, folders: &Folders) -> Result<SegmentSet> {
    let (kind, rest) = wanted.split_once(':').unwrap_or(("", wanted));
    let set = match kind {
        "calls" => following_calls(&named::load(rest)?)?,
        "top" | "share" => {
            let (number, run) = rest.split_once(':').unwrap_or((rest, LAST));
            let observed = ObservedSegments::load(run, depth, folders)?;
            let mut rows = observed.of_depth(depth);
            rows.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.1.cmp(&b.1)));
            let most = if kind == "top" { top(number)? } else { share(number, &rows)? };
            rows.truncate(most);
            of_rows(&rows, run)
        }
        _ => {
            let observed = ObservedSegments::load(wanted, depth, folders)?;
            let mut rows: Rows = (1..=depth).flat_map(|depth| observed.of_depth(depth)).collect();
            for only in only {
                ensure!(rows.iter().any(|r| is_named(r, only)), "`{wanted}` has no segment {only}: `trodden segments {wanted}` lists them");
            }
            rows.retain(|r| only.is_empty() || only.iter().any(|only| is_named(r, only)));
            of_rows(&rows, wanted)
        }
    };
    ensure!(
        !set.functions().is_empty(),
        "segments {wanted}: there is no segment of depth {depth}: take a run in which instrumented functions call each other"
    );
    Ok(set)
}

/// The tested segments as a set that counts everything in their contexts, and in those of other functions that the same paths may call:
/// by name, or by a pointer where the tests called the function by some pointer.
///
/// # Errors
/// There is no such run.
pub fn tested(wanted: &str, depth: usize, folders: &Folders) -> Result<SegmentSet> {
    let observed = ObservedSegments::load(wanted, depth, folders)?;
    let mut builder = SegmentSetBuilder::default();
    for (image, found) in observed.profile.images.iter().zip(&observed.images) {
        let mut callees = Callees::from_image(image);
        callees.observe(found.counts.keys());
        let mut numbers = Numbers::default();
        for segment in (1..=depth).flat_map(|depth| of_depth(&found.counts, depth).into_keys()) {
            numbers.insert(&mut builder, image, &segment);
            for at in 0..segment.len() {
                for callee in callees.of_path(segment[at]) {
                    let callers = &segment[(at + 1).saturating_sub(depth)..=at];
                    numbers.add_context(&mut builder, image, callers, callee);
                }
            }
        }
    }
    weigh(&mut builder, wanted);
    Ok(builder.finish(true))
}

/// Everything that can follow the calls to which the paths of a run come.
fn following_calls(profile: &Profile) -> Result<SegmentSet> {
    let mut builder = SegmentSetBuilder::default();
    for image in &profile.images {
        let mut callees = Callees::from_image(image);
        callees.derive()?;
        let mut numbers = Numbers::default();
        for (place, function) in functions(image) {
            let executed: Vec<u64> = executed(image, place, function).map(|(path, _)| path).collect();
            ensure!(
                executed.is_empty() || callees.are_noted(place, function),
                "`{}` does not count at which calls its paths arrive: for calls:RUN, record a program built by \
                    `trodden-lab with --reach calls -- build`",
                function.plain_name()
            );
            for path in executed {
                let caller = FunctionPath { function: place, path };
                for callee in callees.of_path(caller) {
                    numbers.add_context(&mut builder, image, &[caller], callee);
                }
            }
        }
    }
    Ok(builder.finish(true))
}

fn of_rows(rows: &Rows, run: &str) -> SegmentSet {
    let mut builder = SegmentSetBuilder::default();
    let mut numbers: HashMap<*const ImageProfile, Numbers> = HashMap::new();
    // Those of longer segments are among those of the shortest that end like them.
    let shortest = rows.iter().map(|(_, segment, _)| segment.len()).min();
    for (image, segment, executions) in rows {
        let numbers = numbers.entry(std::ptr::from_ref(*image)).or_default();
        numbers.insert(&mut builder, image, segment);
        if let Some(last) = segment.last().filter(|_| Some(segment.len()) == shortest) {
            let function = numbers.number(&mut builder, image, last.function);
            builder.add_executions(function, last.path, *executions);
        }
    }
    weigh(&mut builder, run);
    builder.finish(false)
}

/// Says how often edges are executed, where the run's profile does.
fn weigh(builder: &mut SegmentSetBuilder, run: &str) {
    let Ok(profile) = named::load(run) else { return };
    let Ok(known) = profile.known_paths() else { return };
    // A function of a stream is named by the graph of its events here, and counted by its own.
    let mut streamed = HashMap::new();
    for (_, unit, function) in profile.functions() {
        if let Some(words) = function.event_words() {
            let of_events = function.of_events();
            streamed
                .insert((unit.map.source.clone(), function.name.clone(), of_events.version()), (function, words, of_events.edges.len()));
        }
    }
    builder.set_all_edges(|unit, name, version| {
        let Some((function, words, edges)) = streamed.get(&(unit.to_owned(), name.to_owned(), version)) else {
            return known.of(unit, name, version).map(|k| k.edges.clone());
        };
        let own = &known.of(unit, name, function.version())?.edges;
        let executions = |edge: u32| words.own_edge(Edge(edge)).map_or(0, |own_edge| own[own_edge.index()]);
        Some((0..*edges as u32).map(executions).collect())
    });
}

/// Functions of an image to their numbers in a set.
#[derive(Default)]
struct Numbers {
    known: HashMap<FunctionPlace, u32>,
}

impl Numbers {
    fn number(&mut self, builder: &mut SegmentSetBuilder, image: &ImageProfile, place: FunctionPlace) -> u32 {
        *self.known.entry(place).or_insert_with(|| builder.function(unit(image, place), map(image, place)))
    }

    fn chain(&mut self, builder: &mut SegmentSetBuilder, image: &ImageProfile, paths: &[FunctionPath]) -> Vec<(u32, u64)> {
        paths.iter().map(|at| (self.number(builder, image, at.function), at.path)).collect()
    }

    fn insert(&mut self, builder: &mut SegmentSetBuilder, image: &ImageProfile, segment: &Segment) {
        let chain = self.chain(builder, image, segment);
        if let Some(((function, path), callers)) = chain.split_last() {
            builder.insert(callers, *function, *path);
        }
    }

    fn add_context(&mut self, builder: &mut SegmentSetBuilder, image: &ImageProfile, callers: &[FunctionPath], callee: FunctionPlace) {
        let chain = self.chain(builder, image, callers);
        let callee = self.number(builder, image, callee);
        builder.context(&chain, callee);
    }
}

/// Whether a segment has this name: `main:12 > parse:3`.
fn is_named((image, segment, _): &(&ImageProfile, Segment, u64), name: &str) -> bool {
    let parts: Vec<&str> = name.split('>').map(str::trim).collect();
    let is = |at: &FunctionPath, part: &str| {
        part.rsplit_once(':').is_some_and(|(function, path)| {
            path.parse() == Ok(at.path) && Name::from_linkage(map(image, at.function).plain_name()).is(function)
        })
    };
    parts.len() == segment.len() && segment.iter().zip(parts).all(|(at, part)| is(at, part))
}

fn top(number: &str) -> Result<usize> {
    let parsed = number.parse().with_context(|| format!("`{number}` is no number of segments"))?;
    ensure!(parsed > 0, "top:{number} would count no segment: give 1 or more");
    Ok(parsed)
}

/// How many of the most frequent hold a share of all executions.
fn share(text: &str, rows: &Rows) -> Result<usize> {
    let number: Option<f64> = text.strip_suffix('%').and_then(|n| n.parse().ok());
    let Some(percent) = number.filter(|n| *n > 0.0 && *n <= 100.0) else {
        bail!("`{text}` is no share above 0% and up to 100%: write it as 99%")
    };
    let all: f64 = rows.iter().map(|r| r.2 as f64).sum();
    let mut sum = 0.0;
    let wanted = rows.iter().take_while(|r| {
        let goes_on = sum < all * percent / 100.0;
        sum += r.2 as f64;
        goes_on
    });
    Ok(wanted.count())
}
