//! The calling thread's stack, unwound through DWARF tables; this library's own frames are left out.

use crate::images;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Frames that are kept.
pub const DEPTH: usize = 40;
unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> i32, state: *mut c_void) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// The stack pointer here: where it is equal at two calls from equal paths, the frames are laid out equally.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// What an unwinding finds.
pub struct StackWalk {
    pub addresses: [usize; DEPTH],
    /// Where each of them lies.
    pub slots: [usize; DEPTH],
    pub count: usize,
    /// Frames up to this address are left out; 0: none.
    from: usize,
}

/// Unwinds the calling thread's stack. `from`: an instruction, above which the stack begins (that of an interrupted function); 0: at the
/// first frame that is not this library's.
pub fn walk(from: usize) -> StackWalk {
    own_range();
    let mut walk = StackWalk { addresses: [0; DEPTH], slots: [0; DEPTH], count: 0, from };
    // SAFETY: `step` gets this state.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk
}

extern "C" fn step(context: *mut c_void, state: *mut c_void) -> i32 {
    const GO_ON: i32 = 0;
    const STOP: i32 = 4;
    // SAFETY: `walk` passes its state, the unwinder its context.
    let (walk, address, frame) = unsafe { (&mut *state.cast::<StackWalk>(), _Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    if walk.from != 0 {
        if address == walk.from {
            walk.from = 0;
        }
        return GO_ON;
    }
    if is_own(address) {
        return GO_ON;
    }
    if walk.count == DEPTH || address == 0 {
        return STOP;
    }
    walk.addresses[walk.count] = address;
    walk.slots[walk.count] = frame.wrapping_sub(size_of::<usize>());
    walk.count += 1;
    GO_ON
}

static OWN_START: AtomicUsize = AtomicUsize::new(0);
static OWN_END: AtomicUsize = AtomicUsize::new(0);

/// Whether an address lies in this library.
pub fn is_own(address: usize) -> bool {
    (OWN_START.load(Ordering::Relaxed)..OWN_END.load(Ordering::Relaxed)).contains(&address)
}

/// Finds this library's addresses, once.
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
