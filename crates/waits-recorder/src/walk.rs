//! The calling thread's stack, unwound by DWARF tables, without the frames of this library.

use crate::images;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of frames in a stack; outer frames are dropped.
pub const DEPTH: usize = 40;
unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> i32, state: *mut c_void) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// The stack pointer. If it is equal in two calls on the same call path, their frames have the same layout.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: this only reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: this only reads a register.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// The result of unwinding.
pub struct StackWalk {
    pub addresses: [usize; DEPTH],
    /// The stack slot of each address.
    pub slots: [usize; DEPTH],
    pub count: usize,
    /// Frames up to and including the frame at this address are left out; 0 to leave out none.
    from: usize,
}

/// Unwinds the calling thread's stack. If `from` is the address of an interrupted instruction, its frame and all inner frames are left out.
/// If `from` is 0, the stack begins with the innermost frame outside this library.
pub fn walk(from: usize) -> StackWalk {
    own_range();
    let mut walk = StackWalk { addresses: [0; DEPTH], slots: [0; DEPTH], count: 0, from };
    // SAFETY: `walk` lives until the call returns, and only `step` uses the pointer.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk
}

extern "C" fn step(context: *mut c_void, state: *mut c_void) -> i32 {
    const CONTINUE: i32 = 0;
    const STOP: i32 = 4;
    // SAFETY: `state` is the live `StackWalk` that `walk` passed, and the unwinder passes a valid `context`.
    let (walk, address, frame) = unsafe { (&mut *state.cast::<StackWalk>(), _Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    if walk.from != 0 {
        if address == walk.from {
            walk.from = 0;
        }
        return CONTINUE;
    }
    if is_own(address) {
        return CONTINUE;
    }
    if walk.count == DEPTH || address == 0 {
        return STOP;
    }
    walk.addresses[walk.count] = address;
    walk.slots[walk.count] = frame.wrapping_sub(size_of::<usize>());
    walk.count += 1;
    CONTINUE
}

static OWN_START: AtomicUsize = AtomicUsize::new(0);
static OWN_END: AtomicUsize = AtomicUsize::new(0);

/// Whether an address is in this library.
pub fn is_own(address: usize) -> bool {
    (OWN_START.load(Ordering::Relaxed)..OWN_END.load(Ordering::Relaxed)).contains(&address)
}

/// Finds this library's address range, once.
pub fn own_range() {
    if OWN_END.load(Ordering::Acquire) == 0 {
        images::any(|info| {
            let range = images::segment_at(info, own_range as *const () as usize);
            if let Some(range) = &range {
                OWN_START.store(range.start, Ordering::Release);
                OWN_END.store(range.end, Ordering::Release);
            }
            range.is_some()
        });
    }
}
