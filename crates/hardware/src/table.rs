//! The hot path table: a set-associative table of path descriptors with 32-bit accumulators (section 5.4).
//!
//! An update searches one set: time linear in the associativity. Accumulators saturate.

use crate::descriptor::PathDescriptor;
use crate::error::HardwareError;
use crate::index::IndexFunction;
use crate::profile::PathProfile;
use crate::replacement::{Generator, Replacement};

/// Everything that is a parameter of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableParameters {
    /// Entries, a power of two.
    pub entries: usize,
    /// Entries of a set, a power of two.
    pub associativity: usize,
    /// Which set a path belongs to.
    pub index: IndexFunction,
    /// Which entry goes.
    pub replacement: Replacement,
}

impl TableParameters {
    /// The published configuration: 512 entries, 4-way, start xor length xor outcomes, least frequently used.
    pub const PUBLISHED: TableParameters =
        TableParameters { entries: 512, associativity: 4, index: IndexFunction::Xor, replacement: Replacement::Lfu };

    /// Reads `ENTRIESxASSOCIATIVITY[,INDEX][,REPLACEMENT]`, such as `512x4,xor,lfu`.
    ///
    /// # Errors
    /// Says which word is not understood, and what it may be.
    pub fn parse(text: &str) -> Result<TableParameters, HardwareError> {
        let mut words = text.split(',');
        let size = words.next().unwrap_or_default();
        let numbers = size.split_once('x').and_then(|(e, a)| Some((e.parse().ok()?, a.parse().ok()?)));
        let Some((entries, associativity)) = numbers else {
            return Err(HardwareError::parameter("table", text, "ENTRIESxASSOCIATIVITY, such as 512x4, or 512x4,fold,rap"));
        };
        let mut table = TableParameters { entries, associativity, ..TableParameters::PUBLISHED };
        for word in words {
            let index = IndexFunction::named(word);
            let replacement = Replacement::named(word);
            match (index, replacement) {
                (Some(index), _) => table.index = index,
                (_, Some(replacement)) => table.replacement = replacement,
                _ => {
                    let remedy = "an index (start, xor, fold, mix) or a policy (lfu, lru, random, space-saving, rap, decay)";
                    return Err(HardwareError::parameter("table", word, remedy));
                }
            }
        }
        table.check()?;
        Ok(table)
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// One is out of its range.
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

    /// Its name, which [`TableParameters::parse`] reads.
    pub fn name(&self) -> String {
        format!("{}x{},{},{}", self.entries, self.associativity, self.index.name(), self.replacement.name())
    }

    /// Bits of storage. An entry has the start (48 bits), length and outcomes of a path of at most `length_limit` branches,
    /// and an accumulator of 32 bits; least recently used also needs a rank.
    pub fn storage_bits(&self, length_limit: u8) -> usize {
        let length = (u8::BITS - length_limit.leading_zeros()) as usize;
        let rank = if self.replacement == Replacement::Lru { self.associativity.trailing_zeros() as usize } else { 0 };
        self.entries * (48 + length + usize::from(length_limit) + 32 + rank)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    path: PathDescriptor,
    count: u32,
    /// When it was used last; only `lru` asks.
    used: u64,
    is_valid: bool,
}

/// What an update met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableUpdate {
    /// The path was there.
    Hit,
    /// It was not, and is now.
    Inserted,
    /// It was not, and is not.
    Rejected,
}

/// What a table did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Updates of paths that were there.
    pub hits: u64,
    /// Updates of paths that were not.
    pub misses: u64,
    /// Entries that had to go.
    pub replacements: u64,
    /// Accumulators that were held at their largest value.
    pub saturated: u64,
}

/// The table.
#[derive(Clone, Debug)]
pub struct HotPathTable {
    parameters: TableParameters,
    entries: Vec<Entry>,
    clock: u64,
    generator: Generator,
    counts: TableCounts,
}

impl HotPathTable {
    /// Bytes of memory that a table takes.
    pub fn memory(parameters: &TableParameters) -> u64 {
        (parameters.entries * size_of::<Entry>()) as u64
    }

    /// An empty table.
    ///
    /// # Errors
    /// A parameter is out of its range.
    pub fn new(parameters: TableParameters) -> Result<HotPathTable, HardwareError> {
        parameters.check()?;
        let entries = vec![Entry::default(); parameters.entries];
        Ok(HotPathTable { parameters, entries, clock: 0, generator: Generator::default(), counts: TableCounts::default() })
    }

    /// Its parameters.
    pub fn parameters(&self) -> TableParameters {
        self.parameters
    }

    /// What it did so far.
    pub fn counts(&self) -> TableCounts {
        self.counts
    }

    /// Adds the count of a path that ended.
    pub fn update(&mut self, path: &PathDescriptor, count: u32) -> TableUpdate {
        self.clock += 1;
        let ways = self.parameters.associativity;
        let first = self.parameters.index.set(path, self.parameters.entries / ways) * ways;
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
        let fresh = Entry { path: *path, count, used: self.clock, is_valid: true };
        if let Some(free) = set.iter_mut().find(|e| !e.is_valid) {
            *free = fresh;
            return TableUpdate::Inserted;
        }
        let update = replace(set, fresh, self.parameters.replacement, &mut self.generator);
        self.counts.replacements += u64::from(update == TableUpdate::Inserted);
        update
    }

    /// What it holds.
    pub fn profile(&self) -> PathProfile {
        let mut profile = PathProfile::default();
        self.entries.iter().filter(|e| e.is_valid).for_each(|e| profile.add(&e.path, u64::from(e.count)));
        profile
    }

    /// Forgets everything but its counts of updates.
    pub fn clear(&mut self) {
        self.entries.fill(Entry::default());
    }
}

/// Replaces an entry of a full set, or not.
fn replace(set: &mut [Entry], fresh: Entry, policy: Replacement, generator: &mut Generator) -> TableUpdate {
    let least = || (0..set.len()).min_by_key(|at| set[*at].count).unwrap_or(0);
    let at = match policy {
        Replacement::Lru => (0..set.len()).min_by_key(|at| set[*at].used).unwrap_or(0),
        Replacement::Random => generator.below(set.len() as u64) as usize,
        _ => least(),
    };
    let victim = &mut set[at];
    let inherited = u64::from(victim.count) + u64::from(fresh.count);
    match policy {
        Replacement::Lfu | Replacement::Lru | Replacement::Random => *victim = fresh,
        Replacement::SpaceSaving => *victim = Entry { count: inherited.min(u64::from(u32::MAX)) as u32, ..fresh },
        Replacement::RandomizedAdmission => {
            if generator.below(inherited.max(1)) >= u64::from(fresh.count) {
                return TableUpdate::Rejected;
            }
            *victim = Entry { count: inherited.min(u64::from(u32::MAX)) as u32, ..fresh };
        }
        Replacement::Decay => {
            if !wear(victim, fresh.count, generator) {
                return TableUpdate::Rejected;
            }
            *victim = fresh;
        }
    }
    TableUpdate::Inserted
}

/// Wears a count down: by the incoming one with probability 1.08 to the power of minus the count, as HeavyKeeper does.
/// Says whether it is gone.
fn wear(victim: &mut Entry, by: u32, generator: &mut Generator) -> bool {
    // Above this count the probability is below that of one draw of 2^32.
    const HARDLY_EVER: u32 = 288;
    let count = victim.count.min(HARDLY_EVER);
    let threshold = 1.08f64.powi(-(count as i32)) * f64::from(u32::MAX);
    if (generator.draw() >> 32) as f64 <= threshold {
        victim.count = victim.count.saturating_sub(by);
    }
    victim.count == 0
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
