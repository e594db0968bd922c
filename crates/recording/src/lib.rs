//! Recording: runs of programs that trodden instrumented, from the command to the stored profile.
//!
//! | file | what |
//! |---|---|
//! | `record.rs` | one run of a command, whose processes count together; trials and trainings |
//! | `programs.rs` | each program that a command runs as a run of its own |
//! | `bursts.rs`, `processor_time.rs`, `waiting.rs` | counting in bursts: switches, clocks, estimates |
//! | `sample.rs` | bursts of programs that run already |
//! | `streams/` | sequences of paths and calls: whole programs, flight recorders, where logs are kept |
//! | `branches.rs`, `import.rs` | branches that hardware recorded |
//! | `suite/` | tests, each as a run: commands, ctest, test binaries of Rust |
//! | `destination.rs`, `folder.rs` | where profiles go; folders of raw counts |
//! | `runs.rs`, `surroundings.rs` | what all share; what the caller gives |
//!
//! Nothing is printed, and no environment is read: messages go to `log`, everything else comes as a value ([`Surroundings`]).
#![forbid(unsafe_code)]

pub mod branches;
pub mod bursts;
mod destination;
mod folder;
pub mod import;
mod processor_time;
pub mod programs;
pub mod record;
mod runs;
pub mod sample;
pub mod streams;
pub mod suite;
mod surroundings;
mod waiting;

pub use bursts::Bursts;
pub use destination::{Destination, Lacking, deliver, nothing_counted};
pub use folder::{RunFolder, is_in_use, run_folder};
pub use runs::{
    PROGRAM_VARIABLE, RecordedCommand, TEST_VARIABLE, circumstances, command, cpu_time, ending, exit_code_with, host, one_run, pattern,
};
pub use surroundings::Surroundings;
