//! Explains waiting time as the difference between two execution paths. This crate is pure: it uses no file, clock or environment.
//!
//! The method is that of Meira, LeBlanc and Poulos, *Waiting time analysis and performance visualization in Carnival* (1996). A process
//! waits because another process has executed a longer path since the two last synchronised. If that path contains waits, they are replaced
//! by the paths that explain them, until only computation is left. Invariant, in integer nanoseconds: the time of the longer path minus
//! that of the shorter path is the length of the wait.
//!
//! | file | contents |
//! |---|---|
//! | `step.rs` | locations, code blocks, steps |
//! | `versions.rs` | expanded paths of all locations, as a tree of versions |
//! | `call.rs` | calls that block a location or release others |
//! | `messages.rs`, `collectives.rs`, `objects.rs` | matching of messages, collective operations, locks and wake-ups |
//! | `wait.rs` | waits, and the moments that end them |
//! | `analysis.rs` | the analysis: processes calls in chronological order, finds waits |
//! | `release.rs` | the rules: which waits a call can release, and who released a call |
//! | `classes.rs` | equivalence classes of waits |
//! | `expansion.rs` | symbolic expressions of waits, for display |
//! | `redundancy.rs` | removal of steps that do not help to explain a wait |
//! | `causes.rs` | attribution of waiting time to the code that causes it |
//! | `offset.rs` | offset between two clocks, estimated from messages |
//! | `hash.rs` | a fast hash map for small keys |
//! | `diagnostic.rs` | gaps and contradictions in a trace |
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
pub use call::{Call, CollectiveWaitRule, WaitKind};
pub use causes::{Cause, find_causes};
pub use classes::{ClassDistances, ClassMember, LongestWait, PathDistanceRule, RepresentativeWait, SiteWaits, WaitClass, WaitSite};
pub use diagnostic::{Diagnostic, DiagnosticCounts};
pub use expansion::{ExpandedWait, PathPart, WaitExpression};
pub use redundancy::{WaitExplanation, explain_wait_class};
pub use step::{CodeId, LocationId, LocationState, ProcessId, Step, StepId, Steps};
pub use wait::Wait;
