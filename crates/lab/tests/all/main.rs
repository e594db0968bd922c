//! All integration tests of this crate, in one program, which is built faster than one per file.

mod extract;
mod files;
mod loops;
#[path = "../../../trodden/tests/place/mod.rs"]
mod place;
mod witnesses;
