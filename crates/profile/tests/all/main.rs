//! All integration tests of this crate, in one program, which is built faster than one per file.

mod collect;
#[path = "../common/mod.rs"]
mod common;
mod container;
mod merge_diff;
mod oracle;
mod python_reader;
mod raw;
mod robust;
mod store;
mod store_repair;
mod stream_file;
