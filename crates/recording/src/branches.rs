//! Runs an uninstrumented program under `perf record`, and makes a profile from the branches that the hardware recorded.
//!
//! The run may be long, so a trial recording of a trivial program first checks that perf and the machine can record branches. Then perf
//! runs the command and passes on its exit status. `perf script` prints the recording twice: first the mapped files, to find programs built
//! with marked blocks, and then the branches, for [`crate::import`].

use crate::import;
use crate::runs::format_causes;
use crate::{RecordedCommand, RecordingContext, exit_code_of_recording, process_ending, run_metadata};
use anyhow::{Context, Result, bail, ensure};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use trodden_launch::process::run_forwarding_signals;
use trodden_profile::Run;
use trodden_trace::programs_with_addresses;

/// Sampling period in branches. It is a prime, to avoid resonance with loops.
const SAMPLING_PERIOD_BRANCHES: &str = "100003";

/// Which branches the hardware records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedBranches {
    /// The most recent branches at each sample (`perf record -b`).
    Records,
    /// All branches, with Intel PT.
    Trace,
}

/// Arguments of [`run`].
#[derive(Clone, Debug)]
pub struct BranchRecording {
    /// Which branches the hardware records.
    pub kind: RecordedBranches,
    /// Path of the program `perf`.
    pub perf: PathBuf,
    /// The perf event to sample; `None` for the default event.
    pub event: Option<String>,
}

/// Records a run. Returns the command's exit status. Fails if the machine cannot record branches, or perf cannot be run.
pub fn run(what: &RecordedCommand, job: &BranchRecording, context: &RecordingContext) -> Result<ExitCode> {
    let folder = context.temporary_folder("trodden-branches-")?;
    let data = folder.path().join("branches.data");
    check_recording_works(job, &folder.path().join("trial.data"))?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let mut command = perf_record_command(job, &data);
    command.arg("--").args(&what.command);
    let status = run_forwarding_signals(&mut command).with_context(|| format!("cannot run {}", job.perf.display()))?;
    let run = Run {
        duration_ns: clock.elapsed().as_nanos() as u64,
        suite: what.destination.suite.clone(),
        ..run_metadata(&what.command, started, process_ending(status), context)
    };
    let stored = store_profile(what, job, &data, run, context);
    if let Err(error) = &stored {
        log::warn!("could not store the profile of this run: {}", format_causes(error));
    }
    Ok(exit_code_of_recording(status, stored.is_ok()))
}

fn perf_record_command(job: &BranchRecording, data: &Path) -> Command {
    let mut command = Command::new(&job.perf);
    command.args(["record", "--quiet", "-o"]).arg(data);
    let event = |default: &str| job.event.clone().unwrap_or_else(|| default.into());
    match job.kind {
        RecordedBranches::Records => command.args(["-b", "-c", SAMPLING_PERIOD_BRANCHES, "-e"]).arg(event("branches:u")),
        RecordedBranches::Trace => command.arg("-e").arg(event("intel_pt//u")),
    };
    command
}

fn check_recording_works(job: &BranchRecording, data: &Path) -> Result<()> {
    let mut command = perf_record_command(job, data);
    let output =
        command.args(["--", "true"]).stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", job.perf.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|l| !l.is_empty()).take(4).collect();
    bail!("perf cannot record branches on this machine: {}; {}. The command was not run", lines.join(" "), describe_requirements(job.kind))
}

fn describe_requirements(kind: RecordedBranches) -> &'static str {
    match kind {
        RecordedBranches::Records => {
            "branch records need the sysctl kernel.perf_event_paranoid at 2 or less, and a processor that supports them (Intel since \
                Haswell; AMD Zen 4 and later, or Zen 3 with --branches=branch-brs). Virtual machines rarely expose them. If they are not \
                available, build with --sample"
        }
        RecordedBranches::Trace => {
            "a trace needs the sysctl kernel.perf_event_paranoid at 2 or less, and Intel PT, which virtual machines rarely expose. Try \
                --branches=records, or build with --sample"
        }
    }
}

fn store_profile(what: &RecordedCommand, job: &BranchRecording, data: &Path, run: Run, context: &RecordingContext) -> Result<()> {
    ensure!(data.is_file(), "perf recorded nothing");
    let name = Path::new("the recording of perf");
    let programs = run_perf_script(job, data, &["-F", "pid,tid"], |text| Ok(programs_with_addresses(text, name, context.units.as_ref())?))?;
    let fields: &[&str] = match job.kind {
        RecordedBranches::Records => &["-F", "pid,tid,ip,brstack"],
        RecordedBranches::Trace => &["--itrace=b", "-F", "pid,tid,ip,addr", "--show-task-events"],
    };
    let imported = run_perf_script(job, data, fields, |text| import::profile_from_branch_text(text, name, &programs, run, context))?;
    import::store_import(imported, name, &what.destination, context)
}

fn run_perf_script<T>(
    job: &BranchRecording,
    data: &Path,
    fields: &[&str],
    read: impl FnOnce(BufReader<ChildStdout>) -> Result<T>,
) -> Result<T> {
    let mut script = Command::new(&job.perf);
    script.arg("script").arg("-i").arg(data).args(fields).arg("--show-mmap-events").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = script.spawn().with_context(|| format!("cannot run {}", job.perf.display()))?;
    let found = read(BufReader::new(child.stdout.take().context("cannot read perf's output")?));
    let status = child.wait()?;
    let found = found?;
    ensure!(status.success(), "`perf script` failed ({status})");
    Ok(found)
}
