//! A model of the slowdown by counting, computed from the counts themselves.
//!
//! With `n` executions of a path of `i` instructions, the slowdown is `(sum n * (i + cost(i))) / (sum n * i)`, where `cost(i) =
//! min(COST_SHARE * i, MAX_COST)`, or 0 for iterations that are counted by trip count. A count takes one or two instructions, but also uses
//! caches, registers and branch predictors. In seven programs, counting everything multiplied the processor time by 1.02 to 1.29,
//! regardless of the path length (docs/benchmarks/constants.md). So the cost is a share of the path, up to these programs' path length.

use crate::model::Profile;
use crate::paths::{FunctionPaths, PathEnd, PathStart};
use std::collections::HashMap;
use trodden_unit::Identity;

/// Cost of a path's increments and counter update, as a share of the path's IR instructions.
pub(super) const COST_SHARE: f64 = 0.17;
/// Relative standard error of [`COST_SHARE`].
pub(super) const COST_ERROR: f64 = 0.5;
/// Maximum cost in IR instructions. The seven programs' paths had up to 40 instructions on average.
pub(super) const MAX_COST: f64 = 40.0 * COST_SHARE;
const MAX_SLOWDOWN: f64 = 4.0;

/// Work of a reading, in executed IR instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    pub instructions: f64,
    /// Additional cost of counting, in instructions.
    pub counting: f64,
}

impl Work {
    /// Returns the slowdown factor if counting costs `times` as much as the model assumes.
    pub fn slowdown(self, times: f64) -> f64 {
        if self.instructions > 0.0 { (1.0 + times * self.counting / self.instructions).min(MAX_SLOWDOWN) } else { 1.0 }
    }
}

/// Cost of one execution of a path, in IR instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathCost {
    pub instructions: f64,
    /// Additional cost of counting the path.
    pub counting: f64,
}

/// Returns the costs of a unit's executed paths, by counter.
pub(super) fn compute_costs(profile: &Profile, image: Identity, unit: Identity) -> HashMap<u64, PathCost> {
    let mut all = HashMap::new();
    let images = profile.images.iter().filter(|i| i.identity == image);
    let Some(unit) = images.flat_map(|i| &i.units).find(|u| u.unit == unit) else { return all };
    for function in &unit.map.functions {
        // Corrupt maps are reported when the profile is shown.
        let Ok(paths) = FunctionPaths::decode(function, unit.counts_of(function)) else { continue };
        for path in &paths.complete {
            let instructions: u64 = path.blocks.iter().map(|b| u64::from(function.blocks[b.index()].instructions)).sum();
            // The iterations of some loops are counted together, by trip count, when the loop is left.
            let is_free =
                matches!((path.beginning, path.end), (PathStart::After(_), PathEnd::Cut(edge)) if function.by_trip_count.contains(&edge));
            let counting = if is_free { 0.0 } else { counting_cost(instructions as f64) };
            let cost = PathCost { instructions: instructions as f64, counting };
            all.insert(function.first_counter + path.id, cost);
        }
    }
    all
}

/// Returns the cost of counting a path with the given number of instructions.
pub(super) fn counting_cost(instructions: f64) -> f64 {
    (COST_SHARE * instructions).min(MAX_COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdown_is_constant_up_to_a_path_length_and_then_falls() {
        let slowdown = |instructions: f64| Work { instructions, counting: counting_cost(instructions) }.slowdown(1.0);
        for instructions in [1.0, 8.0, 40.0] {
            assert!((slowdown(instructions) - 1.17).abs() < 1e-9, "{instructions}: {}", slowdown(instructions));
        }
        // 6.8 instructions in 400.
        assert!((slowdown(400.0) - 1.017).abs() < 1e-9, "{}", slowdown(400.0));
        assert_eq!(Work { instructions: 5.0, counting: 0.0 }.slowdown(1.0), 1.0);
    }
}
