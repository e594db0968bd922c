//! Each program that a command runs, recorded as a run of its own.
//!
//! Each process has raw files of its own, named by its number. Processes are followed (`trodden_trace`), so that it is
//! known which of them are one program, how it was called and how it ended, and so that a process's files are kept
//! as soon as it has left its program: its number may be given again. What has ended is stored while the command goes
//! on. If sequences are wanted, they write streams: a thread takes what they write, and makes the logs of a program when it has ended.

use crate::runs::reasons;
use crate::streams::record::{NAMES, StreamOptions, fold};
use crate::streams::recorder::{PAUSE, Recorder, longer};
use crate::{
    RecordedCommand, Surroundings, TEST_VARIABLE, circumstances, command, ending, exit_code_with, host, nothing_counted, one_run, pattern,
    run_folder,
};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::UNIX_EPOCH;
use trodden_launch::process::not_run;
use trodden_profile::merge::{Builds, merge_files};
use trodden_profile::{CollectProblem, Run, RunStore, Switch, collect, raw_files};
use trodden_sequence::CompressionMethod;
use trodden_stored::place::{LOG, STREAM, move_logs, with_extension};
use trodden_text::words::{plural, shell_word};
use trodden_trace::command::{self as tracer, ActiveRun, RunRole};
use trodden_trace::{Follow, ProcessEvent, ProgramId, ProgramStart, StartedProgram, TraceError, follow};
use trodden_unit::UnitCache;
use trodden_wire::OUTPUT_VARIABLE;
use trodden_wire::stream::STREAM_VARIABLE;

/// Records the programs of a command as runs of a suite, with their streams if `streams` says how; gives the command's exit status. The
/// calling process is a tracer ([`trodden_trace::command::in_tracer`]).
///
/// # Errors
/// The command cannot be started or followed, or there is no place for its counts.
pub fn run(what: &RecordedCommand, suite: &str, streams: Option<StreamOptions>, around: &Surroundings) -> Result<ExitCode> {
    let folder = run_folder(&what.destination, around)?;
    let (mut command, raw) = (command(&what.command, folder.path(), "%m.%p.raw", around), folder.path().to_owned());
    let (ended, mut programs) = channel();
    if let Some(streams) = streams {
        command.env(OUTPUT_VARIABLE, pattern(folder.path(), NAMES)).env(STREAM_VARIABLE, streams.bounds());
        programs = drained(folder.path().to_owned(), streams.method, programs);
    }
    let recorder = ProgramRecorder {
        store: around.run_store()?,
        units: around.units.clone(),
        folder: raw.clone(),
        suite: suite.to_owned(),
        is_streamed: streams.is_some(),
        reported: BTreeSet::new(),
        stored: Vec::new(),
        logs: 0,
        failures: 0,
        lacking: 0,
    };
    let recorder = std::thread::spawn(move || recorder.record_all(&programs));
    // Processes that are followed here are not changed.
    let (active, begun) = ActiveRun::begin(RunRole::Program, false, false);
    // Following processes holds them up until its thread ends.
    let following = move || {
        let report = &mut |event| match event {
            ProcessEvent::Left { program, process } => keep_files(&raw, program, process),
            // The receiver is gone if storing has failed, which is reported then.
            ProcessEvent::Ended(program) => drop(ended.send(program)),
        };
        let command = ProgramStart::new(tracer::launcher(), &command);
        follow(Follow { command, variable: TEST_VARIABLE, begun: &mut |process| _ = begun.send(process), report })
    };
    let status = std::thread::spawn(following).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    drop(active);
    let status = status.map_err(|e| failed(e, &what.command[0]))?;
    let recorder = recorder.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let finished = folder.check().and_then(|()| recorder.finish(what, status, around));
    let is_whole = finished.is_ok();
    if let Err(error) = finished {
        let kept = folder.keep();
        log::warn!(
            "the suite is incomplete: {1}; raw counts that were not stored are in {0} (`trodden import {2}`)",
            kept.display(),
            reasons(&error),
            shell_word(&kept.to_string_lossy())
        );
    }
    Ok(exit_code_with(status, is_whole))
}

fn failed(error: TraceError, program: &OsStr) -> anyhow::Error {
    match error {
        TraceError::Start(error) => not_run(program, error).into(),
        _ => {
            anyhow::anyhow!(
                "cannot run {} with its processes followed: {error}. Record it without --suite, as one run of all processes, and put that \
                    into the suite: trodden runs suite SUITE last",
                program.display()
            )
        }
    }
}

/// Takes what programs write into stream files of a folder, in a thread of its own; hands on programs whose logs are made.
fn drained(folder: PathBuf, method: CompressionMethod, programs: Receiver<StartedProgram>) -> Receiver<StartedProgram> {
    let (whole, ended) = channel();
    std::thread::spawn(move || {
        let mut recorder = Recorder::new(&folder, method);
        if let Err(error) = drain(&mut recorder, &programs, &whole) {
            log::warn!("streams cannot be recorded any more: {}", reasons(&error));
            programs.iter().for_each(|program| drop(whole.send(program)));
        }
    });
    ended
}

fn drain(recorder: &mut Recorder, programs: &Receiver<StartedProgram>, whole: &Sender<StartedProgram>) -> Result<()> {
    let mut pause = PAUSE;
    loop {
        match programs.recv_timeout(pause) {
            Ok(program) => {
                let place = folder_of(recorder.folder(), program.id);
                let finished = if place.is_dir() { recorder.finish(&place).map(|_| ()) } else { Ok(()) };
                // Without its logs it is no run, and that is reported.
                let _ = whole.send(program);
                finished?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                // Of processes that could not be followed.
                let folder = recorder.folder().to_owned();
                return recorder.finish(&folder).map(|_| ());
            }
        }
        pause = if recorder.poll()? == 0 { longer(pause) } else { PAUSE };
    }
}

/// Where the files of a program go.
fn folder_of(folder: &Path, program: ProgramId) -> PathBuf {
    folder.join(program.0.to_string())
}

/// Moves the files of a process that has left its program. What cannot be moved is found at the end.
fn keep_files(folder: &Path, program: ProgramId, process: u32) {
    let ends = ["raw", STREAM].map(|extension| format!(".{process}.{extension}"));
    let all = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
    let ours: Vec<_> = all.filter(|name| ends.iter().any(|end| name.to_string_lossy().ends_with(end))).collect();
    if ours.is_empty() {
        return;
    }
    let place = folder_of(folder, program);
    let _ = trodden_profile::temporary::create_folders(&place);
    for name in ours {
        let _ = fs::rename(folder.join(&name), place.join(&name));
    }
}

/// Stores programs as runs.
struct ProgramRecorder {
    store: RunStore,
    units: Option<UnitCache>,
    folder: PathBuf,
    suite: String,
    /// Whether sequences are wanted.
    is_streamed: bool,
    /// Problems reported already: each run may have them.
    reported: BTreeSet<String>,
    stored: Vec<PathBuf>,
    /// Logs of streams that were stored.
    logs: usize,
    failures: u64,
    /// Stored runs that lack counts, and say so.
    lacking: u64,
}

impl ProgramRecorder {
    fn record_all(mut self, programs: &Receiver<StartedProgram>) -> ProgramRecorder {
        for program in programs {
            let place = folder_of(&self.folder, program.id);
            if place.is_dir()
                && let Err(error) = self.keep(run_of(program), &place)
            {
                self.report(&reasons(&error));
                self.failures += 1;
            }
        }
        self
    }

    /// Stores a run, and removes its raw files.
    fn keep(&mut self, run: Run, place: &Path) -> Result<()> {
        let logs = with_extension(place, LOG)?;
        logs.iter().try_for_each(|log| fold(log).map(drop))?;
        let left = with_extension(place, STREAM)?;
        if let Some(left) = left.first() {
            bail!("the stream {} is not recorded", left.display());
        }
        let files = raw_files(place)?;
        if files.iter().any(|f| matches!(Switch::open(f), Ok(Some(_)))) {
            bail!(
                "a program of the sample tier counts nothing in a suite of single programs: give --burst or --every, which make one run of all processes"
            );
        }
        let collected = collect(files, Run { suite: Some(self.suite.clone()), ..run }, self.units.as_ref());
        let mut losses = collected.problems.iter().filter(|p| p.loses_counts());
        let (is_lacking, all_marked) = (losses.clone().next().is_some(), losses.all(CollectProblem::is_marked));
        collected.problems.iter().for_each(|p| self.report(&p.to_string()));
        if !all_marked {
            bail!("counts of a run cannot be decoded");
        }
        self.lacking += u64::from(is_lacking);
        // A process that is killed as it starts leaves a file without anything in it.
        if !collected.profile.images.is_empty() {
            let entry = self.store.add_run(&collected.profile)?;
            move_logs(&logs, &self.store.streams(entry.number))?;
            self.logs += logs.len();
            self.stored.push(entry.profile);
        }
        fs::remove_dir_all(place).with_context(|| format!("cannot remove {}", place.display()))
    }

    fn report(&mut self, problem: &str) {
        if self.reported.insert(problem.to_owned()) {
            log::warn!("{}", problem);
        }
    }

    /// Stores what no process could be found for, and reports what there is.
    fn finish(mut self, what: &RecordedCommand, status: ExitStatus, around: &Surroundings) -> Result<()> {
        let mut rest = raw_files(&self.folder)?;
        rest.extend(with_extension(&self.folder, LOG)?);
        if !rest.is_empty() {
            log::warn!(
                "{} raw files are of processes that could not be followed (another namespace?); they are kept as one run",
                rest.len()
            );
            let place = self.folder.join("rest");
            trodden_profile::temporary::create_folders(&place)?;
            for file in &rest {
                fs::rename(file, place.join(file.file_name().context("a file has a name")?))?;
            }
            let run = circumstances(&what.command, UNIX_EPOCH.elapsed().unwrap_or_default(), ending(status), around);
            self.keep(run, &place)?;
        }
        if self.stored.is_empty() && self.failures == 0 && self.lacking == 0 {
            nothing_counted(&what.command[0]);
            return Ok(());
        }
        if let Some(output) = &what.destination.output {
            let merged = merge_files(&self.stored, Builds::Separate, |_| {});
            merged.profile.context("no run can be read again")?.write(output)?;
            log::info!("all runs, added up, are in {}", output.display());
        }
        let runs = plural(self.stored.len() as u128, "run", "runs");
        log::info!("recorded {runs} in the suite {}; `trodden suite list {}` shows them", self.suite, shell_word(&self.suite));
        if self.is_streamed && self.logs == 0 {
            log::warn!("there are counts, but no sequence: nothing that ran was built with --stream (`trodden build --stream -- ...`)");
        }
        anyhow::ensure!(self.failures == 0, "{} could not be stored", plural(self.failures as u128, "run", "runs"));
        anyhow::ensure!(self.lacking == 0, "counts of {} are lost, and the runs say so", plural(u128::from(self.lacking), "run", "runs"));
        Ok(())
    }
}

fn run_of(program: StartedProgram) -> Run {
    Run {
        command: program.command,
        directory: program.directory,
        host: host(),
        started_ns: program.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64,
        duration_ns: program.duration.as_nanos() as u64,
        ending: program.ending.map(ending),
        test: program.variable.filter(|name| !name.is_empty()),
        ..one_run()
    }
}
