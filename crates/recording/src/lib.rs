//! Records runs of instrumented programs, from the command to the stored profile.
//!
//! Counts are recorded by `record` (one run), `programs` (each program that a command runs), `suite` (tests) and `sample` (programs that
//! are already running). `bursts` controls when `--sample` programs count. `streams` records sequences of paths. `branches` and `import`
//! use branches that the hardware recorded. `copies` runs several copies of a program that each count some of its paths. This crate prints
//! nothing except messages through `log`, and reads no environment variables ([`RecordingContext`]).
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

pub use bursts::BurstSchedule;
pub use context::RecordingContext;
pub use destination::{DeliveredProfile, ProfileDestination, deliver_profile, warn_nothing_counted};
pub use folder::{RunFolder, create_run_folder, is_mapped_by_process};
pub use runs::{
    PROGRAM_VARIABLE, RecordedCommand, TEST_VARIABLE, command, cpu_time, exit_code_of_recording, host_name, new_run_metadata,
    output_pattern, process_ending, run_metadata,
};
