//! Finds and loads stored profiles and streams by the names that users write: files, runs (`12`, `last`, `last~1`) and suites.
//!
//! Errors are written for users and say what to do. A problem that does not stop the operation, such as a corrupt file with an intact part,
//! is reported with `log::warn!`.
#![forbid(unsafe_code)]

pub mod decompress;
mod folders;
pub mod known;
pub mod maps;
pub mod named;
pub mod place;
pub mod streams;

pub use folders::Folders;
