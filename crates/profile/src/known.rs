//! Lists the paths that a profile's run executed. A residual build takes them as known and counts only other paths.

use crate::model::Profile;
use crate::paths::FunctionPaths;
use trodden_flow::Plan;
use trodden_flow::dag::Entries;
use trodden_unit::{ConflictingNumberingsError, FunctionMap, KnownPaths, MapError};

/// Reason why the paths of a profile cannot be used as known paths of a residual build.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum KnownPathsError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    TwoNumberings(#[from] ConflictingNumberingsError),
    #[error(
        "the paths of function `{0}` are not numbered as in a build with -- residual. Record a program that was built without table-slots"
    )]
    OtherNumbering(String),
}

impl Profile {
    /// Returns the executed paths of all functions, including path prefixes that end at calls that may not return. Fails if a map is
    /// corrupt, the profile contains two builds with different numberings, or paths are not numbered as in a residual build.
    pub fn known_paths(&self) -> Result<KnownPaths, KnownPathsError> {
        self.select_executed(false, |executed, _| executed)
    }

    /// Returns the executed complete paths, without prefixes that end at calls. Fails like [`Profile::known_paths`].
    pub fn complete_paths(&self) -> Result<KnownPaths, KnownPathsError> {
        self.select_executed(true, |_, paths| paths.complete.iter().filter(|p| p.count > 0).map(|p| (p.id, p.count)).collect())
    }

    /// Calls `select` with each function's nonzero counts and its decoded paths, and collects the paths that it returns. Fails for
    /// functions that count in a hash table, unless `allow_tables` is set; these may have more paths than fit into an array.
    fn select_executed(
        &self,
        allow_tables: bool,
        select: impl Fn(Vec<(u64, u64)>, &FunctionPaths) -> Vec<(u64, u64)>,
    ) -> Result<KnownPaths, KnownPathsError> {
        let mut known = KnownPaths::default();
        for (_, unit, function) in self.functions() {
            let executed: Vec<(u64, u64)> = unit.counts_of(function).filter(|(_, count)| *count > 0).collect();
            if executed.is_empty() {
                continue;
            }
            let paths = FunctionPaths::decode(function, unit.counts_of(function))?;
            let paths_of_function = select(executed, &paths);
            if !paths_of_function.is_empty() {
                if !(allow_tables || function.table().is_none()) || !has_standard_numbering(function)? {
                    return Err(KnownPathsError::OtherNumbering(function.name.clone()));
                }
                known.add(&unit.map, function, paths_of_function.into_iter(), &paths.edges)?;
            }
        }
        Ok(known)
    }
}

/// Returns whether a function's path IDs are determined by its control-flow graph and its cut edges, so that a residual build assigns the
/// same IDs.
pub fn has_standard_numbering(function: &FunctionMap) -> Result<bool, MapError> {
    if function.is_partial() && function.interesting_words().is_none() {
        return Ok(false);
    }
    let standard = Plan::cut_and_number(&function.graph, &function.cuts, Entries::Shared);
    Ok(standard.is_ok_and(|(dag, numbering)| dag.origins() == function.dag && numbering.values() == function.values))
}
