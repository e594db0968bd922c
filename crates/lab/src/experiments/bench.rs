//! `trodden-lab experiment bench`: what counting costs on programs of the corpus, beside other ways of counting.
//!
//! Each variant of each program does the same runs, in turns (so that a machine that slows down slows all of them), and
//! what it prints is compared with its base's. Times are of the program alone: reading counts comes later and is not
//! part of them. Instructions are counted in a run of their own. A variant that cannot be built or run becomes a row
//! with the reason; the rest goes on.
//!
//! | file | what |
//! |---|---|
//! | `variant.rs` | ways to build, a table |
//! | `measure.rs`, `usage.rs`, `instructions.rs` | one program's figures |
//! | `exact.rs`, `overlap.rs` | counts against independent oracles; sampled profiles beside full ones |
//! | `known.rs` | figures that need not be found out twice |
//! | `result.rs` | what is stored |
//! | `table.rs`, `plot.rs` | what people see of it |
//! | `compare.rs`, `statistics.rs` | two results beside each other |

mod compare;
mod exact;
pub mod instructions;
mod known;
pub mod measure;
mod overlap;
mod plot;
pub mod result;
pub mod statistics;
mod table;
pub mod usage;

use anyhow::{Context, Result, bail};
use clap::Args;
use instructions::Counter;
use known::Known;
use measure::{Bench, Ready};
use result::{About, BenchMachine, BenchOutcome, BenchResult, SCHEMA_VERSION};
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::Variant;
use trodden_corpus::oracle;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;
use trodden_corpus::steps::build_trodden;
use trodden_corpus::{Corpus, Input};

/// The programs measured where none are named: compression (2), an interpreter, C++.
const PROGRAMS: &[&str] = &["bzip2", "lua", "gzip", "minisat"];
/// The variants measured where none are named.
const VARIANTS: &[&str] = &["trodden", "clang-edges"];

/// `trodden-lab experiment bench`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab experiment bench                                            four programs, trodden and clang's edge profile
  trodden-lab experiment bench --programs lua --short                     a first impression
  trodden-lab experiment bench --programs all --variants all --rebuild    everything, on a quiet machine: tables, plot, JSON
  trodden-lab experiment bench --programs all --variants all --prepare    builds, instructions, oracles: so that the former takes less time
  trodden-lab experiment bench --variants trodden,trodden:max-paths=64    what do other parameters cost?
  trodden-lab experiment bench --programs lua --compare docs/benchmarks/2026-01-31.json
  trodden-lab experiment bench --compare old.json --with new.json         two results, nothing measured

--compare exits with status 1 if something has become slower; `docs/handbook/src/benchmarks.md` says how that differs from noise.")]
pub struct BenchOptions {
    /// Programs of the corpus, or `all`.
    #[arg(long, value_delimiter = ',', default_values = PROGRAMS)]
    programs: Vec<String>,
    /// Builds to compare, `trodden:OPTIONS` among them (of TRODDEN_INSTRUMENT, joined by `+`), or `all`; what they are compared with is
    /// always there.
    #[arg(long, value_delimiter = ',', default_values = VARIANTS)]
    variants: Vec<String>,
    /// Short runs, and three of each; counts are not checked.
    #[arg(long)]
    short: bool,
    /// Runs of each variant; their median counts.
    #[arg(long)]
    rounds: Option<usize>,
    /// The run whose instructions are counted. Variants that go by a profile of the short run may fare otherwise in the long one.
    #[arg(long, value_enum, value_name = "RUN", default_value_t = Input::Train)]
    instructions_of: Input,
    /// Do not count instructions.
    #[arg(long)]
    no_instructions: bool,
    /// Hold trodden's counts against LLVM's own and against block counters, in the short run; `--exact false` leaves it
    /// out. By default on, and off with --short.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    exact: Option<bool>,
    /// Build everything again, so that build times are those of the machine's present state.
    #[arg(long)]
    rebuild: bool,
    /// Build, count instructions and check counts, but time nothing: what a busy machine does not change is found out in advance, and kept.
    #[arg(long, conflicts_with_all = ["resume", "compare"])]
    prepare: bool,
    /// Where DATE.json, DATE.md and DATE.svg go; results of the same day are replaced. By default where a resumed
    /// result is, else `target/bench`.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Go on with an interrupted result, which is replaced: programs that are in it are not measured again.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Compare with an earlier result.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Compare this result, and measure nothing.
    #[arg(long, value_name = "FILE", requires = "compare")]
    with: Option<PathBuf>,
    /// Draw the tables and the chart of a result that is kept, and measure nothing: DATE.md and DATE.svg, where `--output` says.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["resume", "compare", "prepare"])]
    draw: Option<PathBuf>,
}

/// Builds, runs, prints, writes; or only compares.
///
/// # Errors
/// A program printed something else than its base, counts differ from an oracle's, something became slower than in the
/// result compared with, or no variant could be measured at all.
pub fn run(options: &BenchOptions) -> Result<()> {
    if let Some(file) = &options.draw {
        return draw(file, options.output.as_deref().unwrap_or(Path::new("target/bench")));
    }
    let old = options.compare.as_deref().map(BenchResult::read).transpose()?;
    let suite = match &options.with {
        Some(file) => BenchResult::read(file)?,
        None => match measured(options)? {
            Some(suite) => suite,
            None => return Ok(()),
        },
    };
    if let Some(old) = old {
        let comparison = compare::compare(&old, &suite)?;
        print!("{}", compare::render(&old, &suite, &comparison));
        let slower = comparison.iter().filter(|c| c.is_slower()).count();
        if slower > 0 {
            bail!("{slower} of {} comparisons found something slower; they are marked above", comparison.len());
        }
    }
    Ok(())
}

/// Tables and chart of a result.
fn draw(file: &Path, folder: &Path) -> Result<()> {
    let suite = BenchResult::read(file)?;
    let stem = file.file_stem().map_or_else(|| "result".into(), |stem| folder.join(stem));
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let put = |end: &str, text: &str| {
        let file = stem.with_extension(end);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("written: {}", file.display());
        Ok(())
    };
    put("md", &table::markdown(&suite))?;
    plot::svg(&suite).map_or(Ok(()), |svg| put("svg", &svg))
}

/// Measures; nothing comes of preparing.
fn measured(options: &BenchOptions) -> Result<Option<BenchResult>> {
    packages::ensure(PackagePurpose::Bench)?;
    let corpus = Corpus::own();
    let programs = corpus.programs(&options.programs)?;
    corpus.ensure_packages(&programs)?;
    let variants = variants(&options.variants)?;
    let (bench, mut suite) = begin(options, &corpus, &variants)?;
    if options.prepare {
        programs.iter().try_for_each(|program| bench.prepare(program))?;
        return Ok(None);
    }
    let files = Files::new(options, &suite)?;
    for program in &programs {
        if suite.rows.iter().any(|row| row.program == *program) {
            eprintln!("{program} is in the result already");
            continue;
        }
        suite.rows.extend(bench.program(program)?);
        files.write(&suite)?;
    }
    print!("{}", table::text(&suite));
    files.write(&suite)?;
    eprintln!("written: {}.json, .md, .svg", files.stem.display());
    check(&suite)?;
    Ok(Some(suite))
}

/// What is found out once: tools, oracles, who counts; and the result so far.
fn begin<'a>(options: &BenchOptions, corpus: &'a Corpus, variants: &[Variant]) -> Result<(Bench<'a>, BenchResult)> {
    let input = if options.short { Input::Train } else { Input::Ref };
    let rounds = options.rounds.unwrap_or(if options.short { 3 } else { 7 });
    if rounds == 0 {
        bail!("--rounds must be at least 1");
    }
    let with_trodden = variants.iter().any(Variant::is_trodden);
    if with_trodden {
        build_trodden()?;
    }
    let oracle = if with_trodden && options.exact.unwrap_or(!options.short) { Some(oracle::build_oracle()?) } else { None };
    let counter = if options.no_instructions { None } else { Counter::available() };
    let ready = variants.iter().map(Ready::from_variant).collect();
    let known = Known::at(&corpus.folder().join("known.json"));
    let counted = options.instructions_of;
    let bench = Bench { corpus, variants: ready, input, rounds, counter, counted, oracle, rebuild: options.rebuild, known };
    let fresh = BenchResult {
        schema_version: SCHEMA_VERSION,
        date: steps::output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned(),
        commit: steps::commit(),
        machine: machine(),
        input: input.name().to_owned(),
        rounds,
        instructions_by: counter.map(|c| c.name().to_owned()),
        instructions_input: counted.name().to_owned(),
        variants: variants.iter().map(|v| About { name: v.name(), about: v.about(), base: v.base().map(|b| b.name()) }).collect(),
        rows: Vec::new(),
    };
    let suite = options.resume.as_deref().map_or(Ok(fresh.clone()), |file| resumed(file, &fresh))?;
    Ok((bench, suite))
}

/// An interrupted result, if it was made in the same way.
fn resumed(file: &Path, fresh: &BenchResult) -> Result<BenchResult> {
    let old = BenchResult::read(file)?;
    let same = old.input == fresh.input
        && old.instructions_input == fresh.instructions_input
        && old.rounds == fresh.rounds
        && old.variants == fresh.variants
        && old.machine == fresh.machine;
    if !same || old.commit != fresh.commit {
        bail!(
            "{} was measured otherwise (commit {}, input {}, {} rounds, other variants, or another machine): it cannot be gone on with",
            file.display(),
            old.commit,
            old.input,
            old.rounds
        );
    }
    Ok(old)
}

/// The variants asked for, each behind what it is compared with; the plain build first.
fn variants(asked: &[String]) -> Result<Vec<Variant>> {
    let names: Vec<String> = if asked.iter().any(|n| n == "all") {
        Variant::names().into_iter().map(str::to_owned).chain(asked.to_vec()).collect()
    } else {
        asked.to_vec()
    };
    let mut all = vec![Variant::plain()];
    for name in names.iter().filter(|n| *n != "all") {
        let variant = Variant::parse(name)?;
        for one in variant.base().into_iter().chain([variant]) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    Ok(all)
}

/// Where the result is written, after every program.
struct Files {
    stem: PathBuf,
}

impl Files {
    fn new(options: &BenchOptions, suite: &BenchResult) -> Result<Files> {
        let resumed = options.resume.as_deref().and_then(Path::parent).map(Path::to_owned);
        let folder = options.output.clone().or(resumed).unwrap_or_else(|| steps::target().join("bench"));
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Files { stem: folder.join(&suite.date) })
    }

    fn write(&self, suite: &BenchResult) -> Result<()> {
        let put = |extension: &str, text: String| {
            let file = self.stem.with_extension(extension);
            // Whole or not at all: an interruption must not cost the old one.
            let new = self.stem.with_extension(format!("{extension}.new"));
            std::fs::write(&new, text)
                .and_then(|()| std::fs::rename(&new, &file))
                .with_context(|| format!("cannot write {}", file.display()))
        };
        put("json", serde_json::to_string_pretty(suite).context("cannot write JSON")? + "\n")?;
        put("md", table::markdown(suite))?;
        plot::svg(suite).map_or(Ok(()), |svg| put("svg", svg))
    }
}

/// What must not be.
fn check(suite: &BenchResult) -> Result<()> {
    for row in &suite.rows {
        let Some(figures) = row.figures() else { continue };
        if !figures.same_output {
            bail!("{}: the {} build prints something else than its base", row.program, row.variant);
        }
        if figures.exact.as_ref().is_some_and(|exact| !exact.is_equal()) {
            bail!("{}: the counts of the {} build are not what independent oracles count; see the table", row.program, row.variant);
        }
    }
    let failed = suite.rows.iter().filter(|r| matches!(r.outcome, BenchOutcome::Failed { .. })).count();
    if failed > 0 {
        bail!("{failed} of {} builds or runs failed; the tables have the reasons", suite.rows.len());
    }
    Ok(())
}

/// Where this runs.
pub fn machine() -> BenchMachine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo").lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(": ")?.1.to_owned()));
    BenchMachine {
        processor: processor.unwrap_or_default(),
        cores: trodden_corpus::steps::jobs(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: &[&str]) -> Vec<String> {
        variants(&asked.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()).unwrap().iter().map(Variant::name).collect()
    }

    #[test]
    fn what_a_variant_is_compared_with_comes_before_it_and_once() {
        assert_eq!(names(&["gcc-coverage", "plain", "trodden"]), ["plain", "gcc", "gcc-coverage", "trodden"]);
        assert_eq!(names(&["all", "trodden:chords=off"]).len(), Variant::names().len() + 1);
        assert!(variants(&["nothing".into()]).is_err());
    }

    #[test]
    fn only_the_same_measurement_is_gone_on_with() {
        let suite = result::tests::suite(&[("a", "plain", &[1.0], 1)]);
        let file = std::env::temp_dir().join(format!("trodden-lab-resume-{}.json", std::process::id()));
        std::fs::write(&file, serde_json::to_string(&suite).unwrap()).unwrap();
        let same = resumed(&file, &BenchResult { rows: Vec::new(), ..suite.clone() });
        let other = resumed(&file, &BenchResult { rounds: 3, ..suite.clone() });
        std::fs::remove_file(&file).unwrap();
        assert_eq!(same.unwrap(), suite);
        assert!(other.unwrap_err().to_string().contains("5 rounds"));
    }
}
