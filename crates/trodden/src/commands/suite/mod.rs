//! `trodden suite`: runs tests, finds redundant tests, and orders tests. The algorithms are in `trodden_analysis::suite`.

mod run;

use crate::cli::{SuiteCommand, SuiteFunctionSelection, SuiteListArguments, SuiteOrderArguments, TestOrderCriterion};
use crate::notes::{ProgressMeter, note, warn};
use crate::output::{json_text, print};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trodden_analysis::changes::ChangedLines;
use trodden_analysis::git::{self, UnifiedDiff};
use trodden_analysis::suite::Suite;
use trodden_analysis::suite::cover::{CoverProblem, find_cheapest_cover, find_greedy_cover};
use trodden_analysis::suite::order::{TestOrderMeasure, average_covered_percent, order_tests};
use trodden_profile::{Profile, RunStore, UnitMapsByIdentity};
use trodden_report::escape;
use trodden_report::suite::{self as shown, RedundantTests, SCHEMA_VERSION, SuiteCost, TestOrder};
use trodden_report::words::plural;
use trodden_stored::named;

/// Runs a subcommand. Returns status 1 if a test fails.
pub fn run(job: &SuiteCommand) -> Result<ExitCode> {
    match job {
        SuiteCommand::Run(job) => return run::run(job),
        SuiteCommand::Step { suite, project, command } => return run::record_test_binary(suite, project, command),
        SuiteCommand::List(job) => list(job)?,
        SuiteCommand::Order(job) if job.by == TestOrderCriterion::Lines => crate::commands::coverage::by_test::run(job)?,
        SuiteCommand::Order(job) => report_test_order(job)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(job: &SuiteListArguments) -> Result<()> {
    let Some(name) = &job.suite else {
        ensure!(
            !compared_functions(&job.functions).is_restricted(),
            "the given options select functions of a suite, but no suite is named. Name a suite that `trodden suite list` shows"
        );
        return list_suites(job.json);
    };
    let suite = load_suite(name, &job.functions)?;
    match job.redundant {
        Some(by) => print_redundant_tests(&suite, name, by, job.json),
        None => print(&if job.json { json_text(&shown::tests_json(name, &suite))? } else { shown::tests_text(&suite).into_bytes() }),
    }
}

fn compared_functions(functions: &SuiteFunctionSelection) -> shown::ComparedFunctions<'_> {
    shown::ComparedFunctions { function: functions.function.as_deref(), files: &functions.file, exclude: &functions.except }
}

fn list_suites(as_json: bool) -> Result<()> {
    let suites = RunStore::find(Path::new("."))?.suites()?;
    if as_json {
        let suites: Vec<_> = suites.iter().map(|(name, runs)| json!({ "suite": name, "runs": runs })).collect();
        return print(&json_text(&json!({ "schema_version": SCHEMA_VERSION, "kind": "suites", "suites": suites }))?);
    }
    let mut out = format!("{:>8}  suite\n", "runs");
    suites.iter().for_each(|(name, runs)| out += &format!("{runs:>8}  {name}\n"));
    print(escape::escape_lines(&out).as_bytes())
}

/// Reads the runs of a suite. Keeps only the paths of the selected functions.
fn load_suite(name: &str, functions: &SuiteFunctionSelection) -> Result<Suite> {
    let runs = named::list_runs_of_suite(name)?;
    let progress = ProgressMeter::new(runs.len(), "runs");
    let (mut suite, mut maps) = (Suite::default(), UnitMapsByIdentity::new());
    for entry in &runs {
        let found = Profile::recover_with_shared_maps(&entry.profile, &mut maps)?;
        named::describe_losses(&entry.profile, &found.lost).iter().for_each(warn);
        let profile = found.profile;
        if profile.sampling.is_some() {
            warn(format_args!("run {} was sampled, so some of its paths are missing", entry.number));
        }
        suite.add(&profile).with_context(|| format!("run {} cannot be used", entry.number))?;
        progress.step();
    }
    shown::keep_functions(&mut suite, &compared_functions(functions))?;
    Ok(suite)
}

/// Time limit for the search for a minimal set of tests. When it expires, the best set so far is printed with a lower bound.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(10);

fn print_redundant_tests(suite: &Suite, name: &str, by: SuiteCost, as_json: bool) -> Result<()> {
    let sets = suite.tests.iter().map(|t| t.paths.iter().map(|p| p.0).collect()).collect();
    let cost = |duration_ns: u64| match by {
        SuiteCost::Tests => 1,
        // The cost is in microseconds.
        SuiteCost::Time => (duration_ns / 1000).max(1),
    };
    let problem = CoverProblem { sets, costs: suite.tests.iter().map(|t| cost(t.duration_ns)).collect() };
    let quick = find_greedy_cover(&problem);
    let until = Instant::now() + MAX_SEARCH_TIME;
    let best = find_cheapest_cover(&problem, &mut || Instant::now() < until);
    let found = RedundantTests { suite, name, by, greedy: &quick, best: &best };
    print(&if as_json { json_text(&found.json())? } else { escape::escape_lines(&found.text()).into_bytes() })
}

fn report_test_order(job: &SuiteOrderArguments) -> Result<()> {
    ensure!(job.object.is_empty(), "--object applies only to --by lines. Omit --object");
    let by = if job.by == TestOrderCriterion::Rate { TestOrderMeasure::PathsPerTime } else { TestOrderMeasure::Paths };
    let suite = load_suite(&job.suite, &job.functions)?;
    let changes = read_changed_lines(job)?;
    let changed_paths = match changes {
        Some(mut changes) => {
            let paths = suite.changed_paths(&mut changes)?;
            note_changed_line_counts(&changes);
            Some(paths)
        }
        None => None,
    };
    let mut placed = order_tests(&suite.tests, changed_paths.as_ref(), by);
    let average = |tests: &mut dyn Iterator<Item = usize>| average_covered_percent(&suite.tests, tests, changed_paths.as_ref());
    let (now, before) = (average(&mut placed.iter().map(|p| p.test)), average(&mut (0..suite.tests.len())));
    if job.only_changed {
        placed.retain(|p| p.paths > 0);
    }
    let ordered = TestOrder {
        suite: &suite,
        name: &job.suite,
        tests: &placed,
        changed_paths: changed_paths.as_ref(),
        average: now,
        average_recorded: before,
    };
    print(&match (job.json, job.names) {
        (true, _) => json_text(&ordered.json())?,
        (_, true) => placed.iter().map(|p| format!("{}\n", suite.tests[p.test].name)).collect::<String>().into_bytes(),
        _ => escape::escape_lines(&ordered.text()).into_bytes(),
    })
}

fn read_changed_lines(job: &SuiteOrderArguments) -> Result<Option<ChangedLines>> {
    let (UnifiedDiff { text, root }, name) = match job.changed_since.as_deref() {
        None => return Ok(None),
        Some("-") => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            (UnifiedDiff { text: String::from_utf8_lossy(&bytes).into_owned(), root: None }, "standard input")
        }
        Some(file) if Path::new(file).is_file() => (git::read_diff(Path::new(file))?, file),
        Some(commit) => (git::diff_against_revision(commit)?, "git diff"),
    };
    Ok(Some(ChangedLines::from_diff(&text, root.as_deref()).with_context(|| name.to_owned())?))
}

fn note_changed_line_counts(changes: &ChangedLines) {
    let (all, found) = changes.line_counts();
    let (lines, files) = (plural(all as u128, "old line", "old lines"), plural(changes.files().len() as u128, "file", "files"));
    note(format_args!("{lines} changed in {files}; {found} of these lines have code in the tested program"));
}
