//! Settings and per-thread state of stream builds. `trodden_wire::stream` defines the layout. Instrumented code writes events itself, and
//! calls the runtime (`stream_calls.rs`) when a chunk is full or a thread has no frame yet; `chunks.rs` finds the next chunk. For a *whole
//! program*, chunks are used in a ring of the thread's regions. If all chunks are in use, because the recorder is slower, the thread gets
//! an additional region, up to a limit, and then waits for a chunk to be released. If no chunk is released in time, the last chunk's events
//! are discarded and counted, and no thread waits again until a chunk is released. A *flight recorder* overwrites the oldest chunks of its
//! only region. Invariants: signals are blocked while a thread's chunk changes; only its thread writes a region's stream; a `CHUNK_FULL`
//! chunk never changes.

use crate::image::{address_of, is_stream};
use crate::output;
use crate::system;
use crate::text::{self, Text};
use crate::wire::stream::{
    CHUNK_EVENTS, DEFAULT_LAST_EVENTS, DEFAULT_MAX_WAIT_MS, DEFAULT_REGIONS, HEADER_BYTES, MAX_LAST_EVENTS, MAX_REGIONS, MAX_WAIT_LIMIT_MS,
    SHADOW_BYTES, STREAM_VARIABLE, ThreadStream,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Size in bytes of a chunk's header, and of the state before a region's frame slots.
pub const HEADER: usize = HEADER_BYTES as usize;
/// Size in bytes of an event and of a slot.
pub const WORD: usize = 4;
const SHADOW: usize = SHADOW_BYTES as usize;

/// Number of chunks that a flight recorder uses; 0 for whole programs.
pub static RECORDER_SLOTS: AtomicU32 = AtomicU32::new(0);
/// For whole programs: maximum number of regions of a thread, and maximum time in milliseconds that it waits for a chunk.
pub static REGIONS: AtomicU32 = AtomicU32::new(DEFAULT_REGIONS as u32);
pub static MAX_WAIT_MS: AtomicU32 = AtomicU32::new(DEFAULT_MAX_WAIT_MS as u32);

/// Returns the calling thread's cursor and shadow stack pointer; `None` if the image writes no streams.
pub fn thread_stream() -> Option<&'static mut ThreadStream> {
    let find = address_of!("__trodden_stream_place");
    if find == 0 {
        return None;
    }
    // SAFETY: units define a function of that name and type. Its result is thread-local, and borrowed by one function at a time, with
    // signals blocked.
    unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut ThreadStream>(find)().as_mut() }
}

/// Reads the stream settings when the image starts. Overwrites both texts.
pub fn prepare(value: &mut Text, scratch: &mut Text) {
    if !is_stream() {
        return;
    }
    let asked = output::find_variable(STREAM_VARIABLE, value, scratch);
    let last = match value.bytes() {
        whole if asked && whole.strip_prefix(b"whole").is_some_and(bound) => return,
        digits if asked && !digits.is_empty() => number(digits),
        _ => Some(DEFAULT_LAST_EVENTS),
    };
    let last = last.filter(|n| (1..=MAX_LAST_EVENTS).contains(n)).unwrap_or_else(|| {
        text::print_line(
            b"trodden: TRODDEN_STREAM must be whole, whole,REGIONS,MILLISECONDS or a number from 1 to 175440: keeping the last 1000 events \
              of each thread\n",
        );
        DEFAULT_LAST_EVENTS
    });
    // One chunk is being filled, and the chunk after it is free.
    RECORDER_SLOTS.store((last.div_ceil(CHUNK_EVENTS) + 2) as u32, Relaxed);
}

/// Parses the limits of whole programs: nothing, or `,REGIONS,MILLISECONDS`. Returns false if they are invalid.
fn bound(text: &[u8]) -> bool {
    let Some((comma, text)) = text.split_first() else { return true };
    let mut numbers = text.split(|byte| *byte == b',').map(number);
    let (Some(Some(regions)), Some(Some(patience)), None) = (numbers.next(), numbers.next(), numbers.next()) else { return false };
    REGIONS.store(regions.clamp(1, MAX_REGIONS) as u32, Relaxed);
    MAX_WAIT_MS.store(patience.min(MAX_WAIT_LIMIT_MS) as u32, Relaxed);
    *comma == b','
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Ends the calling thread's stream. Its next event starts a new stream.
pub fn end_thread() {
    if let Some(thread) = thread_stream() {
        *thread = ThreadStream::default();
    }
}

/// The frame slots of a thread that forks, saved while a different region replaces the thread's region.
pub struct ShadowFrames {
    address: usize,
    count: usize,
}

impl ShadowFrames {
    /// Saves the slots of the calling thread, whose region is at `base`; `None` if out of memory.
    pub fn save(base: usize) -> Option<ShadowFrames> {
        let thread = thread_stream()?;
        let slots = base + HEADER;
        let count = (thread.shadow as usize).saturating_sub(slots).min(SHADOW - HEADER) / WORD;
        let address = system::map_zeros(SHADOW, None).ok()?;
        // SAFETY: both ranges are mapped, and the second is fresh.
        unsafe { core::ptr::copy_nonoverlapping(slots as *const u32, address as *mut u32, count) };
        Some(ShadowFrames { address, count })
    }

    pub fn slots(&self) -> &[u32] {
        // SAFETY: `save` stored `count` slots there, which are unmapped with this value only.
        unsafe { core::slice::from_raw_parts(self.address as *const u32, self.count) }
    }

    pub fn release(self) {
        system::unmap(self.address, SHADOW);
    }
}
