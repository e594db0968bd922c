//! The activity of each location over time, for HTML pages and exported traces: bars for blocks, calls and waits.
//!
//! At most [`MAX_BARS`] bars are kept. If there are more, the shortest are dropped, and [`Timeline::min_bar_ns`] states the limit.

use trodden_waits::{CodeId, LocationId, Wait};

/// Maximum number of bars.
const MAX_BARS: usize = 60_000;

/// The activity that a bar shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Executing code.
    Computing,
    /// Inside a call, without waiting for another location.
    Communicating,
    /// Waiting for this location.
    Waiting(LocationId),
}

/// A time span on a location's timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The location.
    pub location: LocationId,
    /// Start, ns since the start of the run.
    pub from_ns: u64,
    /// Length, ns.
    pub ns: u64,
    /// The code that the location executes.
    pub code: CodeId,
    /// What the location does.
    pub activity: Activity,
}

/// The bars of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Whether bars are kept.
    pub is_enabled: bool,
    /// Bars, in order of time for each location.
    pub bars: Vec<Bar>,
    /// Minimum length of a bar, ns. Shorter ones were dropped.
    pub min_bar_ns: u64,
}

impl Timeline {
    /// Adds a bar.
    pub fn add(&mut self, bar: Bar) {
        if !self.is_enabled || bar.ns == 0 || bar.ns < self.min_bar_ns {
            return;
        }
        self.bars.push(bar);
        while self.bars.len() > MAX_BARS {
            self.min_bar_ns = (self.min_bar_ns * 2).max(1000);
            self.bars.retain(|bar| bar.ns >= self.min_bar_ns);
        }
    }

    /// Adds the bars of a call: its waits, and the time around them.
    pub fn call(&mut self, location: LocationId, code: CodeId, (from_ns, until_ns): (u64, u64), waits: &[Wait]) {
        let mut from_ns = from_ns;
        for wait in waits {
            self.add(Bar { location, from_ns, ns: wait.wait_ns, code, activity: Activity::Waiting(wait.releaser) });
            from_ns += wait.wait_ns;
        }
        let ns = until_ns.saturating_sub(from_ns);
        self.add(Bar { location, from_ns, ns, code, activity: Activity::Communicating });
    }
}
