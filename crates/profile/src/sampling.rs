//! Sampled profiles: counted in [`bursts`], or made from [`branches`] that hardware recorded.

pub mod branches;
pub mod bursts;
mod busy;
mod loss;
mod quantile;
pub mod readings;
mod slowdown;

pub use branches::{BranchSampling, BranchSource, Losses, ObservedBranches};
pub use bursts::{BurstEstimate, BurstSampling, CounterEstimate, Switch, UnitEstimates, subtract};
pub use busy::SampledClock;
pub use readings::{Readings, SampledRun, SwitchedOn};

use serde::{Deserialize, Serialize};

/// How a profile was sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sampling {
    /// Counts of units of the sample tier are observed ones, a part of all executions.
    Bursts(BurstSampling),
    /// Counts are estimates from branch records, or the counts of a trace.
    Branches(BranchSampling),
}

impl Sampling {
    /// Data of sampling in bursts; `None` if the profile was sampled otherwise.
    pub fn bursts(&self) -> Option<&BurstSampling> {
        match self {
            Sampling::Bursts(bursts) => Some(bursts),
            Sampling::Branches(_) => None,
        }
    }

    /// Data of branch records or traces; `None` if the profile was sampled otherwise.
    pub fn branches(&self) -> Option<&BranchSampling> {
        match self {
            Sampling::Branches(branches) => Some(branches),
            Sampling::Bursts(_) => None,
        }
    }
}
