//! Source coverage shown by LLVM's tools, with counts derived from paths.
//!
//! A program built with `--coverage` contains clang's or rustc's mapping of counters to source regions, but no counters. Counter values are
//! computed from the paths ([`trodden_profile::edges`]) and written as an indexed profile for `llvm-cov`. `llvm-cov` reads the mapping from
//! the program, or from corrected copies if calls did not return or `llvm-cov` would confuse functions (`not_executed`, `instances`). The
//! output also contains numbers of paths.
#![forbid(unsafe_code)]

mod builds;
pub mod by_test;
mod caveats;
mod demangled;
pub mod diff;
mod end_of_call;
mod file_names;
mod files;
mod handling;
mod instances;
mod lines;
mod mapping;
mod not_executed;
mod packages;
mod path_columns;
mod region_code;
mod second_returns;
mod sections;
mod stops;
pub mod tables;
mod tail_calls;
mod true_counts;

pub use builds::select_builds;
pub use files::FilePatterns;
pub use lines::{LineExecutions, mapped_lines};
pub use mapping::{CoverageMapping, CoverageTools, CoveredSources, has_coverage_mapping};
pub use second_returns::warn_of_second_returns;
