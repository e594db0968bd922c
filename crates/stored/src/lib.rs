//! Stored profiles and streams by the names that people give them: files, runs (`12`, `last`, `last~1`), suites.
//!
//! What goes wrong here is read by people, so errors are texts with a remedy. What spoils a result without ending the work, such as a
//! damaged file of which the rest is used, is reported by `log::warn!`.
//!
//! | file | what |
//! |---|---|
//! | `named.rs` | profiles by name, the run store of a folder |
//! | `streams.rs`, `place.rs` | streams by name; where they are kept |
//! | `maps.rs` | the maps of a stream's image |
//! | `known.rs` | sets of known paths by name |
//! | `folders.rs` | the folders that the environment of a program names |
//! | `decompress.rs` | files compressed by gzip, zstd or xz |
#![forbid(unsafe_code)]

pub mod decompress;
mod folders;
pub mod known;
pub mod maps;
pub mod named;
pub mod place;
pub mod streams;

pub use folders::Folders;
