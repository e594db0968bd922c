//! How the files of a recording are named, and the processes in them.

use crate::output::Path;
use core::sync::atomic::{AtomicU64, Ordering};
use trodden_wire::waits::OUTPUT_VARIABLE;

/// Names the folder.
pub const FOLDER_VARIABLE: &core::ffi::CStr = c"TRODDEN_WAITS";
/// Ticks when the recording began: with the process's number, its name.
pub static START: AtomicU64 = AtomicU64::new(0);
/// Number and start of the process that made the files; 0: none has. Forked children write to them, too.
pub static FIRST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether the environment names a folder.
pub fn names_folder() -> bool {
    // SAFETY: a C string, and the environment's own.
    unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()).as_ref() }.is_some_and(|first| *first != 0)
}

/// Number of this process, and its start.
pub fn name() -> (u32, u64) {
    // SAFETY: asks the kernel.
    (unsafe { libc::getpid() } as u32, START.load(Ordering::Relaxed))
}

/// Path of a file: `ending` behind the files' common part.
pub fn path(ending: &[u8]) -> Option<Path> {
    let mut path = stem()?;
    path.add(ending);
    Some(path)
}

fn stem() -> Option<Path> {
    // SAFETY: a C string.
    let folder = unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()) };
    debug_assert_eq!(OUTPUT_VARIABLE, "TRODDEN_WAITS");
    if folder.is_null() {
        return None;
    }
    // SAFETY: the environment's strings end with zero.
    let folder = unsafe { core::ffi::CStr::from_ptr(folder) }.to_bytes();
    if folder.is_empty() {
        return None;
    }
    let mut path = Path::new();
    let [process, start] = FIRST.each_ref().map(|part| part.load(Ordering::Relaxed));
    path.add(folder).add(b"/").number(process).add(b"-").number(start);
    Some(path)
}
