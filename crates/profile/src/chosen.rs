//! Reading what functions counted that tell only some of their paths apart: words to path numbers.
//!
//! Which path a word counts is in the map ([`trodden_unit::Chosen`]). Words are the same for all threads, so regions
//! are added up first. What the other words counted is added up in the last one.

use crate::sum::Sums;
use trodden_unit::{Chosen, FunctionMap, UnitMap};

/// Counts of a unit's words, by index ascending, as counts of its counters.
pub fn by_path(map: &UnitMap, counts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut functions: Vec<(&FunctionMap, &Chosen)> = map.functions.iter().filter_map(|f| Some((f, f.chosen()?))).collect();
    if functions.is_empty() {
        return counts;
    }
    functions.sort_by_key(|(_, chosen)| chosen.first_word);
    let mut sums = Sums::default();
    for (word, count) in counts {
        let at = functions.partition_point(|(_, chosen)| chosen.range().end <= word);
        let counter = match functions.get(at).filter(|(_, chosen)| chosen.range().contains(&word)) {
            None => word,
            Some((function, chosen)) => match chosen.paths.binary_search_by_key(&(word - chosen.first_word), |p| p.0) {
                Ok(path) => function.first_counter.saturating_add(chosen.paths[path].1),
                Err(_) => chosen.others(),
            },
        };
        sums.add(counter, count);
    }
    sums.finish().0
}
