//! Every number of the baseline processor (table 5.3), and those that the table leaves out.
//!
//! Not in the table, and taken from SimpleScalar's defaults, which the paper's simulator extends: latencies of
//! functional units, two memory ports, blocks of 64 bytes in the second-level cache. The costs of the power model are
//! not published either: the ones here grow with the size of what is accessed.

use crate::error::HardwareError;
use serde::Deserialize;

/// A cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CacheParameters {
    /// Bytes.
    pub size: u64,
    /// Blocks of a set.
    pub associativity: usize,
    /// Bytes of a block.
    pub block: u64,
    /// Cycles of a hit.
    pub latency: u64,
}

/// How the direction of a conditional branch is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectionPredictor {
    /// Two-bit counters, by address.
    Bimodal,
    /// Two-bit counters, by address exclusive-or history.
    Gshare,
    /// Both, and counters that say which.
    Combined,
}

/// The branch predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PredictorParameters {
    /// How directions are predicted.
    pub direction: DirectionPredictor,
    /// Counters of the gshare predictor.
    pub gshare_entries: usize,
    /// Bits of its history.
    pub history_bits: u32,
    /// Counters of the bimodal predictor.
    pub bimodal_entries: usize,
    /// Counters that choose between the two.
    pub meta_entries: usize,
    /// Entries of the return address stack.
    pub return_stack: usize,
    /// Entries of the branch target buffer.
    pub target_entries: usize,
    /// Entries of a set of it.
    pub target_associativity: usize,
    /// Cycles from a mispredicted branch's completion until the right path is fetched.
    pub misprediction_cycles: u64,
}

impl Default for PredictorParameters {
    fn default() -> PredictorParameters {
        PredictorParameters {
            direction: DirectionPredictor::Combined,
            gshare_entries: 8192,
            history_bits: 12,
            bimodal_entries: 8192,
            meta_entries: 1024,
            return_stack: 32,
            target_entries: 2048,
            target_associativity: 4,
            misprediction_cycles: 3,
        }
    }
}

/// Costs of accesses for the power models, relative to the cheapest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PowerCosts {
    /// An access to the instruction cache, one for each block that is fetched.
    pub instruction_cache: u32,
    /// An access to the data cache; halved by the cycle-level model if there are several in a cycle.
    pub data_cache: u32,
    /// An access to the second-level cache.
    pub l2: u32,
    /// An access to memory.
    pub memory: u32,
}

impl Default for PowerCosts {
    fn default() -> PowerCosts {
        PowerCosts { instruction_cache: 1, data_cache: 2, l2: 8, memory: 40 }
    }
}

/// Maximum number of entries of a buffer, a table or a cache, and of units.
const MAX_ENTRIES: usize = 1 << 24;

/// The processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProcessorParameters {
    /// Instructions fetched, dispatched, issued and committed in a cycle.
    pub width: u64,
    /// Entries of the reorder buffer.
    pub reorder_buffer: usize,
    /// Entries of the load/store queue.
    pub load_store_queue: usize,
    /// Entries of the queue between fetch and dispatch.
    pub fetch_queue: usize,
    /// Integer ALUs.
    pub integer_units: usize,
    /// Integer multipliers and dividers.
    pub multiply_units: usize,
    /// Floating-point units.
    pub float_units: usize,
    /// Floating-point multipliers and dividers.
    pub float_multiply_units: usize,
    /// Loads and stores that are issued in a cycle.
    pub memory_ports: usize,
    /// Cycles of an integer multiplication.
    pub multiply_cycles: u64,
    /// Cycles of an integer division, which occupies its unit.
    pub divide_cycles: u64,
    /// Cycles of a floating-point operation.
    pub float_cycles: u64,
    /// Cycles of a floating-point multiplication.
    pub float_multiply_cycles: u64,
    /// Cycles of a floating-point division, which occupies its unit.
    pub float_divide_cycles: u64,
    /// First-level instruction cache.
    pub l1_instruction: CacheParameters,
    /// First-level data cache.
    pub l1_data: CacheParameters,
    /// Second-level cache.
    pub l2: CacheParameters,
    /// Cycles of an access to memory.
    pub memory_cycles: u64,
    /// Branch predictor.
    pub predictor: PredictorParameters,
    /// Costs of the power models.
    pub power: PowerCosts,
    /// Entries of the branch queue; 0 for a profiler that never holds the processor up.
    pub branch_queue: usize,
}

impl Default for ProcessorParameters {
    fn default() -> ProcessorParameters {
        let l1 = CacheParameters { size: 32 << 10, associativity: 1, block: 32, latency: 1 };
        ProcessorParameters {
            width: 4,
            reorder_buffer: 128,
            load_store_queue: 64,
            fetch_queue: 16,
            integer_units: 4,
            multiply_units: 2,
            float_units: 4,
            float_multiply_units: 2,
            memory_ports: 2,
            multiply_cycles: 3,
            divide_cycles: 20,
            float_cycles: 2,
            float_multiply_cycles: 4,
            float_divide_cycles: 12,
            l1_instruction: l1,
            l1_data: l1,
            l2: CacheParameters { size: 512 << 10, associativity: 4, block: 64, latency: 10 },
            memory_cycles: 100,
            predictor: PredictorParameters::default(),
            power: PowerCosts::default(),
            branch_queue: 0,
        }
    }
}

impl ProcessorParameters {
    /// Reads parameters in TOML; what is not named is as published.
    ///
    /// # Errors
    /// The text is no TOML, names what there is not, or a number is out of its range.
    pub fn from_toml(text: &str) -> Result<ProcessorParameters, HardwareError> {
        let parameters: ProcessorParameters = toml::from_str(text).map_err(|e| HardwareError::Syntax(e.to_string()))?;
        parameters.check()?;
        Ok(parameters)
    }

    /// Bytes of memory that a model of the processor takes.
    pub fn memory(&self) -> u64 {
        // Buffers and reservations of the models, which depend on no parameter.
        const FIXED: u64 = 1 << 19;
        let blocks = |cache: &CacheParameters| 8 * cache.size / cache.block.max(1);
        let predictor = &self.predictor;
        let tables = predictor.gshare_entries + predictor.bimodal_entries + predictor.meta_entries + 16 * predictor.target_entries;
        let buffers = 128 * (self.reorder_buffer + self.load_store_queue + self.fetch_queue);
        FIXED + blocks(&self.l1_instruction) + blocks(&self.l1_data) + blocks(&self.l2) + (tables + buffers) as u64
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// One is out of its range.
    pub fn check(&self) -> Result<(), HardwareError> {
        let positive = [
            ("width", self.width as usize),
            ("reorder-buffer", self.reorder_buffer),
            ("load-store-queue", self.load_store_queue),
            ("fetch-queue", self.fetch_queue),
            ("integer-units", self.integer_units),
            ("multiply-units", self.multiply_units),
            ("float-units", self.float_units),
            ("float-multiply-units", self.float_multiply_units),
            ("memory-ports", self.memory_ports),
            ("predictor.return-stack", self.predictor.return_stack),
        ];
        if let Some((name, value)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(HardwareError::parameter(name, value, "at least 1"));
        }
        for (name, cache) in [("l1-instruction", self.l1_instruction), ("l1-data", self.l1_data), ("l2", self.l2)] {
            let blocks = cache.size.checked_div(cache.block).unwrap_or(0);
            if blocks > MAX_ENTRIES as u64 {
                return Err(HardwareError::parameter(name, cache.size, "at most 2^24 blocks"));
            }
            let sets = blocks.checked_div(cache.associativity as u64).unwrap_or(0);
            if !cache.block.is_power_of_two() || !sets.is_power_of_two() {
                return Err(HardwareError::parameter(
                    name,
                    cache.size,
                    "a power of two of sets, each of blocks of a power of two of bytes",
                ));
            }
        }
        let sized = positive.into_iter().chain([("branch-queue", self.branch_queue)]);
        if let Some((name, value)) = sized.into_iter().find(|(_, value)| *value > MAX_ENTRIES) {
            return Err(HardwareError::parameter(name, value, "at most 2^24"));
        }
        let predictor = &self.predictor;
        let sets = predictor.target_entries.checked_div(predictor.target_associativity).unwrap_or(0);
        let tables = [predictor.gshare_entries, predictor.bimodal_entries, predictor.meta_entries, sets];
        let largest = [predictor.gshare_entries, predictor.bimodal_entries, predictor.meta_entries, predictor.target_entries];
        if let Some(size) = largest.into_iter().find(|size| *size > MAX_ENTRIES) {
            return Err(HardwareError::parameter("predictor", size, "tables of at most 2^24 entries"));
        }
        if let Some(size) = tables.into_iter().find(|size| !size.is_power_of_two()) {
            return Err(HardwareError::parameter("predictor", size, "tables of a power of two of entries or sets"));
        }
        if predictor.history_bits > 32 {
            return Err(HardwareError::parameter("predictor.history-bits", predictor.history_bits, "at most 32"));
        }
        Ok(())
    }
}
