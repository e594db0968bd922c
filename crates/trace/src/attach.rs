//! Taking control of a process that runs already, such that it sees nothing of it.

use crate::CollectError;
use crate::memory::mappings;
use crate::process_status::{capabilities, field, forbidden_by_yama, may_trace_others, number, own_status, status};
use crate::ptrace::{self, PtraceStop, Resume, Tid, begin_again, unless_gone};
use crate::session::Session;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// Follows all threads of a process and stops them; threads made meanwhile are found by looking again.
pub fn seize_all(session: &Session) -> Result<Vec<Tid>, CollectError> {
    let process = session.process();
    let mut threads: Vec<Tid> = Vec::new();
    // Those that are about to end stay in the list for a while.
    let mut seen: Vec<Tid> = Vec::new();
    loop {
        let listed = std::fs::read_dir(format!("/proc/{process}/task")).map_err(|source| CollectError::Attach { process, source })?;
        let listed = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let fresh: Vec<Tid> = listed.filter(|thread| !seen.contains(thread)).collect();
        seen.extend(&fresh);
        if fresh.is_empty() {
            match threads.contains(&process) {
                true => return Ok(threads),
                false => return Err(refusal(process, "it ended while it was attached to".to_owned())),
            }
        }
        for thread in fresh {
            // Nothing but its end is reported of it before it has stopped: in the middle of a system call nothing can be done in its name.
            match ptrace::seize(thread, ptrace::END) {
                Ok(()) => session.add_thread(thread, false),
                Err(_) if has_ended(thread) => continue,
                Err(source) => return Err(CollectError::Attach { process, source }),
            }
            if stop_first(session, thread)? {
                threads.push(thread);
            }
        }
    }
}

/// Whether a thread has ended, though it may still be listed.
fn has_ended(thread: Tid) -> bool {
    field(&status(thread), "State").is_none_or(|state| state.starts_with(['Z', 'X']))
}

fn refusal(process: Tid, why: String) -> CollectError {
    CollectError::Untraceable { process, why }
}

/// Refuses processes that cannot be traced, and those that a trace would harm.
///
/// # Errors
/// It is such a process: why, and what to do.
pub fn check_traceable(process: Tid) -> Result<(), CollectError> {
    let refuse = |why: String| Err(refusal(process, why));
    let (its, own) = (status(process), own_status());
    if its.is_empty() {
        return refuse("there is no such process".to_owned());
    }
    if let Some(group) = number(&its, "Tgid").filter(|group| *group != process && *group != std::process::id() as Tid) {
        return refuse(format!("it is a thread of process {group}: pass `--pid {group}`"));
    }
    if is_recorder(process) {
        return refuse("it is the recorder itself: pass the number of another process".to_owned());
    }
    match field(&its, "State").unwrap_or_default().chars().next() {
        Some('Z' | 'X') => return refuse("it has ended, or its first thread has".to_owned()),
        Some('T') => return refuse(format!("it is stopped by a signal: let it go on first (`kill -CONT {process}`)")),
        _ => {}
    }
    if let Some(tracer) = number(&its, "TracerPid").filter(|tracer| *tracer != 0) {
        let name = field(&status(tracer), "Name").map(|name| format!(" ({name})")).unwrap_or_default();
        return refuse(format!("process {tracer}{name} traces it already: end that first"));
    }
    // Processes of the kernel have no memory of their own.
    if field(&its, "VmSize").is_none() {
        return refuse("it is a thread of the kernel: pass the number of a program's process".to_owned());
    }
    if !may_trace_others(&own) {
        let (user, own_user) = (number(&its, "Uid"), number(&own, "Uid"));
        if user != own_user {
            return refuse(format!("it belongs to user {}: run as that user, or as root", user.unwrap_or_default()));
        }
        // The second number is the effective one.
        let has_others = ["Uid", "Gid"].iter().any(|ids| field(&its, ids) != field(&own, ids));
        if has_others || capabilities(&its, "CapPrm") & !capabilities(&own, "CapPrm") != 0 {
            return refuse("its file has given it more rights than this user has (setuid, setgid or setcap): run as root".to_owned());
        }
    }
    if let Some(why) = forbidden_by_yama() {
        return refuse(why);
    }
    // Those that a container gives all its processes are no obstacle.
    let filters = |status: &str| number(status, "Seccomp_filters").unwrap_or(0);
    if field(&its, "Seccomp").as_deref() == Some("1") || filters(&its) > filters(&own) {
        return refuse("it filters its system calls (seccomp), which would end it for those that a trace makes in its name".to_owned());
    }
    Ok(())
}

/// Whether a process is this one, a thread of it, or an ancestor with the same program that has started this one to do its work.
fn is_recorder(process: Tid) -> bool {
    let program = |process: Tid| std::fs::metadata(format!("/proc/{process}/exe")).ok().map(|file| (file.dev(), file.ino()));
    let own = std::process::id() as Tid;
    let mut of_recorder = own;
    while of_recorder != 0 && program(of_recorder).is_some_and(|other| Some(other) == program(own)) {
        if of_recorder == process || number(&status(process), "Tgid") == Some(of_recorder) {
            return true;
        }
        of_recorder = number(&status(of_recorder), "PPid").unwrap_or(0);
    }
    false
}

/// Refuses processes that share their memory with others for long.
pub fn check_unshared(process: Tid) -> Result<(), CollectError> {
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
        Some(other) => Err(refusal(process, format!("process {other} shares its memory, and would come to what a trace sets there"))),
        None => Ok(()),
    }
}

/// Refuses a file that the process does not have under this name: it has other file systems (a container, a bind mount).
///
/// # Errors
/// It has another file there.
pub fn check_same_file(process: Tid, path: &Path) -> Result<(), CollectError> {
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

/// Refuses a process that can change the code of a file by a plain store.
///
/// # Errors
/// It can.
pub fn check_unwritable_in(process: Tid, path: &Path) -> Result<(), CollectError> {
    let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mappings = mappings(process).unwrap_or_default().into_iter();
    let writable = mappings.filter(|m| Path::new(&m.name) == name).find(|m| m.executable && m.protection & libc::PROT_WRITE != 0);
    match writable {
        Some(mapping) => {
            let (path, start) = (path.display(), mapping.start);
            Err(refusal(process, format!("it can change code of {path} at {start:#x} itself: take `--collector single-step`")))
        }
        None => Ok(()),
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
fn stop_first(session: &Session, thread: Tid) -> Result<bool, CollectError> {
    unless_gone(ptrace::interrupt(thread))?;
    loop {
        match session.wait_for(thread) {
            // Its event has been kept: the loop that takes events lets it end.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(e) => return Err(e.into()),
            Ok(PtraceStop::Signal(signal)) => {
                unless_gone(ptrace::interrupt(thread))?;
                session.resume(thread, Resume::Continue, signal)?;
            }
            Ok(PtraceStop::GroupStopped) => {
                let process = session.process();
                return Err(refusal(process, format!("it is stopped by a signal: let it go on first (`kill -CONT {process}`)")));
            }
            Ok(_) => {
                unless_gone(ptrace::set_options(thread, false))?;
                unless_gone(begin_again(thread))?;
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

    /// Between the beginning of a session and the stop of its threads a process may execute another program.
    #[test]
    fn memory_is_that_of_the_program_that_was_stopped() {
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
