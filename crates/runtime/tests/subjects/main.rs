//! The runtime inside real programs: C (and a little C++ and Rust) that counts as instrumented code does, built with the object that
//! subjects get.
//!
//! Needs gcc, g++, GNU ld and gold, and lld 22 (Debian: `apt install g++ binutils lld-22`). What needs root (mounts, other users) is
//! skipped with a note where it is not to be had.

mod laboratory;

mod links;
mod output;
mod processes;
mod sandbox;
mod stub;
mod threads;
