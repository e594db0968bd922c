//! The parameters of the baseline processor. Table 5.3 omits the latencies of functional units, the number of memory ports, and the block
//! size of the second-level cache. Their defaults are those of SimpleScalar, which the paper's simulator extends. The costs of the power
//! model are not published; the defaults here grow with the size of the memory that is accessed.

use crate::error::HardwareError;
use serde::Deserialize;

/// Parameters of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CacheParameters {
    /// Size in bytes.
    pub size: u64,
    /// Number of blocks in a set.
    pub associativity: usize,
    /// Size of a block in bytes.
    pub block: u64,
    /// Hit latency in cycles.
    pub latency: u64,
}

/// How the direction of a conditional branch is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectionPredictor {
    /// Two-bit counters, indexed by the branch's address.
    Bimodal,
    /// Two-bit counters, indexed by the exclusive or of address and history.
    Gshare,
    /// Both bimodal and gshare counters, and further two-bit counters that choose between the two predictions.
    Combined,
}

/// Parameters of the branch predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PredictorParameters {
    /// How directions are predicted.
    pub direction: DirectionPredictor,
    /// Number of counters of the gshare predictor.
    pub gshare_entries: usize,
    /// Number of recent branch outcomes in the gshare predictor's history.
    pub history_bits: u32,
    /// Number of counters of the bimodal predictor.
    pub bimodal_entries: usize,
    /// Number of counters that choose between bimodal and gshare.
    pub meta_entries: usize,
    /// Number of entries of the return address stack.
    pub return_stack: usize,
    /// Number of entries of the branch target buffer.
    pub target_entries: usize,
    /// Associativity of the branch target buffer.
    pub target_associativity: usize,
    /// Number of cycles from the completion of a mispredicted branch to the fetch of the correct path.
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

/// Costs of accesses in the power models, relative to the cheapest access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PowerCosts {
    /// Cost of an access to the instruction cache, once per fetched block.
    pub instruction_cache: u32,
    /// Cost of an access to the data cache. The cycle-level model halves it if there are several accesses in one cycle.
    pub data_cache: u32,
    /// Cost of an access to the second-level cache.
    pub l2: u32,
    /// Cost of an access to memory.
    pub memory: u32,
}

impl Default for PowerCosts {
    fn default() -> PowerCosts {
        PowerCosts { instruction_cache: 1, data_cache: 2, l2: 8, memory: 40 }
    }
}

/// Maximum number of entries in a buffer or table, of blocks in a cache, and of functional units of a kind.
const MAX_STRUCTURE_ENTRIES: usize = 1 << 24;

/// Parameters of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ProcessorParameters {
    /// Number of instructions fetched, dispatched, issued and committed per cycle.
    pub width: u64,
    /// Number of entries of the reorder buffer.
    pub reorder_buffer: usize,
    /// Number of entries of the load/store queue.
    pub load_store_queue: usize,
    /// Number of entries of the queue between fetch and dispatch.
    pub fetch_queue: usize,
    /// Number of integer ALUs.
    pub integer_units: usize,
    /// Number of units that multiply and divide integers.
    pub multiply_units: usize,
    /// Number of floating-point adders.
    pub float_units: usize,
    /// Number of units that multiply and divide floating-point numbers.
    pub float_multiply_units: usize,
    /// Number of loads and stores that can be issued per cycle.
    pub memory_ports: usize,
    /// Latency of an integer multiplication in cycles.
    pub multiply_cycles: u64,
    /// Latency of an integer division in cycles. The unit is busy for all of them.
    pub divide_cycles: u64,
    /// Latency of a floating-point addition or vector operation in cycles.
    pub float_cycles: u64,
    /// Latency of a floating-point multiplication in cycles.
    pub float_multiply_cycles: u64,
    /// Latency of a floating-point division in cycles. The unit is busy for all of them.
    pub float_divide_cycles: u64,
    /// First-level instruction cache.
    pub l1_instruction: CacheParameters,
    /// First-level data cache.
    pub l1_data: CacheParameters,
    /// Second-level cache.
    pub l2: CacheParameters,
    /// Latency of memory in cycles, in addition to the latencies of the caches.
    pub memory_cycles: u64,
    /// Branch predictor.
    pub predictor: PredictorParameters,
    /// Costs of accesses in the power models.
    pub power: PowerCosts,
    /// Number of entries of the branch queue between processor and profiler; 0 models a profiler that never stalls the processor.
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
    /// Parses parameters from TOML. Parameters that are not named keep their defaults.
    ///
    /// # Errors
    /// Fails if the text is not valid TOML or contains an unknown name, or if a parameter is out of range.
    pub fn from_toml(text: &str) -> Result<ProcessorParameters, HardwareError> {
        let parameters: ProcessorParameters = toml::from_str(text).map_err(|e| HardwareError::Syntax(e.to_string()))?;
        parameters.check()?;
        Ok(parameters)
    }

    /// Returns the memory that a processor model with these parameters uses, in bytes.
    pub fn memory(&self) -> u64 {
        // Size in bytes of those buffers that have the same size for all parameters.
        const FIXED_BUFFER_BYTES: u64 = 1 << 19;
        let blocks = |cache: &CacheParameters| 8 * cache.size / cache.block.max(1);
        let predictor = &self.predictor;
        let tables = predictor.gshare_entries + predictor.bimodal_entries + predictor.meta_entries + 16 * predictor.target_entries;
        let buffers = 128 * (self.reorder_buffer + self.load_store_queue + self.fetch_queue);
        FIXED_BUFFER_BYTES + blocks(&self.l1_instruction) + blocks(&self.l1_data) + blocks(&self.l2) + (tables + buffers) as u64
    }

    /// Checks that all parameters are in range.
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
            if blocks > MAX_STRUCTURE_ENTRIES as u64 {
                return Err(HardwareError::parameter(name, cache.size, "at most 2^24 blocks"));
            }
            let sets = blocks.checked_div(cache.associativity as u64).unwrap_or(0);
            if !cache.block.is_power_of_two() || !sets.is_power_of_two() {
                return Err(HardwareError::parameter(
                    name,
                    cache.size,
                    "such that size / block / associativity and block are powers of two",
                ));
            }
        }
        let sized = positive.into_iter().chain([("branch-queue", self.branch_queue)]);
        if let Some((name, value)) = sized.into_iter().find(|(_, value)| *value > MAX_STRUCTURE_ENTRIES) {
            return Err(HardwareError::parameter(name, value, "at most 2^24"));
        }
        let predictor = &self.predictor;
        let sets = predictor.target_entries.checked_div(predictor.target_associativity).unwrap_or(0);
        let tables = [predictor.gshare_entries, predictor.bimodal_entries, predictor.meta_entries, sets];
        let largest = [predictor.gshare_entries, predictor.bimodal_entries, predictor.meta_entries, predictor.target_entries];
        if let Some(size) = largest.into_iter().find(|size| *size > MAX_STRUCTURE_ENTRIES) {
            return Err(HardwareError::parameter("predictor", size, "at most 2^24 entries per table"));
        }
        if let Some(size) = tables.into_iter().find(|size| !size.is_power_of_two()) {
            return Err(HardwareError::parameter("predictor", size, "such that each table has a power of two of entries or sets"));
        }
        if predictor.history_bits > 32 {
            return Err(HardwareError::parameter("predictor.history-bits", predictor.history_bits, "at most 32"));
        }
        Ok(())
    }
}
