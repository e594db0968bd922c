//! Address space limits (RLIMIT_AS) of a recorded program. This library's own mappings must not count against the limit that the program
//! sets for itself, so the kernel's limit is kept larger by their size.

use crate::lock::Lock;
use core::ffi::c_int;
use core::ptr::null;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::rlimit;

/// Number of bytes by which the kernel's limits exceed the limits that the program has set.
struct LimitAllowance {
    /// Number of bytes added to the soft limit. This is how much memory this library has mapped.
    soft: u64,
    /// Number of bytes added to the hard limit, which cannot be raised later. This is how much memory this library may ever map; 0 until
    /// the program sets a limit.
    hard: u64,
}

static LIMIT_ALLOWANCE: Lock<LimitAllowance> = Lock::new(LimitAllowance { soft: 0, hard: 0 });
/// True once the program has set a limit.
static IS_ADDRESS_SPACE_LIMITED: AtomicBool = AtomicBool::new(false);
/// Maximum number of bytes that this library maps after the program has set a limit.
const MAX_MAPPED_BYTES: u64 = 1 << 30;

/// Returns true if the process was started with an address space limit. Such a limit leaves no extra room for this library.
pub fn has_started_with_address_limit() -> bool {
    !IS_ADDRESS_SPACE_LIMITED.load(Ordering::Acquire)
        && exchange_kernel_limit(None).is_ok_and(|limit| limit.rlim_cur != libc::RLIM_INFINITY)
}

/// Raises the kernel's limit by `bytes`, or lowers it if `bytes` is negative. This library calls it before it maps memory and after it
/// unmaps memory, so that the program can use as much as before. Returns false if the limit cannot be raised.
pub fn adjust_kernel_limit(bytes: i64) -> bool {
    if !IS_ADDRESS_SPACE_LIMITED.load(Ordering::Acquire) {
        return true;
    }
    LIMIT_ALLOWANCE.with(|allowance| {
        let soft = allowance.soft.saturating_add_signed(bytes);
        let Ok(mut limit) = exchange_kernel_limit(None) else { return false };
        if limit.rlim_cur != libc::RLIM_INFINITY {
            limit.rlim_cur = limit.rlim_cur.saturating_sub(allowance.soft).saturating_add(soft);
        }
        let has_room = soft <= allowance.hard && exchange_kernel_limit(Some(limit)).is_ok();
        if has_room {
            allowance.soft = soft;
        }
        has_room
    })
}

/// Frees the lock in a forked child, because the thread that held it may not exist there.
pub fn reset_in_child() {
    LIMIT_ALLOWANCE.unlock_in_child();
}

/// Sets or queries the kernel's address space limit. Returns the previous limit, or errno.
fn exchange_kernel_limit(new: Option<rlimit>) -> Result<rlimit, c_int> {
    let mut old = rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.as_ref().map_or(null(), core::ptr::from_ref);
    // SAFETY: the first pointer is null or refers to a valid limit; the second refers to a local variable.
    let result = unsafe { libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_AS, new, &raw mut old) };
    // SAFETY: `__errno_location` points to the calling thread's errno.
    if result == 0 { Ok(old) } else { Err(unsafe { *libc::__errno_location() }) }
}

/// Sets the address space limit for the program if `new` is given. `mapped` is the number of bytes that this library has mapped. Returns
/// the previous limit, or errno; both limits are without the allowance for this library.
pub fn exchange_program_limit(new: Option<rlimit>, mapped: u64) -> Result<rlimit, c_int> {
    let less = |limit: u64, by: u64| if limit == libc::RLIM_INFINITY { limit } else { limit.saturating_sub(by) };
    let more = |limit: u64, by: u64| if limit == libc::RLIM_INFINITY { limit } else { limit.saturating_add(by) };
    LIMIT_ALLOWANCE.with(|allowance| {
        let next_allowance = match allowance.hard {
            0 if new.is_some() => LimitAllowance { soft: mapped, hard: MAX_MAPPED_BYTES },
            _ => LimitAllowance { ..*allowance },
        };
        // The kernel rejects a soft limit above the hard limit. The soft limit becomes infinite here, so that it stays above the raised
        // hard limit and the kernel still rejects the pair.
        let raised = |new: rlimit| rlimit {
            rlim_cur: if new.rlim_cur > new.rlim_max { libc::RLIM_INFINITY } else { more(new.rlim_cur, next_allowance.soft) },
            rlim_max: more(new.rlim_max, next_allowance.hard),
        };
        let old = exchange_kernel_limit(new.map(raised))?;
        let seen = rlimit { rlim_cur: less(old.rlim_cur, allowance.soft), rlim_max: less(old.rlim_max, allowance.hard) };
        if new.is_some() {
            *allowance = next_allowance;
            IS_ADDRESS_SPACE_LIMITED.store(true, Ordering::Release);
        }
        Ok(seen)
    })
}
