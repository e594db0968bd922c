//! How compact the numbers of executed paths can be: for each function of a profile the span of Ball-Larus,
//! preferential and searched numbers, with what is proven of the least.
//!
//! Figures 3.17 and 3.18 of Vaswani's thesis, whose delta is a span over the number of paths.

use std::time::{Duration, Instant};
use trodden_flow::{DagEdgeId, Numbering, NumberingScheme};
use trodden_profile::{FunctionPaths, Profile};
use trodden_selective::InterestingSet;
use trodden_selective::{Budget, Classification, NumberOptions, SearchEnd, number, preferential};
use trodden_unit::MapError;

/// Further orders of out-edges that preferential numbering tries in the second of its columns.
const RESTARTS: u32 = 16;

/// The numbers of one function's executed paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compactness {
    /// The function.
    pub function: String,
    /// Complete paths that were executed.
    pub paths: u64,
    /// Greatest minus least Ball-Larus number, plus one.
    pub ball_larus: u128,
    /// The span of preferential numbers as published; none if they do not fit a word.
    pub published: Option<u64>,
    /// The least one of several orders of out-edges.
    pub restarted: Option<u64>,
    /// The least that a search found.
    pub searched: Option<u64>,
    /// No numbering has a smaller span.
    pub bound: u64,
    /// Whether the search found the least.
    pub proven: bool,
}

/// How long spans are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaLimits {
    /// In one function.
    pub function: Duration,
    /// In all of them: once this has passed, there are no other orders and no searches.
    pub profile: Duration,
}

/// Measures all functions with executed paths, in the order of the profile.
///
/// # Errors
/// A map is damaged.
pub fn measure(profile: &Profile, limits: DeltaLimits) -> Result<Vec<Compactness>, MapError> {
    let started = Instant::now();
    let mut all = Vec::new();
    for (_, unit, function) in profile.functions() {
        let executed = FunctionPaths::decode(function, unit.counts_of(function))?;
        let dag = function.dag()?;
        let damaged = |what: String| MapError::Inconsistent { function: function.name.clone(), what };
        let numbering = Numbering::from_values(&dag, &function.values).map_err(damaged)?;
        let ids: Vec<u64> = executed.complete.iter().filter(|p| p.count > 0).map(|p| p.id).collect();
        let paths: Vec<Vec<DagEdgeId>> = ids.iter().filter_map(|id| numbering.path(&dag, *id)).collect();
        let (Some(least), Some(most)) = (ids.iter().min(), ids.iter().max()) else { continue };
        let span = |restarts: u32| preferential(&dag, &paths, restarts).ok().map(|p| p.span);
        let published = span(0);
        let (is_late, is_least) = (started.elapsed() >= limits.profile, published == Some(ids.len() as u64));
        let restarted = if is_late || is_least { published } else { span(RESTARTS) };
        let paths = ids.len() as u64;
        let mut row = Compactness {
            function: function.name.clone(),
            paths,
            ball_larus: u128::from(most - least) + 1,
            published,
            restarted,
            searched: restarted,
            bound: paths,
            proven: restarted == Some(paths),
        };
        if !row.proven && !is_late {
            let began = Instant::now();
            let stop = || began.elapsed() >= limits.function;
            let options = NumberOptions { restarts: RESTARTS, budget: Budget { steps: u64::MAX, stop: &stop }, ..NumberOptions::default() };
            let set = InterestingSet::from_ids(&dag, &numbering, &ids).map_err(|e| damaged(e.to_string()))?;
            let weights = vec![1.0; dag.edges().len()];
            if let Ok(labelling) = number(NumberingScheme::PppOptimal, &dag, &weights, &set, &options)
                && let (Some(proof), Classification::Checked { .. }) = (labelling.proof(), labelling.classification())
            {
                row.searched = u64::try_from(labelling.span().width()).ok();
                row.bound = proof.bound;
                row.proven = proof.end != SearchEnd::BudgetSpent;
            }
        }
        all.push(row);
    }
    Ok(all)
}
