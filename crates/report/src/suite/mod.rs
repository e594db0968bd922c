//! Reports on test suites for `trodden suite`: lists of tests, redundant tests, and test orders.

mod functions;

pub use functions::{ComparedFunctions, keep_functions};

use crate::escape;
use crate::words::plural;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use trodden_analysis::suite::cover::SetCover;
use trodden_analysis::suite::order::OrderedTest;
use trodden_analysis::suite::{PathIndex, Suite, SuiteTest};

/// Version of the JSON schema.
pub const SCHEMA_VERSION: u32 = 2;

/// The cost measure by which sets of tests are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteCost {
    /// As the number of tests.
    Tests,
    /// The total running time of the tests.
    Time,
}

fn count_unique_paths(test: &SuiteTest, takers: &[u32]) -> usize {
    test.paths.iter().filter(|p| takers[p.0 as usize] == 1).count()
}

/// Lists the tests of a suite as JSON.
pub fn tests_json(name: &str, suite: &Suite) -> Value {
    let takers = suite.tests_per_path();
    let tests = suite.tests.iter().map(|t| {
        let mut test = test_json(t);
        test["unique_paths"] = json!(count_unique_paths(t, &takers));
        test
    });
    let tests: Vec<Value> = tests.collect();
    json!({ "schema_version": SCHEMA_VERSION, "kind": "suite", "suite": name, "paths": suite.paths.len(), "tests": tests })
}

/// Lists the tests of a suite for a terminal.
pub fn tests_text(suite: &Suite) -> String {
    let takers = suite.tests_per_path();
    let mut out = format!("{:<6} {:>10} {:>8} {:>8}  {}\n", "status", "seconds", "paths", "alone", "test");
    for test in &suite.tests {
        let alone = count_unique_paths(test, &takers);
        let _ =
            writeln!(out, "{:<6} {} {:>8} {alone:>8}  {}", status_name(test), format_seconds(test), test.paths.len(), printable_name(test));
    }
    let _ = writeln!(
        out,
        "{} {}",
        plural(suite.tests.len() as u128, "test takes", "tests take"),
        plural(suite.paths.len() as u128, "path", "paths")
    );
    escape::escape_lines(&out)
}

/// The result of a search for redundant tests.
pub struct RedundantTests<'a> {
    /// The suite that was searched.
    pub suite: &'a Suite,
    /// The suite's name.
    pub name: &'a str,
    /// The cost that was minimised.
    pub by: SuiteCost,
    /// The set of tests that a greedy search found.
    pub greedy: &'a SetCover,
    /// The cheapest set of tests that was found.
    pub best: &'a SetCover,
}

impl RedundantTests<'_> {
    /// Returns the tests that are not in the best set.
    fn redundant_tests(&self) -> impl Iterator<Item = &SuiteTest> {
        let kept: BTreeSet<usize> = self.best.selected.iter().copied().collect();
        self.suite.tests.iter().enumerate().filter(move |(at, _)| !kept.contains(at)).map(|(_, t)| t)
    }

    /// Counts the tests that take a path that no other test takes.
    fn count_essential_tests(&self) -> usize {
        let takers = self.suite.tests_per_path();
        self.suite.tests.iter().filter(|t| t.paths.iter().any(|p| takers[p.0 as usize] == 1)).count()
    }

    /// Returns the result as JSON.
    pub fn json(&self) -> Value {
        let kept: Vec<Value> = self.best.selected.iter().map(|at| test_json(&self.suite.tests[*at])).collect();
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "redundant-tests",
            "suite": self.name,
            "tests": self.suite.tests.len(),
            "paths": self.suite.paths.len(),
            "cost_unit": match self.by { SuiteCost::Tests => "tests", SuiteCost::Time => "microseconds" },
            "essential_tests": self.count_essential_tests(),
            "greedy_cost": self.greedy.cost,
            "cost": self.best.cost,
            "cost_lower_bound": self.best.bound,
            "proven": self.best.is_proven(),
            "kept": kept,
            "redundant": self.redundant_tests().map(test_json).collect::<Vec<_>>(),
        })
    }

    /// Renders the result as text.
    pub fn text(&self) -> String {
        let (suite, best) = (self.suite, self.best);
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{} {}; tests with a path that no other test takes: {}",
            plural(suite.tests.len() as u128, "test takes", "tests take"),
            plural(suite.paths.len() as u128, "path", "paths"),
            self.count_essential_tests()
        );
        let amount = |cost: u64| match self.by {
            SuiteCost::Tests => plural(cost.into(), "test", "tests"),
            SuiteCost::Time => format!("{:.3} s", cost as f64 / 1e6),
        };
        let proof = match best.is_proven() {
            true => "no set is cheaper (proven)".to_owned(),
            false => format!("not proven to be optimal; every set costs at least {}", amount(best.bound)),
        };
        let chosen = plural(best.selected.len() as u128, "test takes them all", "tests take them all");
        let cost = match self.by {
            SuiteCost::Tests => String::new(),
            SuiteCost::Time => format!(" in {}", amount(best.cost)),
        };
        let _ = writeln!(out, "{chosen}{cost}: {proof}; greedy: {}", amount(self.greedy.cost));
        let redundant: Vec<&SuiteTest> = self.redundant_tests().collect();
        if redundant.is_empty() {
            let _ = writeln!(out, "\nno other test is redundant");
            return out;
        }
        let saved = redundant.iter().map(|t| t.duration_ns).sum::<u64>() as f64 / 1e9;
        let _ = writeln!(out, "\n{} redundant ({saved:.3} s):", plural(redundant.len() as u128, "test is", "tests are"));
        for test in redundant {
            let paths = if test.paths.len() == 1 { "path " } else { "paths" };
            let _ = writeln!(out, "{} {:>8} {paths}  {}", format_seconds(test), test.paths.len(), printable_name(test));
        }
        out
    }
}

/// A suite's tests in the order in which to run them.
pub struct TestOrder<'a> {
    /// The suite that is ordered.
    pub suite: &'a Suite,
    /// The suite's name.
    pub name: &'a str,
    /// The tests in order.
    pub tests: &'a [OrderedTest],
    /// The paths through changed code; `None` if no change was given.
    pub changed_paths: Option<&'a BTreeSet<PathIndex>>,
    /// Average percentage of paths covered (APC) if the tests run in this order; `None` if there are no paths to cover.
    pub average: Option<f64>,
    /// Average percentage of paths covered if the tests run in the order in which they were recorded; `None` if there are no paths to
    /// cover.
    pub average_recorded: Option<f64>,
}

impl TestOrder<'_> {
    /// Returns the order as JSON.
    pub fn json(&self) -> Value {
        let place = |(at, p): (usize, &OrderedTest)| {
            let mut test = test_json(&self.suite.tests[p.test]);
            test["rank"] = json!(at + 1);
            test["takes"] = json!(p.paths);
            test["adds"] = json!(p.new_paths);
            test
        };
        json!({
            "schema_version": SCHEMA_VERSION,
            "kind": "test-order",
            "suite": self.name,
            "paths": self.suite.paths.len(),
            "changed_paths": self.changed_paths.map(BTreeSet::len),
            "average_percentage_covered": self.average,
            "average_percentage_covered_as_recorded": self.average_recorded,
            "tests": self.tests.iter().enumerate().map(place).collect::<Vec<_>>(),
        })
    }

    /// Renders the order as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if let Some(wanted) = self.changed_paths {
            let takers = self.tests.iter().filter(|p| p.paths > 0).count();
            let _ = writeln!(
                out,
                "{} of {} execute changed lines; {} them",
                wanted.len(),
                plural(self.suite.paths.len() as u128, "path", "paths"),
                plural(takers as u128, "test takes", "tests take")
            );
        }
        let _ = match (self.average, self.average_recorded) {
            (Some(now), Some(recorded)) => {
                writeln!(out, "average of paths covered: {now:.1} % in this order, {recorded:.1} % as recorded\n")
            }
            _ if self.changed_paths.is_some() => {
                writeln!(out, "no test executes changed lines, so the change does not affect this order\n")
            }
            _ => writeln!(out, "the tests execute no paths, so their order does not matter\n"),
        };
        let _ = writeln!(out, "{:>5} {:>8} {:>8} {:>10}  test", "rank", "new", "paths", "seconds");
        for (at, p) in self.tests.iter().enumerate() {
            let test = &self.suite.tests[p.test];
            let _ = writeln!(out, "{:>5} {:>8} {:>8} {}  {}", at + 1, p.new_paths, p.paths, format_seconds(test), printable_name(test));
        }
        out
    }
}

fn test_json(test: &SuiteTest) -> Value {
    json!({
        "test": test.name, "runs": test.runs, "status": status_name(test), "duration_ns": test.duration_ns, "paths": test.paths.len(),
    })
}

fn status_name(test: &SuiteTest) -> &'static str {
    if test.failed { "failed" } else { "passed" }
}

fn format_seconds(test: &SuiteTest) -> String {
    format!("{:>10.3}", test.duration_ns as f64 / 1e9)
}

fn printable_name(test: &SuiteTest) -> String {
    test.name.replace(char::is_control, " ")
}
