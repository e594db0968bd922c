//! Waiting time explained as the difference of two execution paths. Pure: no file, clock or environment.
//!
//! Source: Meira, LeBlanc and Poulos, *Waiting time analysis and performance visualization in Carnival* (1996): a process that waits
//! does so
//! because another one executed a longer path since the two last synchronised. Steps of that path that are waiting time themselves are
//! replaced by the paths that explain them, until only computation is left.
//!
//! | file | what |
//! |---|---|
//! | `step.rs` | locations, code blocks, steps |
//! | `versions.rs` | expanded paths of all locations, as versions in a tree |
//! | `call.rs` | calls that make a location wait or let others go on |
//! | `messages.rs`, `collectives.rs`, `objects.rs` | who releases a wait: messages, collective operations, locks and wakers |
//! | `wait.rs` | a wait, and the moments that end waits |
//! | `analysis.rs` | calls in order of time to waits |
//! | `release.rs` | the rules: what a call means to others, who released it |
//! | `classes.rs` | equivalence classes of waits |
//! | `expansion.rs` | the expressions of waits, step by step |
//! | `redundancy.rs` | what of two paths need not be shown |
//! | `causes.rs` | the code that causes waits, summed over all of them |
//! | `offset.rs` | how far a clock is ahead of another, from messages |
//! | `hash.rs` | hash maps of small keys |
//! | `diagnostic.rs` | what a trace lacks or contradicts |
//!
//! Invariant, in integer nanoseconds: for every wait, the sum of the longer path less the sum of the shorter path is the wait.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod call;
pub mod causes;
pub mod classes;
mod collectives;
pub mod diagnostic;
pub mod expansion;
pub mod hash;
mod messages;
mod objects;
pub mod offset;
pub mod redundancy;
mod release;
pub mod step;
pub mod versions;
pub mod wait;

pub use analysis::{Analysis, AnalysisOptions, WaitOutcome};
pub use call::{Call, Rule, WaitKind};
pub use causes::{Cause, causes};
pub use classes::{Class, ClassRule, Distances, Longest, Placement, Representative, SiteWaits, WaitSite};
pub use diagnostic::{Diagnostic, Diagnostics};
pub use expansion::{ExpandedWait, Expression, Part};
pub use redundancy::{Explanation, explain};
pub use step::{CodeId, LocationId, LocationState, ProcessId, Step, StepId, Steps};
pub use wait::Wait;
