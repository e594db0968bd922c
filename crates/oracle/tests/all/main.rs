//! All integration tests of this crate, in one program, which is built faster than one per file.

mod branches;
mod interesting;
mod oracles;
#[path = "../plain/mod.rs"]
mod plain;
mod random;
mod residual;
mod sample;
