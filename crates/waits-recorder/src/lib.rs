//! A preload library that records, in any program, the calls by which processes and threads wait for each other.
//!
//! `trodden waits record` names it by `LD_PRELOAD`. It stands in for the functions of MPI, of POSIX threads and for `syscall` (by which
//! Rust's `std::sync` and others use futexes), calls the real ones, and writes records (`trodden_wire::waits`) into a mapped file.
//!
//! | file | what |
//! |---|---|
//! | `clock.rs`, `schedule.rs` | the time-stamp counter; time without a processor |
//! | `real.rs` | the functions stood in for |
//! | `output.rs`, `memory.rs`, `own_file.rs` | system calls, text; memory; files that stay open |
//! | `lock.rs` | a lock for what threads share |
//! | `chunks.rs`, `records.rs` | the file of a process's threads, in chunks; the records of one thread |
//! | `process.rs`, `naming.rs` | what is written once per process; names of files and processes |
//! | `thread.rs` | the state of a recorded thread; begin and end of a record |
//! | `handles.rs` | tables of handles |
//! | `images.rs` | the images that are loaded |
//! | `caller.rs` | whether the program calls, or an MPI library |
//! | `stack.rs`, `walk.rs` | stacks of return addresses, unwound once per call path |
//! | `paths.rs` | where a thread is in its stream of paths |
//! | `signals.rs` | the sampler's signal, hidden from the program |
//! | `restrictions.rs`, `limits.rs` | filters of system calls, limits of the address space |
//! | `thread/sample.rs` | samples of what a thread computes, by its processor time |
//! | `pthread.rs`, `c11.rs`, `contention.rs` | locks, condition variables, barriers, semaphores, threads, of POSIX and C11 |
//! | `futex.rs`, `blocked.rs`, `process/fork.rs` | futexes; sleeping and input; child processes |
//! | `mpi/` | MPI: a table of functions, what is recorded of each, communicators |
//!
//! Invariants: nothing is allocated on the heap; a thread writes to its own chunks only; a lock that is free costs one attempt and no
//! record; what the library itself calls is never recorded (a depth per thread); where a file cannot be written, the program runs on
//! unrecorded; descriptors are the program's (`own_file.rs`).
//!
//! Threads are recorded if the program made them. Those that an MPI library makes for itself are not.

mod blocked;
mod c11;
mod caller;
mod chunks;
mod clock;
mod contention;
mod futex;
mod handles;
mod images;
mod limits;
mod lock;
mod memory;
mod mpi;
mod naming;
mod output;
mod own_file;
mod paths;
mod process;
mod pthread;
mod real;
mod records;
mod restrictions;
mod schedule;
mod signals;
mod stack;
mod thread;
mod walk;
