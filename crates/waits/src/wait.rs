//! Waits, and the moments that end them.

use crate::call::WaitKind;
use crate::step::{CodeId, LocationId};
use crate::versions::{PathDifference, PathVersion};

/// A point on a location's path at which the location may release others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time of the moment in ns since the origin.
    pub time_ns: u64,
    /// The location whose path is saved.
    pub location: LocationId,
    pub(crate) version: PathVersion,
    /// Time in ns under the what-if assumption.
    pub(crate) scaled_ns: u64,
}

/// A wait of one location for another.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The location that waits.
    pub location: LocationId,
    /// The location that is waited for.
    pub releaser: LocationId,
    /// The code that makes the call.
    pub site: CodeId,
    /// How the wait is classified.
    pub kind: WaitKind,
    /// Start of the wait in ns since the origin.
    pub enter_ns: u64,
    /// Length of the wait in ns.
    pub wait_ns: u64,
    /// The two paths, whose lengths differ by `wait_ns`.
    pub paths: PathDifference,
}
