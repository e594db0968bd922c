//! The data of a profile: the run (or the merged runs), its images, their units, and the counts of each.
//!
//! Counts are kept by counter, sparsely; which function and path a counter stands for is in the unit's map. Units are distinguished by
//! identity: the same unit in two images (a static library linked twice) is listed in both.

use crate::events::PathEvents;
use crate::sampling::Sampling;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trodden_unit::{FunctionMap, Identity, UnitMap};

/// The counts of one run, or of several merged runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The run; for a merged profile, what its runs have in common.
    pub run: Run,
    /// Executables and shared libraries, in the order in which they were found.
    pub images: Vec<ImageProfile>,
    /// How it was sampled, if it was: then counts of units of the sample tier are observed counts, which are a part of all executions.
    pub sampling: Option<Sampling>,
}

/// Circumstances of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The command line; empty if the merged runs differ in it.
    pub command: Vec<String>,
    /// Folder it ran in.
    pub directory: String,
    /// Name of the computer.
    pub host: String,
    /// Suite of runs that the user gave it to.
    pub suite: Option<String>,
    /// Start of the earliest run, nanoseconds since 1970.
    pub started_ns: u64,
    /// Wall time in nanoseconds; the sum over merged runs.
    pub duration_ns: u64,
    /// How it ended; `None` if unknown or if the merged runs differ.
    pub ending: Option<Ending>,
    /// Number of runs merged into this profile.
    pub runs: u64,
    /// Version of trodden that recorded it.
    pub recorder: String,
    /// Name of the test that the run is; a run without a name is identified by its command.
    pub test: Option<String>,
    /// Differences between the copies that counted together, which should have run the same execution; the sum over merged runs.
    pub diverged: u64,
    /// Threads whose counts are not in the profile, because the program could not write them; the sum over merged runs.
    pub lost: u64,
    /// Copies that counted together and were all ended by a signal from outside, each at another place; the sum over merged runs.
    pub interrupted: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ending {
    /// With an exit status.
    Exit(i32),
    /// By a signal.
    Signal(i32),
}

/// An executable or shared library.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageProfile {
    /// Identity of the image: its units and their layout.
    pub identity: Identity,
    /// Path, as the process saw it; empty if unknown.
    pub path: String,
    /// The linker's build id in hexadecimal digits, if it has one.
    pub build_id: Option<String>,
    /// Its units in link order.
    pub units: Vec<UnitProfile>,
}

/// A unit and its counts.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitProfile {
    /// Identity of the unit.
    pub unit: Identity,
    /// Its map.
    pub map: Arc<UnitMap>,
    /// Counters that are not zero, by index within the unit, ascending.
    pub counts: Vec<(u64, u64)>,
    /// Events by index of the counter, ascending, if the unit sums events ([`UnitMap::events`]).
    pub events: Vec<(u64, PathEvents)>,
    /// Times of the first executions in nanoseconds since 1970, by index of the counter, ascending; if the program notes them
    /// ([`UnitMap::has_times`]).
    pub first_seen: Vec<(u64, u64)>,
}

impl UnitProfile {
    /// The counts of one of the unit's functions, by path number.
    pub fn counts_of<'a>(&'a self, function: &FunctionMap) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let (first, end) = (function.first_counter, function.first_counter.saturating_add(function.counters));
        let from = self.counts.partition_point(|c| c.0 < first);
        self.counts[from..].iter().take_while(move |c| c.0 < end).map(move |&(at, count)| (at - first, count))
    }

    /// Events of a path of one of the unit's functions.
    pub fn events_of(&self, function: &FunctionMap, path: u64) -> PathEvents {
        let counter = function.first_counter.saturating_add(path);
        self.events.binary_search_by_key(&counter, |e| e.0).map_or(PathEvents::default(), |place| self.events[place].1)
    }

    /// Time of the first execution of a path of one of the unit's functions in nanoseconds since 1970, if known.
    pub fn first_seen(&self, function: &FunctionMap, path: u64) -> Option<u64> {
        let counter = function.first_counter.saturating_add(path);
        self.first_seen.binary_search_by_key(&counter, |t| t.0).ok().map(|place| self.first_seen[place].1)
    }

    /// Unattributed executions of one of the unit's functions: they were counted without their path, because its table was full, or because
    /// the scheme leaves paths out.
    pub fn unattributed(&self, function: &FunctionMap) -> u64 {
        let words = function.unattributed();
        let from = self.counts.partition_point(|c| c.0 < words.start);
        self.counts[from..].iter().take_while(|c| c.0 < words.end).fold(0, |sum, c| sum.saturating_add(c.1))
    }
}

impl Profile {
    /// All functions with the unit and image they belong to.
    pub fn functions(&self) -> impl Iterator<Item = (&ImageProfile, &UnitProfile, &FunctionMap)> {
        self.images.iter().flat_map(|image| {
            image.units.iter().flat_map(move |unit| unit.map.functions.iter().map(move |function| (image, unit, function)))
        })
    }
}
