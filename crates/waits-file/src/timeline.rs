//! The activity of each location over time, which HTML pages and exported traces show as bars: computations, calls and waits.
//!
//! At most [`MAX_TIMELINE_BARS`] bars are kept. If there are more, the shortest ones are dropped, and [`Timeline::min_bar_ns`] is the
//! length below which bars are missing.

use trodden_waits::{CodeId, LocationId, Wait};

const MAX_TIMELINE_BARS: usize = 60_000;

/// What a location does during a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarActivity {
    /// Executes code.
    Computing,
    /// Is inside a call, but does not wait for another location.
    Communicating,
    /// Waits for this location.
    Waiting(LocationId),
}

/// A period of time in which a location does one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineBar {
    /// The location whose activity the bar shows.
    pub location: LocationId,
    /// Start of the bar, in ns since the start of the run.
    pub from_ns: u64,
    /// Length of the bar in ns.
    pub ns: u64,
    /// The code that the location executes.
    pub code: CodeId,
    /// What the location does.
    pub activity: BarActivity,
}

/// The bars of all locations in a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Whether bars are kept.
    pub is_enabled: bool,
    /// The bars. Those of each location are in chronological order.
    pub bars: Vec<TimelineBar>,
    /// Minimum length in ns of a bar that is kept.
    pub min_bar_ns: u64,
}

impl Timeline {
    /// Adds a bar, unless the timeline is disabled or the bar is too short.
    pub fn add(&mut self, bar: TimelineBar) {
        if !self.is_enabled || bar.ns == 0 || bar.ns < self.min_bar_ns {
            return;
        }
        self.bars.push(bar);
        while self.bars.len() > MAX_TIMELINE_BARS {
            self.min_bar_ns = (self.min_bar_ns * 2).max(1000);
            self.bars.retain(|bar| bar.ns >= self.min_bar_ns);
        }
    }

    /// Adds bars for a call: its waits, one after another from its entry on, and the rest of the call.
    pub fn add_call(&mut self, location: LocationId, code: CodeId, (from_ns, until_ns): (u64, u64), waits: &[Wait]) {
        let mut from_ns = from_ns;
        for wait in waits {
            self.add(TimelineBar { location, from_ns, ns: wait.wait_ns, code, activity: BarActivity::Waiting(wait.releaser) });
            from_ns += wait.wait_ns;
        }
        let ns = until_ns.saturating_sub(from_ns);
        self.add(TimelineBar { location, from_ns, ns, code, activity: BarActivity::Communicating });
    }
}
