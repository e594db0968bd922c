//! Analyses of path profiles. Pure: no clock, no environment, and no file but reports of users.
//!
//! | module | question |
//! |---|---|
//! | [`advise`] | what do counts of paths show that counts of edges cannot? |
//! | [`transformations`] | how should the code be transformed? |
//! | [`isolate`] | which paths do failing runs take and passing runs not? |
//! | [`suite`] | which tests are redundant, and in which order should they run? |
//! | [`expression`] | which paths run through given places? |
//! | [`combinations`] | which paths were not taken, although each of their edges was? |
//! | [`untested`], [`field`] | which paths does the field take that no test takes; what do many users report? |
//! | [`copies`] | what do copies of a program cost that share its counting? |
//! | [`choice`], [`changes`] | which paths are interesting; which lines did a change touch? |
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
