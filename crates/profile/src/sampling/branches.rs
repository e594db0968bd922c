//! Profiles derived from branches that hardware recorded.
//!
//! Counts from windows of branches are estimates of the paths' relative frequencies. The observed counts are stored as well.

use serde::{Deserialize, Serialize};

/// How a profile was derived from recorded branches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchSampling {
    /// Source of the data.
    pub source: SamplingSource,
    /// Number of samples taken.
    pub samples: u64,
    /// Number of observed intervals of execution: windows of branch records, or pieces of a trace.
    pub windows: u64,
    /// Number of branch records in the windows.
    pub records: u64,
    /// Number of executions of complete paths in the windows.
    pub whole_paths: u64,
    /// Number of observations that could not be counted, by reason.
    pub losses: Losses,
    /// The observed counts, if the profile's counts are estimates; otherwise empty.
    pub observed: Vec<ObservedBranches>,
}

/// Source of a profile's branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SamplingSource {
    /// Windows of the most recent branches, recorded by hardware (`perf record -b`).
    BranchRecords,
    /// A trace of all branches. Counts are exact if nothing was lost.
    BranchTrace,
    /// Paths found by a model of the hardware path profiler. `samples` is the number of the model's distinct paths, `records` the number of
    /// their executions, and `windows` the number of executions of unit paths that are part of a single model path. Counts of unit paths
    /// that had to be joined from several model paths are estimates.
    HotPaths,
}

/// Observed data that could not be attributed to paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Number of observed executions of blocks that have addresses.
    pub blocks: u64,
    /// Number of these executions that are on counted paths.
    pub blocks_counted: u64,
    /// Number of paths whose beginning or end was not observed.
    pub incomplete: u64,
    /// Number of block sequences that the function's graph does not allow.
    pub inconsistent: u64,
    /// Number of block sequences that match several paths, because these differ only in blocks without addresses.
    pub ambiguous: u64,
    /// Number of block sequences in which one block was inferred, because its address belongs to a different block and only one path is
    /// possible. The path was counted.
    pub inferred: u64,
    /// Number of records that cannot follow the previous record.
    pub broken: u64,
    /// Number of times the recorder reported lost data.
    pub gaps: u64,
}

/// Observed counts of a unit's paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedBranches {
    /// Index of the image in the profile.
    pub image: u32,
    /// Index of the unit in the image.
    pub unit: u32,
    /// Nonzero counters by index within the unit, ascending.
    pub counts: Vec<(u64, u64)>,
}

impl BranchSampling {
    /// Returns whether all executions were observed. Otherwise an unfinished path may only be a gap in the data.
    pub fn is_complete(&self) -> bool {
        let Losses { blocks: _, blocks_counted: _, incomplete, inconsistent, ambiguous, inferred: _, broken, gaps } = self.losses;
        self.source == SamplingSource::BranchTrace && [incomplete, inconsistent, ambiguous, broken, gaps] == [0; 5]
    }

    /// Describes the data in one line, for the header of a report.
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

    /// Adds the data of a different profile. Drops the observed counts, because merging changes the indices of images.
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
