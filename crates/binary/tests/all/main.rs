//! All integration tests of this crate, in one program, which is built faster than one per file.

mod address_map;
#[path = "../common/mod.rs"]
mod common;
mod corrupt;
mod debug_files;
mod executions;
mod recovered;
