//! Taking control of a process that runs already, such that it sees nothing of it.

use crate::CollectError;
use crate::ptrace::{self, PtraceStop, Registers, Resume, Tid, unless_gone};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Follows all threads of a process and stops them; threads made meanwhile are found by looking again.
pub fn seize_all(process: Tid) -> Result<Vec<Tid>, CollectError> {
    let mut threads: Vec<Tid> = Vec::new();
    loop {
        let listed = std::fs::read_dir(format!("/proc/{process}/task")).map_err(|source| CollectError::Attach { process, source })?;
        let listed = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let fresh: Vec<Tid> = listed.filter(|thread| !threads.contains(thread)).collect();
        if fresh.is_empty() {
            return Ok(threads);
        }
        for thread in fresh {
            // Nothing is reported of it before it has stopped: in the middle of a system call nothing can be done in its name.
            match ptrace::seize(thread, 0) {
                Ok(()) => {}
                // It has ended meanwhile.
                Err(e) if thread != process && e.raw_os_error() == Some(libc::ESRCH) => continue,
                Err(source) => return Err(CollectError::Attach { process, source }),
            }
            if stop_first(thread)? {
                threads.push(thread);
            }
        }
    }
}

/// Refuses processes that a trace would harm.
pub fn check_traceable(process: Tid) -> Result<(), CollectError> {
    let refuse = |why: String| Err(CollectError::Untraceable { process, why });
    let status = |of: &str| std::fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default();
    let field = |status: &str, name: &str| -> Option<String> {
        Some(status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim().to_owned())
    };
    let (its, own) = (status(&process.to_string()), status("self"));
    if field(&its, "State").is_some_and(|state| state.starts_with('T')) {
        return refuse(format!("it is stopped by a signal: let it go on first (`kill -CONT {process}`)"));
    }
    // Those that a container gives all its processes are no obstacle.
    let filters = |status: &str| field(status, "Seccomp_filters").and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    if field(&its, "Seccomp").as_deref() == Some("1") || filters(&its) > filters(&own) {
        return refuse("it filters its system calls (seccomp), which would end it for those that a trace makes in its name".to_owned());
    }
    // A `vfork` child soon executes a program of its own.
    let mut sharing = sharing(process)?;
    for _ in 0..SHARING_CHECKS {
        if sharing.is_empty() {
            return Ok(());
        }
        std::thread::sleep(SHARING_WAIT);
        sharing.retain(|other| shares_memory(process, *other).unwrap_or(false));
    }
    match sharing.first() {
        Some(other) => refuse(format!("process {other} shares its memory, and would come to what a trace sets there")),
        None => Ok(()),
    }
}

/// Refuses a file that the process does not have under this name: it has other file systems (a container, a bind mount).
///
/// # Errors
/// It has another file there.
pub fn check_same_file(process: Tid, path: &Path) -> Result<(), CollectError> {
    use std::os::unix::fs::MetadataExt;
    let of = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let seen = Path::new("/proc").join(process.to_string()).join("root").join(path.strip_prefix("/").unwrap_or(path));
    match (of(path), of(&seen)) {
        (Ok(here), Ok(there)) if here != there => {
            let path = path.display();
            let why = format!("{path} is another file for it than here (other mounts): trace it from where it runs");
            Err(CollectError::Untraceable { process, why })
        }
        _ => Ok(()),
    }
}

/// How often, and how long apart, to look whether processes share memory for long.
const SHARING_CHECKS: u32 = 20;
const SHARING_WAIT: Duration = Duration::from_millis(25);

/// Other processes with the same memory.
fn sharing(process: Tid) -> io::Result<Vec<Tid>> {
    let others = std::fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<Tid>().ok());
    Ok(others.filter(|other| *other != process && shares_memory(process, *other).unwrap_or(false)).collect())
}

/// Whether two processes have one memory.
///
/// # Errors
/// One is gone, or is not ours.
pub fn shares_memory(process: Tid, other: Tid) -> io::Result<bool> {
    const KCMP_VM: i32 = 1;
    // SAFETY: a system call without pointers.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, process, other, KCMP_VM, 0, 0) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        different => Ok(different == 0),
    }
}

/// Stops a thread that is followed from now on; whether it has not ended.
fn stop_first(thread: Tid) -> io::Result<bool> {
    unless_gone(ptrace::interrupt(thread))?;
    loop {
        match ptrace::wait(thread)? {
            Some((_, PtraceStop::Ended(_))) | None => return Ok(false),
            Some((_, PtraceStop::Signal(signal))) => {
                unless_gone(ptrace::interrupt(thread))?;
                unless_gone(ptrace::resume(thread, Resume::Continue, signal))?;
            }
            Some(_) => {
                unless_gone(ptrace::set_options(thread, false))?;
                unless_gone(begin_again(thread))?;
                return Ok(true);
            }
        }
    }
}

/// System calls that say `EINTR` when their thread has been stopped, though no handler has run (signal(7)).
const CUT_BY_STOPS: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
];

/// Lets a thread that was stopped in such a call begin it again, with its whole time limit, so that the program sees no error that it
/// would not have seen.
///
/// # Errors
/// The thread is gone.
pub fn begin_again(thread: Tid) -> io::Result<()> {
    let registers = ptrace::registers(thread)?;
    let is_cut = registers.rax as i64 == -i64::from(libc::EINTR) && CUT_BY_STOPS.contains(&(registers.orig_rax as libc::c_long));
    if is_cut && !ptrace::has_pending(thread) {
        let again = Registers { rax: registers.orig_rax, orig_rax: u64::MAX, rip: registers.rip - SYSTEM_CALL, ..registers };
        ptrace::set_registers(thread, &again)?;
    }
    Ok(())
}

/// Bytes of the instruction `syscall`.
const SYSTEM_CALL: u64 = 2;
