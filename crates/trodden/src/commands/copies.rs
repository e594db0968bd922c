//! `trodden record --copies K`, `trodden repeatable -- COMMAND`, and the hidden `trodden copy`: `trodden_recording::copies` does it.

use crate::cli::{COPY_STRATEGIES, Copies, Division, HITS, Record, word_for};
use crate::context::context;
use crate::notes::{note, warn};
use crate::output;
use crate::surroundings::{folders, surroundings};
use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use trodden_analysis::copies::{CopyChoices, Costs};
use trodden_analysis::segments::asked;
use trodden_console::arguments::engines::EngineParameters;
use trodden_flow::part::Measure;
use trodden_launch::RESULT_VARIABLE;
use trodden_launch::alive::{ALIVE_VARIABLE, end_with_launcher};
use trodden_partition::PartitionStrategy;
use trodden_profile::copies::CopyMeasurements;
use trodden_recording::copies::{self, CopyContext, CopyInput, CopyJob, CopyOptions, SharedCounting};
use trodden_report::copies::{self as report, CostLine};

/// How long standard input may stay open without a word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Records a run by several copies; gives the program's exit status, or 1 if the copies were not the same execution.
///
/// # Errors
/// The copies cannot be made or run.
pub fn run(record: &Record) -> Result<ExitCode> {
    let job = CopyJob { what: record.what(), options: options(&record.copies)? };
    let context = CopyContext { driver: context(), around: &surroundings() };
    let done = copies::run(&job, context, &input)?;
    print(&done.output()?)?;
    done.bring_back()?;
    if let Some(measurements) = &done.measurements {
        show_costs(&record.copies, measurements, &done.differences)?;
    }
    Ok(done.exit_code())
}

/// How often a copy that did not finish is run again.
const RETRIES: u32 = 2;

/// How copies are made and run.
fn options(given: &Copies) -> Result<CopyOptions> {
    let choices = &given.choices;
    let others = [
        (given.weights.is_some(), "--weights"),
        (choices.no_first_run, "--no-first-run"),
        (choices.baseline, "--baseline"),
        (choices.costs.is_some(), "--costs"),
    ];
    let shared = match &given.divide {
        Division::Paths => SharedCounting::Paths,
        Division::Edges => SharedCounting::Edges,
        Division::Iterations => SharedCounting::Iterations,
        Division::Segments(wanted) => SharedCounting::Segments(asked(given.depth.unwrap_or(1) as usize, &[], wanted, &folders())?),
    };
    if let (SharedCounting::Iterations | SharedCounting::Segments(_), Some((_, option))) = (&shared, others.iter().find(|(is, _)| *is)) {
        bail!("{option} is for copies that share paths or edges: leave it or --divide out");
    }
    if given.depth.is_some() && !matches!(shared, SharedCounting::Segments(_)) {
        bail!("--depth is for --divide segments:SET: leave it out");
    }
    let parameters = EngineParameters {
        jobs: given.jobs.map(|jobs| jobs as usize),
        memory: choices.memory.map(|mib| mib << 20),
        retries: choices.retries.unwrap_or(RETRIES),
        shared: given.work.as_deref(),
    };
    Ok(CopyOptions {
        copies: given.copies.unwrap_or(1),
        shared,
        strategy: strategy(given),
        profitable: given.division.profitable.into(),
        max_probes: given.division.max_probes.map(|most| most as usize),
        hits: hits(given),
        weights: given.weights.clone(),
        no_first_run: choices.no_first_run,
        engine: given.engine.engine(&parameters)?,
        memory: parameters.memory,
        own_folders: given.own_folders,
        ignore_output: given.ignore_output,
        baseline: choices.baseline,
        count_hits: choices.count_hits,
        costs: choices.costs.clone(),
        work: given.work.clone(),
    })
}

fn strategy(given: &Copies) -> PartitionStrategy {
    given.division.strategy.unwrap_or(PartitionStrategy::Weighted)
}

fn hits(given: &Copies) -> Measure {
    given.choices.hits.unwrap_or(Measure::All)
}

/// What copies get as standard input: a regular file as it is, of anything else its content.
fn input() -> Result<CopyInput> {
    let mut input = io::stdin().lock();
    if input.is_terminal() {
        return Ok(CopyInput::Nothing);
    }
    if let Some(path) = regular_file(&input)? {
        return Ok(CopyInput::File(path));
    }
    let (done, open) = channel::<()>();
    std::thread::spawn(move || {
        if open.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            note("reading standard input to its end, which each copy is to get (`< FILE` gives them a file, `< /dev/null` nothing)");
        }
    });
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).context("cannot read standard input")?;
    drop(done);
    Ok(if bytes.is_empty() { CopyInput::Nothing } else { CopyInput::Bytes(bytes) })
}

/// The name of a regular file that is open from its beginning. One that has no name any more, or was read in part, is read as a pipe is.
fn regular_file(input: &impl AsFd) -> Result<Option<PathBuf>> {
    let mut file = File::from(input.as_fd().try_clone_to_owned().context("cannot read standard input")?);
    let open = file.metadata().context("cannot read standard input")?;
    if !open.is_file() || file.stream_position().context("cannot read standard input")? != 0 {
        return Ok(None);
    }
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).context("cannot find the file of standard input")?;
    let is_same = fs::metadata(&path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino()));
    Ok(is_same.then_some(path))
}

/// Prints what the first copy printed. A reader that leaves before its end is no error.
fn print([out, err]: &[Vec<u8>; 2]) -> Result<()> {
    let print = |text: &[u8], to: &mut dyn Write| match to.write_all(text).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    };
    print(out, &mut io::stdout().lock())?;
    Ok(print(err, &mut io::stderr().lock())?)
}

/// Says what copies cost, and writes it to a file if that is wanted: a page, or JSON.
fn show_costs(options: &Copies, measurements: &CopyMeasurements, differences: &[String]) -> Result<()> {
    let choices = CopyChoices {
        strategy: word_for(&COPY_STRATEGIES, &strategy(options)),
        engine: options.engine.name().to_owned(),
        measure: hits(options),
        hits: word_for(&HITS, &hits(options)),
    };
    let mut costs = Costs::new(measurements, &choices);
    costs.diverged = differences.to_vec();
    for line in report::lines(&costs) {
        match line {
            CostLine::Note(text) => note(text),
            CostLine::Warning(text) => warn(text),
        }
    }
    let Some(path) = &options.choices.costs else { return Ok(()) };
    let text = match path.extension().is_some_and(|e| e == "html") {
        true => report::page(&costs),
        false => serde_json::to_string_pretty(&costs)? + "\n",
    };
    output::write_file(path, text.as_bytes())
}

/// Runs a program several times as copies would run, and once more with memory at random addresses; says whether it did
/// the same each time: 0 if so, else 1.
///
/// # Errors
/// It cannot be run, or is not instrumented.
pub fn determinism(command: &[OsString], runs: u32, json: bool) -> Result<ExitCode> {
    let context = CopyContext { driver: context(), around: &surroundings() };
    let found = copies::determinism(command, runs, context, &input)?;
    let (differences, by_addresses) = (&found.differences, &found.by_addresses);
    let same = found.is_same();
    let mut out = output::text();
    if json {
        output::print_json(&serde_json::json!(
            {"schema_version": 1, "runs": runs, "same": same, "differences": differences, "by_addresses": by_addresses}))?;
    } else if same {
        writeln!(out, "ok       {runs} runs did the same, and one more with memory at other addresses: paths, output, exit status")?;
    } else {
        differences.iter().try_for_each(|d| writeln!(out, "differs  {d}"))?;
        by_addresses.iter().try_for_each(|d| writeln!(out, "differs  with memory at other addresses: {d}"))?;
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one copy of a job, and writes its result where the launcher wants it.
///
/// # Errors
/// It cannot be run, or counts are lost. How the program ends is no error, but a part of the result.
pub fn work(folder: &Path, copy: usize) -> Result<ExitCode> {
    let result =
        env::var_os(RESULT_VARIABLE).with_context(|| format!("{RESULT_VARIABLE} is not set: `trodden record --copies` runs this"))?;
    if let Some(launcher) = env::var_os(ALIVE_VARIABLE) {
        end_with_launcher(Path::new(&launcher));
    }
    copies::work(folder, copy, Path::new(&result), &surroundings())?;
    Ok(ExitCode::SUCCESS)
}
