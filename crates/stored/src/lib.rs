//! Finds and loads stored profiles and streams by the names that users write: files, runs (`12`, `last`, `last~1`) and suites.
//!
//! Errors are messages for users, and say what to do. Problems that do not end the operation, such as a corrupt file whose intact part is
//! used, are reported with `log::warn!`.
#![forbid(unsafe_code)]

pub mod decompress;
mod folders;
pub mod known;
pub mod maps;
pub mod named;
pub mod place;
pub mod streams;

pub use folders::Folders;
