//! Measures how compactly the executed paths of a function can be numbered: the spans of Ball-Larus numbers, of preferential numbers, and
//! of numbers found by a search, with a lower bound.
//!
//! Reproduces figures 3.17 and 3.18 of Vaswani's thesis, where delta is the span divided by the number of paths.

use std::time::{Duration, Instant};
use trodden_flow::{DagEdgeId, Numbering, NumberingScheme};
use trodden_profile::{FunctionPaths, Profile};
use trodden_selective::InterestingSet;
use trodden_selective::{Budget, Classification, NumberOptions, SpanSearchEnd, number, preferential};
use trodden_unit::MapError;

/// Number of additional edge orders that preferential numbering tries for [`NumberingCompactness::restarted`], and in the search.
const RESTART_COUNT: u32 = 16;

/// Spans of the numbers of a function's executed paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberingCompactness {
    /// The function's name.
    pub function: String,
    /// Number of complete paths that were executed.
    pub paths: u64,
    /// Span of Ball-Larus numbers: maximum minus minimum, plus one.
    pub ball_larus: u128,
    /// Span of preferential numbers as published; `None` if they do not fit in 64 bits.
    pub published: Option<u64>,
    /// Smallest span of preferential numbers over several orders of outgoing edges; `None` if none fits in 64 bits.
    pub restarted: Option<u64>,
    /// Smallest span found by the search; `restarted` if there was no search.
    pub searched: Option<u64>,
    /// Lower bound on the span of any numbering.
    pub bound: u64,
    /// True if `searched` is proven to be minimal.
    pub proven: bool,
}

/// Time limits of the search for small spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaLimits {
    /// Maximum time for one function.
    pub function: Duration,
    /// Maximum time for the complete profile. After this time, the remaining functions get neither other edge orders nor a search.
    pub profile: Duration,
}

/// Measures all functions with executed paths, in the order of the profile.
///
/// # Errors
/// A map is corrupt.
pub fn measure(profile: &Profile, limits: DeltaLimits) -> Result<Vec<NumberingCompactness>, MapError> {
    let started = Instant::now();
    let mut all = Vec::new();
    for (_, unit, function) in profile.functions() {
        let executed = FunctionPaths::decode(function, unit.counts_of(function))?;
        let dag = function.dag()?;
        let inconsistent = |what: String| MapError::Inconsistent { function: function.name.clone(), what };
        let numbering = Numbering::from_values(&dag, &function.values).map_err(inconsistent)?;
        let ids: Vec<u64> = executed.complete.iter().filter(|p| p.count > 0).map(|p| p.id).collect();
        let paths: Vec<Vec<DagEdgeId>> = ids.iter().filter_map(|id| numbering.path(&dag, *id)).collect();
        let (Some(smallest), Some(largest)) = (ids.iter().min(), ids.iter().max()) else { continue };
        let span = |restarts: u32| preferential(&dag, &paths, restarts).ok().map(|p| p.span);
        let published = span(0);
        let (is_late, is_minimal) = (started.elapsed() >= limits.profile, published == Some(ids.len() as u64));
        let restarted = if is_late || is_minimal { published } else { span(RESTART_COUNT) };
        let paths = ids.len() as u64;
        let mut row = NumberingCompactness {
            function: function.name.clone(),
            paths,
            ball_larus: u128::from(largest - smallest) + 1,
            published,
            restarted,
            searched: restarted,
            bound: paths,
            proven: restarted == Some(paths),
        };
        if !row.proven && !is_late {
            let search_started = Instant::now();
            let stop = || search_started.elapsed() >= limits.function;
            let options =
                NumberOptions { restarts: RESTART_COUNT, budget: Budget { steps: u64::MAX, stop: &stop }, ..NumberOptions::default() };
            let set = InterestingSet::from_ids(&dag, &numbering, &ids).map_err(|e| inconsistent(e.to_string()))?;
            let weights = vec![1.0; dag.edges().len()];
            if let Ok(labelling) = number(NumberingScheme::PppOptimal, &dag, &weights, &set, &options)
                && let (Some(proof), Classification::Checked { .. }) = (labelling.proof(), labelling.classification())
            {
                row.searched = u64::try_from(labelling.span().width()).ok();
                row.bound = proof.bound;
                row.proven = proof.end != SpanSearchEnd::BudgetSpent;
            }
        }
        all.push(row);
    }
    Ok(all)
}
