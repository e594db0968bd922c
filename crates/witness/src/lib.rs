//! Witnesses: which blocks or edges to observe so that partial traces of several runs give back the whole execution.
//!
//! Source: D. Saha, P. Dhoolia, G. Paul, "Distributed program tracing" (ESEC/FSE 2013); Ball and Larus, "Optimally profiling and tracing
//! programs" (TOPLAS 1994), for a single run. A *witness* is a node or an edge whose executions are recorded. A *profile* is the set of
//! witnesses of one run, a *distribution* a list of profiles. Each run leaves a *partial trace*: its witnesses, in the order of execution,
//! one sequence per thread. A distribution is *realizable* when the partial traces of every execution give back that execution.
//!
//! # The model of a program
//!
//! A [`WitnessProgram`] is a set of functions with their graphs. One thread executes it as a pushdown automaton ([`pushdown`]):
//!
//! - **Entering a node** executes its block: the block is part of the execution, and a witness on it is recorded then, before the block's
//!   calls.
//! - **A call is an event inside a block.** A block may have several calls; they follow one another in the order in which they are
//!   listed, and the block goes on behind each. The return records nothing and starts no block. A call has a set of possible callees, of
//!   which one is entered: so an indirect call is a branch, and is checked like one.
//! - **An opaque call** leaves the code that is known. It may return, end the run (`exit`, `abort`), unwind (throw, `longjmp`), and call
//!   back: enter, any number of times, functions that are [external entries](Program::external).
//! - **Unwinding** leaves frames until one whose block has out-edges of kind [`WitnessEdgeKind::Unwind`]: landing pads, or the place where
//!   `setjmp` returns again. A frame with landing pads may also be passed over, unless an
//!   out-edge of its block is of kind [`WitnessEdgeKind::Lands`]. What leaves all frames ends the run, so
//!   that a call that throws needs not be said to end it, too.
//! - **Leaving the exit** returns to the caller. A tail call is a call behind which nothing but the exit is left; its frame is dropped,
//!   unless it is said to stay (machine code distinguishes the two).
//! - A node that is no code (a virtual exit) is part of no execution and carries no witness; a *continuation* (the rest of a block behind a
//!   call) is part of no execution either, since no block starts there, but can carry a witness.
//! - **Where a thread starts**: in one function, at whose return the run ends; or outside, from where external entries are called in any
//!   order.
//!
//! # The phases
//!
//! 1. [`program`]: functions, calls, entries. [`pushdown`]: the automaton of a program.
//! 2. [`first`]: which witness can be the first one behind a state. [`condition`]: the pairwise condition.
//!    [`ambiguous`]: two executions for what violates it. [`paper`]: the paper's two conditions, to compare with.
//! 3. [`weights`]: what each witness costs. [`view`]: a function by itself. [`placement`], [`eliminate`], [`exact`], [`fewest`]:
//!    witnesses of a function.
//! 4. [`jobs`], [`distribution`]: branches divided among profiles and machines. [`placed`]: whole functions divided.
//!    [`repair`]: what the check of the whole asks for besides. `completion`: distributions compared after that. [`mod@bound`]: what no
//!    distribution can go below.
//! 5. [`reconstruct`]: from partial traces to the execution. [`calls`]: the same for the sequence of calls alone.
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

pub use calls::CallProgram;
pub use condition::{BranchNode, BranchTarget, Check, Lookahead, Violation, check_pairwise};
pub use distribution::{DistributionOptions, DistributionStrategy, PlanError, PlannedJob, WitnessJobOrder};
pub use paper::check_paper;
pub use placement::Placement;
pub use program::{
    NodeKind, Opaque, ProgramCall, ProgramStart, Witness, WitnessEdgeKind, WitnessError, WitnessFunction, WitnessFunctionId, WitnessKind,
    WitnessProgram, WitnessSite,
};
pub use reconstruct::{ExecutionEvent, ReconstructError, Reconstruction, ReconstructionOutcome, Reconstructor, TraceEnding};
pub use weights::{EdgeWeights, Weights};

/// The witnesses of each run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Whether witnesses are nodes or edges.
    pub kind: WitnessKind,
    /// One profile for each run: its witnesses, ascending, each once.
    pub profiles: Vec<Vec<Witness>>,
}

impl Distribution {
    /// A distribution of these profiles; they are sorted, and what is named twice is kept once.
    ///
    /// # Errors
    /// A witness that the program does not have, or one on a node that is no code.
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
