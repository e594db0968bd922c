//! The differences between MPI libraries: handles, constants, and the layout of a status.
//!
//! From `mpi.h` of Open MPI 4.1 and MPICH 4.0, respectively: source and tag are words 0 and 1 or words 2 and 3 of a status; any source is
//! -1 or -2, no process -2 or -1, any tag -1 in both; the address of an ignored status is 0 or 1, also for arrays.

use crate::real::Variable;
use core::sync::atomic::{AtomicU8, Ordering};
use trodden_wire::waits::{ANY_PEER, ANY_TAG, NO_PEER, ROOT_PEER};

/// An MPI library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// Handles are addresses.
    OpenMpi,
    /// Handles are 32-bit numbers.
    Mpich,
}

/// An upper bound for the number of words in a status.
pub const STATUS_WORDS: usize = 10;

static FOUND: AtomicU8 = AtomicU8::new(0);

/// Open MPI's predefined communicators are variables.
static WORLD: Variable = Variable::new(c"ompi_mpi_comm_world");
static SELF: Variable = Variable::new(c"ompi_mpi_comm_self");
static NONE: Variable = Variable::new(c"ompi_mpi_comm_null");

/// The library in this process.
#[inline]
pub fn implementation() -> Implementation {
    match FOUND.load(Ordering::Relaxed) {
        1 => Implementation::OpenMpi,
        2 => Implementation::Mpich,
        _ => {
            let is_open = WORLD.address() != 0;
            FOUND.store(if is_open { 1 } else { 2 }, Ordering::Relaxed);
            implementation()
        }
    }
}

impl Implementation {
    /// The name used in the process file.
    pub fn name(self) -> &'static [u8] {
        match self {
            Implementation::OpenMpi => b"openmpi",
            Implementation::Mpich => b"mpich",
        }
    }

    /// MPI_COMM_WORLD.
    pub fn world(self) -> usize {
        match self {
            Implementation::OpenMpi => WORLD.address(),
            Implementation::Mpich => 0x4400_0000,
        }
    }

    /// MPI_COMM_SELF.
    pub fn own(self) -> usize {
        match self {
            Implementation::OpenMpi => SELF.address(),
            Implementation::Mpich => 0x4400_0001,
        }
    }

    /// MPI_COMM_NULL.
    pub fn no_communicator(self) -> usize {
        match self {
            Implementation::OpenMpi => NONE.address(),
            Implementation::Mpich => 0x0400_0000,
        }
    }

    /// The handle in an argument.
    #[inline]
    pub fn handle(self, argument: usize) -> usize {
        match self {
            Implementation::OpenMpi => argument,
            Implementation::Mpich => argument & 0xffff_ffff,
        }
    }

    /// The handle at an address; 0 if the address is 0.
    ///
    /// # Safety
    /// The address is 0, or the address of an array with more than `index` handles.
    #[inline]
    pub unsafe fn handle_at(self, address: usize, index: usize) -> usize {
        if address == 0 {
            return 0;
        }
        match self {
            // SAFETY: by the caller's contract.
            Implementation::OpenMpi => unsafe { (address as *const usize).add(index).read() },
            // SAFETY: by the caller's contract.
            Implementation::Mpich => unsafe { (address as *const u32).add(index).read() as usize },
        }
    }

    /// Whether a status argument means that the caller ignores the status.
    #[inline]
    pub fn is_ignored(self, status: usize) -> bool {
        match self {
            Implementation::OpenMpi => status == 0,
            Implementation::Mpich => status == 1 || status == 0,
        }
    }

    /// Number of words of a status.
    pub fn status_words(self) -> usize {
        match self {
            Implementation::OpenMpi => 6,
            Implementation::Mpich => 5,
        }
    }

    /// Source and tag in a status.
    ///
    /// # Safety
    /// `statuses` is the address of an array with more than `index` statuses.
    #[inline]
    pub unsafe fn source_and_tag(self, statuses: usize, index: usize) -> (i32, i32) {
        // SAFETY: by the caller's contract.
        let words = unsafe { (statuses as *const i32).add(index * self.status_words()) };
        let first = if self == Implementation::OpenMpi { 0 } else { 2 };
        // SAFETY: a status has more words than these.
        unsafe { (self.peer(words.add(first).read() as usize), words.add(first + 1).read()) }
    }

    /// The recorded value of a rank argument.
    #[inline]
    pub fn peer(self, argument: usize) -> i32 {
        let rank = argument as i32;
        match (self, rank) {
            (Implementation::OpenMpi, -1) | (Implementation::Mpich, -2) => ANY_PEER,
            (_, 0..) => rank,
            _ => NO_PEER,
        }
    }

    /// The recorded value of a root argument, which may be MPI_ROOT in an operation on an intercommunicator.
    #[inline]
    pub fn root(self, argument: usize) -> i32 {
        match (self, argument as i32) {
            (Implementation::OpenMpi, -4) | (Implementation::Mpich, -3) => ROOT_PEER,
            (_, rank @ 0..) => rank,
            _ => NO_PEER,
        }
    }

    /// The recorded value of a tag argument.
    #[inline]
    pub fn tag(self, argument: usize) -> i32 {
        let tag = argument as i32;
        if tag < 0 { ANY_TAG } else { tag }
    }
}
