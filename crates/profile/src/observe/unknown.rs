//! Unknown paths, and watched ones: behind the counters lie times of first executions, which have a minimum, not a sum. Known paths are
//! not counted.

use super::{Inexact, InexactFinder};
use std::collections::BTreeMap;
use std::ops::Range;
use trodden_unit::UnitMap;

/// Units that count unknown paths only.
#[derive(Default)]
pub struct Finder(u64);

impl InexactFinder for Finder {
    fn unit(&mut self, map: &UnitMap) {
        self.0 += u64::from(map.has_times() && !map.experiment.is_watched());
    }

    fn reasons(&mut self) -> Vec<Inexact> {
        if self.0 > 0 { vec![Inexact::Residual(self.0)] } else { Vec::new() }
    }
}

/// Times of first executions, which lie behind the counters, one for each.
#[derive(Default)]
pub struct Times {
    words: Range<u64>,
    /// By counter.
    pub first: BTreeMap<u64, u64>,
}

impl Times {
    /// Those of a unit.
    pub fn new(map: &UnitMap) -> Times {
        let words = if map.has_times() { map.counters..map.counters.saturating_mul(2) } else { 0..0 };
        Times { words, ..Times::default() }
    }

    /// Whether the word is a time; it is read then.
    pub fn word(&mut self, index: u64, value: u64) -> bool {
        let is_time = self.words.contains(&index);
        if is_time {
            self.first.entry(index - self.words.start).and_modify(|t| *t = (*t).min(value)).or_insert(value);
        }
        is_time
    }
}
