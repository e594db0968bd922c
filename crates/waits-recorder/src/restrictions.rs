//! Support for programs that restrict themselves with a system call filter (seccomp) or an address space limit.
//!
//! - A filter might reject this library's system calls, or kill the program because of them. Before the program installs a filter,
//!   recording therefore ends in this process and in the programs that it executes, and this library stops making system calls.
//! - The limit that a program sets applies to the program alone. The kernel's limit is larger by the size of this library's mappings (see
//!   [`limits`]).

use crate::memory::mapped_bytes;
use crate::real::{RealFunction, real};
use crate::{limits, naming, process, thread};
use core::ffi::{c_int, c_uint};
use core::ptr::{null, null_mut};
use libc::{pid_t, rlimit};

fn call_with_filter<R: PartialEq + From<i8>>(is_filter: bool, call: impl FnOnce() -> R) -> R {
    if !is_filter || process::is_recording_sealed() {
        return call();
    }
    process::seal_recording();
    thread::end_timers();
    let result = call();
    if result == R::from(-1) {
        process::unseal_recording();
    }
    result
}

/// Returns true if `prctl` with these arguments installs a filter. Programs pass a null filter only to test whether the kernel supports
/// filters.
fn is_filter_prctl(option: usize, mode: usize, filter: usize) -> bool {
    let (strict, filtered) = (libc::SECCOMP_MODE_STRICT as usize, libc::SECCOMP_MODE_FILTER as usize);
    option == libc::PR_SET_SECCOMP as usize && (mode == strict || mode == filtered && filter != 0)
}

/// Returns true if `seccomp` with these arguments installs a filter.
fn is_filter_seccomp(operation: usize, flags: usize, filter: usize) -> bool {
    let (strict, filtered) = (libc::SECCOMP_SET_MODE_STRICT as usize, libc::SECCOMP_SET_MODE_FILTER as usize);
    operation == strict && flags == 0 && filter == 0 || operation == filtered && filter != 0
}

pub fn make_system_call(number: libc::c_long, [a, b, c]: [usize; 3], call: impl FnOnce() -> libc::c_long) -> libc::c_long {
    let is_filter = match number {
        libc::SYS_prctl => is_filter_prctl(a, b, c),
        libc::SYS_seccomp => is_filter_seccomp(a, b, c),
        _ => false,
    };
    call_with_filter(is_filter, call)
}

/// In C, the function is variadic and takes at most five word-sized arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    static REAL_FUNCTION: RealFunction = RealFunction::new(c"prctl");
    call_with_filter(is_filter_prctl(option as usize, a, b), || {
        real!(REAL_FUNCTION, fn(c_int, usize, usize, usize, usize) -> c_int, option, a, b, c, d)
    })
}

/// Returns true if a limit is the address space limit of this process, which this library adjusts.
fn is_own_address_space_limit(process: pid_t, resource: c_uint) -> bool {
    let is_own = process == 0 || process as u32 == naming::process_identity().0;
    resource == libc::RLIMIT_AS && is_own && !process::is_recording_sealed() && naming::has_folder()
}

/// Returns a result as C functions do: stores the old limit and returns 0, or sets errno and returns -1.
fn into_c_result(result: Result<rlimit, c_int>, old: *mut rlimit) -> c_int {
    match result {
        Ok(limit) => {
            // SAFETY: by the caller's contract, the pointer is null or writable.
            unsafe { old.as_mut() }.into_iter().for_each(|old| *old = limit);
            0
        }
        Err(error) => {
            // SAFETY: `__errno_location` points to the calling thread's errno.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

macro_rules! limits {
    ($($set:ident $get:ident $both:ident;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(resource: c_uint, new: *const rlimit) -> c_int {
            // SAFETY: the caller passes a pointer as `setrlimit` requires it.
            unsafe { $both(0, resource, new, null_mut()) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(resource: c_uint, old: *mut rlimit) -> c_int {
            // SAFETY: the caller passes a pointer as `getrlimit` requires it.
            unsafe { $both(0, resource, null(), old) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $both(process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int {
            static REAL_FUNCTION: RealFunction = RealFunction::new(c"prlimit64");
            if is_own_address_space_limit(process, resource) {
                // SAFETY: by the caller's contract, the pointer is null or refers to a limit.
                return into_c_result(limits::exchange_program_limit(unsafe { new.as_ref() }.copied(), mapped_bytes()), old);
            }
            real!(REAL_FUNCTION, fn(pid_t, c_uint, *const rlimit, *mut rlimit) -> c_int, process, resource, new, old)
        }
    )* };
}
limits! {
    setrlimit getrlimit prlimit;
    setrlimit64 getrlimit64 prlimit64;
}
