//! A page of memory that distinguishes a child of `fork` from its parent.

use crate::system;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};

/// A page that a child of `fork` finds empty; null where the kernel has no such thing.
pub static FORK_PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
const PAGE: usize = 4096;

/// Whether this process is a copy of the one that wrote the page.
pub fn is_forked() -> bool {
    let page = FORK_PAGE.load(SeqCst);
    // SAFETY: null or the page, which is unmapped only after the pointer was reset, under the lock.
    unsafe { page.as_ref() }.is_some_and(|page| page.load(SeqCst) == 0)
}

/// Makes the page, where the kernel has such, and names this process in it.
pub fn make() {
    if let Ok(page) = system::map_zeros(PAGE, None) {
        match system::wipe_on_fork(page, PAGE) {
            Ok(()) => FORK_PAGE.store(page as *mut AtomicU32, SeqCst),
            Err(_) => system::unmap(page, PAGE),
        }
    }
    name();
}

/// This process is the one that the page names from now on.
pub fn name() {
    // SAFETY: as in `is_forked`.
    if let Some(page) = unsafe { FORK_PAGE.load(SeqCst).as_ref() } {
        page.store(1, SeqCst);
    }
}

/// Unmaps the page: no child is known as one until it is mapped again.
pub fn unmake() {
    let page = FORK_PAGE.swap(null_mut(), SeqCst);
    if !page.is_null() {
        system::unmap(page as usize, PAGE);
    }
}
