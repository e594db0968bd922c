//! Counts by sums of labels: from words to path numbers.
//!
//! Copies of a program count a part of the paths each, in words whose numbers are sums of labels (see
//! [`trodden_unit::LabelWords`]). Words of other sums belong to paths that are not counted here: their values are
//! no counts, and are dropped.

use crate::sum::Sums;
use trodden_flow::Numbering;
use trodden_flow::partition::labels;
use trodden_unit::{FunctionMap, LabelWords, MapError, UnitMap};

/// Whether a unit counts by sums of labels.
pub fn has_labels(map: &UnitMap) -> bool {
    map.functions.iter().any(|f| f.label_words().is_some())
}

/// Replaces counts by sums of labels with counts by path.
///
/// # Errors
/// The map is damaged.
pub fn to_paths(map: &UnitMap, counts: Vec<(u64, u64)>) -> Result<Vec<(u64, u64)>, MapError> {
    let mut functions: Vec<(&LabelWords, &FunctionMap)> = map.functions.iter().filter_map(|f| Some((f.label_words()?, f))).collect();
    functions.sort_by_key(|(words, _)| words.first_word);
    let mut sums = Sums::default();
    let mut rest = counts.into_iter().peekable();
    for (words, function) in functions {
        let end = words.first_word.saturating_add(words.words);
        while let Some((index, count)) = rest.next_if(|c| c.0 < words.first_word) {
            sums.add(index, count);
        }
        let mut own = Vec::new();
        while let Some(word) = rest.next_if(|c| c.0 < end) {
            own.push((word.0 - words.first_word, word.1));
        }
        for (path, count) in paths(function, words, &own)? {
            sums.add(function.first_counter.saturating_add(path), count);
        }
    }
    rest.for_each(|(index, count)| sums.add(index, count));
    Ok(sums.finish().0)
}

/// Counts by path of a function.
fn paths(function: &FunctionMap, words: &LabelWords, counts: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, MapError> {
    if counts.is_empty() {
        return Ok(Vec::new());
    }
    let dag = function.dag()?;
    let numbering =
        Numbering::from_values(&dag, &function.values).map_err(|what| MapError::Inconsistent { function: function.name.clone(), what })?;
    let all = vec![true; dag.edges().len()];
    let search = labels::Sums::of(&dag, &words.labels, &all);
    let path = |(word, count): &(u64, u64)| Some((numbering.id(&search.path(*word as i64)?), *count));
    Ok(counts.iter().filter_map(path).collect())
}
