//! What a profile tells a residual build: which paths are known.

use crate::model::Profile;
use crate::paths::FunctionPaths;
use trodden_unit::{KnownPaths, MapError, TwoWays};

/// Why the paths of a profile cannot be known to a build.
#[derive(Debug, thiserror::Error)]
pub enum NotKnown {
    /// A map is damaged.
    #[error(transparent)]
    Map(#[from] MapError),
    /// There are too many paths to know.
    #[error(
        "function `{0}` was counted in a table, or in part: record the runs with a program built without --table-slots and with --scheme ball-larus"
    )]
    NotAll(String),
    /// Two ways of counting.
    #[error(transparent)]
    TwoWays(#[from] TwoWays),
}

impl Profile {
    /// The executed paths of all functions that were executed; a prefix that was counted where control might not have come back is one.
    ///
    /// # Errors
    /// A function's map is damaged, or the profile is of two builds that count otherwise.
    pub fn known_paths(&self) -> Result<KnownPaths, NotKnown> {
        let mut known = KnownPaths::default();
        for (_, unit, function) in self.functions() {
            if function.table().is_some() || function.is_partial() {
                return Err(NotKnown::NotAll(function.name.clone()));
            }
            let executed: Vec<(u64, u64)> = unit.counts_of(function).filter(|(_, count)| *count > 0).collect();
            if !executed.is_empty() {
                let paths = FunctionPaths::decode(function, unit.counts_of(function))?;
                known.add(&unit.map, function, executed.into_iter(), &paths.edges)?;
            }
        }
        Ok(known)
    }
}
