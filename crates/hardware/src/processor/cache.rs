//! Set-associative caches with LRU replacement, and the cache hierarchy of table 5.3. Stores allocate; write-backs take no time.

use super::parameters::{CacheParameters, PowerCosts, ProcessorParameters};
use super::{ProcessorEvent, add_count};
use crate::events::EventCounts;

/// A cache. `blocks` holds the blocks of each set, most recently used first.
#[derive(Clone, Debug)]
struct CacheModel {
    blocks: Vec<u64>,
    ways: usize,
    shift: u32,
    sets: u64,
    latency: u64,
}

impl CacheModel {
    fn new(parameters: &CacheParameters) -> CacheModel {
        let sets = parameters.size / parameters.block / parameters.associativity as u64;
        let blocks = vec![u64::MAX; (sets as usize) * parameters.associativity];
        CacheModel { blocks, ways: parameters.associativity, shift: parameters.block.trailing_zeros(), sets, latency: parameters.latency }
    }

    /// Accesses the block that contains an address. Returns true on a hit; a missing block is loaded.
    fn access_block(&mut self, address: u64) -> bool {
        let block = address >> self.shift;
        let first = (block & (self.sets - 1)) as usize * self.ways;
        let set = &mut self.blocks[first..first + self.ways];
        let found = set.iter().position(|b| *b == block);
        let place = found.unwrap_or(set.len() - 1);
        set[..=place].rotate_right(1);
        set[0] = block;
        found.is_some()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheAccess {
    pub cycles: u64,
    pub l1_misses: u32,
    pub l2_misses: u32,
    /// Power cost of the accesses to further levels after a miss in the first one.
    pub cost: u32,
}

impl CacheAccess {
    /// Adds the misses to `events` and, for the analytical power model, the cost of all levels. `first_level` is the cost of the access to
    /// the first level.
    pub fn add_misses_to_events(&self, events: &mut EventCounts, first_level: u32) {
        add_count(events, ProcessorEvent::L1Misses, self.l1_misses);
        add_count(events, ProcessorEvent::L2Misses, self.l2_misses);
        add_count(events, ProcessorEvent::AnalyticalPower, first_level + self.cost);
    }
}

#[derive(Clone, Debug)]
pub(super) struct CacheHierarchy {
    instruction: CacheModel,
    data: CacheModel,
    l2: CacheModel,
    memory_cycles: u64,
    power: PowerCosts,
}

impl CacheHierarchy {
    pub fn new(parameters: &ProcessorParameters) -> CacheHierarchy {
        CacheHierarchy {
            instruction: CacheModel::new(&parameters.l1_instruction),
            data: CacheModel::new(&parameters.l1_data),
            l2: CacheModel::new(&parameters.l2),
            memory_cycles: parameters.memory_cycles,
            power: parameters.power,
        }
    }

    pub fn fetch(&mut self, address: u64) -> CacheAccess {
        let (cycles, is_l1_hit) = (self.instruction.latency, self.instruction.access_block(address));
        self.access_cache_beyond_l1(address, cycles, is_l1_hit)
    }

    pub fn access_data(&mut self, address: u64) -> CacheAccess {
        let (cycles, is_l1_hit) = (self.data.latency, self.data.access_block(address));
        self.access_cache_beyond_l1(address, cycles, is_l1_hit)
    }

    fn access_cache_beyond_l1(&mut self, address: u64, mut cycles: u64, is_l1_hit: bool) -> CacheAccess {
        if is_l1_hit {
            return CacheAccess { cycles, ..CacheAccess::default() };
        }
        cycles += self.l2.latency;
        if self.l2.access_block(address) {
            return CacheAccess { cycles, l1_misses: 1, l2_misses: 0, cost: self.power.l2 };
        }
        CacheAccess { cycles: cycles + self.memory_cycles, l1_misses: 1, l2_misses: 1, cost: self.power.l2 + self.power.memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_block_is_evicted() {
        let mut cache = CacheModel::new(&CacheParameters { size: 128, associativity: 2, block: 32, latency: 1 });
        // Blocks 0, 2 and 4 map to the same set.
        let hits: Vec<bool> = [0, 64, 0, 128, 0, 64].iter().map(|a| cache.access_block(*a)).collect();
        assert_eq!(hits, [false, false, true, false, true, false]);
    }

    #[test]
    fn latencies_of_the_levels_add_up() {
        let mut hierarchy = CacheHierarchy::new(&ProcessorParameters::default());
        assert_eq!(hierarchy.access_data(0x1000), CacheAccess { cycles: 111, l1_misses: 1, l2_misses: 1, cost: 48 });
        assert_eq!(hierarchy.access_data(0x1000), CacheAccess { cycles: 1, ..CacheAccess::default() });
        // This is the other half of the block that the second-level cache loaded.
        assert_eq!(hierarchy.fetch(0x1020), CacheAccess { cycles: 11, l1_misses: 1, l2_misses: 0, cost: 8 });
    }
}
