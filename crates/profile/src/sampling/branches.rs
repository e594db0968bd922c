//! Profiles from branches that hardware recorded: the observed data, and the part of it that could not be counted.
//!
//! If the data are windows of branches, counts are estimates: they give the relative frequencies of paths. The observed numbers are kept
//! beside them.

use serde::{Deserialize, Serialize};

/// How a profile was made from branch records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchSampling {
    /// The kind of data.
    pub source: BranchSource,
    /// Number of samples taken.
    pub samples: u64,
    /// Number of observed intervals of execution: windows of branch records, or pieces of a trace.
    pub windows: u64,
    /// Number of branch records in them.
    pub records: u64,
    /// Whole paths seen in them.
    pub whole_paths: u64,
    /// Data that could not be counted.
    pub losses: Losses,
    /// The observed count of each path, if the profile's counts are estimates.
    pub observed: Vec<ObservedBranches>,
}

/// The source of a profile's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BranchSource {
    /// Windows of the last branches, by hardware (`perf record -b`).
    BranchRecords,
    /// A trace of all branches; counts are exact if nothing was lost.
    BranchTrace,
    /// Paths that a model of the hardware path profiler found: samples are its different paths, windows the executions of
    /// the unit's paths that lie in one of them, records the executions of its paths. Paths joined of several are estimates.
    HotPaths,
}

/// Observed data that is not in the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Observed executions of blocks that have addresses.
    pub blocks: u64,
    /// Those of them that are on counted paths.
    pub blocks_counted: u64,
    /// Paths whose beginning or end was not observed.
    pub cut_off: u64,
    /// Sequences of blocks that the function's graph does not allow.
    pub inconsistent: u64,
    /// Sequences of blocks between which the graph has several paths without addresses.
    pub ambiguous: u64,
    /// Sequences with a block in between that has the address of another block. The only possible path was counted.
    pub inferred: u64,
    /// Records that do not follow the record before.
    pub broken: u64,
    /// Places where the recorder reports lost data.
    pub gaps: u64,
}

/// Observed counts of a unit's paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedBranches {
    /// Place of the image in the profile.
    pub image: u32,
    /// Place of the unit in the image.
    pub unit: u32,
    /// Counters that are not zero, by index within the unit, ascending.
    pub counts: Vec<(u64, u64)>,
}

impl BranchSampling {
    /// Whether all that was executed was seen whole: only then does a path that began and did not end say something of the program.
    pub fn is_complete(&self) -> bool {
        let Losses { blocks: _, blocks_counted: _, cut_off, inconsistent, ambiguous, inferred: _, broken, gaps } = self.losses;
        self.source == BranchSource::BranchTrace && [cut_off, inconsistent, ambiguous, broken, gaps] == [0; 5]
    }

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
            (all, counted) => format!(", {:.1} % of the observed blocks are on them", 100.0 * counted as f64 / all as f64),
        };
        format!("{source}: {samples} samples, {windows} windows, {whole_paths} whole paths{lost}")
    }

    /// Adds another profile's data. Observed counts of paths are not kept, because indices of images change.
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
