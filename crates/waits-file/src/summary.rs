//! The contents of a report: causes by function, wait sites with their classes, imbalance, and the critical path.

use crate::causes::{CodeCause, by_function};
use crate::codes::CodeLocation;
use crate::replay::{LocationName, Replayed};
use std::collections::BTreeMap;
use trodden_text::escape;
use trodden_waits::{CodeId, LocationId, LocationState, Step, WaitClass, causes, explain};

/// Everything that a report on waiting time shows.
pub struct WaitSummary {
    /// Code that other locations wait for, because it computes or sleeps.
    pub causes: Vec<CodeCause>,
    /// Causes other than code: long calls, lack of a processor, start-up, and unexplained waits.
    pub other_causes: Vec<CodeCause>,
    /// Waiting that source lines cause: file, line, ns.
    pub lines: Vec<(String, u32, u64)>,
    /// Wait sites, longest total wait first.
    pub sites: Vec<SiteSummary>,
    /// The underlying analysis.
    pub replayed: Replayed,
    /// Distance of paths below which waits at a site are equivalent.
    pub threshold: f64,
    /// Waits by kind: name, family, occurrences, ns. Longest first.
    pub kinds: Vec<(&'static str, &'static str, u64, u64)>,
    /// Functions in which locations spend different amounts of time, by the excess of the slowest location over the mean.
    pub imbalance: Vec<Imbalance>,
    /// Functions with their time on the critical path in ns, longest first.
    pub critical_path: Vec<(String, u64)>,
}

/// A wait site.
pub struct SiteSummary {
    /// Code that makes the call.
    pub code: CodeId,
    /// Name of the kind of wait.
    pub kind: &'static str,
    /// Family of the kind.
    pub family: &'static str,
    /// Number of waits.
    pub occurrences: u64,
    /// Sum of all waits, ns.
    pub total_ns: u64,
    /// Classes of waits with equivalent paths.
    pub classes: Vec<ClassSummary>,
}

/// A class of waits.
pub struct ClassSummary {
    /// The class itself.
    pub waits: WaitClass,
    /// Steps on the path of the location waited for, with their times in ns.
    pub plus: Vec<(Step, u64)>,
    /// Steps on the path of the waiting location, with their times in ns.
    pub minus: Vec<(Step, u64)>,
    /// Total time of the redundant steps removed from the longer and from the shorter path, ns.
    pub removed_ns: (u64, u64),
}

/// A function in which locations spend different amounts of time.
pub struct Imbalance {
    /// Name of the function.
    pub function: String,
    /// The location that spends the most time in it.
    pub location: LocationId,
    /// Time of that location, ns.
    pub max_ns: u64,
    /// Mean over all locations, ns.
    pub mean_ns: u64,
}

impl WaitSummary {
    /// Summarises an analysis.
    pub fn new(replayed: Replayed, threshold: f64) -> WaitSummary {
        let outcome = &replayed.outcome;
        let sites = outcome.sites.iter().map(|site| SiteSummary {
            code: site.site.code,
            kind: site.site.kind.name(),
            family: site.site.kind.family(),
            occurrences: site.occurrences,
            total_ns: site.total_ns,
            classes: site.classes.iter().map(|class| class_summary(&replayed, class)).collect(),
        });
        let mut kinds: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for site in &outcome.sites {
            let sum = kinds.entry((site.site.kind.name(), site.site.kind.family())).or_default();
            *sum = (sum.0 + site.occurrences, sum.1 + site.total_ns);
        }
        let mut kinds: Vec<_> = kinds.into_iter().map(|((name, family), (count, ns))| (name, family, count, ns)).collect();
        kinds.sort_by_key(|(name, _, _, ns)| (std::cmp::Reverse(*ns), *name));
        let is_code = |cause: &CodeCause| matches!(cause.state, LocationState::Computing | LocationState::Blocked);
        let (causes, other_causes) = by_function(&replayed).into_iter().partition(is_code);
        WaitSummary {
            causes,
            other_causes,
            lines: lines(&replayed),
            sites: sites.collect(),
            threshold,
            kinds,
            imbalance: imbalance(&replayed),
            critical_path: critical(&replayed),
            replayed,
        }
    }

    /// Returns the code with a number.
    pub fn code(&self, id: CodeId) -> &CodeLocation {
        self.replayed.names.codes.get(id)
    }

    /// Returns the line that represents a code; 0 if unknown.
    pub fn line(&self, id: CodeId) -> u32 {
        self.replayed.names.codes.line(id)
    }

    /// Returns the identity of a location.
    pub fn location(&self, id: LocationId) -> &LocationName {
        &self.replayed.locations[id.0 as usize]
    }

    /// Returns a location's name for text output. The process and the thread are named only if the run has several.
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

fn class_summary(replayed: &Replayed, class: &WaitClass) -> ClassSummary {
    let explained = explain(&replayed.outcome.steps, class);
    ClassSummary {
        waits: class.clone(),
        removed_ns: (explained.equal_ns + explained.pairs_ns.0, explained.equal_ns + explained.pairs_ns.1),
        plus: explained.plus,
        minus: explained.minus,
    }
}

/// Distributes the waiting that code causes over the code's lines, in proportion to the time spent in each.
fn lines(replayed: &Replayed) -> Vec<(String, u32, u64)> {
    let codes = &replayed.names.codes;
    let mut sums: BTreeMap<(&str, u32), u64> = BTreeMap::new();
    for cause in causes(&replayed.outcome.steps, &replayed.outcome.sites) {
        let code = codes.get(cause.step.code);
        if code.file.is_empty() || !matches!(cause.step.state, LocationState::Computing | LocationState::Blocked) {
            continue;
        }
        let known = codes.lines(cause.step.code).filter(|lines| code.call.is_none() && lines.values().any(|weight| *weight > 0));
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

fn imbalance(replayed: &Replayed) -> Vec<Imbalance> {
    let mut times: BTreeMap<&str, BTreeMap<LocationId, u64>> = BTreeMap::new();
    for (id, ns) in &replayed.outcome.executed {
        let step = replayed.outcome.steps.get(*id);
        if step.state == LocationState::Computing {
            *times.entry(replayed.names.codes.get(step.code).function()).or_default().entry(step.location).or_default() += ns;
        }
    }
    let locations = replayed.locations.len().max(1) as u64;
    let mut found: Vec<Imbalance> = times
        .into_iter()
        .filter_map(|(function, times)| {
            let (location, most_ns) = times.iter().max_by_key(|(location, ns)| (**ns, std::cmp::Reverse(**location)))?;
            let mean_ns = times.values().sum::<u64>() / locations;
            Some(Imbalance { function: function.into(), location: *location, max_ns: *most_ns, mean_ns })
        })
        .collect();
    found.sort_by_key(|i| (std::cmp::Reverse(i.max_ns - i.mean_ns), i.function.clone()));
    found
}

fn critical(replayed: &Replayed) -> Vec<(String, u64)> {
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
