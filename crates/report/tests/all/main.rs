//! All integration tests of this crate, in one program, which is built faster than one per file.

mod advice;
mod browser;
mod exports;
mod lines;
#[path = "../support/mod.rs"]
mod support;
mod text;
