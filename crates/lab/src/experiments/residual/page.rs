//! Renders the results as a page of three tables.

use super::{BUILDS_WITH_MEASURED_SIZE, ResidualBuild, ResidualResults, ResidualRow, UntestedFigures};
use crate::experiments::bench::statistics::geometric_mean;
use std::collections::BTreeMap;
use std::fmt::Write;

const UNTESTED_SECTION: &str = "\
## Untested paths (table 3.1)

The tests are the program's short run, the field is its long one. Untested paths are given in percent of the distinct paths taken in the \
field, their executions in percent of all executions in the field. An edge is untested if an untested path takes it and no tested one \
does. The last columns are the finding: untested paths in functions without an untested edge, which edge coverage cannot reveal, and \
untested paths whose edges are all tested. Functions with more than 4,096 paths are cut, so that a path may be a part of a longer one.

| program | paths taken by tests | by the field | untested | in % | % of executions | functions with them | untested edges | functions \
with those | untested paths in functions without | in % | every edge tested | residual build |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|
";

const SUITES_SECTION: &str = "
## With a suite of many inputs (table 3.3)

The tests are the short run and a suite; the field is the same long run.

| program | runs of the suite | paths taken by tests | untested | in % | % of executions | untested edges | untested paths in functions \
without | in % |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
";

const SIZE_SECTION: &str = "
## Size (table 3.4)

Size relative to the plain build of programs that count all paths, that count the short run's paths by `ppp` or `known-table`, and that \
count all but those (`residual`): `.text` alone, and all that is loaded (code, constants, data, and the template of the counters).

";

pub fn render_page(results: &ResidualResults) -> String {
    let mut out = format!(
        "# Untested paths of real programs, {}\n\nBy `trodden-lab experiment residual`, {}.\n",
        results.date,
        list_commits(results)
    );
    out += "Each row was computed twice, by `trodden untested` and by an oracle that compares two full profiles and shares only the \
            decoding of paths, with equal figures.\n\n";
    out += UNTESTED_SECTION;
    results.programs.iter().for_each(|(name, row)| out += &untested_table_row(name, row));
    out += &mean_table_row(results);
    if results.programs.values().any(|r| r.suite.is_some()) {
        out += SUITES_SECTION;
        results.programs.iter().for_each(|(name, row)| out += &suite_table_row(name, row));
    }
    out += SIZE_SECTION;
    out += &sizes_section(results);
    out
}

/// Lists commits with their programs, such as `commit a (one, two), commit b (three)`.
fn list_commits(results: &ResidualResults) -> String {
    let mut programs = BTreeMap::<&str, Vec<&str>>::new();
    results.programs.iter().for_each(|(name, row)| programs.entry(&row.commit).or_default().push(name));
    let reported = programs.iter().map(|(commit, names)| format!("commit {commit} ({})", names.join(", ")));
    reported.collect::<Vec<_>>().join(", ")
}

fn untested_table_row(name: &str, row: &ResidualRow) -> String {
    let u = &row.untested;
    let build = match row.residual_build {
        ResidualBuild::Equal => "counts the same",
        ResidualBuild::RunsDiffer => "runs differ",
    };
    format!(
        "| {name} | {} | {} | {} | {:.1} | {} | {} | {} | {} | {} | {:.1} | {} | {build} |\n",
        u.tested_paths,
        u.executed_paths,
        u.untested_paths,
        u.share_of_paths(),
        format_percentage(u.share_of_executions()),
        u.functions,
        u.untested_edges,
        u.functions_with_untested_edges,
        u.untested_paths_in_functions_without_untested_edges,
        u.share_without_edges(),
        u.all_edges_tested,
    )
}

/// Averages the percentages arithmetically, as the thesis does.
fn mean_table_row(results: &ResidualResults) -> String {
    let mean = |of: fn(&UntestedFigures) -> f64| {
        let all: Vec<f64> = results.programs.values().map(|r| of(&r.untested)).collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    format!(
        "| average | | | {:.0} | {:.1} | {} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | |\n",
        mean(|u| u.untested_paths as f64),
        mean(UntestedFigures::share_of_paths),
        format_percentage(mean(UntestedFigures::share_of_executions)),
        mean(|u| u.functions as f64),
        mean(|u| u.untested_edges as f64),
        mean(|u| u.functions_with_untested_edges as f64),
        mean(|u| u.untested_paths_in_functions_without_untested_edges as f64),
        mean(UntestedFigures::share_without_edges),
        mean(|u| u.all_edges_tested as f64),
    )
}

fn suite_table_row(name: &str, row: &ResidualRow) -> String {
    let Some(suite) = &row.suite else { return String::new() };
    let u = &suite.untested;
    format!(
        "| {name} | {} | {} | {} | {:.1} | {} | {} | {} | {:.1} |\n",
        suite.runs,
        u.tested_paths,
        u.untested_paths,
        u.share_of_paths(),
        format_percentage(u.share_of_executions()),
        u.untested_edges,
        u.untested_paths_in_functions_without_untested_edges,
        u.share_without_edges(),
    )
}

/// Formats a percentage, with more digits if it is small.
fn format_percentage(percent: f64) -> String {
    if percent != 0.0 && percent < 0.05 { format!("{percent:.4}") } else { format!("{percent:.1}") }
}

fn sizes_section(results: &ResidualResults) -> String {
    let mut out = String::from("| program | plain `.text`, bytes |");
    BUILDS_WITH_MEASURED_SIZE.iter().for_each(|s| write!(out, " {s} |").expect("writing to a string cannot fail"));
    out += " plain loaded, bytes |";
    BUILDS_WITH_MEASURED_SIZE.iter().for_each(|s| write!(out, " {s} |").expect("writing to a string cannot fail"));
    out += "\n|---|";
    out += &"--:|".repeat(2 * (BUILDS_WITH_MEASURED_SIZE.len() + 1));
    out.push('\n');
    let factor =
        |row: &ResidualRow, build: &str, what: usize| Some(row.sizes.get(build)?[what] as f64 / row.sizes.get("plain")?[what] as f64);
    let reported = |factor: Option<f64>| factor.map_or_else(String::new, |f| format!("{f:.2}"));
    for (name, row) in &results.programs {
        write!(out, "| {name} |").expect("writing to a string cannot fail");
        for what in [0, 1] {
            write!(out, " {} |", row.sizes.get("plain").map_or(0, |s| s[what])).expect("writing to a string cannot fail");
            BUILDS_WITH_MEASURED_SIZE
                .iter()
                .for_each(|s| write!(out, " {} |", reported(factor(row, s, what))).expect("writing to a string cannot fail"));
        }
        out.push('\n');
    }
    out += "| geometric mean |";
    for what in [0, 1] {
        out += " |";
        for build in BUILDS_WITH_MEASURED_SIZE {
            let all: Option<Vec<f64>> = results.programs.values().map(|row| factor(row, build, what)).collect();
            write!(out, " {} |", reported(all.and_then(|a| geometric_mean(&a)))).expect("writing to a string cannot fail");
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::residual::SuiteFigures;

    #[test]
    fn cells_match_the_headings() {
        let untested = UntestedFigures {
            tested_paths: 90,
            executed_paths: 200,
            untested_paths: 50,
            executions: "1000000".into(),
            untested_executions: "100".into(),
            functions: 6,
            untested_edges: 3,
            functions_with_untested_edges: 2,
            untested_paths_in_functions_without_untested_edges: 40,
            all_edges_tested: 45,
        };
        let sizes =
            [("plain", [100, 200]), ("trodden", [150, 500]), ("ppp", [140, 400]), ("known-table", [130, 300]), ("residual", [250, 600])];
        let row = ResidualRow {
            commit: "c".into(),
            untested: untested.clone(),
            residual_build: ResidualBuild::Equal,
            suite: Some(SuiteFigures { runs: 7, untested }),
            sizes: sizes.map(|(n, s)| (n.to_owned(), s)).into(),
        };
        let results = ResidualResults { schema_version: 1, date: "d".into(), programs: BTreeMap::from([("one".to_owned(), row)]) };
        let text = render_page(&results);
        assert!(text.contains("By `trodden-lab experiment residual`, commit c (one).\n"), "{text}");
        assert!(text.contains("| one | 90 | 200 | 50 | 25.0 | 0.0100 | 6 | 3 | 2 | 40 | 80.0 | 45 | counts the same |"), "{text}");
        assert!(text.contains("| one | 7 | 90 | 50 | 25.0 | 0.0100 | 3 | 40 | 80.0 |"), "{text}");
        assert!(text.contains("| one | 100 | 1.50 | 1.40 | 1.30 | 2.50 | 200 | 2.50 | 2.00 | 1.50 | 3.00 |"), "{text}");
    }
}
