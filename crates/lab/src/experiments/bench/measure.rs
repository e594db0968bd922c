//! One program's figures: all its variants built, run in turns, and what each used.

use super::exact;
use super::instructions::Counter;
use super::known::Known;
use super::overlap::{self, Margins};
use super::result::{BenchOutcome, BenchRow, Exact, Figures};
use super::statistics::Spread;
use super::usage::{self, Usage};
use crate::experiments::progress;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::Variant;
use trodden_corpus::steps;
use trodden_corpus::{Corpus, Input};

/// How all programs are measured.
pub struct Bench<'a> {
    /// Where programs are.
    pub corpus: &'a Corpus,
    /// The variants, bases before what is compared with them.
    pub variants: Vec<Ready>,
    /// The runs that are timed.
    pub input: Input,
    /// How often.
    pub rounds: usize,
    /// Who counts instructions.
    pub counter: Option<Counter>,
    /// The oracles' program, if counts are to be checked.
    pub oracle: Option<PathBuf>,
    /// The run in which they are counted.
    pub counted: Input,
    /// Build what is built already.
    pub rebuild: bool,
    /// Figures that do not change from run to run.
    pub known: Known,
}

/// A variant, and why it cannot be had on this machine.
pub struct Ready {
    variant: Variant,
    missing: Option<String>,
}

impl Ready {
    /// Installs what a variant takes, where that can be done.
    pub fn from_variant(variant: &Variant) -> Ready {
        let missing = variant.ensure().err().map(|e| format!("{e:#}"));
        if let Some(missing) = &missing {
            eprintln!("{} is left out: {missing}", variant.name());
        }
        Ready { variant: variant.clone(), missing }
    }
}

/// A variant of the program under way.
struct Runs<'a> {
    variant: &'a Variant,
    usage: Vec<Usage>,
    sums: Vec<String>,
    /// Of runs that a recorder sampled: how much their profiles have in common with the full one.
    overlaps: Vec<f64>,
    /// Of the same: how many true counts lie within the margins of their estimates.
    margins: Margins,
    /// Why there is nothing more to come.
    ended: Option<BenchOutcome>,
}

impl Runs<'_> {
    fn fail(&mut self, error: &anyhow::Error) {
        let reason = steps::without_root(&format!("{error:#}"));
        eprintln!("{} failed: {reason}", self.variant.name());
        self.ended = Some(BenchOutcome::Failed { reason });
    }
}

/// How near a sampled run comes to the full profile: the overlap of shares, and margins against true counts.
type Nearness = (f64, Margins);

impl Bench<'_> {
    /// Measures a program.
    ///
    /// # Errors
    /// Its sources or inputs cannot be had. What goes wrong with one variant is in that variant's row.
    pub fn program(&self, program: &str) -> Result<Vec<BenchRow>> {
        self.corpus.fetch(program)?;
        self.corpus.inputs(program)?;
        let is_rust = self.corpus.is_rust(program)?;
        let mut all: Vec<Runs> = self.variants.iter().map(|ready| self.built(program, ready, is_rust)).collect();
        self.run_in_turns(program, &mut all);
        let base_sums: Vec<(String, String)> = all.iter().filter_map(|r| Some((r.variant.name(), r.sums.first()?.clone()))).collect();
        let mut rows = Vec::new();
        for one in all {
            let own = one.sums.first().cloned();
            let base =
                one.variant.base().map_or(own, |base| base_sums.iter().find(|(name, _)| *name == base.name()).map(|(_, sum)| sum.clone()));
            let variant = one.variant.name();
            let outcome = self.outcome(program, one, base.as_ref());
            rows.push(BenchRow { program: program.to_owned(), variant, outcome });
        }
        progress("");
        Ok(rows)
    }

    /// Builds a program, and finds out what does not depend on the machine's mood; nothing is timed.
    ///
    /// # Errors
    /// Its sources or inputs cannot be had. What goes wrong with one variant is said, and comes again when it is measured.
    pub fn prepare(&self, program: &str) -> Result<()> {
        self.corpus.fetch(program)?;
        self.corpus.inputs(program)?;
        let is_rust = self.corpus.is_rust(program)?;
        for ready in &self.variants {
            let runs = self.built(program, ready, is_rust);
            if runs.ended.is_some() {
                continue;
            }
            let found = match runs.variant.under() {
                Some(_) => self.once_under(program, runs.variant).map(|_| ()),
                None if runs.variant.is_recorded() => Ok(()),
                None => self.instructions(program, runs.variant).and_then(|_| self.exact(program, runs.variant)).map(|_| ()),
            };
            if let Err(error) = found {
                eprintln!("{program}, {}: {error:#}", runs.variant.name());
            }
        }
        progress("");
        Ok(())
    }

    fn built<'a>(&self, program: &str, ready: &'a Ready, is_rust: bool) -> Runs<'a> {
        let variant = &ready.variant;
        let mut runs =
            Runs { variant, usage: Vec::new(), sums: Vec::new(), overlaps: Vec::new(), margins: Margins::default(), ended: None };
        let unsuited = if is_rust { variant.suits_rust().err().map(|e| e.to_string()) } else { None };
        if let Some(reason) = unsuited.or_else(|| ready.missing.clone()) {
            runs.ended = Some(BenchOutcome::Skipped { reason });
        } else if variant.under().is_none() {
            let rebuild = self.rebuild;
            let built = if rebuild { self.corpus.build(program, variant) } else { self.corpus.build_once(program, variant) };
            built.unwrap_or_else(|error| runs.fail(&self.with_log(program, variant, error)));
        }
        runs
    }

    /// The error with what the build said last.
    fn with_log(&self, program: &str, variant: &Variant, error: anyhow::Error) -> anyhow::Error {
        let log = std::fs::read_to_string(self.corpus.build_log(program, variant)).unwrap_or_default();
        match log.lines().rfind(|line| !line.trim().is_empty()) {
            Some(last) => anyhow::anyhow!("the build ends with `{}`", last.trim()),
            None => error,
        }
    }

    /// In each round, all variants.
    fn run_in_turns(&self, program: &str, all: &mut [Runs]) {
        let full = self.full_profile(program, all);
        for round in 1..=self.rounds {
            for one in all.iter_mut().filter(|r| r.ended.is_none() && r.variant.under().is_none()) {
                progress(&format!("{program}, round {round} of {}: {}", self.rounds, one.variant.name()));
                match self.run(program, one.variant, full.as_deref()) {
                    Ok((usage, sum, sampled)) => {
                        one.usage.push(usage);
                        one.sums.push(sum);
                        if let Some((overlap, margins)) = sampled {
                            one.overlaps.push(overlap);
                            one.margins.add(margins);
                        }
                    }
                    Err(error) => one.fail(&error),
                }
            }
        }
        for one in all.iter().filter(|runs| !runs.margins.is_empty()) {
            progress("");
            println!("{program}, {}: {}", one.variant.name(), one.margins);
        }
    }

    /// One run: what it used and printed, and how near a sampled one comes to the full profile.
    fn run(&self, program: &str, variant: &Variant, full: Option<&Path>) -> Result<(Usage, String, Option<Nearness>)> {
        let (usage, sum) = usage::of_run(self.corpus, program, variant, self.input)?;
        let full = full.filter(|_| variant.is_recorded());
        let Some(full) = full else { return Ok((usage, sum, None)) };
        let sampled = self.corpus.sampled_profile(program, variant, self.input);
        Ok((usage, sum, Some((overlap::of(full, &sampled)?, Margins::of(full, &sampled)?))))
    }

    /// What sampled runs are compared with, if there are any; they fail without it.
    fn full_profile(&self, program: &str, all: &mut [Runs]) -> Option<PathBuf> {
        let sampled: Vec<&mut Runs> = all.iter_mut().filter(|r| r.ended.is_none() && r.variant.is_recorded()).collect();
        if sampled.is_empty() {
            return None;
        }
        progress(&format!("{program}: the full profile, which sampled ones are compared with"));
        match self.corpus.full_profile(program, self.input) {
            Ok(profile) => Some(profile),
            Err(error) => {
                sampled.into_iter().for_each(|one| one.fail(&error));
                None
            }
        }
    }

    fn outcome(&self, program: &str, runs: Runs, base_sum: Option<&String>) -> BenchOutcome {
        if let Some(ended) = runs.ended {
            return ended;
        }
        let figures = match runs.variant.under() {
            Some(_) => self.once_under(program, runs.variant),
            None => self.figures(program, &runs, base_sum),
        };
        figures.map_or_else(|error| BenchOutcome::Failed { reason: steps::without_root(&format!("{error:#}")) }, BenchOutcome::Measured)
    }

    fn figures(&self, program: &str, runs: &Runs, base_sum: Option<&String>) -> Result<Figures> {
        let variant = runs.variant;
        let mut figures = of_usage(&runs.usage);
        figures.same_output = runs.sums.iter().all(|sum| Some(sum) == base_sum);
        figures.code_bytes = Some(code_bytes(&self.corpus.program(program, variant))?);
        figures.build_s = self.corpus.build_seconds(program, variant);
        figures.instructions = self.instructions(program, variant)?;
        figures.exact = self.exact(program, variant)?;
        figures.overlap = (!runs.overlaps.is_empty()).then(|| Spread::from_values(&runs.overlaps));
        Ok(figures)
    }

    /// Instructions of a run, if a tool counts them, and if they do not depend on chance.
    fn instructions(&self, program: &str, variant: &Variant) -> Result<Option<u64>> {
        let Some(counter) = self.counter.filter(|_| !variant.is_recorded()) else { return Ok(None) };
        let run = if self.counted == Input::Train { "" } else { " of the long run" };
        let what = format!("{program}: instructions{run}, by {}", counter.name());
        let find = || {
            progress(&format!("{what}: {}", variant.name()));
            counter.of_run(self.corpus, program, variant, self.counted)
        };
        self.known.once(&what, &[&self.corpus.program(program, variant)], |_| true, find).map(Some)
    }

    /// What oracles say of trodden's counts, if they are asked.
    fn exact(&self, program: &str, variant: &Variant) -> Result<Option<Exact>> {
        let Some(oracle) = self.oracle.as_deref().filter(|_| variant.is_exact()) else { return Ok(None) };
        let find = || {
            progress(&format!("{program}, counts against oracles: {}", variant.name()));
            Ok(exact::check(self.corpus, program, variant, oracle))
        };
        let files = [self.corpus.program(program, variant), oracle.to_owned()];
        let came_to_a_verdict = |exact: &Exact| matches!(exact, Exact::Checked(_));
        self.known.once(&format!("{program}: exactness"), &files.each_ref().map(PathBuf::as_path), came_to_a_verdict, find).map(Some)
    }

    /// One short run under a tool, beside one of the base. It is there for scale, so one that was made once will do.
    fn once_under(&self, program: &str, variant: &Variant) -> Result<Figures> {
        let base = variant.base().context("it has no base")?;
        let find = || {
            progress(&format!("{program}, once: {}", variant.name()));
            let (alone, plain_sum) = usage::of_run(self.corpus, program, &base, Input::Train)?;
            let (usage, sum) = usage::of_run(self.corpus, program, variant, Input::Train)?;
            let mut figures = of_usage(&[usage]);
            figures.same_output = sum == plain_sum;
            figures.base_user_s = Some(alone.user_s);
            Ok(figures)
        };
        let file = self.corpus.program(program, variant);
        self.known.once(&format!("{program}: {}", variant.name()), &[&file], |figures| figures.same_output, find)
    }
}

fn of_usage(usage: &[Usage]) -> Figures {
    let user_s: Vec<f64> = usage.iter().map(|u| u.user_s).collect();
    Figures {
        user: Spread::from_values(&user_s),
        user_s,
        wall_s: usage.iter().map(|u| u.wall_s).collect(),
        base_user_s: None,
        instructions: None,
        code_bytes: None,
        memory_kb: usage.iter().map(|u| u.memory_kb).max().unwrap_or_default(),
        build_s: None,
        same_output: true,
        exact: None,
        overlap: None,
    }
}

/// The size of the program's section of code.
///
/// # Errors
/// It cannot be read, or has none.
pub fn code_bytes(program: &Path) -> Result<u64> {
    let listing = steps::output(Command::new("size").args(["--format=sysv"]).arg(program))?;
    let size = listing.lines().find_map(|line| line.strip_prefix(".text ")?.split_whitespace().next()?.parse().ok());
    size.with_context(|| format!("{} has no section .text", program.display()))
}
