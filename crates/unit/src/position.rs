//! Places in the source.

use serde::{Deserialize, Serialize};

/// A place in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// Place of its scope in [`crate::UnitMap::scopes`].
    pub scope: u32,
    /// Place of its file in [`crate::UnitMap::files`].
    pub file: u32,
    /// Line, from 1; 0 where the compiler made the code up.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
}
