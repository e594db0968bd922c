//! Path profiles: counts joined with the maps of the build.
//!
//! The steps from a run to a profile:
//!
//! 1. [`raw`]: the files that instrumented programs write while they count;
//! 2. [`collect`]: raw files and the maps of the units make a [`Profile`] ([`model`]) of [`Counts`];
//! 3. [`container`]: profiles as files, [`store`]: the runs that a project keeps;
//! 4. [`paths`]: one function's counts as paths, block counts, edge counts, unfinished paths;
//! 5. [`merge`] and [`diff`]: sums and differences of profiles;
//! 6. [`Profile::weights`], [`Profile::known_paths`]: input of later builds;
//! 7. [`edges`]: LLVM's edge profile, computed from paths;
//! 8. [`sampling`]: how a sampled profile was counted, and its estimates;
//! 9. [`stream`]: the sequence of paths and calls of each thread;
//! 10. [`segments`]: interprocedural segments, as streams have them or as programs counted them;
//! 11. [`procedures`], [`copies`]: what partitions of the counting among copies of a program are made of; what the
//!     copies counted, as one profile.
//!
//! Analyses of profiles are in the crate `trodden-analysis`.
#![forbid(unsafe_code)]

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
pub mod whole_file;

pub use collect::{CollectProblem, Collected, collect, is_raw_file, raw_files};
pub use container::{EXTENSION, Loss, Maps, Recovered};
pub use copies::{CopiesError, CopyDivergence, MergedCopies, merge_copies};
pub use counts::Counts;
pub use diff::{Diff, DiffOptions, FunctionDiff, Overlap, PathChange, PathDiff, diff};
pub use edges::{CallTarget, EdgeCounts, EdgeError, FunctionEdges, NotedValue, Targets};
pub use error::ProfileError;
pub use exactness::Inexact;
pub use known::{NotKnown, has_usual_numbers};
pub use merge::{Builds, Merged, Merger, merge_files};
pub use model::{ImageProfile, ProcessEnding, Profile, Run, UnitProfile};
pub use observe::stream::EventPaths;
pub use paths::{Beginning, CountedPath, FunctionPaths, LostPath, PathCount, PathEnd, PathWalk, Unfinished, Walks};
pub use raw::{RawProblem, RawProfile, RawUnitCounts};
pub use sampling::{BranchSampling, BranchSource, BurstEstimate, BurstSampling, CounterEstimate, Losses, ObservedBranches};
pub use sampling::{Readings, Sampled, Sampling, Switch, UnitEstimates};
pub use store::{RunEntry, RunStore};
