//! Chooses and computes the counter word of a pair of context and path. The pair is identified by its key, a number.
//!
//! Interesting pairs have consecutive words, and all other pairs share the word after them. A key is hashed to a slot, for which constant
//! tables have the expected key and its word. With few keys, the hash is a multiplication ([`PerfectHash`]); with more, a displacement is
//! added ([`DisplacementHash`]), so that tables grow linearly. If the interesting keys of the paths that end on an edge form only a few
//! runs of consecutive numbers, the key is compared with the bounds of the runs instead. If an array indexed by keys needs no more words,
//! or every pair is counted, the key is the index of the word (Ball-Larus numbering over contexts).

use super::displaced::DisplacementHash;
use super::transition::{ContextTransitionTables, emit_hash_slot};
use crate::interesting::InterestingPathCode;
use crate::llvm::{Builder, Value};
use llvm_sys::LLVMIntPredicate;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Edge;
use trodden_flow::numbering::PerfectHash;
use trodden_selective::contexts::ContextNumbering;

/// Maximum number of runs of consecutive keys with which a key is compared. If there are more, the key is looked up in a table.
const MAX_COMPARED_RUNS: usize = 2;
/// Maximum number of table slots per key if the hash is a multiplication. Otherwise, displacements are added.
const MAX_SLOTS_PER_KEY: u64 = 4;

/// How the keys of a function are mapped to its counter words.
pub enum CounterWordMapping {
    /// The key is the index of the word.
    Keys {
        words: u64,
        /// The pair of each key, for numberings in which it cannot be computed from the key.
        pairs: BTreeMap<u64, (u32, u64)>,
    },
    /// Only interesting keys have words of their own. The index is the key's rank among all interesting keys.
    Minimal {
        keys: Vec<u64>,
        pairs: Vec<(u32, u64)>,
        /// For each edge, the runs of consecutive keys to which the paths that end there belong.
        by_edge: BTreeMap<Edge, BTreeSet<ConsecutiveKeys>>,
        /// The hash function of the keys; `None` if keys are only compared with runs.
        hash: Option<KeyHash>,
        /// The tables of the hash function: the key of each slot, the word of each slot, and displacements.
        tables: ContextTransitionTables,
    },
    /// Pairs have a preferential numbering: the path register contains the key, and the index of the word is derived from it. A table with
    /// the expected register value of each word tells interesting keys from all other keys (thesis, section 3.4.4).
    Preferential {
        /// The path register's initial value in each context, and the mapping from its final values to words.
        numbering: ContextNumbering,
        /// The tables: expected register value of each word, and initial register value of each context.
        tables: ContextTransitionTables,
    },
}

/// A maximal run of consecutive keys, with consecutive words from `word` on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsecutiveKeys {
    first: u64,
    last: u64,
    word: u64,
}

impl ConsecutiveKeys {
    /// Returns the run of consecutive keys that contains `key`, which must be one of `keys`.
    fn containing(keys: &[u64], key: u64) -> ConsecutiveKeys {
        let at = keys.binary_search(&key).expect("an interesting key is one of them");
        let follows = |place: &usize| keys[place - 1].checked_add(1) == Some(keys[*place]);
        let begins = (1..=at).rev().find(|place| !follows(place)).unwrap_or(0);
        let ends = (at + 1..keys.len()).find(|place| !follows(place)).unwrap_or(keys.len()) - 1;
        ConsecutiveKeys { first: keys[begins], last: keys[ends], word: begins as u64 }
    }

    /// Emits the index of the word for `key` if the run contains it, and `otherwise` if not.
    fn emit_word(self, builder: &Builder, key: Value, otherwise: Value) -> Value {
        let constant = |value: u64| builder.constant(value);
        if self.first == self.last {
            return builder.select(builder.equal(key, constant(self.first)), constant(self.word), otherwise);
        }
        let place = builder.subtract(key, constant(self.first));
        let is_in = builder.compare(LLVMIntPredicate::LLVMIntULE, place, constant(self.last - self.first));
        builder.select(is_in, builder.add(place, constant(self.word)), otherwise)
    }
}

pub enum KeyHash {
    Multiplied(PerfectHash),
    Displaced(DisplacementHash),
}

impl KeyHash {
    fn from_keys(keys: &[u64]) -> Option<KeyHash> {
        // With more keys, a multiplication alone does not give a small table.
        let multiplied = (keys.len() <= 64).then(|| PerfectHash::from_keys(keys).ok()).flatten();
        match multiplied.filter(|hash| hash.slots() <= MAX_SLOTS_PER_KEY * keys.len() as u64) {
            Some(hash) => Some(KeyHash::Multiplied(hash)),
            None => DisplacementHash::from_keys(keys).map(KeyHash::Displaced),
        }
    }

    fn keys_by_slot(&self) -> Vec<Option<u64>> {
        match self {
            KeyHash::Multiplied(hash) => (0..hash.slots()).map(|slot| hash.key(slot)).collect(),
            KeyHash::Displaced(hash) => hash.keys_by_slot().to_vec(),
        }
    }

    fn emit_slot(&self, builder: &Builder, key: Value, tables: &ContextTransitionTables, name: &str) -> Value {
        let constant = |value: u64| builder.constant(value);
        match self {
            KeyHash::Multiplied(hash) => emit_hash_slot(builder, hash, key),
            KeyHash::Displaced(hash) => {
                let (multiplier, bucket_bits, slot_bits) = hash.parameters();
                let product = builder.multiply(key, constant(multiplier));
                let bucket = builder.shift_right(product, constant((64 - bucket_bits).into()));
                let displacement = tables.emit_entry_load(2, builder, bucket, name, || hash.displacements().to_vec());
                let slot = builder.shift_right(product, constant((64 - bucket_bits - slot_bits).into()));
                builder.and(builder.add(slot, displacement), constant((1 << slot_bits) - 1))
            }
        }
    }
}

impl CounterWordMapping {
    /// Maps interesting keys to consecutive words. Each key comes with its pair and the edge on which its path ends. Returns `None` if no
    /// hash function is found.
    pub fn with_consecutive_words(interesting: &[(u64, (u32, u64), Option<Edge>)]) -> Option<CounterWordMapping> {
        let by_key: BTreeMap<u64, (u32, u64)> = interesting.iter().map(|(key, pair, _)| (*key, *pair)).collect();
        let (keys, pairs): (Vec<u64>, Vec<(u32, u64)>) = by_key.into_iter().unzip();
        let mut by_edge: BTreeMap<Edge, BTreeSet<ConsecutiveKeys>> = BTreeMap::new();
        for (key, _, edge) in interesting {
            if let Some(edge) = edge {
                by_edge.entry(*edge).or_default().insert(ConsecutiveKeys::containing(&keys, *key));
            }
        }
        let is_looked_up = by_edge.values().any(|runs| runs.len() > MAX_COMPARED_RUNS);
        let hash = match is_looked_up {
            true => Some(KeyHash::from_keys(&keys)?),
            false => None,
        };
        Some(CounterWordMapping::Minimal { keys, pairs, by_edge, hash, tables: ContextTransitionTables::default() })
    }

    pub fn word_count(&self) -> u64 {
        match self {
            CounterWordMapping::Keys { words, .. } => *words,
            CounterWordMapping::Minimal { keys, .. } => keys.len() as u64 + 1,
            CounterWordMapping::Preferential { numbering, .. } => numbering.ending.counter_count(),
        }
    }

    /// Returns the pair of each word except the last, encoded by `spell`; `u64::MAX` for a word without a pair. The list is empty if the
    /// key of a pair is the index of its word.
    pub fn encoded_pairs(&self, spell: impl Fn(&(u32, u64)) -> u64) -> Vec<u64> {
        match self {
            CounterWordMapping::Keys { pairs, .. } if pairs.is_empty() => Vec::new(),
            CounterWordMapping::Keys { words, pairs } => (0..words - 1).map(|word| pairs.get(&word).map_or(u64::MAX, &spell)).collect(),
            CounterWordMapping::Minimal { pairs, .. } => pairs.iter().map(spell).collect(),
            CounterWordMapping::Preferential { numbering, .. } => numbering.keys.iter().map(|key| key.unwrap_or(u64::MAX)).collect(),
        }
    }

    pub fn emit_initial_key(&self, builder: &Builder, context: Value, bits: u32, function: Value) -> Value {
        let CounterWordMapping::Preferential { numbering, tables } = self else {
            return builder.shift_left(context, builder.constant(bits.into()));
        };
        let name = format!("{}.starts", function.name());
        tables.emit_entry_load(1, builder, context, &name, || numbering.starts.iter().map(|start| *start as u64).collect())
    }

    /// Emits the extraction of the key from the path register at the end of a path.
    pub fn emit_key(&self, builder: &Builder, register: Value) -> Value {
        match self.key_mask() {
            u64::MAX => register,
            mask => builder.and(register, builder.constant(mask)),
        }
    }

    /// Returns a mask for the bits of the path register that form the key.
    pub fn key_mask(&self) -> u64 {
        match self {
            CounterWordMapping::Preferential { numbering, .. } => numbering.ending.identity_mask().unwrap_or(u64::MAX),
            CounterWordMapping::Keys { .. } | CounterWordMapping::Minimal { .. } => u64::MAX,
        }
    }

    /// Returns true if the word for a path that ends on this edge depends on the key; otherwise it is always the shared one.
    pub fn depends_on_key(&self, edge: Edge) -> bool {
        match self {
            CounterWordMapping::Minimal { by_edge, .. } => by_edge.get(&edge).is_some_and(|runs| !runs.is_empty()),
            CounterWordMapping::Keys { .. } | CounterWordMapping::Preferential { .. } => true,
        }
    }

    /// Emits the index of the word for a path that ends on the given edge. `key` is its key or, for preferential numbering, the complete
    /// path register.
    pub fn emit_word(&self, builder: &Builder, edge: Edge, key: Value, function: Value) -> Value {
        if let CounterWordMapping::Preferential { numbering, tables } = self {
            let entries = || InterestingPathCode::lookup_table_entries(&numbering.ending).unwrap_or_default();
            let table = tables.find_or_add_table(0, builder, &format!("{}.segments", function.name()), entries);
            return InterestingPathCode::with_table(&numbering.ending, table).emit_index(builder, key);
        }
        let CounterWordMapping::Minimal { keys, by_edge, hash, tables, .. } = self else { return key };
        let word_of = |key: &u64| keys.binary_search(key).expect("interesting keys have words") as u64;
        let others = builder.constant(keys.len() as u64);
        let here = by_edge.get(&edge);
        match hash {
            Some(hash) if here.is_some_and(|runs| runs.len() > MAX_COMPARED_RUNS) => {
                let name = format!("{}.segments", function.name());
                let slot = hash.emit_slot(builder, key, tables, &name);
                let by_slot = |of: &dyn Fn(Option<u64>) -> u64| hash.keys_by_slot().into_iter().map(of).collect();
                // In a narrow table, the value that means "none" may equal an uninteresting key. This is harmless, because the word in such
                // a slot is the shared one.
                let expected = tables.emit_entry_load(0, builder, slot, &name, || by_slot(&|key| key.unwrap_or(u64::MAX)));
                let word =
                    tables.emit_entry_load(1, builder, slot, &name, || by_slot(&|key| key.map_or(keys.len() as u64, |key| word_of(&key))));
                builder.select(builder.equal(expected, key), word, others)
            }
            _ => here.into_iter().flatten().fold(others, |otherwise, run| run.emit_word(builder, key, otherwise)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_maximal() {
        let keys = [3, 4, 5, 9, 11, 12, u64::MAX];
        let runs: BTreeSet<ConsecutiveKeys> = keys.iter().map(|key| ConsecutiveKeys::containing(&keys, *key)).collect();
        let found: Vec<(u64, u64, u64)> = runs.iter().map(|run| (run.first, run.last, run.word)).collect();
        assert_eq!(found, [(3, 5, 0), (9, 9, 3), (11, 12, 4), (u64::MAX, u64::MAX, 6)]);
    }
}
