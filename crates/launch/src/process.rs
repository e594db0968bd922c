//! Runs programs for the user: forwards signals, converts exit statuses, and explains why a program cannot be started.

use crate::signals::ignored_signals;
use crate::{LaunchError, temporary};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Sender, channel};

/// Converts an exit status to an exit code as a shell does. If a signal killed the process, the exit code is 128 plus the signal number.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let number = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(number as u8)
}

/// Creates the error for a program that the user named and that could not be run. The message contains advice that depends on the cause.
pub fn cannot_run_error(program: impl AsRef<OsStr>, error: io::Error) -> LaunchError {
    let name = program.as_ref().display();
    let advice = match error.kind() {
        io::ErrorKind::NotFound => {
            ". Check the path, and the interpreter in the program's first line. A name without a slash is searched for in PATH"
        }
        io::ErrorKind::PermissionDenied => ". Make the file executable with `chmod +x`; its file system must not be mounted with noexec",
        io::ErrorKind::ArgumentListTooLong => ". Pass the arguments in a file, if the program can read them from a file",
        _ if error.raw_os_error() == Some(8) => {
            ". The file is not a program for this machine. A script needs `#!` and an interpreter in its first line"
        }
        _ => "",
    };
    LaunchError::NotRun { program: name.to_string(), error, advice }
}

/// Searches the folders of `search_path`, a value of `PATH`, for files with this name. Returns the first one that `is_wanted` accepts.
pub fn find_in_search_path(name: &OsStr, search_path: Option<&OsStr>, is_wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    search_path.into_iter().flat_map(env::split_paths).map(|folder| folder.join(name)).find(|path| is_wanted(path))
}

/// Runs a command until it ends, and forwards signals to it in the meantime.
pub fn run_forwarding_signals(command: &mut Command) -> io::Result<ExitStatus> {
    forward_signals_during(|begun| {
        let mut child: Child = command.spawn()?;
        begun.report(child.id());
        child.wait()
    })?
}

/// Passes the ID of a new process to the thread that forwards signals to it.
pub struct SignalForwardingTarget(Sender<u32>);

impl SignalForwardingTarget {
    /// Makes signals be forwarded to the process with this ID.
    pub fn report(&self, process: u32) {
        // This fails only if the forwarding thread has ended. Then no signals are forwarded.
        let _ = self.0.send(process);
    }
}

/// Calls `work`, which starts a process and reports its ID. Forwards signals to that process until `work` returns.
pub fn forward_signals_during<T>(work: impl FnOnce(SignalForwardingTarget) -> T) -> io::Result<T> {
    // This is not undone afterwards: a signal that was sent to both processes must not end this process even if it arrives after the other
    // one has ended.
    temporary::disable_removal_on_signals();
    let ignored = ignored_signals();
    let forwarded = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2].into_iter().filter(|s| !ignored.contains(s));
    let mut signals = SignalsInfo::<WithOrigin>::new(forwarded)?;
    let handle = signals.handle();
    let (sender, process) = channel();
    let forwarder = std::thread::spawn(move || {
        let Ok(process) = process.recv() else { return };
        let process = Pid::from_raw(process as i32);
        for origin in signals.forever() {
            // A signal from the terminal has no sending process. It is not forwarded, because the terminal sends it to the whole process
            // group.
            if origin.process.is_some()
                && let Ok(signal) = Signal::try_from(origin.signal)
            {
                // This fails if the process has just ended.
                let _ = kill(process, signal);
            }
        }
    });
    let result = work(SignalForwardingTarget(sender));
    handle.close();
    let _ = forwarder.join();
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_for_program_that_cannot_run_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text");
        std::fs::write(&file, "text").unwrap();
        let message =
            |program: &std::path::Path| cannot_run_error(program, std::process::Command::new(program).spawn().unwrap_err()).to_string();
        let missing = message("./not-there".as_ref());
        assert!(missing.contains("cannot run ./not-there: No such file") && missing.contains("PATH"), "{missing}");
        assert!(message(&file).contains("chmod +x"));
    }
}
