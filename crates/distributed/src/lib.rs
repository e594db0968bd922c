//! Distributed program tracing. Each of several runs of a program records only some basic blocks, its *witnesses*, so that it is slowed
//! down less. The partial traces of all runs together determine the execution, and are merged to an exact trace.
//!
//! [`trodden_witness`] contains the theory and cites the paper, and `trodden-trace` contains the collectors. For several runs, `model`
//! describes the machine code, `plan` distributes the witnesses and `merge` merges the partial traces; `recording` executes these steps.
//! `replay` handles a single run that watches all blocks. `place`, `calls`, `occurrences`, `differences` and `path_profile` answer
//! questions about a trace.
#![forbid(unsafe_code)]

pub mod calls;
pub mod code;
pub mod differences;
pub mod explain;
pub mod files;
mod frames;
pub mod graph_folder;
pub mod imports;
pub mod jumps;
pub mod libraries;
pub mod live;
pub mod merge;
pub mod model;
pub mod occurrences;
mod ordinary_steps;
pub mod path_profile;
pub mod place;
pub mod plan;
pub mod recording;
pub mod replay;
pub mod returns;
mod steps;
pub mod weights;
