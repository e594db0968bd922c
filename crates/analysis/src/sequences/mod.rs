//! Queries on sequences of paths and calls; the algorithms are in `trodden-sequence`.
//!
//! A recording (`recording.rs`) has a compressed sequence for each thread; `text.rs` reads recordings from text. The other files each
//! answer one query. Results serialise to the JSON of `trodden-lab patterns` and other commands.

mod diff;
mod find;
mod hot;
mod iterations;
mod numbers;
mod phases;
mod recording;
mod segments;
pub mod text;

pub(crate) use numbers::take_top;

pub use diff::{DifferenceRow, LabelledRange, MAX_EVENTS_PER_DIFFERENCE, SequenceDifferences, diff};
pub use find::{FoundEvents, FoundPosition, find};
pub use hot::{HotQuery, HotSubpathRow, HotSubpaths, find_hot_subpaths};
pub use iterations::{
    BranchPath, BranchPathDocument, IterationDocument, IterationPattern, IterationQuery, IterationRow, document_iterations,
    iterations_of_copies, last_branches,
};
pub use phases::{FoundPhases, PhaseDocument, PhaseRow, document_phases};
pub use recording::{EventTable, OpenedSequence, PathEvent, RecordingWriter, SequenceRecording, SymbolMeaning, ThreadSequence};
pub use segments::{CountedSegment, SequenceSegments, check_depth, count_segments};
