//! Streams: where a thread of a stream build writes its events; the flight recorder. The layout is in `trodden_wire::stream`.
//!
//! Instrumented code writes events by itself. It calls the runtime (`stream_calls.rs`) when a chunk is full, and when
//! a thread has no frame yet. Here is what a stream keeps, `chunks.rs` finds the next chunk. Chunks of a *whole
//! program* are filled where nothing is in use: in the thread's regions in turn, which form a ring; if all are in use,
//! since the recorder is slower, the thread gets one region more, up to a bound. Then it waits until the recorder
//! gives a chunk back. Where none comes back for the time of patience, as when the recorder is dead, or where there is
//! no room for another region, the last chunk's events are given up, and counted; and no thread waits again before a
//! chunk came back. A *flight recorder* overwrites the first chunks of the one region.
//!
//! Invariants: signals are blocked while a thread's chunk changes; a region's stream is written by its thread alone; a
//! chunk is `CHUNK_FULL` only when it will not change any more.

use crate::image::{address_of, is_stream};
use crate::output;
use crate::system;
use crate::text::{self, Text};
use crate::wire::stream::{
    CHUNK_EVENTS, DEFAULT_LAST, DEFAULT_PATIENCE_MS, DEFAULT_REGIONS, HEADER_BYTES, MOST_LAST, MOST_PATIENCE_MS, MOST_REGIONS,
    SHADOW_BYTES, STREAM_VARIABLE, ThreadStream,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Bytes before the events of a chunk, and before the slots of a region's frames.
pub const HEADER: usize = HEADER_BYTES as usize;
/// Bytes of an event and of a slot.
pub const WORD: usize = 4;
const SHADOW: usize = SHADOW_BYTES as usize;

/// Chunks that a flight recorder uses; 0: whole programs.
pub static RECORDER_SLOTS: AtomicU32 = AtomicU32::new(0);
/// Of whole programs: regions of a thread at most, and how long it waits.
pub static REGIONS: AtomicU32 = AtomicU32::new(DEFAULT_REGIONS as u32);
pub static PATIENCE_MS: AtomicU32 = AtomicU32::new(DEFAULT_PATIENCE_MS as u32);

/// The calling thread's cursor and shadow stack pointer, if the image has streams.
pub fn thread_stream() -> Option<&'static mut ThreadStream> {
    let find = address_of!("__trodden_stream_place");
    if find == 0 {
        return None;
    }
    // SAFETY: units define a function of that name and type; what it gives is the thread's own, and borrowed by one
    // function at a time, with signals blocked.
    unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut ThreadStream>(find)().as_mut() }
}

/// At the image's start: what is to be kept. The texts are for work.
pub fn prepare(value: &mut Text, scratch: &mut Text) {
    if !is_stream() {
        return;
    }
    let asked = output::find_variable(STREAM_VARIABLE, value, scratch);
    let last = match value.bytes() {
        whole if asked && whole.strip_prefix(b"whole").is_some_and(bound) => return,
        digits if asked && !digits.is_empty() => number(digits),
        _ => Some(DEFAULT_LAST),
    };
    let last = last.filter(|n| (1..=MOST_LAST).contains(n)).unwrap_or_else(|| {
        text::say_line(
            b"trodden: TRODDEN_STREAM is neither whole, whole,REGIONS,MILLISECONDS nor a number from 1 to 175000: the last 1000 \
              events of each thread are kept\n",
        );
        DEFAULT_LAST
    });
    // One is being filled, and the one behind it is free.
    RECORDER_SLOTS.store((last.div_ceil(CHUNK_EVENTS) + 2) as u32, Relaxed);
}

/// Reads the bounds of whole programs: nothing, or `,REGIONS,MILLISECONDS`. Whether they are understood.
fn bound(text: &[u8]) -> bool {
    let Some((comma, text)) = text.split_first() else { return true };
    let mut numbers = text.split(|byte| *byte == b',').map(number);
    let (Some(Some(regions)), Some(Some(patience)), None) = (numbers.next(), numbers.next(), numbers.next()) else { return false };
    REGIONS.store(regions.clamp(1, MOST_REGIONS) as u32, Relaxed);
    PATIENCE_MS.store(patience.min(MOST_PATIENCE_MS) as u32, Relaxed);
    *comma == b','
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// The thread writes nowhere any more; another event has it enter again.
pub fn end_thread() {
    if let Some(thread) = thread_stream() {
        *thread = ThreadStream::default();
    }
}

/// Slots of frames of a thread that forks, in memory of their own, while another region takes the place of its own.
pub struct ShadowFrames {
    address: usize,
    count: usize,
}

impl ShadowFrames {
    /// Keeps those of the calling thread, whose region is at `base`.
    pub fn keep(base: usize) -> Option<ShadowFrames> {
        let thread = thread_stream()?;
        let slots = base + HEADER;
        let count = (thread.shadow as usize).saturating_sub(slots).min(SHADOW - HEADER) / WORD;
        let address = system::map_zeros(SHADOW, None).ok()?;
        // SAFETY: both are mapped, the second is fresh.
        unsafe { core::ptr::copy_nonoverlapping(slots as *const u32, address as *mut u32, count) };
        Some(ShadowFrames { address, count })
    }

    /// The slots.
    pub fn slots(&self) -> &[u32] {
        // SAFETY: `keep` put so many there, which are unmapped with this value only.
        unsafe { core::slice::from_raw_parts(self.address as *const u32, self.count) }
    }

    /// Gives the memory back.
    pub fn release(self) {
        system::unmap(self.address, SHADOW);
    }
}
