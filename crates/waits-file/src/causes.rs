//! Sums up by function what causes other threads to wait, for the first part of a report.

use crate::replay::AnalysedRecording;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use trodden_waits::{LocationId, LocationState, find_causes};

/// Code that makes other threads wait. A *location* is a thread of a process.
#[derive(Clone, Debug)]
pub struct CodeCause {
    /// The name of the function that contains the code.
    pub function: String,
    /// The functions that call this function, each with the waiting time in ns that its calls cause, largest first. Empty for the outermost
    /// function.
    pub callers: Vec<(String, u64)>,
    /// Source file of the function; empty if unknown.
    pub file: String,
    /// The line that causes the most waiting time; 0 if unknown.
    pub line: u32,
    /// The location that executes the code.
    pub location: LocationId,
    /// The state of the location at that time, such as computing or sleeping.
    pub state: LocationState,
    /// The waiting time that the code causes, in ns.
    pub ns: u64,
}

/// The name of the function (as a slice of one element, or an empty one), its file, the location, and its state.
type CodeCauseKey<'a> = (&'a [String], &'a str, LocationId, LocationState);

/// The waiting time in ns that is attributed to a cause: in total, by line, and by caller.
#[derive(Default)]
struct CodeCauseSum<'a> {
    ns: u64,
    lines: BTreeMap<u32, u64>,
    callers: BTreeMap<Option<&'a str>, u64>,
}

impl CodeCauseSum<'_> {
    fn to_cause(&self, (function, file, location, state): CodeCauseKey) -> CodeCause {
        let line = self.lines.iter().max_by_key(|(line, ns)| (**ns, u32::MAX - **line)).map_or(0, |(line, _)| *line);
        let callers = self.callers.iter().filter_map(|(caller, ns)| Some(((*caller)?.to_owned(), *ns)));
        let mut callers: Vec<(String, u64)> = callers.collect();
        callers.sort_by_key(|(_, ns)| Reverse(*ns));
        CodeCause { function: function.last().cloned().unwrap_or_default(), callers, file: file.into(), line, location, state, ns: self.ns }
    }
}

/// Sums up causes of waiting by function, location and state, largest first.
///
/// For a helper that several functions call, naming the helper explains little. If nearly all of the waiting that it causes on a location
/// is due to one caller, and this caller runs almost only on that location, the caller is named instead. A caller is also named instead of
/// its callees if it makes no recorded call and its waiting is spread over several callees.
pub fn sum_by_function(replayed: &AnalysedRecording) -> Vec<CodeCause> {
    let codes = &replayed.names.codes;
    let (callers, executed) = (find_callers_by_function(replayed), sum_time_by_function(replayed));
    let found = find_causes(&replayed.outcome.steps, &replayed.outcome.sites);
    let mut depth: Vec<usize> = found.iter().map(|cause| codes.get(cause.step.code).path.len()).collect();
    let deepest = depth.iter().copied().max().unwrap_or(0);
    let calling_functions = find_calling_functions(replayed);
    for level in (2..=deepest).rev() {
        merge_into_callers(replayed, &found, &mut depth, level, &calling_functions);
        attribute_to_callers(replayed, &found, &mut depth, level, &callers, &executed);
    }
    let mut sums: HashMap<CodeCauseKey, CodeCauseSum> = HashMap::new();
    for (cause, depth) in found.iter().zip(&depth) {
        let code = codes.get(cause.step.code);
        // If a caller is named instead of its callee, the line is that of the call.
        let (file, line) = code.location_of_call(*depth).unwrap_or((&code.file, codes.line(cause.step.code)));
        let function = &code.path[depth.saturating_sub(1)..*depth];
        let sum = sums.entry((function, file, cause.step.location, cause.step.state)).or_default();
        sum.ns += cause.wait_ns;
        *sum.lines.entry(line).or_default() += cause.wait_ns;
        let caller = depth.checked_sub(2).map(|at| code.path[at].as_str());
        *sum.callers.entry(caller).or_default() += cause.wait_ns;
    }
    let mut found: Vec<CodeCause> = sums.into_iter().map(|(key, sum)| sum.to_cause(key)).collect();
    found.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (&a.function, a.location, a.state).cmp(&(&b.function, b.location, b.state))));
    found
}

fn find_callers_by_function(replayed: &AnalysedRecording) -> HashMap<&str, HashSet<&str>> {
    let mut callers: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (_, code) in replayed.names.codes.iter() {
        for pair in code.path.windows(2).filter(|pair| pair[0] != pair[1]) {
            callers.entry(&pair[1]).or_default().insert(&pair[0]);
        }
    }
    callers
}

/// Returns for each function and location the inclusive time in ns.
fn sum_time_by_function(replayed: &AnalysedRecording) -> HashMap<&str, HashMap<LocationId, u64>> {
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

/// Returns the functions that make recorded calls, directly or through other functions.
fn find_calling_functions(replayed: &AnalysedRecording) -> HashSet<&str> {
    let calls = replayed.names.codes.iter().filter(|(_, code)| code.call.is_some());
    calls.flat_map(|(_, code)| &code.path).map(String::as_str).collect()
}

/// Moves causes at stack depth `level` up to their callers, where the caller makes no recorded call and no single callee is responsible for
/// most of its waiting. Causes never move up to a thread's outermost function.
fn merge_into_callers(
    replayed: &AnalysedRecording,
    found: &[trodden_waits::Cause],
    depth: &mut [usize],
    level: usize,
    calling_functions: &HashSet<&str>,
) {
    /// If a callee has at least this share of its caller's waiting, it remains the cause.
    const MIN_MAIN_CALLEE_SHARE: f64 = 2.0 / 3.0;
    if level < 3 {
        return;
    }
    let mut sums: HashMap<(&[String], LocationId, LocationState), u64> = HashMap::new();
    for cause in found {
        let path = &replayed.names.codes.get(cause.step.code).path;
        for prefix in [level - 1, level].into_iter().filter(|prefix| *prefix <= path.len()) {
            *sums.entry((&path[..prefix], cause.step.location, cause.step.state)).or_default() += cause.wait_ns;
        }
    }
    for (cause, depth) in found.iter().zip(depth).filter(|(_, depth)| **depth == level) {
        let path = &replayed.names.codes.get(cause.step.code).path;
        let sum = |prefix: usize| sums.get(&(&path[..prefix], cause.step.location, cause.step.state)).copied().unwrap_or(0) as f64;
        if !calling_functions.contains(path[level - 2].as_str()) && sum(level) < MIN_MAIN_CALLEE_SHARE * sum(level - 1) {
            *depth = level - 1;
        }
    }
}

/// Moves causes at stack depth `level` up to their callers, where the function is a helper with several callers. The caller must be
/// responsible for nearly all of the waiting that the helper causes on the location, and must run almost only on that location.
fn attribute_to_callers(
    replayed: &AnalysedRecording,
    found: &[trodden_waits::Cause],
    depth: &mut [usize],
    level: usize,
    callers: &HashMap<&str, HashSet<&str>>,
    executed: &HashMap<&str, HashMap<LocationId, u64>>,
) {
    /// Minimum share in both conditions: of the caller in the helper's waiting, and of the location in the caller's time.
    const MIN_CALLER_SHARE: f64 = 0.8;
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
        let is_special = here as f64 >= MIN_CALLER_SHARE * times.map_or(0, |times| times.values().sum::<u64>()) as f64;
        if is_helper && is_special && function != caller && own as f64 >= MIN_CALLER_SHARE * all as f64 {
            depth[index] = level - 1;
        }
    }
}
