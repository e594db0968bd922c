//! Reports on recorded streams of paths and calls: the events of a thread, statistics, and the last events before a program stopped.

mod event_names;
mod last;
mod show;
mod statistics;
mod stopped;
mod unfinished;

pub use event_names::{EventNames, SourceLine};
pub use last::{LastEventsReport, LastEventsRequest};
pub use show::{RemainingEvents, ShownEvents, write_events};
pub use statistics::StreamStatistics;
