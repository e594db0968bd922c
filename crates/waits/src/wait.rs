//! Waits, and the moments that end them.

use crate::call::WaitKind;
use crate::step::{CodeId, LocationId};
use crate::versions::{PathDifference, PathVersionId};

/// A point in the execution of a location at which it does something for which another location may wait, with the location's path up to
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMoment {
    /// Time of the moment in ns since the start of the run.
    pub time_ns: u64,
    /// The location.
    pub location: LocationId,
    pub(crate) version: PathVersionId,
    /// Time of the moment in ns in the what-if prediction.
    pub(crate) scaled_ns: u64,
}

/// A wait of one location until another one does something.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The location that waits.
    pub location: LocationId,
    /// The location that ended the wait.
    pub releaser: LocationId,
    /// The call site of the call that waited.
    pub site: CodeId,
    /// The kind of wait.
    pub kind: WaitKind,
    /// Start of the wait in ns since the start of the run.
    pub enter_ns: u64,
    /// Length of the wait in ns.
    pub wait_ns: u64,
    /// The two paths that explain the wait. The difference of their lengths is `wait_ns`.
    pub paths: PathDifference,
}
