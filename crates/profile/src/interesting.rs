//! Words of functions that distinguish only their interesting paths, to path numbers.
//!
//! Which path a word counts is in the map ([`trodden_unit::InterestingWords`]). What the other words counted is added up in the last one.

use crate::sum::Sums;
use trodden_unit::{FunctionMap, InterestingWords};

/// Adds the counts of a function's words to those of its counters.
pub fn decode(function: &FunctionMap, words: &InterestingWords, counts: &[(u64, u64)], out: &mut Sums) {
    for &(word, count) in counts {
        let counter = match words.paths.binary_search_by_key(&(word - words.first_word), |p| p.0) {
            Ok(path) => function.first_counter.saturating_add(words.paths[path].1),
            Err(_) => words.others(),
        };
        out.add(counter, count);
    }
}
