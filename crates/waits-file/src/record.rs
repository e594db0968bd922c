//! Runs a program with the preload library that records its calls.

use crate::recording::{WaitsRecording, count_threads, list_files};
use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use trodden_container::{FileKind, MAGIC};
use trodden_launch::process::{cannot_run_error, forward_signals_during};
use trodden_text::words::{plural, quote_for_shell};
use trodden_wire::waits::{WAITS_OUTPUT_ENVIRONMENT_VARIABLE, WAITS_SAMPLING_RATE_ENVIRONMENT_VARIABLE};

const PROCESS_FILE_MAGIC: &str = "trodden-waits ";

/// The preload library that records calls (the *recorder*), and other libraries that the user wants to preload.
pub struct WaitsRecorder {
    /// Path of the recorder. It must contain neither spaces nor colons, because these separate libraries in `LD_PRELOAD`.
    pub library: PathBuf,
    /// Previous value of `LD_PRELOAD`, if any.
    pub preloaded: Option<OsString>,
}

/// A program to run and record.
pub struct RecordedProgram<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Folder for the recording. `%p` is replaced by the ID of this process, and `%h` by the host name.
    pub output: &'a Path,
    /// Number of samples per second of each thread's processor time; 0 means no samples.
    pub rate: u32,
}

impl RecordedProgram<'_> {
    /// Records a run of the program. Logs the number of recorded threads, and returns the program's exit status.
    ///
    /// # Errors
    /// The folder cannot be created, or the program cannot be started or recorded.
    pub fn run(&self, recorder: &WaitsRecorder) -> Result<ExitStatus> {
        check_program_is_recordable(&self.command[0])?;
        let (folder, status) = forward_signals_during(|begun| {
            // Signals no longer end this process here, so the earlier content of the folder is always restored or removed.
            let (folder, earlier) = prepare_folder(self.output)?;
            let mut command = Command::new(&self.command[0]);
            command.args(&self.command[1..]);
            command
                .env("LD_PRELOAD", recorder.preload_list())
                .env(WAITS_OUTPUT_ENVIRONMENT_VARIABLE, &folder)
                .env(WAITS_SAMPLING_RATE_ENVIRONMENT_VARIABLE, self.rate.to_string());
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => {
                    earlier.restore(&folder);
                    return Err(cannot_run_error(&self.command[0], error).into());
                }
            };
            begun.report(child.id());
            earlier.remove();
            Ok::<_, anyhow::Error>((folder, child.wait()?))
        })??;
        let threads = count_threads(&folder)?;
        if threads == 0 {
            match WaitsRecording::open(&folder) {
                Err(error) if !list_files(&folder, "process")?.is_empty() => log::warn!("nothing was recorded: {error}"),
                _ => log::warn!(
                    "nothing was recorded, and {} stays empty, because no process of the command initialised MPI or created a thread \
                     through a shared MPI or C library",
                    self.output.display()
                ),
            }
        } else {
            // The message shows the folder as the user typed it, unless that was a pattern.
            let is_pattern = self.output.to_string_lossy().contains('%');
            let folder = if is_pattern { folder.to_string_lossy() } else { self.output.to_string_lossy() };
            let folder = quote_for_shell(&folder);
            log::info!("{} recorded. Show the recording with `trodden report {folder}`", plural(threads as u128, "thread", "threads"));
        }
        Ok(status)
    }
}

/// Returns an error if a command cannot be recorded, because it is privileged or its address space is limited.
fn check_program_is_recordable(command: &OsStr) -> Result<()> {
    if let Some((path, what)) = trodden_trace::privileged_file(command, None) {
        bail!(
            "cannot record {}, because it has {what}, so the dynamic loader ignores LD_PRELOAD. Record a copy without these rights, or \
             record as the user that the program runs as",
            path.display()
        );
    }
    let (limit, _) = getrlimit(Resource::RLIMIT_AS)?;
    if limit != RLIM_INFINITY {
        bail!(
            "the address space of {} is limited to {} KiB, but the recorder needs a part of it. Raise the limit with `ulimit -v unlimited`",
            command.display(),
            limit >> 10
        );
    }
    Ok(())
}

impl WaitsRecorder {
    /// Checks that the recorder can be preloaded, by running `true` with it. The recording is written to `folder`.
    ///
    /// # Errors
    /// The dynamic linker rejects the library. The error contains its message.
    pub fn check_recorder_can_be_preloaded(&self, folder: &Path) -> Result<()> {
        let mut command = Command::new("true");
        command.env("LD_PRELOAD", self.preload_list()).env(WAITS_OUTPUT_ENVIRONMENT_VARIABLE, folder);
        let out = command.output().context("cannot run `true`")?;
        let said = String::from_utf8_lossy(&out.stderr);
        // If the dynamic linker rejects a preload library, it prints a message but still runs the program.
        ensure!(
            out.status.success() && said.is_empty(),
            "cannot preload {} (test run of `true`: {}): {}",
            self.library.display(),
            out.status,
            said.trim()
        );
        Ok(())
    }

    /// Returns the value for `LD_PRELOAD`, with the recorder first.
    fn preload_list(&self) -> OsString {
        let mut list = self.library.as_os_str().to_owned();
        if let Some(others) = self.preloaded.as_ref().filter(|l| !l.is_empty()) {
            list.push(":");
            list.push(others);
        }
        list
    }
}

/// Prefix of the name of the subfolder to which an earlier recording is moved. The ID of this process follows.
const EARLIER_RECORDING_PREFIX: &str = ".earlier-";

/// What was in the folder for the recording before the run.
enum EarlierFolderContent {
    Nothing,
    /// A recording. Until the command has been started, it is kept in this subfolder.
    Recording(PathBuf),
}

impl EarlierFolderContent {
    /// Restores the earlier content as far as possible. Errors are ignored, because the user must learn why the command could not be
    /// started.
    fn restore(self, folder: &Path) {
        match self {
            EarlierFolderContent::Nothing => _ = fs::remove_dir(folder),
            EarlierFolderContent::Recording(aside) => {
                for file in fs::read_dir(&aside).into_iter().flatten().flatten() {
                    let _ = fs::rename(file.path(), folder.join(file.file_name()));
                }
                let _ = fs::remove_dir(aside);
            }
        }
    }

    fn remove(self) {
        if let EarlierFolderContent::Recording(aside) = self
            && let Err(error) = fs::remove_dir_all(&aside)
        {
            log::warn!("cannot remove the earlier recording {}: {error}", aside.display());
        }
    }
}

/// Prepares an empty folder for the recording. Moves an earlier recording to a subfolder, and fails if the folder contains anything else.
/// Returns the folder's path and its earlier content.
fn prepare_folder(output: &Path) -> Result<(PathBuf, EarlierFolderContent)> {
    let name = output.to_string_lossy().replace("%p", &std::process::id().to_string());
    let host = nix::unistd::gethostname().unwrap_or_default();
    let folder = std::path::absolute(name.replace("%h", &host.to_string_lossy()))?;
    if folder.exists() {
        let earlier = move_recording_aside(&folder)?;
        return Ok((folder, earlier));
    }
    let make = || {
        folder.parent().map_or(Ok(()), fs::create_dir_all)?;
        // A new folder is private to the user. An existing folder keeps its mode, so that it can be shared.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)
    };
    make().with_context(|| format!("cannot create the folder {}", folder.display()))?;
    Ok((folder, EarlierFolderContent::Nothing))
}

fn list_entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// Handles subfolders with an earlier recording that a killed `trodden` process has left. Restores the recording, or removes it if the
/// folder already contains a newer one.
fn resolve_leftover_recordings(folder: &Path) -> Result<()> {
    let is_leftover = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let process = name.strip_prefix(EARLIER_RECORDING_PREFIX).and_then(|process| process.parse().ok()).map(Pid::from_raw);
        process.is_some_and(|process| kill(process, None) == Err(Errno::ESRCH)) && path.is_dir()
    };
    let (leftovers, others): (Vec<PathBuf>, Vec<PathBuf>) = list_entries(folder)?.into_iter().partition(is_leftover);
    for leftover in leftovers {
        let earlier = EarlierFolderContent::Recording(leftover);
        if others.is_empty() { earlier.restore(folder) } else { earlier.remove() }
    }
    Ok(())
}

fn move_recording_aside(folder: &Path) -> Result<EarlierFolderContent> {
    if !folder.is_dir() {
        bail!("{} is not a folder. Choose a folder for the recording with --output", folder.display());
    }
    resolve_leftover_recordings(folder)?;
    let entries = list_entries(folder)?;
    let processes: BTreeSet<&OsStr> = entries.iter().filter(|path| is_process_file(path)).filter_map(|path| path.file_stem()).collect();
    if let Some(other) = entries.iter().find(|path| !belongs_to_recording(path, &processes)) {
        bail!(
            "{} contains a file that does not belong to a recording ({}). Choose a different folder with --output, or remove the file",
            folder.display(),
            other.display()
        );
    }
    let aside = folder.join(format!("{EARLIER_RECORDING_PREFIX}{}", std::process::id()));
    let moved = fs::create_dir(&aside).and_then(|()| {
        let target = |entry: &Path| aside.join(entry.file_name().unwrap_or_default());
        entries.iter().try_for_each(|entry| fs::rename(entry, target(entry)))
    });
    let earlier = EarlierFolderContent::Recording(aside);
    match moved {
        Ok(()) => Ok(earlier),
        Err(error) => {
            earlier.restore(folder);
            Err(error).with_context(|| format!("cannot replace the recording in {}", folder.display()))
        }
    }
}

/// Returns true if a file belongs to the recording of one of the `processes`. Its content is checked as well as its name, because an
/// unrelated file may have such a name.
fn belongs_to_recording(path: &Path, processes: &BTreeSet<&OsStr>) -> bool {
    let is_of_process = path.file_stem().is_some_and(|process| processes.contains(process));
    let is_file = fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
    is_file
        && is_of_process
        && match path.extension().and_then(OsStr::to_str) {
            Some("process") => true,
            // If the process was killed immediately after its start, the file is empty or starts with zeros.
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
    // If the disk was full, the file was created but is empty.
    let is_empty = || fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
    let is_empty_leftover = || path.file_stem().and_then(OsStr::to_str).is_some_and(is_name) && is_empty();
    path.extension().is_some_and(|ending| ending == "process") && (begins_with(path, PROCESS_FILE_MAGIC.as_bytes()) || is_empty_leftover())
}

fn begins_with(path: &Path, expected: &[u8]) -> bool {
    let mut found = vec![0; expected.len()];
    let is_file = fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
    is_file && fs::File::open(path).and_then(|mut file| file.read_exact(&mut found)).is_ok() && found == expected
}
