//! Stored profiles and streams by the names that users give: files, runs (`12`, `last`, `last~1`) and suites.
//!
//! Errors are meant for users, and include a remedy. Problems that do not end the operation, such as a damaged file whose intact part is
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
