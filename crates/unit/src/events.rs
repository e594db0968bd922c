//! Events that are summed up for each path: which there are, and where the kernel has them.
//!
//! A unit built so has [`CELLS`] cells for each of its counters instead of one: the count, the sum, and the sum of
//! squares in 128 bits, low half first. All else in its map is as ever: counters are numbered without regard to that,
//! so a unit with `n` counters has `CELLS * n` cells.

use serde::{Deserialize, Serialize};
use trodden_wire::EVENT_TSC;

/// Cells of a path.
pub const CELLS: u64 = 4;

/// Something that happens while a program runs, and is counted as it does. It is [spelled](crate::experiment::Spelling) as in `perf list`,
/// where that has the event; the spelling's meaning is the noun for people, in the plural.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventSource {
    /// Ticks of the time-stamp counter: time at a constant rate, whether the thread runs or waits. Needs nothing but the instruction.
    Tsc,
    /// Cycles of the core while it ran the program's own code.
    Cycles,
    /// Instructions of the program's own code.
    Instructions,
    /// Accesses to the last cache.
    CacheReferences,
    /// Accesses that the last cache could not serve.
    CacheMisses,
    /// Branches.
    Branches,
    /// Branches that were predicted wrongly.
    BranchMisses,
    /// Nanoseconds in which the thread ran; the kernel's clock.
    TaskClock,
    /// Page faults.
    PageFaults,
}

impl EventSource {
    /// Type and number by which perf_event_open(2) knows it; of the time-stamp counter [`EVENT_TSC`] and 0.
    pub fn kernel(self) -> (u32, u64) {
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
