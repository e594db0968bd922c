//! MPI: wrappers of a table of functions, for Open MPI and MPICH at once.
//!
//! Both libraries take the same arguments in the same registers, and differ in handles (addresses or 32-bit numbers), constants, and
//! where a
//! status has source and tag. So every argument is passed on as it came, and `implementation.rs` knows the differences.

mod behaviour;
mod communicator;
mod files;
mod implementation;
mod requests;
mod table;
mod windows;

use crate::stack;
use core::ffi::{CStr, c_int, c_void};

/// Makes wrappers of the rows of the table.
macro_rules! wrappers {
    ($($name:ident $profiled:ident [$($argument:ident)*] $behaviour:ident($($parameter:expr),*);)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: usize),*) -> i32 {
            // SAFETY: the same function.
            unsafe { $profiled($($argument),*) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $profiled($($argument: usize),*) -> i32 {
            static REAL: crate::real::Real = crate::real::Real::new(crate::real::name!($profiled));
            wrappers!(@call $behaviour, $name, REAL, [$($argument)*], [$($parameter),*])
        }
    )* };
    (@call $behaviour:ident, $name:ident, $real:ident, [$($argument:ident)*], [$($parameter:expr),*]) => {{
        let mut arguments: [usize; { 0 $(+ { let _ = stringify!($argument); 1 })* }] = [$($argument),*];
        $behaviour($(($parameter),)* Function::$name, &mut arguments, |arguments| {
            let [$($argument),*] = *arguments;
            // SAFETY: the function of that name takes this many arguments, each an integer or an address.
            let function = unsafe { core::mem::transmute::<usize,
                unsafe extern "C" fn($(wrappers!(@word $argument)),*) -> i32>($real.get()) };
            // SAFETY: the arguments are the caller's own.
            unsafe { function($($argument),*) }
        })
    }};
    (@word $argument:ident) => { usize };
}
use wrappers;

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

/// Whether the function that calls this library belongs to the program, not to an MPI library.
pub fn is_callers_own() -> bool {
    let walk = stack::walk(0);
    let mut search = Search { address: walk.addresses[0], is_library: false };
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
