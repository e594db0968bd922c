//! `trodden suite coverage`: which test adds which lines, and which paths.
//!
//! Tests come in the order of *additional coverage*: next is the one that executes most lines that none before it has executed; of equal
//! ones, that which takes most new paths; of equal ones again, the one recorded first. With each stands what no other test has.

use super::diff::ranges;
use super::{CoverageMapping, Lines};
use crate::cli::SuiteCoverage;
use crate::notes::{Progress, note, warn};
use crate::output::{json_text, print};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use trodden_analysis::changes::ChangedLines;
use trodden_analysis::git;
use trodden_analysis::suite::{PathIndex, Suite};
use trodden_profile::{Maps, Profile};
use trodden_report::escape;
use trodden_report::words::plural;
use trodden_stored::named;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// A line, by its file and number.
type Line = (String, u32);

/// What a test executes.
#[derive(Debug, Default)]
struct Executed {
    name: String,
    lines: BTreeSet<Line>,
    paths: BTreeSet<PathIndex>,
    duration_ns: u64,
}

/// A test in its place.
#[derive(Debug)]
struct Placed<'t> {
    test: &'t Executed,
    new_lines: Vec<Line>,
    new_paths: usize,
    only_lines: usize,
    only_paths: usize,
}

/// Shows what each test of a suite adds.
///
/// # Errors
/// There is no such suite, or as of [`CoverageMapping::new`].
pub fn run(job: &SuiteCoverage) -> Result<()> {
    let (tests, all_lines) = load(job)?;
    let placed = in_order(&tests);
    let bytes = match job.json {
        true => json_text(&json!({
            "schema_version": SCHEMA_VERSION, "kind": "suite-coverage", "suite": job.suite, "lines": all_lines,
            "tests": placed.iter().map(to_json).collect::<Vec<_>>(),
        }))?,
        false => escape::lines(&text(&placed, all_lines, job.lines)).into_bytes(),
    };
    print(&bytes)
}

/// The tests, and the number of lines that have code.
fn load(job: &SuiteCoverage) -> Result<(Vec<Executed>, usize)> {
    let runs = named::runs_of_suite(&job.suite)?;
    let changes = job.changed_since.as_deref().map(changed).transpose()?;
    let progress = Progress::new(runs.len(), "runs");
    let (mut suite, mut maps, mut lines) = (Suite::default(), Maps::new(), BTreeMap::<String, BTreeSet<Line>>::new());
    let mut all = BTreeSet::new();
    for entry in &runs {
        let found = Profile::recover_sharing(&entry.profile, &mut maps)?;
        named::losses(&entry.profile, &found.lost).iter().for_each(warn);
        let profile = found.profile;
        suite.add(&profile).with_context(|| format!("run {}", entry.number))?;
        let name = profile.run.test.clone().unwrap_or_else(|| profile.run.command.join(" "));
        let mapping = CoverageMapping::new(&profile, &job.files).with_context(|| format!("run {}", entry.number))?;
        let mut of_run = Lines::from_mapping(&mapping)?;
        changes.iter().for_each(|changes| of_run.keep_changed(changes));
        all.extend(of_run.0.iter().flat_map(|(file, lines)| lines.keys().map(|line| (file.clone(), *line))));
        lines.entry(name).or_default().extend(of_run.executed().map(|(file, line)| (file.to_owned(), line)));
        progress.step();
    }
    let test = |t: trodden_analysis::suite::SuiteTest| {
        let lines = lines.remove(&t.name).unwrap_or_default();
        Executed { name: t.name, lines, paths: t.paths, duration_ns: t.duration_ns }
    };
    Ok((suite.tests.into_iter().map(test).collect(), all.len()))
}

/// The lines that differ from a commit.
pub fn changed(commit: &str) -> Result<ChangedLines> {
    let difference = git::diff(commit)?;
    ChangedLines::from_new_files(&difference.text, difference.root.as_deref()).context("git diff")
}

/// Tests by what they add. Takes time in proportion to tests times lines and paths for each place.
fn in_order(tests: &[Executed]) -> Vec<Placed<'_>> {
    let (mut seen_lines, mut seen_paths) = (BTreeSet::<&Line>::new(), BTreeSet::<PathIndex>::new());
    let mut left: Vec<&Executed> = tests.iter().collect();
    let mut placed = Vec::new();
    while !left.is_empty() {
        let adds = |t: &Executed| {
            (t.lines.iter().filter(|l| !seen_lines.contains(l)).count(), t.paths.iter().filter(|p| !seen_paths.contains(p)).count())
        };
        let (at, _) = left.iter().enumerate().min_by_key(|(at, t)| (Reverse(adds(t)), *at)).expect("one at least is left");
        let test = left.remove(at);
        let new_paths = adds(test).1;
        let new_lines = test.lines.iter().filter(|l| !seen_lines.contains(l)).cloned().collect();
        let others = || tests.iter().filter(|t| !std::ptr::eq(*t, test));
        let only_lines = test.lines.iter().filter(|l| !others().any(|t| t.lines.contains(l))).count();
        let only_paths = test.paths.iter().filter(|p| !others().any(|t| t.paths.contains(p))).count();
        seen_lines.extend(&test.lines);
        seen_paths.extend(&test.paths);
        placed.push(Placed { test, new_lines, new_paths, only_lines, only_paths });
    }
    placed
}

/// Lines by file.
fn by_file(lines: &[Line]) -> BTreeMap<&str, Vec<u32>> {
    let mut files: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    lines.iter().for_each(|(file, line)| files.entry(file).or_default().push(*line));
    files
}

fn to_json(placed: &Placed) -> Value {
    json!({
        "test": placed.test.name, "duration_ns": placed.test.duration_ns,
        "lines": placed.test.lines.len(), "paths": placed.test.paths.len(),
        "adds_lines": by_file(&placed.new_lines), "adds_paths": placed.new_paths,
        "lines_of_no_other": placed.only_lines, "paths_of_no_other": placed.only_paths,
    })
}

fn text(placed: &[Placed], all_lines: usize, with_lines: bool) -> String {
    let mut out =
        format!("{:>9} {:>9} {:>10} {:>9} {:>9} {:>10}  test\n", "new lines", "lines", "only here", "new paths", "paths", "only here");
    for p in placed {
        let (lines, paths) = (p.test.lines.len(), p.test.paths.len());
        let row = format!("{:>9} {lines:>9} {:>10} {:>9} {paths:>9} {:>10}", p.new_lines.len(), p.only_lines, p.new_paths, p.only_paths);
        writeln!(out, "{row}  {}", p.test.name).expect("writing to a string");
        for (file, lines) in by_file(&p.new_lines).iter().filter(|_| with_lines) {
            writeln!(out, "{:>61}{file}: {}", "", ranges(lines)).expect("writing to a string");
        }
    }
    let covered: usize = placed.iter().map(|p| p.new_lines.len()).sum();
    let paths: usize = placed.iter().map(|p| p.new_paths).sum();
    let (tests, lines) = (placed.len() as u128, plural(all_lines as u128, "line", "lines"));
    let (tests, paths) = (plural(tests, "test", "tests"), plural(paths as u128, "path", "paths"));
    writeln!(out, "of {tests}: {covered} of {lines} executed, {paths} taken").expect("writing to a string");
    let idle = placed.iter().filter(|p| p.new_lines.is_empty() && p.new_paths > 0).count();
    if idle > 0 {
        note(format_args!("{} paths that no test before takes, and no line", plural(idle as u128, "test adds", "tests add")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_is_the_test_that_adds_most_lines_then_most_paths() {
        let test = |name: &str, lines: &[u32], paths: &[u32]| Executed {
            name: name.into(),
            lines: lines.iter().map(|l| ("a.c".to_owned(), *l)).collect(),
            paths: paths.iter().map(|p| PathIndex(*p)).collect(),
            duration_ns: 0,
        };
        let tests = [test("one", &[1, 2], &[1]), test("two", &[1, 2, 3], &[2]), test("three", &[1], &[1, 3]), test("four", &[1], &[2])];
        let placed = in_order(&tests);
        let found: Vec<_> =
            placed.iter().map(|p| (p.test.name.as_str(), p.new_lines.len(), p.new_paths, p.only_lines, p.only_paths)).collect();
        assert_eq!(found, [("two", 3, 1, 1, 0), ("three", 0, 2, 0, 1), ("one", 0, 0, 0, 0), ("four", 0, 0, 0, 0)]);
        let text = text(&placed, 4, true);
        assert!(text.contains("a.c: 1-3") && text.contains("of 4 tests: 3 of 4 lines executed, 3 paths taken"), "{text}");
    }
}
