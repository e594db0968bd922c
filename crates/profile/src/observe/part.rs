//! Decodes the words of instrumented copies that each count some of the paths. A word's index is the sum of the labels along its path
//! ([`trodden_unit::LabelWords`]). A word whose index is not such a sum belongs to paths that the copy does not count, and is dropped.

use super::{FunctionCountAndSum, InexactFinder, InexactnessReason};
use trodden_flow::DagEdgeSet;
use trodden_flow::part::LabelSumDecoder;
use trodden_unit::experiment::Spelling;
use trodden_unit::{CountedEvent, FunctionMap, LabelWords, MapError, Storage, UnitMap, parts};

pub fn translate_words(function: &FunctionMap, words: &LabelWords, indices: &[u64]) -> Result<Vec<Option<u64>>, MapError> {
    let dag = function.dag()?;
    let numbering = function.numbering(&dag)?;
    let all = DagEdgeSet::full(dag.edges().len());
    let search = LabelSumDecoder::new(&dag, &words.labels, &all);
    let number = |word: &u64| Some(numbering.id(&search.path((word - words.first_word) as i64)?));
    Ok(indices.iter().map(|word| Some(function.first_counter.saturating_add(number(word)?))).collect())
}

/// Finds functions that count only some of their paths, and units of instrumented copies.
#[derive(Default)]
pub struct CopyPartFinder {
    scheme: String,
    /// Number of functions that count only some of their paths, and number of executions whose path is unknown.
    partial: FunctionCountAndSum,
    copy: u64,
    edges: u64,
}

impl InexactFinder for CopyPartFinder {
    fn visit_unit(&mut self, map: &UnitMap) {
        self.edges += u64::from(map.counted == CountedEvent::Edges);
        self.copy += u64::from(parts::origin(map).is_some());
    }

    fn visit_function(&mut self, map: &UnitMap, function: &FunctionMap, unattributed: u64) {
        if matches!(function.storage, Storage::Labels(_)) {
            self.scheme = map.experiment.scheme().name().to_owned();
            self.partial.add(unattributed);
        }
    }

    fn collect_reasons(&mut self) -> Vec<InexactnessReason> {
        let FunctionCountAndSum { functions, sum } = self.partial;
        let all = [
            (functions > 0, InexactnessReason::Partial { scheme: std::mem::take(&mut self.scheme), functions, executions: sum }),
            (self.copy > 0, InexactnessReason::Copy(self.copy)),
            (self.edges > 0, InexactnessReason::Edges(self.edges)),
        ];
        all.into_iter().filter(|(applies, _)| *applies).map(|(_, reason)| reason).collect()
    }
}
