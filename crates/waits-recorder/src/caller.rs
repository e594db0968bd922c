//! Distinguishes the program's own calls from those of an MPI library, which creates threads and processes for its own use.

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

/// Returns true if the code at the address does not belong to an MPI library.
pub fn is_program_code(address: usize) -> bool {
    let is_library = |name: &[u8]| MPI_LIBRARY_PREFIXES.iter().any(|library| name.starts_with(library));
    !images::any_image(|info| images::find_segment(info, address).is_some() && is_library(images::file_name(info)))
}
