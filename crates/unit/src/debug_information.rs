//! Marks debug information that is generated only for the unit's map.

/// Value of `flags` in a `DICompileUnit` that marks debug information that the user did not request. The plugin reads source lines from it
/// and strips it from the object file, but not from the bitcode that is stored there.
pub const MAP_ONLY_FLAG: &str = "trodden-only-for-maps";
