//! A model of the programmable hardware path profiler: path detector, hot path table, and the quality of the table's content.
//!
//! The model follows chapter 5 of K. Vaswani, *Efficient Online Path Profiling* (HPP, CGO 2005); the modules cite its sections. The crate
//! does no input or output: it takes records of retired branches, which `trodden-trace` provides, and returns path descriptors and
//! profiles. [`Detector`] turns branches into paths, [`Profiler`] feeds the paths to [`HotPathTable`]s, and [`SimulationLane`] adds a model
//! of the processor.
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

pub use descriptor::{MAX_DESCRIPTOR_BRANCHES, PathDescriptor};
pub use detector::{CompletedPath, Detector, DetectorCounts, DetectorParameters, PathEndReason, StackRepair};
pub use error::HardwareError;
pub use events::{CounterWidth, EventCounts, MAX_EVENTS};
pub use index::IndexFunction;
pub use lane::{LaneTiming, SimulationLane};
pub use mapping::{BranchType, MappingPreset, OperationMapping, PathExtension, PathStackOperations};
pub use path_stack::{PathStack, StackOverflowPolicy};
pub use processor::{Instruction, InstructionClass, ProcessorModel};
pub use profile::{PathProfile, compute_overlap};
pub use profiler::{Metric, Profiler, ProfilerParameters, TableResult, count_paths_for_share};
pub use replacement::ReplacementPolicy;
pub use statistics::{compute_cumulative_shares, rank_correlation};
pub use stream::{Address, BranchKind, RetiredBranch, StreamEvent, ThreadId};
pub use table::{HotPathTable, TableCounts, TableParameters, TableUpdate};
