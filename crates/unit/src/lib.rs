//! Data that a build stores about a compilation unit.
//!
//! For each unit, the compiler plugin writes a [`UnitMap`] (the functions with their control-flow graphs, path numberings and source
//! positions) and the bitcode before instrumentation, from which variants can be built later. Both are in a [`frame`], in a section of the
//! object file that is not loaded. Linkers copy this section to the program. The unit [`cache`] contains a copy of each frame.
#![forbid(unsafe_code)]

mod atomic_file;
pub mod bitcode;
pub mod cache;
mod check;
pub mod codegen;
mod debug_information;
pub mod edge_profile;
mod event_words;
pub mod events;
pub mod experiment;
mod flow_graph;
pub mod frame;
mod identity;
pub mod image;
pub mod iterations;
pub mod known;
pub mod line_graphs;
pub mod map;
pub mod observe;
pub mod parts;
mod position;
pub mod probes;
pub mod properties;
pub mod segments;
mod storage;
pub mod tasks;
pub mod transformations;
pub mod weights;

pub use cache::UnitCache;
pub use codegen::{CodegenOptions, RejectedOption};
pub use debug_information::MAP_ONLY_DEBUG_INFO_FLAG;
pub use edge_profile::{
    CounterPlaceholder, EdgeCounter, EdgeProfile, ForkCall, PlaceholderPosition, ProfiledFunction, ProfiledValueKind, ReachedCall,
    UnitCountersForLlvm, ValueCounters,
};
pub use events::EventSource;
pub use experiment::{Experiment, PluginRequest, Settings};
pub use flow_graph::{EdgeKind, FlowEdge, FlowGraph};
pub use frame::{Frame, FrameError};
pub use identity::Identity;
pub use image::{ImageError, InstrumentedImage};
pub use iterations::{IterationFunction, IterationPath, IterationSet};
pub use known::{ConflictingNumberingsError, FunctionKey, KnownFunction, KnownPaths, NameVersion};
pub use line_graphs::{LineBlock, LineGraph, LineGraphs};
pub use map::*;
pub use observe::{
    CallerPath, EventWords, InterestingPaths, InterestingWords, IterationWords, LabelWords, Observation, SegmentWords, StorageAliases,
    UnplacedCall,
};
pub use parts::{FunctionPart, FunctionParts};
pub use position::SourcePosition;
pub use properties::UnitProperties;
pub use segments::{SegmentContext, SegmentFunction, SegmentSet, SegmentSetBuilder};
pub use storage::{CountTable, Storage};
pub use transformations::{Transformation, TransformationPlan};
pub use trodden_container::ContentError;
pub use weights::FunctionWeights;
