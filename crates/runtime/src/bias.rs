//! Reads and sets the calling thread's bias: the distance in bytes from the image's counters, which stay zero, to the region, the copy in
//! which this thread counts.

use crate::image;
use core::arch::asm;

pub fn thread_bias() -> i64 {
    let value: i64;
    // SAFETY: the word is a thread-local variable of this image, so its address is valid for reading.
    unsafe {
        asm!("mov {0}, [rip + __trodden_bias@GOTTPOFF]", "mov {0}, qword ptr fs:[{0}]", out(reg) value, options(nostack, readonly));
    }
    value
}

/// Sets the calling thread's bias. `direct` is the bias for increments that the code performs itself in residual builds, where the runtime
/// may have to see each count.
pub fn set_thread_bias(value: i64, direct: i64) {
    // SAFETY: the word is a thread-local variable of this image, which only this thread uses.
    unsafe {
        asm!("mov {0}, [rip + __trodden_bias@GOTTPOFF]", "mov qword ptr fs:[{0}], {1}", out(reg) _, in(reg) value, options(nostack));
    }
    if let Some(place) = image::residual_thread_state() {
        // SAFETY: the pointer refers to this thread's state, which no other thread uses.
        unsafe { (&raw mut (*place).bias).write_volatile(direct) };
    }
}
