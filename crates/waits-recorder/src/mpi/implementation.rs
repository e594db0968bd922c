//! What differs between MPI libraries: handles, constants, the layout of a status.
//!
//! Facts of Open MPI 4.1 and MPICH 4.0 (`mpi.h` of both): source and tag are words 0 and 1 of a status, or 2 and 3; any source is -1
//! or -2, no
//! process -2 or -1, any tag -1; an ignored status is address 0 or 1, ignored statuses likewise.

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

/// Larger than any status.
pub const STATUS_WORDS: usize = 10;

static FOUND: AtomicU8 = AtomicU8::new(0);

/// Open MPI's communicators, which are variables.
static WORLD: Variable = Variable::new(c"ompi_mpi_comm_world");
static OWN: Variable = Variable::new(c"ompi_mpi_comm_self");
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
    /// Its name in the process's file.
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
            Implementation::OpenMpi => OWN.address(),
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

    /// A handle as it was passed.
    #[inline]
    pub fn handle(self, argument: usize) -> usize {
        match self {
            Implementation::OpenMpi => argument,
            Implementation::Mpich => argument & 0xffff_ffff,
        }
    }

    /// The handle at an address; 0 for none.
    ///
    /// # Safety
    /// The address is that of the `index`-th handle of an array, or 0.
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

    /// Whether a status argument says that none is wanted.
    #[inline]
    pub fn is_ignored(self, status: usize) -> bool {
        match self {
            Implementation::OpenMpi => status == 0,
            Implementation::Mpich => status == 1 || status == 0,
        }
    }

    /// Words of a status.
    pub fn status_words(self) -> usize {
        match self {
            Implementation::OpenMpi => 6,
            Implementation::Mpich => 5,
        }
    }

    /// Source and tag in a status.
    ///
    /// # Safety
    /// The address is that of the `index`-th status of an array.
    #[inline]
    pub unsafe fn source_and_tag(self, statuses: usize, index: usize) -> (i32, i32) {
        // SAFETY: by the caller's contract.
        let words = unsafe { (statuses as *const i32).add(index * self.status_words()) };
        let first = if self == Implementation::OpenMpi { 0 } else { 2 };
        // SAFETY: a status has more words.
        unsafe { (self.peer(words.add(first).read() as usize), words.add(first + 1).read()) }
    }

    /// A rank argument in the recording's terms.
    #[inline]
    pub fn peer(self, argument: usize) -> i32 {
        let rank = argument as i32;
        match (self, rank) {
            (Implementation::OpenMpi, -1) | (Implementation::Mpich, -2) => ANY_PEER,
            (_, 0..) => rank,
            _ => NO_PEER,
        }
    }

    /// A root argument in the recording's terms. Of an operation between two groups it may be MPI_ROOT.
    #[inline]
    pub fn root(self, argument: usize) -> i32 {
        match (self, argument as i32) {
            (Implementation::OpenMpi, -4) | (Implementation::Mpich, -3) => ROOT_PEER,
            (_, rank @ 0..) => rank,
            _ => NO_PEER,
        }
    }

    /// A tag argument in the recording's terms.
    #[inline]
    pub fn tag(self, argument: usize) -> i32 {
        let tag = argument as i32;
        if tag < 0 { ANY_TAG } else { tag }
    }
}
