//! Running a program under the preload library.

use crate::cli::WaitsRecord;
use crate::driver::assets;
use crate::notes::{note, warn};
use crate::temporary;
use anyhow::{Context, Result, bail};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trodden_launch::process::{exit_code, forwarding_signals};
use trodden_report::words::{plural, shell_word};
use trodden_waits_file::recording::{Recording, files, threads_in};
use trodden_wire::waits::{MAGIC, OUTPUT_VARIABLE, RATE_VARIABLE};

/// How the file of a process begins.
const PROCESS_MAGIC: &str = "trodden-waits ";

/// Records a run; gives the command's exit status.
///
/// # Errors
/// The recorder is missing, the folder cannot be made, or the command not be started.
pub fn run(job: &WaitsRecord) -> Result<ExitCode> {
    let recorder = assets::waits_recorder()?;
    refuse_restricted(&job.command[0])?;
    let folder = folder(&job.output)?;
    let mut command = Command::new(&job.command[0]);
    command.args(&job.command[1..]);
    command.env("LD_PRELOAD", preloads(&recorder)).env(OUTPUT_VARIABLE, &folder).env(RATE_VARIABLE, job.rate.to_string());
    let status = forwarding_signals(|begun| {
        let mut child = command.spawn()?;
        begun.report(child.id());
        child.wait()
    })?;
    let status = status.with_context(|| format!("cannot run {}", job.command[0].display()))?;
    let threads = threads_in(&folder)?;
    if threads == 0 {
        match Recording::open(&folder) {
            Err(error) if !files(&folder, "process")?.is_empty() => warn(format_args!("nothing was recorded: {error}")),
            _ => warn(format_args!(
                "nothing was recorded: no process of the command started MPI or a thread with shared libraries of its system ({} stays \
                    empty)",
                job.output.display()
            )),
        }
    } else {
        let folder = job.output.to_string_lossy();
        let folder = shell_word(&folder);
        note(format_args!("{} recorded; show them by `trodden waits report {folder}`", plural(threads as u128, "thread", "threads")));
    }
    Ok(exit_code(status))
}

/// Refuses a command that would be disturbed, or could not be recorded.
fn refuse_restricted(command: &OsStr) -> Result<()> {
    if let Some((path, what)) = trodden_trace::privileged_file(command, None) {
        bail!(
            "{} has {what}: the loader lets such a program preload no library of its caller, so it cannot be recorded. Record a copy \
                without it, or as the user that it runs as",
            path.display()
        );
    }
    let (limit, _) = getrlimit(Resource::RLIMIT_AS)?;
    if limit != RLIM_INFINITY {
        bail!(
            "the address space of {} would be limited to {} KiB, and the recorder needs some of it: raise the limit by `ulimit -v \
                unlimited`",
            command.display(),
            limit >> 10
        );
    }
    Ok(())
}

/// Whether the recorder is there and loads into a program.
///
/// # Errors
/// It is missing, or the loader refuses it; says why.
pub fn trial() -> Result<String> {
    let recorder = assets::waits_recorder()?;
    let folder = temporary::folder("trodden-waits-")?;
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", preloads(&recorder)).env(OUTPUT_VARIABLE, folder.path());
    let out = command.output().context("cannot run `true`")?;
    let said = String::from_utf8_lossy(&out.stderr);
    // The loader only complains, and runs the program all the same.
    anyhow::ensure!(
        out.status.success() && said.is_empty(),
        "`true` with {} preloaded: {} {}",
        recorder.display(),
        out.status,
        said.trim()
    );
    Ok(format!("{} loads into programs", recorder.display()))
}

/// The recorder, before what is preloaded already.
fn preloads(recorder: &Path) -> OsString {
    let mut list = recorder.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|l| !l.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// An empty folder of that name. A recording that is there is replaced, anything else is not.
fn folder(output: &Path) -> Result<PathBuf> {
    let name = output.to_string_lossy().replace("%p", &std::process::id().to_string());
    let host = nix::unistd::gethostname().unwrap_or_default();
    let folder = std::path::absolute(name.replace("%h", &host.to_string_lossy()))?;
    if folder.exists() {
        clear(&folder)?;
    }
    let make = || {
        folder.parent().map_or(Ok(()), fs::create_dir_all)?;
        // It is its user's alone. One that was there keeps its mode, so that it can be shared.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)
    };
    make().with_context(|| format!("cannot make the folder {}", folder.display()))?;
    Ok(folder)
}

fn clear(folder: &Path) -> Result<()> {
    if !folder.is_dir() {
        bail!("{} is a file: name another folder for the recording by --output", folder.display());
    }
    let entries: Vec<PathBuf> = fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<std::io::Result<_>>()?;
    let processes: BTreeSet<&OsStr> = entries.iter().filter(|path| is_process_file(path)).filter_map(|path| path.file_stem()).collect();
    if let Some(other) = entries.iter().find(|path| !is_of_recording(path, &processes)) {
        bail!(
            "{} has files that are not of a recording ({}): name another folder by --output, or remove it",
            folder.display(),
            other.display()
        );
    }
    entries.iter().try_for_each(fs::remove_file).with_context(|| format!("cannot remove the recording in {}", folder.display()))
}

/// Whether a file of a recording: of one of the `processes`. Names alone do not say so.
fn is_of_recording(path: &Path, processes: &BTreeSet<&OsStr>) -> bool {
    let is_of_process = path.file_stem().is_some_and(|process| processes.contains(process));
    let is_file = fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
    is_file
        && is_of_process
        && match path.extension().and_then(OsStr::to_str) {
            Some("process") => true,
            // That of a process that was killed at its very beginning is empty, or begins with zeros.
            Some("threads") => {
                begins_with(path, &MAGIC) || begins_with(path, &[0; MAGIC.len()]) || fs::metadata(path).is_ok_and(|file| file.len() == 0)
            }
            _ => false,
        }
}

fn is_process_file(path: &Path) -> bool {
    let is_number = |part: &str| part.parse::<u64>().is_ok();
    let is_name = |stem: &str| stem.split_once('-').is_some_and(|(process, start)| is_number(process) && is_number(start));
    // One that was made when the disk was full is empty.
    let is_empty = || fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
    let is_left = || path.file_stem().and_then(OsStr::to_str).is_some_and(is_name) && is_empty();
    path.extension().is_some_and(|ending| ending == "process") && (begins_with(path, PROCESS_MAGIC.as_bytes()) || is_left())
}

fn begins_with(path: &Path, expected: &[u8]) -> bool {
    let mut found = vec![0; expected.len()];
    let is_file = fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
    is_file && fs::File::open(path).and_then(|mut file| file.read_exact(&mut found)).is_ok() && found == expected
}
