//! Waits, and the moments that end them.

use crate::call::WaitKind;
use crate::step::{CodeId, LocationId};
use crate::versions::{PathDifference, PathVersion};

/// A point on a location's path at which the location may release others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time, ns since the origin.
    pub time_ns: u64,
    /// The location.
    pub location: LocationId,
    pub(crate) version: PathVersion,
    /// Time under the what-if assumption, ns.
    pub(crate) scaled_ns: u64,
}

/// A wait.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The location that waits.
    pub location: LocationId,
    /// The location that it waits for.
    pub releaser: LocationId,
    /// Code that makes the call.
    pub site: CodeId,
    /// Kind of wait.
    pub kind: WaitKind,
    /// Start of the wait, ns since the origin.
    pub enter_ns: u64,
    /// Length of the wait, ns.
    pub wait_ns: u64,
    /// The two paths, which differ in length by `wait_ns`.
    pub paths: PathDifference,
}
