//! Sampled profiles, which were counted in short [`bursts`] or derived from [`branches`] that hardware recorded.

pub mod branches;
pub mod bursts;
mod busy;
mod loss;
mod quantile;
pub mod readings;
mod slowdown;

pub use branches::{BranchSampling, ObservedBranches, SamplingSource, UnattributedBranches};
pub use bursts::{BurstEstimate, BurstSampling, CounterEstimate, SamplingSwitch, UnitEstimates, subtract_earlier_counts};
pub use busy::SampledClock;
pub use readings::{CounterReadings, SampledRun, SwitchedOnTime};

use serde::{Deserialize, Serialize};

/// How a profile was sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sampling {
    /// The program counted only during short bursts, so its counts are the observed part of all executions.
    Bursts(BurstSampling),
    /// Counts were derived from branches that hardware recorded: estimates if they come from branch records, exact if they come from a
    /// trace of all branches.
    Branches(BranchSampling),
}

impl Sampling {
    /// Returns how the profile was sampled in bursts; `None` if it was derived from branches.
    pub fn bursts(&self) -> Option<&BurstSampling> {
        match self {
            Sampling::Bursts(bursts) => Some(bursts),
            Sampling::Branches(_) => None,
        }
    }

    /// Returns how the profile was derived from branches; `None` if it was counted in bursts.
    pub fn branches(&self) -> Option<&BranchSampling> {
        match self {
            Sampling::Branches(branches) => Some(branches),
            Sampling::Bursts(_) => None,
        }
    }
}
