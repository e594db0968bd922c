//! `cargo xtask bench`: what counting costs, on programs of the corpus, beside clang's own counters.
//!
//! Each variant of each program does the same runs, in turns (so that a machine that slows down slows all of them), and what it prints is compared
//! with the plain build's. Times are of the program alone: reading counts comes later and is not part of them. Instructions are counted in a
//! run of their own.

pub mod instructions;
pub mod statistics;
mod table;
pub mod usage;
pub mod variant;

use crate::corpus::{Corpus, Input};
use crate::demo::build_trodden;
use crate::packages::{self, Purpose};
use crate::steps;
use anyhow::{Context, Result, bail};
use clap::Args;
use instructions::Counter;
use serde::Serialize;
use statistics::Spread;
use std::path::{Path, PathBuf};
use std::process::Command;
use usage::Usage;
use variant::Variant;

/// The programs measured where none are named: compression (2), an interpreter, C++.
const PROGRAMS: &[&str] = &["bzip2", "lua", "gzip", "minisat"];

/// `cargo xtask bench`
#[derive(Debug, Args)]
pub struct Options {
    /// Programs of the corpus, or `all`.
    #[arg(long, value_delimiter = ',', default_values = PROGRAMS)]
    programs: Vec<String>,
    /// Builds to compare; the plain one is always there.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Variant::Trodden, Variant::ClangEdges])]
    variants: Vec<Variant>,
    /// Short runs, and three of each.
    #[arg(long)]
    short: bool,
    /// Runs of each variant; their median counts.
    #[arg(long)]
    rounds: Option<usize>,
    /// Do not count instructions.
    #[arg(long)]
    no_instructions: bool,
    /// Where the result goes, as JSON.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The result.
#[derive(Debug, Serialize)]
struct Suite {
    schema_version: u32,
    date: String,
    commit: String,
    machine: Machine,
    input: &'static str,
    rounds: usize,
    instructions_by: Option<&'static str>,
    rows: Vec<Row>,
}

/// Where it was measured.
#[derive(Debug, Serialize)]
struct Machine {
    processor: String,
    cores: usize,
    kernel: String,
}

/// One variant of one program.
#[derive(Debug, Serialize)]
struct Row {
    program: String,
    variant: Variant,
    /// Seconds of user time, of all its runs.
    user_s: Vec<f64>,
    user: Spread,
    /// Instructions of the short run.
    instructions: Option<u64>,
    /// Bytes of code.
    code_bytes: u64,
    /// The most memory that a process of it had.
    memory_kb: u64,
    build_s: Option<u64>,
    /// Does it print what the plain build prints?
    same_output: bool,
}

/// Builds, runs and prints.
///
/// # Errors
/// A build or a run failed, or a program printed something else than its plain build.
pub fn run(options: &Options) -> Result<()> {
    packages::ensure(Purpose::Bench)?;
    let corpus = Corpus::own();
    let programs = corpus.programs(&options.programs)?;
    corpus.ensure_packages(&programs)?;
    let variants = variants(&options.variants);
    prepare(&corpus, &programs, &variants)?;
    let input = if options.short { Input::Train } else { Input::Ref };
    let rounds = options.rounds.unwrap_or(if options.short { 3 } else { 5 });
    if rounds == 0 {
        bail!("--rounds must be at least 1");
    }
    let mut rows = timed(&corpus, &programs, &variants, input, rounds)?;
    let counter = if options.no_instructions { None } else { Counter::available() };
    if let Some(counter) = counter {
        count_instructions(&corpus, &mut rows, counter)?;
    }
    let suite = Suite {
        schema_version: 1,
        date: steps::output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned(),
        commit: steps::output(Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(steps::root()))
            .unwrap_or_default()
            .trim()
            .to_owned(),
        machine: machine(),
        input: input.name(),
        rounds,
        instructions_by: counter.map(Counter::name),
        rows,
    };
    print!("{}", table::render(&suite));
    write(&suite, options.output.as_deref())?;
    match suite.rows.iter().find(|row| !row.same_output) {
        Some(row) => bail!("{}: the {} build prints something else than the plain build", row.program, row.variant.name()),
        None => Ok(()),
    }
}

fn variants(asked: &[Variant]) -> Vec<Variant> {
    let mut all = vec![Variant::Plain];
    all.extend(asked.iter().filter(|v| **v != Variant::Plain));
    all
}

/// Sources, inputs and builds.
fn prepare(corpus: &Corpus, programs: &[String], variants: &[Variant]) -> Result<()> {
    if variants.contains(&Variant::Trodden) {
        build_trodden()?;
    }
    for program in programs {
        corpus.fetch(program)?;
        corpus.inputs(program)?;
        for variant in variants {
            corpus.build_once(program, *variant)?;
        }
    }
    Ok(())
}

/// All runs: in each round, all variants of all programs.
fn timed(corpus: &Corpus, programs: &[String], variants: &[Variant], input: Input, rounds: usize) -> Result<Vec<Row>> {
    let mut runs: Vec<Runs> = Vec::new();
    for program in programs {
        runs.extend(variants.iter().map(|variant| Runs { program, variant: *variant, usage: Vec::new(), sums: Vec::new() }));
    }
    for round in 1..=rounds {
        for one in &mut runs {
            steps::progress(&format!("round {round} of {rounds}: {}, {}", one.program, one.variant.name()));
            let (usage, sum) = usage::of_run(corpus, one.program, one.variant, input)?;
            one.usage.push(usage);
            one.sums.push(sum);
        }
    }
    steps::progress("");
    let plain_sum = |program: &str| runs.iter().find(|r| r.program == program && r.variant == Variant::Plain).and_then(|r| r.sums.first());
    runs.iter().map(|one| one.row(corpus, plain_sum(one.program))).collect()
}

/// The runs of one variant of one program.
struct Runs<'a> {
    program: &'a str,
    variant: Variant,
    usage: Vec<Usage>,
    sums: Vec<String>,
}

impl Runs<'_> {
    fn row(&self, corpus: &Corpus, plain_sum: Option<&String>) -> Result<Row> {
        let user_s: Vec<f64> = self.usage.iter().map(|u| u.user_s).collect();
        Ok(Row {
            program: self.program.to_owned(),
            variant: self.variant,
            user: Spread::of(&user_s),
            user_s,
            instructions: None,
            code_bytes: code_bytes(&corpus.program(self.program, self.variant))?,
            memory_kb: self.usage.iter().map(|u| u.memory_kb).max().unwrap_or_default(),
            build_s: corpus.build_seconds(self.program, self.variant),
            same_output: self.sums.iter().all(|sum| Some(sum) == plain_sum),
        })
    }
}

fn count_instructions(corpus: &Corpus, rows: &mut [Row], counter: Counter) -> Result<()> {
    for row in rows {
        steps::progress(&format!("instructions, by {}: {}, {}", counter.name(), row.program, row.variant.name()));
        row.instructions = Some(counter.of_run(corpus, &row.program, row.variant)?);
    }
    steps::progress("");
    Ok(())
}

/// The size of the program's section of code.
fn code_bytes(program: &Path) -> Result<u64> {
    let listing = steps::output(Command::new("size").args(["--format=sysv"]).arg(program))?;
    let size = listing.lines().find_map(|line| line.strip_prefix(".text ")?.split_whitespace().next()?.parse().ok());
    size.with_context(|| format!("{} has no section .text", program.display()))
}

fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo").lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.to_owned()));
    Machine {
        processor: processor.unwrap_or_default(),
        cores: crate::demo::jobs(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}

fn write(suite: &Suite, asked: Option<&Path>) -> Result<()> {
    let file = asked.map_or_else(|| steps::target().join("bench.json"), Path::to_owned);
    let text = serde_json::to_string_pretty(suite).context("cannot write JSON")?;
    std::fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("the same as JSON: {}", file.display());
    Ok(())
}
