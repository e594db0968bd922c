//! Finds functions without counts in programs that are sampled in bursts: functions that must not be duplicated cannot be switched to an
//! uncounted version, so they are not counted at all. [`crate::sampling`] computes the estimates for the others.

use super::{InexactFinder, InexactnessReason};
use std::collections::BTreeSet;
use trodden_unit::UnitMap;

/// Beginning of the reasons, in a unit's map, why a sampled build does not instrument a function.
const NOT_SAMPLED: &str = "it is not sampled";

/// Linkage names of the functions that are not sampled.
#[derive(Default)]
pub struct BurstFinder(BTreeSet<String>);

impl InexactFinder for BurstFinder {
    fn visit_unit(&mut self, map: &UnitMap) {
        if map.experiment.is_sampled() {
            let unsampled = map.skipped.iter().filter(|s| s.reason.starts_with(NOT_SAMPLED));
            self.0.extend(unsampled.map(|s| s.name.trim_start_matches('\u{1}').to_owned()));
        }
    }

    fn collect_reasons(&mut self) -> Vec<InexactnessReason> {
        let names: Vec<String> = std::mem::take(&mut self.0).into_iter().collect();
        if names.is_empty() { Vec::new() } else { vec![InexactnessReason::NotSampled(names)] }
    }
}
