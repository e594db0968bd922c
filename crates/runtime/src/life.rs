//! The life of an image in one process: a thread enters, the image starts and ends, the process forks.
//!
//! Invariants: the state's lock is not held while a stream begins, since finding room for one may take the lock again.

use crate::bias::bias;
use crate::chunks;
use crate::events;
use crate::fork_page::is_forked;
use crate::image::{self, Image};
use crate::lock::{self, Acquired, Guard};
use crate::region;
use crate::state::{self, Source, state};
use crate::system;
use crate::text;
use core::sync::atomic::Ordering::SeqCst;

/// Acquires a region for the calling thread; returns its bias, 0 without memory.
pub extern "C" fn enter() -> i64 {
    let bias = match Guard::take(is_forked) {
        Some(mut guard) => state(&mut guard).enter(),
        None => enter_without_state(),
    };
    // Without the lock, which finding room for a stream may take again; signals are blocked where there are streams.
    begin_stream(bias);
    bias
}

/// Has the calling thread, whose bias this is, write a stream, if the image has streams.
fn begin_stream(bias: i64) {
    if bias != 0 && image::is_stream() {
        chunks::begin(Image::from_linker().template.wrapping_add(bias as usize));
    }
}

/// Acquires the region that all threads share; returns its bias, 0 without memory or without the state: then counts go to
/// the template, which is never read.
pub extern "C" fn enter_shared() -> i64 {
    Guard::take(is_forked).map_or(0, |mut guard| state(&mut guard).enter_shared())
}

/// Where the state is not to be had, counts go nowhere.
fn enter_without_state() -> i64 {
    state::UNSAID.fetch_add(1, SeqCst);
    text::say_line(b"trodden: a thread that forks keeps another one waiting: what that one runs from here on is not counted\n");
    let image = Image::from_linker();
    let Ok(region) = region::anonymous(image.region_words, None) else { return 0 };
    state::bias_to(&region, &image)
}

/// At the image's start: opens the output, while the program has not yet changed folders or privileges. Whether counts are written.
pub fn start() -> bool {
    let mask = system::set_signal_mask(u64::MAX);
    let before = bias();
    let is_written = start_and_enter();
    if before == 0 {
        begin_stream(bias());
    }
    system::set_signal_mask(mask);
    is_written
}

fn start_and_enter() -> bool {
    let Some(mut guard) = Guard::take(is_forked) else { return false };
    let state = state(&mut guard);
    state.start();
    if state.source == Source::File && Image::from_linker().shared != 0 {
        state.enter_shared();
    } else if state.source == Source::File && bias() == 0 {
        state.enter();
    }
    state.map_switch();
    state.source == Source::File
}

/// At the image's end, of the process or by `dlclose`: gives back what no running thread uses. Entering again starts from scratch.
pub fn finish() {
    // What destructors do that come later belongs to a stream; and its frames' slots stay mapped.
    if image::is_stream() && image::is_program() {
        return;
    }
    if let Some(mut guard) = Guard::take(is_forked) {
        state(&mut guard).finish();
    }
}

/// Before `fork`: no thread may be in the middle of a change. The frames of the thread's stream are kept for the child, since the parent
/// goes on in the memory that both have.
pub extern "C" fn before_fork() {
    events::note();
    let mask = system::set_signal_mask(u64::MAX);
    let acquired = lock::acquire(is_forked);
    if image::is_stream()
        && !matches!(acquired, Acquired::Never)
        && let Some(mut guard) = Guard::take(is_forked)
    {
        state(&mut guard).keep_frames();
    }
    system::set_signal_mask(mask);
}

/// After `fork`, in the parent.
pub extern "C" fn after_fork_in_parent() {
    if image::is_stream()
        && let Some(mut guard) = Guard::take(is_forked)
    {
        state(&mut guard).drop_frames();
    }
    lock::release();
}

/// After `fork`, in the child.
pub fn after_fork_in_child() {
    let mask = system::set_signal_mask(u64::MAX);
    lock::release_any();
    let frames = Guard::take(is_forked).and_then(|mut guard| state(&mut guard).renew());
    if let Some((frames, region)) = frames {
        chunks::begin_in_child(region, frames);
    }
    system::set_signal_mask(mask);
}
