//! Causes by function: what a report says first.

use crate::replay::Replayed;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use trodden_waits::{LocationId, LocationState, causes};

/// Code that causes waits.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Its name.
    pub function: String,
    /// The functions that call it, with what comes by each, most first; none if it is the outermost.
    pub callers: Vec<(String, u64)>,
    /// Source file; empty where it is not known.
    pub file: String,
    /// Its first line; 0 where it is not known.
    pub line: u32,
    /// Who executes it.
    pub location: LocationId,
    /// What it does meanwhile.
    pub state: LocationState,
    /// Waiting that it causes, ns.
    pub ns: u64,
}

/// What a cause is named by: path, file, location, state.
type Key<'a> = (&'a [String], &'a str, LocationId, LocationState);

/// Waiting by the line that is executed, and by the caller.
#[derive(Default)]
struct CauseSum<'a> {
    ns: u64,
    lines: BTreeMap<u32, u64>,
    callers: BTreeMap<Option<&'a str>, u64>,
}

impl CauseSum<'_> {
    fn cause(&self, (function, file, location, state): Key) -> Cause {
        let line = self.lines.iter().max_by_key(|(line, ns)| (**ns, u32::MAX - **line)).map_or(0, |(line, _)| *line);
        let callers = self.callers.iter().filter_map(|(caller, ns)| Some(((*caller)?.to_owned(), *ns)));
        let mut callers: Vec<(String, u64)> = callers.collect();
        callers.sort_by_key(|(_, ns)| Reverse(*ns));
        Cause { function: function.last().cloned().unwrap_or_default(), callers, file: file.into(), line, location, state, ns: self.ns }
    }
}

/// Causes added up by function, location and state, with the line that most of it is in.
///
/// A function that several functions call may be a helper of all of them: where nearly all of a location's waiting for it comes by one
/// of these, which the other locations do not execute, that one is the cause. And so is a function that makes no recorded call, where its
/// waiting is spread over what it calls.
pub fn by_function(replayed: &Replayed) -> Vec<Cause> {
    let codes = &replayed.names.codes;
    let (callers, executed) = (callers(replayed), executed(replayed));
    let found = causes(&replayed.outcome.steps, &replayed.outcome.sites);
    let mut depth: Vec<usize> = found.iter().map(|cause| codes.get(cause.step.code).path.len()).collect();
    let deepest = depth.iter().copied().max().unwrap_or(0);
    let coordinators = coordinators(replayed);
    for level in (2..=deepest).rev() {
        gather(replayed, &found, &mut depth, level, &coordinators);
        lift(replayed, &found, &mut depth, level, &callers, &executed);
    }
    let mut sums: HashMap<Key, CauseSum> = HashMap::new();
    for (cause, depth) in found.iter().zip(&depth) {
        let code = codes.get(cause.step.code);
        // Where a helper is named by its caller, the line is that of the call.
        let (file, line) = code.place(*depth).unwrap_or((&code.file, codes.line(cause.step.code)));
        let function = &code.path[depth.saturating_sub(1)..*depth];
        let sum = sums.entry((function, file, cause.step.location, cause.step.state)).or_default();
        sum.ns += cause.wait_ns;
        *sum.lines.entry(line).or_default() += cause.wait_ns;
        let caller = depth.checked_sub(2).map(|at| code.path[at].as_str());
        *sum.callers.entry(caller).or_default() += cause.wait_ns;
    }
    let mut found: Vec<Cause> = sums.into_iter().map(|(key, sum)| sum.cause(key)).collect();
    found.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (&a.function, a.location, a.state).cmp(&(&b.function, b.location, b.state))));
    found
}

/// Functions by the functions that call them.
fn callers(replayed: &Replayed) -> HashMap<&str, HashSet<&str>> {
    let mut callers: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (_, code) in replayed.names.codes.iter() {
        for pair in code.path.windows(2).filter(|pair| pair[0] != pair[1]) {
            callers.entry(&pair[1]).or_default().insert(&pair[0]);
        }
    }
    callers
}

/// Times of functions, with all that they call, by location.
fn executed(replayed: &Replayed) -> HashMap<&str, HashMap<LocationId, u64>> {
    let mut executed: HashMap<&str, HashMap<LocationId, u64>> = HashMap::new();
    for (id, ns) in &replayed.outcome.executed {
        let step = replayed.outcome.steps.get(*id);
        let functions: HashSet<&String> = replayed.names.codes.get(step.code).path.iter().collect();
        for function in functions {
            *executed.entry(function).or_default().entry(step.location).or_default() += ns;
        }
    }
    executed
}

/// Functions that a recorded call is made in, at any depth.
fn coordinators(replayed: &Replayed) -> HashSet<&str> {
    let calls = replayed.names.codes.iter().filter(|(_, code)| code.call.is_some());
    calls.flat_map(|(_, code)| &code.path).map(String::as_str).collect()
}

/// Names causes of that depth by their caller, where it makes no recorded call and none of its parts has most of its waiting: a function
/// that is slow as a whole. The outermost function of a thread is none.
fn gather(replayed: &Replayed, found: &[trodden_waits::Cause], depth: &mut [usize], level: usize, coordinators: &HashSet<&str>) {
    /// Part of a caller's waiting, from which on a function that it calls is the cause instead.
    const MOST: f64 = 2.0 / 3.0;
    if level < 3 {
        return;
    }
    let mut sums: HashMap<(&[String], LocationId, LocationState), u64> = HashMap::new();
    for cause in found {
        let path = &replayed.names.codes.get(cause.step.code).path;
        for whole in [level - 1, level].into_iter().filter(|whole| *whole <= path.len()) {
            *sums.entry((&path[..whole], cause.step.location, cause.step.state)).or_default() += cause.wait_ns;
        }
    }
    for (cause, depth) in found.iter().zip(depth).filter(|(_, depth)| **depth == level) {
        let path = &replayed.names.codes.get(cause.step.code).path;
        let sum = |whole: usize| sums.get(&(&path[..whole], cause.step.location, cause.step.state)).copied().unwrap_or(0) as f64;
        if !coordinators.contains(path[level - 2].as_str()) && sum(level) < MOST * sum(level - 1) {
            *depth = level - 1;
        }
    }
}

/// Names causes of that depth by their callers, where these are few among many.
fn lift(
    replayed: &Replayed,
    found: &[trodden_waits::Cause],
    depth: &mut [usize],
    level: usize,
    callers: &HashMap<&str, HashSet<&str>>,
    executed: &HashMap<&str, HashMap<LocationId, u64>>,
) {
    /// Part of a helper's waiting that one caller must have, and of the caller's time that is on the location.
    const NEARLY_ALL: f64 = 0.8;
    let path = |index: usize| &replayed.names.codes.get(found[index].step.code).path;
    let mut sums: HashMap<(&str, LocationId), HashMap<&str, u64>> = HashMap::new();
    for index in (0..found.len()).filter(|index| depth[*index] == level) {
        let callers = sums.entry((&path(index)[level - 1], found[index].step.location)).or_default();
        *callers.entry(&path(index)[level - 2]).or_default() += found[index].wait_ns;
    }
    for index in 0..found.len() {
        if depth[index] != level {
            continue;
        }
        let (function, caller) = (path(index)[level - 1].as_str(), path(index)[level - 2].as_str());
        let Some(sum) = sums.get(&(function, found[index].step.location)) else { continue };
        let (own, all) = (sum.get(caller).copied().unwrap_or(0), sum.values().sum::<u64>());
        let is_helper = callers.get(function).is_some_and(|callers| callers.len() > 1);
        let times = executed.get(caller);
        let here = times.and_then(|times| times.get(&found[index].step.location)).copied().unwrap_or(0);
        let is_special = here as f64 >= NEARLY_ALL * times.map_or(0, |times| times.values().sum::<u64>()) as f64;
        if is_helper && is_special && function != caller && own as f64 >= NEARLY_ALL * all as f64 {
            depth[index] = level - 1;
        }
    }
}
