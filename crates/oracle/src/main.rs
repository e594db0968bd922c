//! The command `trodden-oracle`, which `cargo xtask oracle` calls.
#![forbid(unsafe_code)]

mod trial;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use trodden_oracle::check::{CheckVariant, check, check_sources};
use trodden_oracle::delta::DeltaLimits;
use trodden_oracle::interesting::compare;
use trodden_oracle::{OracleError, OracleTools, delta, random, step, untested};
use trodden_profile::Profile;

/// Check path profiles against independent oracles.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    task: OracleTask,
}

#[derive(Debug, Subcommand)]
enum OracleTask {
    /// Check random programs, each in several variants.
    Random {
        /// Number of seeds.
        #[arg(long, default_value_t = 20)]
        seeds: u64,
        /// First seed.
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// Folder in which to keep the files of programs with differences.
        #[arg(long)]
        keep: Option<PathBuf>,
    },
    /// Check a run of a program built by trodden. The program is rebuilt with independent counters and run again; its output is passed
    /// through.
    Check {
        /// Unit cache of the build (default: the user's).
        #[arg(long)]
        store: Option<PathBuf>,
        /// Append the report to this file instead of writing it to standard error.
        #[arg(long)]
        report: Option<PathBuf>,
        /// Also compare with a log of every step. Only for short runs.
        #[arg(long)]
        log: bool,
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Check a program given as C or C++ sources, with all oracles at several levels of optimisation. The program is run without arguments.
    File {
        /// Source files of the program.
        #[arg(required = true)]
        sources: Vec<PathBuf>,
        /// Options for clang, such as `-std=c++20`.
        #[arg(last = true)]
        options: Vec<String>,
    },
    /// Single-step a program and write all its branches in the format of `perf script --itrace=b -F pid,tid,ip,addr`.
    /// The program's output is passed through.
    Branches {
        /// File for the branches.
        #[arg(long)]
        output: PathBuf,
        /// Write windows of N branches, as `perf record -b` records, instead of all branches.
        #[arg(long, value_name = "N")]
        window: Option<usize>,
        /// Average number of branches skipped between windows.
        #[arg(long, default_value_t = 1000)]
        interval: u64,
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Compare a profile of interesting paths with a profile of all paths of the same run, and print the result as JSON.
    Interesting {
        /// Profile of all paths.
        full: PathBuf,
        /// Profile of interesting paths.
        interesting: PathBuf,
    },
    /// Find the paths that the field takes and the tests do not, from two profiles of all paths, and print the result as JSON.
    Untested {
        /// Profile of the tests.
        tests: PathBuf,
        /// Profile of the field.
        field: PathBuf,
    },
    /// Measure how compactly the executed paths of a profile can be numbered. Prints one line of JSON per function.
    Delta {
        /// Profile of all paths.
        profile: PathBuf,
        /// Maximum time to search for the smallest span of a function, in milliseconds.
        #[arg(long, default_value_t = 1000)]
        limit_ms: u64,
        /// Maximum time for all functions together, in seconds.
        #[arg(long, default_value_t = 600)]
        total_s: u64,
    },
    /// Print the random program of a seed.
    Show {
        /// The seed.
        seed: u64,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("trodden-oracle: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(task: OracleTask) -> Result<ExitCode, OracleError> {
    match task {
        OracleTask::Show { seed } => {
            print!("{}", random::program(seed).text);
            Ok(ExitCode::SUCCESS)
        }
        OracleTask::Interesting { full, interesting } => compare_interesting_paths(&full, &interesting),
        OracleTask::Untested { tests, field } => find_untested_paths(&tests, &field),
        OracleTask::Delta { profile, limit_ms, total_s } => {
            measure_numberings(&profile, DeltaLimits { function: Duration::from_millis(limit_ms), profile: Duration::from_secs(total_s) })
        }
        OracleTask::Branches { output, window, interval, command } => write_branches(&output, window, interval, &command),
        OracleTask::Check { store, report, log, command } => trial::check(&trial::ProgramTrial { store, report, log, command }),
        OracleTask::File { sources, options } => check_files(&sources, &options),
        OracleTask::Random { seeds, first, keep } => check_random_programs(first..first + seeds, keep),
    }
}

fn compare_interesting_paths(full: &Path, interesting: &Path) -> Result<ExitCode, OracleError> {
    let found = compare(&Profile::read(full)?, &Profile::read(interesting)?)?;
    let text = serde_json::json!({
        "functions": found.functions,
        "counting_all": found.counting_all,
        "paths": found.paths,
        "executed": found.executed,
        "executions": found.executions.to_string(),
        "others": found.others.to_string(),
        "misplaced": found.misplaced.to_string(),
        "differences": found.differences,
    });
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn find_untested_paths(tests: &Path, field: &Path) -> Result<ExitCode, OracleError> {
    let found = untested::compare(&Profile::read(tests)?, &Profile::read(field)?)?;
    let text = serde_json::json!({
        "tested_paths": found.tested_paths,
        "executed_paths": found.executed_paths,
        "untested_paths": found.untested_paths,
        "executions": found.executions.to_string(),
        "untested_executions": found.untested_executions.to_string(),
        "functions": found.functions,
        "untested_edges": found.untested_edges,
        "functions_with_untested_edges": found.functions_with_untested_edges,
        "untested_paths_in_functions_without_untested_edges": found.untested_paths_in_functions_without_untested_edges,
        "all_edges_tested": found.all_edges_tested,
    });
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn measure_numberings(profile: &Path, limits: DeltaLimits) -> Result<ExitCode, OracleError> {
    for row in delta::measure(&Profile::read(profile)?, limits)? {
        let line = serde_json::json!({
            "function": row.function,
            "paths": row.paths,
            "ball_larus": row.ball_larus.to_string(),
            "published": row.published,
            "restarted": row.restarted,
            "searched": row.searched,
            "bound": row.bound,
            "proven": row.proven,
        });
        println!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

fn write_branches(output: &Path, window: Option<usize>, interval: u64, command: &[OsString]) -> Result<ExitCode, OracleError> {
    let (program, arguments) = command.split_first().expect("the command line requires a program");
    let here = std::env::current_dir().map_err(OracleError::file(Path::new(".")))?;
    let mut trace = Vec::new();
    let outcome = step::record(Path::new(program), arguments, Stdio::inherit(), &here, &mut trace)?;
    if let Some(size) = window {
        trace = step::sample_windows(&String::from_utf8_lossy(&trace), size, interval).into_bytes();
    }
    std::fs::write(output, trace).map_err(OracleError::file(output))?;
    std::io::stdout().write_all(&outcome.output).map_err(OracleError::file(Path::new("standard output")))?;
    let status = outcome.status.code().unwrap_or_else(|| 128 + outcome.status.signal().unwrap_or(0));
    Ok(ExitCode::from(status as u8))
}

fn check_files(sources: &[PathBuf], options: &[String]) -> Result<ExitCode, OracleError> {
    let folder = tempfile::tempdir().map_err(OracleError::file(&std::env::temp_dir()))?;
    let tools = OracleTools::prepare(folder.path())?;
    let is_c = sources.iter().all(|s| s.extension().is_some_and(|e| e == "c"));
    let language = if is_c { random::RandomLanguage::C } else { random::RandomLanguage::Cxx };
    let mut differences = 0;
    for (number, mut variant) in (0..6).flat_map(CheckVariant::variants_for_seed).enumerate() {
        variant.options.extend_from_slice(options);
        let place = folder.path().join(number.to_string());
        std::fs::create_dir(&place).map_err(OracleError::file(&place))?;
        let findings = check_sources(sources, language, &variant, &tools, &place)?;
        println!("{variant:?}: functions {}, with unfinished paths {}", findings.functions, findings.unfinished);
        findings.differences.iter().for_each(|d| println!("  differs: {d}"));
        differences += findings.differences.len();
    }
    Ok(ExitCode::from(u8::from(differences > 0)))
}

fn check_random_programs(seeds: std::ops::Range<u64>, keep: Option<PathBuf>) -> Result<ExitCode, OracleError> {
    let folder = tempfile::tempdir().map_err(OracleError::file(&std::env::temp_dir()))?;
    let tools = OracleTools::prepare(folder.path())?;
    let (mut checked, mut functions, mut unfinished, mut by_pgo, mut wrong) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let program = random::program(seed);
        for variant in CheckVariant::variants_for_seed(seed) {
            let place = match &keep {
                Some(keep) => keep.join(format!("{seed}{}", variant.options[0])),
                None => folder.path().join(format!("{seed}{}", variant.options[0])),
            };
            std::fs::create_dir_all(&place).map_err(OracleError::file(&place))?;
            let findings = check(&program, &variant, &tools, &place)?;
            checked += 1;
            functions += findings.functions;
            unfinished += findings.unfinished;
            by_pgo += findings.verified_by_pgo;
            if findings.differences.is_empty() {
                let _ = std::fs::remove_dir_all(&place);
                continue;
            }
            wrong += 1;
            eprintln!("seed {seed} {:?} {}: differences {}", variant.options, variant.parameters, findings.differences.len());
            findings.differences.iter().take(8).for_each(|d| eprintln!("  {d}"));
        }
    }
    println!(
        "programs checked {checked}, with differences {wrong}; functions {functions}, with unfinished paths {unfinished}, also checked by \
            LLVM {by_pgo}"
    );
    Ok(ExitCode::from(u8::from(wrong > 0)))
}
