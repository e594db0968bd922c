//! A page of memory that distinguishes a child of `fork` from its parent.

use crate::system;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};

/// A page that a child of `fork` finds empty; null where the kernel has no such thing.
pub static MARKER: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
const PAGE: usize = 4096;

/// Whether this process is a copy of the one that set the marker.
pub fn is_forked() -> bool {
    let marker = MARKER.load(SeqCst);
    // SAFETY: null or the marker's page, which is unmapped only after the pointer was reset, under the lock.
    unsafe { marker.as_ref() }.is_some_and(|marker| marker.load(SeqCst) == 0)
}

/// Makes the page, where the kernel has such, and marks it.
pub fn make() {
    if let Ok(page) = system::map_zeros(PAGE, None) {
        match system::wipe_on_fork(page, PAGE) {
            Ok(()) => MARKER.store(page as *mut AtomicU32, SeqCst),
            Err(_) => system::unmap(page, PAGE),
        }
    }
    mark();
}

/// This process is the one that the page names from now on.
pub fn mark() {
    // SAFETY: as in `is_forked`.
    if let Some(marker) = unsafe { MARKER.load(SeqCst).as_ref() } {
        marker.store(1, SeqCst);
    }
}

/// Unmaps the page: no child is known as one until it is made again.
pub fn unmake() {
    let marker = MARKER.swap(null_mut(), SeqCst);
    if !marker.is_null() {
        system::unmap(marker as usize, PAGE);
    }
}
