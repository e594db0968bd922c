//! `trodden record --whole-program` and `--last N`: what programs built with `--stream` write.
//!
//! A program writes chunks of events into a file that it maps; this process takes full ones, gives them back, and makes grammars of them.
//! If it is slower, the file grows up to the bound of `--backlog`; then the program waits. If it is killed, the program goes on until the
//! file has that size, and counts what it loses then; `trodden stream collect` makes the log later. If the program is killed, all it wrote
//! is in the file.

use super::recorder::{PAUSE, Recorder, longer, note_lost};
use crate::cli::{Record, StreamCollect};
use crate::driver::assets;
use crate::notes::{note, reasons, warn};
use crate::running::temporary;
use crate::running::{
    self, circumstances, deliver, ending, exit_code_with, host, nothing_counted, one_run, pattern, run_folder, wait_forwarding,
};
use anyhow::{Context, Result, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use trodden_profile::private;
use trodden_profile::stream::{Drain, Drained, LiveStream, StreamLog, counts, is_stream_file, write_raw};
use trodden_profile::{ProcessEnding, Run, collect as collect_profile, raw_files};
use trodden_report::words::{count, plural, shell_word};
use trodden_sequence::CompressionMethod;
use trodden_stored::named;
use trodden_stored::streams::{self, LOG, STREAM, streams_beside, with_extension};
use trodden_wire::stream::STREAM_VARIABLE;
use trodden_wire::{LostReason, LostThreads, OUTPUT_VARIABLE};

/// Names of stream files: each process has its own.
pub const NAMES: &str = "%m.%p.stream";

/// Records streams; gives the command's exit status.
///
/// # Errors
/// The command cannot be started, or there is no place for its streams.
pub fn run(job: &Record) -> Result<ExitCode> {
    match job.stream.last {
        Some(last) => record_last(job, last),
        None => record_whole(job),
    }
}

/// Runs a command with flight recorders.
fn record_last(job: &Record, last: u64) -> Result<ExitCode> {
    let store = named::create_store(&std::env::current_dir()?)?;
    let folder = streams::new_last(store.folder())?;
    let folder = fs::canonicalize(&folder)?;
    let mut command = running::command(&job.command, &folder, NAMES);
    command.env(STREAM_VARIABLE, last.to_string());
    let status = wait_forwarding(&mut command).with_context(|| format!("cannot run {}", job.command[0].display()))?;
    let found = with_extension(&folder, STREAM)?;
    let (streams, others): (Vec<PathBuf>, Vec<PathBuf>) = found.into_iter().partition(|f| is_stream_file(f));
    if let Some(other) = others.first() {
        warn(format_args!("{} is no stream: what wrote it was built without --stream, and only counted", other.display()));
    }
    if streams.is_empty() {
        warn("nothing was recorded: nothing that ran was built with --stream (`trodden build --stream -- ...`)");
        let _ = fs::remove_dir_all(&folder);
        return Ok(exit_code_with(status, false));
    }
    let how = match ending(status) {
        ProcessEnding::Exit(_) => "",
        ProcessEnding::Signal(_) => " what each thread did before the end",
    };
    note(format_args!("the last paths are in {}; `trodden last` shows{}", folder.display(), if how.is_empty() { " them" } else { how }));
    let lost: u64 = streams.iter().filter_map(|file| Some(LiveStream::open(file, false).ok()?.lost_threads().ok()?.threads())).sum();
    if lost > 0 {
        warn(format_args!("{} could not be recorded: there was no room", plural(lost.into(), "thread", "threads")));
    }
    Ok(exit_code_with(status, lost == 0))
}

/// Runs a command and keeps whole streams.
fn record_whole(job: &Record) -> Result<ExitCode> {
    let folder = run_folder(job)?;
    let mut command = running::command(&job.command, folder.path(), NAMES);
    command.env(OUTPUT_VARIABLE, pattern(folder.path(), NAMES)).env(STREAM_VARIABLE, bounds(job));
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let (status, drained) = draining(folder.path(), job.stream.method, || wait_forwarding(&mut command));
    let status = status.with_context(|| format!("cannot run {}", job.command[0].display()))?;
    let run = circumstances(&job.command, started, ending(status));
    let run = Run { duration_ns: clock.elapsed().as_nanos() as u64, suite: job.destination.suite.clone(), ..run };
    let kept = drained.and_then(|drained| keep(job, run, folder.path(), &drained));
    let is_whole = match kept {
        Ok(is_whole) => is_whole,
        Err(error) => {
            let kept = folder.keep();
            warn(format_args!(
                "no streams of this run: {1}; what was written is in {0} (`trodden stream collect {2}`)",
                kept.display(),
                reasons(&error),
                shell_word(&kept.to_string_lossy())
            ));
            false
        }
    };
    Ok(exit_code_with(status, is_whole))
}

/// The bounds of streams, as programs read them.
pub fn bounds(job: &Record) -> String {
    format!("whole,{},{}", job.stream.backlog, job.stream.patience)
}

/// Runs something that has programs write streams into a folder, and takes those meanwhile; gives what there was in all.
pub fn draining<T>(folder: &Path, method: CompressionMethod, run: impl FnOnce() -> T) -> (T, Result<Drained>) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| drain(Recorder::new(folder, method), &is_over));
        let result = run();
        is_over.store(true, Ordering::Relaxed);
        (result, recorder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Takes chunks until the command is over; gives what there was in all.
fn drain(mut recorder: Recorder, is_over: &AtomicBool) -> Result<Drained> {
    let mut pause = PAUSE;
    while !is_over.load(Ordering::Relaxed) {
        if recorder.poll()? == 0 {
            std::thread::sleep(pause);
            pause = longer(pause);
        } else {
            pause = PAUSE;
        }
    }
    let folder = recorder.folder().to_owned();
    recorder.finish(&folder)
}

/// Makes the profile of logs, and puts both where they are wanted; whether nothing is lacking.
fn keep(job: &Record, run: Run, folder: &Path, drained: &Drained) -> Result<bool> {
    let logs = with_extension(folder, LOG)?;
    let mut lossy = 0;
    for log in &logs {
        lossy += fold(log)?;
    }
    if raw_files(folder)?.is_empty() {
        nothing_counted(&job.command[0]);
        return Ok(true);
    }
    if logs.is_empty() {
        warn("no stream was recorded: what ran was built without --stream, and only counted");
    }
    let profile = collect_profile(raw_files(folder)?, run, assets::store().ok().as_ref());
    let lacking = deliver(&profile, &job.destination)?;
    if drained.damaged > 0 {
        warn(format_args!("{} are no events: the program overwrote its stream", plural(drained.damaged.into(), "word", "words")));
    }
    if logs.is_empty() {
        warn("there are counts, but no sequence: nothing that ran was built with --stream (`trodden build --stream -- ...`)");
        return Ok(lacking.problems == 0 && lossy == 0);
    }
    let place = match (lacking.run, &job.destination.output) {
        (Some(run), _) => named::create_store(&std::env::current_dir()?)?.streams(run),
        (None, output) => streams_beside(&output.clone().unwrap_or_default()),
    };
    move_logs(&logs, &place)?;
    note(format_args!(
        "{} in {} of {} bytes ({}); `trodden stream statistics` says more",
        plural(drained.events.into(), "event", "events"),
        plural(logs.len() as u128, "log", "logs"),
        count(drained.bytes.into()),
        place.display()
    ));
    Ok(lacking.problems == 0 && lossy == 0)
}

/// Puts logs where a run has its own.
///
/// # Errors
/// The place cannot be written.
pub fn move_logs(logs: &[PathBuf], place: &Path) -> Result<()> {
    let cannot = || format!("cannot put the streams into {}", place.display());
    if !logs.is_empty() {
        private::create_folder(place).with_context(cannot)?;
    }
    for log in logs {
        let to = place.join(log.file_name().context("a log has a name")?);
        // Another file system, with --no-store.
        if fs::rename(log, &to).is_err() {
            fs::copy(log, &to).with_context(cannot)?;
        }
        fs::set_permissions(&to, Permissions::from_mode(private::file_mode(place))).with_context(cannot)?;
    }
    Ok(())
}

/// Writes the raw file of a log; gives the number of threads that lost events.
///
/// # Errors
/// The log is damaged, or the file cannot be written.
pub fn fold(path: &Path) -> Result<u64> {
    let log = StreamLog::open(path)?;
    let lossy = log.threads().iter().filter(|t| t.lost > 0).count() as u64;
    let lost: u64 = log.threads().iter().map(|t| t.lost).sum();
    if lost > 0 {
        warn(format_args!("{} of {} are lost, since there was no room for them", plural(lost.into(), "event", "events"), path.display()));
    }
    let of_threads = (0..lossy).fold(LostThreads::default(), |lost, _| lost.and(LostReason::Other));
    write_raw(&path.with_extension("raw"), log.head(), &counts(&log)?, of_threads)?;
    Ok(lossy)
}

/// Makes logs and a run of stream files that were left.
///
/// # Errors
/// A file cannot be read, or there is no place for the run.
pub fn collect(job: &StreamCollect) -> Result<ExitCode> {
    let mut streams = Vec::new();
    for path in &job.files {
        match path.is_dir() {
            true => streams.extend(with_extension(path, STREAM)?),
            false => streams.push(path.clone()),
        }
    }
    ensure!(!streams.is_empty(), "there are no stream files (their names end in .stream) in the folders given");
    let store = named::create_store(&std::env::current_dir()?)?;
    let folder = temporary::folder_of_users(store.folder(), "streams-")?;
    let mut lossy = 0;
    for (number, stream) in streams.iter().enumerate() {
        // What a recorder that was killed wrote before.
        let before = stream.with_extension(LOG);
        let log = folder.path().join(format!("{number:04}.{LOG}"));
        let drained = Drain::resume(stream, &log, before.is_file().then_some(before.as_path()), CompressionMethod::Phrases)?;
        note(format_args!("{}: {}", stream.display(), plural(drained.events.into(), "event", "events")));
        note_lost(&log, drained.lost)?;
        if drained.damaged_bytes > 0 {
            let bytes = plural(drained.damaged_bytes.into(), "byte", "bytes");
            warn(format_args!("the log or a journal of {} is damaged: {bytes} cannot be read", stream.display()));
        }
        lossy += fold(&log)? + drained.lost.threads() + u64::from(drained.damaged_bytes > 0);
    }
    let run = Run { host: host(), ..one_run() };
    let profile = collect_profile(raw_files(folder.path())?, run, assets::store().ok().as_ref());
    profile.problems.iter().for_each(warn);
    let entry = store.add_run(&profile.profile)?;
    move_logs(&with_extension(folder.path(), LOG)?, &store.streams(entry.number))?;
    note(format_args!("recorded as run {}; `trodden report` shows it", entry.number));
    ensure!(lossy == 0, "events of {} are lost", plural(lossy.into(), "thread", "threads"));
    Ok(ExitCode::SUCCESS)
}
