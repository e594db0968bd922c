//! Estimates by how much counting slowed a program down, from the counts themselves.
//!
//! If paths with `i` instructions were executed `n` times, the slowdown is `(sum n * (i + cost(i))) / (sum n * i)`, where `cost(i) =
//! min(COST_SHARE * i, MAX_COST)`, or 0 for iterations that are counted by trip count. The code that counts a path is only one or two
//! instructions, but it also uses caches, registers and branch predictors. In seven programs, counting everything multiplied the processor
//! time by 1.02 to 1.29, regardless of the path length (docs/benchmarks/constants.md). Therefore the cost is modelled as a share of the
//! path's instructions, up to the length of these programs' paths.

use crate::model::Profile;
use crate::paths::{FunctionPaths, PathEnd, PathStart};
use std::collections::HashMap;
use trodden_unit::Identity;

/// Cost of counting a path (increments of the path register, and the counter update), as a share of the path's IR instructions.
pub(super) const COUNTING_COST_SHARE: f64 = 0.17;
/// Relative standard error of [`COUNTING_COST_SHARE`].
pub(super) const COUNTING_COST_ERROR_SHARE: f64 = 0.5;
/// Maximum cost of counting a path, in IR instructions. The paths of the seven programs above had up to 40 instructions on average.
pub(super) const MAX_COUNTING_COST: f64 = 40.0 * COUNTING_COST_SHARE;
const MAX_SLOWDOWN: f64 = 4.0;

/// Work between two readings of the counters, in executed IR instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WorkBetweenReadings {
    pub instructions: f64,
    /// Additional cost of counting, in IR instructions.
    pub counting: f64,
}

impl WorkBetweenReadings {
    /// Returns the factor by which counting slows the program down, if it costs `times` times as much as the model assumes.
    pub fn slowdown(self, times: f64) -> f64 {
        if self.instructions > 0.0 { (1.0 + times * self.counting / self.instructions).min(MAX_SLOWDOWN) } else { 1.0 }
    }
}

/// Cost of one execution of a path, in IR instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathCost {
    pub instructions: f64,
    /// Additional cost of counting the path once.
    pub counting: f64,
}

/// Returns the cost of each executed path of a unit, by index of its counter.
pub(super) fn compute_costs(profile: &Profile, image: Identity, unit: Identity) -> HashMap<u64, PathCost> {
    let mut all = HashMap::new();
    let images = profile.images.iter().filter(|i| i.identity == image);
    let Some(unit) = images.flat_map(|i| &i.units).find(|u| u.unit == unit) else { return all };
    for function in &unit.map.functions {
        // Skips corrupt maps, which are reported when the profile is shown.
        let Ok(paths) = FunctionPaths::decode(function, unit.counts_of(function)) else { continue };
        for path in &paths.complete {
            let instructions: u64 = path.blocks.iter().map(|b| u64::from(function.blocks[b.index()].instructions)).sum();
            // Iterations of loops with a computable trip count are counted together when the loop is left, so a single iteration costs
            // nothing.
            let is_free =
                matches!((path.beginning, path.end), (PathStart::After(_), PathEnd::Cut(edge)) if function.by_trip_count.contains(&edge));
            let counting = if is_free { 0.0 } else { counting_cost(instructions as f64) };
            let cost = PathCost { instructions: instructions as f64, counting };
            all.insert(function.first_counter + path.id, cost);
        }
    }
    all
}

/// Returns the cost of counting a path that has the given number of instructions.
pub(super) fn counting_cost(instructions: f64) -> f64 {
    (COUNTING_COST_SHARE * instructions).min(MAX_COUNTING_COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_constant_up_to_a_path_length_and_then_falls() {
        let slowdown = |instructions: f64| WorkBetweenReadings { instructions, counting: counting_cost(instructions) }.slowdown(1.0);
        for instructions in [1.0, 8.0, 40.0] {
            assert!((slowdown(instructions) - 1.17).abs() < 1e-9, "{instructions}: {}", slowdown(instructions));
        }
        // 6.8 instructions in 400.
        assert!((slowdown(400.0) - 1.017).abs() < 1e-9, "{}", slowdown(400.0));
        assert_eq!(WorkBetweenReadings { instructions: 5.0, counting: 0.0 }.slowdown(1.0), 1.0);
    }
}
