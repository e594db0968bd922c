//! `cargo xtask oracle`: path profiles before independent judges (`crates/oracle`).
//!
//! Programs of the corpus are made again from their own bitcode with a plain counter in every block, and with LLVM's edge counters; blocks and edges
//! of every function are compared. Random programs are also held against a log of every step.

use crate::bench::variant::Variant;
use crate::corpus::{Corpus, Input};
use crate::demo::build_trodden;
use crate::packages::{self, Purpose};
use crate::steps;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};

/// Programs in C, C++ and Rust, one of them threaded.
const DEFAULT: &[&str] = &["gzip", "bzip2", "lua", "sqlite", "minisat", "pbzip2", "oxipng"];

/// `cargo xtask oracle`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo xtask oracle                        programs in C, C++ and Rust, one of them threaded
  cargo xtask oracle cppcheck --input ref   another one, in a longer run
  cargo xtask oracle --seeds 500            random programs, each in five variants
  cargo xtask oracle gzip lua --scheme ppp --scheme pspp --interesting share:90%
                                            programs that count selected paths, against those that count all")]
pub struct Options {
    /// Programs of the corpus.
    programs: Vec<String>,
    /// Which run.
    #[arg(long, value_enum, default_value_t = Input::Train)]
    input: Input,
    /// Count only some paths, numbered in this way, and compare with the counts of all; may be given several times, or be `all`.
    #[arg(long, value_name = "SCHEME", conflicts_with = "seeds")]
    scheme: Vec<String>,
    /// Which paths: as of `trodden instrument --interesting`, without the profile.
    #[arg(long, value_name = "SET", default_value = "share:90%", requires = "scheme")]
    interesting: String,
    /// Judge this many random programs instead.
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// The first of their seeds.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
}

/// Judges, and prints what was found.
///
/// # Errors
/// A tool is missing or failed, or something differs.
pub fn run(options: &Options) -> Result<()> {
    packages::ensure(Purpose::Bench)?;
    let judge = build_judge()?;
    if let Some(seeds) = options.seeds {
        let numbers = ["--first".to_owned(), options.first.to_string(), "--seeds".to_owned(), seeds.to_string()];
        return steps::run(std::process::Command::new(&judge).arg("random").args(numbers));
    }
    let corpus = Corpus::own();
    let named = if options.programs.is_empty() { DEFAULT.iter().map(|p| (*p).to_owned()).collect() } else { options.programs.clone() };
    let programs = corpus.programs(&named)?;
    corpus.ensure_packages(&programs)?;
    let mut different = Vec::new();
    for program in &programs {
        let equal = match options.scheme.is_empty() {
            true => judge_program(&corpus, program, options.input, &judge)?,
            false => judge_selected(&corpus, program, options, &judge)?,
        };
        if !equal {
            different.push(program.as_str());
        }
    }
    match different.is_empty() {
        true => Ok(()),
        false => bail!("counts differ in {}; the differences are named above", different.join(", ")),
    }
}

/// Builds trodden and the judges; gives the judges' program.
///
/// # Errors
/// Cargo failed.
pub fn build_judge() -> Result<PathBuf> {
    let release = build_trodden()?;
    steps::run(steps::cargo().args(["build", "--release", "--package", "trodden-oracle"]))?;
    Ok(release.join("trodden-oracle"))
}

/// Judges a program's run; whether all counts are equal.
fn judge_program(corpus: &Corpus, program: &str, input: Input, judge: &Path) -> Result<bool> {
    corpus.fetch(program)?;
    let variant = Variant::trodden();
    corpus.build_once(program, &variant)?;
    corpus.inputs(program)?;
    let text = verdict(corpus, program, &variant, input, judge)?;
    print!("{text}");
    Ok(!differs(&text))
}

/// Compares builds of a program that count selected paths with the one that counts all; whether the exact ones count alike.
fn judge_selected(corpus: &Corpus, program: &str, options: &Options, judge: &Path) -> Result<bool> {
    let made = Selected::prepare(corpus, program, options.input)?;
    let again = made.run_full_again(corpus)?;
    let same = std::process::Command::new(judge)
        .arg("selected")
        .args([&made.full, &again])
        .arg("--exact")
        .output()
        .context("cannot run the judge")?;
    if !same.status.success() {
        println!("{program}: not judged, for two runs of it take different paths");
        return Ok(true);
    }
    let all = SCHEMES.map(|(name, _)| name.to_owned()).to_vec();
    let schemes = if options.scheme.iter().any(|s| s == "all") { &all } else { &options.scheme };
    let mut equal = true;
    for scheme in schemes {
        let Some((_, exact)) = SCHEMES.iter().find(|(name, _)| name == scheme) else {
            bail!("there is no scheme {scheme}; there are {}", all.join(", "));
        };
        let set = format!("{}:{}", options.interesting, made.full.display());
        let counted = made.run(corpus, scheme, &set)?;
        let mut compare = std::process::Command::new(judge);
        compare.arg("selected").arg(&made.full).arg(&counted).args(exact.then_some("--exact"));
        let said = compare.output().context("cannot run the judge")?;
        print!("{program} {scheme}: {}", String::from_utf8_lossy(&said.stdout));
        match said.status.code() {
            Some(0) => {}
            Some(1) => equal = false,
            _ => bail!("the judge fails: {}", String::from_utf8_lossy(&said.stderr).trim()),
        }
    }
    Ok(equal)
}

/// Numberings of selected paths, and whether they promise to be exact.
const SCHEMES: [(&str, bool); 9] = [
    ("ball-larus", true),
    ("spp", false),
    ("mspp", true),
    ("pertinent", true),
    ("pspp", true),
    ("ppp", true),
    ("known-table", true),
    ("ppp-optimal", true),
    ("approximate", false),
];

/// A program that counts all paths, with the profile of a run, from which others are made.
pub struct Selected {
    program: String,
    input: Input,
    /// Its profile.
    pub full: PathBuf,
    folder: PathBuf,
}

impl Selected {
    /// Builds and runs the program that counts all paths.
    ///
    /// # Errors
    /// A recipe or trodden failed.
    pub fn prepare(corpus: &Corpus, program: &str, input: Input) -> Result<Selected> {
        let variant = Variant::trodden();
        corpus.fetch(program)?;
        corpus.build_once(program, &variant)?;
        corpus.inputs(program)?;
        let folder = corpus.folder().join("selected");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let full = std::path::absolute(folder.join(format!("{program}.{}.trodden", input.name()))).context("there is no current folder")?;
        let selected = Selected { program: program.to_owned(), input, full, folder };
        selected.profile(corpus, &variant.folder(), &selected.full)?;
        Ok(selected)
    }

    /// Runs the program that counts all paths once more, and gives its profile.
    ///
    /// # Errors
    /// A recipe or trodden failed.
    pub fn run_full_again(&self, corpus: &Corpus) -> Result<PathBuf> {
        let stored = self.folder.join(format!("{}.{}.again.trodden", self.program, self.input.name()));
        self.profile(corpus, &Variant::trodden().folder(), &stored)?;
        Ok(stored)
    }

    /// Makes the program again to count the paths of a set by a scheme, runs it, and gives its profile.
    ///
    /// # Errors
    /// A recipe or trodden failed.
    pub fn run(&self, corpus: &Corpus, scheme: &str, set: &str) -> Result<PathBuf> {
        let build = format!("selected-{scheme}");
        let place = corpus.folder().join("bin").join(&build);
        std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        let full = corpus.program(&self.program, &Variant::trodden());
        let mut instrument = trodden();
        instrument.arg("instrument").arg(full).arg("-o").arg(place.join(&self.program)).args(["--scheme", scheme, "--interesting", set]);
        steps::output(&mut instrument)?;
        let stored = self.folder.join(format!("{}.{}.{scheme}.trodden", self.program, self.input.name()));
        self.profile(corpus, &build, &stored)?;
        Ok(stored)
    }

    fn profile(&self, corpus: &Corpus, build: &str, stored: &Path) -> Result<()> {
        let counts = corpus.folder().join("counts").join(format!("selected-{build}")).join(&self.program);
        if counts.exists() {
            std::fs::remove_dir_all(&counts).with_context(|| format!("cannot empty {}", counts.display()))?;
        }
        std::fs::create_dir_all(&counts).with_context(|| format!("cannot make {}", counts.display()))?;
        let output = std::path::absolute(counts.join("%m.raw")).context("there is no current folder")?;
        corpus.run_as(build, &self.program, self.input, "", &[("TRODDEN_OUTPUT", output.into())])?;
        steps::output(trodden().args(["collect", "--no-store", "-o"]).arg(stored).arg(&counts)).map(drop)
    }
}

/// The command as it was built.
pub fn trodden() -> std::process::Command {
    std::process::Command::new(steps::target().join("release/trodden"))
}

/// What the judges say of a run of a program that was built by trodden: a line for each judge and process, and what is behind it.
///
/// # Errors
/// The run or a judge failed, and there is no difference that explains it.
pub fn verdict(corpus: &Corpus, program: &str, variant: &Variant, input: Input, judge: &Path) -> Result<String> {
    let report = steps::target().join("corpus").join(format!("{program}.{}.{}.verdict", variant.folder(), input.name()));
    if report.exists() {
        std::fs::remove_file(&report).with_context(|| format!("cannot remove {}", report.display()))?;
    }
    let plugin = judge.with_file_name("libtrodden_instrument.so");
    let runner = format!("env TRODDEN_PLUGIN={} {} judge --report {} --", plugin.display(), judge.display(), report.display());
    let outcome = corpus.run(program, variant, input, &runner);
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    match outcome {
        Err(error) if !differs(&text) => Err(error),
        _ => Ok(text),
    }
}

fn differs(verdict: &str) -> bool {
    verdict.lines().any(|line| line.starts_with("  differs: "))
}
