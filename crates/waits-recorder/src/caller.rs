//! Who calls: the program, or an MPI library that makes threads and processes for itself.

use core::ffi::{CStr, c_int, c_void};

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
    let mut search = Search { address, is_library: false };
    // SAFETY: the callback gets this state.
    unsafe { libc::dl_iterate_phdr(Some(search_image), (&raw mut search).cast()) };
    !search.is_library
}

struct Search {
    address: usize,
    is_library: bool,
}

unsafe extern "C" fn search_image(info: *mut libc::dl_phdr_info, _: usize, state: *mut c_void) -> c_int {
    // SAFETY: the linker's own record, and the caller's state.
    let (info, search) = unsafe { (&*info, &mut *state.cast::<Search>()) };
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the record says how many there are.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        let start = (info.dlpi_addr + header.p_vaddr) as usize;
        if header.p_type == libc::PT_LOAD && (start..start + header.p_memsz as usize).contains(&search.address) {
            // SAFETY: the linker's own string.
            let path = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
            let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
            search.is_library = LIBRARIES.iter().any(|library| name.starts_with(library));
            return 1;
        }
    }
    0
}
