//! Following processes by ptrace(2): the programs of a command, and partial traces of unmodified programs. The only crate that knows of it.
//!
//! | file | what |
//! |---|---|
//! | `programs.rs` | every program that a command runs, with its processes, its arguments and how it ended |
//! | `collect.rs` | collectors: a run to a partial trace |
//! | `follow.rs` | the loop that follows a subject with its threads, signals and children |
//! | `watch.rs`, `breakpoints.rs`, `displaced.rs`, `hardware.rs`, `single_step.rs` | what is watched in it |
//! | `subject.rs`, `memory.rs`, `stack.rs` | the subject: where its image lies, its memory, where it stands |
//! | `repeat.rs`, `calls.rs` | runs that repeat; divergence |
//! | `container.rs`, `partial.rs` | files of partial traces |
//! | `system.rs`, `ptrace.rs` | the system calls |

mod breakpoints;
mod calls;
mod collect;
pub mod container;
mod displaced;
mod error;
mod follow;
mod hardware;
mod memory;
mod partial;
mod programs;
mod ptrace;
mod repeat;
mod single_step;
mod stack;
mod subject;
mod system;
mod watch;

pub use collect::{Collector, Hardware, PtraceBreakpoints, Run, RunOutcome, SingleStep, Target};
pub use displaced::{DisplaceError, displace};
pub use error::CollectError;
pub use follow::{Ending, Flow, Followed, Sink, ThreadNumber};
pub use partial::{PartialEnd, PartialTrace, PartialWriter, StoredEnding};
pub use programs::{Event, Follow, Program, ProgramId, TraceError, follow};
pub use repeat::{CallRecord, Divergence, Recipe, RunLog};
pub use single_step::cut;
pub use subject::{Executable, cores, pin};
