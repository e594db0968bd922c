//! The cost model of known-path regions, in executed instructions, with a charge for code size.
//!
//! The comment on each price says how other values change the number of instructions that four programs execute
//! (docs/benchmarks/constants.md lists the programs). A price for instruction cache pressure, estimated from the number of hot paths, was
//! removed: of eight programs, one had fewer cache misses with it, two had more, and one of these executed 1.3% more instructions.

/// Price of a lookup at the end of a path. If this is 0 or 8, the number of instructions changes by at most 0.1%.
const LOOKUP_PRICE: f64 = 2.0;
/// Price of the register at a join of edges with different values: it is set on each edge, and a different value is spilled. If this is 0,
/// the programs execute 4 to 15% more instructions; if it is 12, 0 to 6% more.
const REGISTER_PRICE: f64 = 3.0;
/// Price of a path through the instrumented code instead of the region. If this is 3, the programs execute 0 to 6% more instructions; if it
/// is 48, also 0 to 6% more.
const LEAVING_REGION_PRICE: f64 = 12.0;
/// Price of an additional state, as a fraction of all executions. If this is a tenth, the programs execute 0 to 4% more instructions; if it
/// is ten times as much, 0 to 2% more.
const STATE_PRICE_SHARE: f64 = 3e-3;
/// Minimum price of an additional state, so that cold functions are not copied. If this is 0 or 2,000, instructions change by up to 0.2%,
/// and code size by up to 5%.
const MIN_STATE_PRICE: f64 = 200.0;

#[derive(Clone, Copy, Debug)]
pub struct RegionPrices {
    /// Number of executions of all known paths of the function.
    all: f64,
}

impl RegionPrices {
    pub fn new(all: u64) -> RegionPrices {
        RegionPrices { all: all as f64 }
    }

    /// Returns the cost of paths outside the region, of lookups, and of `kept` executions of joins that need the register.
    pub fn execution_cost(&self, detours: f64, lookups: f64, kept: f64) -> f64 {
        LEAVING_REGION_PRICE * detours + LOOKUP_PRICE * lookups + REGISTER_PRICE * kept
    }

    pub fn state_cost(&self, states: usize) -> f64 {
        (STATE_PRICE_SHARE * self.all).max(MIN_STATE_PRICE) * states as f64
    }
}
