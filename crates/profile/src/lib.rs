//! Path profiles: counts joined with the maps of the build.
//!
//! [`raw`] reads the files that instrumented programs write, and [`collect`] joins them with the units' maps to a [`Profile`] ([`model`]).
//! [`container`] and [`store`] save profiles; [`merge`] and [`diff`] combine and compare them. [`paths`] decodes a function's counts,
//! [`edges`] derives LLVM's edge profile, [`sampling`] computes estimates. [`stream`] and [`segments`] handle sequences of paths,
//! [`procedures`] and [`copies`] programs whose paths are divided among several copies. The crate `trodden-analysis` analyses profiles.
#![forbid(unsafe_code)]

pub mod atomic_file;
mod blocks;
pub mod collect;
pub mod container;
pub mod copies;
mod counts;
mod decode;
pub mod diff;
pub mod edges;
mod error;
pub mod events;
pub mod exactness;
pub mod forks;
mod known;
pub mod merge;
pub mod model;
mod observe;
pub mod paths;
pub mod private;
pub mod procedures;
pub mod raw;
pub mod sampling;
pub mod segments;
pub mod store;
pub mod stream;
mod sum;
pub mod temporary;
pub mod weights;

pub use collect::{CollectProblem, Collected, collect, is_raw_file, raw_files};
pub use container::{EXTENSION, Loss, Maps, Recovered};
pub use copies::{CopiesError, CopyDivergence, MergedCopies, merge_copies};
pub use counts::Counts;
pub use diff::{Diff, DiffOptions, FunctionDiff, Overlap, PathChange, PathDiff, diff};
pub use edges::{CallTarget, EdgeCounts, EdgeError, FunctionEdges, ProfiledValue, Targets};
pub use error::ProfileError;
pub use exactness::Inexact;
pub use known::{KnownPathsError, has_standard_numbering};
pub use merge::{BuildPolicy, Merged, Merger, merge_files};
pub use model::{ImageProfile, ProcessEnding, Profile, Run, UnitProfile};
pub use observe::stream::EventPaths;
pub use paths::{CountedPath, DecodedPath, FunctionPaths, LostPath, PathCount, PathDecoder, PathEnd, PathStart, UnfinishedPath};
pub use raw::{RawProblem, RawProfile, RawUnitCounts};
pub use sampling::{BranchSampling, BranchSource, BurstEstimate, BurstSampling, CounterEstimate, Losses, ObservedBranches};
pub use sampling::{Readings, SampledRun, Sampling, Switch, UnitEstimates};
pub use store::{RunEntry, RunStore};
