//! Streams: the sequence of paths and calls that each thread executed in a run. A [`crate::Profile`] only counts these paths.
//!
//! `live` reads the files that programs write; `drain` moves their content to a `log` of compressed windows (`builder`) of `symbol`s.
//! `nesting`, `segments` and `iterations` interpret the events, and `fold` converts them to counts. A stream is a whole program path
//! (Larus, PLDI 1999; thesis, section 3.4), except that a path that reaches a call has an event of its own, followed by the callee's
//! events. Missing events are counted ([`ThreadLog::lost`]).

mod builder;
mod counters;
mod drain;
mod fold;
mod iterations;
mod live;
mod log;
mod nesting;
mod segments;
mod symbol;

pub use builder::{BYTES_PER_BUILDER_ENTRY, JOURNAL_EXTENSION, WindowBounds};
pub use counters::{CounterLookup, FunctionIndex, PathRole};
pub use drain::{StreamDrain, StreamDrainTotals};
pub use fold::{count_counter_increments, write_raw};
pub use iterations::IterationReader;
pub use live::{LiveStream, LiveThread, StreamChunk, StreamHeader, ThreadKey, is_stream_file};
pub use log::{StreamLog, ThreadLog};
pub use nesting::{CallNesting, NestingStep, StreamActivation, UnclearFrameCounts};
pub use segments::SegmentReader;
pub use symbol::{CallStackDepth, StreamSymbol};
