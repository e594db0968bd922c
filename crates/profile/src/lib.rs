//! Path profiles: counts joined with the maps of the build.
//!
//! [`raw`] reads the files that instrumented programs write, and [`collect`] joins them with the units' maps to a [`Profile`] ([`model`]).
//! [`container`] and [`store`] save profiles; [`merge`] and [`diff`] combine and compare them. [`paths`] decodes a function's counts,
//! [`edges`] derives LLVM's edge profile, [`sampling`] computes estimates. [`stream`], [`segments`] and [`iterations`] handle sequences of
//! paths, [`procedures`] and [`copies`] programs whose paths are divided among several copies. The crate `trodden-analysis` analyses
//! profiles.
//!
//! # Example
//!
//! Lists the executed paths in a profile file, such as one that `trodden record -o run.trodden -- ./prog` wrote:
//!
//! ```
//! use std::path::Path;
//! use trodden_profile::{Profile, Run};
//!
//! fn executed_paths(file: &Path) -> Result<Vec<(String, u64, u64)>, Box<dyn std::error::Error>> {
//!     let profile = Profile::read(file)?;
//!     let mut rows = Vec::new();
//!     for (_image, unit, function) in profile.functions() {
//!         let paths = unit.executed_paths(function)?;
//!         rows.extend(paths.iter().flat_map(|paths| paths.all()).map(|path| (function.name.clone(), path.id, path.executions())));
//!     }
//!     Ok(rows)
//! }
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let file = folder.path().join("run.trodden");
//! let empty = Profile { run: Run { command: vec!["./prog".to_owned()], ..Run::default() }, images: Vec::new(), sampling: None };
//! empty.write(&file)?;
//! assert_eq!(Profile::read(&file)?.run.command, ["./prog"]);
//! assert_eq!(executed_paths(&file)?, []);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
pub mod iterations;
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

pub use collect::{CollectProblem, CollectedProfile, collect, is_raw_file, raw_files};
pub use container::{LostProfilePart, PROFILE_EXTENSION, RecoveredProfile, UnitMapsByIdentity};
pub use copies::{CopiesError, CopyDivergence, MergedCopies, merge_copies};
pub use counts::Counts;
pub use diff::{DiffOptions, FunctionDifference, PathChange, PathDiff, ProfileDifference, ProfileOverlap, UnitAndFunctionIndex, diff};
pub use edges::{CallTarget, CallTargetsByOffset, EdgeCounts, EdgeError, FunctionEdges, ProfiledValue};
pub use error::ProfileError;
pub use exactness::InexactnessReason;
pub use known::{KnownPathsError, has_standard_numbering};
pub use merge::{BuildPolicy, MergedProfile, ProfileMerger, merge_files};
pub use model::{ImageProfile, ProcessEnding, Profile, Run, UnitProfile};
pub use observe::stream::EventToPathTranslator;
pub use paths::{CountedPath, DecodedPath, FunctionPaths, LostPathFragment, PathCount, PathDecoder, PathEnd, PathStart, UnfinishedPath};
pub use raw::{RawProblem, RawProfile, RawUnitCounts};
pub use sampling::{BranchSampling, BurstEstimate, BurstSampling, CounterEstimate, ObservedBranches, SamplingSource, UnattributedBranches};
pub use sampling::{CounterReadings, SampledRun, Sampling, SamplingSwitch, UnitEstimates};
pub use store::{RunEntry, RunStore};
