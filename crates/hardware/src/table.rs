//! The hot path table: a set-associative table of path descriptors with saturating 32-bit accumulators (section 5.4).

use crate::descriptor::PathDescriptor;
use crate::error::HardwareError;
use crate::index::IndexFunction;
use crate::profile::PathProfile;
use crate::replacement::{ReplacementPolicy, XorshiftGenerator};

/// The parameters of a hot path table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableParameters {
    /// Number of entries, a power of two.
    pub entries: usize,
    /// Number of entries in a set, a power of two.
    pub associativity: usize,
    /// The function that maps a path to its set.
    pub index: IndexFunction,
    /// The policy that selects the entry to replace in a full set.
    pub replacement: ReplacementPolicy,
}

impl TableParameters {
    /// The published configuration: 512 entries in sets of 4, indexed by the exclusive or of start, length and outcomes, with replacement
    /// of the least frequently used entry.
    pub const PUBLISHED: TableParameters =
        TableParameters { entries: 512, associativity: 4, index: IndexFunction::Xor, replacement: ReplacementPolicy::Lfu };

    /// Parses `ENTRIESxASSOCIATIVITY[,INDEX][,REPLACEMENT]`, for example `512x4,xor,lfu`.
    pub fn parse(text: &str) -> Result<TableParameters, HardwareError> {
        let mut words = text.split(',');
        let size = words.next().unwrap_or_default();
        let numbers = size.split_once('x').and_then(|(e, a)| Some((e.parse().ok()?, a.parse().ok()?)));
        let Some((entries, associativity)) = numbers else {
            return Err(HardwareError::parameter("table", text, "ENTRIESxASSOCIATIVITY, for example 512x4 or 512x4,fold,rap"));
        };
        let mut table = TableParameters { entries, associativity, ..TableParameters::PUBLISHED };
        for word in words {
            let index = IndexFunction::from_name(word);
            let replacement = ReplacementPolicy::from_name(word);
            match (index, replacement) {
                (Some(index), _) => table.index = index,
                (_, Some(replacement)) => table.replacement = replacement,
                _ => {
                    let permitted = "an index (start, xor, fold, mix) or a policy (lfu, lru, random, space-saving, rap, decay)";
                    return Err(HardwareError::parameter("table", word, permitted));
                }
            }
        }
        table.check()?;
        Ok(table)
    }

    /// Checks that all parameters are in range.
    pub fn check(&self) -> Result<(), HardwareError> {
        let is_size = |n: usize| n.is_power_of_two() && n <= 1 << 24;
        if !is_size(self.entries) {
            return Err(HardwareError::parameter("entries of the hot path table", self.entries, "a power of two up to 2^24"));
        }
        if !is_size(self.associativity) || self.associativity > self.entries {
            return Err(HardwareError::parameter("associativity", self.associativity, "a power of two up to the number of entries"));
        }
        Ok(())
    }

    /// Returns the parameters in the form that [`TableParameters::parse`] accepts.
    pub fn name(&self) -> String {
        format!("{}x{},{},{}", self.entries, self.associativity, self.index.name(), self.replacement.name())
    }

    /// Returns the table's storage in bits. An entry holds a path's start (48 bits), its length and outcomes (at most `length_limit`
    /// branches), and a 32-bit accumulator. LRU replacement also needs a rank in each entry.
    pub fn storage_bits(&self, length_limit: u8) -> usize {
        let length = (u8::BITS - length_limit.leading_zeros()) as usize;
        let rank = if self.replacement == ReplacementPolicy::Lru { self.associativity.trailing_zeros() as usize } else { 0 };
        self.entries * (48 + length + usize::from(length_limit) + 32 + rank)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct TableEntry {
    path: PathDescriptor,
    count: u32,
    /// Value of the table's clock when the entry was last used.
    used: u64,
    is_valid: bool,
}

/// The outcome of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableUpdate {
    /// The path was in the table.
    Hit,
    /// The path was not in the table and has been inserted.
    Inserted,
    /// The path was not in the table and has not been inserted.
    Rejected,
}

/// Statistics of a table's updates. All fields are counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Updates of paths that were in the table.
    pub hits: u64,
    /// Updates of paths that were not in the table.
    pub misses: u64,
    /// Entries that were replaced.
    pub replacements: u64,
    /// Accumulators that saturated.
    pub saturated: u64,
}

/// A hot path table.
#[derive(Clone, Debug)]
pub struct HotPathTable {
    parameters: TableParameters,
    entries: Vec<TableEntry>,
    clock: u64,
    generator: XorshiftGenerator,
    counts: TableCounts,
}

impl HotPathTable {
    /// Returns the memory that a table with the given parameters uses, in bytes.
    pub fn memory(parameters: &TableParameters) -> u64 {
        (parameters.entries * size_of::<TableEntry>()) as u64
    }

    /// Creates an empty table.
    ///
    /// # Errors
    /// Fails if a parameter is out of range.
    pub fn new(parameters: TableParameters) -> Result<HotPathTable, HardwareError> {
        parameters.check()?;
        let entries = vec![TableEntry::default(); parameters.entries];
        Ok(HotPathTable { parameters, entries, clock: 0, generator: XorshiftGenerator::default(), counts: TableCounts::default() })
    }

    /// Returns the table's parameters.
    pub fn parameters(&self) -> TableParameters {
        self.parameters
    }

    /// Returns the statistics so far.
    pub fn counts(&self) -> TableCounts {
        self.counts
    }

    /// Adds `count` to a completed path's accumulator. A path that is not in the table is inserted if the replacement policy allows this.
    pub fn update(&mut self, path: &PathDescriptor, count: u32) -> TableUpdate {
        self.clock += 1;
        let ways = self.parameters.associativity;
        let first = self.parameters.index.set_index(path, self.parameters.entries / ways) * ways;
        let set = &mut self.entries[first..first + ways];
        if let Some(entry) = set.iter_mut().find(|e| e.is_valid && e.path == *path) {
            let sum = entry.count.checked_add(count);
            self.counts.saturated += u64::from(sum.is_none());
            entry.count = sum.unwrap_or(u32::MAX);
            entry.used = self.clock;
            self.counts.hits += 1;
            return TableUpdate::Hit;
        }
        self.counts.misses += 1;
        let fresh = TableEntry { path: *path, count, used: self.clock, is_valid: true };
        if let Some(free) = set.iter_mut().find(|e| !e.is_valid) {
            *free = fresh;
            return TableUpdate::Inserted;
        }
        let update = replace_entry_of_set(set, fresh, self.parameters.replacement, &mut self.generator);
        self.counts.replacements += u64::from(update == TableUpdate::Inserted);
        update
    }

    /// Returns the table's content as a profile.
    pub fn profile(&self) -> PathProfile {
        let mut profile = PathProfile::default();
        self.entries.iter().filter(|e| e.is_valid).for_each(|e| profile.add(&e.path, u64::from(e.count)));
        profile
    }

    /// Removes all entries, but keeps the statistics.
    pub fn clear(&mut self) {
        self.entries.fill(TableEntry::default());
    }
}

/// Replaces an entry of a full set with `fresh`, or rejects `fresh`.
fn replace_entry_of_set(
    set: &mut [TableEntry],
    fresh: TableEntry,
    policy: ReplacementPolicy,
    generator: &mut XorshiftGenerator,
) -> TableUpdate {
    let least = || (0..set.len()).min_by_key(|at| set[*at].count).unwrap_or(0);
    let at = match policy {
        ReplacementPolicy::Lru => (0..set.len()).min_by_key(|at| set[*at].used).unwrap_or(0),
        ReplacementPolicy::Random => generator.below(set.len() as u64) as usize,
        _ => least(),
    };
    let victim = &mut set[at];
    let inherited = u64::from(victim.count) + u64::from(fresh.count);
    match policy {
        ReplacementPolicy::Lfu | ReplacementPolicy::Lru | ReplacementPolicy::Random => *victim = fresh,
        ReplacementPolicy::SpaceSaving => *victim = TableEntry { count: inherited.min(u64::from(u32::MAX)) as u32, ..fresh },
        ReplacementPolicy::RandomizedAdmission => {
            if generator.below(inherited.max(1)) >= u64::from(fresh.count) {
                return TableUpdate::Rejected;
            }
            *victim = TableEntry { count: inherited.min(u64::from(u32::MAX)) as u32, ..fresh };
        }
        ReplacementPolicy::Decay => {
            if !decay_count(victim, fresh.count, generator) {
                return TableUpdate::Rejected;
            }
            *victim = fresh;
        }
    }
    TableUpdate::Inserted
}

/// Decreases an entry's count by `by` with probability 1.08^-count, as HeavyKeeper does. Returns true if the count reached zero.
fn decay_count(victim: &mut TableEntry, by: u32, generator: &mut XorshiftGenerator) -> bool {
    // Above this count, the probability is below 2^-32.
    const MAX_DECAY_EXPONENT: u32 = 288;
    let count = victim.count.min(MAX_DECAY_EXPONENT);
    let threshold = 1.08f64.powi(-(count as i32)) * f64::from(u32::MAX);
    if (generator.draw_number() >> 32) as f64 <= threshold {
        victim.count = victim.count.saturating_sub(by);
    }
    victim.count == 0
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
