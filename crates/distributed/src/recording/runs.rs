//! Runs of the traced program. A first run without witnesses records the program's input, system call results and output. Then, one run per
//! profile follows, several at a time, each on its own core.
//!
//! Invariant: if there are several runs, all get the same arguments, environment, folder and input, and pipes for their output, so that
//! they behave the same. A single run uses the command's own streams, and nothing is changed for it.
// Length: all ways of running one program once.

use super::children::ParkedSlot;
use super::options::{RecordingHost, RunOptions};
use crate::libraries::find_libraries;
use crate::live::{LiveHits, create_live_sink};
use crate::model::UnwindingSites;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use trodden_profile::private;
use trodden_trace::command::{self, ActiveRun, RunKind};
use trodden_trace::{
    CollectError, Collector, CollectorKind, Executable, FixedRunConditions, FollowEnding, FreshFolder, Library, NO_ADDRESS, OutputStream,
    ParkedProcess, ParkedReceiver, PartialTraceWriter, ProgramStart, PtraceBreakpoints, RunLog, RunOutcome, RunTarget, Sink, SinkFlow,
    ThreadNumber, TraceRun, cores, drain, wait_for_child,
};

enum RunStandardInput {
    /// The standard input of this command. It is used for a single run, which also inherits the standard output.
    Inherited,
    /// A file, which each run reads from the same offset.
    File {
        file: File,
        /// Offset in bytes.
        at: u64,
    },
    /// Empty.
    Null,
}

/// A program that a recording runs once or several times.
pub struct RepeatedProgram<'a> {
    /// Options that all runs share.
    pub options: &'a RunOptions,
    /// Called with output of the run whose output the user is to see.
    forward_output: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
    /// The program's image.
    pub executable: Executable,
    /// Shared libraries that are traced in addition to the program.
    pub libraries: Vec<Library>,
    /// All blocks of the traced files, in ascending order.
    pub blocks: Vec<Range<u64>>,
    /// Start addresses of the blocks into whose middle a jump may lead.
    pub guarded: HashSet<u64>,
    /// Start addresses of the blocks that a single run does not watch.
    pub unwatched: HashSet<u64>,
    input: RunStandardInput,
    folder: PathBuf,
    /// The program's environment variables; `None` if they are those of this process.
    environment: Option<Vec<(OsString, OsString)>>,
    fresh: Option<FreshFolder>,
    /// The process to trace, if an earlier run has parked it.
    pub parked: Option<ParkedSlot>,
    /// Receives the processes that the run passes on.
    pub children: Option<ParkedReceiver<'a>>,
}

/// The outcome of one run, with its partial trace.
pub struct RunResult {
    /// How the run ended, and what the collector observed.
    pub outcome: RunOutcome,
    /// The file of the run's partial trace. There is none if hits were replayed at once and not stored.
    pub partial: PathBuf,
    /// Number of executions that were recorded.
    pub hits: u64,
    /// Wall-clock time.
    pub time: Duration,
}

/// What the first run has shown.
pub struct FirstRun {
    /// How the run ended, and what the collector observed.
    pub outcome: RunOutcome,
    /// Pairs of an indirect jump and a target that it took.
    pub targets: BTreeSet<(u64, u64)>,
    /// Addresses of executed calls to functions that throw.
    pub throws: BTreeSet<u64>,
    /// Addresses at which execution resumed after unwinding: landing pads, and return addresses of `setjmp` calls that returned a second
    /// time.
    pub landed: BTreeSet<u64>,
    /// Entries of functions that call `setjmp` or a similar function, and that were entered exactly once.
    pub entered_once: BTreeSet<u64>,
}

/// The addresses that a run watches, and the log of the first run if this run repeats it.
struct WatchedSites<'a> {
    sites: &'a [u64],
    jumps: &'a [u64],
    first: Option<Arc<RunLog>>,
}

/// A sink that collects targets of jumps and observes unwinding.
struct ObservationSink<'a> {
    sites: &'a [u64],
    jumps: &'a [u64],
    /// For each thread that has just reached a jump, the address of the jump. The next value that the thread records is the target.
    last: HashMap<ThreadNumber, u64>,
    seen: BTreeSet<(u64, u64)>,
    unwinding: &'a UnwindingSites,
    /// For each thread, the last address that it reached among those in `unwinding`.
    previous: HashMap<ThreadNumber, u64>,
    throws: BTreeSet<u64>,
    landed: BTreeSet<u64>,
    /// For each function that calls `setjmp` or a similar function, the number of times that it was entered.
    entered: HashMap<u64, u64>,
}

impl ObservationSink<'_> {
    /// Records that a thread has reached an address in `unwinding`. If it is the return address of a `setjmp`, but the thread has not just
    /// reached the call, then a `longjmp` has led there.
    fn record_unwinding(&mut self, thread: ThreadNumber, site: u64) {
        if self.unwinding.twice.values().any(|(_, entry)| *entry == site) {
            *self.entered.entry(site).or_default() += 1;
        }
        let previous = self.previous.insert(thread, site);
        let is_second_return = self.unwinding.twice.get(&site).is_some_and(|(call, _)| previous != Some(*call));
        if is_second_return || self.unwinding.pads.contains(&site) {
            self.landed.insert(site);
        }
        if self.unwinding.throws.contains(&site) {
            self.throws.insert(site);
        }
    }
}

impl Sink for ObservationSink<'_> {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        if let Some(jump) = self.last.remove(&thread) {
            if what != NO_ADDRESS {
                self.seen.insert((jump, what));
            }
            return Ok(SinkFlow::Continue);
        }
        let site = self.sites[what as usize];
        if self.jumps.binary_search(&site).is_ok() {
            self.last.insert(thread, site);
        } else {
            self.record_unwinding(thread, site);
        }
        Ok(SinkFlow::Continue)
    }
}

/// A sink that counts hits (recorded executions), and stores them if it has a writer.
struct StoredHitSink {
    writer: Option<PartialTraceWriter>,
    count: u64,
}

impl Sink for StoredHitSink {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        self.count += 1;
        self.writer.as_mut().map_or(Ok(SinkFlow::Continue), |writer| writer.record(thread, what))
    }

    fn record_sites(&mut self, thread: ThreadNumber, sites: &[u32]) -> io::Result<SinkFlow> {
        self.count += sites.len() as u64;
        self.writer.as_mut().map_or(Ok(SinkFlow::Continue), |writer| writer.record_sites(thread, sites))
    }
}

struct CountSink(Vec<u64>);

impl Sink for CountSink {
    fn record(&mut self, _: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        self.0[what as usize] += 1;
        Ok(SinkFlow::Continue)
    }
}

impl<'a> RepeatedProgram<'a> {
    /// Finds the program and saves its input. Partial traces will be written to `folder`. `is_single` is true if the program is run only
    /// once.
    ///
    /// # Errors
    /// The program does not exist or cannot be traced, or the input cannot be read.
    pub fn new(options: &'a RunOptions, host: &'a RecordingHost, is_single: bool, folder: PathBuf) -> Result<Self> {
        let input = if is_single { RunStandardInput::Inherited } else { shared_input(&host.temporary)? };
        let fresh = host.fresh_folder.as_ref().map(|fresh| FreshFolder::save(fresh.clone(), host.temporary.clone())).transpose()?;
        let subject = Self::from_parts(options, host.forward_output, find_program(options, host)?, input)?;
        // The variables are passed explicitly, as they are on other machines. If they were inherited here, their order could differ, which
        // the program can observe.
        let environment = host.machines.as_ref().map(|others| others.environment.clone());
        Ok(Self { folder, fresh, environment, ..subject })
    }

    fn from_parts(
        options: &'a RunOptions,
        forward_output: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
        program: PathBuf,
        input: RunStandardInput,
    ) -> Result<Self> {
        let executable = Executable::read(&program)?;
        let has_others = matches!(options.collector, Some(CollectorKind::Hardware | CollectorKind::Uprobes));
        ensure!(
            options.libraries.is_empty() || !has_others,
            "this collector cannot trace libraries (--library). Pass --collector trampolines, compiled, ptrace or single-step"
        );
        let libraries = find_libraries(&options.libraries, &program, options.process)?;
        let (blocks, guarded, unwatched, folder) = (Vec::new(), HashSet::new(), HashSet::new(), PathBuf::new());
        Ok(Self {
            options,
            forward_output,
            executable,
            libraries,
            blocks,
            guarded,
            unwatched,
            input,
            folder,
            environment: None,
            fresh: None,
            parked: None,
            children: None,
        })
    }

    /// Creates the description of a program on one of several machines that execute its runs.
    ///
    /// # Errors
    /// The program does not exist on this machine or cannot be traced, or the input cannot be read.
    pub fn from_worker(
        options: &'a RunOptions,
        program: PathBuf,
        environment: Vec<(OsString, OsString)>,
        input: Option<&Path>,
    ) -> Result<Self> {
        let input = match input {
            Some(path) => RunStandardInput::File {
                file: File::open(path).context("cannot open the standard input that was stored for all runs")?,
                at: 0,
            },
            None => RunStandardInput::Null,
        };
        // The output of runs on other machines is dropped.
        let subject = Self::from_parts(options, &|_, _| {}, program, input)?;
        Ok(Self { environment: Some(environment), ..subject })
    }

    /// Executes one run on this machine, for a recording that another machine controls.
    pub fn perform_worker_run(&self, collector: &dyn Collector, sites: &[u64], first: &Arc<RunLog>, partial: &Path) -> Result<RunResult> {
        self.perform_run_to_file(collector, (sites, &[]), Some(first.clone()), partial, RunSettings::hidden(self.core_for_worker(0)))
    }

    /// Returns true if runs hide the vDSO from the program, so that they can repeat the results of clock functions.
    pub fn hides_vdso(&self) -> bool {
        self.fixed_run_conditions(None).time
    }

    /// Returns which aspects of a run are made repeatable: none if the run inherits its standard input, because it is then the only run.
    fn fixed_run_conditions(&self, core: Option<usize>) -> FixedRunConditions {
        match self.input {
            RunStandardInput::Inherited => FixedRunConditions::NONE,
            RunStandardInput::File { .. } | RunStandardInput::Null => FixedRunConditions { core, ..self.options.recipe },
        }
    }

    /// Returns the folder to which partial traces are written.
    pub fn partial_trace_folder(&self) -> &Path {
        &self.folder
    }

    /// Copies the input of the runs to the file `to`. Returns `None` if they have no input.
    pub fn copy_input(&self, to: &Path) -> Result<Option<PathBuf>> {
        let RunStandardInput::File { file, at } = &self.input else { return Ok(None) };
        io::copy(&mut reopen_file_at(file, *at)?, &mut private::create_file(to)?).context("cannot copy standard input")?;
        Ok(Some(to.to_owned()))
    }

    /// Performs a first run. It records the targets of the given indirect jumps, and where unwinding starts and execution resumes. If
    /// `shows` is true, the program's output is passed on to the user.
    pub fn perform_first_run(
        &self,
        jumps: &[u64],
        unwinding: &UnwindingSites,
        first: Option<Arc<RunLog>>,
        shows: bool,
    ) -> Result<FirstRun> {
        let others = unwinding.sites().into_iter().filter(|other| jumps.binary_search(other).is_err());
        let sites: Vec<u64> = jumps.iter().copied().chain(others).collect();
        let (throws, landed) = (BTreeSet::new(), BTreeSet::new());
        let (last, previous, entered) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut targets =
            ObservationSink { sites: &sites, jumps, last, seen: BTreeSet::new(), unwinding, previous, throws, landed, entered };
        let watched = WatchedSites { sites: &sites, jumps, first };
        let place = RunSettings { core: self.core_for_worker(0), shows, role: RunKind::Repetition };
        let outcome = self.perform_run(&PtraceBreakpoints, watched, &mut targets, place)?;
        let ObservationSink { seen, throws, landed, entered, .. } = targets;
        let entered_once = entered.into_iter().filter(|(_, times)| *times == 1).map(|(entry, _)| entry).collect();
        Ok(FirstRun { outcome, targets: seen, throws, landed, entered_once })
    }

    /// Performs a run that counts the executions of each site. The program's output is not shown.
    pub fn perform_counting_run(&self, collector: &dyn Collector, sites: &[u64], first: Option<Arc<RunLog>>) -> Result<Vec<u64>> {
        let mut counts = CountSink(vec![0; sites.len()]);
        let watched = WatchedSites { sites, jumps: &[], first };
        self.perform_run(collector, watched, &mut counts, RunSettings::hidden(self.core_for_worker(0)))?;
        Ok(counts.0)
    }

    /// Performs one run for each element of `profiles`, which contains the addresses that the run watches. `machines` lists runs that are
    /// executed one after another, because they are planned for the same machine. `jobs` of these lists are executed at the same time;
    /// `None` means one per core.
    ///
    /// # Errors
    /// A run failed. The error contains the number of the run.
    pub fn perform_runs(
        &self,
        collector: &dyn Collector,
        profiles: &[Vec<u64>],
        machines: &[Vec<usize>],
        first: &Arc<RunLog>,
        jobs: Option<usize>,
    ) -> Result<Vec<RunResult>> {
        let jobs = jobs.unwrap_or_else(|| cores().len()).clamp(1, machines.len().max(1));
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<(usize, Result<RunResult>)>> = Mutex::new(Vec::new());
        let work = |worker: usize| {
            while let Some(queue) = machines.get(next.fetch_add(1, Ordering::Relaxed)) {
                for &number in queue {
                    let sites = &profiles[number];
                    let partial = self.folder.join(format!("run-{}.partial", number + 1));
                    let place = RunSettings::hidden(self.core_for_worker(worker));
                    let result = self.perform_run_to_file(collector, (sites, &[]), Some(first.clone()), &partial, place);
                    results.lock().expect("no run panics").push((number, result));
                }
            }
        };
        std::thread::scope(|scope| (0..jobs).for_each(|worker| drop(scope.spawn(move || work(worker)))));
        let mut results = results.into_inner().expect("no run panics");
        results.sort_by_key(|r| r.0);
        results.into_iter().map(|(number, result)| result.with_context(|| format!("run {} cannot be used", number + 1))).collect()
    }

    /// Performs a single run that watches all sites and records the targets of `jumps`.
    pub fn perform_single_run(&self, collector: &dyn Collector, sites: &[u64], jumps: &[u64], shows: bool) -> Result<RunResult> {
        self.perform_run_to_file(collector, (sites, jumps), None, &self.single_run_partial_path(), self.single_run_settings(shows))
    }

    /// Like [`Self::perform_single_run`], but passes hits to `replay` during the run. They are stored as well if `keeps_hits` is true or
    /// their size is limited.
    pub fn perform_live_run<T: Send>(
        &self,
        collector: &dyn Collector,
        (sites, jumps): (&[u64], &[u64]),
        (shows, keeps_hits): (bool, bool),
        replay: impl FnOnce(LiveHits) -> Result<T> + Send,
    ) -> Result<(RunResult, T)> {
        let (partial, max_size) = (self.single_run_partial_path(), self.options.max_size);
        let stores = keeps_hits || max_size.is_some();
        let writer = if stores { Some(PartialTraceWriter::create(&partial, max_size)?) } else { None };
        let (mut sink, hits) = create_live_sink(StoredHitSink { writer, count: 0 });
        std::thread::scope(|scope| {
            let replaying = scope.spawn(|| replay(hits));
            let begun = Instant::now();
            let outcome =
                self.perform_run(collector, WatchedSites { sites, jumps, first: None }, &mut sink, self.single_run_settings(shows));
            let time = begun.elapsed();
            let stored = sink.finish();
            let replayed = replaying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (outcome, stored, replayed) {
                // An error of the replay ends the run with a write error, so the replay's error is the one to report.
                (_, _, Err(error)) | (Err(error), _, Ok(_)) => Err(error),
                (Ok(_), Err(error), Ok(_)) => Err(error.into()),
                (Ok(outcome), Ok(StoredHitSink { writer, count: hits }), Ok(replayed)) => {
                    writer.map_or(Ok(()), |writer| writer.finish(&outcome.followed))?;
                    Ok((RunResult { outcome, partial, hits, time }, replayed))
                }
            }
        })
    }

    fn single_run_partial_path(&self) -> PathBuf {
        self.folder.join("run-1.partial")
    }

    fn single_run_settings(&self, shows: bool) -> RunSettings {
        let role = match (self.options.process, &self.input) {
            (Some(_), _) => RunKind::Process,
            (None, RunStandardInput::Inherited) => RunKind::Program,
            (None, _) => RunKind::Repetition,
        };
        RunSettings { core: self.core_for_worker(0), shows, role }
    }

    fn core_for_worker(&self, worker: usize) -> Option<usize> {
        let cores = cores();
        let pinned = self.options.is_pinned && !cores.is_empty();
        pinned.then(|| cores[worker % cores.len()])
    }

    fn perform_run_to_file(
        &self,
        collector: &dyn Collector,
        (sites, jumps): (&[u64], &[u64]),
        first: Option<Arc<RunLog>>,
        partial: &Path,
        place: RunSettings,
    ) -> Result<RunResult> {
        let mut writer = PartialTraceWriter::create(partial, self.options.max_size)?;
        let begun = Instant::now();
        let outcome = self.perform_run(collector, WatchedSites { sites, jumps, first }, &mut writer, place)?;
        let time = begun.elapsed();
        let hits = writer.symbols();
        writer.finish(&outcome.followed)?;
        Ok(RunResult { outcome, partial: partial.to_owned(), hits, time })
    }

    fn perform_run(
        &self,
        collector: &dyn Collector,
        watched: WatchedSites,
        sink: &mut (dyn Sink + Send),
        place: RunSettings,
    ) -> Result<RunOutcome> {
        // Length: a run is described, started and waited for in one place.
        let RunSettings { core, shows, role } = place;
        // The copy of the folder is removed when this is dropped, at the end of the run.
        let _copy;
        let mut parked = self.parked.as_ref().and_then(ParkedSlot::take);
        ensure!(parked.is_some() || self.parked.is_none(), "the recording was interrupted before the program started");
        let registered = parked.as_mut().and_then(ParkedProcess::take_registration);
        let (target, outputs) = match (parked, self.options.process) {
            (Some(parked), _) => (RunTarget::Adopt(parked), Vec::new()),
            (None, Some(process)) => (RunTarget::Attach(process), Vec::new()),
            (None, None) => {
                let (mut program, outputs) = self.prepare_program()?;
                if let Some(folder) = self.fresh.as_ref().filter(|_| !shows) {
                    _copy = folder.provide_folder_copy(&mut program)?;
                }
                (RunTarget::Start(Box::new(program)), outputs)
            }
        };
        let recipe = self.fixed_run_conditions(core);
        let WatchedSites { sites, jumps, first } = watched;
        let (stop, limit) = (command::stop(), self.options.limit);
        let (executable, blocks, guarded, unwatched) = (&self.executable, self.blocks.as_slice(), &self.guarded, &self.unwatched);
        let libraries = &self.libraries;
        let (active, process_sender) = match registered {
            Some(active) => (active, None),
            None => {
                let (active, begun) = ActiveRun::begin(role, true, !outputs.is_empty());
                (active, Some(begun))
            }
        };
        let note = |text: &str| log::info!("{text}");
        let run = TraceRun {
            target,
            executable,
            libraries,
            sites,
            jumps,
            blocks,
            guarded,
            unwatched,
            recipe,
            first,
            stop,
            limit,
            process_sender,
            children: self.children,
            note,
        };
        let (over, is_over) = io::pipe()?;
        std::thread::scope(|scope| {
            for (pipe, which) in outputs {
                let over = &over;
                scope.spawn(move || {
                    drain(pipe, over, |bytes| {
                        if shows {
                            (self.forward_output)(which, bytes)
                        }
                    })
                });
            }
            // The collector runs in a thread of its own, because pinning and ptrace apply to a thread.
            let collected = scope.spawn(|| collector.collect(run, sink)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            active.mark_process_restored();
            let ended = self.wait_after_detach(collected, &active);
            drop(is_over);
            ended
        })
    }

    /// Waits until a program from which the collector has detached ends. The program was started by this command, so this command must not
    /// end earlier.
    fn wait_after_detach(&self, collected: Result<RunOutcome, CollectError>, active: &ActiveRun) -> Result<RunOutcome> {
        let program = || active.process().filter(|_| self.options.process.is_none() || active.is_program());
        let mut outcome = match collected {
            Ok(outcome) => outcome,
            Err(error) => {
                // The program's exit status is ignored, because the error is more important.
                program().into_iter().for_each(|process| _ = wait_for_child(process as i32));
                return Err(error.into());
            }
        };
        let followed = &mut outcome.followed;
        if !followed.unrestored.is_empty() {
            log::warn!("some changes that tracing made to the process could not be undone: {}", followed.unrestored.join(", "));
        }
        if (followed.ending == FollowEnding::Detached || followed.is_released)
            && followed.status.is_none()
            && let Some(process) = program()
        {
            followed.status = Some(wait_for_child(process as i32).context("cannot wait for the traced program")?);
        }
        Ok(outcome)
    }

    /// Returns the program to start, and the reading ends of the pipes for its output. There are no pipes if the program inherits the
    /// standard streams.
    fn prepare_program(&self) -> Result<(ProgramStart, Vec<(io::PipeReader, OutputStream)>)> {
        let words = &self.options.command;
        let mut call = Command::new(&self.executable.path);
        call.args(&words[1..]);
        let mut program = ProgramStart::new(command::launcher(), &call);
        program.arguments[0].clone_from(&words[0]);
        program.environment.clone_from(&self.environment);
        let input: OwnedFd = match &self.input {
            RunStandardInput::Inherited => return Ok((program, Vec::new())),
            RunStandardInput::File { file, at } => reopen_file_at(file, *at)?.into(),
            RunStandardInput::Null => File::open("/dev/null")?.into(),
        };
        let (out_reader, out) = io::pipe()?;
        let (error_reader, error) = io::pipe()?;
        program.streams = [Some(input), Some(out.into()), Some(error.into())];
        Ok((program, vec![(out_reader, OutputStream::Out), (error_reader, OutputStream::Error)]))
    }
}

/// On which core a run is performed, whether its output is shown, and what kind of run it is.
#[derive(Clone, Copy)]
struct RunSettings {
    core: Option<usize>,
    shows: bool,
    role: RunKind,
}

impl RunSettings {
    fn hidden(core: Option<usize>) -> Self {
        Self { core, shows: false, role: RunKind::Repetition }
    }
}

/// Finds the program's executable file as a shell would, or that of the running process.
fn find_program(options: &RunOptions, host: &RecordingHost) -> Result<PathBuf> {
    if let Some(process) = options.process {
        let link = format!("/proc/{process}/exe");
        return std::fs::read_link(&link).with_context(|| match std::fs::read(format!("/proc/{process}/cmdline")).as_deref() {
            Ok([]) => format!("cannot trace process {process}: it or its first thread has ended, or it is a kernel thread"),
            _ => format!("process {process} does not exist or belongs to a different user"),
        });
    }
    let found = host.program.clone().filter(|path| path.exists());
    found.with_context(|| format!("cannot find program `{}`. Pass its path, or install it", options.command[0].to_string_lossy()))
}

/// Returns the standard input in a form that several runs can read. If it is not a file, it is read to its end and saved.
fn shared_input(temporary: &Path) -> Result<RunStandardInput> {
    let own = io::stdin();
    let descriptor = own.as_raw_fd();
    let Ok(kind) = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).map(|m| m.file_type()) else {
        return Ok(RunStandardInput::Null);
    };
    if kind.is_file() {
        // Earlier commands may have read the beginning of the file, so runs start at the current offset.
        use std::io::Seek;
        let at = File::from(own.as_fd().try_clone_to_owned()?).stream_position().unwrap_or(0);
        return Ok(RunStandardInput::File { file: reopen(descriptor)?, at });
    }
    let is_null =
        kind.is_char_device() && std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok_and(|p| p == Path::new("/dev/null"));
    if is_null {
        return Ok(RunStandardInput::Null);
    }
    if own.is_terminal() {
        log::info!("every run of the program gets the same standard input: type it now, and end it with Ctrl-D");
    }
    let file = trodden_trace::block_file::copy_to_unnamed_file(&mut own.lock(), temporary)
        .context("cannot store the standard input for all runs")?;
    Ok(RunStandardInput::File { file, at: 0 })
}

fn reopen_file_at(file: &File, at: u64) -> Result<File> {
    use std::io::Seek;
    let mut file = reopen(file.as_raw_fd())?;
    file.seek(io::SeekFrom::Start(at))?;
    Ok(file)
}

fn reopen(descriptor: RawFd) -> Result<File> {
    File::open(format!("/proc/self/fd/{descriptor}")).context("cannot reopen standard input")
}
