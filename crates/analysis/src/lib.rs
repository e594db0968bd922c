//! Questions asked of path profiles. Pure: no file is read but reports of users, no clock, no environment.
//!
//! | module | question |
//! |---|---|
//! | [`advise`] | what do paths tell that edges cannot? |
//! | [`directions`] | what should become of the code? |
//! | [`isolate`] | which paths do failing runs take and passing runs not? |
//! | [`suite`] | which tests are redundant, and in which order should they run? |
//! | [`expression`] | which paths run through given places? |
//! | [`combinations`] | which paths were not taken although each of their edges was? |
//! | [`untested`], [`field`] | what does the field take that no test takes; what do many users report? |
//! | [`choice`], [`changes`] | which paths are interesting; which lines did a change touch? |
#![forbid(unsafe_code)]

pub mod advise;
pub mod changes;
pub mod choice;
pub mod combinations;
pub mod directions;
mod error;
pub mod expression;
pub mod field;
pub mod isolate;
pub mod suite;
pub mod untested;

pub use combinations::Combinations;
pub use error::FieldError;
