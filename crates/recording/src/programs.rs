//! Records each program that a command runs as a separate run.
//!
//! The names of raw files contain process IDs. By following processes, `trodden_trace` finds out which processes belong to a program, how
//! the program was called and how it ended. The files of a process are moved as soon as it leaves its program, because its ID may be
//! reused. Programs are stored while the command continues. If streams are recorded, a thread drains them and finishes their logs.

use crate::runs::format_causes;
use crate::streams::record::{STREAM_FILE_NAME_PATTERN, StreamOptions, write_raw_counts_of_log};
use crate::streams::recorder::{MIN_PAUSE, StreamRecorder, next_longer_pause};
use crate::{
    RecordedCommand, RecordingContext, TEST_VARIABLE, command, create_run_folder, exit_code_of_recording, host_name, new_run_metadata,
    output_pattern, process_ending, run_metadata, warn_nothing_counted,
};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::UNIX_EPOCH;
use trodden_launch::process::cannot_run_error;
use trodden_profile::merge::{BuildPolicy, merge_files};
use trodden_profile::{CollectProblem, Run, RunStore, SamplingSwitch, collect, raw_files};
use trodden_sequence::CompressionMethod;
use trodden_stored::place::{LOG_EXTENSION, STREAM_EXTENSION, files_with_extension, move_logs_to_folder};
use trodden_text::words::{plural, quote_for_shell};
use trodden_trace::command::{self as tracer, ActiveRun, RunKind};
use trodden_trace::{FollowRequest, ProcessEvent, ProgramId, ProgramStart, StartedProgram, TraceError, follow};
use trodden_unit::UnitCache;
use trodden_wire::OUTPUT_ENVIRONMENT_VARIABLE;
use trodden_wire::stream::STREAM_ENVIRONMENT_VARIABLE;

/// Records the programs of a command as runs of a suite. Also records their streams if `streams` is given. Returns the command's exit
/// status. The calling process must be a tracer ([`trodden_trace::command::run_in_tracer_process`]).
pub fn run(what: &RecordedCommand, suite: &str, streams: Option<StreamOptions>, context: &RecordingContext) -> Result<ExitCode> {
    let folder = create_run_folder(&what.destination, context)?;
    let (mut command, raw) = (command(&what.command, folder.path(), "%m.%p.raw", context), folder.path().to_owned());
    let (ended, mut programs) = channel();
    if let Some(streams) = streams {
        command
            .env(OUTPUT_ENVIRONMENT_VARIABLE, output_pattern(folder.path(), STREAM_FILE_NAME_PATTERN))
            .env(STREAM_ENVIRONMENT_VARIABLE, streams.to_variable_value());
        programs = drain_streams_in_background(folder.path().to_owned(), streams.method, programs);
    }
    let recorder = ProgramRecorder {
        store: context.run_store()?,
        units: context.units.clone(),
        folder: raw.clone(),
        suite: suite.to_owned(),
        is_streamed: streams.is_some(),
        reported: BTreeSet::new(),
        stored: Vec::new(),
        logs: 0,
        failures: 0,
        runs_with_losses: 0,
    };
    let recorder = std::thread::spawn(move || recorder.record_all(&programs));
    // `false`, because following processes does not modify them.
    let (active, begun) = ActiveRun::begin(RunKind::Program, false, false);
    // The thread that follows processes is their tracer, so this thread must wait for it to end.
    let following = move || {
        let report = &mut |event| match event {
            ProcessEvent::Left { program, process } => move_program_files(&raw, program, process),
            // If storing has failed, nobody receives this any more. The failure is reported later.
            ProcessEvent::Ended(program) => drop(ended.send(program)),
        };
        let command = ProgramStart::new(tracer::launcher(), &command);
        follow(FollowRequest { command, variable: TEST_VARIABLE, on_start: &mut |process| _ = begun.send(process), report })
    };
    let status = std::thread::spawn(following).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    drop(active);
    let status = status.map_err(|e| describe_failure(e, &what.command[0]))?;
    let recorder = recorder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let finished = folder.check_exists().and_then(|()| recorder.finish_recording(what, status, context));
    let is_whole = finished.is_ok();
    if let Err(error) = finished {
        let kept = folder.keep();
        log::warn!(
            "the suite is incomplete: {1}. The raw counts that could not be stored are kept in {0}; to store them, run `trodden import \
             {2}`",
            kept.display(),
            format_causes(&error),
            quote_for_shell(&kept.to_string_lossy())
        );
    }
    Ok(exit_code_of_recording(status, is_whole))
}

fn describe_failure(error: TraceError, program: &OsStr) -> anyhow::Error {
    match error {
        TraceError::Start(error) => cannot_run_error(program, error).into(),
        _ => {
            anyhow::anyhow!(
                "cannot run {} with each process as a separate run: {error}. Record all processes as one run, without --suite, and add \
                 the run to the suite with `trodden runs suite SUITE last`",
                program.display()
            )
        }
    }
}

/// Starts a thread that drains the stream files in a folder. Returns a channel that delivers the programs whose logs are complete.
fn drain_streams_in_background(folder: PathBuf, method: CompressionMethod, programs: Receiver<StartedProgram>) -> Receiver<StartedProgram> {
    let (complete, ended) = channel();
    std::thread::spawn(move || {
        let mut recorder = StreamRecorder::new(&folder, method);
        if let Err(error) = drain(&mut recorder, &programs, &complete) {
            log::warn!("the recording of streams stopped early: {}", format_causes(&error));
            programs.iter().for_each(|program| drop(complete.send(program)));
        }
    });
    ended
}

fn drain(recorder: &mut StreamRecorder, programs: &Receiver<StartedProgram>, complete: &Sender<StartedProgram>) -> Result<()> {
    let mut pause = MIN_PAUSE;
    loop {
        match programs.recv_timeout(pause) {
            Ok(program) => {
                let place = program_folder(recorder.folder(), program.id);
                let finished = if place.is_dir() { recorder.finish_streams(&place).map(|_| ()) } else { Ok(()) };
                // If logs are missing, storing the program's run fails later, and that failure is reported.
                let _ = complete.send(program);
                finished?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                // The remaining files belong to processes that could not be followed.
                let folder = recorder.folder().to_owned();
                return recorder.finish_streams(&folder).map(|_| ());
            }
        }
        pause = if recorder.drain_full_chunks()? == 0 { next_longer_pause(pause) } else { MIN_PAUSE };
    }
}

fn program_folder(folder: &Path, program: ProgramId) -> PathBuf {
    folder.join(program.0.to_string())
}

/// Moves the files of a process that has left its program. Files that cannot be moved stay in `folder`, where `finish` finds them.
fn move_program_files(folder: &Path, program: ProgramId, process: u32) {
    let ends = ["raw", STREAM_EXTENSION].map(|extension| format!(".{process}.{extension}"));
    let all = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
    let ours: Vec<_> = all.filter(|name| ends.iter().any(|end| name.to_string_lossy().ends_with(end))).collect();
    if ours.is_empty() {
        return;
    }
    let target = program_folder(folder, program);
    let _ = trodden_profile::temporary::create_folders(&target);
    for name in ours {
        let _ = fs::rename(folder.join(&name), target.join(&name));
    }
}

struct ProgramRecorder {
    store: RunStore,
    units: Option<UnitCache>,
    folder: PathBuf,
    suite: String,
    is_streamed: bool,
    /// Problems that were already reported. Many runs may have the same problem, which is reported once.
    reported: BTreeSet<String>,
    stored: Vec<PathBuf>,
    logs: usize,
    failures: u64,
    /// Number of stored runs that lost counts, which their profiles mention.
    runs_with_losses: u64,
}

impl ProgramRecorder {
    fn record_all(mut self, programs: &Receiver<StartedProgram>) -> ProgramRecorder {
        for program in programs {
            let files = program_folder(&self.folder, program.id);
            if files.is_dir()
                && let Err(error) = self.store_run(metadata_of(program), &files)
            {
                self.report_problem_once(&format_causes(&error));
                self.failures += 1;
            }
        }
        self
    }

    /// Stores a run from the files in a folder and removes the folder.
    fn store_run(&mut self, run: Run, folder: &Path) -> Result<()> {
        let logs = files_with_extension(folder, LOG_EXTENSION)?;
        logs.iter().try_for_each(|log| write_raw_counts_of_log(log).map(drop))?;
        let left = files_with_extension(folder, STREAM_EXTENSION)?;
        if let Some(left) = left.first() {
            bail!("stream file {} was not recorded", left.display());
        }
        let files = raw_files(folder)?;
        if files.iter().any(|f| matches!(SamplingSwitch::open(f), Ok(Some(_)))) {
            bail!(
                "with --suite, a program built with --sample counts only during bursts, but none are requested. Pass --burst or --every, \
                 or omit --suite"
            );
        }
        let collected = collect(files, Run { suite: Some(self.suite.clone()), ..run }, self.units.as_ref());
        let mut losses = collected.problems.iter().filter(|p| p.loses_counts());
        let (has_losses, all_marked) = (losses.clone().next().is_some(), losses.all(CollectProblem::is_recorded_in_profile));
        collected.problems.iter().for_each(|p| self.report_problem_once(&p.to_string()));
        if !all_marked {
            bail!("cannot decode all counts of a run; the reasons are listed above");
        }
        self.runs_with_losses += u64::from(has_losses);
        // A process that is killed while it starts leaves a file without images.
        if !collected.profile.images.is_empty() {
            let entry = self.store.add_run(&collected.profile)?;
            move_logs_to_folder(&logs, &self.store.streams(entry.number))?;
            self.logs += logs.len();
            self.stored.push(entry.profile);
        }
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
    }

    fn report_problem_once(&mut self, problem: &str) {
        if self.reported.insert(problem.to_owned()) {
            log::warn!("{}", problem);
        }
    }

    /// Stores the files of all processes that could not be followed as a single run, and logs the result.
    fn finish_recording(mut self, what: &RecordedCommand, status: ExitStatus, context: &RecordingContext) -> Result<()> {
        let mut rest = raw_files(&self.folder)?;
        rest.extend(files_with_extension(&self.folder, LOG_EXTENSION)?);
        if !rest.is_empty() {
            log::warn!(
                "some processes could not be followed, possibly because they are in a different namespace. Their counts ({}) are stored as \
                 one run",
                plural(rest.len() as u128, "raw file", "raw files")
            );
            let remaining = self.folder.join("rest");
            trodden_profile::temporary::create_folders(&remaining)?;
            for file in &rest {
                fs::rename(file, remaining.join(file.file_name().with_context(|| format!("{} has no file name", file.display()))?))?;
            }
            let run = run_metadata(&what.command, UNIX_EPOCH.elapsed().unwrap_or_default(), process_ending(status), context);
            self.store_run(run, &remaining)?;
        }
        if self.stored.is_empty() && self.failures == 0 && self.runs_with_losses == 0 {
            warn_nothing_counted(&what.command[0]);
            return Ok(());
        }
        if let Some(output) = &what.destination.output {
            let merged = merge_files(&self.stored, BuildPolicy::Separate, |_| {});
            merged.profile.context("cannot read any of the runs that were just recorded")?.write(output)?;
            log::info!("the merged profile of all runs is in {}", output.display());
        }
        let runs = plural(self.stored.len() as u128, "run", "runs");
        log::info!("recorded {runs} in the suite {}; `trodden suite list {}` shows them", self.suite, quote_for_shell(&self.suite));
        if self.is_streamed && self.logs == 0 {
            log::warn!(
                "recorded counts but not the order of paths, because no program that ran was built with --stream (`trodden build --stream \
                 -- ...`)"
            );
        }
        anyhow::ensure!(self.failures == 0, "{} could not be stored", plural(self.failures as u128, "run", "runs"));
        anyhow::ensure!(
            self.runs_with_losses == 0,
            "{} lost counts, so the stored profiles are marked as incomplete",
            plural(u128::from(self.runs_with_losses), "run", "runs")
        );
        Ok(())
    }
}

fn metadata_of(program: StartedProgram) -> Run {
    Run {
        command: program.command,
        directory: program.directory,
        host: host_name(),
        started_ns: program.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        duration_ns: program.duration.as_nanos() as u64,
        ending: program.ending.map(process_ending),
        test: program.variable.filter(|name| !name.is_empty()),
        ..new_run_metadata()
    }
}
