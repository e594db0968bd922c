//! Positions in source files.

use serde::{Deserialize, Serialize};

/// A position in a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourcePosition {
    /// Index in [`crate::UnitMap::scopes`] of the function or inlined call that contains the code.
    pub scope: u32,
    /// Index of the source file in [`crate::UnitMap::files`].
    pub file: u32,
    /// Line number, starting at 1; 0 for code without a source line.
    pub line: u32,
    /// Column number, starting at 1; 0 if unknown.
    pub column: u32,
}
