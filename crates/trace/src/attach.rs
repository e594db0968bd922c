//! Attaches to a running process without disturbing it.

use crate::CollectError;
use crate::mappings::mappings;
use crate::parked::ParkedProcess;
use crate::process_status::{
    explain_yama_restriction, find_status_field, find_status_number, may_trace_others, parse_capability_set, read_own_status,
    read_process_status,
};
use crate::ptrace::{self, PtraceStop, ResumeMode, Tid, ignore_ended_thread, restart_interrupted_call};
use crate::session::Session;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Seizes and stops all threads of a process, including threads that are created in the meantime. If the process is parked, it is put back
/// as it was.
pub fn seize_all_threads(session: &Session, mut parked: Option<&mut ParkedProcess>) -> Result<Vec<Tid>, CollectError> {
    let process = session.process();
    let mut threads: Vec<Tid> = Vec::new();
    // A thread that is about to end remains listed for a while; `seen` keeps it from being tried again.
    let mut seen: Vec<Tid> = Vec::new();
    loop {
        let listed = std::fs::read_dir(format!("/proc/{process}/task")).map_err(|source| CollectError::Attach { process, source })?;
        let listed = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let fresh: Vec<Tid> = listed.filter(|thread| !seen.contains(thread)).collect();
        seen.extend(&fresh);
        if fresh.is_empty() {
            match threads.contains(&process) {
                true => return Ok(threads),
                false => return Err(untraceable_error(process, "it ended while the tracer attached to it".to_owned())),
            }
        }
        for thread in fresh {
            // Request only exit events for now: the thread may be inside a system call, where nothing can be injected.
            // `stop_seized_thread` sets the other options.
            match ptrace::seize_thread(thread, ptrace::EXIT_EVENT_OPTIONS) {
                Ok(()) => session.add_thread(thread, false),
                Err(_) if has_ended(thread) => continue,
                Err(source) => return Err(CollectError::Attach { process, source }),
            }
            if stop_seized_thread(session, thread, parked.as_deref_mut())? {
                threads.push(thread);
            }
        }
    }
}

/// Returns true if a thread has ended. `/proc` may still list such a thread, as a zombie.
fn has_ended(thread: Tid) -> bool {
    find_status_field(&read_process_status(thread), "State").is_none_or(|state| state.starts_with(['Z', 'X']))
}

fn untraceable_error(process: Tid, why: String) -> CollectError {
    CollectError::Untraceable { process, why }
}

/// Checks that a process can be traced, and that tracing does not harm it.
///
/// # Errors
/// The process cannot or must not be traced; the message says what to do.
pub fn check_traceable(process: Tid) -> Result<(), CollectError> {
    let reject = |why: String| Err(untraceable_error(process, why));
    let (its, own) = (read_process_status(process), read_own_status());
    if its.is_empty() {
        return reject("it does not exist".to_owned());
    }
    if let Some(group) = find_status_number(&its, "Tgid").filter(|group| *group != process && *group != std::process::id() as Tid) {
        return reject(format!("it is a thread of process {group}: pass `--pid {group}`"));
    }
    if is_recorder(process) {
        return reject("it is the recorder itself. Pass the id of a different process".to_owned());
    }
    match find_status_field(&its, "State").unwrap_or_default().chars().next() {
        Some('Z' | 'X') => return reject("it has ended, or its first thread has".to_owned()),
        Some('T') => return reject(format!("it is stopped by a signal. Continue it first (`kill -CONT {process}`)")),
        _ => {}
    }
    if let Some(tracer) = find_status_number(&its, "TracerPid").filter(|tracer| *tracer != 0) {
        let name = find_status_field(&read_process_status(tracer), "Name").map(|name| format!(" ({name})")).unwrap_or_default();
        return reject(format!("process {tracer}{name} already traces it. End that process first"));
    }
    // Kernel threads have no memory of their own.
    if find_status_field(&its, "VmSize").is_none() {
        return reject("it is a kernel thread. Pass the id of a program's process".to_owned());
    }
    if !may_trace_others(&own) {
        let (user, own_user) = (find_status_number(&its, "Uid"), find_status_number(&own, "Uid"));
        if user != own_user {
            return reject(format!("it belongs to user {}. Run as that user or as root", user.unwrap_or_default()));
        }
        // `Uid` and `Gid` list the real, effective, saved and file-system ids. They differ from this process's if the executable was setuid
        // or setgid.
        let has_others = ["Uid", "Gid"].iter().any(|ids| find_status_field(&its, ids) != find_status_field(&own, ids));
        if has_others || parse_capability_set(&its, "CapPrm") & !parse_capability_set(&own, "CapPrm") != 0 {
            return reject("its file gives it privileges that this user lacks (setuid, setgid or setcap). Run as root".to_owned());
        }
    }
    if let Some(why) = explain_yama_restriction() {
        return reject(why);
    }
    // A container's filters apply to this process, too, so only filters beyond those of this process matter.
    let filters = |status: &str| find_status_number(status, "Seccomp_filters").unwrap_or(0);
    if find_status_field(&its, "Seccomp").as_deref() == Some("1") || filters(&its) > filters(&own) {
        return reject("it filters its system calls (seccomp), and the filter would kill it for calls that the trace injects".to_owned());
    }
    Ok(())
}

/// Returns true if the process is this recorder: the current process, one of its threads, or an ancestor that runs the same executable and
/// has delegated its work to the current process.
fn is_recorder(process: Tid) -> bool {
    let program = |process: Tid| std::fs::metadata(format!("/proc/{process}/exe")).ok().map(|file| (file.dev(), file.ino()));
    let own = std::process::id() as Tid;
    let mut ancestor = own;
    while ancestor != 0 && program(ancestor).is_some_and(|other| Some(other) == program(own)) {
        if ancestor == process || find_status_number(&read_process_status(process), "Tgid") == Some(ancestor) {
            return true;
        }
        ancestor = find_status_number(&read_process_status(ancestor), "PPid").unwrap_or(0);
    }
    false
}

/// Checks that a process does not share its memory with other processes for more than a short time.
pub fn check_memory_is_unshared(process: Tid) -> Result<(), CollectError> {
    // A `vfork` child shares memory only until it executes a different program.
    let mut sharing = processes_sharing_memory(process)?;
    for _ in 0..MAX_SHARING_CHECKS {
        if sharing.is_empty() {
            return Ok(());
        }
        std::thread::sleep(SHARING_CHECK_INTERVAL);
        sharing.retain(|other| shares_memory(process, *other).unwrap_or(false));
    }
    match sharing.first() {
        Some(other) => Err(untraceable_error(process, format!("process {other} shares its memory and would hit the breakpoints"))),
        None => Ok(()),
    }
}

/// Checks that a path names the same file in the process's mount namespace (it may run in a container) as in this process's namespace.
pub fn check_path_names_same_file(process: Tid, path: &Path) -> Result<(), CollectError> {
    let of = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let seen = Path::new("/proc").join(process.to_string()).join("root").join(path.strip_prefix("/").unwrap_or(path));
    match (of(path), of(&seen)) {
        (Ok(here), Ok(there)) if here != there => {
            let path = path.display();
            let why = format!("{path} is a different file in its mount namespace. Trace it from there");
            Err(CollectError::Untraceable { process, why })
        }
        _ => Ok(()),
    }
}

/// Checks that the process has no writable mapping of the file's code, which a plain store could change.
pub fn check_code_is_unwritable(process: Tid, path: &Path) -> Result<(), CollectError> {
    let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mappings = mappings(process).unwrap_or_default().into_iter();
    let writable = mappings.filter(|m| Path::new(&m.name) == name).find(|m| m.executable && m.protection & libc::PROT_WRITE != 0);
    match writable {
        Some(mapping) => {
            let (path, start) = (path.display(), mapping.start);
            Err(untraceable_error(process, format!("it has writable code of {path} at {start:#x}. Use `--collector single-step`")))
        }
        None => Ok(()),
    }
}

/// Number of repeated checks whether a process shares memory, and the wait between two checks. Some processes share it only briefly.
const MAX_SHARING_CHECKS: u32 = 20;
const SHARING_CHECK_INTERVAL: Duration = Duration::from_millis(25);

/// Returns the other processes that share the process's memory.
fn processes_sharing_memory(process: Tid) -> io::Result<Vec<Tid>> {
    let others = std::fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<Tid>().ok());
    Ok(others.filter(|other| *other != process && shares_memory(process, *other).unwrap_or(false)).collect())
}

/// Returns true if two processes share one address space.
///
/// # Errors
/// One of them has ended, or this process may not trace it.
pub fn shares_memory(process: Tid, other: Tid) -> io::Result<bool> {
    const KCMP_VM: i32 = 1;
    // SAFETY: the system call takes no pointers.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, process, other, KCMP_VM, 0, 0) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        different => Ok(different == 0),
    }
}

/// Stops a thread that was just seized. Returns false if it has ended or is about to end.
fn stop_seized_thread(session: &Session, thread: Tid, mut parked: Option<&mut ParkedProcess>) -> Result<bool, CollectError> {
    ignore_ended_thread(ptrace::interrupt_thread(thread))?;
    loop {
        let stop = session.wait_for(thread);
        if let (Ok(_), Some(parked)) = (&stop, &mut parked) {
            parked.restore()?;
        }
        match stop {
            // The thread has ended. Its exit event stays queued for `follow`.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(e) => return Err(e.into()),
            Ok(PtraceStop::Signal(signal)) => {
                ignore_ended_thread(ptrace::interrupt_thread(thread))?;
                session.resume(thread, ResumeMode::Continue, signal)?;
            }
            Ok(PtraceStop::GroupStopped) => {
                let process = session.process();
                return Err(untraceable_error(process, format!("it is stopped by a signal. Continue it first (`kill -CONT {process}`)")));
            }
            Ok(_) => {
                ignore_ended_thread(ptrace::set_options(thread, false))?;
                ignore_ended_thread(restart_interrupted_call(thread))?;
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Between the start of a session and the stop of its threads, a process may execute a different program.
    #[test]
    fn memory_is_opened_after_exec() {
        let mut command = Command::new("sh");
        command.args(["-c", "read word; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let process = child.id() as Tid;
        let name = || std::fs::read_link(format!("/proc/{process}/exe")).unwrap();
        let session = Session::new(process);
        let shell = name();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        while name() == shell || !name().ends_with("cat") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let image = mappings(process).unwrap().into_iter().find(|mapping| name() == std::path::Path::new(&mapping.name)).unwrap();
        let mut bytes = [0; 4];
        let read = session.own_memory().and_then(|memory| memory.read(image.start, &mut bytes));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(read.is_ok() && bytes == *b"\x7fELF", "{read:?}");
    }
}
