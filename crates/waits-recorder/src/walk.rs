//! Unwinds the calling thread's stack with DWARF tables. Frames of this library are left out.

use crate::images;
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of frames in a recorded stack. Further outer frames are dropped.
pub const MAX_RECORDED_STACK_FRAMES: usize = 40;
unsafe extern "C" {
    fn _Unwind_Backtrace(visit_frame: extern "C" fn(*mut c_void, *mut c_void) -> i32, state: *mut c_void) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// Returns the value of the stack pointer register. Always inlined, so that it is the caller's stack pointer.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reading a register has no side effects.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reading a register has no side effects.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

pub struct StackWalk {
    pub addresses: [usize; MAX_RECORDED_STACK_FRAMES],
    /// Addresses of the stack slots that contain the return addresses.
    pub slots: [usize; MAX_RECORDED_STACK_FRAMES],
    pub count: usize,
    /// Address of the last frame to leave out; 0 after that frame has been reached.
    skip_until: usize,
}

/// Unwinds the calling thread's stack. In a signal handler, `skip_until` is the address of the interrupted instruction: its frame and the
/// frames inside it are left out. If it is 0, the stack begins with the innermost frame outside this library.
pub fn unwind_stack(skip_until: usize) -> StackWalk {
    find_own_code_range();
    let mut walk = StackWalk { addresses: [0; MAX_RECORDED_STACK_FRAMES], slots: [0; MAX_RECORDED_STACK_FRAMES], count: 0, skip_until };
    // SAFETY: `walk` lives until the call returns, and only `visit_frame` uses the pointer.
    unsafe { _Unwind_Backtrace(visit_frame, (&raw mut walk).cast()) };
    walk
}

extern "C" fn visit_frame(context: *mut c_void, state: *mut c_void) -> i32 {
    const UNWIND_CONTINUE: i32 = 0;
    const UNWIND_STOP: i32 = 4;
    // SAFETY: `state` is the `StackWalk` that `unwind_stack` passed, which is still alive, and the unwinder passes a valid `context`.
    let (walk, address, frame) = unsafe { (&mut *state.cast::<StackWalk>(), _Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    if walk.skip_until != 0 {
        if address == walk.skip_until {
            walk.skip_until = 0;
        }
        return UNWIND_CONTINUE;
    }
    if is_own_code(address) {
        return UNWIND_CONTINUE;
    }
    if walk.count == MAX_RECORDED_STACK_FRAMES || address == 0 {
        return UNWIND_STOP;
    }
    walk.addresses[walk.count] = address;
    walk.slots[walk.count] = frame.wrapping_sub(size_of::<usize>());
    walk.count += 1;
    UNWIND_CONTINUE
}

static OWN_CODE_START: AtomicUsize = AtomicUsize::new(0);
static OWN_CODE_END: AtomicUsize = AtomicUsize::new(0);

pub fn is_own_code(address: usize) -> bool {
    (OWN_CODE_START.load(Ordering::Relaxed)..OWN_CODE_END.load(Ordering::Relaxed)).contains(&address)
}

/// Finds this library's address range, unless it is already known.
pub fn find_own_code_range() {
    if OWN_CODE_END.load(Ordering::Acquire) == 0 {
        images::any_image(|info| {
            let range = images::find_segment(info, find_own_code_range as *const () as usize);
            if let Some(range) = &range {
                OWN_CODE_START.store(range.start, Ordering::Release);
                OWN_CODE_END.store(range.end, Ordering::Release);
            }
            range.is_some()
        });
    }
}
