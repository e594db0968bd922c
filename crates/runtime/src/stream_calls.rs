//! Functions that instrumented code calls in stream builds when a chunk is full or when a thread has no frame on its shadow stack yet.

use crate::bias::thread_bias;
use crate::chunks;
use crate::image::OwnImage;
use crate::life;
use crate::stream::{WORD_SIZE, thread_stream};
use crate::stub;
use crate::system;
use core::arch::global_asm;
use core::sync::atomic::AtomicU64;

// Instrumented code jumps here with its position in the stream (or the shadow stack pointer) in rax and the return address in r11. The red
// zone and all registers except rax, r11 and flags are preserved.
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
stub!("__trodden_stream_next", find_event_room);
stub!("__trodden_stream_enter", find_frame_slot);

/// Returns an address for the next event of a thread that has reached the end of a chunk.
extern "C" fn find_event_room(stopped: usize) -> usize {
    let mask = system::set_signal_mask(u64::MAX);
    let address = find_or_acquire_region().map_or_else(chunks::discarded_event_address, |base| chunks::find_room_for_event(base, stopped));
    system::set_signal_mask(mask);
    address
}

/// Returns the address of the calling thread's region. Acquires one if necessary; `None` if out of memory.
fn find_or_acquire_region() -> Option<usize> {
    let image = OwnImage::from_linker();
    let bias = match thread_bias() {
        0 => life::enter(),
        bias => bias,
    };
    (bias != 0).then(|| image.template.wrapping_add(bias as usize))
}

/// Returns the shadow-stack slot for a thread's first frame, or a dummy slot if the thread has no stream. A nonzero `pointer` is the last
/// slot, which is shared by all frames that are nested too deeply.
extern "C" fn find_frame_slot(pointer: usize) -> usize {
    static SLOT_FOR_DISCARDED_FRAMES: AtomicU64 = AtomicU64::new(0);
    if pointer != 0 {
        return pointer;
    }
    let mask = system::set_signal_mask(u64::MAX);
    let slot = match (find_or_acquire_region(), thread_stream()) {
        (Some(_), Some(thread)) => {
            let slot = thread.shadow as usize;
            thread.shadow += WORD_SIZE as u64;
            slot
        }
        _ => SLOT_FOR_DISCARDED_FRAMES.as_ptr() as usize,
    };
    system::set_signal_mask(mask);
    slot
}
