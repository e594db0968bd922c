//! Records complete streams, runs programs with flight recorders, and imports stream files that killed recordings left.
//!
//! A program writes chunks of events to a mapped file. The recorder drains full chunks, returns them to the program, and compresses the
//! events to grammars. If the recorder falls behind, the file grows up to the bound in [`StreamOptions`]; after that, the program waits. If
//! the recorder is killed, the program continues until the file is full, and then counts the events that it loses; `trodden import` can
//! make the log later. If the program is killed, the file contains everything that it wrote.

use super::recorder::{MIN_PAUSE, StreamRecorder, next_longer_pause, write_lost_threads};
use crate::runs::format_causes;
use crate::{
    ProfileDestination, RecordedCommand, RecordingContext, command, create_run_folder, deliver_profile, exit_code_of_recording, host_name,
    new_run_metadata, output_pattern, process_ending, run_metadata, warn_nothing_counted,
};
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use trodden_launch::process::run_forwarding_signals;
use trodden_profile::stream::{LiveStream, StreamDrain, StreamDrainTotals, StreamLog, count_counter_increments, is_stream_file, write_raw};
use trodden_profile::{ProcessEnding, Run, collect as collect_profile, is_raw_file, raw_files};
use trodden_sequence::CompressionMethod;
use trodden_stored::place::{self, LOG_EXTENSION, STREAM_EXTENSION, files_with_extension, move_logs_to_folder, streams_folder_of};
use trodden_text::words::{count, plural, quote_for_shell};
use trodden_wire::stream::STREAM_ENVIRONMENT_VARIABLE;
use trodden_wire::{LostReason, LostThreads, OUTPUT_ENVIRONMENT_VARIABLE};

/// Name pattern of stream files. Each process has its own file.
pub const STREAM_FILE_NAME_PATTERN: &str = "%m.%p.stream";

/// Options for recording complete streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Compression method to use while programs run.
    pub method: CompressionMethod,
    /// Maximum size of events that wait to be drained, in MiB per thread.
    pub backlog: u64,
    /// Maximum time that a thread waits for the recorder, in milliseconds.
    pub patience: u64,
}

impl StreamOptions {
    /// Formats the bounds as a value of [`STREAM_ENVIRONMENT_VARIABLE`].
    pub fn to_variable_value(&self) -> String {
        format!("whole,{},{}", self.backlog, self.patience)
    }
}

/// Runs a command with flight recorders, which keep the last paths of each thread. Returns the command's exit status.
pub fn record_last_paths(arguments: &[OsString], last: u64, context: &RecordingContext) -> Result<ExitCode> {
    let store = context.run_store()?;
    let folder = place::create_flight_folder(store.folder())?;
    let folder = fs::canonicalize(&folder)?;
    let mut command = command(arguments, &folder, STREAM_FILE_NAME_PATTERN, context);
    command.env(STREAM_ENVIRONMENT_VARIABLE, last.to_string());
    let status = run_forwarding_signals(&mut command).with_context(|| format!("cannot run {}", arguments[0].display()))?;
    let streams = files_with_extension(&folder, STREAM_EXTENSION)?;
    let (streams, others): (Vec<PathBuf>, Vec<PathBuf>) = streams.into_iter().partition(|f| is_stream_file(f));
    if let Some(other) = others.first() {
        log::warn!(
            "{} is not a stream (the order of paths), because the program that wrote it was built without --stream. Build it with --stream",
            other.display()
        );
    }
    if streams.is_empty() {
        log::warn!("nothing was recorded, because no program that ran was built with --stream (`trodden build --stream -- ...`)");
        let _ = fs::remove_dir_all(&folder);
        return Ok(exit_code_of_recording(status, false));
    }
    let shown = match process_ending(status) {
        ProcessEnding::Exit(_) => "them",
        ProcessEnding::Signal(_) => "what each thread did before the end",
    };
    log::info!("the last paths are in {}; `trodden show` shows {shown}", folder.display());
    let lost: u64 = streams.iter().filter_map(|file| Some(LiveStream::open(file, false).ok()?.lost_threads().ok()?.threads())).sum();
    if lost > 0 {
        log::warn!("the events of {} could not be recorded, because the stream file was full", plural(lost.into(), "thread", "threads"));
    }
    Ok(exit_code_of_recording(status, lost == 0))
}

/// Runs a command and records its complete streams. Returns the command's exit status.
pub fn record_complete_streams(what: &RecordedCommand, options: StreamOptions, context: &RecordingContext) -> Result<ExitCode> {
    let folder = create_run_folder(&what.destination, context)?;
    let mut command = command(&what.command, folder.path(), STREAM_FILE_NAME_PATTERN, context);
    command
        .env(OUTPUT_ENVIRONMENT_VARIABLE, output_pattern(folder.path(), STREAM_FILE_NAME_PATTERN))
        .env(STREAM_ENVIRONMENT_VARIABLE, options.to_variable_value());
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let (status, drained) = drain_during(folder.path(), options.method, || run_forwarding_signals(&mut command));
    let status = status.with_context(|| format!("cannot run {}", what.command[0].display()))?;
    let run = run_metadata(&what.command, started, process_ending(status), context);
    let run = Run { duration_ns: clock.elapsed().as_nanos() as u64, suite: what.destination.suite.clone(), ..run };
    let stored = drained.and_then(|drained| store_logs(what, run, folder.path(), &drained, context));
    let is_whole = match stored {
        Ok(is_whole) => is_whole,
        Err(error) => {
            let kept = folder.keep();
            log::warn!(
                "could not store the streams of this run: {1}. The stream files are kept in {0}; to store them, run `trodden import {2}`",
                kept.display(),
                format_causes(&error),
                quote_for_shell(&kept.to_string_lossy())
            );
            false
        }
    };
    Ok(exit_code_of_recording(status, is_whole))
}

/// Calls `run` while another thread drains the streams that programs write to a folder. Returns the results of both.
pub fn drain_during<T>(folder: &Path, method: CompressionMethod, run: impl FnOnce() -> T) -> (T, Result<StreamDrainTotals>) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let recorder = scope.spawn(|| drain(StreamRecorder::new(folder, method), &is_over));
        let result = run();
        is_over.store(true, Ordering::Relaxed);
        (result, recorder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn drain(mut recorder: StreamRecorder, is_over: &AtomicBool) -> Result<StreamDrainTotals> {
    let mut pause = MIN_PAUSE;
    while !is_over.load(Ordering::Relaxed) {
        if recorder.drain_full_chunks()? == 0 {
            std::thread::sleep(pause);
            pause = next_longer_pause(pause);
        } else {
            pause = MIN_PAUSE;
        }
    }
    let folder = recorder.folder().to_owned();
    recorder.finish_streams(&folder)
}

/// Stores the logs and their profile. Returns true if they are complete.
fn store_logs(what: &RecordedCommand, run: Run, folder: &Path, drained: &StreamDrainTotals, context: &RecordingContext) -> Result<bool> {
    let logs = files_with_extension(folder, LOG_EXTENSION)?;
    let mut lossy = 0;
    for log in &logs {
        lossy += write_raw_counts_of_log(log)?;
    }
    if raw_files(folder)?.is_empty() {
        warn_nothing_counted(&what.command[0]);
        return Ok(true);
    }
    if logs.is_empty() {
        log::warn!(
            "no streams (the order of paths) were recorded, because the programs that ran were built without --stream. Their counts are \
             stored"
        );
    }
    let profile = collect_profile(raw_files(folder)?, run, context.units.as_ref());
    let delivered = deliver_profile(&profile, &what.destination, context)?;
    if drained.invalid_words > 0 {
        log::warn!(
            "the recorded streams contain {} without a valid event, because the program overwrote them",
            plural(drained.invalid_words.into(), "word", "words")
        );
    }
    if logs.is_empty() {
        log::warn!(
            "recorded counts but not the order of paths, because no program that ran was built with --stream (`trodden build --stream -- \
             ...`)"
        );
        return Ok(delivered.problems == 0 && lossy == 0);
    }
    let streams = match (delivered.run, &what.destination.output) {
        (Some(run), _) => context.run_store()?.streams(run),
        (None, output) => streams_folder_of(&output.clone().unwrap_or_default()),
    };
    move_logs_to_folder(&logs, &streams)?;
    log::info!(
        "recorded {} in {} with {} bytes in total (folder {}); `trodden info {}` shows details",
        plural(drained.events.into(), "event", "events"),
        plural(logs.len() as u128, "log", "logs"),
        count(drained.bytes.into()),
        streams.display(),
        delivered.run.map_or_else(|| quote_for_shell(&streams.to_string_lossy()).into_owned(), |run| run.to_string())
    );
    Ok(delivered.problems == 0 && lossy == 0)
}

/// Writes a raw file with the counts of a log's events. Returns the number of threads that lost events.
pub fn write_raw_counts_of_log(path: &Path) -> Result<u64> {
    let log = StreamLog::open(path)?;
    let lossy = log.threads().iter().filter(|t| t.lost > 0).count() as u64;
    let lost: u64 = log.threads().iter().map(|t| t.lost).sum();
    if lost > 0 {
        log::warn!("lost {} of the stream file {}, because the file was full", plural(lost.into(), "event", "events"), path.display());
    }
    let lost_threads = (0..lossy).fold(LostThreads::default(), |lost, _| lost.add_thread(LostReason::Other));
    write_raw(&path.with_extension("raw"), log.header(), &count_counter_increments(&log)?, lost_threads)?;
    Ok(lossy)
}

/// Makes logs and a run from the stream files that a killed recorder left. Fails if a file cannot be read, the run cannot be stored, or
/// events are lost.
pub fn import_leftover_streams(given: &[PathBuf], destination: &ProfileDestination, context: &RecordingContext) -> Result<()> {
    let (streams, counted) = find_streams(given)?;
    let folder = create_run_folder(destination, context)?;
    let mut lossy = 0;
    for (number, stream) in streams.iter().enumerate() {
        // The log that the killed recorder did not finish, if there is one.
        let before = stream.with_extension(LOG_EXTENSION);
        let log = folder.path().join(format!("{number:04}.{LOG_EXTENSION}"));
        let drained =
            StreamDrain::finish_interrupted_drain(stream, &log, before.is_file().then_some(before.as_path()), CompressionMethod::Phrases)?;
        log::info!("{}: {}", stream.display(), plural(drained.events.into(), "event", "events"));
        write_lost_threads(&log, drained.lost)?;
        if drained.corrupt_bytes > 0 {
            let bytes = plural(drained.corrupt_bytes.into(), "byte", "bytes");
            log::warn!("the stored events of stream file {} are corrupt: {bytes} cannot be read", stream.display());
        }
        if drained.invalid_words > 0 {
            log::warn!(
                "stream file {} is corrupt: it contains {} without a valid event",
                stream.display(),
                plural(drained.invalid_words.into(), "word", "words")
            );
        }
        let is_corrupt = drained.corrupt_bytes > 0 || drained.invalid_words > 0;
        lossy += write_raw_counts_of_log(&log)? + drained.lost.threads() + u64::from(is_corrupt);
    }
    let run = Run { host: host_name(), suite: destination.suite.clone(), ..new_run_metadata() };
    let profile = collect_profile(raw_files(folder.path())?.into_iter().chain(counted), run, context.units.as_ref());
    let delivered = deliver_profile(&profile, destination, context)?;
    let target = match (delivered.run, &destination.output) {
        (Some(run), _) => context.run_store()?.streams(run),
        (None, output) => streams_folder_of(&output.clone().unwrap_or_default()),
    };
    move_logs_to_folder(&files_with_extension(folder.path(), LOG_EXTENSION)?, &target)?;
    ensure!(lossy == 0, "the recorded streams of {} are incomplete, because events were lost", plural(lossy.into(), "thread", "threads"));
    delivered.check_nothing_was_lost()
}

/// Returns the stream files among the given files and folders, and the raw files that programs without streams wrote to these folders.
fn find_streams(given: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut streams, mut counted) = (Vec::new(), Vec::new());
    for path in given {
        if !path.is_dir() {
            streams.push(path.clone());
            continue;
        }
        let (raw, found): (Vec<PathBuf>, Vec<PathBuf>) =
            files_with_extension(path, STREAM_EXTENSION)?.into_iter().partition(|file| is_raw_file(file));
        streams.extend(found);
        counted.extend(raw);
        // A raw file that was written from a log is left out, because the log contains the same counts.
        let has_log =
            |raw: &Path| raw.with_extension(LOG_EXTENSION).exists() || raw.with_extension("").with_extension(LOG_EXTENSION).exists();
        counted.extend(raw_files(path)?.into_iter().filter(|raw| !has_log(raw)));
    }
    ensure!(!streams.is_empty(), "the given folders have no stream files (*.stream)");
    Ok((streams, counted))
}
