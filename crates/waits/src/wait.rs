//! A wait, and the moments of locations' paths that end waits.

use crate::call::WaitKind;
use crate::step::{CodeId, LocationId};
use crate::versions::{PathDifference, PathVersion};

/// A point of a location's path, kept for those that it lets go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, ns since the origin.
    pub time_ns: u64,
    /// Whose.
    pub location: LocationId,
    pub(crate) version: PathVersion,
    pub(crate) scaled_ns: u64,
}

/// A wait.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Who waits.
    pub location: LocationId,
    /// For whom.
    pub releaser: LocationId,
    /// Code of the call.
    pub site: CodeId,
    /// Kind.
    pub kind: WaitKind,
    /// When it began, ns since the origin.
    pub enter_ns: u64,
    /// How long it is, ns.
    pub wait_ns: u64,
    /// The two paths.
    pub paths: PathDifference,
}
