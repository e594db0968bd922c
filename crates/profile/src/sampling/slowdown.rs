//! By how much counting slows a program down: a model, from what was counted.
//!
//! With `n` executions of paths of `i` instructions each, and a cost of about [`COST`] instructions at a path's end (none where trip counts
//! are counted), the slowdown is
//!
//! ```text
//! sum n * (i + COST) / sum n * i
//! ```

use crate::model::Profile;
use crate::paths::{Beginning, FunctionPaths, PathEnd};
use std::collections::HashMap;
use trodden_unit::Identity;

/// What the count at a path's end, and the path register before it, cost: about so many instructions of intermediate code. Counting all
/// paths cost six programs 0.3 to 3.5 of them (docs/benchmarks/constants.md).
pub(super) const COST: f64 = 1.5;
/// The standard error of that, as a part of it.
pub(super) const COST_ERROR: f64 = 2.0 / 3.0;
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
            let cost = Cost { instructions: instructions as f64, counting: if is_free { 0.0 } else { COST } };
            all.insert(function.first_counter + path.id, cost);
        }
    }
    all
}
