//! `trodden-lab experiment bugs`: can paths locate seeded bugs that line and branch coverage cannot?
//!
//! Each bug in `corpus/bugs` is a patch of a corpus program. The program's result is wrong only if a single execution of a function takes
//! two particular branches. Every run takes both branches, but only failing runs take both in the same execution. A run fails if its output
//! differs from that of the unpatched program. Line and branch coverage come from an unoptimised build by clang. The rank of the path comes
//! from `trodden isolate` on an ordinary build.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use trodden_corpus::Corpus;
use trodden_corpus::CorpusVariant;
use trodden_corpus::packages::{self, PackagePurpose};
use trodden_corpus::steps;
use trodden_corpus::steps::build_trodden;

/// Names of the builds of the patched program.
const PATH_PROFILE_BUILD: &str = "seeded";
const COVERAGE_BUILD: &str = "coverage";
/// A bug counts as found if its path has at most this rank.
const MAX_RANK_OF_FOUND_BUG: usize = 3;

#[derive(Debug, Args)]
pub struct BugsOptions {
    /// Programs to use [default: gzip, lua and mawk].
    programs: Vec<String>,
    /// Working folder [default: that of the corpus].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The `trodden` program to use instead of building one.
    #[arg(long, value_name = "FILE")]
    trodden: Option<PathBuf>,
}

struct SeededBug {
    program: &'static str,
    /// The source file and the function that contain the bug.
    place: (&'static str, &'static str),
    /// The text with which the function's definition starts.
    definition: &'static str,
    /// Texts that identify the two branches. A branch extends from the first line with its text to the next closing brace; a single line
    /// would not be enough, because a path may start after a loop within the branch.
    branches: [&'static str; 2],
    /// The parts of which inputs are composed. A run fails if and only if it contains the fourth part.
    parts: [&'static str; 4],
    /// Creates the input files in a folder, given the unpatched program and the folder.
    prepare: fn(&Path, &Path) -> Result<()>,
    /// Returns the arguments of a run, given the run's folder, number and parts.
    arguments: fn(&Path, usize, &[&str]) -> Result<Vec<OsString>>,
}

const SEEDED_BUGS: &[SeededBug] = &[
    SeededBug {
        program: "gzip",
        place: ("gzip.c", "get_method"),
        definition: "local int get_method(in)",
        branches: ["discard_input_bytes (len, flags);", "discard_input_bytes (-1, flags);\n            header_rest"],
        parts: ["none.gz", "extra.gz", "comment.gz", "both.gz"],
        prepare: write_compressed_files,
        arguments: |_, _, parts| Ok(["-dcv"].iter().chain(parts).map(OsString::from).collect()),
    },
    SeededBug {
        program: "lua",
        place: ("src/loslib.c", "os_date"),
        definition: "static int os_date",
        branches: ["stm = l_gmtime(&t, &tmr);", "setallfields(L, stm);"],
        parts: ["'%Y-%j', ", "'!%Y-%j', ", "'*t', ", "'!*t', "],
        prepare: |_, _| Ok(()),
        arguments: |folder, number, parts| {
            let calls: String = parts.iter().map(|p| format!("show(os.date({p}86400000))\n")).collect();
            let show = "local function show(v) if type(v) == 'table' then print(v.year, v.yday) else print(v) end end\n";
            write_script(folder, number, &format!("{show}{calls}"))
        },
    },
    SeededBug {
        program: "mawk",
        place: ("bi_funct.c", "bi_substr"),
        definition: "\nbi_substr(CELL *sp)",
        branches: ["cast1_to_s(sp);", "cast2_to_d(sp + 1);"],
        parts: ["\"abcdefg\", 2, 3", "1234567, 2, 3", "\"abcdefg\", \"2\", \"3\"", "1234567, \"2\", \"3\""],
        prepare: |_, _| Ok(()),
        arguments: |folder, number, parts| {
            let calls: String = parts.iter().map(|p| format!("print substr({p})\n")).collect();
            let file = write_script(folder, number, &format!("BEGIN {{\n{calls}}}\n"))?;
            Ok([OsString::from("-f")].into_iter().chain(file).collect())
        },
    },
];

struct BugOutcome {
    failing: usize,
    passing: usize,
    lines: CoverageComparison,
    branches: CoverageComparison,
    /// Rank of the first path through both branches, its Ochiai score, and the number of paths with the same score; `None` if there is no
    /// such path.
    path: Option<(usize, f64, usize)>,
}

/// Coverage of failing runs compared with that of passing runs.
struct CoverageComparison {
    failing: usize,
    passing: usize,
    is_equal: bool,
    /// Highest Ochiai score of a line or branch.
    ochiai: f64,
    /// Ochiai score of code that every run executes.
    covered_by_all: f64,
}

/// Runs all bugs, or those of the selected programs. Fails if a program cannot be fetched, built or run; if a bug's path is not ranked high
/// enough; or if coverage distinguishes failing from passing runs.
pub fn run(options: &BugsOptions) -> Result<()> {
    packages::ensure_packages_for(PackagePurpose::Bench)?;
    let trodden = match &options.trodden {
        Some(trodden) => std::path::absolute(trodden)?,
        None => build_trodden()?.join("trodden"),
    };
    let corpus = options.folder.as_deref().map_or_else(Corpus::in_target, Corpus::in_folder);
    if let Some(unknown) = options.programs.iter().find(|p| SEEDED_BUGS.iter().all(|b| b.program != p.as_str())) {
        bail!(
            "no bug is known for program {unknown}. Choose from {}",
            SEEDED_BUGS.iter().map(|b| b.program).collect::<Vec<_>>().join(", ")
        );
    }
    println!(
        "| program | function | failing, passing runs | lines covered by failing, passing runs | branches | best Ochiai of a line, a \
                branch | rank of the path | its Ochiai | paths with that score |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    for bug in SEEDED_BUGS.iter().filter(|b| options.programs.is_empty() || options.programs.iter().any(|p| p == b.program)) {
        let outcome = locate_bug(&corpus, bug, &trodden).with_context(|| format!("cannot measure the bug in {}", bug.program))?;
        println!("{}", format_row(bug, &outcome));
        if outcome.path.is_none_or(|(rank, ..)| rank > MAX_RANK_OF_FOUND_BUG) {
            wrong.push(format!("{}: the path is not among the top {MAX_RANK_OF_FOUND_BUG}", bug.program));
        }
        if !outcome.lines.is_equal || !outcome.branches.is_equal {
            wrong.push(format!("{}: coverage of failing and passing runs differs", bug.program));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

fn format_row(bug: &SeededBug, outcome: &BugOutcome) -> String {
    let covered = |c: &CoverageComparison| format!("{}, {}: {}", c.failing, c.passing, if c.is_equal { "equal" } else { "different" });
    let path = outcome.path.map_or("not found | - | -".into(), |(rank, ochiai, tied)| format!("{rank} | {ochiai:.3} | {tied}"));
    format!(
        "| {} | `{}` | {}, {} | {} | {} | {:.3}, {:.3} (code covered by all runs: {:.3}) | {path} |",
        bug.program,
        bug.place.1,
        outcome.failing,
        outcome.passing,
        covered(&outcome.lines),
        covered(&outcome.branches),
        outcome.lines.ochiai,
        outcome.branches.ochiai,
        outcome.lines.covered_by_all,
    )
}

fn locate_bug(corpus: &Corpus, bug: &SeededBug, trodden: &Path) -> Result<BugOutcome> {
    corpus.ensure_packages(&[bug.program.to_owned()])?;
    corpus.fetch(bug.program)?;
    corpus.build_once(bug.program, &CorpusVariant::plain())?;
    let seeded = Corpus::in_folder(&corpus.folder().join("bugs"));
    let source = copy_and_patch(corpus, &seeded, bug.program)?;
    build_seeded_program(&seeded, bug.program, trodden)?;
    let work = seeded.folder().join("runs").join(bug.program);
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).with_context(|| format!("cannot create folder {}", work.display()))?;
    let plain = corpus.program(bug.program, &CorpusVariant::plain());
    (bug.prepare)(&plain, &work)?;
    let binary = |build: &str| seeded.folder().join("bin").join(build).join(bug.program);
    let (mut failed, mut coverage) = (Vec::new(), Vec::new());
    for (number, parts) in compose_run_arguments(&bug.parts).iter().enumerate() {
        let arguments = (bug.arguments)(&work, number, parts)?;
        let result = |output: &Output| (output.status.code(), output.stdout.clone(), output.stderr.clone());
        let expected = result(&subject_command(&plain, &arguments, &work).output()?);
        let profile = format!("{number}.trodden");
        let mut record = Command::new(trodden);
        record
            .args(["record", "--no-store", "-o", &profile, "--"])
            .arg(binary(PATH_PROFILE_BUILD))
            .args(&arguments)
            .env("TRODDEN_QUIET", "1");
        let actual = result(&with_working_folder(record, &work).output().context("cannot run trodden")?);
        ensure!(fs::exists(work.join(&profile))?, "run {number} wrote no profile: {}", String::from_utf8_lossy(&actual.2));
        failed.push(actual != expected);
        coverage.push(measure_coverage(&binary(COVERAGE_BUILD), &arguments, &work)?);
    }
    ensure!(
        failed.iter().any(|f| *f) && failed.iter().any(|f| !f),
        "{} of {} runs failed, but the comparison needs both failing and passing runs",
        failed.iter().filter(|f| **f).count(),
        failed.len()
    );
    Ok(BugOutcome {
        failing: failed.iter().filter(|f| **f).count(),
        passing: failed.iter().filter(|f| !**f).count(),
        lines: compare_coverage(&failed, coverage.iter().map(|c| &c.0)),
        branches: compare_coverage(&failed, coverage.iter().map(|c| &c.1)),
        path: rank_path(trodden, &work, &failed, bug, &source)?,
    })
}

/// Copies the sources and applies the patch. Returns the folder of the patched sources.
fn copy_and_patch(corpus: &Corpus, seeded: &Corpus, program: &str) -> Result<PathBuf> {
    let (from, to) = (corpus.folder().join("src").join(program), seeded.folder().join("src").join(program));
    let _ = fs::remove_dir_all(&to);
    fs::create_dir_all(seeded.folder().join("src"))?;
    steps::output(Command::new("cp").arg("-a").arg(&from).arg(&to))?;
    let patch = steps::checkout_root().join("corpus/bugs").join(format!("{program}.patch"));
    steps::output(Command::new("patch").arg("-d").arg(&to).args(["-p1", "--input"]).arg(&patch))?;
    Ok(to)
}

fn build_seeded_program(seeded: &Corpus, program: &str, trodden: &Path) -> Result<()> {
    let drivers = seeded.folder().join("drivers");
    steps::output(Command::new(trodden).arg("drivers").arg(&drivers))?;
    let own = |name: &str| drivers.join(name).into_os_string();
    let store = seeded.folder().join("store").into_os_string();
    let paths = [("CC", own("trodden-cc")), ("CXX", own("trodden-c++")), ("TRODDEN_CACHE", store), ("TRODDEN_QUIET", "1".into())];
    seeded.build_as(PATH_PROFILE_BUILD, program, &paths)?;
    let flags = "-O0 -g -fprofile-instr-generate -fcoverage-mapping";
    seeded.build_as(COVERAGE_BUILD, program, &[("CFLAGS", flags.into()), ("LDFLAGS", "-fprofile-instr-generate".into())])
}

/// Composes runs from the four parts. Each run has the first three parts in some order, and also the fourth part if it is to fail, or else
/// one of the first three parts again.
fn compose_run_arguments<'a>(parts: &[&'a str; 4]) -> Vec<Vec<&'a str>> {
    let mut runs = Vec::new();
    for fourth in 0..4 {
        let all = [0, 1, 2, fourth];
        for first in 0..4 {
            let rotated: Vec<&str> = (0..4).map(|i| parts[all[(first + i) % 4]]).collect();
            let swapped = vec![rotated[1], rotated[0], rotated[2], rotated[3]];
            runs.extend([rotated, swapped]);
        }
    }
    runs.sort();
    runs.dedup();
    runs
}

fn with_working_folder(mut command: Command, folder: &Path) -> Command {
    command.current_dir(folder).stdin(Stdio::null()).env("LC_ALL", "C").env("TZ", "UTC");
    command
}

fn subject_command(binary: &Path, arguments: &[OsString], folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments);
    with_working_folder(command, folder)
}

/// Source locations of covered lines or of taken branches.
type CodeLocations = BTreeSet<String>;

fn measure_coverage(binary: &Path, arguments: &[OsString], work: &Path) -> Result<(CodeLocations, CodeLocations)> {
    let (raw, profile) = (work.join("run.profraw"), work.join("run.profdata"));
    subject_command(binary, arguments, work).env("LLVM_PROFILE_FILE", &raw).output().context("cannot run the coverage build")?;
    steps::output(Command::new("llvm-profdata-22").args(["merge", "-o"]).arg(&profile).arg(&raw))?;
    let mut export = Command::new("llvm-cov-22");
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&profile).arg(binary);
    let (mut lines, mut branches, mut file) = (CodeLocations::new(), CodeLocations::new(), String::new());
    for line in steps::output(&mut export)?.lines() {
        let taken = |count: &str| count != "0" && count != "-";
        match line.split_once(':') {
            Some(("SF", name)) => file = name.to_owned(),
            Some(("DA", rest)) => {
                let (number, count) = rest.split_once(',').context("llvm-cov printed a DA line without two fields")?;
                lines.extend(taken(count).then(|| format!("{file}:{number}")));
            }
            Some(("BRDA", rest)) => {
                let (branch, count) = rest.rsplit_once(',').context("llvm-cov printed a BRDA line without four fields")?;
                branches.extend(taken(count).then(|| format!("{file}:{branch}")));
            }
            _ => {}
        }
    }
    ensure!(!lines.is_empty() && !branches.is_empty(), "{} has no coverage data", binary.display());
    Ok((lines, branches))
}

fn compare_coverage<'a>(failed: &[bool], coverage: impl Iterator<Item = &'a CodeLocations>) -> CoverageComparison {
    let mut tallies: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (names, failed) in coverage.zip(failed) {
        for name in names {
            let (failing, passing) = tallies.entry(name).or_default();
            *(if *failed { failing } else { passing }) += 1;
        }
    }
    let all = failed.iter().filter(|f| **f).count();
    let ochiai = |(f, p): (usize, usize)| f as f64 / ((all * (f + p)) as f64).sqrt();
    CoverageComparison {
        failing: tallies.values().filter(|t| t.0 > 0).count(),
        passing: tallies.values().filter(|t| t.1 > 0).count(),
        is_equal: tallies.values().all(|(f, p)| (*f > 0) == (*p > 0)),
        ochiai: tallies.values().map(|t| ochiai(*t)).fold(0.0, f64::max),
        covered_by_all: ochiai((all, failed.len() - all)),
    }
}

/// Returns the rank of the first path through both branches, its Ochiai score, and the number of paths with the same score.
fn rank_path(trodden: &Path, work: &Path, failed: &[bool], bug: &SeededBug, sources: &Path) -> Result<Option<(usize, f64, usize)>> {
    let text = String::from_utf8_lossy(&fs::read(sources.join(bug.place.0))?).into_owned();
    let body = text.find(bug.definition).with_context(|| format!("cannot find function {1} in {0}", bug.place.0, bug.place.1))?;
    let lines = |mark: &str| -> Result<RangeInclusive<u64>> {
        let at = body + text[body..].find(mark).with_context(|| format!("source file {} does not contain `{mark}`", bug.place.0))?;
        let first = text[..at].matches('\n').count() as u64 + 1;
        let end = text[at..]
            .lines()
            .position(|l| l.trim() == "}")
            .with_context(|| format!("source file {} has no closing brace after `{mark}`", bug.place.0))?;
        Ok(first..=first + end as u64)
    };
    let branches = [lines(bug.branches[0])?, lines(bug.branches[1])?];
    let mut isolate = Command::new(trodden);
    isolate.args(["isolate", "--json", "--top", "1000"]);
    for (number, failed) in failed.iter().enumerate() {
        isolate.args([if *failed { "--failing" } else { "--passing" }, &format!("{number}.trodden")]);
    }
    let found: Value =
        serde_json::from_str(&steps::output(isolate.current_dir(work))?).context("`trodden isolate --json` printed invalid JSON")?;
    let suspects = found["suspects"].as_array().context("the output of `trodden isolate --json` contains no suspects")?;
    let through_both = |s: &&Value| {
        let outline: BTreeSet<u64> = s["outline"].as_str().unwrap_or_default().split('-').filter_map(|w| w.parse().ok()).collect();
        s["function"] == bug.place.1 && branches.iter().all(|b| outline.range(b.clone()).next().is_some())
    };
    let score = |s: &Value| s["ochiai"].as_f64().unwrap_or(0.0);
    Ok(suspects.iter().find(through_both).map(|s| {
        let tied = suspects.iter().filter(|o| score(o) == score(s)).count();
        (s["rank"].as_u64().unwrap_or(0) as usize, score(s), tied)
    }))
}

fn write_script(folder: &Path, number: usize, text: &str) -> Result<Vec<OsString>> {
    let name = format!("{number}.script");
    fs::write(folder.join(&name), text).with_context(|| format!("cannot write {name}"))?;
    Ok(vec![name.into()])
}

/// Creates a gzip file for each combination of two optional header fields of RFC 1952: none, an extra field, a comment, and both.
fn write_compressed_files(gzip: &Path, folder: &Path) -> Result<()> {
    let text: String = (0..2000).map(|i| format!("line {} of a text that is to be packed\n", i * i % 977)).collect();
    fs::write(folder.join("text"), text)?;
    let packed = subject_command(gzip, &["-nc".into(), "text".into()], folder).output()?.stdout;
    ensure!(packed.len() > 18 && packed[3] == 0, "expected no optional fields in the header that `gzip -n` writes");
    let (extra, comment) = ([&[0x2c, 1][..], &[b'x'; 0x12c]].concat(), b"a comment\0".to_vec());
    let file = |name: &str, flags: u8, fields: &[&[u8]]| {
        let header = [&packed[..3], &[flags], &packed[4..10]].concat();
        fs::write(folder.join(name), [header, fields.concat(), packed[10..].to_vec()].concat())
    };
    file("none.gz", 0, &[])?;
    file("extra.gz", 4, &[&extra])?;
    file("comment.gz", 16, &[&comment])?;
    Ok(file("both.gz", 20, &[&extra, &comment])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_contain_the_first_three_parts_and_few_fail() {
        let all = compose_run_arguments(&["a", "b", "c", "d"]);
        assert!(all.iter().all(|run| ["a", "b", "c"].iter().all(|p| run.contains(p))));
        let failing = all.iter().filter(|r| r.contains(&"d")).count();
        assert!(failing == 8 && all.len() > 2 * failing, "{} of {}", failing, all.len());
    }

    #[test]
    fn coverage_is_compared_by_location() {
        let names = |of: &[&str]| of.iter().map(|n| (*n).to_owned()).collect::<CodeLocations>();
        let (one, two) = (names(&["a", "b"]), names(&["b"]));
        let equal = compare_coverage(&[true, false, false], [&one, &one, &two].into_iter());
        assert!(
            equal.is_equal && (equal.ochiai - 1.0 / 2f64.sqrt()).abs() < 1e-9 && (equal.covered_by_all - 1.0 / 3f64.sqrt()).abs() < 1e-9
        );
        let different = compare_coverage(&[true, false], [&one, &two].into_iter());
        assert_eq!((different.is_equal, different.failing, different.passing, different.ochiai), (false, 2, 1, 1.0));
    }
}
