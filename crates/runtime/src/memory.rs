//! The C functions that compilers call to copy and compare memory. They are local to the object, because programs without libc lack them.
//! They use string instructions, because the compiler would turn a loop into a call to the very function that contains it.

use core::arch::asm;

/// # Safety
/// The caller must fulfil the C function's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller guarantees `length` bytes at `from` and `to`, and the ABI guarantees that the direction flag is clear.
    unsafe { asm!("rep movsb", inout("rcx") length => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags)) }
    to
}

/// # Safety
/// The caller must fulfil the C function's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, length: usize) -> *mut u8 {
    // SAFETY: the caller guarantees `length` bytes at `to`, and the ABI guarantees that the direction flag is clear.
    unsafe { asm!("rep stosb", inout("rcx") length => _, inout("rdi") to => _, in("al") byte as u8, options(nostack, preserves_flags)) }
    to
}

/// # Safety
/// The caller must fulfil the C function's contract.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
    let differ: u8;
    // SAFETY: the caller guarantees `length` bytes at both addresses. The first comparison makes empty ranges count as equal.
    unsafe {
        asm!("cmp rcx, rcx", "repe cmpsb", "setne {0}", out(reg_byte) differ,
            inout("rcx") length => _, inout("rdi") one => _, inout("rsi") other => _, options(nostack, readonly));
    }
    i32::from(differ)
}
