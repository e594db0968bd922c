//! What a profile tells a residual build: which paths are known.

use crate::model::Profile;
use crate::paths::FunctionPaths;
use trodden_flow::Plan;
use trodden_flow::dag::Entries;
use trodden_unit::{FunctionMap, KnownPaths, MapError, TwoWays};

/// Why the paths of a profile cannot be known to a build.
#[derive(Debug, thiserror::Error)]
pub enum NotKnown {
    /// A map is damaged.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Two ways of counting.
    #[error(transparent)]
    TwoWays(#[from] TwoWays),
    /// Paths have other numbers than the build would give them.
    #[error(
        "the paths of function `{0}` are not numbered as a residual build numbers them: record a program that was built without \
            --table-slots"
    )]
    OtherNumbers(String),
}

impl Profile {
    /// The executed paths of all functions that were executed; a prefix that was counted where control might not have come back is one.
    ///
    /// # Errors
    /// A function's map is damaged, or the profile is of two builds that count otherwise, or of one that numbers paths in a way of its own.
    pub fn known_paths(&self) -> Result<KnownPaths, NotKnown> {
        self.executed(false, |executed, _| executed)
    }

    /// The executed complete paths: no prefixes.
    ///
    /// # Errors
    /// As of [`Profile::known_paths`].
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
            let chosen = of(executed, &paths);
            if !chosen.is_empty() {
                if !(many || function.table().is_none()) || !has_usual_numbers(function)? {
                    return Err(NotKnown::OtherNumbers(function.name.clone()));
                }
                known.add(&unit.map, function, chosen.into_iter(), &paths.edges)?;
            }
        }
        Ok(known)
    }
}

/// Whether a function's paths have the numbers that follow from its graph and its cuts alone: that is all a build is told.
///
/// # Errors
/// The map is damaged.
pub fn has_usual_numbers(function: &FunctionMap) -> Result<bool, MapError> {
    if function.is_partial() && function.chosen().is_none() {
        return Ok(false);
    }
    let usual = Plan::cut_at(&function.graph()?, &function.cuts, Entries::Shared);
    Ok(usual.is_ok_and(|(dag, numbering)| dag.edges() == function.dag && numbering.values() == function.values))
}
