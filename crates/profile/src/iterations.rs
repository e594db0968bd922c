//! Counts of paths over iterations, which are sequences of consecutive paths in one activation of a function
//! ([`trodden_unit::iterations`]). They are read from a stream ([`crate::stream::IterationReader`]) or counted by a program that was built
//! for it ([`trodden_unit::observe::IterationWords`]).

use crate::model::ImageProfile;
use std::collections::BTreeMap;
use trodden_unit::{FunctionKey, IterationPath};

/// Number of executions of each path over iterations.
pub type IterationPathCounts = BTreeMap<IterationPath, u64>;

/// Counts of a function's paths over iterations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IterationPathCounters {
    /// Maximum number of paths that form one path over iterations.
    pub iterations: u32,
    /// Number of executions of the paths over iterations for which the program has counters.
    pub counts: IterationPathCounts,
    /// Number of executions of all other paths over iterations, which are counted together.
    pub others: u64,
}

impl IterationPathCounters {
    /// Returns how often each sequence of exactly `length` consecutive paths was executed within one activation of the function. `length`
    /// must not exceed `iterations`.
    pub fn counts_of_length(&self, length: usize) -> IterationPathCounts {
        let mut counts = IterationPathCounts::new();
        for (path, count) in self.counts.iter().filter(|(path, count)| path.len() >= length && **count > 0) {
            let sum = counts.entry(path[path.len() - length..].to_vec()).or_default();
            *sum = sum.saturating_add(*count);
        }
        counts
    }
}

/// Returns whether any unit of an image was built to count paths over iterations.
pub fn counts_iterations(image: &ImageProfile) -> bool {
    image.units.iter().any(|unit| unit.map.experiment.iterations().is_some())
}

/// Adds an image's counts of paths over iterations to `all`, which may have counts of other images, such as other instrumented copies of
/// the program. Different versions of a function have separate entries, because their path numbers denote different paths.
pub fn add_counted_iterations(image: &ImageProfile, all: &mut BTreeMap<FunctionKey, IterationPathCounters>) {
    for unit in &image.units {
        for function in &unit.map.functions {
            let Some(words) = function.iteration_words() else { continue };
            let counted = all.entry((unit.map.source.clone(), function.name.clone(), function.version())).or_default();
            counted.iterations = counted.iterations.max(words.iterations);
            for (word, count) in unit.counts.counters_in_range(words.range()) {
                let sum = match words.paths.get((word - words.first_word) as usize) {
                    Some(path) => counted.counts.entry(path.clone()).or_default(),
                    None => &mut counted.others,
                };
                *sum = sum.saturating_add(count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_of_a_length_are_counted_by_their_suffix() {
        let counts = [(vec![1], 2), (vec![1, 5], 2), (vec![5, 5], 7), (vec![5, 6], 1)].map(|(path, count): (Vec<u64>, u64)| (path, count));
        let counted = IterationPathCounters { iterations: 2, counts: counts.into(), others: 0 };
        assert_eq!(counted.counts_of_length(1), IterationPathCounts::from([(vec![1], 2), (vec![5], 9), (vec![6], 1)]));
        assert_eq!(counted.counts_of_length(2), IterationPathCounts::from([(vec![1, 5], 2), (vec![5, 5], 7), (vec![5, 6], 1)]));
    }
}
