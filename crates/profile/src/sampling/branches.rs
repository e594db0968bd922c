//! Profiles of branches that hardware recorded: what was seen, and what of it could not be counted.
//!
//! Counts of such a profile are estimates where windows were seen: they say which paths are frequent in proportion to
//! each other. The numbers that were seen are kept beside them.

use serde::{Deserialize, Serialize};

/// How a profile came out of branch records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchSampling {
    /// From what.
    pub source: BranchSource,
    /// Number of samples taken.
    pub samples: u64,
    /// Number of stretches of execution that the samples showed: windows of branch records, or pieces of a trace.
    pub windows: u64,
    /// Number of branch records in them.
    pub records: u64,
    /// Whole paths seen in them.
    pub whole_paths: u64,
    /// What could not be counted.
    pub losses: Losses,
    /// How often each path was seen, where the profile's counts are estimates.
    pub observed: Vec<Observed>,
}

/// What a profile was sampled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BranchSource {
    /// Windows of the last branches, by hardware (`perf record -b`).
    BranchRecords,
    /// A trace of all branches; where nothing was lost, counts are exact.
    BranchTrace,
    /// Paths that a model of the hardware path profiler found: samples are its different paths, windows the executions of
    /// the unit's paths that lie in one of them, records the executions of its paths. Paths joined of several are estimates.
    HotPaths,
}

/// What was seen and is not in the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Blocks executed in what was seen, as far as they have addresses.
    pub blocks: u64,
    /// Those of them that are on paths that were counted.
    pub blocks_counted: u64,
    /// Paths of which the beginning or the end was not seen.
    pub cut_off: u64,
    /// Sequences of blocks that the function's graph does not allow.
    pub inconsistent: u64,
    /// Sequences of blocks between which the graph has several ways without addresses.
    pub ambiguous: u64,
    /// Sequences of blocks between which one was passed whose address is another's here: what is on the only way was counted.
    pub inferred: u64,
    /// BranchSampling that do not follow the one before.
    pub broken: u64,
    /// Places where the recorder says that something was lost.
    pub gaps: u64,
}

/// How often paths of a unit were seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Place of the image in the profile.
    pub image: u32,
    /// Place of the unit in the image.
    pub unit: u32,
    /// Counters that are not zero, by index within the unit, ascending.
    pub counts: Vec<(u64, u64)>,
}

impl BranchSampling {
    /// In words, for the head of a report.
    pub fn summary(&self) -> String {
        if self.source == BranchSource::HotPaths {
            let BranchSampling { samples, windows, whole_paths, .. } = self;
            let joined = whole_paths.saturating_sub(*windows);
            return format!(
                "from {samples} paths of the hardware profiler's model: {whole_paths} executions, {joined} of them joined of pieces \
                 (estimates)"
            );
        }
        let source = match self.source {
            BranchSource::BranchRecords => "sampled from branch records",
            BranchSource::BranchTrace => "from a trace of branches",
            BranchSource::HotPaths => "from hot paths",
        };
        let BranchSampling { samples, windows, whole_paths, .. } = self;
        let lost = match (self.losses.blocks, self.losses.blocks_counted) {
            (0, _) => String::new(),
            (all, counted) => format!(", {:.1} % of the blocks seen are on them", 100.0 * counted as f64 / all as f64),
        };
        format!("{source}: {samples} samples, {windows} windows, {whole_paths} whole paths{lost}")
    }

    /// Adds what another profile says. How often each path was seen is not kept, since places of images change.
    pub fn add(&mut self, other: BranchSampling) {
        let sum = self;
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut sum.samples, other.samples);
        add(&mut sum.windows, other.windows);
        add(&mut sum.records, other.records);
        add(&mut sum.whole_paths, other.whole_paths);
        let (to, more) = (&mut sum.losses, other.losses);
        for (to, more) in [
            (&mut to.blocks, more.blocks),
            (&mut to.blocks_counted, more.blocks_counted),
            (&mut to.cut_off, more.cut_off),
            (&mut to.inconsistent, more.inconsistent),
            (&mut to.ambiguous, more.ambiguous),
            (&mut to.inferred, more.inferred),
            (&mut to.broken, more.broken),
            (&mut to.gaps, more.gaps),
        ] {
            add(to, more);
        }
        sum.observed = Vec::new();
    }
}
