//! What all recordings share: the command with the place of its counts, and what is known of its run.

use crate::{Destination, Surroundings};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;
use trodden_launch::process::exit_code;
use trodden_profile::{ProcessEnding, Run};
use trodden_text::words;
use trodden_wire::OUTPUT_VARIABLE;

/// What is run, and where its profile goes.
#[derive(Clone, Debug)]
pub struct RecordedCommand {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Where the profile goes.
    pub destination: Destination,
}

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

/// Why something failed, in words.
pub(crate) fn reasons(error: &anyhow::Error) -> String {
    words::reasons(error.chain().map(ToString::to_string))
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
pub fn command(arguments: &[OsString], folder: &Path, names: &str, around: &Surroundings) -> Command {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).env(OUTPUT_VARIABLE, pattern(folder, names));
    around.withheld.iter().for_each(|name| _ = command.env_remove(name));
    command
}

/// What is known of a run of a command, but for its duration.
pub fn circumstances(arguments: &[OsString], started: Duration, ending: ProcessEnding, around: &Surroundings) -> Run {
    Run {
        command: arguments.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
        directory: around.directory.display().to_string(),
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
