//! Programs whose files grant privileges: setuid, setgid and capabilities. The kernel grants them to no traced program, unless the tracer
//! may trace all processes. So a program with such a file is rejected before it starts, and a traced process that executes such a file is
//! released and executes it once more, so that it runs as without a trace.

use crate::memory::Memory;
use crate::process_status::{find_status_field, find_status_number, may_trace_all_processes, read_own_status, read_process_status};
use crate::ptrace::{self, Registers, Tid};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use trodden_launch::process::find_in_search_path;

/// Calls `execve` with the arguments in the registers. If that fails, the process exits with status 126, as a shell does.
const EXECVE_CODE: [u8; 19] = [
    0xb8, 0x3b, 0, 0, 0, // mov eax, SYS_execve
    0x0f, 0x05, // syscall
    0xbf, 0x7e, 0, 0, 0, // mov edi, 126
    0xb8, 0xe7, 0, 0, 0, // mov eax, SYS_exit_group
    0x0f, 0x05, // syscall
];

/// Finds the file of a command if it grants a different user, group or capabilities, and names what it grants. `directory` is the working
/// directory of the command, unless it is inherited.
pub fn privileged_file(program: &OsStr, directory: Option<&OsStr>) -> Option<(PathBuf, &'static str)> {
    let path = find_executable(program, directory)?;
    find_granted_privilege(&path, &Credentials::read(&read_own_status())?).map(|what| (path, what))
}

/// Finds the file to be executed as execvp(3) does.
fn find_executable(program: &OsStr, directory: Option<&OsStr>) -> Option<PathBuf> {
    let name = Path::new(program);
    if program.as_bytes().contains(&b'/') {
        return Some(Path::new(directory.unwrap_or(OsStr::new(""))).join(name));
    }
    find_in_search_path(program, std::env::var_os("PATH").as_deref(), Path::is_file)
}

/// What decides whether a file grants a process a privilege.
struct Credentials {
    user: u32,
    group: u32,
    no_new_privileges: bool,
}

impl Credentials {
    /// Reads the effective user and group from a status text. Returns `None` if the process does not exist.
    fn read(status: &str) -> Option<Self> {
        // The real id comes first.
        let effective = |name: &str| find_status_field(status, name)?.split_whitespace().nth(1)?.parse().ok();
        let no_new_privileges = find_status_number(status, "NoNewPrivs") == Some(1);
        Some(Self { user: effective("Uid")?, group: effective("Gid")?, no_new_privileges })
    }
}

/// Names the privilege that a file grants to a process that does not have it.
fn find_granted_privilege(path: &Path, process: &Credentials) -> Option<&'static str> {
    let file = std::fs::metadata(path).ok()?;
    let executable_by_group = libc::S_ISGID | libc::S_IXGRP;
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.push(0);
    // SAFETY: both arguments are zero-terminated strings, and the buffer has size zero.
    let has_capabilities = || unsafe { libc::getxattr(name.as_ptr().cast(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 };
    // SAFETY: `name` is zero-terminated, and the kernel fills a structure of integers, for which zero is valid.
    let is_ignored = unsafe {
        let mut system: libc::statvfs = std::mem::zeroed();
        let is_known = libc::statvfs(name.as_ptr().cast(), &raw mut system) == 0;
        is_known && system.f_flag & libc::ST_NOSUID != 0
    };
    match file.mode() {
        _ if is_ignored || process.no_new_privileges => None,
        mode if mode & libc::S_ISUID != 0 && file.uid() != process.user => Some("the setuid bit"),
        mode if mode & executable_by_group == executable_by_group && file.gid() != process.group => Some("the setgid bit"),
        // Root has all capabilities.
        _ if process.user != 0 && has_capabilities() => Some("capabilities (setcap)"),
        _ => None,
    }
}

/// A process that has executed a file with privileges but lacks them, because it is traced.
pub(crate) struct ProcessLackingPrivileges {
    process: Tid,
    /// `/proc/PID/exe`.
    file: PathBuf,
    /// The privilege, or `None` if the file cannot be read.
    what: Option<&'static str>,
}

impl ProcessLackingPrivileges {
    /// Checks a process that is stopped after `execve`. Returns `None` if it lacks no privileges. If its file cannot be read, it may lack
    /// some.
    pub(crate) fn find(process: Tid) -> Option<Self> {
        static MAY_TRACE_ALL: OnceLock<bool> = OnceLock::new();
        if *MAY_TRACE_ALL.get_or_init(may_trace_all_processes) {
            return None;
        }
        let file = PathBuf::from(format!("/proc/{process}/exe"));
        let what = find_granted_privilege(&file, &Credentials::read(&read_process_status(process))?);
        let is_unreadable = || std::fs::metadata(&file).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        (what.is_some() || is_unreadable()).then_some(Self { process, file, what })
    }

    /// Detaches the process, which executes its file again. Returns whether it was detached, and what to tell the user. If it cannot
    /// execute the file again, it is still traced.
    ///
    /// # Errors
    /// The process is gone.
    pub(crate) fn release(self) -> io::Result<(bool, String)> {
        let Self { process, file, what } = self;
        let Some(what) = what else {
            let message = format!(
                "process {process} executes a file that cannot be read. If it has setuid, setgid or capabilities, they have no effect. Run \
                trodden as root"
            );
            return Ok((false, message));
        };
        let name = std::fs::read_link(&file).unwrap_or_default();
        let name = name.display();
        match prepare_execution(process, &file) {
            Ok(()) => {
                ptrace::detach_thread(process, 0)?;
                Ok((true, format!("process {process} is not traced, because `{name}` has {what}")))
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(error),
            Err(error) => {
                Ok((false, format!("process {process} lacks the privileges of `{name}`, which has {what} ({error}). Run trodden as root")))
            }
        }
    }
}

/// Lets a process call `execve` with its present path, arguments and environment when it is resumed.
fn prepare_execution(process: Tid, file: &Path) -> io::Result<()> {
    let memory = Memory::open(process)?;
    let registers = ptrace::read_registers(process)?;
    if !ptrace::is_64_bit(&registers) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it is a 32-bit program"));
    }
    let path = find_execve_path(process)?;
    let name = read_string(&memory, path)?;
    let root = if name.starts_with(b"/") { "root" } else { "cwd" };
    let executed = Path::new(&format!("/proc/{process}/{root}")).join(OsStr::from_bytes(name.strip_prefix(b"/").unwrap_or(&name)));
    let identity = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    // The path is different for scripts, and for files that were executed by a descriptor.
    if identity(&executed)? != identity(file)? {
        return Err(io::Error::new(io::ErrorKind::NotFound, "its path is unknown"));
    }
    let arguments = registers.rsp + 8;
    let environment = arguments + 8 * (memory.word(registers.rsp)? + 1);
    memory.write(registers.rip, &EXECVE_CODE)?;
    ptrace::write_registers(process, &Registers { orig_rax: u64::MAX, rdi: path, rsi: arguments, rdx: environment, ..registers })
}

/// Returns the address of the path that was passed to `execve`.
fn find_execve_path(process: Tid) -> io::Result<u64> {
    let vector = std::fs::read(format!("/proc/{process}/auxv"))?;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let entry = vector.chunks_exact(16).find(|entry| word(&entry[..8]) == libc::AT_EXECFN);
    entry.map(|entry| word(&entry[8..])).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "its path is unknown"))
}

fn read_string(memory: &Memory, mut at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < libc::PATH_MAX as usize {
        let mut byte = [0];
        memory.read(at, &mut byte)?;
        match byte {
            [0] => return Ok(bytes),
            [other] => bytes.push(other),
        }
        at += 1;
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}
