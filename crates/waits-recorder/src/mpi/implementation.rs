//! The differences between MPI libraries: handles, constants, and the layout of `MPI_Status`, from `mpi.h` of Open MPI 4.1 and MPICH 4.0.
//!
//! | | Open MPI | MPICH |
//! |---|---|---|
//! | source and tag in a status | words 0 and 1 | words 2 and 3 |
//! | `MPI_ANY_SOURCE` | -1 | -2 |
//! | `MPI_PROC_NULL` | -2 | -1 |
//! | `MPI_ANY_TAG` | -1 | -1 |
//! | `MPI_STATUS_IGNORE`, `MPI_STATUSES_IGNORE` | 0 | 1 |

use crate::real::RealVariable;
use core::sync::atomic::{AtomicU8, Ordering};
use trodden_wire::waits::{ANY_PEER, ANY_TAG, NO_PEER, ROOT_PEER};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    OpenMpi,
    /// The handles of MPICH are 32-bit numbers, whereas those of Open MPI are addresses.
    Mpich,
}

pub const STATUS_WORDS: usize = 10;

static IMPLEMENTATION: AtomicU8 = AtomicU8::new(0);

/// Variables whose addresses are the handles of Open MPI's predefined communicators.
static WORLD: RealVariable = RealVariable::new(c"ompi_mpi_comm_world");
static SELF: RealVariable = RealVariable::new(c"ompi_mpi_comm_self");
static NONE: RealVariable = RealVariable::new(c"ompi_mpi_comm_null");

/// Returns which MPI library this process uses.
#[inline]
pub fn implementation() -> Implementation {
    match IMPLEMENTATION.load(Ordering::Relaxed) {
        1 => Implementation::OpenMpi,
        2 => Implementation::Mpich,
        _ => {
            let is_open = WORLD.address() != 0;
            IMPLEMENTATION.store(if is_open { 1 } else { 2 }, Ordering::Relaxed);
            implementation()
        }
    }
}

impl Implementation {
    /// Returns the name by which the recording's process file identifies the library.
    pub fn name(self) -> &'static [u8] {
        match self {
            Implementation::OpenMpi => b"openmpi",
            Implementation::Mpich => b"mpich",
        }
    }

    pub fn world_communicator(self) -> usize {
        match self {
            Implementation::OpenMpi => WORLD.address(),
            Implementation::Mpich => 0x4400_0000,
        }
    }

    pub fn self_communicator(self) -> usize {
        match self {
            Implementation::OpenMpi => SELF.address(),
            Implementation::Mpich => 0x4400_0001,
        }
    }

    pub fn no_communicator(self) -> usize {
        match self {
            Implementation::OpenMpi => NONE.address(),
            Implementation::Mpich => 0x0400_0000,
        }
    }

    #[inline]
    pub fn handle(self, argument: usize) -> usize {
        match self {
            Implementation::OpenMpi => argument,
            Implementation::Mpich => argument & 0xffff_ffff,
        }
    }

    /// Returns the `index`-th handle in an array, or 0 if the array's address is 0.
    ///
    /// # Safety
    /// `address` must be 0, or the address of an array with more than `index` handles.
    #[inline]
    pub unsafe fn read_handle(self, address: usize, index: usize) -> usize {
        if address == 0 {
            return 0;
        }
        match self {
            // SAFETY: the caller guarantees an array with more than `index` handles.
            Implementation::OpenMpi => unsafe { (address as *const usize).add(index).read() },
            // SAFETY: as above.
            Implementation::Mpich => unsafe { (address as *const u32).add(index).read() as usize },
        }
    }

    /// Returns true if a status argument means that the caller ignores the status.
    #[inline]
    pub fn is_ignored(self, status: usize) -> bool {
        match self {
            Implementation::OpenMpi => status == 0,
            Implementation::Mpich => status == 1 || status == 0,
        }
    }

    pub fn status_words(self) -> usize {
        match self {
            Implementation::OpenMpi => 6,
            Implementation::Mpich => 5,
        }
    }

    /// Returns the source and the tag in the `index`-th status of an array.
    ///
    /// # Safety
    /// `statuses` must be the address of an array with more than `index` statuses.
    #[inline]
    pub unsafe fn source_and_tag(self, statuses: usize, index: usize) -> (i32, i32) {
        // SAFETY: the caller guarantees an array with more than `index` statuses.
        let words = unsafe { (statuses as *const i32).add(index * self.status_words()) };
        let first = if self == Implementation::OpenMpi { 0 } else { 2 };
        // SAFETY: `first + 1` is less than the number of words in a status.
        unsafe { (self.recorded_peer(words.add(first).read() as usize), words.add(first + 1).read()) }
    }

    /// Converts a rank argument to its form in a record, which is the same for all MPI libraries.
    #[inline]
    pub fn recorded_peer(self, argument: usize) -> i32 {
        let rank = argument as i32;
        match (self, rank) {
            (Implementation::OpenMpi, -1) | (Implementation::Mpich, -2) => ANY_PEER,
            (_, 0..) => rank,
            _ => NO_PEER,
        }
    }

    /// Converts a root argument to its form in a record. Operations on an intercommunicator may pass `MPI_ROOT`.
    #[inline]
    pub fn recorded_root(self, argument: usize) -> i32 {
        match (self, argument as i32) {
            (Implementation::OpenMpi, -4) | (Implementation::Mpich, -3) => ROOT_PEER,
            (_, rank @ 0..) => rank,
            _ => NO_PEER,
        }
    }

    /// Converts a tag argument to its form in a record.
    #[inline]
    pub fn recorded_tag(self, argument: usize) -> i32 {
        let tag = argument as i32;
        if tag < 0 { ANY_TAG } else { tag }
    }
}
