//! Runs of the traced program. A first run without witnesses records the program's input, system call results and output. Then, one run per
//! profile follows, several at a time, each on its own core.
//!
//! Invariant: if there are several runs, all get the same arguments, environment, folder and input, and pipes for their output, so that
//! they behave the same. A single run uses the command's own streams, and nothing is changed for it.
// Length: all ways of running one program once.

use super::options::{RecordingHost, RunOptions};
use crate::libraries::find_libraries;
use crate::live::{LiveHits, live_sink};
use crate::model::Unwinding;
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
    CollectError, Collector, CollectorKind, Executable, FollowEnding, FreshFolder, Library, NOWHERE, OutputStream, ParkedProcess,
    ParkedReceiver, PartialWriter, ProgramStart, PtraceBreakpoints, RepeatRecipe, RunLog, RunOutcome, RunTarget, Sink, SinkFlow,
    ThreadNumber, TraceRun, cores, drain, wait_child,
};

enum RunInput {
    /// The command's own input. Used for a single run, which also inherits the command's output.
    Inherited,
    /// A file, read by each run from the same offset.
    File {
        file: File,
        /// Offset in bytes.
        at: u64,
    },
    /// Empty.
    Null,
}

/// A program to be run one or more times.
pub struct RepeatedProgram<'a> {
    /// Options that all runs share.
    pub options: &'a RunOptions,
    /// Receives the output of the run that the user sees.
    forward_output: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
    /// The program's image.
    pub executable: Executable,
    /// Shared libraries that are traced as well.
    pub libraries: Vec<Library>,
    /// All blocks of the files, in ascending order.
    pub blocks: Vec<Range<u64>>,
    /// Starts of the blocks that may be entered in their middle by a jump.
    pub guarded: HashSet<u64>,
    /// Starts of blocks that a single run does not watch.
    pub unwatched: HashSet<u64>,
    input: RunInput,
    folder: PathBuf,
    /// The program's environment, if it differs from this process's.
    environment: Option<Vec<(OsString, OsString)>>,
    fresh: Option<FreshFolder>,
    /// The process to trace, if an earlier run has parked it.
    pub parked: Mutex<Option<ParkedProcess>>,
    /// Receives the processes that the run passes on.
    pub children: Option<ParkedReceiver<'a>>,
}

/// The outcome of one run, with its partial trace.
pub struct RunResult {
    /// How the run ended, and what the collector observed.
    pub outcome: RunOutcome,
    /// File of the run's partial trace. It does not exist if the hits were only replayed.
    pub partial: PathBuf,
    /// Number of witnesses recorded.
    pub hits: u64,
    /// Wall-clock time.
    pub time: Duration,
}

/// The result of a first run.
pub struct FirstRun {
    /// How the run ended, and what the collector observed.
    pub outcome: RunOutcome,
    /// Pairs of an indirect jump and a target it took.
    pub targets: BTreeSet<(u64, u64)>,
    /// Executed calls of functions that throw.
    pub throws: BTreeSet<u64>,
    /// Addresses at which unwinding landed: landing pads, and return addresses of `setjmp` calls that returned a second time.
    pub landed: BTreeSet<u64>,
    /// Entries of functions that call `setjmp` or the like and were entered exactly once.
    pub entered_once: BTreeSet<u64>,
}

/// The sites that a run watches, and the log of the run that it repeats.
struct WatchedSites<'a> {
    sites: &'a [u64],
    jumps: &'a [u64],
    first: Option<Arc<RunLog>>,
}

/// A sink that collects the targets of jumps and the effects of unwinding.
struct TargetSink<'a> {
    sites: &'a [u64],
    jumps: &'a [u64],
    /// For each thread, the jump whose target is the next hit.
    last: HashMap<ThreadNumber, u64>,
    seen: BTreeSet<(u64, u64)>,
    unwinding: &'a Unwinding,
    /// For each thread, the last unwinding site that it reached.
    previous: HashMap<ThreadNumber, u64>,
    throws: BTreeSet<u64>,
    landed: BTreeSet<u64>,
    /// For each function that calls `setjmp` or a similar function, how often it was entered.
    entered: HashMap<u64, u64>,
}

impl TargetSink<'_> {
    /// Records that a thread reached an unwinding site. If a thread reaches the return address of a `setjmp` without executing the call
    /// before it, the thread got there by `longjmp`.
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

impl Sink for TargetSink<'_> {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        if let Some(jump) = self.last.remove(&thread) {
            if what != NOWHERE {
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

/// A sink that counts hits, and stores them if it has a writer.
struct StoredHits {
    writer: Option<PartialWriter>,
    count: u64,
}

impl Sink for StoredHits {
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
    /// Finds the program and saves its input. Partial traces are written to `folder`. `is_single` says whether there is only one run.
    ///
    /// # Errors
    /// The program does not exist or cannot be traced, or the input cannot be read.
    pub fn new(options: &'a RunOptions, host: &'a RecordingHost, is_single: bool, folder: PathBuf) -> Result<Self> {
        let input = if is_single { RunInput::Inherited } else { shared_input(&host.temporary)? };
        let fresh = host.fresh_folder.as_ref().map(|fresh| FreshFolder::save(fresh.clone(), host.temporary.clone())).transpose()?;
        let subject = Self::from_parts(options, host.forward_output, find_program(options, host)?, input)?;
        // The environment is passed explicitly, as on other machines. Inheriting it could change the order of variables, which the program
        // can observe.
        let environment = host.machines.as_ref().map(|others| others.environment.clone());
        Ok(Self { folder, fresh, environment, ..subject })
    }

    fn from_parts(
        options: &'a RunOptions,
        forward_output: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
        program: PathBuf,
        input: RunInput,
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
            parked: Mutex::new(None),
            children: None,
        })
    }

    /// The program of a recording that another machine coordinates.
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
            Some(path) => {
                RunInput::File { file: File::open(path).context("cannot open the standard input that is stored for the runs")?, at: 0 }
            }
            None => RunInput::Null,
        };
        // Output of runs on other machines is dropped.
        let subject = Self::from_parts(options, &|_, _| {}, program, input)?;
        Ok(Self { environment: Some(environment), ..subject })
    }

    /// Executes one run of a recording that another machine coordinates.
    pub fn worker_run(&self, collector: &dyn Collector, sites: &[u64], first: &Arc<RunLog>, partial: &Path) -> Result<RunResult> {
        self.run_to_file(collector, (sites, &[]), Some(first.clone()), partial, RunPlace::hidden(self.core(0)))
    }

    /// Whether the vDSO is hidden from the program.
    pub fn hides_vdso(&self) -> bool {
        self.recipe(None).time
    }

    /// The parts of the program's environment that are kept the same in all runs: none if there is only one run.
    fn recipe(&self, core: Option<usize>) -> RepeatRecipe {
        match self.input {
            RunInput::Inherited => RepeatRecipe::NONE,
            RunInput::File { .. } | RunInput::Null => RepeatRecipe { core, ..self.options.recipe },
        }
    }

    /// The folder of partial traces.
    pub fn folder_of_partials(&self) -> &Path {
        &self.folder
    }

    /// Copies the runs' input to the file `to`. `None` if they have no input.
    pub fn copy_input(&self, to: &Path) -> Result<Option<PathBuf>> {
        let RunInput::File { file, at } = &self.input else { return Ok(None) };
        io::copy(&mut reopen_at(file, *at)?, &mut private::create_file(to)?).context("cannot copy standard input")?;
        Ok(Some(to.to_owned()))
    }

    /// Performs a first run, which records the targets of the given indirect jumps and the effects of unwinding. If `shows` is true, the
    /// output is passed on to the user.
    pub fn first_run(&self, jumps: &[u64], unwinding: &Unwinding, first: Option<Arc<RunLog>>, shows: bool) -> Result<FirstRun> {
        let others = unwinding.sites().into_iter().filter(|other| jumps.binary_search(other).is_err());
        let sites: Vec<u64> = jumps.iter().copied().chain(others).collect();
        let (throws, landed) = (BTreeSet::new(), BTreeSet::new());
        let (last, previous, entered) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut targets = TargetSink { sites: &sites, jumps, last, seen: BTreeSet::new(), unwinding, previous, throws, landed, entered };
        let watched = WatchedSites { sites: &sites, jumps, first };
        let place = RunPlace { core: self.core(0), shows, role: RunKind::Repetition };
        let outcome = self.run(&PtraceBreakpoints, watched, &mut targets, place)?;
        let TargetSink { seen, throws, landed, entered, .. } = targets;
        let entered_once = entered.into_iter().filter(|(_, times)| *times == 1).map(|(entry, _)| entry).collect();
        Ok(FirstRun { outcome, targets: seen, throws, landed, entered_once })
    }

    /// Performs a run that counts the executions of some sites, with its output hidden.
    pub fn counting_run(&self, collector: &dyn Collector, sites: &[u64], first: Option<Arc<RunLog>>) -> Result<Vec<u64>> {
        let mut counts = CountSink(vec![0; sites.len()]);
        let watched = WatchedSites { sites, jumps: &[], first };
        self.run(collector, watched, &mut counts, RunPlace::hidden(self.core(0)))?;
        Ok(counts.0)
    }

    /// Performs one run per profile. `machines` lists the runs of each machine, which are executed one after another. `jobs` machines work
    /// at the same time (default: one per core).
    ///
    /// # Errors
    /// A run failed; the error names its number.
    pub fn runs(
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
                    let place = RunPlace::hidden(self.core(worker));
                    let result = self.run_to_file(collector, (sites, &[]), Some(first.clone()), &partial, place);
                    results.lock().expect("no run panics").push((number, result));
                }
            }
        };
        std::thread::scope(|scope| (0..jobs).for_each(|worker| drop(scope.spawn(move || work(worker)))));
        let mut results = results.into_inner().expect("no run panics");
        results.sort_by_key(|r| r.0);
        results.into_iter().map(|(number, result)| result.with_context(|| format!("run {}", number + 1))).collect()
    }

    /// Performs a single run that watches all sites and records the targets of `jumps`.
    pub fn single_run(&self, collector: &dyn Collector, sites: &[u64], jumps: &[u64], shows: bool) -> Result<RunResult> {
        self.run_to_file(collector, (sites, jumps), None, &self.single_partial(), self.single_run_place(shows))
    }

    /// Like [`Self::single_run`], but `replay` consumes the hits during the run. They are stored only if `keeps_hits` is true or their
    /// size is limited.
    pub fn live_run<T: Send>(
        &self,
        collector: &dyn Collector,
        (sites, jumps): (&[u64], &[u64]),
        (shows, keeps_hits): (bool, bool),
        replay: impl FnOnce(LiveHits) -> Result<T> + Send,
    ) -> Result<(RunResult, T)> {
        let (partial, max_size) = (self.single_partial(), self.options.max_size);
        let stores = keeps_hits || max_size.is_some();
        let writer = if stores { Some(PartialWriter::create(&partial, max_size)?) } else { None };
        let (mut sink, hits) = live_sink(StoredHits { writer, count: 0 });
        std::thread::scope(|scope| {
            let replaying = scope.spawn(|| replay(hits));
            let begun = Instant::now();
            let outcome = self.run(collector, WatchedSites { sites, jumps, first: None }, &mut sink, self.single_run_place(shows));
            let time = begun.elapsed();
            let stored = sink.finish();
            let replayed = replaying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (outcome, stored, replayed) {
                // If the replay fails, the run ends with a write error, so the replay's error is the cause.
                (_, _, Err(error)) | (Err(error), _, Ok(_)) => Err(error),
                (Ok(_), Err(error), Ok(_)) => Err(error.into()),
                (Ok(outcome), Ok(StoredHits { writer, count: hits }), Ok(replayed)) => {
                    writer.map_or(Ok(()), |writer| writer.finish(&outcome.followed))?;
                    Ok((RunResult { outcome, partial, hits, time }, replayed))
                }
            }
        })
    }

    fn single_partial(&self) -> PathBuf {
        self.folder.join("run-1.partial")
    }

    fn single_run_place(&self, shows: bool) -> RunPlace {
        let role = match (self.options.process, &self.input) {
            (Some(_), _) => RunKind::Process,
            (None, RunInput::Inherited) => RunKind::Program,
            (None, _) => RunKind::Repetition,
        };
        RunPlace { core: self.core(0), shows, role }
    }

    fn core(&self, worker: usize) -> Option<usize> {
        let cores = cores();
        let pinned = self.options.is_pinned && !cores.is_empty();
        pinned.then(|| cores[worker % cores.len()])
    }

    fn run_to_file(
        &self,
        collector: &dyn Collector,
        (sites, jumps): (&[u64], &[u64]),
        first: Option<Arc<RunLog>>,
        partial: &Path,
        place: RunPlace,
    ) -> Result<RunResult> {
        let mut writer = PartialWriter::create(partial, self.options.max_size)?;
        let begun = Instant::now();
        let outcome = self.run(collector, WatchedSites { sites, jumps, first }, &mut writer, place)?;
        let time = begun.elapsed();
        let hits = writer.symbols();
        writer.finish(&outcome.followed)?;
        Ok(RunResult { outcome, partial: partial.to_owned(), hits, time })
    }

    fn run(&self, collector: &dyn Collector, watched: WatchedSites, sink: &mut (dyn Sink + Send), place: RunPlace) -> Result<RunOutcome> {
        // Length: a run is described, started and waited for in one place.
        let RunPlace { core, shows, role } = place;
        // Dropping this removes the copy at the end of the run.
        let _copy;
        let mut parked = self.parked.lock().expect("no run panics").take();
        let registered = parked.as_mut().and_then(ParkedProcess::take_registration);
        let (target, outputs) = match (parked, self.options.process) {
            (Some(parked), _) => (RunTarget::Adopt(parked), Vec::new()),
            (None, Some(process)) => (RunTarget::Attach(process), Vec::new()),
            (None, None) => {
                let (mut program, outputs) = self.program()?;
                if let Some(folder) = self.fresh.as_ref().filter(|_| !shows) {
                    _copy = folder.provide_copy(&mut program)?;
                }
                (RunTarget::Start(Box::new(program)), outputs)
            }
        };
        let recipe = self.recipe(core);
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
            // Pinning and ptrace apply to a thread, so the collector gets a separate thread.
            let collected = scope.spawn(|| collector.collect(run, sink)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            active.mark_restored();
            let ended = self.wait_after_detach(collected, &active);
            drop(is_over);
            ended
        })
    }

    /// Waits for a program that the collector detached from, since this command started it and ends with it.
    fn wait_after_detach(&self, collected: Result<RunOutcome, CollectError>, active: &ActiveRun) -> Result<RunOutcome> {
        let program = || active.process().filter(|_| self.options.process.is_none() || active.is_program());
        let mut outcome = match collected {
            Ok(outcome) => outcome,
            Err(error) => {
                // Its exit status would add nothing to the error.
                program().into_iter().for_each(|process| _ = wait_child(process as i32));
                return Err(error.into());
            }
        };
        let followed = &mut outcome.followed;
        if !followed.unrestored.is_empty() {
            log::warn!("some changes that tracing made to the process could not be undone: {}", followed.unrestored.join(", "));
        }
        if followed.ending == FollowEnding::Detached
            && followed.status.is_none()
            && let Some(process) = program()
        {
            followed.status = Some(wait_child(process as i32).context("cannot wait for the traced program")?);
        }
        Ok(outcome)
    }

    /// Returns the program to start, and the read ends of its output pipes (none if it inherits the standard streams).
    fn program(&self) -> Result<(ProgramStart, Vec<(io::PipeReader, OutputStream)>)> {
        let words = &self.options.command;
        let mut call = Command::new(&self.executable.path);
        call.args(&words[1..]);
        let mut program = ProgramStart::new(command::launcher(), &call);
        program.arguments[0].clone_from(&words[0]);
        program.environment.clone_from(&self.environment);
        let input: OwnedFd = match &self.input {
            RunInput::Inherited => return Ok((program, Vec::new())),
            RunInput::File { file, at } => reopen_at(file, *at)?.into(),
            RunInput::Null => File::open("/dev/null")?.into(),
        };
        let (out_reader, out) = io::pipe()?;
        let (error_reader, error) = io::pipe()?;
        program.streams = [Some(input), Some(out.into()), Some(error.into())];
        Ok((program, vec![(out_reader, OutputStream::Out), (error_reader, OutputStream::Error)]))
    }
}

/// How a run is performed on this machine.
#[derive(Clone, Copy)]
struct RunPlace {
    core: Option<usize>,
    shows: bool,
    role: RunKind,
}

impl RunPlace {
    fn hidden(core: Option<usize>) -> Self {
        Self { core, shows: false, role: RunKind::Repetition }
    }
}

/// Finds the program's file as a shell would, or the image of the process.
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

/// Standard input for several runs. A file is used directly; any other input is first read to its end.
fn shared_input(temporary: &Path) -> Result<RunInput> {
    let own = io::stdin();
    let descriptor = own.as_raw_fd();
    let Ok(kind) = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).map(|m| m.file_type()) else { return Ok(RunInput::Null) };
    if kind.is_file() {
        // Start at the current offset.
        use std::io::Seek;
        let at = File::from(own.as_fd().try_clone_to_owned()?).stream_position().unwrap_or(0);
        return Ok(RunInput::File { file: reopen(descriptor)?, at });
    }
    let is_null =
        kind.is_char_device() && std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok_and(|p| p == Path::new("/dev/null"));
    if is_null {
        return Ok(RunInput::Null);
    }
    if own.is_terminal() {
        log::info!("all runs get the same input: type it now, and end it with Ctrl-D");
    }
    let file = trodden_trace::block_file::spool(&mut own.lock(), temporary).context("cannot store standard input for the runs")?;
    Ok(RunInput::File { file, at: 0 })
}

fn reopen_at(file: &File, at: u64) -> Result<File> {
    use std::io::Seek;
    let mut file = reopen(file.as_raw_fd())?;
    file.seek(io::SeekFrom::Start(at))?;
    Ok(file)
}

fn reopen(descriptor: RawFd) -> Result<File> {
    File::open(format!("/proc/self/fd/{descriptor}")).context("cannot reopen standard input")
}
