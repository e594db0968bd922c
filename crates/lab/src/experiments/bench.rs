//! `trodden-lab experiment bench`: the overhead of counting on corpus programs, compared with other profilers.
//!
//! A program's variants (builds) run in turns, so that a slowdown of the machine affects all of them. A variant is measured against another
//! variant, its base, whose output it must print. Times do not include reading the counts. Instructions are counted in a separate run. If a
//! variant cannot be built or run, its row shows the reason.

mod compare;
mod exact;
pub mod instructions;
pub mod measure;
mod overlap;
pub mod plot;
pub mod result;
mod result_cache;
pub mod statistics;
mod table;
pub mod usage;

use anyhow::{Context, Result, bail};
use clap::Args;
use instructions::InstructionCounter;
use measure::{BenchRunner, PreparedVariant};
use result::{BenchMachine, BenchOutcome, BenchResult, SCHEMA_VERSION, VariantInfo};
use result_cache::ResultCache;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::CorpusVariant;
use trodden_corpus::oracle;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;
use trodden_corpus::steps::build_trodden;
use trodden_corpus::{Corpus, CorpusInput};

/// Programs measured by default: two compressors, an interpreter, and a C++ program.
const DEFAULT_PROGRAMS: &[&str] = &["bzip2", "lua", "gzip", "minisat"];
const DEFAULT_VARIANTS: &[&str] = &["trodden", "clang-edges"];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
    trodden-lab experiment bench                                            four programs, trodden and clang's edge profile
    trodden-lab experiment bench --programs lua --short                     a quick estimate
    trodden-lab experiment bench --programs all --variants all --rebuild    everything, on a quiet machine: tables, plot, JSON
    trodden-lab experiment bench --programs all --variants all --prepare    builds, instructions and oracles only, to save time later
    trodden-lab experiment bench --variants trodden,trodden:max-paths=64    the cost of other parameters
  trodden-lab experiment bench --programs lua --compare docs/benchmarks/2026-01-31.json
    trodden-lab experiment bench --compare old.json --with new.json         compare two results without measuring

--compare exits with status 1 if something became significantly slower; see `docs/handbook/src/benchmarks.md`.")]
pub struct BenchOptions {
    /// Corpus programs, or `all`.
    #[arg(long, value_delimiter = ',', default_values = DEFAULT_PROGRAMS)]
    programs: Vec<String>,
    /// Variants to measure, or `all`; `trodden:OPTIONS` takes options of TRODDEN_INSTRUMENT, joined by `+`. Bases are added.
    #[arg(long, value_delimiter = ',', default_values = DEFAULT_VARIANTS)]
    variants: Vec<String>,
    /// Use short runs, three of each, and do not check counts.
    #[arg(long)]
    short: bool,
    /// Number of runs of each variant; the median is reported [default: 7, or 3 with --short].
    #[arg(long)]
    rounds: Option<usize>,
    /// Run whose instructions are counted. Variants guided by a profile of the short run may behave differently in the long one.
    #[arg(long, value_enum, value_name = "RUN", default_value_t = CorpusInput::Train)]
    instructions_of: CorpusInput,
    /// Do not count instructions.
    #[arg(long)]
    no_instructions: bool,
    /// Check trodden's counts of the short run against LLVM's and against block counters [default: true, or false with --short].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    exact: Option<bool>,
    /// Rebuild everything, so that build times reflect the current state of the machine.
    #[arg(long)]
    rebuild: bool,
    /// Build, count instructions and check counts, but time nothing; the figures are cached for a later run on a quiet machine.
    #[arg(long, conflicts_with_all = ["resume", "compare"])]
    prepare: bool,
    /// Folder for DATE.json, DATE.md and DATE.svg; overwrites results of the same day [default: that of --resume, or
    /// `target/bench`].
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Continue an interrupted result and overwrite it; programs that it contains are not measured again.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Earlier result to compare with.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Compare this result instead of measuring.
    #[arg(long, value_name = "FILE", requires = "compare")]
    with: Option<PathBuf>,
    /// Draw the tables and chart of a stored result instead of measuring; writes DATE.md and DATE.svg to --output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resume", "compare", "prepare"])]
    draw: Option<PathBuf>,
}

/// Fails if a program's output or counts are wrong, if a variant is slower than in the compared result, or if a build or run failed. With
/// `--draw` or `--with`, only draws or compares stored results.
pub fn run(options: &BenchOptions) -> Result<()> {
    if let Some(file) = &options.draw {
        return draw_chart_of_result(file, options.output.as_deref().unwrap_or(Path::new("target/bench")));
    }
    let old = options.compare.as_deref().map(BenchResult::read).transpose()?;
    let suite = match &options.with {
        Some(file) => BenchResult::read(file)?,
        None => match measure_programs(options)? {
            Some(suite) => suite,
            None => return Ok(()),
        },
    };
    if let Some(old) = old {
        let comparison = compare::compare(&old, &suite)?;
        print!("{}", compare::render(&old, &suite, &comparison));
        let slower = comparison.iter().filter(|c| c.is_slower()).count();
        if slower > 0 {
            bail!("{slower} of {} variants became slower. They are marked in the table above", comparison.len());
        }
    }
    Ok(())
}

fn draw_chart_of_result(file: &Path, folder: &Path) -> Result<()> {
    let suite = BenchResult::read(file)?;
    let stem = file.file_stem().map_or_else(|| "result".into(), |stem| folder.join(stem));
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
    let put = |end: &str, text: &str| {
        let file = stem.with_extension(end);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("wrote {}", file.display());
        Ok(())
    };
    put("md", &table::render_markdown(&suite))?;
    plot::render_svg(&suite).map_or(Ok(()), |svg| put("svg", &svg))
}

fn measure_programs(options: &BenchOptions) -> Result<Option<BenchResult>> {
    packages::ensure_packages_for(PackagePurpose::Bench)?;
    let corpus = Corpus::in_target();
    let programs = corpus.programs(&options.programs)?;
    corpus.ensure_packages(&programs)?;
    let variants = resolve_variants(&options.variants)?;
    let (bench, mut suite) = prepare_bench(options, &corpus, &variants)?;
    if options.prepare {
        programs.iter().try_for_each(|program| bench.prepare_program(program))?;
        return Ok(None);
    }
    let files = ResultFiles::new(options, &suite)?;
    for program in &programs {
        if suite.rows.iter().any(|row| row.program == *program) {
            eprintln!("{program} is already in the result");
            continue;
        }
        suite.rows.extend(bench.measure_program(program)?);
        files.write(&suite)?;
    }
    print!("{}", table::render_table(&suite));
    files.write(&suite)?;
    eprintln!("wrote {}.json, .md and .svg", files.stem.display());
    check_result_is_exact(&suite)?;
    Ok(Some(suite))
}

/// Builds the tools and oracles, and selects the instruction counter. Also returns the result that is to be resumed, or an empty one.
fn prepare_bench<'a>(options: &BenchOptions, corpus: &'a Corpus, variants: &[CorpusVariant]) -> Result<(BenchRunner<'a>, BenchResult)> {
    let input = if options.short { CorpusInput::Train } else { CorpusInput::Ref };
    let rounds = options.rounds.unwrap_or(if options.short { 3 } else { 7 });
    if rounds == 0 {
        bail!("--rounds must be at least 1");
    }
    let with_trodden = variants.iter().any(CorpusVariant::is_trodden);
    if with_trodden {
        build_trodden()?;
    }
    let oracle = if with_trodden && options.exact.unwrap_or(!options.short) { Some(oracle::build_oracle()?) } else { None };
    let counter = if options.no_instructions { None } else { InstructionCounter::find_available() };
    let ready = variants.iter().map(PreparedVariant::from_variant).collect();
    let cache = ResultCache::in_file(&corpus.folder().join("known.json"));
    let counted = options.instructions_of;
    let bench = BenchRunner { corpus, variants: ready, input, rounds, counter, counted, oracle, rebuild: options.rebuild, cache };
    let new = BenchResult {
        schema_version: SCHEMA_VERSION,
        date: steps::output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned(),
        commit: steps::describe_commit(),
        machine: describe_machine(),
        input: input.name().to_owned(),
        rounds,
        instructions_by: counter.map(|c| c.name().to_owned()),
        instructions_input: counted.name().to_owned(),
        variants: variants.iter().map(|v| VariantInfo { name: v.name(), about: v.about(), base: v.base().map(|b| b.name()) }).collect(),
        rows: Vec::new(),
    };
    let suite = options.resume.as_deref().map_or(Ok(new.clone()), |file| read_result_to_resume(file, &new))?;
    Ok((bench, suite))
}

/// Reads an interrupted result. Fails if it was measured with different settings, on a different machine or at a different commit.
fn read_result_to_resume(file: &Path, new: &BenchResult) -> Result<BenchResult> {
    let old = BenchResult::read(file)?;
    let same = old.input == new.input
        && old.instructions_input == new.instructions_input
        && old.rounds == new.rounds
        && old.variants == new.variants
        && old.machine == new.machine;
    if !same || old.commit != new.commit {
        bail!(
            "cannot resume {}: it was measured with other settings or on a different machine (commit {}, input {}, {} rounds). Use the \
             same settings and machine, or start a new result",
            file.display(),
            old.commit,
            old.input,
            old.rounds
        );
    }
    Ok(old)
}

/// Returns the plain build, followed by the requested variants, each after its base.
fn resolve_variants(asked: &[String]) -> Result<Vec<CorpusVariant>> {
    let names: Vec<String> = if asked.iter().any(|n| n == "all") {
        CorpusVariant::names().into_iter().map(str::to_owned).chain(asked.to_vec()).collect()
    } else {
        asked.to_vec()
    };
    let mut all = vec![CorpusVariant::plain()];
    for name in names.iter().filter(|n| *n != "all") {
        let variant = CorpusVariant::parse(name)?;
        for one in variant.base().into_iter().chain([variant]) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    Ok(all)
}

struct ResultFiles {
    stem: PathBuf,
}

impl ResultFiles {
    fn new(options: &BenchOptions, suite: &BenchResult) -> Result<ResultFiles> {
        let resumed = options.resume.as_deref().and_then(Path::parent).map(Path::to_owned);
        let folder = options.output.clone().or(resumed).unwrap_or_else(|| steps::target_folder().join("bench"));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
        Ok(ResultFiles { stem: folder.join(&suite.date) })
    }

    fn write(&self, suite: &BenchResult) -> Result<()> {
        let put = |extension: &str, text: String| {
            let file = self.stem.with_extension(extension);
            // Renaming prevents an interruption from destroying the previous result.
            let new = self.stem.with_extension(format!("{extension}.new"));
            std::fs::write(&new, text)
                .and_then(|()| std::fs::rename(&new, &file))
                .with_context(|| format!("cannot write {}", file.display()))
        };
        put("json", serde_json::to_string_pretty(suite).context("cannot write JSON")? + "\n")?;
        put("md", table::render_markdown(suite))?;
        plot::render_svg(suite).map_or(Ok(()), |svg| put("svg", svg))
    }
}

/// Fails if outputs differ, counts are wrong, or a build or run failed.
fn check_result_is_exact(suite: &BenchResult) -> Result<()> {
    for row in &suite.rows {
        let Some(figures) = row.figures() else { continue };
        if !figures.same_output {
            bail!("{}: the output of the {} build differs from the output of its base build", row.program, row.variant);
        }
        if figures.exact.as_ref().is_some_and(|exact| !exact.is_equal()) {
            bail!("{}: the counts of the {} build differ from the counts of the oracles. See the table", row.program, row.variant);
        }
    }
    let failed = suite.rows.iter().filter(|r| matches!(r.outcome, BenchOutcome::Failed { .. })).count();
    if failed > 0 {
        bail!("{failed} of {} builds or runs failed. The tables show the reasons", suite.rows.len());
    }
    Ok(())
}

pub fn describe_machine() -> BenchMachine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo").lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.to_owned()));
    BenchMachine {
        processor: processor.unwrap_or_default(),
        cores: trodden_corpus::steps::job_count(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_strings(asked: &[&str]) -> Vec<String> {
        resolve_variants(&asked.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()).unwrap().iter().map(CorpusVariant::name).collect()
    }

    #[test]
    fn base_precedes_its_variants_and_is_listed_once() {
        assert_eq!(to_strings(&["gcc-coverage", "plain", "trodden"]), ["plain", "gcc", "gcc-coverage", "trodden"]);
        assert_eq!(to_strings(&["all", "trodden:chords=off"]).len(), CorpusVariant::names().len() + 1);
        assert!(resolve_variants(&["nothing".into()]).is_err());
    }

    #[test]
    fn result_with_other_settings_is_not_resumed() {
        let suite = result::tests::create_result(&[("a", "plain", &[1.0], 1)]);
        let file = std::env::temp_dir().join(format!("trodden-lab-resume-{}.json", std::process::id()));
        std::fs::write(&file, serde_json::to_string(&suite).unwrap()).unwrap();
        let same = read_result_to_resume(&file, &BenchResult { rows: Vec::new(), ..suite.clone() });
        let other = read_result_to_resume(&file, &BenchResult { rounds: 3, ..suite.clone() });
        std::fs::remove_file(&file).unwrap();
        assert_eq!(same.unwrap(), suite);
        assert!(other.unwrap_err().to_string().contains("5 rounds"));
    }
}
