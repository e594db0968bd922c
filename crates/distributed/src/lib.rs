//! Distributed program tracing: a witness program built from machine code, plans that assign watched blocks to runs, and exact traces
//! merged from the partial traces of all runs. A *witness* is a block whose executions a run records. [`trodden_witness`] contains the
//! theory and cites the paper; `trodden-trace` contains the collectors.
//!
//! `model`, `plan` and `merge` are the pipeline for several runs and `recording` drives it; `replay` handles a single run that watches all
//! blocks; `place`, `calls`, `occurrences`, `differences` and `path_profile` answer questions about a trace.
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
mod steps;
pub mod weights;
