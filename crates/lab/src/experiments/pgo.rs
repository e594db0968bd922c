//! `trodden-lab experiment pgo`: profile-guided builds of corpus programs, with clang's profile, with a profile derived from paths, and by
//! `trodden pgo`, which also transforms the program based on its paths.
//!
//! Profiles come from the short run. The long run is timed, and the builds take turns. The builds with clang's profile and with the derived
//! profile use the same folder and profile name, so equal profiles must yield identical programs, and the experiment checks that.
//! `llvm-profdata` compares the profiles.

mod branches;
mod short;

use crate::experiments::bench::instructions::InstructionCounter;
use crate::experiments::bench::statistics::{MedianAndRange, geometric_mean};
use crate::experiments::bench::usage;
use crate::experiments::show_progress;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::CorpusVariant;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;
use trodden_corpus::steps::build_trodden;
use trodden_corpus::{Corpus, CorpusInput, script};

/// Programs measured by default: dynamic programming, two compressors, an interpreter, a solver in C++, and a database.
const DEFAULT_PROGRAMS: &[&str] = &["hmmer", "bzip2", "lua", "gzip", "minisat", "sqlite"];
/// Name of the folder and of the profile in both builds with an edge profile.
const SHARED_BUILD_NAME: &str = "pgo";
/// Name of the build in which `trodden pgo` works.
const INTERMEDIATE_BUILD: &str = "pgo-work";
/// Measured builds: without a profile, with clang's profile, with the derived profile, by `trodden pgo` with edges only, and by `trodden
/// pgo` with paths.
const BUILDS: [&str; BUILD_COUNT] = ["plain", "pgo-clang", "pgo-edges", "pgo-trodden-edges", "pgo-trodden"];
const BUILD_COUNT: usize = 5;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab experiment pgo
  trodden-lab experiment pgo sqlite --rounds 9
  trodden-lab experiment pgo ripgrep oxipng --short")]
pub struct PgoOptions {
    /// Corpus programs, or `all`.
    #[arg(default_values = DEFAULT_PROGRAMS)]
    programs: Vec<String>,
    /// Number of runs of each build; the median is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only compare `trodden pgo` with the build by clang's profile, by instructions and branches instead of times.
    #[arg(long)]
    short: bool,
    /// Working folder [default: that of the corpus].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

struct PgoRow {
    program: String,
    user: [MedianAndRange; BUILD_COUNT],
    instructions: Option<[u64; BUILD_COUNT]>,
    /// Instructions of the profiling runs, by clang's and by trodden's instrumentation.
    profiling: Option<[u64; 2]>,
    profiles: CounterAgreement,
    same_bytes: bool,
}

/// Number of functions, and number of functions whose counters are equal in both profiles.
struct CounterAgreement {
    functions: usize,
    equal: usize,
}

/// Builds and measures the programs, and prints a table. Fails if the output of a build differs from that of the plain build.
pub fn run(options: &PgoOptions) -> Result<()> {
    packages::ensure_packages_for(PackagePurpose::Bench)?;
    build_trodden()?;
    let corpus = options.folder.as_deref().map_or_else(Corpus::in_target, Corpus::in_folder);
    let programs = corpus.programs(&options.programs)?;
    corpus.ensure_packages(&programs)?;
    if options.short {
        return short::run(&corpus, &programs);
    }
    let counter = InstructionCounter::find_available();
    println!("{TABLE_HEAD}");
    let mut rows = Vec::new();
    for program in &programs {
        let row = measure_row(&corpus, program, options.rounds, counter)?;
        println!("{}", format_row(&row));
        rows.push(row);
    }
    let mean = |at: usize| geometric_mean(&rows.iter().map(|r| r.user[at].median / r.user[0].median).collect::<Vec<_>>()).unwrap_or(1.0);
    println!(
        "geometric mean of user time relative to the plain build: clang's profile {:.3}, ours {:.3}, paths {:.3}",
        mean(1),
        mean(2),
        mean(4)
    );
    Ok(())
}

fn measure_row(corpus: &Corpus, program: &str, rounds: usize, counter: Option<InstructionCounter>) -> Result<PgoRow> {
    corpus.fetch(program)?;
    corpus.create_inputs(program)?;
    corpus.build_once(program, &CorpusVariant::plain())?;
    let work = corpus.folder().join("pgo").join(program);
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).with_context(|| format!("cannot create folder {}", work.display()))?;
    let (clang, paths) = (profile_by_clang(corpus, program, &work)?, profile_by_paths(corpus, program, &work)?);
    for (build, profile) in [(BUILDS[1], &clang), (BUILDS[2], &paths)] {
        build_with_profile(corpus, program, profile, build)?;
    }
    let bytes =
        |build: &str| fs::read(binary_path(corpus, build, program)).with_context(|| format!("cannot read build {build} of {program}"));
    build_by_trodden_pgo(corpus, program, BUILDS[3], "--edges")?;
    build_by_trodden_pgo(corpus, program, BUILDS[4], "")?;
    let same_bytes = bytes(BUILDS[1])? == bytes(BUILDS[2])?;
    let user = measure_times(corpus, program, rounds)?;
    let count = |build: &str, counter: InstructionCounter| count_instructions(corpus, program, build, counter);
    let each = |counter: InstructionCounter| -> Result<[u64; BUILD_COUNT]> {
        let mut all = [0; BUILD_COUNT];
        for (build, to) in BUILDS.iter().zip(&mut all) {
            *to = count(build, counter)?;
        }
        Ok(all)
    };
    let two = |counter: InstructionCounter| -> Result<[u64; 2]> { Ok([count("clang-edges", counter)?, count("trodden-pgo", counter)?]) };
    Ok(PgoRow {
        program: program.to_owned(),
        user,
        instructions: counter.map(each).transpose()?,
        profiling: counter.map(two).transpose()?,
        profiles: compare_profiles(&clang, &paths)?,
        same_bytes,
    })
}

fn binary_path(corpus: &Corpus, build: &str, program: &str) -> PathBuf {
    corpus.folder().join("bin").join(build).join(program)
}

fn profile_by_clang(corpus: &Corpus, program: &str, work: &Path) -> Result<PathBuf> {
    corpus.build_as("clang-edges", program, &CorpusVariant::parse("clang-edges")?.build_environment()?)?;
    let raw = work.join("raw");
    corpus.run_as("clang-edges", program, CorpusInput::Train, "", &[("LLVM_PROFILE_FILE", raw.join("%m.profraw").into())])?;
    let profile = work.join("clang.profdata");
    steps::output(Command::new("llvm-profdata-22").arg("merge").arg(&raw).arg("-o").arg(&profile))?;
    Ok(profile)
}

/// Profiles the short run with trodden, and derives an edge profile from the paths.
fn profile_by_paths(corpus: &Corpus, program: &str, work: &Path) -> Result<PathBuf> {
    let mut variables = CorpusVariant::trodden().build_environment()?;
    variables.push(("TRODDEN_INSTRUMENT", "observe=edge-profile".into()));
    corpus.build_as("trodden-pgo", program, &variables)?;
    let counts = work.join("counts");
    fs::create_dir_all(&counts).with_context(|| format!("cannot create folder {}", counts.display()))?;
    corpus.run_as("trodden-pgo", program, CorpusInput::Train, "", &[("TRODDEN_OUTPUT", counts.join("%m.raw").into())])?;
    let (stored, profile) = (work.join("paths.trodden"), work.join("paths.profdata"));
    let trodden = || Command::new(steps::target_folder().join("release/trodden"));
    steps::output(trodden().args(["import", "--no-store", "-o"]).arg(&stored).arg(&counts))?;
    steps::output(trodden().args(["export", "profdata"]).arg(&stored).arg("-o").arg(&profile))?;
    Ok(profile)
}

/// Builds a program with `trodden pgo`. Returns a line for each function that was transformed based on paths.
fn build_by_trodden_pgo(corpus: &Corpus, program: &str, build: &str, choices: &str) -> Result<Vec<String>> {
    let output = binary_path(corpus, build, program);
    fs::create_dir_all(output.parent().unwrap_or(Path::new("/")))
        .with_context(|| format!("cannot create the folder of {}", output.display()))?;
    let recipe = |step: &str| {
        let words = ["bash".into(), script(), step.into(), program.into(), corpus.folder().to_owned()];
        words.map(|w: PathBuf| format!("'{}'", w.display())).join(" ")
    };
    let mut command = Command::new(steps::target_folder().join("release/trodden"));
    command.arg("pgo").arg("--train").arg(recipe(CorpusInput::Train.name())).arg("--program").arg(binary_path(
        corpus,
        INTERMEDIATE_BUILD,
        program,
    ));
    command.arg("-o").arg(&output);
    // For Rust programs, the compilers are passed only in variables, because build scripts would also use compilers in PATH.
    let only_variables = if corpus.is_rust(program)? { "--only-variables" } else { "" };
    command.env(steps::LABORATORY_VARIABLE, format!("{choices} {only_variables}"));
    command.args(["--", "sh", "-c"]).arg(recipe("build"));
    // `cargo` must be trodden's, although the compilers are not.
    let builder = CorpusVariant::trodden().build_environment()?.into_iter().filter(|(name, _)| ["CARGO_BUILD", "PATH"].contains(name));
    let variables =
        CorpusVariant::plain().build_environment()?.into_iter().filter(|(name, _)| !["CC", "CXX"].contains(name)).chain(builder);
    command.envs(variables).env("BUILD", INTERMEDIATE_BUILD).env("TRODDEN_CACHE", corpus.folder().join("store"));
    let messages = steps::error_output(&mut command)?;
    let changed = messages.lines().filter(|l| l.starts_with("trodden: ") && l.contains("% of all instructions)"));
    Ok(changed.map(|l| l.trim_start_matches("trodden: ").to_owned()).collect())
}

/// Builds with a profile in the shared folder, and copies the resulting program to the folder of `build`.
fn build_with_profile(corpus: &Corpus, program: &str, profile: &Path, build: &str) -> Result<()> {
    let shared = corpus.folder().join("pgo").join(format!("{program}.profdata"));
    fs::copy(profile, &shared).with_context(|| format!("cannot write {}", shared.display()))?;
    let mut variables = CorpusVariant::plain().build_environment()?;
    let flags = |v: &OsString| format!("{} -fprofile-use={}", v.to_string_lossy(), shared.display());
    variables.iter_mut().filter(|(name, _)| *name == "CFLAGS").for_each(|(_, v)| *v = flags(v).into());
    variables.push(("RUSTFLAGS", format!("-Cprofile-use={}", shared.display()).into()));
    corpus.build_as(SHARED_BUILD_NAME, program, &variables)?;
    let (from, to) = (binary_path(corpus, SHARED_BUILD_NAME, program), binary_path(corpus, build, program));
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).with_context(|| format!("cannot create the folder of {}", to.display()))?;
    fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(())
}

/// Measures the user time of each build's long run. The builds take turns.
fn measure_times(corpus: &Corpus, program: &str, rounds: usize) -> Result<[MedianAndRange; BUILD_COUNT]> {
    let mut seconds: [Vec<f64>; BUILD_COUNT] = Default::default();
    let mut sums: Vec<String> = Vec::new();
    for round in 1..=rounds {
        for (build, seconds) in BUILDS.iter().zip(&mut seconds) {
            show_progress(&format!("round {round} of {rounds}: {program}, {build}"));
            let (used, sum) = usage::run_measured(|runner| corpus.run_as(build, program, CorpusInput::Ref, runner, &[]))?;
            seconds.push(used.user_s);
            sums.push(sum);
        }
    }
    show_progress("");
    if sums.windows(2).any(|pair| pair[0] != pair[1]) {
        bail!("{program}: the output of a build with a profile differs from the output of the plain build");
    }
    Ok(seconds.map(|of| MedianAndRange::from_values(&of)))
}

/// Counts the instructions of the short run. Runs a stripped copy, because valgrind cannot read clang's debug information.
fn count_instructions(corpus: &Corpus, program: &str, build: &str, counter: InstructionCounter) -> Result<u64> {
    show_progress(&format!("instructions, by {}: {program}, {build}", counter.name()));
    let stripped = format!("{build}-stripped");
    let to = binary_path(corpus, &stripped, program);
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).with_context(|| format!("cannot create the folder of {}", to.display()))?;
    steps::output(Command::new("strip").args(["--strip-debug", "-o"]).arg(&to).arg(binary_path(corpus, build, program)))?;
    let log = corpus.folder().join("pgo").join("instructions.log");
    let _ = fs::remove_file(&log);
    let nowhere = [("LLVM_PROFILE_FILE", OsString::from("/dev/null"))];
    corpus.run_as(&stripped, program, CorpusInput::Train, &counter.command_prefix(&log), &nowhere)?;
    show_progress("");
    let text = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
    counter
        .total_instructions(&text)
        .with_context(|| format!("{} reported no instruction count for {program}. See {}", counter.name(), log.display()))
}

fn compare_profiles(one: &Path, other: &Path) -> Result<CounterAgreement> {
    let (one, other) = (read_functions(one)?, read_functions(other)?);
    Ok(CounterAgreement { functions: one.len(), equal: one.iter().filter(|f| other.contains(f)).count() })
}

/// Returns the functions of a profile as text: name, hash and counters, but not the value profile.
fn read_functions(profile: &Path) -> Result<Vec<String>> {
    let text = steps::output(Command::new("llvm-profdata-22").args(["merge", "--text"]).arg(profile).args(["-o", "-"]))?;
    let lines: Vec<&str> = text.lines().collect();
    let begins = (1..lines.len()).filter(|at| lines[*at] == "# Func Hash:");
    let one = |at: usize| {
        let count: usize = lines.get(at + 3)?.parse().ok()?;
        Some(lines.get(at - 1..at + 5 + count)?.join("\n"))
    };
    begins.map(one).collect::<Option<Vec<_>>>().context("cannot parse the output of `llvm-profdata merge --text`")
}

const TABLE_HEAD: &str = concat!(
    "           user time, median (s)                                       least (s)           paths to clang     instructions to \
        plain        collecting   functions with    same\n",
    "program    plain    clang    ours     edges    paths    | clang    paths   | median  least   | clang   ours    edges   paths   \
        paths/clang  equal counters    program"
);

fn format_row(row: &PgoRow) -> String {
    let [plain, clang, ours, edges, paths] = row.user.map(|s| s.median);
    let [_, clang_least, _, _, paths_least] = row.user.map(|s| s.min);
    let ratio = |a: u64, b: u64| a as f64 / b as f64;
    let counts = row.instructions.map_or([f64::NAN; BUILD_COUNT], |all| all.map(|n| ratio(n, all[0])));
    let profiling = row.profiling.map_or(f64::NAN, |[clang, paths]| ratio(paths, clang));
    format!(
        "{:<10} {plain:<8.2} {clang:<8.2} {ours:<8.2} {edges:<8.2} {paths:<8.2} | {clang_least:<8.2} {paths_least:<7.2} | {:<7.3} \
            {:<7.3} | {:<7.4} {:<7.4} {:<7.4} {:<7.4} {profiling:<12.3} {:<17} {}",
        row.program,
        paths / clang,
        paths_least / clang_least,
        counts[1],
        counts[2],
        counts[3],
        counts[4],
        format!("{} of {}", row.profiles.equal, row.profiles.functions),
        if row.same_bytes { "yes" } else { "no" },
    )
}
