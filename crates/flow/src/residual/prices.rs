//! The cost of a region, in instructions: executed ones, and code.
//!
//! Each price states by how much other values change the instructions that four programs execute (docs/benchmarks/constants.md names
//! them). A price for the pressure on the instruction cache, estimated from the number of hot paths, was removed: of eight programs, one
//! had fewer misses with it, and one had more and executed 1.3 % more instructions.

/// A lookup where a path ends. With 0 or 8: within 0.1 %.
const LOOKUP: f64 = 2.0;
/// Keeping the register at a node where edges with different values of it meet: it is set on each edge, and some other value is spilled.
/// With 0: 4 to 15 % more; with 12: 0 to 6 % more.
const REGISTER: f64 = 3.0;
/// A path through the instrumented code instead of the region. With 3: 0 to 6 % more; with 48: 0 to 5 % more.
const DETOUR: f64 = 12.0;
/// An additional state, as a fraction of all executions; and its minimum in executions, so that cold functions are not copied. With a
/// tenth: 0 to 4 % more; with ten times as much: 0 to 2 % more. The minimum changes instructions by up to 0.2 %, and code size by 3 to 5
/// %.
const STATE: f64 = 3e-3;
const MIN_STATE: f64 = 200.0;

/// The prices of one function.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// Executions of its known paths.
    all: f64,
}

impl Prices {
    /// Prices of a function whose known paths are executed `all` times.
    pub fn new(all: u64) -> Prices {
        Prices { all: all as f64 }
    }

    /// The cost of `detours` paths through the instrumented code, of `lookups` of paths, and of setting the register `kept` times.
    pub fn executed(&self, detours: f64, lookups: f64, kept: f64) -> f64 {
        DETOUR * detours + LOOKUP * lookups + REGISTER * kept
    }

    /// The cost of additional states.
    pub fn copies(&self, states: usize) -> f64 {
        (STATE * self.all).max(MIN_STATE) * states as f64
    }
}
