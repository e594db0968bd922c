//! Events that can be summed for each path.
//!
//! A unit that sums an event has [`CELLS_PER_COUNTER`] words per counter, called cells: the count, the sum, and the 128-bit sum of
//! squares, low half first. Counters are numbered as in other builds, so `n` counters have `CELLS_PER_COUNTER * n` cells.

use serde::{Deserialize, Serialize};
use trodden_wire::EVENT_TSC;

/// Number of cells per counter.
pub const CELLS_PER_COUNTER: u64 = 4;

/// An event that occurs while a program runs. Its [name](crate::experiment::Spelling::name) is the one in `perf list`, if the event is
/// listed there; its description is the unit for reports, as a plural noun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventSource {
    /// Ticks of the time-stamp counter, which runs at a constant rate, even while the thread waits. Does not need kernel support.
    Tsc,
    /// Cycles of the core in user mode.
    Cycles,
    /// Instructions in user mode.
    Instructions,
    /// Accesses to the last-level cache.
    CacheReferences,
    /// Misses of the last-level cache.
    CacheMisses,
    /// Branches.
    Branches,
    /// Mispredicted branches.
    BranchMisses,
    /// Nanoseconds during which the thread ran, by the kernel's clock.
    TaskClock,
    /// Page faults.
    PageFaults,
}

impl EventSource {
    /// Returns the event's type and config for `perf_event_open`; [`EVENT_TSC`] and 0 for the time-stamp counter.
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
