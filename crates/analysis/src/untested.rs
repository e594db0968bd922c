//! Untested paths: paths that a profile of the field has and a set of known paths (of the tests) does not have.
//!
//! A path is *new although every edge is known* if each edge of it is on some known path. Such paths are what residual
//! path profiling finds and residual edge profiling cannot (Vaswani, Rajan and Ramalingam: table 3.1 of "Efficient
//! Online Path Profiling" has how many there are).
//!
//! A profile is *filtered by known paths* first: counts of known paths are removed. All paths that remain are untested: complete paths, and
//! prefixes up to a call that may not return. Of the prefixes, only unfinished paths are reported. (A prefix of a path that a test
//! completed is known, too, so the result is exact.)
//!
//! Of a failing run, some untested paths are likely to be the cause (section 6.2.2 there). They are ranked by the measure of Ochiai
//! ([`crate::isolate`]), then by how near the failure they are: unfinished ones first, then those that were taken for the first time last.

use crate::isolate::RunTally;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::{DagEdgeId, Edge, Origin};
use trodden_profile::model::{ProcessEnding, Profile, UnitProfile};
use trodden_profile::paths::{FunctionPaths, Walks};
use trodden_unit::{EdgeKind, FunctionMap, Identity, InterestingWords, KnownFunction, KnownPaths, MapError, UnitMap};

/// A function: its unit, and its place in the unit's map.
pub type UntestedFunction = (Identity, usize);
/// A counter: its unit, and its place in the unit.
pub type CounterKey = (Identity, u64);

/// The runs that took an untested path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// Runs (profiles) that took it.
    pub runs: u64,
    /// Those of them of which it is known whether they failed.
    pub ended: RunTally,
    /// Time of its first execution in nanoseconds since 1970, as the program noted it; else the time when the run began; 0 if unknown.
    pub first_ns: u64,
    /// The run that took it first, by the number under which it was added.
    pub first_run: usize,
}

/// The sum of profiles of the field, filtered by known paths.
#[derive(Debug, Default)]
pub struct Sightings {
    /// By counter.
    pub paths: BTreeMap<CounterKey, Sighting>,
    /// Executions of complete paths that were counted, of known paths too where the program counts those.
    pub executions: u128,
    /// Different complete paths that were counted.
    pub counted: BTreeSet<CounterKey>,
    /// Whether any unit counts known paths as well, so that shares are known.
    pub counts_known: bool,
    /// All runs of which it is known whether they failed.
    pub ended: RunTally,
    /// Executions that builds of `--interesting` counted without their paths.
    pub without_path: WithoutPath,
}

/// Executions of paths that are not interesting to the build that counted them, all of a function in one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithoutPath {
    /// Of functions all of whose known paths have counters of their own: these are of untested paths.
    pub untested: u128,
    /// Of others: these may be of known paths.
    pub unclear: u128,
}

/// Untested paths and edges of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewInFunction {
    /// Complete untested paths, and executions of them.
    pub paths: u64,
    /// Executions.
    pub executions: u128,
    /// Those of the paths all of whose edges are known.
    pub old_edges_only: u64,
    /// Edges of the function's graph that untested paths take, and no known one.
    pub edges: BTreeSet<Edge>,
}

/// Sums over functions, as in table 3.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntestedSummary {
    /// Untested complete paths.
    pub paths: u64,
    /// Their executions.
    pub executions: u128,
    /// Those all of whose edges are known.
    pub old_edges_only: u64,
    /// Those in functions without an untested edge.
    pub in_functions_without_new_edges: u64,
    /// Untested edges.
    pub edges: u64,
    /// Functions with untested paths.
    pub functions: u64,
    /// Functions with untested edges.
    pub functions_with_new_edges: u64,
}

/// The known paths of a function, if there are any.
pub fn known_of<'k>(known: &'k KnownPaths, unit: &UnitMap, function: &FunctionMap) -> Option<&'k KnownFunction> {
    known
        .of(&unit.source, &function.name, function.version())
        .filter(|k| k.cuts == function.cuts && k.paths == function.counters && k.edges.len() == function.edges.len())
}

impl Sightings {
    /// Removes known paths from the profile of a run, and notes the others.
    ///
    /// # Errors
    /// A function's map is damaged.
    pub fn add(&mut self, run: usize, profile: &mut Profile, known: &KnownPaths) -> Result<(), MapError> {
        let started = profile.run.started_ns;
        let failed = profile.run.ending.map(|ending| ending != ProcessEnding::Exit(0));
        failed.iter().for_each(|failed| self.ended.add(*failed));
        // A unit may be in several images of the run.
        let mut in_run = BTreeSet::new();
        for unit in profile.images.iter_mut().flat_map(|i| &mut i.units) {
            self.counts_known |= !unit.map.has_times();
            self.tally(unit)?;
            self.tally_without_path(unit, known)?;
            filter_known(unit, known);
            for (counter, _) in &unit.counts.executions {
                let first_ns = unit.counts.first_seen_of(*counter).unwrap_or(started);
                let seen = self.paths.entry((unit.unit, *counter)).or_insert(Sighting {
                    runs: 0,
                    ended: RunTally::default(),
                    first_ns,
                    first_run: run,
                });
                if in_run.insert((unit.unit, *counter)) {
                    seen.runs += 1;
                    failed.iter().for_each(|failed| seen.ended.add(*failed));
                }
                // 0 means an unknown time, which is not earlier.
                if first_ns != 0 && (seen.first_ns == 0 || first_ns < seen.first_ns) {
                    (seen.first_ns, seen.first_run) = (first_ns, run);
                }
            }
        }
        Ok(())
    }

    /// Adds executions whose path the build does not distinguish.
    fn tally_without_path(&mut self, unit: &UnitProfile, known: &KnownPaths) -> Result<(), MapError> {
        for function in &unit.map.functions {
            let Some(words) = function.interesting() else { continue };
            let executions = u128::from(unit.unattributed(function));
            let sum = match counts_all_known(function, words, known_of(known, &unit.map, function))? {
                true => &mut self.without_path.untested,
                false => &mut self.without_path.unclear,
            };
            *sum += executions;
        }
        Ok(())
    }

    /// Adds the sums over all counted paths.
    fn tally(&mut self, unit: &UnitProfile) -> Result<(), MapError> {
        for function in &unit.map.functions {
            let Some(paths) = unit.executed_paths(function)? else { continue };
            self.executions += paths.complete.iter().map(|p| u128::from(p.count)).sum::<u128>();
            self.counted.extend(paths.complete.iter().map(|p| (unit.unit, function.first_counter + p.id)));
        }
        Ok(())
    }
}

/// Whether all known paths of a function have counters of their own. Paths up to calls are not counted at all there.
fn counts_all_known(function: &FunctionMap, words: &InterestingWords, known: Option<&KnownFunction>) -> Result<bool, MapError> {
    let counted: BTreeSet<u64> = words.paths.iter().map(|(_, path)| *path).collect();
    let mut others = known.iter().flat_map(|k| &k.known).map(|(path, _)| *path).filter(|path| !counted.contains(path)).peekable();
    if others.peek().is_none() {
        return Ok(true);
    }
    let walks = Walks::from_function(function)?;
    Ok(others.all(|path| walks.walk(path).is_some_and(|walk| walk.end.is_none())))
}

/// Removes counts of known paths, and counters that belong to no path.
fn filter_known(unit: &mut UnitProfile, known: &KnownPaths) {
    let mut left = Vec::new();
    for function in &unit.map.functions {
        let knows = known_of(known, &unit.map, function);
        let unknown = unit.counts_of(function).filter(|(id, _)| knows.is_none_or(|k| !k.knows(*id)));
        left.extend(unknown.map(|(id, count)| (function.first_counter + id, count)));
    }
    left.sort_unstable();
    unit.counts.retain(|counter| left.binary_search_by_key(&counter, |c| c.0).is_ok());
}

/// The edges of a path that no known path takes.
pub fn new_edges(function: &FunctionMap, known: Option<&KnownFunction>, dag: &[DagEdgeId]) -> BTreeSet<Edge> {
    let edges = dag.iter().filter_map(|id| match function.dag.get(id.index())?.origin {
        Origin::Real(edge) | Origin::Leave(edge) => Some(edge),
        // The cut edge before a path's beginning is the last edge of another path. If several cut edges lead there, it is unknown which.
        Origin::Enter(_) | Origin::Stop(_) => None,
    });
    let taken = |edge: &Edge| known.is_some_and(|k| k.edges.get(edge.index()).is_some_and(|n| *n > 0));
    let is_control_flow = |edge: &Edge| function.edges.get(edge.index()).is_some_and(|e| e.kind != EdgeKind::Reach);
    edges.filter(|edge| is_control_flow(edge) && !taken(edge)).collect()
}

/// Sums over the untested paths of a function; `paths` has only these.
pub fn new_in(function: &FunctionMap, known: Option<&KnownFunction>, paths: &FunctionPaths) -> NewInFunction {
    let mut new = NewInFunction::default();
    for path in &paths.complete {
        let edges = new_edges(function, known, &path.path);
        new.paths += 1;
        new.executions += u128::from(path.count);
        new.old_edges_only += u64::from(edges.is_empty());
        new.edges.extend(edges);
    }
    new
}

impl UntestedSummary {
    /// Adds a function's.
    pub fn add(&mut self, new: &NewInFunction) {
        self.paths += new.paths;
        self.executions += new.executions;
        self.old_edges_only += new.old_edges_only;
        self.edges += new.edges.len() as u64;
        self.functions += u64::from(new.paths > 0);
        self.functions_with_new_edges += u64::from(!new.edges.is_empty());
        if new.edges.is_empty() {
            self.in_functions_without_new_edges += new.paths;
        }
    }

    /// The sums of a profile that was filtered by known paths.
    ///
    /// # Errors
    /// A function's map is damaged.
    pub fn new(filtered: &Profile, known: &KnownPaths) -> Result<UntestedSummary, MapError> {
        let mut summary = UntestedSummary::default();
        for (_, unit, function) in filtered.functions() {
            if let Some(paths) = unit.executed_paths(function)? {
                summary.add(&new_in(function, known_of(known, &unit.map, function), &paths));
            }
        }
        Ok(summary)
    }
}

/// A known path with its executions in the tests and in the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPath {
    /// Its function.
    pub function: UntestedFunction,
    /// Its number.
    pub path: u64,
    /// Executions in the tests.
    pub tested: u64,
    /// Executions in the field.
    pub field: u64,
    /// Its place among the field's paths by executions, from 1; `None` if the field did not take it.
    pub rank: Option<usize>,
}

/// Do hot paths stay hot: the `top` complete paths that tests executed most, in a profile that counts all paths; and
/// the share of the field's executions that is theirs, from 0 to 1.
///
/// # Errors
/// A function's map is damaged.
pub fn hot(field: &Profile, known: &KnownPaths, top: usize) -> Result<(Vec<HotPath>, f64), MapError> {
    let (mut tested, mut all) = (Vec::new(), BTreeMap::<(UntestedFunction, u64), u64>::new());
    for unit in field.images.iter().flat_map(|i| &i.units) {
        for (place, function) in unit.map.functions.iter().enumerate() {
            let key = (unit.unit, place);
            let counted = FunctionPaths::decode(function, unit.counts_of(function))?;
            for path in counted.complete {
                let sum = all.entry((key, path.id)).or_default();
                *sum = sum.saturating_add(path.count);
            }
            if let Some(knows) = known_of(known, &unit.map, function) {
                let complete = FunctionPaths::decode(function, knows.known.iter().copied())?.complete;
                tested.extend(complete.iter().map(|p| (p.count, key, p.id)));
            }
        }
    }
    tested.sort_unstable_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    // A unit may be in several images.
    tested.dedup_by_key(|t| (t.1, t.2));
    tested.truncate(top);
    let mut ranked: Vec<_> = all.iter().map(|(path, count)| (*count, *path)).collect();
    ranked.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let ranks: BTreeMap<_, _> = ranked.iter().enumerate().map(|(at, (_, path))| (*path, at + 1)).collect();
    let total: u128 = ranked.iter().map(|r| u128::from(r.0)).sum();
    let hot: Vec<HotPath> = tested
        .into_iter()
        .map(|(tested, function, path)| {
            let field = all.get(&(function, path)).copied().unwrap_or(0);
            HotPath { function, path, tested, field, rank: ranks.get(&(function, path)).copied() }
        })
        .collect();
    let theirs: u128 = hot.iter().map(|h| u128::from(h.field)).sum();
    Ok((hot, if total == 0 { 0.0 } else { theirs as f64 / total as f64 }))
}
