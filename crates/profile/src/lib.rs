//! Path profiles: what was counted, joined with what the build knows.
//!
//! From a run to what people read:
//!
//! 1. [`raw`]: the files that instrumented programs write while they count;
//! 2. [`collect`]: raw files and the maps of the units make a [`Profile`] ([`model`]);
//! 3. [`container`]: profiles as files, [`store`]: the runs that a project keeps;
//! 4. [`paths`]: one function's counts as paths, block counts, edge counts, unfinished paths;
//! 5. [`merge`] and [`diff`]: profiles added up and compared;
//! 6. [`Profile::weights`], [`Profile::known_paths`]: what a later build can make of them;
//! 7. [`advise`]: what paths tell that edges cannot;
//! 8. [`isolate`]: which paths failing runs take and passing runs do not;
//! 9. [`edges`]: LLVM's edge profile, as it follows from paths;
//!    [`combinations`]: paths that were not taken although each of their edges was;
//! 10. [`sampling`]: what a profile that was not counted in full says of itself;
//! 11. [`suite`]: which tests of a suite are redundant, and in which order to run them; [`changes`]: changed lines;
//! 12. [`expression`]: paths that run through given places;
//! 13. [`untested`]: what the field takes and tests do not; [`field`]: reports of many users, added up;
//! 14. [`stream`]: the sequence of paths and calls of each thread;
//! 15. [`procedures`], [`copies`]: what partitions of the counting among copies of a program are made of; what the
//!     copies counted, as one profile.
#![forbid(unsafe_code)]

pub mod advise;
mod blocks;
pub mod changes;
pub mod choice;
mod chosen;
pub mod collect;
pub mod combinations;
pub mod container;
pub mod copies;
pub mod diff;
pub mod directions;
pub mod edges;
mod error;
pub mod events;
pub mod exactness;
pub mod expression;
pub mod field;
pub mod isolate;
mod known;
mod labels;
pub mod merge;
pub mod model;
pub mod paths;
pub mod procedures;
pub mod raw;
pub mod sampling;
pub mod store;
pub mod stream;
pub mod suite;
mod sum;
pub mod tables;
pub mod untested;
pub mod values;
mod weights;
pub mod whole_file;

pub use collect::{CollectProblem, Collected, collect, raw_files};
pub use combinations::Combinations;
pub use container::{EXTENSION, Loss, Maps, Recovered};
pub use copies::{CopiesError, Divergence, MergedCopies, merge_copies};
pub use diff::{Change, Diff, DiffOptions, FunctionDiff, Overlap, PathDiff, diff};
pub use edges::{EdgeCounts, EdgeError, FunctionEdges};
pub use error::ProfileError;
pub use exactness::Inexact;
pub use known::{NotKnown, has_usual_numbers};
pub use merge::{Builds, Merged, Merger, merge_files};
pub use model::{Ending, ImageProfile, Profile, Run, UnitProfile};
pub use paths::{Beginning, FunctionPaths, Lost, PathCount, PathEnd, Unfinished, Walk, Walks};
pub use raw::{RawProblem, RawProfile, RawUnitCounts};
pub use sampling::{BranchSampling, BranchSource, BurstSampling, CounterEstimate, Estimate, Losses, Observed};
pub use sampling::{Readings, Sampled, Sampling, Switch, UnitEstimates};
pub use store::{RunEntry, RunStore};
pub use values::{NotedValue, Target, Targets};
