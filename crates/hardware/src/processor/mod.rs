//! The processor that the profiler sits in (table 5.3): when each retired instruction is fetched, dispatched, issued,
//! completed and committed.
//!
//! | file | what |
//! |---|---|
//! | `parameters.rs` | every number of table 5.3 |
//! | `instruction.rs` | instructions |
//! | `cache.rs`, `predictor.rs`, `queue.rs` | caches; combined branch predictor; the queue between commit and profiler |
//! | `fast.rs` | [`FastModel`]: one pass, a few timestamps for each instruction |
//! | `reference.rs` | [`ReferenceModel`]: one step for each cycle, which the fast one is checked against |
//!
//! Both models see instructions that retire only: wrong paths fetch nothing and disturb no cache. Time is counted in cycles from 0.

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

/// Which model of the processor gives events and cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessorModel {
    /// [`FastModel`].
    Fast,
    /// [`ReferenceModel`].
    Reference,
}

names! { ProcessorModel { Fast "fast", Reference "reference" } }

/// Events that the processor model counts, in their places of [`EventCounts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProcessorEvent {
    /// Instructions.
    Instructions,
    /// Misses of both first-level caches.
    L1Misses,
    /// Misses of the second-level cache.
    L2Misses,
    /// Branches that were mispredicted.
    Mispredictions,
    /// Cycles in which nothing was committed.
    StallCycles,
    /// Power in the caches by the analytical model: relative costs of accesses (section 5.3).
    AnalyticalPower,
    /// The same by the cycle-level model of figure 5.5; only the reference model knows it.
    CyclePower,
}

names! {
    ProcessorEvent {
        Instructions "instructions", L1Misses "l1-misses", L2Misses "l2-misses", Mispredictions "mispredictions",
        StallCycles "stall-cycles", AnalyticalPower "power-analytical", CyclePower "power-cycle"
    }
}

fn count(events: &mut EventCounts, event: ProcessorEvent, more: u32) {
    let place = &mut events.0[event as usize];
    *place = place.saturating_add(more);
}

/// What a model knows of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTotals {
    /// Cycles until the last instruction was committed.
    pub cycles: u64,
    /// Instructions committed.
    pub instructions: u64,
    /// Events of all of them.
    pub l1_misses: u64,
    /// Misses of the second-level cache.
    pub l2_misses: u64,
    /// Branches that were mispredicted.
    pub mispredictions: u64,
    /// Cycles that commit waited for room in the branch queue.
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
