//! Profiles derived from branches that hardware recorded.
//!
//! The hardware records windows of consecutive branches. Counts derived from windows estimate how frequent paths are relative to each
//! other. The counts that were observed are stored in addition to the estimates.

use serde::{Deserialize, Serialize};

/// How a profile was derived from recorded branches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchSampling {
    /// Source of the data.
    pub source: SamplingSource,
    /// Number of samples taken.
    pub samples: u64,
    /// Number of intervals of execution that were observed: windows of branch records, or sections of a trace.
    pub windows: u64,
    /// Number of branch records in the windows.
    pub records: u64,
    /// Number of executions of complete paths that were observed in the windows.
    pub whole_paths: u64,
    /// Numbers of observations that could not be attributed to paths, by reason.
    pub losses: UnattributedBranches,
    /// The observed counts, if the profile's counts are estimates; otherwise empty.
    pub observed: Vec<ObservedBranches>,
}

/// How the branches were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SamplingSource {
    /// Windows of the most recent branches, recorded by the processor (`perf record -b`).
    BranchRecords,
    /// A trace of all branches. Counts are exact if no part of the trace was lost.
    BranchTrace,
    /// Paths found by a model of a hardware path profiler. `samples` is the number of the model's distinct paths, and `records` the number
    /// of their executions. `windows` is the number of executions of the program's paths that lie within a single path of the model. Counts
    /// of paths that had to be joined from several paths of the model are estimates.
    HotPaths,
}

/// Numbers of observations that could not be attributed to paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnattributedBranches {
    /// Number of executions observed in blocks whose address is known.
    pub blocks: u64,
    /// Number of executions in `blocks` that are on counted paths.
    pub blocks_counted: u64,
    /// Number of paths of which the beginning or end was not observed.
    pub incomplete: u64,
    /// Number of block sequences that are impossible in the function's graph.
    pub inconsistent: u64,
    /// Number of block sequences that match several paths, which differ only in blocks without addresses.
    pub ambiguous: u64,
    /// Number of block sequences that match a path only if one block is inferred: its address belongs to a different block, but only one
    /// path is possible. These paths were counted.
    pub inferred: u64,
    /// Number of branch records that cannot follow the record before them.
    pub broken: u64,
    /// Number of times that the recorder reported lost data.
    pub gaps: u64,
}

/// Observed counts of a unit's paths, from which the profile's estimates were computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedBranches {
    /// Index of the image in the profile.
    pub image: u32,
    /// Index of the unit in the image.
    pub unit: u32,
    /// Nonzero counts by index of the counter within the unit, ascending.
    pub counts: Vec<(u64, u64)>,
}

impl BranchSampling {
    /// Returns whether all executions were observed. If not, an unfinished path may only be a gap in the observations.
    pub fn is_complete(&self) -> bool {
        let UnattributedBranches { blocks: _, blocks_counted: _, incomplete, inconsistent, ambiguous, inferred: _, broken, gaps } =
            self.losses;
        self.source == SamplingSource::BranchTrace && [incomplete, inconsistent, ambiguous, broken, gaps] == [0; 5]
    }

    /// Describes the recorded data in one line, for the header of a report.
    pub fn summary(&self) -> String {
        if self.source == SamplingSource::HotPaths {
            let BranchSampling { samples, windows, whole_paths, .. } = self;
            let joined = whole_paths.saturating_sub(*windows);
            return format!(
                "from {samples} paths of the hardware profiler's model: {whole_paths} executions, of which {joined} are estimates, joined \
                 from several of these paths"
            );
        }
        let source = match self.source {
            SamplingSource::BranchRecords => "sampled from branch records",
            SamplingSource::BranchTrace => "from a trace of branches",
            SamplingSource::HotPaths => "from hot paths",
        };
        let BranchSampling { samples, windows, whole_paths, .. } = self;
        let lost = match (self.losses.blocks, self.losses.blocks_counted) {
            (0, _) => String::new(),
            (all, counted) => format!(", {:.1}% of the observed blocks are on these paths", 100.0 * counted as f64 / all as f64),
        };
        format!("{source}: {samples} samples, {windows} windows, {whole_paths} complete paths{lost}")
    }

    /// Adds the data of another profile. Drops the observed counts, because merging changes the indices of images that they refer to.
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
            (&mut to.incomplete, more.incomplete),
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
