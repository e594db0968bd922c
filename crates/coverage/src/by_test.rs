//! Orders the tests of a suite by the lines that they add, for `trodden suite order --by lines`.
//!
//! Tests are ordered by *additional coverage*: the next test is the one that adds the most lines. Ties are broken by the number of added
//! paths, then by the order of recording. The table also shows how many lines and paths only this test executes.

use crate::LineExecutions;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use trodden_analysis::changes::ChangedLines;
use trodden_analysis::git;
use trodden_analysis::suite::{PathIndex, Suite};
use trodden_profile::Profile;
use trodden_report::escape;
use trodden_report::words::plural;

const SCHEMA_VERSION: u32 = 2;

type CoveredLine = (String, u32);

#[derive(Debug, Default)]
struct TestCoverage {
    name: String,
    lines: BTreeSet<CoveredLine>,
    paths: BTreeSet<PathIndex>,
    duration_ns: u64,
}

/// A test, and the coverage that it adds to that of the tests before it.
#[derive(Debug)]
struct AddedCoverage<'t> {
    test: &'t TestCoverage,
    new_lines: Vec<CoveredLine>,
    new_paths: usize,
    only_lines: usize,
    only_paths: usize,
}

/// Collects the coverage of a suite's tests, one run at a time.
#[derive(Default)]
pub struct SuiteCoverageBuilder {
    suite: Suite,
    lines: BTreeMap<String, BTreeSet<CoveredLine>>,
    all: BTreeSet<CoveredLine>,
}

impl SuiteCoverageBuilder {
    /// Adds the profile of a run. `counts` has the counts of the lines to consider. Fails if earlier runs are of a different build.
    pub fn add(&mut self, profile: &Profile, counts: &LineExecutions) -> Result<()> {
        self.suite.add(profile)?;
        let name = profile.run.test.clone().unwrap_or_else(|| profile.run.command.join(" "));
        self.all.extend(counts.0.iter().flat_map(|(file, lines)| lines.keys().map(|line| (file.clone(), *line))));
        self.lines.entry(name).or_default().extend(counts.executed().map(|(file, line)| (file.to_owned(), line)));
        Ok(())
    }

    /// Combines the runs of each test, and returns the suite's coverage.
    pub fn into_suite_coverage(mut self) -> SuiteCoverage {
        let test = |t: trodden_analysis::suite::SuiteTest| {
            let lines = self.lines.remove(&t.name).unwrap_or_default();
            TestCoverage { name: t.name, lines, paths: t.paths, duration_ns: t.duration_ns }
        };
        SuiteCoverage { tests: self.suite.tests.into_iter().map(test).collect(), all_lines: self.all.len() }
    }
}

/// The tests of a suite with their lines and paths.
pub struct SuiteCoverage {
    tests: Vec<TestCoverage>,
    all_lines: usize,
}

impl SuiteCoverage {
    /// Returns the ordered tests as JSON, with the lines that each test adds.
    pub fn json(&self, suite: &str) -> Value {
        json!({
            "schema_version": SCHEMA_VERSION, "kind": "suite-coverage", "suite": suite, "lines": self.all_lines,
            "tests": order_tests(&self.tests).iter().map(test_json).collect::<Vec<_>>(),
        })
    }

    /// Renders the ordered tests as a table.
    pub fn text(&self) -> String {
        escape::escape_lines(&render_tests(&order_tests(&self.tests), self.all_lines))
    }

    /// Returns the names of the tests in the order of additional coverage.
    pub fn names(&self) -> Vec<&str> {
        order_tests(&self.tests).iter().map(|placed| placed.test.name.as_str()).collect()
    }
}

/// Returns the lines of the working tree that differ from a commit.
pub fn changed_lines(commit: &str) -> Result<ChangedLines> {
    let difference = git::diff_against_revision(commit)?;
    ChangedLines::from_new_files(&difference.text, difference.root.as_deref()).context("cannot parse the output of `git diff`")
}

/// Orders tests by additional coverage, in O(tests² × (lines + paths)).
fn order_tests(tests: &[TestCoverage]) -> Vec<AddedCoverage<'_>> {
    let (mut seen_lines, mut seen_paths) = (BTreeSet::<&CoveredLine>::new(), BTreeSet::<PathIndex>::new());
    let mut remaining: Vec<&TestCoverage> = tests.iter().collect();
    let mut placed = Vec::new();
    while !remaining.is_empty() {
        let adds = |t: &TestCoverage| {
            (t.lines.iter().filter(|l| !seen_lines.contains(l)).count(), t.paths.iter().filter(|p| !seen_paths.contains(p)).count())
        };
        let (at, _) = remaining.iter().enumerate().min_by_key(|(at, t)| (Reverse(adds(t)), *at)).expect("there is a remaining test");
        let test = remaining.remove(at);
        let new_paths = adds(test).1;
        let new_lines = test.lines.iter().filter(|l| !seen_lines.contains(l)).cloned().collect();
        let others = || tests.iter().filter(|t| !std::ptr::eq(*t, test));
        let only_lines = test.lines.iter().filter(|l| !others().any(|t| t.lines.contains(l))).count();
        let only_paths = test.paths.iter().filter(|p| !others().any(|t| t.paths.contains(p))).count();
        seen_lines.extend(&test.lines);
        seen_paths.extend(&test.paths);
        placed.push(AddedCoverage { test, new_lines, new_paths, only_lines, only_paths });
    }
    placed
}

fn group_by_file(lines: &[CoveredLine]) -> BTreeMap<&str, Vec<u32>> {
    let mut files: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    lines.iter().for_each(|(file, line)| files.entry(file).or_default().push(*line));
    files
}

fn test_json(placed: &AddedCoverage) -> Value {
    json!({
        "test": placed.test.name, "duration_ns": placed.test.duration_ns,
        "lines": placed.test.lines.len(), "paths": placed.test.paths.len(),
        "adds_lines": group_by_file(&placed.new_lines), "adds_paths": placed.new_paths,
        "unique_lines": placed.only_lines, "unique_paths": placed.only_paths,
    })
}

fn render_tests(placed: &[AddedCoverage], all_lines: usize) -> String {
    let mut out =
        format!("{:>9} {:>9} {:>10} {:>9} {:>9} {:>10}  test\n", "new lines", "lines", "only here", "new paths", "paths", "only here");
    for p in placed {
        let (lines, paths) = (p.test.lines.len(), p.test.paths.len());
        let row = format!("{:>9} {lines:>9} {:>10} {:>9} {paths:>9} {:>10}", p.new_lines.len(), p.only_lines, p.new_paths, p.only_paths);
        writeln!(out, "{row}  {}", p.test.name).expect("writing to a string");
    }
    let covered: usize = placed.iter().map(|p| p.new_lines.len()).sum();
    let paths: usize = placed.iter().map(|p| p.new_paths).sum();
    let (tests, lines) = (placed.len() as u128, plural(all_lines as u128, "line", "lines"));
    let (tests, paths) = (plural(tests, "test", "tests"), plural(paths as u128, "path", "paths"));
    writeln!(out, "of {tests}: {covered} of {lines} executed, {paths} taken").expect("writing to a string");
    let only_paths = placed.iter().filter(|p| p.new_lines.is_empty() && p.new_paths > 0).count();
    if only_paths > 0 {
        log::info!("{} new paths, but no new lines", plural(only_paths as u128, "test adds", "tests add"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_ordered_by_new_lines_then_by_new_paths() {
        let test = |name: &str, lines: &[u32], paths: &[u32]| TestCoverage {
            name: name.into(),
            lines: lines.iter().map(|l| ("a.c".to_owned(), *l)).collect(),
            paths: paths.iter().map(|p| PathIndex(*p)).collect(),
            duration_ns: 0,
        };
        let tests = [test("one", &[1, 2], &[1]), test("two", &[1, 2, 3], &[2]), test("three", &[1], &[1, 3]), test("four", &[1], &[2])];
        let placed = order_tests(&tests);
        let found: Vec<_> =
            placed.iter().map(|p| (p.test.name.as_str(), p.new_lines.len(), p.new_paths, p.only_lines, p.only_paths)).collect();
        assert_eq!(found, [("two", 3, 1, 1, 0), ("three", 0, 2, 0, 1), ("one", 0, 0, 0, 0), ("four", 0, 0, 0, 0)]);
        let text = render_tests(&placed, 4);
        assert!(text.contains("of 4 tests: 3 of 4 lines executed, 3 paths taken"), "{text}");
        assert_eq!(test_json(&placed[0])["adds_lines"], json!({ "a.c": [1, 2, 3] }));
    }
}
