//! What can go wrong in a collection.

use crate::displaced::DisplaceError;
use crate::programs::TraceError;
use std::io;
use std::path::PathBuf;

/// Why a run could not be traced.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The file is no program that can be traced.
    #[error("{} {fault}", path.display())]
    Executable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The program cannot be started or followed.
    #[error(transparent)]
    Start(TraceError),
    /// A process cannot be attached to.
    #[error("process {process} cannot be followed: {source} (it must be yours and have no debugger; where Yama forbids it, run as root)")]
    Attach {
        /// The process.
        process: i32,
        /// The system's error.
        source: io::Error,
    },
    /// More sites than a run can have.
    #[error("{sites} sites are more than the {most} that one run can watch: ask for more runs, or fewer functions")]
    TooManySites {
        /// How many.
        sites: usize,
        /// How many there can be.
        most: usize,
    },
    /// A site is no code.
    #[error("{address:#x} is no code of {}: the plan is of another build", path.display())]
    NoCode {
        /// The address in the file.
        address: u64,
        /// The image.
        path: PathBuf,
    },
    /// An instruction cannot be moved.
    #[error(transparent)]
    Displace(#[from] DisplaceError),
    /// Probes of the kernel cannot be set.
    #[error("uprobes cannot be set: {0} (they take root, and a kernel from 6.6 with BPF; `--collector ptrace` takes neither)")]
    Uprobes(io::Error),
    /// The subject does what is not foreseen.
    #[error("the subject cannot be controlled: {what}")]
    Unexpected {
        /// What happened.
        what: String,
    },
    /// No room in the address space of the program.
    #[error(
        "programs may use {limit} bytes of addresses here (`ulimit -v`), and a trace needs {needed} more in the program: raise the hard \
         limit, run as root, or take `--collector ptrace`, which needs least"
    )]
    NoRoom {
        /// The limit, in bytes.
        limit: u64,
        /// What the collector needs, in bytes.
        needed: u64,
    },
    /// The subject filters its system calls.
    #[error(
        "the program filters its system calls (seccomp), and one in its name could end it: start it with `--no-repeat time`, and name no \
         library that it loads later"
    )]
    Filtered,
    /// A process that a trace would harm.
    #[error("process {process} cannot be traced: {why}")]
    Untraceable {
        /// The process.
        process: i32,
        /// What is in the way.
        why: String,
    },
    /// What is seen cannot be stored.
    #[error("what the trace saw cannot be stored: {0}. Free some space there, or set TMPDIR to another folder.")]
    Store(io::Error),
    /// Something failed, and the process is not as it was before.
    #[error("{error}; in process {process}, these changes could not be undone: {}", unrestored.join(", "))]
    Unrestored {
        /// What failed.
        error: Box<CollectError>,
        /// The process.
        process: i32,
        /// What could not be undone.
        unrestored: Vec<String>,
    },
    /// The system says no.
    #[error("the subject cannot be followed any more: {0}")]
    System(#[from] io::Error),
}

impl CollectError {
    /// This error, and what could not be undone after it.
    pub(crate) fn with_unrestored(self, process: i32, unrestored: Vec<String>) -> Self {
        match unrestored.is_empty() {
            true => self,
            false => Self::Unrestored { error: Box::new(self), process, unrestored },
        }
    }
}
