//! The runs of a collection: a first one without witnesses, whose input, answers and output are recorded; then one for
//! each profile, several at a time, each on a core of its own.
//!
//! Invariant: every run of several gets the same arguments, environment, folder and input, and pipes for its output, so that all runs see
//! the same. A single one has the streams of the command itself.
// Length: all ways of running one program once.

use super::options::{RecordingHost, RunOptions};
use crate::libraries::libraries;
use crate::live::{LiveHits, live};
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
use trodden_trace::command::{self, ActiveRun, RunRole};
use trodden_trace::{
    CollectError, Collector, CollectorKind, Executable, FollowEnding, FreshFolder, Library, NOWHERE, OutputStream, PartialWriter,
    ProgramStart, PtraceBreakpoints, RepeatRecipe, RunLog, RunOutcome, RunTarget, Sink, SinkFlow, ThreadNumber, TraceRun, cores, drain,
    wait_child,
};

/// Standard input, given to each run from its beginning.
enum Input {
    /// That of the command itself, of a single run; the run has the command's output, too.
    Inherited,
    /// A file, with the place that it is to be read from.
    File {
        /// The file.
        file: File,
        /// The place.
        at: u64,
    },
    /// Nothing.
    Null,
}

/// A program that is run several times.
pub struct RepeatedProgram<'a> {
    /// What all runs have in common.
    pub options: &'a RunOptions,
    /// Gets what a run writes that is its user's.
    pass_on: &'a (dyn Fn(OutputStream, &[u8]) + Sync),
    /// Its image.
    pub executable: Executable,
    /// Shared libraries that are traced, too.
    pub libraries: Vec<Library>,
    /// All blocks of the files, ascending.
    pub blocks: Vec<Range<u64>>,
    /// Where those of them start that code may enter in their middle.
    pub guarded: HashSet<u64>,
    input: Input,
    /// For partial traces.
    folder: PathBuf,
    /// The program's environment, where it is not this one's.
    environment: Option<Vec<(OsString, OsString)>>,
    fresh: Option<FreshFolder>,
}

/// What a run gave.
pub struct RunResult {
    /// How it went.
    pub outcome: RunOutcome,
    /// Its partial trace.
    pub partial: PathBuf,
    /// Witnesses recorded.
    pub hits: u64,
    /// How long it took.
    pub time: Duration,
}

/// What a first run gave.
pub struct FirstRun {
    /// How it went.
    pub outcome: RunOutcome,
    /// Where indirect jumps led: jump and target.
    pub targets: BTreeSet<(u64, u64)>,
    /// Calls that unwind, as far as they were executed.
    pub throws: BTreeSet<u64>,
    /// Where unwinding led: landing pads, and places where `setjmp` returned again.
    pub landed: BTreeSet<u64>,
    /// Functions with calls of what returns twice that were entered once.
    pub entered_once: BTreeSet<u64>,
}

/// What a run watches, and which one it repeats.
struct Watched<'a> {
    sites: &'a [u64],
    jumps: &'a [u64],
    first: Option<Arc<RunLog>>,
}

/// Targets of jumps, each once.
struct Targets<'a> {
    sites: &'a [u64],
    jumps: &'a [u64],
    /// The jump that each thread is at.
    last: HashMap<ThreadNumber, u64>,
    seen: BTreeSet<(u64, u64)>,
    unwinding: &'a Unwinding,
    /// The site of unwinding that each thread came by last.
    previous: HashMap<ThreadNumber, u64>,
    throws: BTreeSet<u64>,
    landed: BTreeSet<u64>,
    /// How often functions with calls of what returns twice were entered.
    entered: HashMap<u64, u64>,
}

impl Targets<'_> {
    /// Control is behind a call of `setjmp` that it has not just come from: `longjmp` led there.
    fn note_unwinding(&mut self, thread: ThreadNumber, site: u64) {
        if self.unwinding.twice.values().any(|(_, entry)| *entry == site) {
            *self.entered.entry(site).or_default() += 1;
        }
        let previous = self.previous.insert(thread, site);
        let again = self.unwinding.twice.get(&site).is_some_and(|(call, _)| previous != Some(*call));
        if again || self.unwinding.pads.contains(&site) {
            self.landed.insert(site);
        }
        if self.unwinding.throws.contains(&site) {
            self.throws.insert(site);
        }
    }
}

impl Sink for Targets<'_> {
    fn record(&mut self, thread: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        if let Some(jump) = self.last.remove(&thread) {
            if what != NOWHERE {
                self.seen.insert((jump, what));
            }
            return Ok(SinkFlow::GoOn);
        }
        let site = self.sites[what as usize];
        if self.jumps.binary_search(&site).is_ok() {
            self.last.insert(thread, site);
        } else {
            self.note_unwinding(thread, site);
        }
        Ok(SinkFlow::GoOn)
    }
}

/// How often each site was executed.
struct Counts(Vec<u64>);

impl Sink for Counts {
    fn record(&mut self, _: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
        self.0[what as usize] += 1;
        Ok(SinkFlow::GoOn)
    }
}

impl<'a> RepeatedProgram<'a> {
    /// Finds the program and keeps the input. Partial traces go to `folder`. `is_single`: there is one run.
    ///
    /// # Errors
    /// There is no such program, it cannot be traced, or the input cannot be read.
    pub fn new(options: &'a RunOptions, host: &'a RecordingHost, is_single: bool, folder: PathBuf) -> Result<Self> {
        let input = if is_single { Input::Inherited } else { input(&host.temporary)? };
        let fresh = host.fresh_folder.as_ref().map(|fresh| FreshFolder::keep(fresh.clone(), host.temporary.clone())).transpose()?;
        let subject = Self::with(options, host.pass_on, program(options, host)?, input)?;
        // Given, as on other machines, and not inherited: a program sees the order of its variables, and that is another one then.
        let environment = host.machines.as_ref().map(|others| others.environment.clone());
        Ok(Self { folder, fresh, environment, ..subject })
    }

    fn with(options: &'a RunOptions, pass_on: &'a (dyn Fn(OutputStream, &[u8]) + Sync), program: PathBuf, input: Input) -> Result<Self> {
        let executable = Executable::read(&program)?;
        let has_others = matches!(options.collector, Some(CollectorKind::Hardware | CollectorKind::Uprobes));
        ensure!(
            options.libraries.is_empty() || !has_others,
            "--library works with the collectors trampolines, compiled, ptrace and single-step: take one of them"
        );
        let libraries = libraries(&options.libraries, &program, options.process)?;
        let (blocks, guarded, folder) = (Vec::new(), HashSet::new(), PathBuf::new());
        Ok(Self { options, pass_on, executable, libraries, blocks, guarded, input, folder, environment: None, fresh: None })
    }

    /// The subject of another machine's collection.
    ///
    /// # Errors
    /// There is no such program here, or it cannot be traced, or the input cannot be read.
    pub fn from_worker(
        options: &'a RunOptions,
        program: PathBuf,
        environment: Vec<(OsString, OsString)>,
        input: Option<&Path>,
    ) -> Result<Self> {
        let input = match input {
            Some(path) => Input::File { file: File::open(path).context("the runs' input cannot be read")?, at: 0 },
            None => Input::Null,
        };
        // Output of runs on other machines is dropped.
        let subject = Self::with(options, &|_, _| {}, program, input)?;
        Ok(Self { environment: Some(environment), ..subject })
    }

    /// A run on another machine, to a partial trace.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn worker_run(&self, collector: &dyn Collector, sites: &[u64], first: &Arc<RunLog>, partial: &Path) -> Result<RunResult> {
        self.run_to_file(collector, (sites, &[]), Some(first.clone()), partial, RunPlace::hidden(self.core(0)))
    }

    /// Whether the vDSO is hidden from the program.
    pub fn hides_vdso(&self) -> bool {
        self.options.recipe.time && self.options.process.is_none()
    }

    /// Where partial traces are.
    pub fn folder_of_partials(&self) -> &Path {
        &self.folder
    }

    /// Copies standard input to a file; nothing if there is none.
    ///
    /// # Errors
    /// It cannot be read, or the file not written.
    pub fn copy_input(&self, to: &Path) -> Result<Option<PathBuf>> {
        let Input::File { file, at } = &self.input else { return Ok(None) };
        io::copy(&mut again(file, *at)?, &mut private::create_file(to)?).context("standard input cannot be copied")?;
        Ok(Some(to.to_owned()))
    }

    /// The first run: it watches where some indirect jumps lead, and what unwinding leads where. Its output is the user's (if it is to be
    /// shown).
    ///
    /// # Errors
    /// It cannot be run.
    pub fn first_run(&self, jumps: &[u64], unwinding: &Unwinding, first: Option<Arc<RunLog>>, shows: bool) -> Result<FirstRun> {
        let others = unwinding.sites().into_iter().filter(|other| jumps.binary_search(other).is_err());
        let sites: Vec<u64> = jumps.iter().copied().chain(others).collect();
        let (throws, landed) = (BTreeSet::new(), BTreeSet::new());
        let (last, previous, entered) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut targets = Targets { sites: &sites, jumps, last, seen: BTreeSet::new(), unwinding, previous, throws, landed, entered };
        let watched = Watched { sites: &sites, jumps, first };
        let place = RunPlace { core: self.core(0), shows, role: RunRole::Repetition };
        let outcome = self.run(&PtraceBreakpoints, watched, &mut targets, place)?;
        let Targets { seen, throws, landed, entered, .. } = targets;
        let entered_once = entered.into_iter().filter(|(_, times)| *times == 1).map(|(entry, _)| entry).collect();
        Ok(FirstRun { outcome, targets: seen, throws, landed, entered_once })
    }

    /// A run that counts how often some sites are executed; its output is not shown.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn counting_run(&self, collector: &dyn Collector, sites: &[u64], first: Option<Arc<RunLog>>) -> Result<Vec<u64>> {
        let mut counts = Counts(vec![0; sites.len()]);
        let watched = Watched { sites, jumps: &[], first };
        self.run(collector, watched, &mut counts, RunPlace::hidden(self.core(0)))?;
        Ok(counts.0)
    }

    /// One run for each profile: those of a machine one after the other, `jobs` machines at a time (by default as many as there are cores).
    ///
    /// # Errors
    /// One cannot be run.
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

    /// A single run that watches all sites, and where some jumps lead; its output is the user's if it is to be shown.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn single_run(&self, collector: &dyn Collector, sites: &[u64], jumps: &[u64], shows: bool) -> Result<RunResult> {
        self.run_to_file(collector, (sites, jumps), None, &self.partial_of_one(), self.place_of_one(shows))
    }

    /// The same, while `replay` takes the hits.
    ///
    /// # Errors
    /// It cannot be run, or `replay` fails.
    pub fn live_run<T: Send>(
        &self,
        collector: &dyn Collector,
        (sites, jumps): (&[u64], &[u64]),
        shows: bool,
        replay: impl FnOnce(LiveHits) -> Result<T> + Send,
    ) -> Result<(RunResult, T)> {
        let partial = self.partial_of_one();
        let (mut sink, hits) = live(PartialWriter::create(&partial, self.options.max_size)?);
        std::thread::scope(|scope| {
            let replaying = scope.spawn(|| replay(hits));
            let begun = Instant::now();
            let outcome = self.run(collector, Watched { sites, jumps, first: None }, &mut sink, self.place_of_one(shows));
            let time = begun.elapsed();
            let stored = sink.finish();
            let replayed = replaying.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (outcome, stored, replayed) {
                // What cannot be written ends the run.
                (_, _, Err(error)) | (Err(error), _, Ok(_)) => Err(error),
                (Ok(_), Err(error), Ok(_)) => Err(error.into()),
                (Ok(outcome), Ok(writer), Ok(replayed)) => {
                    let hits = writer.symbols();
                    writer.finish(&outcome.followed)?;
                    Ok((RunResult { outcome, partial, hits, time }, replayed))
                }
            }
        })
    }

    fn partial_of_one(&self) -> PathBuf {
        self.folder.join("run-1.partial")
    }

    fn place_of_one(&self, shows: bool) -> RunPlace {
        let role = match (self.options.process, &self.input) {
            (Some(_), _) => RunRole::Process,
            (None, Input::Inherited) => RunRole::Program,
            (None, _) => RunRole::Repetition,
        };
        RunPlace { core: self.core(0), shows, role }
    }

    fn core(&self, worker: usize) -> Option<usize> {
        let cores = cores();
        let pinned = self.options.is_pinned && !cores.is_empty();
        pinned.then(|| cores[worker % cores.len()])
    }

    /// A run whose hits go to a partial trace; on a core, its output shown or not.
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
        let outcome = self.run(collector, Watched { sites, jumps, first }, &mut writer, place)?;
        let time = begun.elapsed();
        let hits = writer.symbols();
        writer.finish(&outcome.followed)?;
        Ok(RunResult { outcome, partial: partial.to_owned(), hits, time })
    }

    fn run(&self, collector: &dyn Collector, watched: Watched, sink: &mut (dyn Sink + Send), place: RunPlace) -> Result<RunOutcome> {
        let RunPlace { core, shows, role } = place;
        // Removed when the run is over.
        let _copy;
        let (target, outputs) = match self.options.process {
            Some(process) => (RunTarget::Attach(process), Vec::new()),
            None => {
                let (mut program, outputs) = self.program()?;
                if let Some(folder) = self.fresh.as_ref().filter(|_| !shows) {
                    _copy = folder.lay_under(&mut program)?;
                }
                (RunTarget::Start(Box::new(program)), outputs)
            }
        };
        let recipe = RepeatRecipe { core, ..self.options.recipe };
        let Watched { sites, jumps, first } = watched;
        let (stop, limit) = (command::stop(), self.options.limit);
        let (executable, blocks, guarded) = (&self.executable, self.blocks.as_slice(), &self.guarded);
        let libraries = &self.libraries;
        let (active, begun) = ActiveRun::begin(role, true, !outputs.is_empty());
        let begun = Some(begun);
        let note = |text: &str| log::info!("{text}");
        let run = TraceRun { target, executable, libraries, sites, jumps, blocks, guarded, recipe, first, stop, limit, begun, note };
        let (over, is_over) = io::pipe()?;
        std::thread::scope(|scope| {
            for (pipe, which) in outputs {
                let over = &over;
                scope.spawn(move || {
                    drain(pipe, over, |bytes| {
                        if shows {
                            (self.pass_on)(which, bytes)
                        }
                    })
                });
            }
            // Who pins and follows is a thread of its own.
            let collected = scope.spawn(|| collector.collect(run, sink)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            active.let_go();
            let ended = self.end(collected, &active);
            drop(is_over);
            ended
        })
    }

    /// A program that was let go runs on: it is the command's, which ends with it.
    fn end(&self, collected: Result<RunOutcome, CollectError>, active: &ActiveRun) -> Result<RunOutcome> {
        let program = || active.process().filter(|_| self.options.process.is_none());
        let mut outcome = match collected {
            Ok(outcome) => outcome,
            Err(error) => {
                // Its end says nothing that the error does not.
                program().into_iter().for_each(|process| _ = wait_child(process as i32));
                return Err(error.into());
            }
        };
        let followed = &mut outcome.followed;
        if !followed.unrestored.is_empty() {
            log::warn!("changes to the process could not be undone: {}", followed.unrestored.join(", "));
        }
        if followed.ending == FollowEnding::Detached
            && followed.status.is_none()
            && let Some(process) = program()
        {
            followed.status = Some(wait_child(process as i32).context("the program that was traced cannot be waited for")?);
        }
        Ok(outcome)
    }

    /// The program, with the read ends of its output.
    fn program(&self) -> Result<(ProgramStart, Vec<(io::PipeReader, OutputStream)>)> {
        let words = &self.options.command;
        let mut call = Command::new(&self.executable.path);
        call.args(&words[1..]);
        let mut program = ProgramStart::new(command::launcher(), &call);
        program.arguments[0].clone_from(&words[0]);
        program.environment.clone_from(&self.environment);
        let input: OwnedFd = match &self.input {
            Input::Inherited => return Ok((program, Vec::new())),
            Input::File { file, at } => again(file, *at)?.into(),
            Input::Null => File::open("/dev/null")?.into(),
        };
        let (out_reader, out) = io::pipe()?;
        let (error_reader, error) = io::pipe()?;
        program.streams = [Some(input), Some(out.into()), Some(error.into())];
        Ok((program, vec![(out_reader, OutputStream::Out), (error_reader, OutputStream::Error)]))
    }
}

/// Where a run executes, and what it is to the user.
#[derive(Clone, Copy)]
struct RunPlace {
    core: Option<usize>,
    /// Its output is the user's.
    shows: bool,
    role: RunRole,
}

impl RunPlace {
    fn hidden(core: Option<usize>) -> Self {
        Self { core, shows: false, role: RunRole::Repetition }
    }
}

/// Where the program is: as a shell would find it, or the image of the process.
fn program(options: &RunOptions, host: &RecordingHost) -> Result<PathBuf> {
    if let Some(process) = options.process {
        let link = format!("/proc/{process}/exe");
        return std::fs::read_link(&link).with_context(|| match std::fs::read(format!("/proc/{process}/cmdline")).as_deref() {
            Ok([]) => format!("process {process} has no program: it has ended, or its first thread has, or it is the kernel's"),
            _ => format!("there is no process {process}, or it is not yours"),
        });
    }
    let found = host.program.clone().filter(|path| path.exists());
    found.with_context(|| format!("there is no program `{}`: give its path, or install it", options.command[0].to_string_lossy()))
}

/// Standard input: a file as it is, everything else read to its end first.
fn input(temporary: &Path) -> Result<Input> {
    let own = io::stdin();
    let descriptor = own.as_raw_fd();
    let Ok(kind) = std::fs::metadata(format!("/proc/self/fd/{descriptor}")).map(|m| m.file_type()) else { return Ok(Input::Null) };
    if kind.is_file() {
        // From where it has been read up to.
        use std::io::Seek;
        let at = File::from(own.as_fd().try_clone_to_owned()?).stream_position().unwrap_or(0);
        return Ok(Input::File { file: reopened(descriptor)?, at });
    }
    let is_null =
        kind.is_char_device() && std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok_and(|p| p == Path::new("/dev/null"));
    if is_null {
        return Ok(Input::Null);
    }
    if own.is_terminal() {
        log::info!("the program gets the same input in each run: type it now, and end it with Ctrl-D");
    }
    let file = trodden_trace::block_file::spool(&mut own.lock(), temporary).context("standard input cannot be kept")?;
    Ok(Input::File { file, at: 0 })
}

/// A file opened once more, at the same place.
fn again(file: &File, at: u64) -> Result<File> {
    use std::io::Seek;
    let mut file = reopened(file.as_raw_fd())?;
    file.seek(io::SeekFrom::Start(at))?;
    Ok(file)
}

fn reopened(descriptor: RawFd) -> Result<File> {
    File::open(format!("/proc/self/fd/{descriptor}")).context("standard input cannot be opened again")
}
