//! All integration tests of this crate, in one program, which is built faster than one per file.

mod papers;
mod simulator;
