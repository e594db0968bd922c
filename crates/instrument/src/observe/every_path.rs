//! Counts of all paths: nothing but what every [`Observer`] does.

use super::Observer;

/// The observer of all paths.
pub struct EveryPath;

impl Observer for EveryPath {
    fn as_dyn(&mut self) -> &mut dyn Observer {
        self
    }
}
