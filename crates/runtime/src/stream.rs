//! Settings and per-thread state of stream builds, in which each thread writes the sequence of its paths into chunks of memory.
//! `trodden_wire::stream` defines the layout. Instrumented code writes events itself, and calls the runtime (`stream_calls.rs`) when a
//! chunk is full or a thread has no frame yet; `chunks.rs` finds the next chunk. When a
//! *whole program* is recorded, the chunks of a thread's regions form a ring. If the recorder is too slow and all chunks are in use, the
//! thread gets an additional region, up to a limit; then it waits for the recorder to release a chunk. If no chunk is released in time,
//! the last chunk's events are discarded and counted as lost, and no thread waits again until a chunk is released. A *flight recorder*
//! overwrites the oldest chunks of its only region. Invariants: signals are blocked while a thread switches chunks; only a region's own
//! thread writes its stream; a `CHUNK_FULL` chunk never changes.

use crate::image::{address_of, is_stream};
use crate::output;
use crate::system;
use crate::text::{self, Text};
use crate::wire::stream::{
    CHUNK_EVENT_COUNT, DEFAULT_LAST_EVENTS, DEFAULT_MAX_WAIT_MS, DEFAULT_REGIONS, MAX_LAST_EVENT_COUNT, MAX_STREAM_REGION_COUNT,
    MAX_WAIT_LIMIT_MS, SHADOW_BYTES, STREAM_ENVIRONMENT_VARIABLE, STREAM_HEADER_BYTES, ThreadStream,
};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Size in bytes of the header of a chunk, and of the state at the start of a region, before its shadow stack.
pub const HEADER_SIZE: usize = STREAM_HEADER_BYTES as usize;
/// Size in bytes of an event, and of a slot of the shadow stack.
pub const WORD_SIZE: usize = 4;
const SHADOW_SIZE: usize = SHADOW_BYTES as usize;

/// Number of chunks that a flight recorder uses; 0 if a whole program is recorded.
pub static FLIGHT_RECORDER_SLOT_COUNT: AtomicU32 = AtomicU32::new(0);
/// Limits for recording whole programs: the maximum number of regions per thread, and the longest time in milliseconds for which a thread
/// waits for a chunk.
pub static MAX_STREAM_REGIONS: AtomicU32 = AtomicU32::new(DEFAULT_REGIONS as u32);
pub static MAX_RECORDER_WAIT_MS: AtomicU32 = AtomicU32::new(DEFAULT_MAX_WAIT_MS as u32);

/// Returns the calling thread's position in its stream and its shadow stack; `None` if the image writes no streams.
pub fn thread_stream() -> Option<&'static mut ThreadStream> {
    let find = address_of!("__trodden_stream_place");
    if find == 0 {
        return None;
    }
    // SAFETY: if the symbol is defined, it is a function of this type. It returns the address of thread-local memory, to which only one
    // function at a time has a reference, with signals blocked.
    unsafe { core::mem::transmute::<usize, extern "C" fn() -> *mut ThreadStream>(find)().as_mut() }
}

/// Reads the stream settings when the image starts. Overwrites both buffers.
pub fn prepare_stream_settings(value: &mut Text, scratch: &mut Text) {
    if !is_stream() {
        return;
    }
    let is_set = output::find_environment_variable(STREAM_ENVIRONMENT_VARIABLE, value, scratch);
    let last = match value.bytes() {
        whole if is_set && whole.strip_prefix(b"whole").is_some_and(parse_and_apply_stream_limits) => return,
        digits if is_set && !digits.is_empty() => parse_number(digits),
        _ => Some(DEFAULT_LAST_EVENTS),
    };
    let last = last.filter(|n| (1..=MAX_LAST_EVENT_COUNT).contains(n)).unwrap_or_else(|| {
        text::print_line(
            b"trodden: TRODDEN_STREAM must be whole, whole,REGIONS,MILLISECONDS or a number from 1 to 175440: keeping the last 1000 events \
              of each thread\n",
        );
        DEFAULT_LAST_EVENTS
    });
    // Two more chunks are needed: the one that is being filled, and a free one after it.
    FLIGHT_RECORDER_SLOT_COUNT.store((last.div_ceil(CHUNK_EVENT_COUNT) + 2) as u32, Relaxed);
}

/// Parses and applies the limits for recording whole programs. `text` is empty or `,REGIONS,MILLISECONDS`. Returns false if it is invalid.
fn parse_and_apply_stream_limits(text: &[u8]) -> bool {
    let Some((comma, text)) = text.split_first() else { return true };
    let mut numbers = text.split(|byte| *byte == b',').map(parse_number);
    let (Some(Some(regions)), Some(Some(max_wait_ms)), None) = (numbers.next(), numbers.next(), numbers.next()) else { return false };
    MAX_STREAM_REGIONS.store(regions.clamp(1, MAX_STREAM_REGION_COUNT) as u32, Relaxed);
    MAX_RECORDER_WAIT_MS.store(max_wait_ms.min(MAX_WAIT_LIMIT_MS) as u32, Relaxed);
    *comma == b','
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Ends the calling thread's stream. The thread's next event will start another one.
pub fn end_thread_stream() {
    if let Some(thread) = thread_stream() {
        *thread = ThreadStream::default();
    }
}

/// The shadow-stack slots of a forking thread, saved while its region is replaced.
pub struct ShadowFrames {
    address: usize,
    count: usize,
}

impl ShadowFrames {
    /// Saves the slots of the calling thread, whose region is at `base`. Returns `None` if out of memory.
    pub fn save(base: usize) -> Option<ShadowFrames> {
        let thread = thread_stream()?;
        let slots = base + HEADER_SIZE;
        let count = (thread.shadow as usize).saturating_sub(slots).min(SHADOW_SIZE - HEADER_SIZE) / WORD_SIZE;
        let address = system::map_zeroed_memory(SHADOW_SIZE, None).ok()?;
        // SAFETY: both ranges are mapped, and the target was just created.
        unsafe { core::ptr::copy_nonoverlapping(slots as *const u32, address as *mut u32, count) };
        Some(ShadowFrames { address, count })
    }

    pub fn slots(&self) -> &[u32] {
        // SAFETY: `save` stored `count` slots at this address, and only `release` unmaps them.
        unsafe { core::slice::from_raw_parts(self.address as *const u32, self.count) }
    }

    pub fn release(self) {
        system::unmap(self.address, SHADOW_SIZE);
    }
}
