//! The data model of a profile: a run (or several merged runs), its images (executables and shared libraries), their compilation units, and
//! each unit's counts.
//!
//! Only nonzero counters are stored. The map of a unit says which function and path a counter belongs to. A unit that is linked into two
//! images is listed in both.

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
    /// The run; in a merged profile, the properties that all runs have in common.
    pub run: Run,
    /// Executables and shared libraries, in the order in which they first appeared.
    pub images: Vec<ImageProfile>,
    /// How the profile was sampled; `None` if every execution was counted.
    pub sampling: Option<Sampling>,
}

/// Properties of a run. In a merged profile, counts and durations are sums over the runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Command line; empty if the merged runs have different ones.
    pub command: Vec<String>,
    /// Working directory.
    pub directory: String,
    /// Name of the computer.
    pub host: String,
    /// Suite that the run belongs to.
    pub suite: Option<String>,
    /// Start of the run, or of the earliest merged run, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Wall time in nanoseconds.
    pub duration_ns: u64,
    /// How the program ended; `None` if this is unknown or differs between merged runs.
    pub ending: Option<ProcessEnding>,
    /// Number of runs in this profile.
    pub runs: u64,
    /// Version of trodden with which the run was recorded.
    pub recorder: String,
    /// Name of the test that was run; `None` if the run is identified by its command.
    pub test: Option<String>,
    /// Number of differences between instrumented copies of the program that should have run the same execution.
    pub diverged: u64,
    /// Number of threads whose counts are missing, because the program could not write them to the raw file.
    pub lost: u64,
    /// Number of instrumented copies, if a signal from another process ended them at different points of the execution; otherwise 0.
    pub interrupted: u64,
}

/// How a process ended: it exited, or a signal killed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProcessEnding {
    /// Exit status.
    Exit(i32),
    /// Signal number.
    Signal(i32),
}

/// Counts of an executable or shared library.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageProfile {
    /// Identity of the image: a hash of its units and their layout.
    pub identity: Identity,
    /// Path under which the process loaded the image; empty if unknown.
    pub path: String,
    /// The linker's build ID in hexadecimal digits, if it has one.
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
    /// Counts, by index of the counter within the unit.
    pub counts: Counts,
}

impl UnitProfile {
    /// Returns the nonzero counts of a function of this unit, as pairs of path ID and count, sorted by path ID.
    pub fn counts_of<'a>(&'a self, function: &FunctionMap) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let first = function.first_counter;
        self.counts.counters_in_range(first..first.saturating_add(function.counters)).map(move |(at, count)| (at - first, count))
    }

    /// Returns the events on a path of a function of this unit.
    pub fn events_of(&self, function: &FunctionMap, path: u64) -> PathEvents {
        self.counts.events_of(function.first_counter.saturating_add(path))
    }

    /// Returns when a function's path was first executed, in nanoseconds since 1970, if known.
    pub fn first_seen(&self, function: &FunctionMap, path: u64) -> Option<u64> {
        self.counts.first_seen_ns_of_counter(function.first_counter.saturating_add(path))
    }

    /// Decodes the executed paths of a function; `None` if the function has no counts.
    pub fn executed_paths(&self, function: &FunctionMap) -> Result<Option<FunctionPaths>, MapError> {
        let mut counts = self.counts_of(function).peekable();
        match counts.peek() {
            Some(_) => FunctionPaths::decode(function, counts).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the number of executions of a function for which the path is unknown, because its hash table was full or its numbering omits
    /// paths.
    pub fn unattributed(&self, function: &FunctionMap) -> u64 {
        self.counts.counters_in_range(function.unattributed()).fold(0, |sum, c| sum.saturating_add(c.1))
    }
}

impl Profile {
    /// Iterates over all functions, with their images and units.
    pub fn functions(&self) -> impl Iterator<Item = (&ImageProfile, &UnitProfile, &FunctionMap)> {
        self.images.iter().flat_map(|image| {
            image.units.iter().flat_map(move |unit| unit.map.functions.iter().map(move |function| (image, unit, function)))
        })
    }
}
