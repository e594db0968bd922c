//! Runs a program that counts nothing under `perf record`, and makes a profile of the branches that hardware recorded.
//!
//! What perf and the machine can do is tried out first, on a program that does nothing: so a run is not made in vain.
//! Then it is perf that runs the command; its exit status is the command's. `perf script` prints the recording twice: first the files that
//! were mapped, among which programs with marked blocks are found, then the branches, for [`crate::import`].

use crate::import;
use crate::runs::reasons;
use crate::{RecordedCommand, Surroundings, circumstances, ending, exit_code_with};
use anyhow::{Context, Result, bail, ensure};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use trodden_launch::process::wait_forwarding;
use trodden_profile::Run;
use trodden_trace::marked_programs;

/// From one sample to the next, in branches; prime, so that it keeps no step with loops.
const PERIOD: &str = "100003";

/// What hardware records of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchKind {
    /// The most recent ones before each sample (`perf record -b`).
    Records,
    /// All, by Intel PT.
    Trace,
}

/// How branches are recorded.
#[derive(Clone, Debug)]
pub struct BranchRecording {
    /// What is recorded of them.
    pub kind: BranchKind,
    /// The program `perf`.
    pub perf: PathBuf,
    /// Its event, if the default does not work on this processor.
    pub event: Option<String>,
}

/// Records a run; gives the command's exit status.
///
/// # Errors
/// The machine records no branches, or perf cannot be run.
pub fn run(what: &RecordedCommand, job: &BranchRecording, around: &Surroundings) -> Result<ExitCode> {
    let folder = around.temporary_folder("trodden-branches-")?;
    let data = folder.path().join("branches.data");
    try_out(job, &folder.path().join("trial.data"))?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let mut command = recording(job, &data);
    command.arg("--").args(&what.command);
    let status = wait_forwarding(&mut command).with_context(|| format!("cannot run {}", job.perf.display()))?;
    let run = Run {
        duration_ns: clock.elapsed().as_nanos() as u64,
        suite: what.destination.suite.clone(),
        ..circumstances(&what.command, started, ending(status), around)
    };
    let kept = keep(what, job, &data, run, around);
    if let Err(error) = &kept {
        log::warn!("no profile of this run: {}", reasons(error));
    }
    Ok(exit_code_with(status, kept.is_ok()))
}

/// `perf record` with its options.
fn recording(job: &BranchRecording, data: &Path) -> Command {
    let mut command = Command::new(&job.perf);
    command.args(["record", "--quiet", "-o"]).arg(data);
    let event = |usual: &str| job.event.clone().unwrap_or_else(|| usual.into());
    match job.kind {
        BranchKind::Records => command.args(["-b", "-c", PERIOD, "-e"]).arg(event("branches:u")),
        BranchKind::Trace => command.arg("-e").arg(event("intel_pt//u")),
    };
    command
}

/// Records a program that does nothing.
fn try_out(job: &BranchRecording, data: &Path) -> Result<()> {
    let mut command = recording(job, data);
    let output =
        command.args(["--", "true"]).stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", job.perf.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).take(4).collect();
    bail!("this machine records no branches ({}); {}; the command was not run", lines.join(" "), remedy(job.kind))
}

fn remedy(kind: BranchKind) -> &'static str {
    match kind {
        BranchKind::Records => {
            "branch records need a processor that has them (Intel since Haswell; AMD Zen 4 and later, or Zen 3 with \
                --branches=branch-brs), which virtual machines rarely show, and the sysctl kernel.\
                perf_event_paranoid at 2 or less; build with --sample where there are none"
        }
        BranchKind::Trace => {
            "a trace needs Intel PT, which virtual machines rarely show, and the sysctl kernel.perf_event_paranoid at 2 or less; try \
                --branches=records, or build with --sample"
        }
    }
}

/// Has perf print what it recorded, and makes the profile.
fn keep(what: &RecordedCommand, job: &BranchRecording, data: &Path, run: Run, around: &Surroundings) -> Result<()> {
    ensure!(data.is_file(), "perf recorded nothing");
    let name = Path::new("what perf recorded");
    let programs = printed(job, data, &["-F", "pid,tid"], |text| Ok(marked_programs(text, name, around.units.as_ref())?))?;
    let fields: &[&str] = match job.kind {
        BranchKind::Records => &["-F", "pid,tid,ip,brstack"],
        BranchKind::Trace => &["--itrace=b", "-F", "pid,tid,ip,addr", "--show-task-events"],
    };
    let imported = printed(job, data, fields, |text| import::profile_of(text, name, &programs, run, around))?;
    import::store(imported, name, &what.destination, around)
}

/// Has perf print these fields and the mappings of the recording to a reader.
fn printed<T>(job: &BranchRecording, data: &Path, fields: &[&str], read: impl FnOnce(BufReader<ChildStdout>) -> Result<T>) -> Result<T> {
    let mut script = Command::new(&job.perf);
    script.arg("script").arg("-i").arg(data).args(fields).arg("--show-mmap-events").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = script.spawn().with_context(|| format!("cannot run {}", job.perf.display()))?;
    let found = read(BufReader::new(child.stdout.take().context("perf's output is a pipe")?));
    let status = child.wait()?;
    let found = found?;
    ensure!(status.success(), "`perf script` failed ({status})");
    Ok(found)
}
