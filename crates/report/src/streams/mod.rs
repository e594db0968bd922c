//! Streams of paths and calls in words.
//!
//! | file | what |
//! |---|---|
//! | `event_names.rs` | events in words, with source |
//! | `show.rs`, `statistics.rs` | the events of a thread; how long streams are, and what they hold |
//! | `last.rs` | what each thread did before the end |
//! | `stopped.rs`, `unfinished.rs` | what a core file says of a thread's end |

mod event_names;
mod last;
mod show;
mod statistics;
mod stopped;
mod unfinished;

pub use event_names::{EventNames, SourceLine};
pub use last::{LastQuestion, LastReport};
pub use show::{EventRange, RemainingEvents, write_events};
pub use statistics::StreamStatistics;
