//! What instrumented code calls to go on with its thread's stream: a chunk is full, or a thread has no frame yet.

use crate::bias::bias;
use crate::chunks;
use crate::image::Image;
use crate::life;
use crate::stream::{WORD, thread_stream};
use crate::stub;
use crate::system;
use core::arch::global_asm;
use core::sync::atomic::AtomicU64;

// Jumped to with the cursor (the shadow stack pointer) in rax and the place to go on in r11, which code does after its
// red zone was left alone. rax, r11 and flags are changed.
macro_rules! stub {
    ($name:literal, $function:ident) => {
        global_asm!(
            stub::begin!($name),
            ".cfi_def_cfa rsp, 0",
            ".cfi_register rip, r11",
            "lea rsp, [rsp - 128]",
            ".cfi_adjust_cfa_offset 128",
            "push r11",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_offset rip, -136",
            "push rbp",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_offset rbp, -144",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            stub::save!(),
            "mov rdi, rax",
            "call {function}",
            stub::restore!(56),
            "pop rbp",
            ".cfi_def_cfa rsp, 136",
            "pop r11",
            ".cfi_adjust_cfa_offset -8",
            ".cfi_register rip, r11",
            "lea rsp, [rsp + 128]",
            ".cfi_adjust_cfa_offset -128",
            "notrack jmp r11",
            stub::end!($name),
            function = sym $function,
        );
    };
}
stub!("__trodden_stream_next", next_chunk);
stub!("__trodden_stream_enter", next_slot);

/// Finds room for an event where the cursor stopped; gives its address.
extern "C" fn next_chunk(stopped: usize) -> usize {
    let mask = system::set_signal_mask(u64::MAX);
    let address = own_region().map_or_else(chunks::nowhere, |base| chunks::find_room(base, stopped));
    system::set_signal_mask(mask);
    address
}

/// Address of the calling thread's region; it gets one if it has none.
fn own_region() -> Option<usize> {
    let image = Image::from_linker();
    let bias = match bias() {
        0 => life::enter(),
        bias => bias,
    };
    (bias != 0).then(|| image.template.wrapping_add(bias as usize))
}

/// The slot of a thread's first frame, or of one too many.
extern "C" fn next_slot(pointer: usize) -> usize {
    static NOWHERE: AtomicU64 = AtomicU64::new(0);
    if pointer != 0 {
        return pointer;
    }
    let mask = system::set_signal_mask(u64::MAX);
    let slot = match (own_region(), thread_stream()) {
        (Some(_), Some(thread)) => {
            let slot = thread.shadow as usize;
            thread.shadow += WORD as u64;
            slot
        }
        _ => NOWHERE.as_ptr() as usize,
    };
    system::set_signal_mask(mask);
    slot
}
