//! Running a program under the preload library.

use crate::recording::{Recording, files, threads_in};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use trodden_container::{FileKind, MAGIC};
use trodden_launch::process::{not_run, wait_forwarding};
use trodden_text::words::{plural, shell_word};
use trodden_wire::waits::{OUTPUT_VARIABLE, RATE_VARIABLE};

/// How the file of a process begins.
const PROCESS_MAGIC: &str = "trodden-waits ";

/// The preload library that records, and what it comes before.
pub struct Recorder {
    /// Its file; the name has no blank and no colon.
    pub library: PathBuf,
    /// What is preloaded already (`LD_PRELOAD`).
    pub others: Option<OsString>,
}

/// A program that is run to be recorded.
pub struct RecordedProgram<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// The folder of the recording. `%p` is the number of this process, `%h` the host.
    pub output: &'a Path,
    /// Samples per second of processor time and thread; 0: none.
    pub rate: u32,
}

impl RecordedProgram<'_> {
    /// Records a run, and reports what there is of it; gives the command's end.
    ///
    /// # Errors
    /// The folder cannot be made, or the command not be started or recorded.
    pub fn run(&self, recorder: &Recorder) -> Result<ExitStatus> {
        refuse_restricted(&self.command[0])?;
        let (folder, is_new) = folder(self.output)?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        command.env("LD_PRELOAD", recorder.preloads()).env(OUTPUT_VARIABLE, &folder).env(RATE_VARIABLE, self.rate.to_string());
        let status = match wait_forwarding(&mut command) {
            Ok(status) => status,
            Err(error) => {
                if is_new {
                    // It is empty. If it cannot be removed, the reason why nothing ran says more.
                    let _ = fs::remove_dir(&folder);
                }
                return Err(not_run(&self.command[0], error).into());
            }
        };
        let threads = threads_in(&folder)?;
        if threads == 0 {
            match Recording::open(&folder) {
                Err(error) if !files(&folder, "process")?.is_empty() => log::warn!("nothing was recorded: {error}"),
                _ => log::warn!(
                    "nothing was recorded: no process of the command started MPI or a thread with shared libraries of its system ({} stays \
                        empty)",
                    self.output.display()
                ),
            }
        } else {
            // As it was typed, unless it was a pattern.
            let is_pattern = self.output.to_string_lossy().contains('%');
            let folder = if is_pattern { folder.to_string_lossy() } else { self.output.to_string_lossy() };
            let folder = shell_word(&folder);
            log::info!("{} recorded; show them by `trodden report {folder}`", plural(threads as u128, "thread", "threads"));
        }
        Ok(status)
    }
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

impl Recorder {
    /// Preloads the library into a program that does nothing; what it writes goes to a folder.
    ///
    /// # Errors
    /// The loader refuses the library; says why.
    pub fn trial(&self, folder: &Path) -> Result<()> {
        let mut command = Command::new("true");
        command.env("LD_PRELOAD", self.preloads()).env(OUTPUT_VARIABLE, folder);
        let out = command.output().context("cannot run `true`")?;
        let said = String::from_utf8_lossy(&out.stderr);
        // The loader only complains, and runs the program all the same.
        ensure!(
            out.status.success() && said.is_empty(),
            "`true` with {} preloaded: {} {}",
            self.library.display(),
            out.status,
            said.trim()
        );
        Ok(())
    }

    /// The recorder, before what is preloaded already.
    fn preloads(&self) -> OsString {
        let mut list = self.library.as_os_str().to_owned();
        if let Some(others) = self.others.as_ref().filter(|l| !l.is_empty()) {
            list.push(":");
            list.push(others);
        }
        list
    }
}

/// An empty folder of that name, and whether it is new. A recording that is there is replaced, anything else is not.
fn folder(output: &Path) -> Result<(PathBuf, bool)> {
    let name = output.to_string_lossy().replace("%p", &std::process::id().to_string());
    let host = nix::unistd::gethostname().unwrap_or_default();
    let folder = std::path::absolute(name.replace("%h", &host.to_string_lossy()))?;
    let is_new = !folder.exists();
    if !is_new {
        clear(&folder)?;
    }
    let make = || {
        folder.parent().map_or(Ok(()), fs::create_dir_all)?;
        // It is its user's alone. One that was there keeps its mode, so that it can be shared.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)
    };
    make().with_context(|| format!("cannot make the folder {}", folder.display()))?;
    Ok((folder, is_new))
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
                let beginning = [&MAGIC[..], &FileKind::WAITS.0].concat();
                begins_with(path, &beginning)
                    || begins_with(path, &[0; MAGIC.len()])
                    || fs::metadata(path).is_ok_and(|file| file.len() == 0)
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
