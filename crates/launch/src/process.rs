//! Processes that a command starts for its user: signals that are passed to them, how they end, and why one cannot be started.

use crate::signals::ignored_signals;
use crate::{Error, temporary};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Sender, channel};

/// The exit status that stands for another process's end.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let number = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(number as u8)
}

/// A program that the user named could not be run: why, and what can be done.
pub fn not_run(program: impl AsRef<OsStr>, error: io::Error) -> Error {
    let name = program.as_ref().display();
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            ": is the path right, and the interpreter there that it names in its first line? A name without a slash is sought in PATH"
        }
        io::ErrorKind::PermissionDenied => ": `chmod +x` makes a program of a file, where its file system allows programs",
        io::ErrorKind::ArgumentListTooLong => ": give the arguments in a file, if the program reads them from one",
        _ if error.raw_os_error() == Some(8) => {
            ": it is no program of this machine, and a script needs `#!` and an interpreter in its first line"
        }
        _ => "",
    };
    Error::NotRun { program: name.to_string(), error, remedy }
}

/// Runs a command to its end and hands on the signals that come to us meanwhile.
pub fn wait_forwarding(command: &mut Command) -> io::Result<ExitStatus> {
    forwarding_signals(|begun| {
        let mut child: Child = command.spawn()?;
        begun.report(child.id());
        child.wait()
    })?
}

/// Takes the number of the process that gets our signals.
pub struct BegunRun(Sender<u32>);

impl BegunRun {
    /// It runs.
    pub fn report(&self, process: u32) {
        // The thread that listens ends after the process.
        let _ = self.0.send(process);
    }
}

/// Does something that begins a process, and meanwhile hands on to that process the signals that come to us.
pub fn forwarding_signals<T>(work: impl FnOnce(BegunRun) -> T) -> io::Result<T> {
    // For good: what came to both the process and us must not end us when the process has ended first.
    temporary::take_signals();
    let ignored = ignored_signals();
    let forwarded = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2].into_iter().filter(|s| !ignored.contains(s));
    let mut signals = SignalsInfo::<WithOrigin>::new(forwarded)?;
    let handle = signals.handle();
    let (sender, process) = channel();
    let forwarder = std::thread::spawn(move || {
        let Ok(process) = process.recv() else { return };
        let process = Pid::from_raw(process as i32);
        for origin in signals.forever() {
            // What the terminal sends (no process did) goes to the whole group, so the command has it already.
            if origin.process.is_some()
                && let Ok(signal) = Signal::try_from(origin.signal)
            {
                // It may just have ended.
                let _ = kill(process, signal);
            }
        }
    });
    let result = work(BegunRun(sender));
    handle.close();
    let _ = forwarder.join();
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_is_named_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("text");
        std::fs::write(&file, "text").unwrap();
        let said = |program: &std::path::Path| not_run(program, std::process::Command::new(program).spawn().unwrap_err()).to_string();
        assert!(
            said("./not-there".as_ref()).contains("cannot run ./not-there: No such file") && said("./not-there".as_ref()).contains("PATH")
        );
        assert!(said(&file).contains("chmod +x"));
    }
}
