//! The life cycle of an image in a process: its start and end, new threads, and forks. Invariant: the state's lock is not held when a
//! stream starts, because finding room for events may acquire the lock again.

use crate::bias::thread_bias;
use crate::chunks;
use crate::events;
use crate::fork_page::is_forked;
use crate::image::{self, OwnImage};
use crate::lock::{self, Guard, LockAcquisition};
use crate::region;
use crate::state::{self, RegionSource, state};
use crate::system;
use crate::text;
use core::sync::atomic::Ordering::SeqCst;

/// Gives the calling thread a region of counters. Returns the thread's bias, the distance to that region; 0 if out of memory.
pub extern "C" fn enter() -> i64 {
    let bias = match Guard::take_lock(is_forked) {
        Some(mut guard) => state(&mut guard).enter_thread(),
        None => enter_without_state(),
    };
    // The lock has been released here. In stream builds, the caller has blocked signals.
    begin_stream(bias);
    bias
}

fn begin_stream(bias: i64) {
    if bias != 0 && image::is_stream() {
        chunks::begin_stream_at_region(OwnImage::from_linker().template.wrapping_add(bias as usize));
    }
}

/// Acquires the region that all threads share, unless there is one. Returns its bias; 0 if out of memory or if the lock cannot be acquired.
/// With bias 0, the code counts in the image's own counters, which are never read.
pub extern "C" fn enter_shared() -> i64 {
    Guard::take_lock(is_forked).map_or(0, |mut guard| state(&mut guard).enter_shared_region())
}

/// Makes the calling thread count in memory that is discarded, because the lock could not be acquired.
fn enter_without_state() -> i64 {
    state::UNREPORTED_LOSSES.fetch_add(1, SeqCst);
    text::print_line(b"trodden: a forking thread blocks the runtime; code that another thread runs from here on is not counted\n");
    let image = OwnImage::from_linker();
    let Ok(region) = region::map_anonymous(image.region_words, None) else { return 0 };
    state::set_bias_to(&region, &image)
}

/// Opens the output file when the image starts, before the program changes folders or privileges. Returns true if counts are written to a
/// file.
pub fn start() -> bool {
    let mask = system::set_signal_mask(u64::MAX);
    let before = thread_bias();
    let is_written = start_image_and_enter();
    if before == 0 {
        begin_stream(thread_bias());
    }
    system::set_signal_mask(mask);
    is_written
}

fn start_image_and_enter() -> bool {
    let Some(mut guard) = Guard::take_lock(is_forked) else { return false };
    let state = state(&mut guard);
    state.start_image();
    if state.source == RegionSource::File && OwnImage::from_linker().shared != 0 {
        state.enter_shared_region();
    } else if state.source == RegionSource::File && thread_bias() == 0 {
        state.enter_thread();
    }
    state.map_sampling_switch();
    state.source == RegionSource::File
}

/// Releases the regions that no running thread uses, when the image ends (process exit or `dlclose`). If code of the image runs again,
/// everything starts from scratch.
pub fn finish() {
    // Destructors that run after this one may still write to the stream, so its memory must stay mapped.
    if image::is_stream() && image::is_program() {
        return;
    }
    if let Some(mut guard) = Guard::take_lock(is_forked) {
        state(&mut guard).finish_image();
    }
}

/// Acquires the lock before `fork`, so that no other thread is changing the state when the process is copied. Saves the frames of the
/// thread's stream for the child, because the parent goes on changing the memory that both processes share.
pub extern "C" fn before_fork() {
    events::save_reading_before_fork();
    let mask = system::set_signal_mask(u64::MAX);
    let acquired = lock::acquire_lock(is_forked);
    if image::is_stream()
        && !matches!(acquired, LockAcquisition::TimedOut)
        && let Some(mut guard) = Guard::take_lock(is_forked)
    {
        state(&mut guard).save_stream_frames();
    }
    system::set_signal_mask(mask);
}

pub extern "C" fn after_fork_in_parent() {
    if image::is_stream()
        && let Some(mut guard) = Guard::take_lock(is_forked)
    {
        state(&mut guard).discard_saved_stream_frames();
    }
    lock::release_lock();
}

pub fn restart_in_fork_child() {
    let mask = system::set_signal_mask(u64::MAX);
    lock::release_lock_of_any_thread();
    let frames = Guard::take_lock(is_forked).and_then(|mut guard| state(&mut guard).restart_in_child());
    if let Some((frames, region)) = frames {
        chunks::begin_stream_in_child(region, frames);
    }
    system::set_signal_mask(mask);
}
