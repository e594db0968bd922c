//! The known paths of a profile, for a residual build.

use crate::model::Profile;
use crate::paths::FunctionPaths;
use trodden_flow::Plan;
use trodden_flow::dag::Entries;
use trodden_unit::{FunctionMap, KnownPaths, MapError, TwoNumberings};

/// Why a residual build cannot use the paths of a profile.
#[derive(Debug, thiserror::Error)]
pub enum NotKnown {
    /// A map is damaged.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Two builds with different numberings.
    #[error(transparent)]
    TwoNumberings(#[from] TwoNumberings),
    /// Paths have other numbers than the build would give them.
    #[error(
        "the paths of function `{0}` are not numbered as a residual build numbers them: record a program that was built without \
            table-slots"
    )]
    OtherNumbers(String),
}

impl Profile {
    /// The executed paths of all executed functions, including counted prefixes up to a call that may not return.
    ///
    /// # Errors
    /// A function's map is damaged; or the profile has two builds with different numberings; or the numbering is not the one of a residual
    /// build.
    pub fn known_paths(&self) -> Result<KnownPaths, NotKnown> {
        self.executed(false, |executed, _| executed)
    }

    /// The executed complete paths, without prefixes.
    ///
    /// # Errors
    /// See [`Profile::known_paths`].
    pub fn complete_paths(&self) -> Result<KnownPaths, NotKnown> {
        self.executed(true, |_, paths| paths.complete.iter().filter(|p| p.count > 0).map(|p| (p.id, p.count)).collect())
    }

    /// What is to be known of each function, by its counts and the paths that they mean; `many`: functions may have
    /// more paths than arrays have words.
    fn executed(&self, many: bool, of: impl Fn(Vec<(u64, u64)>, &FunctionPaths) -> Vec<(u64, u64)>) -> Result<KnownPaths, NotKnown> {
        let mut known = KnownPaths::default();
        for (_, unit, function) in self.functions() {
            let executed: Vec<(u64, u64)> = unit.counts_of(function).filter(|(_, count)| *count > 0).collect();
            if executed.is_empty() {
                continue;
            }
            let paths = FunctionPaths::decode(function, unit.counts_of(function))?;
            let paths_of_function = of(executed, &paths);
            if !paths_of_function.is_empty() {
                if !(many || function.table().is_none()) || !has_usual_numbers(function)? {
                    return Err(NotKnown::OtherNumbers(function.name.clone()));
                }
                known.add(&unit.map, function, paths_of_function.into_iter(), &paths.edges)?;
            }
        }
        Ok(known)
    }
}

/// Whether a function's path numbers follow from its graph and cuts alone. A residual build has no other input.
pub fn has_usual_numbers(function: &FunctionMap) -> Result<bool, MapError> {
    if function.is_partial() && function.interesting().is_none() {
        return Ok(false);
    }
    let usual = Plan::cut_at(&function.graph()?, &function.cuts, Entries::Shared);
    Ok(usual.is_ok_and(|(dag, numbering)| dag.edges() == function.dag && numbering.values() == function.values))
}
