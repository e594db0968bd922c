//! Queries on sequences of paths and calls; the algorithms are in `trodden-sequence`.
//!
//! A recording (`recording.rs`) has a compressed sequence for each thread; `text.rs` reads recordings from text. The other files each
//! answer one query. Results serialise to the JSON of `trodden patterns` and other commands.

mod diff;
mod find;
mod hot;
mod iterations;
mod numbers;
mod phases;
mod recording;
mod segments;
pub mod text;

pub use diff::{EventRange, SHOWN, SequenceDifference, SequenceDifferences, diff};
pub use find::{FoundEvents, FoundPosition, find};
pub use hot::{HotQuestion, HotSubpath, HotSubpaths, hot};
pub use iterations::{
    GeneralDocument, GeneralRow, IterationDocument, IterationPath, IterationPattern, IterationQuestion, iterations_of,
    iterations_of_copies, last_branches,
};
pub use phases::{FoundPhases, PhaseDocument, PhaseRow, phases_of};
pub use recording::{EventEntry, EventTable, Opened, PathEvent, Recording, RecordingWriter, ThreadSequence};
pub use segments::{CountedSegment, CountedSegments, check_depth, segments};
