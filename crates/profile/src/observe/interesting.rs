//! Decodes the words of functions that count only their interesting paths separately. The map says which path each word counts
//! ([`trodden_unit::InterestingWords`]). The words of all other paths are added to the function's last counter.

use super::{FunctionCountAndSum, InexactFinder, InexactnessReason};
use trodden_unit::experiment::Spelling;
use trodden_unit::{FunctionMap, InterestingWords, StorageAliases, UnitMap};

pub fn translate_words(function: &FunctionMap, words: &InterestingWords, indices: &[u64]) -> Vec<Option<u64>> {
    let counter = |word: &u64| match words.paths.binary_search_by_key(&(word - words.first_word), |path| path.0) {
        Ok(at) => function.first_counter.saturating_add(words.paths[at].1),
        Err(_) => words.shared_word(),
    };
    indices.iter().map(|word| Some(counter(word))).collect()
}

#[derive(Default)]
pub struct InterestingPathFinder {
    scheme: String,
    /// The number of functions that count interesting paths, and the number of executions of their uninteresting paths.
    interesting: FunctionCountAndSum,
    /// Number of functions in which uninteresting paths share the counter of an interesting one, and number of these paths.
    aliases: FunctionCountAndSum,
    unproven: u64,
}

impl InexactFinder for InterestingPathFinder {
    fn visit_function(&mut self, map: &UnitMap, function: &FunctionMap, unattributed: u64) {
        let Some(words) = function.interesting_words() else { return };
        self.scheme = map.experiment.scheme().name().to_owned();
        self.interesting.add(unattributed);
        self.unproven += u64::from(!words.proven);
        let (StorageAliases::Exact(aliases) | StorageAliases::Sampled { aliases, .. }) = words.aliases;
        if aliases > 0 {
            self.aliases.add(aliases);
        }
    }

    fn collect_reasons(&mut self) -> Vec<InexactnessReason> {
        let scheme = || self.scheme.clone();
        let FunctionCountAndSum { functions, sum } = self.interesting;
        let FunctionCountAndSum { functions: aliased, sum: aliases } = self.aliases;
        let all = [
            (functions > 0, InexactnessReason::Interesting { scheme: scheme(), functions, executions: sum }),
            (aliased > 0, InexactnessReason::Aliases { scheme: scheme(), functions: aliased, aliases }),
            (self.unproven > 0, InexactnessReason::Unproven(self.unproven)),
        ];
        all.into_iter().filter(|(applies, _)| *applies).map(|(_, reason)| reason).collect()
    }
}
