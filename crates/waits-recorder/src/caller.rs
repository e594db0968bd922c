//! Distinguishes calls that the program makes from calls that an MPI library makes for its own helper threads and processes.

use crate::images;

/// Prefixes of the file names of MPI libraries and their components.
const MPI_LIBRARY_PREFIXES: [&[u8]; 14] = [
    b"libmpi",
    b"libopen-",
    b"libmpich",
    b"libpmix",
    b"libprrte",
    b"libevent",
    b"libucp",
    b"libucs",
    b"libuct",
    b"libucc",
    b"libfabric",
    b"libpsm",
    b"mca_",
    b"libhwloc",
];

/// Returns true if no MPI library contains the code at the address.
pub fn is_program_code(address: usize) -> bool {
    let is_library = |name: &[u8]| MPI_LIBRARY_PREFIXES.iter().any(|library| name.starts_with(library));
    !images::any_image(|info| images::find_segment(info, address).is_some() && is_library(images::file_name(info)))
}
