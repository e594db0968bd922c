//! Debug information that is in a module for the unit's map only.

/// Flags of a compile unit's debug information (`flags` of `DICompileUnit`) that mark it as not asked for by the user: the plugin takes
/// lines from it, and then strips it. Bitcode that is kept of the unit still has it.
pub const ONLY_FOR_MAPS: &str = "trodden-only-for-maps";
