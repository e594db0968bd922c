//! `trodden record -- COMMAND`: runs a program and makes a stored profile of what it counted.
//!
//! Counts are in files that the program maps while it runs (one per image, shared by all processes of the command), in
//! a folder made for the run; so they are there however the program ends. The command keeps its standard streams, gets
//! the signals that are sent to us, and its exit status becomes ours. A profile that cannot be made is reported, not
//! passed on as a status: the command's own is.

mod branches;
mod programs;

use crate::cli::{Bursts, Collect, Destination, Record};
use crate::commands::copies;
use crate::commands::sample::{self, Bursting, Files};
use crate::commands::stream;
use crate::driver::assets;
use crate::driver::cc::CARGO_FOLDER_VARIABLE;
use crate::driver::rust::ROLE_VARIABLE;
use crate::notes::{not_run, note, reasons, warn};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use trodden_profile::store::{RAW, check_suite_name};
use trodden_profile::{CollectProblem, Collected, Ending, Profile, Run, RunStore, Sampled, Sampling, collect, raw_files};
use trodden_report::words::plural;
use trodden_wire::OUTPUT_VARIABLE;

/// Exit status of a recording that lacks counts, of a command that ended well.
const INCOMPLETE: u8 = 2;
/// Variable by which trainings find the program that is trained.
pub const PROGRAM_VARIABLE: &str = "TRODDEN_PROGRAM";
/// Environment variable that names the test which a program's run is.
pub const TEST_VARIABLE: &str = "TRODDEN_TEST";

/// Records a run; gives the command's exit status.
///
/// # Errors
/// The command cannot be started, or there is no place for its counts.
pub fn run(record: &Record) -> Result<ExitCode> {
    // Before the command runs, which may take long.
    record.destination.suite.as_deref().map_or(Ok(()), check_suite_name)?;
    if let Some(kind) = record.branches.kind {
        return branches::run(record, kind);
    }
    if record.copies.copies.is_some() {
        return copies::run(record);
    }
    if let Some(suite) = record.destination.suite.as_deref().filter(|_| follows(record)) {
        return programs::run(record, suite);
    }
    if record.stream.whole_program || record.stream.last.is_some() {
        return stream::record(record);
    }
    let folder = run_folder(record)?;
    // Without a process number all processes of one image share a file.
    let mut counted = count(&record.command, folder.path(), "%m.raw", record.bursts)?;
    counted.run.suite = record.destination.suite.clone();
    counted.run.test = test();
    let status = counted.status;
    let kept = folder.check().and_then(|()| keep(record, counted, folder.path()));
    let is_whole = tell_kept(kept, folder);
    Ok(exit_code_with(status, is_whole))
}

/// Says what is wrong with a run's profile, and keeps raw files that may help; whether nothing is.
fn tell_kept(kept: Result<Lacking>, folder: RunFolder) -> bool {
    let lacking = match kept {
        Ok(Lacking { problems: 0, .. }) => return true,
        Ok(lacking) => lacking,
        Err(error) if !folder.path().exists() => {
            warn(format_args!("no profile of this run: {}", reasons(&error)));
            return false;
        }
        Err(error) => {
            let kept = folder.keep();
            warn(format_args!(
                "no profile of this run: {1}; the raw counts are in {0} (`trodden collect {0}`)",
                kept.display(),
                reasons(&error)
            ));
            return false;
        }
    };
    if lacking.all_marked {
        warn("the profile of this run lacks counts that are lost, and says so");
    } else {
        let kept = folder.keep();
        warn(format_args!(
            "the profile of this run is incomplete ({}, named above); the raw counts are in {1} (`trodden collect {1}`)",
            plural(lacking.problems as u128, "problem", "problems"),
            kept.display()
        ));
    }
    false
}

/// The exit status by which a command's end is passed on. One that says all is well is not, where counts are missing.
pub fn exit_code_with(status: ExitStatus, is_whole: bool) -> ExitCode {
    if status.success() && !is_whole { ExitCode::from(INCOMPLETE) } else { exit_code(status) }
}

/// A temporary folder of raw counts. It is locked as long as it is used, so that `trodden runs clean` leaves it alone.
pub struct RunFolder {
    folder: TempDir,
    /// Open: so its number is nobody else's, even if it is deleted and programs make one of its name.
    locked: fs::File,
}

impl RunFolder {
    /// Makes one.
    ///
    /// # Errors
    /// The folder that it is to be in cannot be written.
    pub fn within(base: &Path) -> Result<RunFolder> {
        let cannot = || format!("cannot write to {}", base.display());
        let folder = tempfile::Builder::new().prefix(RAW).tempdir_in(base).with_context(cannot)?;
        let locked = fs::File::open(folder.path()).with_context(cannot)?;
        // Where a file system has no locks, it may be taken for one that was left.
        let _ = locked.try_lock();
        Ok(RunFolder { folder, locked })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves it where it is, for the user.
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    /// The same, when it is no longer used.
    pub fn leave(&mut self) {
        self.folder.disable_cleanup(true);
    }

    /// Whether it is still there.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> Result<()> {
        let number = |there: fs::Metadata| (there.dev(), there.ino());
        ensure!(
            fs::metadata(self.path()).is_ok_and(|now| self.locked.metadata().is_ok_and(|made| number(now) == number(made))),
            "the folder of its raw counts, {}, was deleted while the command ran, and what was counted with it: record again, and leave \
                that folder alone",
            self.path().display()
        );
        Ok(())
    }
}

/// Whether each program is to be a run of its own.
fn follows(record: &Record) -> bool {
    !(record.together || record.sample || record.destination.no_store)
}

/// The test that the caller names.
fn test() -> Option<String> {
    std::env::var(TEST_VARIABLE).ok().filter(|name| !name.is_empty())
}

/// The exit status by which a command's end is passed on.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(match ending(status) {
        Ending::Exit(code) => code,
        Ending::Signal(signal) => 128 + signal,
    } as u8)
}

/// How a process ended.
pub fn ending(status: ExitStatus) -> Ending {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exit(code),
        (None, signal) => Ending::Signal(signal.unwrap_or(0)),
    }
}

/// Runs a program in a folder and gives its profile, for `trodden doctor`.
///
/// # Errors
/// It cannot be run or fails, or nothing was counted.
pub fn trial(program: &Path, folder: &Path) -> Result<Profile> {
    let bursts = Bursts { burst: Duration::from_millis(1), every: Duration::from_millis(10) };
    let counted = count(&[program.into()], folder, "%m.raw", bursts)?;
    anyhow::ensure!(counted.status.success(), "it ends with {}", counted.status);
    let collected = counted.collect(folder)?;
    match collected.problems.first() {
        Some(problem) => Err(anyhow::anyhow!("{problem}")),
        None => Ok(collected.profile),
    }
}

/// Runs commands of the shell one after the other, with the path of the program in a variable, and gives what they counted together.
///
/// # Errors
/// A command cannot be run or fails, or nothing was counted.
pub fn train(commands: &[String], program: &Path) -> Result<Profile> {
    let folder = tempfile::Builder::new().prefix("trodden-train-").tempdir().context("cannot make a temporary folder")?;
    let bursts = Bursts { burst: Duration::from_micros(100), every: Duration::from_millis(5) };
    let mut last = None;
    for line in commands {
        let words = ["sh".into(), "-c".into(), line.into()];
        let counted = count_with(&words, &[(PROGRAM_VARIABLE, program.as_os_str())], folder.path(), "%m.raw", bursts)?;
        anyhow::ensure!(counted.status.success(), "the training `{line}` ends with {}", counted.status);
        last = Some(counted);
    }
    anyhow::ensure!(!raw_files(folder.path())?.is_empty(), "the training counted nothing: does it run the program that is built here?");
    let collected = last.context("there is no training")?.collect(folder.path())?;
    match collected.problems.iter().find(|p| p.loses_counts()) {
        Some(problem) => Err(anyhow::anyhow!("{problem}")),
        None => Ok(collected.profile),
    }
}

/// A run that has ended.
struct Counted {
    run: Run,
    status: ExitStatus,
    /// If programs of the sample tier ran.
    sampling: Option<Sampled>,
}

impl Counted {
    /// Makes a profile of the raw files.
    fn collect(self, folder: &Path) -> Result<Collected> {
        let files = raw_files(folder)?;
        let mut collected = collect(files, self.run, assets::store().ok().as_ref());
        collected.profile.sampling = self.sampling.map(|s| Sampling::Bursts(s.finish(&collected.profile)));
        Ok(collected)
    }
}

/// The folder of the run's raw files, where its profile is to be: in the run store, or beside the output.
///
/// # Errors
/// It cannot be made.
pub fn run_folder(record: &Record) -> Result<RunFolder> {
    let base = match &record.destination.output {
        Some(output) if record.destination.no_store => {
            output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
        }
        _ => PathBuf::from(trodden_profile::store::FOLDER),
    };
    fs::create_dir_all(&base).with_context(|| {
        format!("cannot make the folder {}: run from a folder that can be written, or use --no-store -o FILE", base.display())
    })?;
    let base = fs::canonicalize(&base)?;
    if !record.destination.no_store {
        // What a recorder leaves that is killed is found by its store.
        RunStore::create(&std::env::current_dir()?)?;
    }
    RunFolder::within(&base)
}

/// So long a process may take to end.
const ENDING: Duration = Duration::from_millis(50);

/// Runs a command whose counts go to files of these names in a folder.
fn count(words: &[OsString], folder: &Path, names: &str, bursts: Bursts) -> Result<Counted> {
    count_with(words, &[], folder, names, bursts)
}

/// The same with further variables.
fn count_with(words: &[OsString], variables: &[(&str, &OsStr)], folder: &Path, names: &str, bursts: Bursts) -> Result<Counted> {
    let mut command = command(words, folder, names);
    command.envs(variables.iter().copied());
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Instant::now();
    let bursting = Bursting::start(Files::of_folder(folder), bursts)?;
    let status = wait_forwarding(&mut command);
    let sampling = bursting.stop();
    let status = status.map_err(|error| not_run(&words[0], error))?;
    let run = Run { duration_ns: clock.elapsed().as_nanos() as u64, ..circumstances(words, started, ending(status)) };
    warn_of_processes_that_go_on(words, folder);
    Ok(Counted { run, status, sampling })
}

/// Says so if a process that the command started still counts.
fn warn_of_processes_that_go_on(words: &[OsString], folder: &Path) {
    let is_used = || trodden_profile::raw_files(folder).unwrap_or_default().iter().any(|file| is_in_use(file));
    // One that is just ending is none.
    if is_used() && {
        std::thread::sleep(ENDING);
        is_used()
    } {
        note(format_args!(
            "warning: `{}` has ended, but a process that it started still runs: what it counts from now on is not in this profile (to \
                have it all, record a command that waits for it, or set TRODDEN_OUTPUT and use `trodden collect` at the end)",
            words[0].display()
        ));
    }
}

/// Whether a process that runs has a region of a raw file: it holds a lock then.
fn is_in_use(file: &Path) -> bool {
    let Ok(file) = fs::File::open(file) else { return false };
    let (kind, whence) = (nix::libc::F_WRLCK as nix::libc::c_short, nix::libc::SEEK_SET as nix::libc::c_short);
    let mut lock = nix::libc::flock { l_type: kind, l_whence: whence, l_start: trodden_wire::region_lock_byte(0), l_len: 0, l_pid: 0 };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && lock.l_type == kind
}

/// A command whose counts go to files of these names in a folder.
pub fn command(words: &[OsString], folder: &Path, names: &str) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env(OUTPUT_VARIABLE, pattern(folder, names));
    if std::env::var_os(ROLE_VARIABLE).is_some() {
        // `cargo trodden run` calls us: what it told rustc is not the program's business.
        [ROLE_VARIABLE, CARGO_FOLDER_VARIABLE, "RUSTC_WRAPPER"].into_iter().for_each(|name| _ = command.env_remove(name));
    }
    command
}

/// What is known of a run of a command, but for its duration.
pub fn circumstances(words: &[OsString], started: Duration, ending: Ending) -> Run {
    Run {
        command: words.iter().map(|w| w.to_string_lossy().into_owned()).collect(),
        directory: std::env::current_dir().unwrap_or_default().display().to_string(),
        host: host(),
        suite: None,
        started_ns: started.as_nanos() as u64,
        duration_ns: 0,
        ending: Some(ending),
        runs: 1,
        recorder: env!("CARGO_PKG_VERSION").into(),
        test: None,
        diverged: 0,
        lost: 0,
        interrupted: 0,
    }
}

/// Name of this computer.
pub fn host() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

/// The pattern of raw files in a folder.
pub fn pattern(folder: &Path, names: &str) -> OsString {
    let mut bytes = Vec::new();
    for byte in folder.as_os_str().as_bytes() {
        bytes.push(*byte);
        if *byte == b'%' {
            bytes.push(b'%');
        }
    }
    bytes.push(b'/');
    bytes.extend(names.as_bytes());
    OsString::from_vec(bytes)
}

/// Runs a command to its end and hands on the signals that somebody sends to us meanwhile.
pub fn wait_forwarding(command: &mut Command) -> io::Result<ExitStatus> {
    forwarding_signals(|begun| {
        let mut child: Child = command.spawn()?;
        begun.tell(child.id());
        child.wait()
    })?
}

/// Takes the number of the process that gets our signals.
pub struct Begun(Sender<u32>);

impl Begun {
    /// It runs.
    pub fn tell(&self, process: u32) {
        // The thread that listens ends after the process.
        let _ = self.0.send(process);
    }
}

/// Does something that begins a process, and meanwhile hands on to that process the signals that somebody sends to us.
pub fn forwarding_signals<T>(work: impl FnOnce(Begun) -> T) -> io::Result<T> {
    let ignored = ignored_signals();
    let forwarded = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2].into_iter().filter(|s| !ignored.contains(s));
    let mut signals = SignalsInfo::<WithOrigin>::new(forwarded)?;
    let handle = signals.handle();
    let (sender, process) = channel();
    let forwarder = std::thread::spawn(move || {
        let Ok(process) = process.recv() else { return };
        let process = Pid::from_raw(process as i32);
        for origin in signals.forever() {
            // What the terminal sends (no process did) goes to the whole group, so the command has it already.
            if origin.process.is_some()
                && let Ok(signal) = Signal::try_from(origin.signal)
            {
                // It may just have ended.
                let _ = kill(process, signal);
            }
        }
    });
    let result = work(Begun(sender));
    handle.close();
    let _ = forwarder.join();
    Ok(result)
}

/// Signals that the caller wants ignored (`nohup`): a handler here would have the command not ignore them.
fn ignored_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    (1..=64).filter(|signal| mask & (1 << (signal - 1)) != 0).collect()
}

/// Makes the profile and puts it where it is wanted.
fn keep(record: &Record, counted: Counted, folder: &Path) -> Result<Lacking> {
    if raw_files(folder)?.is_empty() {
        nothing_counted(&record.command[0]);
        return Ok(Lacking::default());
    }
    match (&counted.sampling, record.sample) {
        (Some(sampling), _) => sample::tell(sampling),
        (None, true) => warn("nothing was sampled: no program that ran was built with --sample, so all was counted in full"),
        (None, false) => {}
    }
    deliver(&counted.collect(folder)?, &record.destination)
}

/// Makes a profile of raw files that a program wrote without `trodden record`.
///
/// # Errors
/// A file cannot be found, nothing can be decoded, or some counts are lost.
pub fn collect_files(job: &Collect) -> Result<ExitCode> {
    let mut files = Vec::new();
    for path in &job.files {
        match path.is_dir() {
            true => files.extend(raw_files(path)?),
            false => files.push(path.clone()),
        }
    }
    anyhow::ensure!(!files.is_empty(), "there are no raw files (their names end in .raw) in the folders given");
    let run = Run { suite: job.destination.suite.clone(), runs: 1, recorder: env!("CARGO_PKG_VERSION").into(), ..Run::default() };
    deliver(&collect(files, run, assets::store().ok().as_ref()), &job.destination)?.check()?;
    Ok(ExitCode::SUCCESS)
}

/// What a profile lacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lacking {
    /// Problems by which counts are missing or doubtful.
    pub problems: usize,
    /// The profile itself says so of each of them, and raw files have no more.
    pub all_marked: bool,
    /// The run's number, if it is in the run store.
    pub run: Option<u64>,
}

impl Lacking {
    /// Whether it lacks nothing.
    ///
    /// # Errors
    /// It does.
    pub fn check(self) -> Result<()> {
        ensure!(self.problems == 0, "the profile is incomplete: {}, named above", plural(self.problems as u128, "problem", "problems"));
        Ok(())
    }
}

/// Puts what was collected where it is wanted.
///
/// # Errors
/// Nothing could be decoded, or the place cannot be written.
pub fn deliver(collected: &Collected, destination: &Destination) -> Result<Lacking> {
    let mut losses = collected.problems.iter().filter(|p| p.loses_counts());
    let mut lacking = Lacking { run: None, problems: losses.clone().count(), all_marked: losses.all(CollectProblem::is_marked) };
    collected.problems.iter().for_each(warn);
    anyhow::ensure!(!collected.profile.images.is_empty(), "none of its images can be decoded");
    if let Some(output) = &destination.output {
        collected.profile.write(output)?;
        note(format_args!("the profile is in {}", output.display()));
    }
    if !destination.no_store {
        let entry = RunStore::create(&std::env::current_dir()?)?.add_run(&collected.profile)?;
        note(format_args!("recorded as run {}; `trodden report` shows it", entry.number));
        lacking.run = Some(entry.number);
    }
    Ok(lacking)
}

/// Says why there is no profile.
pub fn nothing_counted(program: &OsStr) {
    warn(format_args!(
        "nothing was counted: unless a program said above why it could not, nothing that `{}` is or runs was built with trodden: build \
            it with `trodden build -- ...` or `cargo trodden build`; `trodden info PROGRAM` tells whether a program was",
        program.display()
    ));
}
