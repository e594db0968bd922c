//! Questions asked of sequences of paths and calls; the algorithms are in `trodden-sequence`.
//!
//! | file | what |
//! |---|---|
//! | `recording.rs` | a recording: a compressed sequence for each thread, and what its symbols mean |
//! | `text.rs` | recordings as text |
//! | `find.rs`, `hot.rs`, `segments.rs`, `iterations.rs` | strings of events, and what they count |
//! | `diff.rs` | two recordings compared |
//! | `phases.rs` | phases |
//!
//! Answers can be serialised as they are: the JSON of `trodden patterns` and others.

mod diff;
mod find;
mod hot;
mod iterations;
mod numbers;
mod phases;
mod recording;
mod segments;
pub mod text;

pub use diff::{SHOWN, SequenceDifference, SequenceDifferences, Stretch, diff};
pub use find::{FoundEvents, FoundPosition, find};
pub use hot::{HotQuestion, HotSubpath, HotSubpaths, hot};
pub use iterations::{
    GeneralDocument, GeneralRow, IterationDocument, IterationPath, IterationPattern, IterationQuestion, iterations_of,
    iterations_of_copies, last_branches,
};
pub use phases::{FoundPhases, PhaseDocument, PhaseRow, phases_of};
pub use recording::{EventEntry, EventTable, Opened, PathEvent, Recording, RecordingWriter, ThreadSequence};
pub use segments::{CountedSegment, CountedSegments, check_depth, segments};
