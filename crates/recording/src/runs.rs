//! Functions that all recordings use: creating commands that count, exit statuses, and metadata of runs.

use crate::{ProfileDestination, RecordingContext};
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
use trodden_wire::OUTPUT_ENVIRONMENT_VARIABLE;

/// A command to record, and where its profile is written.
#[derive(Clone, Debug)]
pub struct RecordedCommand {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Where the profile is written.
    pub destination: ProfileDestination,
}

/// Exit status if the command succeeded but counts are missing.
const INCOMPLETE_STATUS: u8 = 2;

/// Environment variable that tells a training command the path of the program to run.
pub const PROGRAM_VARIABLE: &str = "TRODDEN_PROGRAM";

/// Environment variable with the name of the test to which a run belongs.
pub const TEST_VARIABLE: &str = "TRODDEN_TEST";

/// Returns the exit status of a recording: the command's own, unless the command succeeded and counts are missing.
pub fn exit_code_of_recording(status: ExitStatus, is_whole: bool) -> ExitCode {
    if status.success() && !is_whole { ExitCode::from(INCOMPLETE_STATUS) } else { exit_code(status) }
}

pub(crate) fn format_causes(error: &anyhow::Error) -> String {
    words::reasons(error.chain().map(ToString::to_string))
}

/// Returns the processor time of all ended child processes and their descendants, in nanoseconds.
pub fn cpu_time() -> u64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return 0 };
    (usage.user_time().num_nanoseconds() + usage.system_time().num_nanoseconds()).unsigned_abs()
}

/// Converts an exit status to the form that profiles store.
pub fn process_ending(status: ExitStatus) -> ProcessEnding {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnding::Exit(code),
        (None, signal) => ProcessEnding::Signal(signal.unwrap_or(0)),
    }
}

/// Creates a command that writes raw files, named by the pattern `names`, to a folder.
pub fn command(arguments: &[OsString], folder: &Path, names: &str, context: &RecordingContext) -> Command {
    let mut command = Command::new(&arguments[0]);
    command.args(&arguments[1..]).env(OUTPUT_ENVIRONMENT_VARIABLE, output_pattern(folder, names));
    context.withheld.iter().for_each(|name| _ = command.env_remove(name));
    command
}

/// Returns the metadata of a run. The caller adds the duration.
pub fn run_metadata(arguments: &[OsString], started: Duration, ending: ProcessEnding, context: &RecordingContext) -> Run {
    Run {
        command: arguments.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
        directory: context.directory.display().to_string(),
        host: host_name(),
        started_ns: started.as_nanos() as u64,
        ending: Some(ending),
        ..new_run_metadata()
    }
}

/// Returns the metadata of one run, of which only the recorder's version is known.
pub fn new_run_metadata() -> Run {
    Run { runs: 1, recorder: env!("CARGO_PKG_VERSION").into(), ..Run::default() }
}

/// Returns the host name of this machine.
pub fn host_name() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the output pattern that puts raw files into a folder. Percent signs in the folder's path are escaped.
pub fn output_pattern(folder: &Path, names: &str) -> OsString {
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
