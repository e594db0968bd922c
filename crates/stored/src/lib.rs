//! Finds and loads profiles and streams by the names that users write: a file, a run (`12`, `last`, `last~1`) or a suite, which is a named
//! set of runs.
//!
//! Error messages are written for users, and say what to do. A problem that does not stop the operation, such as a partly corrupt file, is
//! reported with `log::warn!`.
#![forbid(unsafe_code)]

pub mod decompress;
mod folders;
pub mod known;
pub mod maps;
pub mod named;
pub mod place;
pub mod streams;

pub use folders::Folders;
