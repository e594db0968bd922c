//! Names of a recording's files, and the identity of the process that writes them.

use crate::output::Path;
use core::sync::atomic::{AtomicU64, Ordering};
use trodden_wire::waits::WAITS_OUTPUT_ENVIRONMENT_VARIABLE;

pub const FOLDER_VARIABLE: &core::ffi::CStr = c"TRODDEN_WAITS";
/// Time in ticks at which recording of this process began. Together with the process ID, it identifies the process, because IDs are reused.
pub static RECORDING_START_TICKS: AtomicU64 = AtomicU64::new(0);
/// Process ID and start time of the process that created the recording's files. Its forked children write to the same files. 0 if no files
/// were created.
pub static FILE_CREATOR_ID_AND_START: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Returns true if the environment names a folder for recordings.
pub fn has_folder() -> bool {
    // SAFETY: both the name and the value are C strings.
    unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()).as_ref() }.is_some_and(|first| *first != 0)
}

pub fn process_identity() -> (u32, u64) {
    // SAFETY: the system call has no pointer arguments.
    (unsafe { libc::getpid() } as u32, RECORDING_START_TICKS.load(Ordering::Relaxed))
}

/// Returns the path of the recording's file with the given extension; `None` if the environment names no folder.
pub fn file_path(extension: &[u8]) -> Option<Path> {
    let mut path = recording_path_stem()?;
    path.add(extension);
    Some(path)
}

fn recording_path_stem() -> Option<Path> {
    // SAFETY: the name is a C string.
    let folder = unsafe { libc::getenv(FOLDER_VARIABLE.as_ptr()) };
    debug_assert_eq!(WAITS_OUTPUT_ENVIRONMENT_VARIABLE, "TRODDEN_WAITS");
    if folder.is_null() {
        return None;
    }
    // SAFETY: values of environment variables are C strings.
    let folder = unsafe { core::ffi::CStr::from_ptr(folder) }.to_bytes();
    if folder.is_empty() {
        return None;
    }
    let mut path = Path::new();
    let [process, start] = FILE_CREATOR_ID_AND_START.each_ref().map(|part| part.load(Ordering::Relaxed));
    path.add(folder).add(b"/").add_number(process).add(b"-").add_number(start);
    Some(path)
}
