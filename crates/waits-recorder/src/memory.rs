//! Memory that this library maps directly from the kernel, because it must not use the program's heap.

use crate::output::page_size;
use crate::{images, limits};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::c_int;

/// Maps private, zeroed memory for `count` values, which [`unmap_elements`] unmaps. Returns `None` if that fails.
pub fn map_private<T>(count: usize) -> Option<*mut T> {
    map_anonymous(count, libc::MAP_PRIVATE)
}

/// Maps zeroed memory for a value that this process shares with the children that it forks later. Returns `None` if that fails.
pub fn map_shared<T>() -> Option<*mut T> {
    map_anonymous(1, libc::MAP_SHARED)
}

static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of bytes of address space that this library occupies: its image and its mappings.
pub fn mapped_bytes() -> u64 {
    MAPPED_BYTES.load(Ordering::Relaxed) + images::own_image_size() as u64
}

fn map_anonymous<T>(count: usize, sharing: c_int) -> Option<*mut T> {
    let size = round_up_to_page(count * size_of::<T>());
    if !limits::adjust_kernel_limit(size as i64) {
        return None;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new anonymous mapping does not affect other memory.
    let place = unsafe { libc::mmap(null_mut(), size, protection, sharing | libc::MAP_ANONYMOUS, -1, 0) };
    if place == libc::MAP_FAILED {
        limits::adjust_kernel_limit(-(size as i64));
        return None;
    }
    MAPPED_BYTES.fetch_add(size as u64, Ordering::Relaxed);
    Some(place.cast())
}

/// Unmaps memory that [`map_private`] returned. `count` must be the same as in that call.
pub fn unmap_elements<T>(place: *mut T, count: usize) {
    let size = round_up_to_page(count * size_of::<T>());
    // SAFETY: this module mapped the memory with this size.
    unsafe { libc::munmap(place.cast(), size) };
    MAPPED_BYTES.fetch_sub(size as u64, Ordering::Relaxed);
    limits::adjust_kernel_limit(-(size as i64));
}

fn round_up_to_page(size: usize) -> usize {
    size.next_multiple_of(page_size())
}
