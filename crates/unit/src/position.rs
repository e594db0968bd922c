//! Positions in source files.

use serde::{Deserialize, Serialize};

/// A position in a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourcePosition {
    /// Index of its scope in [`crate::UnitMap::scopes`].
    pub scope: u32,
    /// Index of its file in [`crate::UnitMap::files`].
    pub file: u32,
    /// Line number from 1; 0 for code without a source line.
    pub line: u32,
    /// Column number from 1; 0 if unknown.
    pub column: u32,
}
