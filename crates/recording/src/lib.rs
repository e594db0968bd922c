//! Recording runs of instrumented programs, from the command to the stored profile.
//!
//! `record` records one run, `programs` each program that a command runs, `suite` tests, and `sample` running programs, all with counts
//! (in `bursts` for `--sample` programs); `streams` records sequences of paths, `branches` and `import` use branches that hardware
//! recorded, and `copies` runs copies that share the counting. Nothing is printed and no environment is read: messages go to `log`, and
//! everything else is a value ([`RecordingContext`]).
#![forbid(unsafe_code)]

pub mod branches;
pub mod bursts;
mod context;
pub mod copies;
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
mod waiting;

pub use bursts::Bursts;
pub use context::RecordingContext;
pub use destination::{Delivered, Destination, deliver, nothing_counted};
pub use folder::{RunFolder, is_in_use, run_folder};
pub use runs::{
    PROGRAM_VARIABLE, RecordedCommand, TEST_VARIABLE, command, cpu_time, ending, exit_code_with, host, new_run, pattern, run_metadata,
};
