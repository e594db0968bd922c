//! Measures one program: builds all variants, runs them in turns, and records the resource usage of each.

use super::exact;
use super::instructions::InstructionCounter;
use super::overlap::{self, MarginAccuracy};
use super::result::{BenchFigures, BenchOutcome, BenchRow, ExactnessCheck};
use super::result_cache::ResultCache;
use super::statistics::MedianAndRange;
use super::usage::{self, ProcessUsage};
use crate::experiments::show_progress;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::CorpusVariant;
use trodden_corpus::steps;
use trodden_corpus::{Corpus, CorpusInput};

pub struct BenchRunner<'a> {
    pub corpus: &'a Corpus,
    /// The variants, each after its base.
    pub variants: Vec<PreparedVariant>,
    pub input: CorpusInput,
    pub rounds: usize,
    pub counter: Option<InstructionCounter>,
    /// Path of the oracle program; `None` if counts are not checked.
    pub oracle: Option<PathBuf>,
    /// Input of the runs whose instructions are counted.
    pub counted: CorpusInput,
    pub rebuild: bool,
    /// Caches results that do not vary between runs.
    pub cache: ResultCache,
}

/// A variant, and the reason if it is not available on this machine.
pub struct PreparedVariant {
    variant: CorpusVariant,
    missing: Option<String>,
}

impl PreparedVariant {
    pub fn from_variant(variant: &CorpusVariant) -> PreparedVariant {
        let missing = variant.ensure_tools_exist().err().map(|e| format!("{e:#}"));
        if let Some(missing) = &missing {
            eprintln!("{} is skipped: {missing}", variant.name());
        }
        PreparedVariant { variant: variant.clone(), missing }
    }
}

struct VariantRuns<'a> {
    variant: &'a CorpusVariant,
    usage: Vec<ProcessUsage>,
    sums: Vec<String>,
    /// Overlap of each sampled profile with the full profile.
    overlaps: Vec<f64>,
    /// How often true counts are within the margins of the sampled runs' estimates.
    margins: MarginAccuracy,
    /// The reason for which the variant is no longer run; `None` while it is.
    ended: Option<BenchOutcome>,
}

impl VariantRuns<'_> {
    fn mark_failed(&mut self, error: &anyhow::Error) {
        let reason = steps::strip_root(&format!("{error:#}"));
        eprintln!("{} failed: {reason}", self.variant.name());
        self.ended = Some(BenchOutcome::Failed { reason });
    }
}

/// A sampled profile's overlap with the full profile, and how often true counts are within its margins.
type SampleAccuracy = (f64, MarginAccuracy);

impl BenchRunner<'_> {
    /// Measures a program. If a variant fails, its row has the reason.
    pub fn measure_program(&self, program: &str) -> Result<Vec<BenchRow>> {
        self.corpus.fetch(program)?;
        self.corpus.create_inputs(program)?;
        let is_rust = self.corpus.is_rust(program)?;
        let mut all: Vec<VariantRuns> = self.variants.iter().map(|ready| self.build_variant(program, ready, is_rust)).collect();
        self.run_in_turns(program, &mut all);
        let base_sums: Vec<(String, String)> = all.iter().filter_map(|r| Some((r.variant.name(), r.sums.first()?.clone()))).collect();
        let mut rows = Vec::new();
        for one in all {
            let own = one.sums.first().cloned();
            let base =
                one.variant.base().map_or(own, |base| base_sums.iter().find(|(name, _)| *name == base.name()).map(|(_, sum)| sum.clone()));
            let variant = one.variant.name();
            let outcome = self.compute_outcome(program, one, base.as_ref());
            rows.push(BenchRow { program: program.to_owned(), variant, outcome });
        }
        show_progress("");
        Ok(rows)
    }

    /// Builds a program and computes the figures that do not depend on the state of the machine. Times nothing. If a variant fails, only
    /// prints the reason, because measuring the variant will fail, too.
    pub fn prepare_program(&self, program: &str) -> Result<()> {
        self.corpus.fetch(program)?;
        self.corpus.create_inputs(program)?;
        let is_rust = self.corpus.is_rust(program)?;
        for ready in &self.variants {
            let runs = self.build_variant(program, ready, is_rust);
            if runs.ended.is_some() {
                continue;
            }
            let found = match runs.variant.simulator() {
                Some(_) => self.measure_under_tool(program, runs.variant).map(|_| ()),
                None if runs.variant.is_sampled() => Ok(()),
                None => {
                    self.count_instructions(program, runs.variant).and_then(|_| self.check_exactness(program, runs.variant)).map(|_| ())
                }
            };
            if let Err(error) = found {
                eprintln!("{program}, {}: {error:#}", runs.variant.name());
            }
        }
        show_progress("");
        Ok(())
    }

    fn build_variant<'a>(&self, program: &str, ready: &'a PreparedVariant, is_rust: bool) -> VariantRuns<'a> {
        let variant = &ready.variant;
        let mut runs = VariantRuns {
            variant,
            usage: Vec::new(),
            sums: Vec::new(),
            overlaps: Vec::new(),
            margins: MarginAccuracy::default(),
            ended: None,
        };
        let unsuited = if is_rust { variant.check_rust_support().err().map(|e| e.to_string()) } else { None };
        if let Some(reason) = unsuited.or_else(|| ready.missing.clone()) {
            runs.ended = Some(BenchOutcome::Skipped { reason });
        } else if variant.simulator().is_none() {
            let rebuild = self.rebuild;
            let built = if rebuild { self.corpus.build(program, variant) } else { self.corpus.build_once(program, variant) };
            built.unwrap_or_else(|error| runs.mark_failed(&self.explain_from_log(program, variant, error)));
        }
        runs
    }

    /// Returns an error that quotes the last line of the build log, or `error` if the log is empty.
    fn explain_from_log(&self, program: &str, variant: &CorpusVariant, error: anyhow::Error) -> anyhow::Error {
        let log = std::fs::read_to_string(self.corpus.build_log(program, variant)).unwrap_or_default();
        match log.lines().rfind(|line| !line.trim().is_empty()) {
            Some(last) => anyhow::anyhow!("the build failed: its output ends with `{}`", last.trim()),
            None => error,
        }
    }

    fn run_in_turns(&self, program: &str, all: &mut [VariantRuns]) {
        let full = self.record_full_profile(program, all);
        for round in 1..=self.rounds {
            for one in all.iter_mut().filter(|r| r.ended.is_none() && r.variant.simulator().is_none()) {
                show_progress(&format!("{program}, round {round} of {}: {}", self.rounds, one.variant.name()));
                match self.run_variant(program, one.variant, full.as_deref()) {
                    Ok((usage, sum, sampled)) => {
                        one.usage.push(usage);
                        one.sums.push(sum);
                        if let Some((overlap, margins)) = sampled {
                            one.overlaps.push(overlap);
                            one.margins.add(margins);
                        }
                    }
                    Err(error) => one.mark_failed(&error),
                }
            }
        }
        for one in all.iter().filter(|runs| !runs.margins.is_empty()) {
            show_progress("");
            println!("{program}, {}: {}", one.variant.name(), one.margins);
        }
    }

    /// Runs a variant once. Returns its resource usage, the checksum of its output, and (for sampled runs) the accuracy of the profile.
    fn run_variant(
        &self,
        program: &str,
        variant: &CorpusVariant,
        full: Option<&Path>,
    ) -> Result<(ProcessUsage, String, Option<SampleAccuracy>)> {
        let (usage, sum) = usage::measure_run(self.corpus, program, variant, self.input)?;
        let full = full.filter(|_| variant.is_sampled());
        let Some(full) = full else { return Ok((usage, sum, None)) };
        let sampled = self.corpus.sampled_profile(program, variant, self.input);
        Ok((usage, sum, Some((overlap::compute_overlap(full, &sampled)?, MarginAccuracy::compare(full, &sampled)?))))
    }

    /// Returns the full profile if there are sampled variants. If recording the profile fails, these variants fail, too.
    fn record_full_profile(&self, program: &str, all: &mut [VariantRuns]) -> Option<PathBuf> {
        let sampled: Vec<&mut VariantRuns> = all.iter_mut().filter(|r| r.ended.is_none() && r.variant.is_sampled()).collect();
        if sampled.is_empty() {
            return None;
        }
        show_progress(&format!("{program}: recording the full profile for comparison with the sampled ones"));
        match self.corpus.full_profile(program, self.input) {
            Ok(profile) => Some(profile),
            Err(error) => {
                sampled.into_iter().for_each(|one| one.mark_failed(&error));
                None
            }
        }
    }

    fn compute_outcome(&self, program: &str, runs: VariantRuns, base_sum: Option<&String>) -> BenchOutcome {
        if let Some(ended) = runs.ended {
            return ended;
        }
        let figures = match runs.variant.simulator() {
            Some(_) => self.measure_under_tool(program, runs.variant),
            None => self.compute_figures(program, &runs, base_sum),
        };
        figures.map_or_else(|error| BenchOutcome::Failed { reason: steps::strip_root(&format!("{error:#}")) }, BenchOutcome::Measured)
    }

    fn compute_figures(&self, program: &str, runs: &VariantRuns, base_sum: Option<&String>) -> Result<BenchFigures> {
        let variant = runs.variant;
        let mut figures = figures_from_usage(&runs.usage);
        figures.same_output = runs.sums.iter().all(|sum| Some(sum) == base_sum);
        figures.code_bytes = Some(measure_code_bytes(&self.corpus.program(program, variant))?);
        figures.build_s = self.corpus.build_seconds(program, variant);
        figures.instructions = self.count_instructions(program, variant)?;
        figures.exact = self.check_exactness(program, variant)?;
        figures.overlap = (!runs.overlaps.is_empty()).then(|| MedianAndRange::from_values(&runs.overlaps));
        Ok(figures)
    }

    /// Returns the instruction count of a run; `None` if no counting tool is available or the variant is sampled.
    fn count_instructions(&self, program: &str, variant: &CorpusVariant) -> Result<Option<u64>> {
        let Some(counter) = self.counter.filter(|_| !variant.is_sampled()) else { return Ok(None) };
        let run = if self.counted == CorpusInput::Train { "" } else { " of the long run" };
        let what = format!("{program}: instructions{run}, by {}", counter.name());
        let compute = || {
            show_progress(&format!("{what}: {}", variant.name()));
            counter.count_run(self.corpus, program, variant, self.counted)
        };
        self.cache.get_or_compute(&what, &[&self.corpus.program(program, variant)], |_| true, compute).map(Some)
    }

    /// Checks the counts of a variant. Returns `None` if the variant is not exact or no oracle was built.
    fn check_exactness(&self, program: &str, variant: &CorpusVariant) -> Result<Option<ExactnessCheck>> {
        let Some(oracle) = self.oracle.as_deref().filter(|_| variant.is_exact()) else { return Ok(None) };
        let compute = || {
            show_progress(&format!("{program}, counts against oracles: {}", variant.name()));
            Ok(exact::check_counts(self.corpus, program, variant, oracle))
        };
        let files = [self.corpus.program(program, variant), oracle.to_owned()];
        let has_verdict = |exact: &ExactnessCheck| matches!(exact, ExactnessCheck::Checked(_));
        self.cache.get_or_compute(&format!("{program}: exactness"), &files.each_ref().map(PathBuf::as_path), has_verdict, compute).map(Some)
    }

    /// Measures one short run of a variant under a simulator, and one of its base. Only the order of magnitude of the ratio matters, so a
    /// cached result is good enough.
    fn measure_under_tool(&self, program: &str, variant: &CorpusVariant) -> Result<BenchFigures> {
        let base = variant.base().context("cannot compare the variant, because it has no base build")?;
        let compute = || {
            show_progress(&format!("{program}, once: {}", variant.name()));
            let (alone, plain_sum) = usage::measure_run(self.corpus, program, &base, CorpusInput::Train)?;
            let (usage, sum) = usage::measure_run(self.corpus, program, variant, CorpusInput::Train)?;
            let mut figures = figures_from_usage(&[usage]);
            figures.same_output = sum == plain_sum;
            figures.base_user_s = Some(alone.user_s);
            Ok(figures)
        };
        let file = self.corpus.program(program, variant);
        self.cache.get_or_compute(&format!("{program}: {}", variant.name()), &[&file], |figures| figures.same_output, compute)
    }
}

fn figures_from_usage(usage: &[ProcessUsage]) -> BenchFigures {
    let user_s: Vec<f64> = usage.iter().map(|u| u.user_s).collect();
    BenchFigures {
        user: MedianAndRange::from_values(&user_s),
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

/// Returns the size of a program's `.text` section, in bytes.
pub fn measure_code_bytes(program: &Path) -> Result<u64> {
    let listing = steps::output(Command::new("size").args(["--format=sysv"]).arg(program))?;
    let size = listing.lines().find_map(|line| line.strip_prefix(".text ")?.split_whitespace().next()?.parse().ok());
    size.with_context(|| format!("{} has no .text section", program.display()))
}
