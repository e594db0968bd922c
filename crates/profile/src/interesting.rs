//! Counts of functions that count interesting paths only: from words to path numbers.
//!
//! Which path a word counts is in the map ([`trodden_unit::InterestingWords`]). Words are the same for all threads, so regions
//! are summed first. The executions of all other paths are summed in the last word.

use crate::sum::Sums;
use trodden_unit::{FunctionMap, InterestingWords, UnitMap};

/// Counts of a unit's words, by index ascending, as counts of its counters.
pub fn by_path(map: &UnitMap, counts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut functions: Vec<(&FunctionMap, &InterestingWords)> = map.functions.iter().filter_map(|f| Some((f, f.interesting()?))).collect();
    if functions.is_empty() {
        return counts;
    }
    functions.sort_by_key(|(_, words)| words.first_word);
    let mut sums = Sums::default();
    for (word, count) in counts {
        let at = functions.partition_point(|(_, words)| words.range().end <= word);
        let counter = match functions.get(at).filter(|(_, words)| words.range().contains(&word)) {
            None => word,
            Some((function, words)) => match words.paths.binary_search_by_key(&(word - words.first_word), |p| p.0) {
                Ok(path) => function.first_counter.saturating_add(words.paths[path].1),
                Err(_) => words.others(),
            },
        };
        sums.add(counter, count);
    }
    sums.finish().0
}
