//! Models of the processor around the profiler (table 5.3). They determine when each retired instruction is fetched, dispatched, issued,
//! completed and committed.
//!
//! [`FastModel`] makes one pass with a few timestamps per instruction. [`ReferenceModel`] simulates every cycle, and serves to check the
//! fast model. Both see only retired instructions, so instructions on mispredicted paths are never fetched and have no effect on caches.
//! Cycles are numbered from 0.

mod cache;
mod fast;
mod instruction;
mod parameters;
mod predictor;
mod queue;
mod reference;

pub use fast::FastModel;
pub use instruction::{Instruction, InstructionClass, NO_REGISTER};
pub use parameters::{CacheParameters, DirectionPredictor, PowerCosts, PredictorParameters, ProcessorParameters};
pub use predictor::PredictionOutcome;
pub use reference::ReferenceModel;

use crate::events::EventCounts;
use crate::names::names;

/// Which model of the processor is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessorModel {
    /// The one-pass model, [`FastModel`].
    Fast,
    /// The cycle-stepped model, [`ReferenceModel`].
    Reference,
}

names! { ProcessorModel { Fast "fast", Reference "reference" } }

/// Events that the processor models count. The discriminant is the index in [`EventCounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessorEvent {
    /// Retired instructions.
    Instructions,
    /// Misses of the two first-level caches.
    L1Misses,
    /// Misses of the second-level cache.
    L2Misses,
    /// Mispredicted branches.
    Mispredictions,
    /// Cycles in which no instruction is committed.
    StallCycles,
    /// Power in the caches by the analytical model, which adds the relative costs of accesses (section 5.3).
    AnalyticalPower,
    /// Power in the caches by the cycle-level model of figure 5.5. Only the reference model counts this event.
    CyclePower,
}

names! {
    ProcessorEvent {
        Instructions "instructions", L1Misses "l1-misses", L2Misses "l2-misses", Mispredictions "mispredictions",
        StallCycles "stall-cycles", AnalyticalPower "power-analytical", CyclePower "power-cycle"
    }
}

fn add_count(events: &mut EventCounts, event: ProcessorEvent, more: u32) {
    let counter = &mut events.0[event as usize];
    *counter = counter.saturating_add(more);
}

/// Totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTotals {
    /// Cycles until the last commit.
    pub cycles: u64,
    /// Committed instructions.
    pub instructions: u64,
    /// Misses of the two first-level caches.
    pub l1_misses: u64,
    /// Misses of the second-level cache.
    pub l2_misses: u64,
    /// Mispredicted branches.
    pub mispredictions: u64,
    /// Cycles in which commit waited for space in the branch queue.
    pub queue_stalls: u64,
}

impl ProcessorTotals {
    fn add(&mut self, events: &EventCounts) {
        self.instructions += 1;
        self.l1_misses += u64::from(events.0[ProcessorEvent::L1Misses as usize]);
        self.l2_misses += u64::from(events.0[ProcessorEvent::L2Misses as usize]);
        self.mispredictions += u64::from(events.0[ProcessorEvent::Mispredictions as usize]);
    }
}

#[cfg(test)]
#[path = "../processor_tests.rs"]
mod tests;
