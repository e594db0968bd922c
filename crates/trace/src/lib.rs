//! Following the processes of a command by ptrace(2): the only crate that knows of it.
//!
//! | file | what |
//! |---|---|
//! | `programs.rs` | every program that a command runs, with its processes, its arguments and how it ended |
//! | `system.rs` | the system calls |

mod programs;
mod system;

pub use programs::{Event, Follow, Program, ProgramId, TraceError, follow};
