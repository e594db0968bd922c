//! `trodden record --copies K`, `trodden repeatable -- COMMAND`, and the hidden `trodden copy`: `trodden_recording::copies` does it.

use crate::cli::{COPY_STRATEGIES, Copies, EngineKind, HITS, Record, word, word_for};
use crate::context::context;
use crate::notes::{note, warn};
use crate::output;
use crate::surroundings::{folders, surroundings};
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use trodden_analysis::copies::{CopyChoices, Costs};
use trodden_analysis::segments::asked;
use trodden_launch::alive::{ALIVE_VARIABLE, end_with_launcher};
use trodden_launch::{Engine, Kubernetes, Local, RESULT_VARIABLE, Slurm, Template};
use trodden_profile::copies::CopyMeasurements;
use trodden_profile::private;
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
    let done = copies::run(&job, context, &|| input(record.copies.input.as_deref()))?;
    print(&done.output()?)?;
    done.bring_back()?;
    if let Some(measurements) = &done.measurements {
        show_costs(&record.copies, measurements, &done.differences)?;
    }
    Ok(done.exit_code())
}

/// How copies are made and run.
fn options(given: &Copies) -> Result<CopyOptions> {
    let shared = match &given.segments {
        Some(wanted) => SharedCounting::Segments(asked(given.depth as usize, &[], wanted, &folders())?),
        None if given.iterations => SharedCounting::Iterations,
        None if given.edges => SharedCounting::Edges,
        None => SharedCounting::Paths,
    };
    Ok(CopyOptions {
        copies: given.copies.unwrap_or(1),
        shared,
        strategy: given.strategy,
        all_procedures: given.all_procedures,
        hits: given.hits,
        weights: given.weights.clone(),
        no_first_run: given.no_first_run,
        engine: engine(given)?,
        memory: given.memory.map(|mib| mib << 20),
        own_folders: given.own_folders,
        ignore_output: given.ignore_output,
        baseline: given.baseline,
        count_hits: given.count_hits,
        costs: given.costs.clone(),
        work: given.work.clone(),
    })
}

fn engine(options: &Copies) -> Result<Engine> {
    let parallel = options.parallel.map_or(Local::default().parallel, |n| n as usize);
    let others = [
        (options.memory.is_some(), EngineKind::Local, "--memory"),
        (options.template.is_some(), EngineKind::Template, "--template"),
        (!options.slurm_option.is_empty(), EngineKind::Slurm, "--slurm-option"),
        (options.image.is_some(), EngineKind::Kubernetes, "--image"),
        (options.claim.is_some(), EngineKind::Kubernetes, "--claim"),
    ];
    for (is_given, kind, option) in others {
        ensure!(!is_given || options.engine == kind, "{option} is for --engine {}: give that as well, or leave {option} out", word(kind));
    }
    Ok(match options.engine {
        EngineKind::Local => Engine::Local(Local { parallel, memory: options.memory.map(|mib| mib << 20), retries: options.retries }),
        EngineKind::Slurm => {
            ensure!(options.work.is_some(), "give a folder that all machines of the cluster see: --work FOLDER");
            Engine::Slurm(Slurm { options: options.slurm_option.clone(), retries: options.retries, ..Slurm::default() })
        }
        EngineKind::Template => {
            let line = options.template.clone().context("give the command of --engine template: --template 'COMMAND'")?;
            Engine::Template(Template { line, parallel, retries: options.retries })
        }
        EngineKind::Kubernetes => {
            let (Some(image), Some(claim), Some(work)) = (&options.image, &options.claim, &options.work) else {
                bail!("--engine kubernetes needs --image, --claim and --work FOLDER, on the volume of the claim")
            };
            private::create_folder(work).with_context(|| format!("cannot make the folder {}", work.display()))?;
            let mount = fs::canonicalize(work).with_context(|| format!("cannot read {}", work.display()))?;
            Engine::Kubernetes(Kubernetes { image: image.clone(), claim: claim.clone(), mount, retries: options.retries })
        }
    })
}

/// What copies get as standard input: a file that the user gave, else what comes by a pipe.
fn input(given: Option<&Path>) -> Result<CopyInput> {
    if let Some(path) = given {
        ensure!(!path.is_dir(), "{} is a folder: give a file (--input)", path.display());
        let failed = || format!("cannot read {}", path.display());
        // Of a pipe there is one content for all copies.
        return match path.metadata().with_context(failed)?.is_file() {
            true => Ok(CopyInput::File(fs::canonicalize(path).with_context(failed)?)),
            false => Ok(CopyInput::Bytes(fs::read(path).with_context(failed)?)),
        };
    }
    let mut input = io::stdin().lock();
    if input.is_terminal() {
        return Ok(CopyInput::Nothing);
    }
    let (done, open) = channel::<()>();
    std::thread::spawn(move || {
        if open.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            note("reading standard input to its end, which each copy is to get (--input FILE gives them a file, `< /dev/null` nothing)");
        }
    });
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).context("cannot read standard input")?;
    drop(done);
    Ok(if bytes.is_empty() { CopyInput::Nothing } else { CopyInput::Bytes(bytes) })
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
        strategy: word_for(&COPY_STRATEGIES, &options.strategy),
        engine: word(options.engine),
        measure: options.hits,
        hits: word_for(&HITS, &options.hits),
    };
    let mut costs = Costs::new(measurements, &choices);
    costs.diverged = differences.to_vec();
    for line in report::lines(&costs) {
        match line {
            CostLine::Note(text) => note(text),
            CostLine::Warning(text) => warn(text),
        }
    }
    let Some(path) = &options.costs else { return Ok(()) };
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
    let found = copies::determinism(command, runs, context, &|| input(None))?;
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
