//! What commands that run a program share: its process and our signals, the folder of its raw counts, bursts, and where its profile goes.

pub mod bursts;
mod delivery;
mod folder;
mod processor_time;
pub mod temporary;
pub mod tracer;
mod waiting;

pub use delivery::{Lacking, deliver, nothing_counted};
pub use folder::{RunFolder, is_in_use, run_folder};

use crate::driver::cc::CARGO_FOLDER_VARIABLE;
pub use crate::driver::link::exit_code;
use crate::driver::rust::ROLE_VARIABLE;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use trodden_profile::{ProcessEnding, Run};
use trodden_wire::OUTPUT_VARIABLE;

/// Exit status of a recording that lacks counts, of a command that ended well.
const INCOMPLETE: u8 = 2;

/// Variable by which trainings find the program that is trained.
pub const PROGRAM_VARIABLE: &str = "TRODDEN_PROGRAM";

/// Environment variable that names the test which a program's run is.
pub const TEST_VARIABLE: &str = "TRODDEN_TEST";

/// The exit status by which a command's end is passed on. One that says all is well is not, where counts are missing.
pub fn exit_code_with(status: ExitStatus, is_whole: bool) -> ExitCode {
    if status.success() && !is_whole { ExitCode::from(INCOMPLETE) } else { exit_code(status) }
}

/// Processor time of all children that have ended, with theirs, in ns.
pub fn cpu_time() -> u64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return 0 };
    (usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds()).unsigned_abs()
}

/// How a process ended.
pub fn ending(status: ExitStatus) -> ProcessEnding {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnding::Exit(code),
        (None, signal) => ProcessEnding::Signal(signal.unwrap_or(0)),
    }
}

/// A command whose counts go to files of these names in a folder.
pub fn command(arguments: &[OsString], folder: &Path, names: &str) -> Command {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).env(OUTPUT_VARIABLE, pattern(folder, names));
    if std::env::var_os(ROLE_VARIABLE).is_some() {
        // `cargo trodden run` calls us: what it passed to rustc is not the program's business.
        [ROLE_VARIABLE, CARGO_FOLDER_VARIABLE, "RUSTC_WRAPPER"].into_iter().for_each(|name| _ = command.env_remove(name));
    }
    command
}

/// What is known of a run of a command, but for its duration.
pub fn circumstances(arguments: &[OsString], started: Duration, ending: ProcessEnding) -> Run {
    Run {
        command: arguments.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
        directory: std::env::current_dir().unwrap_or_default().display().to_string(),
        host: host(),
        started_ns: started.as_nanos() as u64,
        ending: Some(ending),
        ..one_run()
    }
}

/// A run of which nothing is known yet.
pub fn one_run() -> Run {
    Run { runs: 1, recorder: env!("CARGO_PKG_VERSION").into(), ..Run::default() }
}

/// Name of this computer.
pub fn host() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// The pattern of raw files in a folder.
pub fn pattern(folder: &Path, names: &str) -> OsString {
    let mut bytes = Vec::new();
    for byte in folder.as_os_str().as_bytes() {
        bytes.push(*byte);
        if *byte == b'%' {
            bytes.push(b'%');
        }
    }
    bytes.push(b'/');
    bytes.extend(names.as_bytes());
    OsString::from_vec(bytes)
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

/// Signals that the caller wants ignored (`nohup`): a handler here would have the command not ignore them.
pub fn ignored_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask & (1 << (signal - 1)) != 0).collect()
}
