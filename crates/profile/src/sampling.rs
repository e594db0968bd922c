//! What a profile that was not counted in full says of itself: in [`bursts`] of counting, or from [`branches`] that hardware recorded.

pub mod branches;
pub mod bursts;
mod loss;
pub mod readings;

pub use branches::{BranchSampling, BranchSource, Losses, Observed};
pub use bursts::{BurstSampling, CounterEstimate, Estimate, Switch, UnitEstimates, is_sampled, subtract};
pub use readings::{Readings, Sampled, SwitchedOn};

use serde::{Deserialize, Serialize};

/// How a profile was sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sampling {
    /// Counts of units of the sample tier are those that were seen, a part of all.
    Bursts(BurstSampling),
    /// Counts are estimates from branch records, or what a trace shows.
    Branches(BranchSampling),
}

impl Sampling {
    /// If it was in bursts: how.
    pub fn bursts(&self) -> Option<&BurstSampling> {
        match self {
            Sampling::Bursts(bursts) => Some(bursts),
            Sampling::Branches(_) => None,
        }
    }

    /// If it was from branch records: how.
    pub fn branches(&self) -> Option<&BranchSampling> {
        match self {
            Sampling::Branches(branches) => Some(branches),
            Sampling::Bursts(_) => None,
        }
    }
}
