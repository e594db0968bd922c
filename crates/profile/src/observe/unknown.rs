//! Decodes units that count only unknown or watched paths. In such a unit, the words after the counters are times of first executions. If
//! several threads have a time for the same counter, the earliest one is kept.

use super::{InexactFinder, InexactnessReason};
use std::collections::BTreeMap;
use std::ops::Range;
use trodden_unit::UnitMap;

#[derive(Default)]
pub struct UnknownPathFinder(u64);

impl InexactFinder for UnknownPathFinder {
    fn visit_unit(&mut self, map: &UnitMap) {
        self.0 += u64::from(map.has_times() && !map.experiment.is_watched());
    }

    fn collect_reasons(&mut self) -> Vec<InexactnessReason> {
        if self.0 > 0 { vec![InexactnessReason::Residual(self.0)] } else { Vec::new() }
    }
}

/// Collects the times at which paths were first executed. A unit has one time for each counter.
#[derive(Default)]
pub struct FirstExecutionTimes {
    words: Range<u64>,
    /// Time of the first execution by counter, in nanoseconds since 1970.
    pub first: BTreeMap<u64, u64>,
}

impl FirstExecutionTimes {
    pub fn new(map: &UnitMap) -> FirstExecutionTimes {
        let words = if map.has_times() { map.counters..map.counters.saturating_mul(2) } else { 0..0 };
        FirstExecutionTimes { words, ..FirstExecutionTimes::default() }
    }

    /// Decodes the word if it is a time; otherwise returns false.
    pub fn add_word(&mut self, index: u64, value: u64) -> bool {
        let is_time = self.words.contains(&index);
        if is_time {
            self.first.entry(index - self.words.start).and_modify(|t| *t = (*t).min(value)).or_insert(value);
        }
        is_time
    }
}
