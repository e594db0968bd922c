//! Words whose numbers are sums of labels, to path numbers.
//!
//! Copies of a program count a part of the paths each, in words whose numbers are sums of labels (see
//! [`trodden_unit::LabelWords`]). Words of other sums belong to paths that are not counted here. What they hold is no
//! path's count, and is dropped.

use crate::sum::Sums;
use trodden_flow::part::LabelSums;
use trodden_unit::{FunctionMap, LabelWords, MapError};

/// Adds the counts of a function's words to those of its counters.
///
/// # Errors
/// The map is damaged.
pub fn decode(function: &FunctionMap, words: &LabelWords, counts: &[(u64, u64)], out: &mut Sums) -> Result<(), MapError> {
    if counts.is_empty() {
        return Ok(());
    }
    let dag = function.dag()?;
    let numbering = function.numbering(&dag)?;
    let all = vec![true; dag.edges().len()];
    let search = LabelSums::new(&dag, &words.labels, &all);
    for (word, count) in counts {
        if let Some(path) = search.path((word - words.first_word) as i64) {
            out.add(function.first_counter.saturating_add(numbering.id(&path)), *count);
        }
    }
    Ok(())
}
