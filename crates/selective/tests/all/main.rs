//! All integration tests of this crate, in one program, which is built faster than one per file.

mod contexts;
mod interesting;
mod iterations;
mod numberings;
mod separation;
mod unknown;
mod verify;
