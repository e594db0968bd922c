//! Tests the runtime inside real programs: C (and a little C++ and Rust) that counts like instrumented code, linked with the same object as
//! instrumented programs.
//!
//! Needs gcc, g++, GNU ld, gold and lld 22 (Debian: `apt install g++ binutils lld-22`). Tests that need root (mounts, other users) are
//! skipped with a note when not run as root.

mod laboratory;

mod links;
mod output;
mod processes;
mod sandbox;
mod stub;
mod threads;
