//! Sampling in bursts: functions that cannot be duplicated are never counted. [`crate::sampling`] has the estimates.

use super::{Inexact, InexactFinder};
use std::collections::BTreeSet;
use trodden_unit::UnitMap;

/// Prefix of the reasons why functions of such builds are not counted.
const NOT_SAMPLED: &str = "it is not sampled";

/// Functions that are not sampled, by their linkage names.
#[derive(Default)]
pub struct Finder(BTreeSet<String>);

impl InexactFinder for Finder {
    fn unit(&mut self, map: &UnitMap) {
        if map.experiment.is_sampled() {
            let refused = map.skipped.iter().filter(|s| s.reason.starts_with(NOT_SAMPLED));
            self.0.extend(refused.map(|s| s.name.trim_start_matches('\u{1}').to_owned()));
        }
    }

    fn reasons(&mut self) -> Vec<Inexact> {
        let names: Vec<String> = std::mem::take(&mut self.0).into_iter().collect();
        if names.is_empty() { Vec::new() } else { vec![Inexact::NotSampled(names)] }
    }
}
