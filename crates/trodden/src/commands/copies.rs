//! `trodden record --copies K`, `trodden repeatable`, and the hidden `trodden copy`. `trodden_recording::copies` does the work.

use crate::cli::{COPY_STRATEGY_CHOICES, CopyDivision, HIT_MEASURE_CHOICES, RecordArguments, RecordCopiesArguments, word_of_choice};
use crate::context::driver_context;
use crate::notes::{note, warn};
use crate::output;
use crate::surroundings::{folders, recording_context};
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
use trodden_analysis::copies::{CopiesCosts, RequestedCopies};
use trodden_analysis::iterations::iteration_set_of_run;
use trodden_analysis::segments::requested_segments;
use trodden_console::arguments::engines::EngineParameters;
use trodden_flow::part::Measure;
use trodden_launch::RESULT_VARIABLE;
use trodden_launch::alive::{LAUNCHER_ALIVE_VARIABLE, end_with_launcher};
use trodden_partition::PartitionStrategy;
use trodden_profile::copies::CopyMeasurements;
use trodden_recording::copies::{self, CopyContext, CopyInput, CopyJob, CopyOptions, DividedCounts};
use trodden_report::copies::{self as report, CostReportLine};

/// How long to wait for the end of standard input before printing a note.
const STDIN_NOTE_DELAY: Duration = Duration::from_secs(1);

/// Records a run with several copies. Returns the program's exit status, or 1 if the copies behaved differently.
pub fn run(record: &RecordArguments) -> Result<ExitCode> {
    let job = CopyJob { what: record.to_recorded_command(), options: build_copy_options(&record.copies)? };
    let context = CopyContext { driver: driver_context(), recording: &recording_context() };
    let done = copies::run(&job, context, &read_standard_input)?;
    print_output(&done.output()?)?;
    done.copy_changes_back()?;
    if let Some(measurements) = &done.measurements {
        report_copy_costs(&record.copies, measurements, &done.differences)?;
    }
    Ok(done.exit_code())
}

/// Default number of times that a copy without a result is run again.
const DEFAULT_RETRIES: u32 = 2;

/// Converts the command's options to those of `trodden_recording`. Fails if an option does not apply to the value of `--divide`, or the
/// engine is not available.
fn build_copy_options(given: &RecordCopiesArguments) -> Result<CopyOptions> {
    let choices = &given.choices;
    let shared = choose_divided_counts(given)?;
    let parameters = EngineParameters {
        jobs: given.jobs.map(|jobs| jobs as usize),
        memory: choices.memory.map(|mib| mib << 20),
        retries: choices.retries.unwrap_or(DEFAULT_RETRIES),
        shared: given.work.as_deref(),
    };
    Ok(CopyOptions {
        copies: given.copies.unwrap_or(1),
        shared,
        strategy: partition_strategy(given),
        profitable: given.division.profitable.into(),
        max_probes: given.division.max_probes.map(|max| max as usize),
        hits: hit_measure_to_minimise(given),
        weights: given.weights.clone(),
        no_first_run: choices.no_first_run,
        engine: given.engine.create_engine(&parameters)?,
        memory: parameters.memory,
        private_folders: given.own_folders,
        ignore_output: given.ignore_output,
        baseline: choices.baseline,
        count_hits: choices.count_hits,
        costs: choices.costs.clone(),
        work: given.work.clone(),
    })
}

/// Returns what `--divide` distributes among the copies. Fails if an option does not apply to it, or if the run that guides the division
/// cannot be read.
fn choose_divided_counts(given: &RecordCopiesArguments) -> Result<DividedCounts> {
    let choices = &given.choices;
    let depth = choices.segment_depth;
    let path_and_edge_options = [
        (given.weights.is_some(), "--weights"),
        (choices.no_first_run, "--no-first-run"),
        (choices.baseline, "--baseline"),
        (choices.costs.is_some(), "--costs"),
    ];
    let shared = match &given.divide {
        CopyDivision::Paths => DividedCounts::Paths,
        CopyDivision::Edges => DividedCounts::Edges,
        CopyDivision::Iterations => match &choices.iterations {
            Some(wanted) => DividedCounts::IterationPaths(iteration_set_of_run(wanted.iterations, &wanted.run, &folders())?),
            None => DividedCounts::Iterations,
        },
        CopyDivision::Segments(set) => DividedCounts::Segments(requested_segments(depth.unwrap_or(1) as usize, &[], set, &folders())?),
    };
    let is_plain = matches!(shared, DividedCounts::Paths | DividedCounts::Edges);
    if let (false, Some((_, option))) = (is_plain, path_and_edge_options.iter().find(|(is_given, _)| *is_given)) {
        bail!("{option} applies only if copies of the program divide paths or edges. Omit {option} or --divide");
    }
    if depth.is_some() && !matches!(shared, DividedCounts::Segments(_)) {
        bail!("--segment-depth applies only to --divide segments:SET. Omit --segment-depth");
    }
    if choices.iterations.is_some() && given.divide != CopyDivision::Iterations {
        bail!("--iterations applies only to --divide iterations. Omit --iterations");
    }
    Ok(shared)
}

fn partition_strategy(given: &RecordCopiesArguments) -> PartitionStrategy {
    given.division.strategy.unwrap_or(PartitionStrategy::Weighted)
}

fn hit_measure_to_minimise(given: &RecordCopiesArguments) -> Measure {
    given.choices.hits.unwrap_or(Measure::All)
}

/// Returns the standard input that each copy gets: the path of a regular file, or the content of anything else (a pipe, for example).
fn read_standard_input() -> Result<CopyInput> {
    let mut input = io::stdin().lock();
    if input.is_terminal() {
        return Ok(CopyInput::Nothing);
    }
    if let Some(path) = regular_file_path(&input)? {
        return Ok(CopyInput::File(path));
    }
    let (done, open) = channel::<()>();
    std::thread::spawn(move || {
        if open.recv_timeout(STDIN_NOTE_DELAY) == Err(RecvTimeoutError::Timeout) {
            note(
                "waiting for the end of standard input, which is passed to each copy of the program. End it with Ctrl-D, or redirect it \
                 with `< FILE` or `< /dev/null`",
            );
        }
    });
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).context("cannot read standard input")?;
    drop(done);
    Ok(if bytes.is_empty() { CopyInput::Nothing } else { CopyInput::Bytes(bytes) })
}

/// Returns the path of an open file. `None` if the content must be read like that of a pipe: the file is not regular, was deleted, or has
/// already been read in part.
fn regular_file_path(input: &impl AsFd) -> Result<Option<PathBuf>> {
    let mut file = File::from(input.as_fd().try_clone_to_owned().context("cannot read standard input")?);
    let open = file.metadata().context("cannot read standard input")?;
    if !open.is_file() || file.stream_position().context("cannot read standard input")? != 0 {
        return Ok(None);
    }
    let path =
        fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).context("cannot find the file that standard input is read from")?;
    let is_same = fs::metadata(&path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino()));
    Ok(is_same.then_some(path))
}

/// Prints the output of the first copy. A reader that closes the pipe early causes no error.
fn print_output([out, err]: &[Vec<u8>; 2]) -> Result<()> {
    let print = |text: &[u8], to: &mut dyn Write| match to.write_all(text).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    };
    print(out, &mut io::stdout().lock())?;
    Ok(print(err, &mut io::stderr().lock())?)
}

/// Prints the costs of the copies. If requested, also writes them to a file as HTML or JSON.
fn report_copy_costs(options: &RecordCopiesArguments, measurements: &CopyMeasurements, differences: &[String]) -> Result<()> {
    let choices = RequestedCopies {
        strategy: word_of_choice(&COPY_STRATEGY_CHOICES, &partition_strategy(options)),
        engine: options.engine.name().to_owned(),
        measure: hit_measure_to_minimise(options),
        hits: word_of_choice(&HIT_MEASURE_CHOICES, &hit_measure_to_minimise(options)),
    };
    let mut costs = CopiesCosts::new(measurements, &choices);
    costs.diverged = differences.to_vec();
    for line in report::lines(&costs) {
        match line {
            CostReportLine::Note(text) => note(text),
            CostReportLine::Warning(text) => warn(text),
        }
    }
    let Some(path) = &options.choices.costs else { return Ok(()) };
    let text = match path.extension().is_some_and(|e| e == "html") {
        true => report::page(&costs),
        false => serde_json::to_string_pretty(&costs)? + "\n",
    };
    output::write_file(path, text.as_bytes())
}

/// Runs a program several times, each time as `record --copies` would run a copy, and once more with randomised addresses. Returns status 0
/// if all runs behaved alike, else 1.
pub fn check_repeatable(command: &[OsString], runs: u32, json: bool) -> Result<ExitCode> {
    let context = CopyContext { driver: driver_context(), recording: &recording_context() };
    let found = copies::check_repeatable(command, runs, context, &read_standard_input)?;
    let (differences, by_addresses) = (&found.differences, &found.by_addresses);
    let same = found.behaves_the_same();
    let mut out = output::text_writer();
    if json {
        output::print_json(&serde_json::json!(
            {"schema_version": 1, "runs": runs, "same": same, "differences": differences, "by_addresses": by_addresses}))?;
    } else if same {
        writeln!(out, "ok       {runs} runs and one with memory at other addresses had the same paths, output and exit status")?;
    } else {
        differences.iter().try_for_each(|d| writeln!(out, "differs  {d}"))?;
        by_addresses.iter().try_for_each(|d| writeln!(out, "differs  with memory at other addresses: {d}"))?;
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one of the instrumented copies of a program, and writes the result to the file that the launcher names. Fails if the copy cannot be
/// run, or counts are lost. If the program fails, this is not an error: its exit status is part of the result.
pub fn run_instrumented_copy(folder: &Path, copy: usize) -> Result<ExitCode> {
    let result = env::var_os(RESULT_VARIABLE)
        .with_context(|| format!("this command is internal ({RESULT_VARIABLE} is not set). Run `trodden record --copies` instead"))?;
    if let Some(launcher) = env::var_os(LAUNCHER_ALIVE_VARIABLE) {
        end_with_launcher(Path::new(&launcher));
    }
    copies::run_worker(folder, copy, Path::new(&result), &recording_context())?;
    Ok(ExitCode::SUCCESS)
}
