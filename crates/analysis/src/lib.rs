//! Analyses of path profiles and of sequences of paths. They read no clock and no environment: folders that the environment names are
//! passed in ([`trodden_stored::Folders`]).
//!
//! | module | question |
//! |---|---|
//! | [`advise`] | which findings do path counts give that edge counts cannot? |
//! | [`transformations`] | how should the code be transformed? |
//! | [`isolate`], [`compared_runs`] | which paths distinguish failing runs from passing ones? |
//! | [`suite`] | which tests are redundant, and in which order should tests run? |
//! | [`expression`] | which paths run through given places? |
//! | [`combinations`] | which paths were not taken, although each of their edges was? |
//! | [`untested`], [`residual`] | which paths are taken in the field but by no test? |
//! | [`segments`] | which path segments across calls were executed, and which of them tested? |
//! | [`sequences`] | which repetitions, phases and differences does a sequence of paths and calls show? |
//! | [`field`] | what do the reports of many users add up to? |
//! | [`copies`] | what do copies of a program that share its counting cost? |
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
