//! Streams: the sequence of paths and calls of each thread of a run, beside [`crate::Profile`], which has their counts.
//!
//! | file | what |
//! |---|---|
//! | `live.rs` | stream files that programs write, while they run or after they crashed |
//! | `log.rs` | streams as they are kept: compressed frames, each found again by its place |
//! | `drain.rs` | from the one to the other, with bounded memory |
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

mod drain;
mod fold;
mod live;
mod log;
mod nesting;
mod places;
mod segments;

pub use drain::{Drain, Drained};
pub use fold::{counts, write_raw};
pub use live::{Chunk, LiveStream, LiveThread, StreamHead, ThreadKey, is_stream_file};
pub use log::{LogWriter, StreamLog, ThreadLog};
pub use nesting::{Frame, Nesting, Step, Unclear};
pub use places::{FunctionPlace, PathRole, Places};
pub use segments::SegmentReader;
