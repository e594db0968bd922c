//! Distributed program tracing: machine code as a program of witnesses, which run watches what, and the exact trace that is put together
//! from what the runs have seen.
//!
//! Source: the paper on distributed program tracing; [`trodden_witness`] has its theory, `trodden-trace` its collectors.
//!
//! | file | what |
//! |---|---|
//! | `files.rs`, `libraries.rs` | the files that are traced; libraries by name |
//! | `model.rs`, `model/`, `imports.rs`, `code.rs` | machine code as the program of [`trodden_witness`], and as the trace names it |
//! | `jumps.rs`, `returns.rs` | indirect jumps that are watched; blocks that end at calls, which need not return |
//! | `plan.rs`, `weights.rs` | which run watches what, and what that costs |
//! | `merge.rs`, `replay.rs`, `live.rs` | merging what each run saw; what a single run saw, while it runs |
//! | `explain.rs` | which step of an execution the graph lacks |
//! | `recording/` | from a program to its trace: runs with witnesses, on this machine or others |
//! | `place.rs`, `calls.rs` | places of a trace: functions, lines, addresses; its calls one after the other |
//! | `occurrences.rs`, `differences.rs` | executions of a place; where two traces part |
//! | `path_profile.rs` | the acyclic paths of a trace as a path profile |
#![forbid(unsafe_code)]

pub mod calls;
pub mod code;
pub mod differences;
pub mod explain;
pub mod files;
pub mod imports;
pub mod jumps;
pub mod libraries;
pub mod live;
pub mod merge;
pub mod model;
pub mod occurrences;
pub mod path_profile;
pub mod place;
pub mod plan;
pub mod recording;
pub mod replay;
pub mod returns;
pub mod weights;
