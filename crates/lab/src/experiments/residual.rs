//! `trodden-lab experiment residual`: which paths of long runs do short runs and suites of many inputs not take, and how much does counting
//! enlarge programs?
//!
//! Reproduces tables 3.1, 3.3 and 3.4 of Vaswani's thesis on corpus programs. A program that counts all paths runs the tests and the field
//! (production) inputs. `trodden untested` compares the two profiles. Its result must equal that of the independent
//! `trodden-oracle untested`, and is compared with the counts of a program that runs the field input and counts only untested paths.

mod page;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use trodden_corpus::CorpusVariant;
use trodden_corpus::oracle::{build_oracle, trodden};
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;
use trodden_corpus::{Corpus, CorpusInput};

/// Programs measured by default. Each builds within minutes.
const DEFAULT_PROGRAMS: &[&str] =
    &["gzip", "bzip2", "mawk", "minisat", "hmmer", "zstd", "lua", "linkgrammar", "quickjs", "sqlite", "gnugo", "x264"];
/// Builds whose size is compared with that of the plain build.
const BUILDS_WITH_MEASURED_SIZE: [&str; 4] = ["trodden", "ppp", "known-table", "residual"];

const SCHEMA_VERSION: u32 = 3;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab experiment residual                                        twelve programs
  trodden-lab experiment residual gzip lua --output docs/benchmarks/residual")]
pub struct ResidualOptions {
    /// Corpus programs [default: twelve that build within minutes].
    programs: Vec<String>,
    /// Folder for DATE.md and DATE.json, written after each program; rows of the newest result there are kept, except those of
    /// programs named on the command line.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Figures that `trodden-oracle untested` prints: the columns of table 3.1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct UntestedFigures {
    tested_paths: u64,
    executed_paths: u64,
    untested_paths: u64,
    executions: String,
    untested_executions: String,
    functions: u64,
    untested_edges: u64,
    functions_with_untested_edges: u64,
    untested_paths_in_functions_without_untested_edges: u64,
    all_edges_tested: u64,
}

impl UntestedFigures {
    /// Returns the untested share of the paths taken in the field, in percent.
    fn share_of_paths(&self) -> f64 {
        percent(self.untested_paths as f64, self.executed_paths as f64)
    }

    /// Returns the untested share of the executions in the field, in percent.
    fn share_of_executions(&self) -> f64 {
        let number = |text: &str| text.parse().unwrap_or(f64::NAN);
        percent(number(&self.untested_executions), number(&self.executions))
    }

    /// Returns the share of untested paths that are in functions all of whose edges are tested, in percent.
    fn share_without_edges(&self) -> f64 {
        percent(self.untested_paths_in_functions_without_untested_edges as f64, self.untested_paths as f64)
    }
}

fn percent(part: f64, all: f64) -> f64 {
    if all == 0.0 { 0.0 } else { 100.0 * part / all }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ResidualBuild {
    /// The program that counts only untested paths counts them as often as the program that counts all paths.
    Equal,
    /// The counts differ, but so do those of two runs of the program that counts all paths.
    RunsDiffer,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SuiteFigures {
    runs: usize,
    untested: UntestedFigures,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ResidualRow {
    /// Commit of trodden with which the row was measured.
    commit: String,
    /// Table 3.1: the short run compared with the long run.
    untested: UntestedFigures,
    residual_build: ResidualBuild,
    /// Table 3.3: the short run and a suite compared with the long run; `None` if the program has no suite.
    suite: Option<SuiteFigures>,
    /// Table 3.4: sizes of `.text` and of all loaded sections in bytes, by build.
    sizes: BTreeMap<String, [u64; 2]>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ResidualResults {
    schema_version: u32,
    date: String,
    programs: BTreeMap<String, ResidualRow>,
}

/// Measures the programs, and prints tables. Fails if `trodden` and the oracle disagree.
pub fn run(options: &ResidualOptions) -> Result<()> {
    packages::ensure_packages_for(PackagePurpose::Bench)?;
    let oracle = build_oracle()?;
    let corpus = Corpus::in_target();
    let programs = corpus.prepare(&options.programs, DEFAULT_PROGRAMS)?;
    let mut results = ResidualResults::read_newest(options.output.as_deref())?;
    for program in &programs {
        if options.programs.is_empty() && results.programs.contains_key(program) {
            continue;
        }
        let row = ResidualSubject::prepare(&corpus, program, &oracle)?.measure_row().with_context(|| program.clone())?;
        results.programs.insert(program.clone(), row);
        if let Some(folder) = &options.output {
            results.write(folder)?;
        }
    }
    print!("{}", page::render_page(&results));
    Ok(())
}

impl ResidualResults {
    /// Reads the newest results in a folder, if there are any, and sets their date to today.
    fn read_newest(folder: Option<&Path>) -> Result<ResidualResults> {
        let date = steps::output(Command::new("date").args(["-u", "+%F"]))?.trim().to_owned();
        let files = folder.and_then(|f| std::fs::read_dir(f).ok()).into_iter().flatten().flatten().map(|entry| entry.path());
        let Some(file) = files.filter(|f| f.extension().is_some_and(|e| e == "json")).max() else {
            return Ok(ResidualResults { schema_version: SCHEMA_VERSION, date, programs: BTreeMap::new() });
        };
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let old: ResidualResults =
            serde_json::from_str(&text).with_context(|| format!("{} is corrupt. Delete this file", file.display()))?;
        ensure!(old.schema_version == SCHEMA_VERSION, "{} has a different schema version. Delete this file", file.display());
        Ok(ResidualResults { date, ..old })
    }

    fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
        for (ending, text) in [("json", serde_json::to_string_pretty(self)? + "\n"), ("md", page::render_page(self))] {
            let file = folder.join(&self.date).with_extension(ending);
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }
}

struct ResidualSubject<'a> {
    corpus: &'a Corpus,
    program: &'a str,
    oracle: &'a Path,
    folder: PathBuf,
}

impl<'a> ResidualSubject<'a> {
    fn prepare(corpus: &'a Corpus, program: &'a str, oracle: &'a Path) -> Result<ResidualSubject<'a>> {
        corpus.fetch(program)?;
        corpus.build_once(program, &CorpusVariant::plain())?;
        corpus.build_once(program, &CorpusVariant::trodden())?;
        corpus.create_inputs(program)?;
        let folder = std::path::absolute(corpus.folder().join("residual").join(program))
            .context("cannot determine the current folder. Change to an existing folder")?;
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot create folder {}", folder.display()))?;
        Ok(ResidualSubject { corpus, program, oracle, folder })
    }

    fn measure_row(&self) -> Result<ResidualRow> {
        let full = CorpusVariant::trodden().folder();
        let tests = self.record_profile(&full, CorpusInput::Train, "train")?;
        let field = self.record_profile(&full, CorpusInput::Ref, "ref")?;
        let untested = self.compare_with_oracle(&[&tests], &field)?;
        let residual_build = self.check_residual_build(&tests, &field)?;
        let suite = match self.corpus.suite_runs(self.program)? {
            0 => None,
            runs => {
                let suite = self.record_profile(&full, CorpusInput::Suite, "suite")?;
                Some(SuiteFigures { runs, untested: self.compare_with_oracle(&[&tests, &suite], &field)? })
            }
        };
        Ok(ResidualRow {
            commit: trodden_corpus::steps::describe_commit(),
            untested,
            residual_build,
            suite,
            sizes: self.measure_sizes(&tests)?,
        })
    }

    /// Runs a build, and stores its counts as a profile.
    fn record_profile(&self, build: &str, input: CorpusInput, name: &str) -> Result<PathBuf> {
        let counts = self.folder.join(name);
        if counts.exists() {
            std::fs::remove_dir_all(&counts).with_context(|| format!("cannot remove {}", counts.display()))?;
        }
        std::fs::create_dir_all(&counts).with_context(|| format!("cannot create folder {}", counts.display()))?;
        self.corpus.run_as(build, self.program, input, "", &[("TRODDEN_OUTPUT", counts.join("%m.raw").into())])?;
        let stored = counts.with_extension("trodden");
        steps::output(trodden().args(["import", "--no-store", "-o"]).arg(&stored).arg(&counts))?;
        Ok(stored)
    }

    /// Returns the oracle's figures for the paths that the field takes and the tests do not. Fails unless `trodden untested` agrees with
    /// the oracle.
    fn compare_with_oracle(&self, tests: &[&Path], field: &Path) -> Result<UntestedFigures> {
        let merged = self.folder.join("tests.trodden");
        steps::output(trodden().arg("merge").args(tests).arg("-o").arg(&merged))?;
        let printed = steps::output(Command::new(self.oracle).arg("untested").arg(&merged).arg(field))?;
        let checked: UntestedFigures = serde_json::from_str(&printed).context("`trodden-oracle untested` printed invalid JSON")?;
        let mut residual = trodden();
        residual.arg("untested").arg(field);
        for known in tests {
            residual.arg("--known").arg(known);
        }
        let reported = untested_summary(&mut residual)?;
        let expected = [
            ("untested_paths", checked.untested_paths),
            ("counted_paths", checked.executed_paths),
            ("functions", checked.functions),
            ("untested_edges", checked.untested_edges),
            ("functions_with_untested_edges", checked.functions_with_untested_edges),
            ("untested_paths_in_functions_without_untested_edges", checked.untested_paths_in_functions_without_untested_edges),
            ("all_edges_tested", checked.all_edges_tested),
        ];
        for (name, wanted) in expected {
            ensure!(
                reported[name] == wanted,
                "{}: according to `trodden untested`, {name} is {}, but according to the oracle it is {wanted}",
                self.program,
                reported[name]
            );
        }
        ensure!(
            format_number(&reported["untested_executions"]) == checked.untested_executions,
            "{}: `trodden untested` and the oracle report different values of untested_executions",
            self.program
        );
        Ok(checked)
    }

    /// Runs the field input with a program that counts only untested paths, and compares its counts with those of the program that counts
    /// all.
    fn check_residual_build(&self, tests: &Path, field: &Path) -> Result<ResidualBuild> {
        let counted =
            self.record_profile(&self.reinstrument("residual", "", &["--residual".as_ref(), tests.as_ref()])?, CorpusInput::Ref, "field")?;
        let of = |field: &Path| -> Result<(String, String)> {
            let reported = untested_summary(trodden().arg("untested").arg(field).arg("--known").arg(tests))?;
            Ok((format_number(&reported["untested_paths"]), format_number(&reported["untested_executions"])))
        };
        let expected = of(field)?;
        if of(&counted)? == expected {
            return Ok(ResidualBuild::Equal);
        }
        let again = of(&self.record_profile(&CorpusVariant::trodden().folder(), CorpusInput::Ref, "again")?)?;
        ensure!(
            again != expected,
            "{}: the residual build counted {:?} (paths, executions) instead of {expected:?}",
            self.program,
            of(&counted)?
        );
        Ok(ResidualBuild::RunsDiffer)
    }

    /// Instruments the program again with different options. Returns the name of the new build.
    fn reinstrument(&self, name: &str, choices: &str, options: &[&std::ffi::OsStr]) -> Result<String> {
        let build = format!("residual-{name}");
        let place = self.corpus.folder().join("bin").join(&build);
        std::fs::create_dir_all(&place).with_context(|| format!("cannot create folder {}", place.display()))?;
        let full = self.corpus.program(self.program, &CorpusVariant::trodden());
        let mut instrument = trodden();
        instrument.arg("instrument").arg(full).arg("-o").arg(place.join(self.program)).args(options);
        steps::output(instrument.env(steps::LABORATORY_VARIABLE, choices))?;
        Ok(build)
    }

    /// Returns, for each build, the size of `.text` and the size of all loaded sections.
    fn measure_sizes(&self, tests: &Path) -> Result<BTreeMap<String, [u64; 2]>> {
        let mut sizes = BTreeMap::from([("plain".to_owned(), section_sizes(&self.corpus.program(self.program, &CorpusVariant::plain()))?)]);
        for name in BUILDS_WITH_MEASURED_SIZE {
            let program = match name {
                "trodden" => self.corpus.program(self.program, &CorpusVariant::trodden()),
                "residual" => self.corpus.folder().join("bin/residual-residual").join(self.program),
                scheme => {
                    let options = ["--interesting".as_ref(), tests.as_ref()];
                    let build = self.reinstrument(scheme, &format!("--scheme {scheme}"), &options)?;
                    self.corpus.folder().join("bin").join(build).join(self.program)
                }
            };
            sizes.insert(name.to_owned(), section_sizes(&program)?);
        }
        Ok(sizes)
    }
}

fn untested_summary(residual: &mut Command) -> Result<serde_json::Value> {
    let text = steps::output(residual.args(["--json", "--top", "0"]))?;
    let mut reported: serde_json::Value = serde_json::from_str(&text).context("`trodden untested --json` printed invalid JSON")?;
    Ok(reported["summary"].take())
}

/// Formats a JSON number, which is written as a string if it is large.
fn format_number(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the sizes of `.text` and of all loaded sections (text, data and bss), in bytes.
fn section_sizes(program: &Path) -> Result<[u64; 2]> {
    let listing = steps::output(Command::new("size").arg("--format=berkeley").arg(program))?;
    let loaded = listing.lines().nth(1).and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    let loaded = loaded.with_context(|| format!("cannot find the total size of {} in the output of `size`", program.display()))?;
    Ok([crate::experiments::bench::measure::measure_code_bytes(program)?, loaded])
}
