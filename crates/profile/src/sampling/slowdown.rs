//! A model of how much counting slows a program down, applied to what was counted.
//!
//! With `n` executions of paths of `i` instructions, the slowdown is `sum n * (i + cost(i)) / sum n * i`, where `cost(i) = min(COST_SHARE *
//! i, MAX_COST)`, or 0 for iterations that are counted by trip count. A count takes an instruction or two, but also caches, registers and
//! branch predictors. In seven programs, processor time with everything counted was 1.02 to 1.29 times that without counting, whether paths
//! were short or long (docs/benchmarks/constants.md). So the cost is a share of the path, up to the path length of those programs.

use crate::model::Profile;
use crate::paths::{FunctionPaths, PathEnd, PathStart};
use std::collections::HashMap;
use trodden_unit::Identity;

/// Cost of counting a path and of its path register, as a share of the path's IR instructions.
pub(super) const COST_SHARE: f64 = 0.17;
/// Relative standard error of [`COST_SHARE`].
pub(super) const COST_ERROR: f64 = 0.5;
/// Maximum cost in IR instructions: paths of the seven programs had up to 40 instructions on average.
pub(super) const MAX_COST: f64 = 40.0 * COST_SHARE;
/// Maximum slowdown factor, against paths without instructions.
const MAX_SLOWDOWN: f64 = 4.0;

/// Executed instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Instructions of the paths.
    pub instructions: f64,
    /// Additional cost of counting, in instructions.
    pub counting: f64,
}

impl Work {
    /// Returns the slowdown factor if counting costs `times` what the model says.
    pub fn slowdown(self, times: f64) -> f64 {
        if self.instructions > 0.0 { (1.0 + times * self.counting / self.instructions).min(MAX_SLOWDOWN) } else { 1.0 }
    }
}

/// Cost of one execution of a path, in IR instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Instructions of the path.
    pub instructions: f64,
    /// Additional cost while it is counted.
    pub counting: f64,
}

/// Returns the costs of a unit's executed paths, by counter.
pub(super) fn costs(profile: &Profile, image: Identity, unit: Identity) -> HashMap<u64, Cost> {
    let mut all = HashMap::new();
    let images = profile.images.iter().filter(|i| i.identity == image);
    let Some(unit) = images.flat_map(|i| &i.units).find(|u| u.unit == unit) else { return all };
    for function in &unit.map.functions {
        // Damage is reported where the profile is shown.
        let Ok(paths) = FunctionPaths::decode(function, unit.counts_of(function)) else { continue };
        for path in &paths.complete {
            let instructions: u64 = path.blocks.iter().map(|b| u64::from(function.blocks[b.index()].instructions)).sum();
            // Iterations of some loops are counted once, by trip count, when the loop is left.
            let is_free =
                matches!((path.beginning, path.end), (PathStart::After(_), PathEnd::Cut(edge)) if function.by_trip_count.contains(&edge));
            let counting = if is_free { 0.0 } else { counting_cost(instructions as f64) };
            let cost = Cost { instructions: instructions as f64, counting };
            all.insert(function.first_counter + path.id, cost);
        }
    }
    all
}

/// Cost of counting a path of that many instructions.
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
        // 6.8 instructions per 400.
        assert!((slowdown(400.0) - 1.017).abs() < 1e-9, "{}", slowdown(400.0));
        assert_eq!(Work { instructions: 5.0, counting: 0.0 }.slowdown(1.0), 1.0);
    }
}
