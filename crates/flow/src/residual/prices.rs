//! What a region costs, in instructions: those that are executed, and code.
//!
//! What other prices would change, of the instructions of four programs' builds, stands beside each (docs/benchmarks/constants.md has
//! the programs). A price of code by the pressure on the instruction cache, estimated from the number of hot paths, was taken out: one
//! program of eight had fewer misses by it, one had more and executed 1.3 % more.

/// A look-up where a path ends. With 0 or 8: within 0.1 %.
const LOOK_UP: f64 = 2.0;
/// The register, at each node where edges with different values of it meet: it is set on each edge, and something else
/// loses its place in a register. With 0: 4 to 15 % more; with 12: 0 to 6 % more.
const REGISTER: f64 = 3.0;
/// A path through the instrumented code, in the place of one in the region. With 3: 0 to 6 % more; with 48: 0 to 5 % more.
const DETOUR: f64 = 12.0;
/// A state more, as a fraction of all executions, and at least, in executions: code that hardly ever runs is not made for nothing. With a
/// tenth: 0 to 4 % more; with ten times as much: 0 to 2 % more. The least changes up to 0.2 %, and code by 3 to 5 %.
const STATE: f64 = 3e-3;
const STATE_AT_LEAST: f64 = 200.0;

/// The prices of one function.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// Executions of its known paths.
    all: f64,
}

impl Prices {
    /// Of a function of which so many known paths are executed.
    pub fn new(all: u64) -> Prices {
        Prices { all: all as f64 }
    }

    /// Of executions: that go through the instrumented code, that are looked up where they end, and that set the register where edges meet.
    pub fn executed(&self, detours: f64, lookups: f64, kept: f64) -> f64 {
        DETOUR * detours + LOOK_UP * lookups + REGISTER * kept
    }

    /// Of copies of nodes.
    pub fn copies(&self, states: usize) -> f64 {
        (STATE * self.all).max(STATE_AT_LEAST) * states as f64
    }
}
