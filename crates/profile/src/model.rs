//! The data of a profile: the run (or the merged runs), its images, their units, and the counts of each.
//!
//! Counts are kept by counter, sparsely; which function and path a counter stands for is in the unit's map. Units are distinguished by
//! identity: the same unit in two images (a static library linked twice) is listed in both.

use crate::counts::Counts;
use crate::events::PathEvents;
use crate::paths::FunctionPaths;
use crate::sampling::Sampling;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trodden_unit::{FunctionMap, Identity, MapError, UnitMap};

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
    pub ending: Option<ProcessEnding>,
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
pub enum ProcessEnding {
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
    /// What its counters hold, by index within the unit.
    pub counts: Counts,
}

impl UnitProfile {
    /// The counts of one of the unit's functions, by path number.
    pub fn counts_of<'a>(&'a self, function: &FunctionMap) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let first = function.first_counter;
        self.counts.within(first..first.saturating_add(function.counters)).map(move |(at, count)| (at - first, count))
    }

    /// Events of a path of one of the unit's functions.
    pub fn events_of(&self, function: &FunctionMap, path: u64) -> PathEvents {
        self.counts.events_of(function.first_counter.saturating_add(path))
    }

    /// Time of the first execution of a path of one of the unit's functions in nanoseconds since 1970, if known.
    pub fn first_seen(&self, function: &FunctionMap, path: u64) -> Option<u64> {
        self.counts.first_seen_of(function.first_counter.saturating_add(path))
    }

    /// The paths of a function; `None` if nothing of it was counted.
    pub fn executed_paths(&self, function: &FunctionMap) -> Result<Option<FunctionPaths>, MapError> {
        let mut counts = self.counts_of(function).peekable();
        match counts.peek() {
            Some(_) => FunctionPaths::decode(function, counts).map(Some),
            None => Ok(None),
        }
    }

    /// Executions of one of the unit's functions that were counted without their path: because its table was full, or
    /// because the scheme leaves paths out.
    pub fn unattributed(&self, function: &FunctionMap) -> u64 {
        self.counts.within(function.unattributed()).fold(0, |sum, c| sum.saturating_add(c.1))
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
