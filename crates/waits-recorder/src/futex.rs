//! Wraps the C function `syscall`, because Rust's `std::sync` and other libraries make futex system calls with it. Other system calls are
//! passed on unchanged.
//!
//! The function is variadic in C. On x86-64 and AArch64, its arguments are passed like those of a function with seven integers.

use crate::process::fork;
use crate::real::{RealFunction, real};
use crate::restrictions;
use crate::thread::{begin_record, finish_record, recordable_thread, run_unrecorded};
use core::ffi::c_long;
use trodden_wire::waits::{CallName, kind};

const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;
const FUTEX_WAIT_BITSET: usize = 9;
const FUTEX_WAKE_BITSET: usize = 10;
/// Bits of the futex argument that contain the operation. The other bits are flags.
const FUTEX_OPERATION_MASK: usize = 0x7f;

static REAL_FUNCTION: RealFunction = RealFunction::new(c"syscall");

fn system_call(number: c_long, [a, b, c, d, e, f]: [usize; 6]) -> c_long {
    real!(REAL_FUNCTION, fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long, number, a, b, c, d, e, f)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    let call = || system_call(number, [a, b, c, d, e, f]);
    if number != libc::SYS_futex {
        let result = restrictions::make_system_call(number, [a, b, c], call);
        fork::handle_fork_by_system_call(number, a, result);
        return result;
    }
    let kind = match b & FUTEX_OPERATION_MASK {
        FUTEX_WAIT | FUTEX_WAIT_BITSET => kind::FUTEX_WAIT,
        FUTEX_WAKE | FUTEX_WAKE_BITSET => kind::FUTEX_WAKE,
        _ => return call(),
    };
    let Some(thread) = recordable_thread() else { return call() };
    let Some(mut open) = begin_record(thread, kind, CallName::futex) else { return call() };
    let record = open.record();
    record.object = a as u64;
    if kind == kind::FUTEX_WAKE {
        // The record is completed before the call, because the woken thread may continue at once.
        record.size_or_count = c as u64;
        finish_record(thread, open);
        return run_unrecorded(thread, call);
    }
    let result = call();
    // SAFETY: `__errno_location` points to the calling thread's errno.
    let error = unsafe { *libc::__errno_location() };
    open.record().size_or_count = if result == -1 { error as u64 } else { 0 };
    finish_record(thread, open);
    // SAFETY: as above. errno is restored, because writing the record may have changed it.
    unsafe { *libc::__errno_location() = error };
    result
}
