//! Finds functions whose paths are counted together with the paths of previous iterations ([`crate::iterations`]) instead of separately.

use super::{FunctionCountAndSum, InexactFinder, InexactnessReason};
use std::collections::BTreeSet;
use trodden_unit::{FunctionMap, UnitMap};

/// Finds functions that count paths over iterations. Keeps them in a set, because several instrumented copies of a program may have the
/// same function.
#[derive(Default)]
pub struct IterationFinder {
    functions: BTreeSet<(String, String)>,
    others: FunctionCountAndSum,
}

impl InexactFinder for IterationFinder {
    fn visit_function(&mut self, map: &UnitMap, function: &FunctionMap, unattributed: u64) {
        if function.iteration_words().is_some() {
            self.functions.insert((map.source.clone(), function.name.clone()));
            self.others.add(unattributed);
        }
    }

    fn collect_reasons(&mut self) -> Vec<InexactnessReason> {
        match self.functions.len() as u64 {
            0 => Vec::new(),
            functions => vec![InexactnessReason::Iterations { functions, others: self.others.sum }],
        }
    }
}
