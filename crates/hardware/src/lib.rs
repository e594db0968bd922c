//! A model of the programmable hardware path profiler: path detector, hot path table, and the quality of the table's content.
//!
//! After K. Vaswani, *Efficient Online Path Profiling*, chapter 5 (HPP, CGO 2005). The crate is pure: it takes records of retired branches,
//! which `trodden-trace` provides, and returns path descriptors and profiles.
//!
//! | file | what | section |
//! |---|---|---|
//! | `stream.rs` | retired branches, interrupts and gaps of one thread | - |
//! | `descriptor.rs` | [`PathDescriptor`]: start, number of branches, outcomes | 5.2 |
//! | `mapping.rs` | operations of each branch class on the path stack: presets, TOML files | 5.2, tables 5.1 and 5.2 |
//! | `path_stack.rs` | [`PathStack`]: entries, overflow | 5.2 |
//! | `program_stacks.rs` | the stacks of a thread, repairs after `longjmp` and exceptions | 5.2 |
//! | `detector.rs` | [`Detector`]: branches to paths | 5.2 |
//! | `events.rs` | event counters of blocks and paths | 5.3 |
//! | `index.rs`, `replacement.rs`, `table.rs` | [`HotPathTable`] | 5.4 |
//! | `processor/` | the processor around the profiler | table 5.3 |
//! | `profiler.rs` | [`Profiler`]: detectors and tables for a stream of threads | 5.5 |
//! | `lane.rs` | [`Lane`]: profiler and processor together | 5.3 |
//! | `character.rs` | skew and length of paths, event profiles | 5.3, 5.5.2 |
//! | `experiment.rs` | designs of experiments, effects of factors | 5.5.2 |
//! | `statistics.rs` | cumulative distributions, rank correlation | 5.1, 5.5 |
//! | `profile.rs` | unbounded [`PathProfile`], overlap percentages | 5.5 |
#![forbid(unsafe_code)]

pub mod character;
mod descriptor;
mod detector;
mod error;
mod events;
pub mod experiment;
mod index;
mod lane;
mod mapping;
mod names;
mod path_stack;
pub mod processor;
mod profile;
mod profiler;
mod program_stacks;
mod replacement;
mod statistics;
mod stream;
mod table;

pub use descriptor::{MAX_BRANCHES, PathDescriptor};
pub use detector::{CompletedPath, Detector, DetectorCounts, DetectorParameters, PathEnd, Repair};
pub use error::HardwareError;
pub use events::{CounterWidth, EventCounts, MAX_EVENTS};
pub use index::IndexFunction;
pub use lane::{Lane, LaneTiming};
pub use mapping::{BranchType, Extension, OperationMapping, Operations, Preset};
pub use path_stack::{Overflow, PathStack};
pub use processor::{Instruction, InstructionClass, ProcessorModel};
pub use profile::{PathProfile, overlap};
pub use profiler::{Metric, Profiler, ProfilerParameters, TableResult, paths_for_share};
pub use replacement::Replacement;
pub use statistics::{cumulative, rank_correlation};
pub use stream::{Address, BranchKind, RetiredBranch, StreamEvent, ThreadId};
pub use table::{HotPathTable, TableCounts, TableParameters, TableUpdate};
