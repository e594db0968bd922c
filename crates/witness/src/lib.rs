//! Witnesses: blocks or edges to observe so that the partial traces of several runs determine the complete execution.
//!
//! Source: D. Saha, P. Dhoolia, G. Paul, "Distributed program tracing" (ESEC/FSE 2013); for a single run, Ball and Larus, "Optimally
//! profiling and tracing programs" (TOPLAS 1994). A *witness* is a node or an edge whose executions are recorded. A *profile* is the set of
//! witnesses of one run, and a *distribution* is a list of profiles. Each run leaves a *partial trace*: its witnesses in the order of
//! execution, one sequence per thread. A distribution is *realizable* if the partial traces of every execution determine that execution.
//!
//! # The model of a program
//!
//! A [`WitnessProgram`] is a set of functions with their graphs. One thread executes it as a pushdown automaton ([`pushdown`]):
//!
//! - **Entering a node** executes its block: the block becomes part of the execution, and a witness on it is recorded, before the block's
//!   calls.
//! - **A call is an event inside a block.** The calls of a block are executed in the listed order, and the block continues after each. A
//!   return records nothing and starts no block. A call has a set of possible callees, and enters one of them. An indirect call is
//!   therefore a branch, and is checked like one.
//! - **An opaque call** enters unknown code. It may return, end the run (`exit`, `abort`), unwind (throw, `longjmp`), and call back, that
//!   is, enter functions that are [external entries](WitnessProgram::external) any number of times.
//! - **Unwinding** leaves frames until it reaches one whose block has out-edges of kind [`WitnessEdgeKind::Unwind`]: landing pads, or the
//!   continuation of a `setjmp` that returns again. It may also pass such a frame, unless an out-edge of the block is of kind
//!   [`WitnessEdgeKind::AlwaysCaught`]. Unwinding out of all frames ends the run, so a call that may throw does not have to be marked as
//!   ending the run.
//! - **Leaving the exit** returns to the caller. A tail call is a call after which only the exit remains; it drops the caller's frame,
//!   unless `keeps_frame` is set (machine code distinguishes the two).
//! - A node without code (a virtual exit) is not part of executions and has no witness. A *continuation* (the rest of a block after a
//!   call) is not part of executions either, since no block starts there, but can have a witness.
//! - **A thread starts** in one function, whose return ends the run, or outside, where external entries are called in any order.
//!
//! # The phases
//!
//! 1. [`program`]: functions, calls, entries. [`pushdown`]: the automaton of a program.
//! 2. [`first`]: the witnesses that can come first after a state. [`condition`]: the pairwise condition.
//!    [`ambiguous`]: two executions that explain a violation. [`paper`]: the paper's two conditions, for comparison.
//! 3. [`weights`]: the cost of each witness. [`view`]: a single function. [`placement`], [`eliminate`], [`exact`], [`fewest`]:
//!    witnesses of a function.
//! 4. [`jobs`], [`distribution`]: dividing branches among profiles and machines. [`placed`]: dividing whole functions.
//!    [`repair`]: additional witnesses that the check of the whole program needs. `completion`: comparing distributions after that.
//!    [`mod@bound`]: a lower bound for any distribution.
//! 5. [`reconstruct`]: from partial traces to the execution. [`calls`]: the same for the call sequence alone.
#![forbid(unsafe_code)]

pub mod ambiguous;
pub mod automaton;
pub mod bound;
pub mod calls;
mod completion;
pub mod condition;
pub mod distribution;
pub mod eliminate;
pub mod exact;
pub mod fewest;
pub mod first;
pub mod jobs;
mod lower;
pub mod paper;
pub mod placed;
pub mod placement;
mod planned;
pub mod program;
pub mod pushdown;
pub mod reconstruct;
pub mod repair;
pub mod sets;
pub mod structure;
pub mod view;
pub mod weights;

pub use calls::CallAndReturnProgram;
pub use condition::{BranchNode, BranchTarget, ConditionCheck, Lookahead, Violation, check_pairwise};
pub use distribution::{DistributionOptions, DistributionStrategy, PlanError, PlannedDistribution, WitnessJobOrder};
pub use paper::check_published_theorems;
pub use placement::Placement;
pub use program::{
    NodeKind, Opaque, ProgramCall, StartPoint, Witness, WitnessEdgeKind, WitnessError, WitnessFunction, WitnessFunctionId, WitnessKind,
    WitnessProgram, WitnessSite,
};
pub use reconstruct::{ExecutionEvent, ReconstructError, Reconstruction, ReconstructionOutcome, Reconstructor, TraceEnding};
pub use weights::{EdgeWeights, Weights};

/// A distribution: the witnesses of each run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Whether witnesses are nodes or edges.
    pub kind: WitnessKind,
    /// One profile for each run: the run's witnesses, in ascending order without duplicates.
    pub profiles: Vec<Vec<Witness>>,
}

impl Distribution {
    /// Creates a distribution from profiles. Sorts them and removes duplicates.
    ///
    /// # Errors
    /// A witness does not exist in the program, or is on a node without code.
    pub fn new(program: &WitnessProgram, kind: WitnessKind, mut profiles: Vec<Vec<Witness>>) -> Result<Distribution, WitnessError> {
        for profile in &mut profiles {
            profile.sort_unstable();
            profile.dedup();
            for witness in profile.iter() {
                program.check_witness(kind, *witness)?;
            }
        }
        Ok(Distribution { kind, profiles })
    }
}
