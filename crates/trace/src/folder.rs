//! A copy of a folder that one process sees in place of the original, under the original's path.
//!
//! The copy is bind-mounted over the folder in a mount namespace of the process's own; without the privilege for that, in a user
//! namespace that maps its own user and group. Source: mount_namespaces(7), user_namespaces(7).

use crate::system::check_call_result;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A copy of a folder, and the original in whose place a new process sees the copy.
#[derive(Debug, Serialize, Deserialize)]
pub struct FolderBinding {
    copy: CString,
    folder: CString,
    user_map: CString,
    group_map: CString,
}

impl FolderBinding {
    /// Describes how `copy` becomes visible as `folder`, which also becomes the working directory. Both paths are absolute. If namespaces
    /// are forbidden, starting the process fails.
    ///
    /// # Errors
    /// A path contains a zero byte.
    pub fn new(copy: &Path, folder: &Path) -> io::Result<Self> {
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
        // SAFETY: these system calls take no pointers.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let map = |id: u32| CString::new(format!("{id} {id} 1")).map_err(io::Error::other);
        Ok(Self { copy: text(copy)?, folder: text(folder)?, user_map: map(user)?, group_map: map(group)? })
    }
}

/// Binds the copy in a process that is about to execute its program.
///
/// # Errors
/// Namespaces are forbidden.
pub fn bind_folder_copy(binding: &FolderBinding) -> io::Result<()> {
    // SAFETY: the system call takes no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        // SAFETY: the system call takes no pointers.
        check_call_result(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
        write_proc_file(c"/proc/self/setgroups", c"deny")?;
        write_proc_file(c"/proc/self/uid_map", &binding.user_map)?;
        write_proc_file(c"/proc/self/gid_map", &binding.group_map)?;
    }
    let none = std::ptr::null();
    // SAFETY: all strings are zero-terminated and outlive the call; other pointers are null.
    check_call_result(unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) })?;
    // SAFETY: both paths are zero-terminated and outlive the call; the type and the data may be null for a bind mount.
    check_call_result(unsafe { libc::mount(binding.copy.as_ptr(), binding.folder.as_ptr(), none, libc::MS_BIND, none.cast()) })?;
    // SAFETY: the path is zero-terminated and outlives the call.
    check_call_result(unsafe { libc::chdir(binding.folder.as_ptr()) })
}

fn write_proc_file(path: &std::ffi::CStr, text: &std::ffi::CStr) -> io::Result<()> {
    // SAFETY: the strings are zero-terminated, and the descriptor is not used elsewhere.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check_call_result(file)?;
        let length = text.to_bytes().len();
        let written = libc::write(file, text.as_ptr().cast(), length);
        libc::close(file);
        if written == length as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Marks all open descriptors except standard input, output and error as close-on-exec.
///
/// # Errors
/// The kernel is older than 5.11.
pub fn close_descriptors_in_programs() -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: the system call takes no pointers, and with this flag closes no descriptor now.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    check_call_result(result)
}
