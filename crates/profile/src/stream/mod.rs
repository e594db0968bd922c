//! Streams: the sequence of paths and calls of each thread of a run. A [`crate::Profile`] has only their counts.
//!
//! `live` reads the files that programs write, `drain` moves them into a `log` of compressed windows (`builder`) of `symbol`s. `nesting`
//! and `segments` interpret the events; `fold` turns them into counts. The sequence is a whole program path (Larus, PLDI 1999; thesis,
//! section 3.4), except that a path which reaches a call has an event of its own, followed by the callee's events. Missing events are
//! counted ([`ThreadLog::lost`]).

mod builder;
mod drain;
mod fold;
mod live;
mod log;
mod nesting;
mod places;
mod segments;
mod symbol;

pub use builder::{BYTES_PER_ENTRY, JOURNAL, WindowBounds};
pub use drain::{Drain, DrainTotals};
pub use fold::{counts, write_raw};
pub use live::{Chunk, LiveStream, LiveThread, StreamHeader, ThreadKey, is_stream_file};
pub use log::{StreamLog, ThreadLog};
pub use nesting::{Nesting, NestingStep, StreamActivation, Unclear};
pub use places::{CounterLookup, FunctionIndex, PathRole};
pub use segments::SegmentReader;
pub use symbol::{Depth, Symbol};
