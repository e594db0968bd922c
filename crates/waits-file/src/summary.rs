//! The contents of a report: causes of waiting by function, call sites at which threads wait, imbalance between locations, and the critical
//! path.

use crate::causes::{CodeCause, sum_by_function};
use crate::codes::CodeStackLocation;
use crate::replay::{AnalysedRecording, NamedLocation};
use std::collections::BTreeMap;
use trodden_text::escape;
use trodden_waits::{CodeId, LocationId, LocationState, Step, WaitClass, explain_wait_class, find_causes};

/// Everything that a report on waiting time shows.
pub struct WaitSummary {
    /// Code for which other locations wait, because a location computes or sleeps there.
    pub causes: Vec<CodeCause>,
    /// Causes other than code: long calls, lack of a processor, start-up, and unexplained waits.
    pub other_causes: Vec<CodeCause>,
    /// The waiting time in ns that each source line causes, as (file, line, ns).
    pub lines: Vec<(String, u32, u64)>,
    /// Call sites at which locations wait, longest total waiting time first.
    pub sites: Vec<SiteSummary>,
    /// The underlying analysis.
    pub replayed: AnalysedRecording,
    /// Two waits at the same call site count as equivalent if the distance of their paths is less than this.
    pub threshold: f64,
    /// For each kind of wait, longest first: its name, its family, the number of waits, and their total length in ns.
    pub kinds: Vec<(&'static str, &'static str, u64, u64)>,
    /// Functions in which some locations spend more time than others. The first one has the largest excess of the slowest location over the
    /// mean.
    pub imbalance: Vec<FunctionImbalance>,
    /// Functions and their time on the critical path in ns, longest first.
    pub critical_path: Vec<(String, u64)>,
}

/// A call site at which locations wait.
pub struct SiteSummary {
    /// The code that makes the call.
    pub code: CodeId,
    /// Name of the kind of wait.
    pub kind: &'static str,
    /// Family of the kind of wait.
    pub family: &'static str,
    /// Number of waits at the site.
    pub occurrences: u64,
    /// Total length of all waits in ns.
    pub total_ns: u64,
    /// The waits at the site, divided into classes with equivalent paths.
    pub classes: Vec<ClassSummary>,
}

/// A class of equivalent waits.
pub struct ClassSummary {
    /// The class as the analysis has found it.
    pub waits: WaitClass,
    /// Steps on the path of the location that ended the wait, with their times in ns.
    pub plus: Vec<(Step, u64)>,
    /// Steps on the path of the location that waited, with their times in ns.
    pub minus: Vec<(Step, u64)>,
    /// Total time in ns of the steps that were removed because they are the same or similar on both paths: on the longer path, and on the
    /// shorter one.
    pub removed_ns: (u64, u64),
}

/// A function in which locations spend different amounts of time.
pub struct FunctionImbalance {
    /// Name of the function.
    pub function: String,
    /// The location that spends the most time in the function.
    pub location: LocationId,
    /// The time in ns that this location spends in the function.
    pub max_ns: u64,
    /// Mean time in ns over all locations.
    pub mean_ns: u64,
}

impl WaitSummary {
    /// Summarises an analysis.
    pub fn new(replayed: AnalysedRecording, threshold: f64) -> WaitSummary {
        let outcome = &replayed.outcome;
        let sites = outcome.sites.iter().map(|site| SiteSummary {
            code: site.site.code,
            kind: site.site.kind.name(),
            family: site.site.kind.family(),
            occurrences: site.occurrences,
            total_ns: site.total_ns,
            classes: site.classes.iter().map(|class| summarise_class(&replayed, class)).collect(),
        });
        let mut kinds: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for site in &outcome.sites {
            let sum = kinds.entry((site.site.kind.name(), site.site.kind.family())).or_default();
            *sum = (sum.0 + site.occurrences, sum.1 + site.total_ns);
        }
        let mut kinds: Vec<_> = kinds.into_iter().map(|((name, family), (count, ns))| (name, family, count, ns)).collect();
        kinds.sort_by_key(|(name, _, _, ns)| (std::cmp::Reverse(*ns), *name));
        let is_code = |cause: &CodeCause| matches!(cause.state, LocationState::Computing | LocationState::Blocked);
        let (causes, other_causes) = sum_by_function(&replayed).into_iter().partition(is_code);
        WaitSummary {
            causes,
            other_causes,
            lines: distribute_over_lines(&replayed),
            sites: sites.collect(),
            threshold,
            kinds,
            imbalance: find_imbalance(&replayed),
            critical_path: sum_critical_path(&replayed),
            replayed,
        }
    }

    /// Returns the code with the given number.
    pub fn code(&self, id: CodeId) -> &CodeStackLocation {
        self.replayed.names.codes.get(id)
    }

    /// Returns the line that reports show for a code; 0 if unknown.
    pub fn line(&self, id: CodeId) -> u32 {
        self.replayed.names.codes.line(id)
    }

    /// Returns the name and the processor time of a location.
    pub fn location(&self, id: LocationId) -> &NamedLocation {
        &self.replayed.locations[id.0 as usize]
    }

    /// Returns a location's name for text output. The thread is left out if its process has no other; the process is left out if it is the
    /// only one, has several threads, and has no rank.
    pub fn location_name(&self, id: LocationId) -> String {
        let name = self.location(id);
        if let Some(label) = &name.label {
            return escape::escape_line(label);
        }
        let process = format!("{} {}", if name.is_rank { "rank" } else { "process" }, name.process);
        let has_threads = self.replayed.locations.iter().any(|other| other.thread > 0 && other.process == name.process);
        let has_processes = self.replayed.locations.iter().any(|other| other.process != name.process);
        match (has_processes || name.is_rank, has_threads) {
            (true, true) => format!("{process} thread {}", name.thread),
            (false, true) => format!("thread {}", name.thread),
            (_, false) => process,
        }
    }
}

fn summarise_class(replayed: &AnalysedRecording, class: &WaitClass) -> ClassSummary {
    let explained = explain_wait_class(&replayed.outcome.steps, class);
    ClassSummary {
        waits: class.clone(),
        removed_ns: (explained.equal_ns + explained.pairs_ns.0, explained.equal_ns + explained.pairs_ns.1),
        plus: explained.plus,
        minus: explained.minus,
    }
}

/// Distributes the waiting time that each code causes over the lines of the code, in proportion to their weights.
fn distribute_over_lines(replayed: &AnalysedRecording) -> Vec<(String, u32, u64)> {
    let codes = &replayed.names.codes;
    let mut sums: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for cause in find_causes(&replayed.outcome.steps, &replayed.outcome.sites) {
        let code = codes.get(cause.step.code);
        if code.file.is_empty() || !matches!(cause.step.state, LocationState::Computing | LocationState::Blocked) {
            continue;
        }
        let known = codes.line_weights(cause.step.code).filter(|lines| code.call.is_none() && lines.values().any(|weight| *weight > 0));
        let Some(known) = known else {
            *sums.entry((&code.file, codes.line(cause.step.code))).or_default() += cause.wait_ns;
            continue;
        };
        let all: u128 = known.values().map(|weight| u128::from(*weight)).sum();
        for (line, weight) in known {
            *sums.entry((&code.file, *line)).or_default() += (u128::from(cause.wait_ns) * u128::from(*weight) / all) as u64;
        }
    }
    sums.into_iter().filter(|((_, line), ns)| *line > 0 && *ns > 0).map(|((file, line), ns)| (file.to_owned(), line, ns)).collect()
}

fn find_imbalance(replayed: &AnalysedRecording) -> Vec<FunctionImbalance> {
    let mut times: BTreeMap<&str, BTreeMap<LocationId, u64>> = BTreeMap::new();
    for (id, ns) in &replayed.outcome.executed {
        let step = replayed.outcome.steps.get(*id);
        if step.state == LocationState::Computing {
            *times.entry(replayed.names.codes.get(step.code).function()).or_default().entry(step.location).or_default() += ns;
        }
    }
    let locations = replayed.locations.len().max(1) as u64;
    let mut found: Vec<FunctionImbalance> = times
        .into_iter()
        .filter_map(|(function, times)| {
            let (location, most_ns) = times.iter().max_by_key(|(location, ns)| (**ns, std::cmp::Reverse(**location)))?;
            let mean_ns = times.values().sum::<u64>() / locations;
            Some(FunctionImbalance { function: function.into(), location: *location, max_ns: *most_ns, mean_ns })
        })
        .collect();
    found.sort_by_key(|i| (std::cmp::Reverse(i.max_ns - i.mean_ns), i.function.clone()));
    found
}

fn sum_critical_path(replayed: &AnalysedRecording) -> Vec<(String, u64)> {
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    for (id, ns) in &replayed.outcome.critical_path {
        let step = replayed.outcome.steps.get(*id);
        let code = replayed.names.codes.get(step.code);
        let name = match (step.state, code.call) {
            (LocationState::Computing, _) | (_, None) => code.function().to_owned(),
            (_, Some(call)) => format!("{call} in {}", code.function()),
        };
        *times.entry(name).or_default() += ns;
    }
    let mut found: Vec<(String, u64)> = times.into_iter().collect();
    found.sort_by_key(|(name, ns)| (std::cmp::Reverse(*ns), name.clone()));
    found
}
