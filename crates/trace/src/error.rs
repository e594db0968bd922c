//! Errors of tracing a run.

use crate::displaced::DisplaceError;
use crate::programs::TraceError;
use std::io;
use std::path::PathBuf;

/// Why a run could not be traced.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The file is not a program that can be traced.
    #[error("{} {fault}", path.display())]
    Executable {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file, as a verb phrase.
        fault: String,
    },
    /// The program cannot be started or followed.
    #[error(transparent)]
    Start(TraceError),
    /// The process cannot be attached to.
    #[error(
        "cannot trace process {process}: {source}. The process must be yours and have no debugger attached; if the Yama security module \
         forbids tracing, run as root"
    )]
    Attach {
        /// The process.
        process: i32,
        /// The system's error.
        source: io::Error,
    },
    /// There are more sites than one run can watch.
    #[error("one run can watch at most {max} blocks, but {sites} must be watched. Use more runs (--runs), or exclude functions (--opaque)")]
    TooManySites {
        /// The number of sites.
        sites: usize,
        /// The maximum.
        max: usize,
    },
    /// A site is not code.
    #[error(
        "address {address:#x} is not in the code of {}, so the tracing plan was made for a different build. Create the plan again",
        path.display()
    )]
    NoCode {
        /// The file address.
        address: u64,
        /// The image.
        path: PathBuf,
    },
    /// An instruction cannot be displaced.
    #[error(transparent)]
    Displace(#[from] DisplaceError),
    /// The kernel rejects the uprobes.
    #[error(
        "cannot set uprobes (the kernel's breakpoints): {0}. They need root and Linux 6.6 or later with BPF; `--collector ptrace` needs \
         neither"
    )]
    Uprobes(io::Error),
    /// The traced program behaves in an unexpected way.
    #[error("cannot control the traced program: {what}")]
    Unexpected {
        /// What happened.
        what: String,
    },
    /// The address space of the program has no room for the collector's mappings.
    #[error(
        "the limit on address space (`ulimit -v`) is {limit} bytes, but tracing needs {needed} bytes more. Raise the hard limit, run as \
         root, or use `--collector ptrace`, which needs least"
    )]
    NoRoom {
        /// The limit in bytes.
        limit: u64,
        /// The size in bytes of the collector's mappings.
        needed: u64,
    },
    /// The traced program filters its system calls (seccomp).
    #[error(
        "the program filters its system calls (seccomp), so a system call that tracing adds could kill the program. With several runs, \
         pass `--no-repeat time`, and trace no library that is loaded later"
    )]
    Filtered,
    /// Tracing the process is impossible or would harm it.
    #[error("cannot trace process {process}: {why}")]
    Untraceable {
        /// The process.
        process: i32,
        /// The reason, and what to do.
        why: String,
    },
    /// Recorded hits cannot be stored.
    #[error("cannot store the trace: {0}. Free some space, or set TMPDIR to a different folder")]
    Store(io::Error),
    /// Something failed, and some changes to the process remain.
    #[error("{error}. Some changes to process {process} could not be undone: {}", unrestored.join(", "))]
    Unrestored {
        /// What failed.
        error: Box<CollectError>,
        /// The process.
        process: i32,
        /// The changes that remain.
        unrestored: Vec<String>,
    },
    /// A system call failed.
    #[error("cannot trace the program any further: {0}")]
    System(#[from] io::Error),
}

impl CollectError {
    /// Returns true if the program itself cannot be traced, whatever the state of the machine is.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Executable { .. } | Self::TooManySites { .. } | Self::NoCode { .. } | Self::Displace(_))
    }

    /// Wraps the error in [`Self::Unrestored`] if there are changes that could not be undone.
    pub(crate) fn with_unrestored(self, process: i32, unrestored: Vec<String>) -> Self {
        match unrestored.is_empty() {
            true => self,
            false => Self::Unrestored { error: Box::new(self), process, unrestored },
        }
    }
}
