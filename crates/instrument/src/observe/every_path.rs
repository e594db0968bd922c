//! Counts all paths: the default behaviour of every [`Observer`].

use super::Observer;

pub struct EveryPath;

impl Observer for EveryPath {
    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}
