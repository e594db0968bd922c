//! By how much counting slows a program down: a model, from what was counted.
//!
//! With `n` executions of paths of `i` instructions each, the slowdown is
//!
//! ```text
//! sum n * (i + cost(i)) / sum n * i,     cost(i) = min(COST_SHARE * i, MOST_COST)
//! ```
//!
//! and 0 where trip counts are counted. Processor time with everything counted was 1.02 to 1.29 times that with nothing counted in seven
//! programs, whether their paths were short or long (docs/benchmarks/constants.md): a count costs an instruction or two, but also caches,
//! registers and branch predictors. So the cost is a share of the path, up to paths of the length that those programs had.

use crate::model::Profile;
use crate::paths::{Beginning, FunctionPaths, PathEnd};
use std::collections::HashMap;
use trodden_unit::Identity;

/// What the count at a path's end, and the path register before it, cost: that part of the path's instructions of intermediate code.
pub(super) const COST_SHARE: f64 = 0.17;
/// The standard error of that, as a part of it.
pub(super) const COST_ERROR: f64 = 0.5;
/// The greatest cost, in such instructions: paths of the seven programs had up to 40 instructions on average.
pub(super) const MOST_COST: f64 = 40.0 * COST_SHARE;
/// Upper bound of the slowdown, a ratio: the model's is lower where a path has an instruction.
const MOST_SLOWDOWN: f64 = 4.0;

/// Executed instructions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Instructions of the paths.
    pub instructions: f64,
    /// Additional cost of counting, in instructions.
    pub counting: f64,
}

impl Work {
    /// The slowdown factor by counting, if that costs so many times what the model says.
    pub fn slowdown(self, times: f64) -> f64 {
        if self.instructions > 0.0 { (1.0 + times * self.counting / self.instructions).min(MOST_SLOWDOWN) } else { 1.0 }
    }
}

/// The cost of an execution of a path, in instructions of intermediate code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// Instructions of the path.
    pub instructions: f64,
    /// Additional cost while it is counted.
    pub counting: f64,
}

/// Costs of a unit's executed paths, by counter.
pub(super) fn costs(profile: &Profile, image: Identity, unit: Identity) -> HashMap<u64, Cost> {
    let mut all = HashMap::new();
    let images = profile.images.iter().filter(|i| i.identity == image);
    let Some(unit) = images.flat_map(|i| &i.units).find(|u| u.unit == unit) else { return all };
    for function in &unit.map.functions {
        // Damage is reported where the profile is shown.
        let Ok(paths) = FunctionPaths::decode(function, unit.counts_of(function)) else { continue };
        for path in &paths.complete {
            let instructions: u64 = path.blocks.iter().map(|b| u64::from(function.blocks[b.index()].instructions)).sum();
            // Some loops are counted by trip count: once, when they are left.
            let is_free =
                matches!((path.beginning, path.end), (Beginning::After(_), PathEnd::Cut(edge)) if function.by_trip_count.contains(&edge));
            let counting = if is_free { 0.0 } else { counting_cost(instructions as f64) };
            let cost = Cost { instructions: instructions as f64, counting };
            all.insert(function.first_counter + path.id, cost);
        }
    }
    all
}

/// What counting a path of that many instructions costs, in instructions.
pub(super) fn counting_cost(instructions: f64) -> f64 {
    (COST_SHARE * instructions).min(MOST_COST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_usual_length_are_slowed_down_alike_and_longer_ones_less() {
        let slowdown = |instructions: f64| Work { instructions, counting: counting_cost(instructions) }.slowdown(1.0);
        for instructions in [1.0, 8.0, 40.0] {
            assert!((slowdown(instructions) - 1.17).abs() < 1e-9, "{instructions}: {}", slowdown(instructions));
        }
        // 6.8 instructions of 400.
        assert!((slowdown(400.0) - 1.017).abs() < 1e-9, "{}", slowdown(400.0));
        assert_eq!(Work { instructions: 5.0, counting: 0.0 }.slowdown(1.0), 1.0);
    }
}
