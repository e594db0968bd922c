//! Feeds mutated inputs to all readers of file formats. No input may make a reader panic, abort, use more than [`MAX_MEMORY_BYTES`], or
//! take longer than [`MAX_INPUT_TIME`].
//!
//! Each target, which is the reader of one format, runs in a worker process with limits. The worker writes every input to a file before
//! reading it, so that the input that caused a failure is known. The supervisor kills a worker if an input takes too long. Mutations are
//! not guided by coverage. They start from a corpus of inputs for each target: small valid inputs, and inputs that once caused a failure.

#![forbid(unsafe_code)]

mod mutate;
mod sealed;
mod targets;

use clap::Parser;
use mutate::Mutator;
use nix::sys::resource::{Resource, setrlimit};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use targets::{FUZZ_TARGETS, FuzzTarget};

const MAX_MEMORY_BYTES: u64 = 3 << 30;
/// Maximum time for reading one input. It is long enough for a machine that is busy with other work.
const MAX_INPUT_TIME: Duration = Duration::from_secs(20);
/// Maximum size of an input, in bytes.
const MAX_INPUT_BYTES: usize = 1 << 16;

/// Feed mutated inputs to readers.
#[derive(Debug, Parser)]
struct Cli {
    /// Target to fuzz (default: all).
    target: Option<String>,
    /// Time for each target, in seconds.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seed of the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run as the worker of a target, with this folder for its files.
    #[arg(long, hide = true)]
    work: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let chosen: Vec<&FuzzTarget> = FUZZ_TARGETS.iter().filter(|t| cli.target.as_ref().is_none_or(|name| name == t.name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = FUZZ_TARGETS.iter().map(|t| t.name).collect();
        eprintln!("trodden-fuzz: unknown target; choose from {}", names.join(", "));
        return ExitCode::from(2);
    }
    if let Some(folder) = &cli.work {
        return report_result(run_worker(chosen[0], folder, &cli));
    }
    supervise_all(&chosen, &cli)
}

/// Runs a worker for each target, as many at the same time as there are processors. After a worker has failed, no further one is started.
fn supervise_all(targets: &[&FuzzTarget], cli: &Cli) -> ExitCode {
    let next = AtomicUsize::new(0);
    let has_failed = AtomicBool::new(false);
    let run_targets = || {
        while !has_failed.load(Ordering::Relaxed)
            && let Some(target) = targets.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if report_result(supervise_worker(target, cli)) != ExitCode::SUCCESS {
                has_failed.store(true, Ordering::Relaxed);
            }
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..processors).for_each(|_| _ = scope.spawn(run_targets)));
    if has_failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn report_result(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trodden-fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read_corpus(target: &FuzzTarget) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot read the corpus {}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let inputs = paths.iter().map(fs::read).collect::<io::Result<Vec<_>>>()?;
    if inputs.is_empty() { Err(failed(io::Error::other("it is empty"))) } else { Ok(inputs) }
}

fn path_of_current_input(folder: &Path) -> PathBuf {
    folder.join("current")
}

/// Reads all inputs of the corpus unchanged, and then mutated inputs until the time is over.
fn run_worker(target: &FuzzTarget, folder: &Path, cli: &Cli) -> io::Result<()> {
    setrlimit(Resource::RLIMIT_AS, MAX_MEMORY_BYTES, MAX_MEMORY_BYTES)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let corpus = read_corpus(target)?;
    let started = Instant::now();
    let mut mutator = Mutator::new(cli.seed);
    let scratch = folder.join("scratch");
    fs::create_dir(&scratch)?;
    let mut count = 0u64;
    let mut read = |input: &[u8]| {
        count += 1;
        fs::write(path_of_current_input(folder), input)?;
        (target.read)(&scratch, input)
    };
    for input in &corpus {
        if !read(input)? {
            // A reader that rejects the unchanged input would also reject most mutations of it, so that hardly any code would be tested.
            return Err(io::Error::other("the reader rejects an input of the corpus. Replace it with a valid input in the current format"));
        }
    }
    while started.elapsed() < Duration::from_secs(cli.seconds) {
        read(&mutator.mutated_input(&corpus, MAX_INPUT_BYTES))?;
    }
    fs::write(folder.join("count"), count.to_string())
}

/// Runs the worker of a target. If the worker fails, saves the input that caused the failure and returns an error.
fn supervise_worker(target: &FuzzTarget, cli: &Cli) -> io::Result<()> {
    let folder = tempfile::Builder::new().prefix("trodden-fuzz-").tempdir()?;
    let errors = folder.path().join("errors");
    let mut worker = Command::new(std::env::current_exe()?)
        .args([target.name, "--seconds", &cli.seconds.to_string(), "--seed", &cli.seed.to_string(), "--work"])
        .arg(folder.path())
        .env("TRODDEN_QUIET", "1")
        .env("TRODDEN_CACHE", folder.path().join("store"))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&errors)?)
        .spawn()?;
    let ended = wait_for_worker(&mut worker, &path_of_current_input(folder.path()))?;
    if ended.is_some_and(|status| status.success()) {
        let count = fs::read_to_string(folder.path().join("count"))?;
        eprintln!("  {:<18} {count} inputs", target.name);
        return Ok(());
    }
    let input = fs::read(path_of_current_input(folder.path())).unwrap_or_default();
    let saved = std::env::temp_dir().join(format!("trodden-fuzz-{}-{}", target.name, std::process::id()));
    fs::write(&saved, input)?;
    let errors = fs::read(&errors)?;
    let errors = String::from_utf8_lossy(&errors[errors.len().saturating_sub(4000)..]).into_owned();
    let what =
        ended.map_or_else(|| format!("took longer than {} s", MAX_INPUT_TIME.as_secs()), |status| format!("ended the reader ({status})"));
    Err(io::Error::other(format!("{}: an input {what}. The input is saved in {}\n{errors}", target.name, saved.display())))
}

/// Waits until a worker ends. If an input takes too long, kills the worker and returns `None`. `current` is the file to which the worker
/// writes each input before reading it.
fn wait_for_worker(worker: &mut Child, current: &Path) -> io::Result<Option<ExitStatus>> {
    let started = SystemTime::now();
    loop {
        if let Some(status) = worker.try_wait()? {
            return Ok(Some(status));
        }
        let input_started = fs::metadata(current).and_then(|m| m.modified()).unwrap_or(started);
        if input_started.elapsed().is_ok_and(|time| time > MAX_INPUT_TIME) {
            worker.kill()?;
            worker.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
