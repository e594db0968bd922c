//! Records waiting time. Reads recordings, and traces from other tools, and passes them to the analysis in [`trodden_waits`].
//!
//! | file | contents |
//! |---|---|
//! | `record.rs` | running a program under the preload library |
//! | `recording.rs`, `process_file.rs`, `threads_file.rs`, `ranks.rs` | reading a recording |
//! | `clock.rs`, `sync.rs` | conversion of ticks to a common time; synchronisation of the clocks of several hosts |
//! | `symbols.rs`, `codes.rs` | conversion of addresses to functions and lines; numbers for pieces of code |
//! | `blocks.rs`, `sample_paths.rs` | attribution of the time between two calls to code, from samples and stacks; the paths of samples |
//! | `convert.rs`, `replay.rs` | conversion of records to calls, which are fed to the analysis in chronological order |
//! | `import.rs`, `import/` | traces from other tools: OTF2, scheduler events of perf and CTF, Chrome trace JSON |
//! | `summary.rs`, `causes.rs`, `timeline.rs` | the contents of a report; the activity of each location over time |
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
