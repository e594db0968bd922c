//! Distributed program tracing: machine code as a witness program, plans of which run watches which blocks, and exact traces merged from
//! what the runs saw. After the paper on distributed program tracing; [`trodden_witness`] has the theory, `trodden-trace` the collectors.
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
