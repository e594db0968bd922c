//! The limit of the address space (RLIMIT_AS) that a program sets itself: the kernel's is larger by what this library maps.

use crate::lock::Lock;
use core::ffi::c_int;
use core::ptr::null;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::rlimit;

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

/// Sets the limit of the address space as the program sees it, or asks for it. `mapped`: what this library has mapped. Gives the limit
/// before, or the error's number.
pub fn programs_limit(new: Option<rlimit>, mapped: u64) -> Result<rlimit, c_int> {
    let less = |limit: u64, by: u64| if limit == libc::RLIM_INFINITY { limit } else { limit.saturating_sub(by) };
    let more = |limit: u64, by: u64| if limit == libc::RLIM_INFINITY { limit } else { limit.saturating_add(by) };
    ALLOWANCE.with(|allowance| {
        let begun = match allowance.hard {
            0 if new.is_some() => Allowance { soft: mapped, hard: MAX_MAPPED },
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
