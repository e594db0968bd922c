//! The calling thread's bias: the distance in bytes from the counter template to the region in which the thread counts.

use crate::image;
use core::arch::asm;

pub fn bias() -> i64 {
    let value: i64;
    // SAFETY: reads a thread-local word of this image.
    unsafe {
        asm!("mov {0}, [rip + __trodden_bias@GOTTPOFF]", "mov {0}, qword ptr fs:[{0}]", out(reg) value, options(nostack, readonly));
    }
    value
}

/// Sets the calling thread's bias. `direct` is the bias with which residual code counts without calling the runtime.
pub fn set_bias(value: i64, direct: i64) {
    // SAFETY: writes a thread-local word of this image, which only this thread uses.
    unsafe {
        asm!("mov {0}, [rip + __trodden_bias@GOTTPOFF]", "mov qword ptr fs:[{0}], {1}", out(reg) _, in(reg) value, options(nostack));
    }
    if let Some(place) = image::residual_thread() {
        // SAFETY: as above.
        unsafe { (&raw mut (*place).bias).write_volatile(direct) };
    }
}
