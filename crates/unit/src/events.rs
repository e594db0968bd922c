//! Hardware and software events that can be summed for each path.
//!
//! A unit that sums an event has [`CELLS_PER_COUNTER`] words per counter, called cells: the count, the sum, and the low and high half of
//! the 128-bit sum of squares. Counters are numbered as in other builds, so `n` counters have `CELLS_PER_COUNTER * n` cells.

use serde::{Deserialize, Serialize};
use trodden_wire::EVENT_TSC;

/// Number of cells (words) per counter.
pub const CELLS_PER_COUNTER: u64 = 4;

/// An event that occurs while a program runs. Its [name](crate::experiment::Spelling::name) is that of `perf list`, if the event is listed
/// there. Its description is a plural noun, which reports use as the unit of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventSource {
    /// Ticks of the time-stamp counter. It runs at a constant rate, even while the thread waits, and needs no support by the kernel.
    Tsc,
    /// Cycles of the processor core in user mode.
    Cycles,
    /// Instructions executed in user mode.
    Instructions,
    /// Accesses to the last-level cache.
    CacheReferences,
    /// Misses of the last-level cache.
    CacheMisses,
    /// Branches.
    Branches,
    /// Mispredicted branches.
    BranchMisses,
    /// Nanoseconds during which the thread ran, by the kernel's task clock.
    TaskClock,
    /// Page faults.
    PageFaults,
}

impl EventSource {
    /// Returns the type and config of the event for `perf_event_open`; for the time-stamp counter, [`EVENT_TSC`] and 0.
    pub fn perf_event(self) -> (u32, u64) {
        const HARDWARE: u32 = 0;
        const SOFTWARE: u32 = 1;
        match self {
            EventSource::Tsc => (EVENT_TSC, 0),
            EventSource::Cycles => (HARDWARE, 0),
            EventSource::Instructions => (HARDWARE, 1),
            EventSource::CacheReferences => (HARDWARE, 2),
            EventSource::CacheMisses => (HARDWARE, 3),
            EventSource::Branches => (HARDWARE, 4),
            EventSource::BranchMisses => (HARDWARE, 5),
            EventSource::TaskClock => (SOFTWARE, 1),
            EventSource::PageFaults => (SOFTWARE, 2),
        }
    }
}
