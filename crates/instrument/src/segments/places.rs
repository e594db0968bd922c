//! Which word counts a pair of a context and a path: how code finds it by the pair's key.
//!
//! Interesting pairs have words of their own, one behind the other, and all other pairs share one behind these: a minimal perfect hash. A
//! key leads to a slot, of which constant tables say whose it is, and which word is that pair's. Of few keys the slot is `(key * M) >> S`
//! with a searched multiplier ([`PerfectHash`]); of more it is displaced as well ([`DisplacedHash`]), so that tables grow with the keys,
//! not with their square. So a function has as many words as interesting pairs, and one more. Where paths end whose interesting keys lie
//! in few runs without a gap, the key is compared with the ends of these, and no table is read.
//!
//! Where keys themselves take no more words, or every pair is to be counted, a key is its word (Ball-Larus over contexts).

use super::displaced::DisplacedHash;
use super::transition::{TransitionTables, slot_of};
use crate::interesting::Words;
use crate::llvm::{Builder, Value};
use llvm_sys::LLVMIntPredicate;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::Edge;
use trodden_flow::numbering::PerfectHash;
use trodden_selective::contexts::ContextNumbering;

/// Runs of keys that a key is compared with rather than looked up.
const MOST_COMPARED: usize = 2;
/// Slots for each key of a table without displacements.
const MOST_SLOTS: u64 = 4;

/// How words are found.
pub enum Places {
    /// A key is its word.
    Keys {
        /// Number of words.
        words: u64,
        /// The pairs of keys, where these are not made of the pair's own numbers.
        pairs: BTreeMap<u64, (u32, u64)>,
    },
    /// The word of an interesting key is its place among these, ascending.
    Minimal {
        /// The keys.
        keys: Vec<u64>,
        /// Their pairs.
        pairs: Vec<(u32, u64)>,
        /// The runs in which those of paths lie that end by an edge.
        by_edge: BTreeMap<Edge, BTreeSet<Run>>,
        /// Where keys are looked up.
        hash: Option<Hash>,
        /// Its tables: keys by slot, words by slot, and displacements.
        tables: TransitionTables,
    },
    /// Preferential numbering over contexts and paths: the register holds the word's number and the key, and a table the register of each
    /// word (thesis, section 3.4.4).
    Preferential {
        /// What the register begins with in each context, and which word it leads to.
        numbering: ContextNumbering,
        /// Its tables: registers by word, beginnings by context.
        tables: TransitionTables,
    },
}

/// Keys that follow one another without a gap. So their words do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    first: u64,
    last: u64,
    /// The first key's word.
    word: u64,
}

impl Run {
    /// The run of a key among keys, ascending.
    fn around(keys: &[u64], key: u64) -> Run {
        let at = keys.binary_search(&key).expect("an interesting key is one of them");
        let follows = |place: &usize| keys[place - 1].checked_add(1) == Some(keys[*place]);
        let begins = (1..=at).rev().find(|place| !follows(place)).unwrap_or(0);
        let ends = (at + 1..keys.len()).find(|place| !follows(place)).unwrap_or(keys.len()) - 1;
        Run { first: keys[begins], last: keys[ends], word: begins as u64 }
    }

    /// Computes the word of a key, or gives another word if it is not of the run.
    fn word(self, builder: &Builder, key: Value, otherwise: Value) -> Value {
        let constant = |value: u64| builder.constant(value);
        if self.first == self.last {
            return builder.select(builder.equal(key, constant(self.first)), constant(self.word), otherwise);
        }
        let place = builder.subtract(key, constant(self.first));
        let is_in = builder.compare(LLVMIntPredicate::LLVMIntULE, place, constant(self.last - self.first));
        builder.select(is_in, builder.add(place, constant(self.word)), otherwise)
    }
}

/// From keys to slots.
pub enum Hash {
    /// By one multiplication.
    Multiplied(PerfectHash),
    /// By that and a displacement.
    Displaced(DisplacedHash),
}

impl Hash {
    fn from_keys(keys: &[u64]) -> Option<Hash> {
        // Beyond, so small a table is not found.
        let multiplied = (keys.len() <= 64).then(|| PerfectHash::from_keys(keys).ok()).flatten();
        match multiplied.filter(|hash| hash.slots() <= MOST_SLOTS * keys.len() as u64) {
            Some(hash) => Some(Hash::Multiplied(hash)),
            None => DisplacedHash::from_keys(keys).map(Hash::Displaced),
        }
    }

    /// The key of each slot.
    fn keys(&self) -> Vec<Option<u64>> {
        match self {
            Hash::Multiplied(hash) => (0..hash.slots()).map(|slot| hash.key(slot)).collect(),
            Hash::Displaced(hash) => hash.keys().to_vec(),
        }
    }

    /// Computes the slot of a key.
    fn slot(&self, builder: &Builder, key: Value, tables: &TransitionTables, name: &str) -> Value {
        let constant = |value: u64| builder.constant(value);
        match self {
            Hash::Multiplied(hash) => slot_of(builder, hash, key),
            Hash::Displaced(hash) => {
                let (multiplier, bucket_bits, slot_bits) = hash.parameters();
                let product = builder.multiply(key, constant(multiplier));
                let bucket = builder.shift_right(product, constant((64 - bucket_bits).into()));
                let displacement = tables.entry(2, builder, bucket, name, || hash.displacements().to_vec());
                let slot = builder.shift_right(product, constant((64 - bucket_bits - slot_bits).into()));
                builder.and(builder.add(slot, displacement), constant((1 << slot_bits) - 1))
            }
        }
    }
}

impl Places {
    /// Those of interesting keys, each with its pair and the edge where its path ends; `None` if no hash of them is found.
    pub fn minimal(interesting: &[(u64, (u32, u64), Option<Edge>)]) -> Option<Places> {
        let by_key: BTreeMap<u64, (u32, u64)> = interesting.iter().map(|(key, pair, _)| (*key, *pair)).collect();
        let (keys, pairs): (Vec<u64>, Vec<(u32, u64)>) = by_key.into_iter().unzip();
        let mut by_edge: BTreeMap<Edge, BTreeSet<Run>> = BTreeMap::new();
        for (key, _, edge) in interesting {
            if let Some(edge) = edge {
                by_edge.entry(*edge).or_default().insert(Run::around(&keys, *key));
            }
        }
        let is_looked_up = by_edge.values().any(|runs| runs.len() > MOST_COMPARED);
        let hash = match is_looked_up {
            true => Some(Hash::from_keys(&keys)?),
            false => None,
        };
        Some(Places::Minimal { keys, pairs, by_edge, hash, tables: TransitionTables::default() })
    }

    /// Number of words.
    pub fn words(&self) -> u64 {
        match self {
            Places::Keys { words, .. } => *words,
            Places::Minimal { keys, .. } => keys.len() as u64 + 1,
            Places::Preferential { numbering, .. } => numbering.ending.words(),
        }
    }

    /// For each word but the last its pair, spelled as the map does, or `u64::MAX` if it has none; nothing where each pair is its word.
    pub fn pairs(&self, spell: impl Fn(&(u32, u64)) -> u64) -> Vec<u64> {
        match self {
            Places::Keys { pairs, .. } if pairs.is_empty() => Vec::new(),
            Places::Keys { words, pairs } => (0..words - 1).map(|word| pairs.get(&word).map_or(u64::MAX, &spell)).collect(),
            Places::Minimal { pairs, .. } => pairs.iter().map(spell).collect(),
            Places::Preferential { numbering, .. } => numbering.keys.iter().map(|key| key.unwrap_or(u64::MAX)).collect(),
        }
    }

    /// Computes what the register begins with in a context.
    pub fn start(&self, builder: &Builder, context: Value, bits: u32, function: Value) -> Value {
        let Places::Preferential { numbering, tables } = self else {
            return builder.shift_left(context, builder.constant(bits.into()));
        };
        let name = format!("{}.starts", function.name());
        tables.entry(1, builder, context, &name, || numbering.starts.iter().map(|start| *start as u64).collect())
    }

    /// The key in the register at a path's end.
    pub fn key(&self, builder: &Builder, register: Value) -> Value {
        match self.key_mask() {
            u64::MAX => register,
            mask => builder.and(register, builder.constant(mask)),
        }
    }

    /// Which bits of the register are the key.
    pub fn key_mask(&self) -> u64 {
        match self {
            Places::Preferential { numbering, .. } => numbering.ending.identity_mask().unwrap_or(u64::MAX),
            Places::Keys { .. } | Places::Minimal { .. } => u64::MAX,
        }
    }

    /// Computes the word of a register at an edge; but for preferential numbering that is the key.
    pub fn word(&self, builder: &Builder, edge: Edge, key: Value, function: Value) -> Value {
        if let Places::Preferential { numbering, tables } = self {
            let entries = || Words::entries(&numbering.ending).unwrap_or_default();
            let table = tables.table(0, builder, &format!("{}.segments", function.name()), entries);
            return Words::with_table(&numbering.ending, table).of(builder, key);
        }
        let Places::Minimal { keys, by_edge, hash, tables, .. } = self else { return key };
        let word_of = |key: &u64| keys.binary_search(key).expect("interesting keys have words") as u64;
        let others = builder.constant(keys.len() as u64);
        let here = by_edge.get(&edge);
        match hash {
            Some(hash) if here.is_some_and(|runs| runs.len() > MOST_COMPARED) => {
                let name = format!("{}.segments", function.name());
                let slot = hash.slot(builder, key, tables, &name);
                let by_slot = |of: &dyn Fn(Option<u64>) -> u64| hash.keys().into_iter().map(of).collect();
                // In a narrow table, what stands for no key may be a key that is not interesting: its word is that of the others, too.
                let noted = tables.entry(0, builder, slot, &name, || by_slot(&|key| key.unwrap_or(u64::MAX)));
                let word = tables.entry(1, builder, slot, &name, || by_slot(&|key| key.map_or(keys.len() as u64, |key| word_of(&key))));
                builder.select(builder.equal(noted, key), word, others)
            }
            _ => here.into_iter().flatten().fold(others, |otherwise, run| run.word(builder, key, otherwise)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_as_long_as_there_is_no_gap() {
        let keys = [3, 4, 5, 9, 11, 12, u64::MAX];
        let runs: BTreeSet<Run> = keys.iter().map(|key| Run::around(&keys, *key)).collect();
        let found: Vec<(u64, u64, u64)> = runs.iter().map(|run| (run.first, run.last, run.word)).collect();
        assert_eq!(found, [(3, 5, 0), (9, 9, 3), (11, 12, 4), (u64::MAX, u64::MAX, 6)]);
    }
}
