//! A memory page by which a child of `fork` is distinguished from its parent.

use crate::system;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};

/// Address of a page that the kernel clears in a child of `fork`; null if the kernel does not support this.
pub static FORK_PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
const PAGE_BYTES: usize = 4096;

/// Returns true if this process is a child of `fork`, and [`mark_fork_page_as_own`] was not called in it yet.
pub fn is_forked() -> bool {
    let page = FORK_PAGE.load(SeqCst);
    // SAFETY: the pointer is null, or points to the page. The page is only unmapped after the pointer was reset, and with the lock held.
    unsafe { page.as_ref() }.is_some_and(|page| page.load(SeqCst) == 0)
}

/// Creates the page, if the kernel supports it, and marks it as belonging to this process.
pub fn create_fork_page() {
    if let Ok(page) = system::map_zeroed_memory(PAGE_BYTES, None) {
        match system::wipe_on_fork(page, PAGE_BYTES) {
            Ok(()) => FORK_PAGE.store(page as *mut AtomicU32, SeqCst),
            Err(_) => system::unmap(page, PAGE_BYTES),
        }
    }
    mark_fork_page_as_own();
}

pub fn mark_fork_page_as_own() {
    // SAFETY: the pointer is null, or points to the page, as in `is_forked`.
    if let Some(page) = unsafe { FORK_PAGE.load(SeqCst).as_ref() } {
        page.store(1, SeqCst);
    }
}

/// Unmaps the page. Children of `fork` are then not recognised until the page is created again.
pub fn remove_fork_page() {
    let page = FORK_PAGE.swap(null_mut(), SeqCst);
    if !page.is_null() {
        system::unmap(page as usize, PAGE_BYTES);
    }
}
