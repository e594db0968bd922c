//! Who calls: the program, or an MPI library that makes threads and processes for itself.

use crate::images;

/// Names of libraries that make threads for MPI itself.
const LIBRARIES: [&[u8]; 14] = [
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

/// Whether the function at an address belongs to the program, not to an MPI library.
pub fn is_programs(address: usize) -> bool {
    let is_library = |name: &[u8]| LIBRARIES.iter().any(|library| name.starts_with(library));
    !images::any(|info| images::segment_at(info, address).is_some() && is_library(images::file_name(info)))
}
