//! Marks debug information that is generated only because the unit's map needs source lines.

/// Value of `flags` in a `DICompileUnit`, which marks debug information that the user did not request. The compiler plugin reads source
/// lines from it. It strips it from the object file, but not from the bitcode that the object file contains.
pub const MAP_ONLY_DEBUG_INFO_FLAG: &str = "trodden-only-for-maps";
