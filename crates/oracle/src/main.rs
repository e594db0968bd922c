//! The oracles as a command; `cargo xtask oracle` calls it.
#![forbid(unsafe_code)]

mod trial;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use trodden_oracle::check::{Variant, check, check_sources};
use trodden_oracle::delta::DeltaLimits;
use trodden_oracle::interesting::compare;
use trodden_oracle::{Error, Toolkit, delta, random, step, untested};
use trodden_profile::Profile;

/// Holds path profiles against independent oracles.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Random programs, each in several variants.
    Random {
        /// How many seeds.
        #[arg(long, default_value_t = 20)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// Keep the files of programs that differ in this folder.
        #[arg(long)]
        keep: Option<PathBuf>,
    },
    /// A program that trodden built, in a run of it: rebuilt with other counters, run again, compared. Prints what the program prints.
    Check {
        /// The unit cache of the build; the usual one if none is given.
        #[arg(long)]
        store: Option<PathBuf>,
        /// Append the verdict to this file instead of the standard error output.
        #[arg(long)]
        report: Option<PathBuf>,
        /// Replay a log of every step as well: short runs only.
        #[arg(long)]
        log: bool,
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// A program in one or several C or C++ files, without arguments: all oracles, at several levels of optimisation.
    File {
        /// The sources.
        #[arg(required = true)]
        sources: Vec<PathBuf>,
        /// Options of clang, such as `-std=c++20`.
        #[arg(last = true)]
        options: Vec<String>,
    },
    /// Run a program step by step and print all its branches as `perf script --itrace=b -F pid,tid,ip,addr` does.
    /// Prints what the program prints.
    Branches {
        /// Where to print the branches.
        #[arg(long)]
        output: PathBuf,
        /// Windows of so many branches instead, as of `perf record -b`.
        #[arg(long)]
        window: Option<usize>,
        /// Branches from one window to the next, on average.
        #[arg(long, default_value_t = 1000)]
        apart: u64,
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Compare the stored profile of a program that counts interesting paths with that of the one that counts all, of the same run: JSON.
    Interesting {
        /// The profile of all paths.
        full: PathBuf,
        /// The profile of interesting paths.
        interesting: PathBuf,
    },
    /// What the field takes and the tests have not taken, of two stored profiles of programs that count all paths: JSON.
    Untested {
        /// The profile of the tests.
        tests: PathBuf,
        /// The profile of the field.
        field: PathBuf,
    },
    /// How compact the numbers of the executed paths of a stored profile can be: a line of JSON for each function.
    Delta {
        /// The profile.
        profile: PathBuf,
        /// How many milliseconds the least span of a function may be searched for.
        #[arg(long, default_value_t = 1000)]
        limit_ms: u64,
        /// How many seconds those of all functions may be.
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

fn run(task: Task) -> Result<ExitCode, Error> {
    match task {
        Task::Show { seed } => {
            print!("{}", random::program(seed).text);
            Ok(ExitCode::SUCCESS)
        }
        Task::Interesting { full, interesting } => interesting_paths(&full, &interesting),
        Task::Untested { tests, field } => untested_paths(&tests, &field),
        Task::Delta { profile, limit_ms, total_s } => {
            compactness(&profile, DeltaLimits { function: Duration::from_millis(limit_ms), profile: Duration::from_secs(total_s) })
        }
        Task::Branches { output, window, apart, command } => branches(&output, window, apart, &command),
        Task::Check { store, report, log, command } => trial::check(&trial::Trial { store, report, log, command }),
        Task::File { sources, options } => files(&sources, &options),
        Task::Random { seeds, first, keep } => random_programs(first..first + seeds, keep),
    }
}

fn interesting_paths(full: &Path, interesting: &Path) -> Result<ExitCode, Error> {
    let found = compare(&Profile::read(full)?, &Profile::read(interesting)?)?;
    let text = serde_json::json!({
        "functions": found.functions,
        "instead": found.instead,
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

fn untested_paths(tests: &Path, field: &Path) -> Result<ExitCode, Error> {
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
        "in_functions_without_untested_edges": found.in_functions_without_untested_edges,
        "every_edge_known": found.every_edge_known,
    });
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn compactness(profile: &Path, limits: DeltaLimits) -> Result<ExitCode, Error> {
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

fn branches(output: &Path, window: Option<usize>, apart: u64, command: &[OsString]) -> Result<ExitCode, Error> {
    let (program, arguments) = command.split_first().expect("the command line asks for one");
    let here = std::env::current_dir().map_err(Error::file(Path::new(".")))?;
    let mut trace = Vec::new();
    let outcome = step::record(Path::new(program), arguments, Stdio::inherit(), &here, &mut trace)?;
    if let Some(size) = window {
        trace = step::windows(&String::from_utf8_lossy(&trace), size, apart).into_bytes();
    }
    std::fs::write(output, trace).map_err(Error::file(output))?;
    std::io::stdout().write_all(&outcome.output).map_err(Error::file(Path::new("standard output")))?;
    let status = outcome.status.code().unwrap_or_else(|| 128 + outcome.status.signal().unwrap_or(0));
    Ok(ExitCode::from(status as u8))
}

fn files(sources: &[PathBuf], options: &[String]) -> Result<ExitCode, Error> {
    let folder = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
    let tools = Toolkit::prepare(folder.path())?;
    let is_c = sources.iter().all(|s| s.extension().is_some_and(|e| e == "c"));
    let language = if is_c { random::RandomLanguage::C } else { random::RandomLanguage::Cxx };
    let mut differences = 0;
    for (number, mut variant) in (0..6).flat_map(Variant::some_for).enumerate() {
        variant.options.extend_from_slice(options);
        let place = folder.path().join(number.to_string());
        std::fs::create_dir(&place).map_err(Error::file(&place))?;
        let findings = check_sources(sources, language, &variant, &tools, &place)?;
        println!("{variant:?}: {} functions, {} with unfinished paths", findings.functions, findings.unfinished);
        findings.differences.iter().for_each(|d| println!("  differs: {d}"));
        differences += findings.differences.len();
    }
    Ok(ExitCode::from(u8::from(differences > 0)))
}

fn random_programs(seeds: std::ops::Range<u64>, keep: Option<PathBuf>) -> Result<ExitCode, Error> {
    let folder = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
    let tools = Toolkit::prepare(folder.path())?;
    let (mut checked, mut functions, mut unfinished, mut by_pgo, mut wrong) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let program = random::program(seed);
        for variant in Variant::some_for(seed) {
            let place = match &keep {
                Some(keep) => keep.join(format!("{seed}{}", variant.options[0])),
                None => folder.path().join(format!("{seed}{}", variant.options[0])),
            };
            std::fs::create_dir_all(&place).map_err(Error::file(&place))?;
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
            eprintln!("seed {seed} {:?} {}: {} differences", variant.options, variant.parameters, findings.differences.len());
            findings.differences.iter().take(8).for_each(|d| eprintln!("  {d}"));
        }
    }
    println!(
        "{checked} programs, {functions} functions, {unfinished} of them with unfinished paths, {by_pgo} checked by LLVM too; {wrong} \
            programs differ"
    );
    Ok(ExitCode::from(u8::from(wrong > 0)))
}
