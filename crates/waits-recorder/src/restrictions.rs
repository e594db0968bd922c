//! Programs that restrict themselves: by a filter of system calls (seccomp), or by a limit of their address space.
//!
//! - What a filter does with system calls of this library is not known, and it may end the program. So recording ends before a filter
//!   begins, in the whole process and in programs that it executes: from then on this library makes no system call.
//! - The limit that the kernel has is larger than the program's by what this library has mapped. The program sees its own.

use crate::lock::Lock;
use crate::real::{Real, real};
use crate::{output, process};
use core::ffi::{c_int, c_uint};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};
use libc::{pid_t, rlimit};

/// Makes a call, which may set a filter.
fn filtering<R: PartialEq + From<i8>>(is_filter: bool, call: impl FnOnce() -> R) -> R {
    if !is_filter || process::is_sealed() {
        return call();
    }
    process::seal();
    let result = call();
    if result == R::from(-1) {
        process::unseal();
    }
    result
}

/// Whether a call of `prctl` with these arguments sets a filter. Programs call it with null to see whether it is there.
fn sets_by_prctl(option: usize, mode: usize, filter: usize) -> bool {
    let (strict, filtered) = (libc::SECCOMP_MODE_STRICT as usize, libc::SECCOMP_MODE_FILTER as usize);
    option == libc::PR_SET_SECCOMP as usize && (mode == strict || mode == filtered && filter != 0)
}

/// The same for the system call `seccomp`.
fn sets_by_seccomp(operation: usize, flags: usize, filter: usize) -> bool {
    let (strict, filtered) = (libc::SECCOMP_SET_MODE_STRICT as usize, libc::SECCOMP_SET_MODE_FILTER as usize);
    operation == strict && flags == 0 && filter == 0 || operation == filtered && filter != 0
}

/// A system call by number that may set a filter. `call` makes it.
pub fn system_call(number: libc::c_long, [a, b, c]: [usize; 3], call: impl FnOnce() -> libc::c_long) -> libc::c_long {
    let is_filter = match number {
        libc::SYS_prctl => sets_by_prctl(a, b, c),
        libc::SYS_seccomp => sets_by_seccomp(a, b, c),
        _ => false,
    };
    filtering(is_filter, call)
}

/// Operations on a process. The function is variadic in C, with at most five arguments of a word.
///
/// # Safety
/// As the function of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    static REAL: Real = Real::new(c"prctl");
    filtering(sets_by_prctl(option as usize, a, b), || real!(REAL, fn(c_int, usize, usize, usize, usize) -> c_int, option, a, b, c, d))
}

/// By how much the kernel's limit of the address space is larger than the program's.
struct Allowance {
    /// What this library has mapped.
    soft: u64,
    /// What it may map: the maximum of a limit cannot be raised later. 0: the program has set no limit.
    hard: u64,
}

static ALLOWANCE: Lock<Allowance> = Lock::new(Allowance { soft: 0, hard: 0 });
/// Whether the program has set a limit.
static IS_LIMITED: AtomicBool = AtomicBool::new(false);
/// What this library maps at most, in bytes, once the program has set a limit.
const MAX_MAPPED: u64 = 1 << 30;

/// Whether the process began with a limit of its address space: no part of it is this library's.
pub fn began_limited() -> bool {
    !IS_LIMITED.load(Ordering::Acquire) && kernels_limit(None).is_ok_and(|limit| limit.rlim_cur != libc::RLIM_INFINITY)
}

/// This library is to map `bytes` more, or has less: the program's limit stays what it is. False if there is no room.
pub fn adjust(bytes: i64) -> bool {
    if !IS_LIMITED.load(Ordering::Acquire) {
        return true;
    }
    ALLOWANCE.with(|allowance| {
        let soft = allowance.soft.saturating_add_signed(bytes);
        let Ok(mut limit) = kernels_limit(None) else { return false };
        if limit.rlim_cur != libc::RLIM_INFINITY {
            limit.rlim_cur = limit.rlim_cur.saturating_sub(allowance.soft).saturating_add(soft);
        }
        let has_room = soft <= allowance.hard && kernels_limit(Some(limit)).is_ok();
        if has_room {
            allowance.soft = soft;
        }
        has_room
    })
}

/// In a forked child another thread of the parent may have been changing the limit.
pub fn begin_child() {
    ALLOWANCE.keep_in_child();
}

/// Sets the limit of the address space as the kernel has it, or asks for it. Gives the one before, or the error's number.
fn kernels_limit(new: Option<rlimit>) -> Result<rlimit, c_int> {
    let mut old = rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.as_ref().map_or(null(), core::ptr::from_ref);
    // SAFETY: a limit or null, and a limit that is written.
    let result = unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_AS, new, &raw mut old) };
    // SAFETY: the thread's own errno.
    if result == 0 { Ok(old) } else { Err(unsafe { *libc::__errno_location() }) }
}

/// Sets the limit of the address space as the program sees it, or asks for it. Gives the one before, or the error's number.
fn programs_limit(new: Option<rlimit>) -> Result<rlimit, c_int> {
    let less = |limit: u64, by: u64| if limit == libc::RLIM_INFINITY { limit } else { limit.saturating_sub(by) };
    let more = |limit: u64, by: u64| if limit == libc::RLIM_INFINITY { limit } else { limit.saturating_add(by) };
    ALLOWANCE.with(|allowance| {
        let begun = match allowance.hard {
            0 if new.is_some() => Allowance { soft: output::mapped(), hard: MAX_MAPPED },
            _ => Allowance { ..*allowance },
        };
        // A limit that is larger than its maximum is refused.
        let raised = |new: rlimit| rlimit {
            rlim_cur: if new.rlim_cur > new.rlim_max { libc::RLIM_INFINITY } else { more(new.rlim_cur, begun.soft) },
            rlim_max: more(new.rlim_max, begun.hard),
        };
        let old = kernels_limit(new.map(raised))?;
        let seen = rlimit { rlim_cur: less(old.rlim_cur, allowance.soft), rlim_max: less(old.rlim_max, allowance.hard) };
        if new.is_some() {
            *allowance = begun;
            IS_LIMITED.store(true, Ordering::Release);
        }
        Ok(seen)
    })
}

/// Whether a limit is this process's address space, and the program is to see its own.
fn is_adjusted(process: pid_t, resource: c_uint) -> bool {
    let is_own = process == 0 || process as u32 == process::name().0;
    resource == libc::RLIMIT_AS && is_own && !process::is_sealed() && process::names_folder()
}

/// What functions of the C library give.
fn completed(result: Result<rlimit, c_int>, old: *mut rlimit) -> c_int {
    match result {
        Ok(limit) => {
            // SAFETY: null, or by the caller's contract.
            unsafe { old.as_mut() }.into_iter().for_each(|old| *old = limit);
            0
        }
        Err(error) => {
            // SAFETY: the thread's own errno.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}

macro_rules! limits {
    ($($set:ident $get:ident $both:ident;)*) => { $(
        /// Sets a limit.
        ///
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(resource: c_uint, new: *const rlimit) -> c_int {
            // SAFETY: by the caller's contract.
            unsafe { $both(0, resource, new, null_mut()) }
        }
        /// Asks for a limit.
        ///
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(resource: c_uint, old: *mut rlimit) -> c_int {
            // SAFETY: by the caller's contract.
            unsafe { $both(0, resource, null(), old) }
        }
        /// Sets a limit, and asks for the one before.
        ///
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $both(process: pid_t, resource: c_uint, new: *const rlimit, old: *mut rlimit) -> c_int {
            static REAL: Real = Real::new(c"prlimit64");
            if is_adjusted(process, resource) {
                // SAFETY: by the caller's contract.
                return completed(programs_limit(unsafe { new.as_ref() }.copied()), old);
            }
            real!(REAL, fn(pid_t, c_uint, *const rlimit, *mut rlimit) -> c_int, process, resource, new, old)
        }
    )* };
}
limits! {
    setrlimit getrlimit prlimit;
    setrlimit64 getrlimit64 prlimit64;
}
