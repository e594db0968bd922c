//! Recordings of waiting time, and traces of other tools, through the analysis of [`trodden_waits`].
//!
//! | file | what |
//! |---|---|
//! | `record.rs` | running a program under the preload library |
//! | `recording.rs`, `process_file.rs`, `threads_file.rs`, `ranks.rs` | a recording on disk |
//! | `clock.rs`, `sync.rs` | ticks of all processes to one time; clocks of several hosts |
//! | `symbols.rs`, `codes.rs` | addresses to functions and lines; code blocks |
//! | `blocks.rs`, `sample_paths.rs` | what a thread did between two calls, from samples and stacks; the paths of samples |
//! | `convert.rs`, `replay.rs` | records to calls, in order of time through the analysis |
//! | `import.rs`, `import/` | traces of other tools: OTF2, the scheduler's events of perf, Chrome trace JSON |
//! | `summary.rs`, `causes.rs`, `timeline.rs` | what a report says; what each location did when |
#![forbid(unsafe_code)]

pub mod blocks;
pub mod causes;
mod clock;
pub mod codes;
mod convert;
pub mod import;
pub mod process_file;
mod ranks;
pub mod record;
pub mod recording;
pub mod replay;
pub mod sample_paths;
pub mod summary;
pub mod symbols;
mod sync;
mod threads_file;
pub mod timeline;
