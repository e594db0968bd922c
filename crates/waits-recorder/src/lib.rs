//! A preload library that records, in any program, the calls by which processes and threads wait for each other.
//!
//! `trodden waits record` sets `LD_PRELOAD`. The library interposes functions of MPI and POSIX threads, blocking functions and `syscall`,
//! calls the real functions, and writes records (`trodden_wire::waits`) into a mapped file. An exported wrapper has the contract of the C
//! function that it replaces; SAFETY comments call this the caller's contract. Invariants: the library allocates nothing on the heap; a
//! thread writes only to its own chunks; acquiring a free lock costs one attempt and no record; calls that the library or a wrapped
//! function makes are never recorded (each thread counts its call depth); if a file cannot be written, the program continues unrecorded.
//! Threads that an MPI library creates for its own use are not recorded.

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
