//! Untested paths: paths that a program took in the field and that are not among the known paths, which are usually those of the tests.
//!
//! Known paths are first removed from the profile. The remaining paths are untested: complete paths, and prefixes up to a call that may not
//! return. A prefix is reported only if the path ended there. A path can be *new although every edge is known*; only residual path
//! profiling finds such paths (Vaswani, Rajan and Ramalingam, "Efficient Online Path Profiling", table 3.1).
//!
//! Untested paths of failing runs are ranked by Ochiai ([`crate::isolate`]), then by closeness to the failure (section 6.2.2 there):
//! unfinished paths come first, then paths with the latest first execution.

use crate::isolate::RunTally;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{DagEdgeId, Edge, Origin};
use trodden_profile::model::{ProcessEnding, Profile, UnitProfile};
use trodden_profile::paths::{FunctionPaths, PathDecoder};
use trodden_unit::{EdgeKind, FunctionMap, Identity, InterestingWords, KnownFunction, KnownPaths, MapError, UnitMap};

/// Identifies a function by its unit's identity and its index in the unit's map.
pub type UntestedFunction = (Identity, usize);
/// Identifies a counter by its unit's identity and its index in the unit.
pub type CounterKey = (Identity, u64);

/// The runs that took an untested path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UntestedPathRuns {
    /// Number of runs (profiles) that took the path.
    pub runs: u64,
    /// Outcomes of these runs, where known.
    pub outcomes: RunTally,
    /// Time of the path's first execution, in nanoseconds since 1970. If the program did not record it, the start time of the run. 0 if
    /// unknown.
    pub first_ns: u64,
    /// The run that took the path first, by the number passed to [`UntestedPathRecorder::add`].
    pub first_run: usize,
}

/// Untested paths in all profiles from the field.
#[derive(Debug, Default)]
pub struct UntestedPathRecorder {
    /// The sightings of each path, by counter.
    pub paths: BTreeMap<CounterKey, UntestedPathRuns>,
    /// Counted executions of complete paths, including known paths if the program counts those.
    pub executions: u128,
    /// Distinct complete paths that were counted.
    pub counted: BTreeSet<CounterKey>,
    /// True if a unit also counts known paths, so that shares can be computed.
    pub counts_known: bool,
    /// Numbers of failing and passing runs, without runs with an unknown outcome.
    pub outcomes: RunTally,
    /// Number of executions that builds with `--interesting` counted without distinguishing their paths.
    pub without_path: UndistinguishedExecutionCounts,
}

/// Numbers of executions whose paths the build does not distinguish, because it counts all uninteresting paths of a function in one
/// counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UndistinguishedExecutionCounts {
    /// Number of executions in functions whose known paths all have separate counters. These executions took untested paths.
    pub untested: u128,
    /// Number of executions in other functions. These executions may have taken known paths.
    pub unclear: u128,
}

/// Untested paths and edges of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UntestedCountsOfFunction {
    /// Untested complete paths.
    pub paths: u64,
    /// Number of executions of the untested paths.
    pub executions: u128,
    /// Number of untested paths whose edges are all known.
    pub known_edges_only: u64,
    /// Edges of the function's graph that some untested path takes and no known path takes.
    pub edges: BTreeSet<Edge>,
}

/// Sums over functions, as in table 3.1 of Vaswani's thesis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntestedSummary {
    /// Untested complete paths.
    pub paths: u64,
    /// Number of executions of the untested paths.
    pub executions: u128,
    /// Number of untested paths whose edges are all known.
    pub known_edges_only: u64,
    /// Number of untested paths in functions without untested edges.
    pub in_functions_without_new_edges: u64,
    /// Untested edges.
    pub edges: u64,
    /// Functions with untested paths.
    pub functions: u64,
    /// Functions with untested edges.
    pub functions_with_new_edges: u64,
}

/// Returns the known paths of a function, or `None` if there are none with the same cuts and numbering.
pub fn known_paths_of<'k>(known: &'k KnownPaths, unit: &UnitMap, function: &FunctionMap) -> Option<&'k KnownFunction> {
    known
        .get(&unit.source, &function.name, function.version())
        .filter(|k| k.cuts == function.cuts && k.paths == function.counters && k.edges.len() == function.graph.edge_count())
}

impl UntestedPathRecorder {
    /// Removes known paths from the profile of a run, and records the remaining ones.
    pub fn add(&mut self, run: usize, profile: &mut Profile, known: &KnownPaths) -> Result<(), MapError> {
        let started = profile.run.started_ns;
        let failed = profile.run.ending.map(|ending| ending != ProcessEnding::Exit(0));
        failed.iter().for_each(|failed| self.outcomes.add(*failed));
        // A unit that is part of several images of a run counts once.
        let mut in_run = BTreeSet::new();
        for unit in profile.images.iter_mut().flat_map(|i| &mut i.units) {
            self.counts_known |= !unit.map.has_times();
            self.tally_counted_paths(unit)?;
            self.tally_undistinguished_executions(unit, known)?;
            remove_known_paths(unit, known);
            for (counter, _) in &unit.counts.executions {
                let first_ns = unit.counts.first_seen_ns_of_counter(*counter).unwrap_or(started);
                let seen = self.paths.entry((unit.unit, *counter)).or_insert(UntestedPathRuns {
                    runs: 0,
                    outcomes: RunTally::default(),
                    first_ns,
                    first_run: run,
                });
                if in_run.insert((unit.unit, *counter)) {
                    seen.runs += 1;
                    failed.iter().for_each(|failed| seen.outcomes.add(*failed));
                }
                // A time of 0 is unknown, not early.
                if first_ns != 0 && (seen.first_ns == 0 || first_ns < seen.first_ns) {
                    (seen.first_ns, seen.first_run) = (first_ns, run);
                }
            }
        }
        Ok(())
    }

    fn tally_undistinguished_executions(&mut self, unit: &UnitProfile, known: &KnownPaths) -> Result<(), MapError> {
        for function in &unit.map.functions {
            let Some(words) = function.interesting_words() else { continue };
            let executions = u128::from(unit.unattributed(function));
            let sum = match has_counters_for_known_paths(function, words, known_paths_of(known, &unit.map, function))? {
                true => &mut self.without_path.untested,
                false => &mut self.without_path.unclear,
            };
            *sum += executions;
        }
        Ok(())
    }

    fn tally_counted_paths(&mut self, unit: &UnitProfile) -> Result<(), MapError> {
        for function in &unit.map.functions {
            let Some(paths) = unit.executed_paths(function)? else { continue };
            self.executions += paths.complete.iter().map(|p| u128::from(p.count)).sum::<u128>();
            self.counted.extend(paths.complete.iter().map(|p| (unit.unit, function.first_counter + p.id)));
        }
        Ok(())
    }
}

/// Returns true if all known complete paths of the function have separate counters. Known paths that end at a call need none, because such
/// builds do not count them.
fn has_counters_for_known_paths(function: &FunctionMap, words: &InterestingWords, known: Option<&KnownFunction>) -> Result<bool, MapError> {
    let counted: BTreeSet<u64> = words.paths.iter().map(|(_, path)| *path).collect();
    let mut others = known.iter().flat_map(|k| &k.known).map(|(path, _)| *path).filter(|path| !counted.contains(path)).peekable();
    if others.peek().is_none() {
        return Ok(true);
    }
    let walks = PathDecoder::from_function(function)?;
    Ok(others.all(|path| walks.decode(path).is_some_and(|walk| walk.end.is_none())))
}

/// Removes the counts of known paths, and counters that belong to no function.
fn remove_known_paths(unit: &mut UnitProfile, known: &KnownPaths) {
    let mut remaining = Vec::new();
    for function in &unit.map.functions {
        let knows = known_paths_of(known, &unit.map, function);
        let unknown = unit.counts_of(function).filter(|(id, _)| knows.is_none_or(|k| !k.knows(*id)));
        remaining.extend(unknown.map(|(id, count)| (function.first_counter + id, count)));
    }
    remaining.sort_unstable();
    unit.counts.retain(|counter| remaining.binary_search_by_key(&counter, |c| c.0).is_ok());
}

/// Returns those edges of a path that are on no known path.
pub fn edges_on_no_known_path(function: &FunctionMap, known: Option<&KnownFunction>, dag: &[DagEdgeId]) -> BTreeSet<Edge> {
    let edges = dag.iter().filter_map(|id| match *function.dag.get(id.index())? {
        Origin::Real(edge) | Origin::Leave(edge) => Some(edge),
        // The cut edge before a path's first block belongs to a different path, and several cut edges may lead to the block.
        Origin::Enter(_) | Origin::Stop(_) => None,
    });
    let taken = |edge: &Edge| known.is_some_and(|k| k.edges.get(edge.index()).is_some_and(|n| *n > 0));
    let is_control_flow = |edge: &Edge| function.graph.get_edge(*edge).is_some_and(|e| e.kind != EdgeKind::Reach);
    edges.filter(|edge| is_control_flow(edge) && !taken(edge)).collect()
}

/// Sums up the untested paths of a function. `paths` must contain only untested paths.
pub fn count_new_paths(function: &FunctionMap, known: Option<&KnownFunction>, paths: &FunctionPaths) -> UntestedCountsOfFunction {
    let mut new = UntestedCountsOfFunction::default();
    for path in &paths.complete {
        let edges = edges_on_no_known_path(function, known, &path.path);
        new.paths += 1;
        new.executions += u128::from(path.count);
        new.known_edges_only += u64::from(edges.is_empty());
        new.edges.extend(edges);
    }
    new
}

impl UntestedSummary {
    /// Adds the numbers of one function.
    pub fn add(&mut self, new: &UntestedCountsOfFunction) {
        self.paths += new.paths;
        self.executions += new.executions;
        self.known_edges_only += new.known_edges_only;
        self.edges += new.edges.len() as u64;
        self.functions += u64::from(new.paths > 0);
        self.functions_with_new_edges += u64::from(!new.edges.is_empty());
        if new.edges.is_empty() {
            self.in_functions_without_new_edges += new.paths;
        }
    }

    /// Sums up a profile after the removal of known paths.
    pub fn new(filtered: &Profile, known: &KnownPaths) -> Result<UntestedSummary, MapError> {
        let mut summary = UntestedSummary::default();
        for (_, unit, function) in filtered.functions() {
            if let Some(paths) = unit.executed_paths(function)? {
                summary.add(&count_new_paths(function, known_paths_of(known, &unit.map, function), &paths));
            }
        }
        Ok(summary)
    }
}

/// A known path with its executions in the tests and in the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHotPath {
    /// The path's function.
    pub function: UntestedFunction,
    /// The path's number.
    pub path: u64,
    /// Number of executions in the tests.
    pub tested: u64,
    /// Number of executions in the field.
    pub field: u64,
    /// Rank among all paths executed in the field, by executions, from 1, or `None` if the path was not executed there.
    pub rank: Option<usize>,
}

/// Checks whether the paths that are hot in the tests are also hot in the field. Returns the `top` complete paths that the tests executed
/// most, and their share (0 to 1) of the executions in the field. `field` must count all paths.
pub fn hot_paths(field: &Profile, known: &KnownPaths, top: usize) -> Result<(Vec<KnownHotPath>, f64), MapError> {
    let (mut tested, mut all) = (Vec::new(), BTreeMap::<(UntestedFunction, u64), u64>::new());
    for unit in field.images.iter().flat_map(|i| &i.units) {
        for (place, function) in unit.map.functions.iter().enumerate() {
            let key = (unit.unit, place);
            let counted = FunctionPaths::decode(function, unit.counts_of(function))?;
            for path in counted.complete {
                let sum = all.entry((key, path.id)).or_default();
                *sum = sum.saturating_add(path.count);
            }
            if let Some(knows) = known_paths_of(known, &unit.map, function) {
                let complete = FunctionPaths::decode(function, knows.known.iter().copied())?.complete;
                tested.extend(complete.iter().map(|p| (p.count, key, p.id)));
            }
        }
    }
    tested.sort_unstable_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    // A unit that is part of several images occurs several times.
    tested.dedup_by_key(|t| (t.1, t.2));
    tested.truncate(top);
    let mut ranked: Vec<_> = all.iter().map(|(path, count)| (*count, *path)).collect();
    ranked.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let ranks: BTreeMap<_, _> = ranked.iter().enumerate().map(|(at, (_, path))| (*path, at + 1)).collect();
    let total: u128 = ranked.iter().map(|r| u128::from(r.0)).sum();
    let hot: Vec<KnownHotPath> = tested
        .into_iter()
        .map(|(tested, function, path)| {
            let field = all.get(&(function, path)).copied().unwrap_or(0);
            KnownHotPath { function, path, tested, field, rank: ranks.get(&(function, path)).copied() }
        })
        .collect();
    let covered: u128 = hot.iter().map(|h| u128::from(h.field)).sum();
    Ok((hot, if total == 0 { 0.0 } else { covered as f64 / total as f64 }))
}
