//! Debug information that is generated only for the unit's map.

/// Value of `flags` in a `DICompileUnit` which marks debug information that the user did not request. The plugin takes lines from it and
/// then strips it; kept bitcode still contains it.
pub const MAP_ONLY_FLAG: &str = "trodden-only-for-maps";
