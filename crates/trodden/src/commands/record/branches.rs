//! `trodden record --branches -- COMMAND`: runs a program that counts nothing under `perf record`, and makes a profile
//! of the branches that hardware recorded.
//!
//! What perf and the machine can do is tried out first, on a program that does nothing: so a run is not made in vain.
//! Then it is perf that runs the command; its exit status is the command's. What `perf script` prints of the recording
//! goes through [`crate::import`], as if the user had printed it.

use crate::cli::{BranchKind, Record};
use crate::commands::import;
use crate::driver::other_programs::named;
use crate::notes::{reasons, warn};
use crate::running;
use crate::temporary;
use anyhow::{Context, Result, bail, ensure};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use trodden_launch::process::wait_forwarding;
use trodden_profile::Run;

/// From one sample to the next, in branches; prime, so that it keeps no step with loops.
const PERIOD: &str = "100003";

/// Records a run; gives the command's exit status.
///
/// # Errors
/// perf is missing, or the machine records no branches, or the command cannot be found.
pub fn run(job: &Record, kind: BranchKind) -> Result<ExitCode> {
    let perf = named("perf".as_ref())
        .context("perf is not installed: install it (Debian: apt install linux-perf; Ubuntu: linux-tools-generic; Fedora: perf)")?;
    let programs = programs(job)?;
    let folder = temporary::folder("trodden-branches-")?;
    let data = folder.path().join("branches.data");
    try_out(&perf, job, kind, &folder.path().join("trial.data"))?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let mut command = recording(&perf, job, kind, &data);
    command.arg("--").args(&job.command);
    let status = wait_forwarding(&mut command).with_context(|| format!("cannot run {}", perf.display()))?;
    let run = Run {
        duration_ns: clock.elapsed().as_nanos() as u64,
        suite: job.destination.suite.clone(),
        ..running::circumstances(&job.command, started, running::ending(status))
    };
    let kept = keep(&perf, job, kind, &data, &programs, run);
    if let Err(error) = &kept {
        warn(format_args!("no profile of this run: {}", reasons(error)));
    }
    Ok(running::exit_code_with(status, kept.is_ok()))
}

/// `perf record` with its options.
fn recording(perf: &Path, job: &Record, kind: BranchKind, data: &Path) -> Command {
    let mut command = Command::new(perf);
    command.args(["record", "--quiet", "-o"]).arg(data);
    let event = |usual: &str| job.branches.event.clone().unwrap_or_else(|| usual.into());
    match kind {
        BranchKind::Records => command.args(["-b", "-c", PERIOD, "-e"]).arg(event("branches:u")),
        BranchKind::Trace => command.arg("-e").arg(event("intel_pt//u")),
    };
    command
}

/// Records a program that does nothing.
fn try_out(perf: &Path, job: &Record, kind: BranchKind, data: &Path) -> Result<()> {
    let mut command = recording(perf, job, kind, data);
    let output = command.args(["--", "true"]).stdin(Stdio::null()).output().with_context(|| format!("cannot run {}", perf.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).take(4).collect();
    bail!("this machine records no branches ({}); {}; the command was not run", lines.join(" "), remedy(kind))
}

fn remedy(kind: BranchKind) -> &'static str {
    match kind {
        BranchKind::Records => {
            "branch records need a processor that has them (Intel since Haswell; AMD Zen 4 and later, or Zen 3 with --branch-event \
                branch-brs), which virtual \
             machines rarely show, and the sysctl kernel.perf_event_paranoid at 2 or less; build with --sample where there are none"
        }
        BranchKind::Trace => {
            "a trace needs Intel PT, which virtual machines rarely show, and the sysctl kernel.perf_event_paranoid at 2 or less; try \
                --branches=records, or build with --sample"
        }
    }
}

/// Has perf print what it recorded, and makes the profile.
fn keep(perf: &Path, job: &Record, kind: BranchKind, data: &Path, programs: &[PathBuf], run: Run) -> Result<()> {
    ensure!(data.is_file(), "perf recorded nothing");
    let mut script = Command::new(perf);
    script.arg("script").arg("-i").arg(data);
    match kind {
        BranchKind::Records => script.args(["-F", "pid,tid,ip,brstack", "--show-mmap-events"]),
        BranchKind::Trace => script.args(["--itrace=b", "-F", "pid,tid,ip,addr", "--show-mmap-events", "--show-task-events"]),
    };
    let mut child = script.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {}", perf.display()))?;
    let text = BufReader::new(child.stdout.take().context("perf's output is a pipe")?);
    let imported = import::profile_of(text, Path::new("what perf recorded"), programs, run);
    let status = child.wait()?;
    let imported = imported?;
    ensure!(status.success(), "`perf script` failed ({status})");
    import::store(imported, Path::new("what perf recorded"), &job.destination)
}

/// The programs and libraries whose branches are wanted: those given, else the command's.
fn programs(job: &Record) -> Result<Vec<PathBuf>> {
    if !job.branches.programs.is_empty() {
        return Ok(job.branches.programs.clone());
    }
    let name = &job.command[0];
    let found =
        named(name).filter(|file| file.is_file()).with_context(|| format!("cannot run {}: there is no such program", name.display()))?;
    Ok(vec![found])
}
