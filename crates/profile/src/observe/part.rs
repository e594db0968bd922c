//! Words whose numbers are sums of labels, to path numbers.
//!
//! Copies of a program count a part of the paths each, in words whose numbers are sums of labels (see
//! [`trodden_unit::LabelWords`]). Words of other sums belong to paths that are not counted here. What they hold is no
//! path's count, and is dropped.

use super::{Inexact, InexactFinder, Tally};
use trodden_flow::part::LabelSums;
use trodden_unit::experiment::Spelling;
use trodden_unit::{CountedEvent, FunctionMap, LabelWords, MapError, Storage, UnitMap, parts};

/// The counters for which words of a function stand.
pub fn counters(function: &FunctionMap, words: &LabelWords, of: &[u64]) -> Result<Vec<Option<u64>>, MapError> {
    let dag = function.dag()?;
    let numbering = function.numbering(&dag)?;
    let all = vec![true; dag.edges().len()];
    let search = LabelSums::new(&dag, &words.labels, &all);
    let number = |word: &u64| Some(numbering.id(&search.path((word - words.first_word) as i64)?));
    Ok(of.iter().map(|word| Some(function.first_counter.saturating_add(number(word)?))).collect())
}

/// Functions with a part of their paths, and units that are copies'.
#[derive(Default)]
pub struct Finder {
    scheme: String,
    /// With executions of unknown paths.
    partial: Tally,
    copy: u64,
    edges: u64,
}

impl InexactFinder for Finder {
    fn unit(&mut self, map: &UnitMap) {
        self.edges += u64::from(map.counted == CountedEvent::Edges);
        self.copy += u64::from(parts::origin(map).is_some());
    }

    fn function(&mut self, map: &UnitMap, function: &FunctionMap, unattributed: u64) {
        if matches!(function.storage, Storage::Labels(_)) {
            self.scheme = map.experiment.scheme().name().to_owned();
            self.partial.add(unattributed);
        }
    }

    fn reasons(&mut self) -> Vec<Inexact> {
        let Tally { functions, sum } = self.partial;
        let all = [
            (functions > 0, Inexact::Partial { scheme: std::mem::take(&mut self.scheme), functions, executions: sum }),
            (self.copy > 0, Inexact::Copy(self.copy)),
            (self.edges > 0, Inexact::Edges(self.edges)),
        ];
        all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, reason)| reason).collect()
    }
}
