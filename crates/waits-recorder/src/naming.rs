//! Names of a recording's files, and of the processes in these files.

use crate::output::Path;
use core::sync::atomic::{AtomicU64, Ordering};
use trodden_wire::waits::OUTPUT_VARIABLE;

/// The environment variable that contains the recording's folder.
pub const FOLDER_VARIABLE: &core::ffi::CStr = c"TRODDEN_WAITS";
/// When recording began, in ticks. Together with the process ID, it identifies the process.
pub static START: AtomicU64 = AtomicU64::new(0);
/// ID and start of the process that created the files, to which its forked children write as well; 0 if no files were created.
pub static FIRST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether the environment specifies a folder.
pub fn has_folder() -> bool {
    // SAFETY: both the name and the value are C strings.
    unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()).as_ref() }.is_some_and(|first| *first != 0)
}

/// The ID of this process, and its start.
pub fn name() -> (u32, u64) {
    // SAFETY: the system call has no pointer arguments.
    (unsafe { libc::getpid() } as u32, START.load(Ordering::Relaxed))
}

/// The path of the file with an extension; `None` if no folder is specified.
pub fn path(extension: &[u8]) -> Option<Path> {
    let mut path = stem()?;
    path.add(extension);
    Some(path)
}

fn stem() -> Option<Path> {
    // SAFETY: the name is a C string.
    let folder = unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()) };
    debug_assert_eq!(OUTPUT_VARIABLE, "TRODDEN_WAITS");
    if folder.is_null() {
        return None;
    }
    // SAFETY: values of environment variables are C strings.
    let folder = unsafe { core::ffi::CStr::from_ptr(folder) }.to_bytes();
    if folder.is_empty() {
        return None;
    }
    let mut path = Path::new();
    let [process, start] = FIRST.each_ref().map(|part| part.load(Ordering::Relaxed));
    path.add(folder).add(b"/").number(process).add(b"-").number(start);
    Some(path)
}
