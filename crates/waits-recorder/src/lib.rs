//! A preload library that records, in any program, the calls by which processes and threads wait for each other.
//!
//! `trodden waits record` names it by `LD_PRELOAD`. It stands in for the functions of MPI, of POSIX threads and for `syscall` (by which
//! Rust's `std::sync` and others use futexes), calls the real ones, and writes fixed-size records (`trodden_wire::waits`) into mapped
//! files.
//!
//! | file | what |
//! |---|---|
//! | `clock.rs` | the time-stamp counter |
//! | `real.rs` | the functions stood in for |
//! | `output.rs` | files: mapped pieces, lines of text |
//! | `process.rs` | what is written once per process |
//! | `thread.rs` | the state of a recorded thread; begin and end of a record |
//! | `handles.rs` | tables of handles |
//! | `images.rs` | the images that are loaded |
//! | `caller.rs` | whether the program calls, or an MPI library |
//! | `stack.rs` | stacks of return addresses, unwound once per call path |
//! | `paths.rs` | where a thread is in its stream of paths |
//! | `signals.rs` | the sampler's signal, hidden from the program |
//! | `thread/sample.rs` | samples of what a thread computes, by its processor time |
//! | `pthread.rs`, `c11.rs`, `contention.rs` | locks, condition variables, barriers, semaphores, threads, of POSIX and C11 |
//! | `futex.rs`, `blocked.rs`, `process/fork.rs` | futexes; sleeping and input; child processes |
//! | `mpi/` | MPI: a table of functions, what is recorded of each, communicators |
//!
//! Invariants: nothing is allocated on the heap; a thread writes its own files only; a lock that is free costs one attempt and no record;
//! what the library itself calls is never recorded (a depth per thread); where a file cannot be written, the program runs on unrecorded.
//!
//! Threads are recorded if the program made them. Those that an MPI library makes for itself are not.

mod blocked;
mod c11;
mod caller;
mod clock;
mod contention;
mod futex;
mod handles;
mod images;
mod mpi;
mod output;
mod paths;
mod process;
mod pthread;
mod real;
mod signals;
mod stack;
mod thread;
