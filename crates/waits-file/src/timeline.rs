//! What each location did when, for the time line of pages and for exported traces: bars of blocks, calls and waits.
//!
//! At most [`MOST`] bars are kept: when there are more, the shortest are given up, and what was given up is said.

use trodden_waits::{CodeId, LocationId, Wait};

/// Bars kept.
const MOST: usize = 60_000;

/// What a bar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It executes code.
    Computing,
    /// It is in a call that takes long to complete.
    Communicating,
    /// Waiting for a location.
    Waiting(LocationId),
}

/// A stretch of time of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Whose time it is.
    pub location: LocationId,
    /// When it begins, since the run began.
    pub from_ns: u64,
    /// How long it takes.
    pub ns: u64,
    /// The code that it executes.
    pub code: CodeId,
    /// What it does.
    pub activity: Activity,
}

/// Bars of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Whether bars are kept.
    pub is_wanted: bool,
    /// In order of time, at each location.
    pub bars: Vec<Bar>,
    /// Shorter bars were given up.
    pub least_ns: u64,
}

impl Timeline {
    /// One more.
    pub fn add(&mut self, bar: Bar) {
        if !self.is_wanted || bar.ns == 0 || bar.ns < self.least_ns {
            return;
        }
        self.bars.push(bar);
        while self.bars.len() > MOST {
            self.least_ns = (self.least_ns * 2).max(1000);
            self.bars.retain(|bar| bar.ns >= self.least_ns);
        }
    }

    /// A call: the wait in it, if there is one, and what follows.
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
