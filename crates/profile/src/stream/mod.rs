//! Streams: the sequence of paths and calls of each thread of a run, beside [`crate::Profile`], which has their counts.
//!
//! | file | what |
//! |---|---|
//! | `live.rs` | stream files that programs write, while they run or after they crashed |
//! | `symbol.rs` | events as they are kept: each with one meaning whatever stands before it |
//! | `log.rs` | streams as they are kept: windows, each a grammar |
//! | `builder.rs` | windows that are made while the program runs; journals of them |
//! | `drain.rs` | from stream files to logs, with bounded memory |
//! | `fold.rs` | the counts of a stream, as the raw file that a counting program would have written |
//! | `places.rs` | counters of an image to functions and paths |
//! | `segments.rs` | interprocedural segments, read off the events |
//! | `nesting.rs` | events to frames: who called whom, what was unwound |
//!
//! A whole program path (Larus, PLDI 1999) is such a sequence; thesis, section 3.4. Paths do not end at calls here: a path
//! that comes to a call has an event of its own, behind which the callee's events stand.
//!
//! Invariants: events of a thread have the order in which they happened; what is missing is counted
//! ([`ThreadLog::lost`]).

mod builder;
mod drain;
mod fold;
mod live;
mod log;
mod nesting;
mod places;
mod segments;
mod symbol;

pub use builder::{BYTES_PER_THING, JOURNAL, WindowBounds};
pub use drain::{Drain, Drained};
pub use fold::{counts, write_raw};
pub use live::{Chunk, LiveStream, LiveThread, StreamHead, ThreadKey, is_stream_file};
pub use log::{StreamLog, ThreadLog};
pub use nesting::{Nesting, NestingStep, StreamActivation, Unclear};
pub use places::{FunctionPlace, PathRole, Places};
pub use segments::SegmentReader;
pub use symbol::{Depth, Symbol};
