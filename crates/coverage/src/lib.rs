//! Coverage of the source by LLVM's own tools, from counts that follow from paths.
//!
//! A program built with `--coverage` has clang's (or rustc's) mapping of counters to regions of its sources, but no counters: what these
//! would hold follows from its paths ([`trodden_profile::edges`]). The profile becomes an indexed profile, and `llvm-cov` shows it with
//! the mapping that it finds in the program, or in a copy with the counts of what was reached. Beside its numbers stand those that only
//! paths say. What goes wrong here is read by people, so errors are texts with a remedy.
//!
//! | file | what |
//! |---|---|
//! | `mapping.rs` | programs with a mapping, checked; calls of `llvm-cov` |
//! | `sections.rs`, `region_code.rs` | the mapping in a program's sections; the encoding of its regions |
//! | `instances.rs` | which counters belong to which function of which program |
//! | `not_executed.rs` | code after calls that did not return, in the mapping |
//! | `stops.rs`, `true_counts.rs` | where executions ended; how often the regions of a function were executed, given that |
//! | `handling.rs`, `tail_calls.rs`, `end_of_call.rs` | ends of exceptions; calls that became jumps; ends of calls in the source |
//! | `second_returns.rs` | calls that returned twice |
//! | `caveats.rs` | functions whose counts are LLVM's, and marks of them |
//! | `files.rs`, `file_names.rs` | which source files are wanted; folders with two names |
//! | `demangled.rs` | names in exports |
//! | `lines.rs` | executions of lines, as `llvm-cov` has them |
//! | `path_columns.rs`, `tables.rs` | numbers of paths by source file and function; tables |
//! | `diff.rs`, `by_test.rs` | what one of two profiles has; of a suite, which test adds what |
#![forbid(unsafe_code)]

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
mod path_columns;
mod region_code;
mod second_returns;
mod sections;
mod stops;
pub mod tables;
mod tail_calls;
mod true_counts;

pub use files::Files;
pub use lines::{Lines, mapped};
pub use mapping::{CoverageMapping, CoverageTools, CoveredSources, is_mapped};
pub use second_returns::warn_of_second_returns;
