//! Analyses of path profiles and of sequences of paths. No clock and no environment: what a program's environment names comes as a value
//! ([`trodden_stored::Folders`]). Profiles, streams and reports are read where a question is about some that are named.
//!
//! | module | question |
//! |---|---|
//! | [`advise`] | what do counts of paths show that counts of edges cannot? |
//! | [`transformations`] | how should the code be transformed? |
//! | [`isolate`], [`compared_runs`] | which paths do failing runs take and passing runs not; which runs can be compared? |
//! | [`suite`] | which tests are redundant, and in which order should they run? |
//! | [`expression`] | which paths run through given places? |
//! | [`combinations`] | which paths were not taken, although each of their edges was? |
//! | [`untested`], [`residual`] | which paths does the field take that no test takes; where are they and what is known? |
//! | [`segments`] | which segments across calls were executed, counted, tested? |
//! | [`sequences`] | what does a sequence of paths and calls show: repetition, phases, differences? |
//! | [`field`] | what do many users report? |
//! | [`copies`] | what do copies of a program cost that share its counting? |
//! | [`choice`], [`changes`], [`git`] | which paths are interesting; which lines did a change touch? |
//! | [`libraries`] | which shared libraries does a program need? |
#![forbid(unsafe_code)]

pub mod advise;
pub mod changes;
pub mod choice;
pub mod combinations;
pub mod compared_runs;
pub mod copies;
mod error;
pub mod expression;
pub mod field;
pub mod git;
pub mod isolate;
pub mod libraries;
pub mod residual;
pub mod segments;
pub mod sequences;
pub mod suite;
pub mod transformations;
pub mod untested;

pub use combinations::Combinations;
pub use error::FieldError;
