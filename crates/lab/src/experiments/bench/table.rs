//! Renders a result as text for the terminal and as Markdown.

use super::result::{BenchFigures, BenchOutcome, BenchResult, BenchRow, ExactnessCheck, VariantRatios};
use super::statistics::{MedianAndRange, geometric_mean};
use std::fmt::Write;

/// A table of text. The first `words` columns are left-aligned words, the others right-aligned numbers.
struct TextTable {
    head: Vec<String>,
    words: usize,
    rows: Vec<Vec<String>>,
}

/// Renders two tables with one line per program and variant: times and instructions, and then code size, memory, build time and exactness.
pub fn render_table(suite: &BenchResult) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n{}", time_table(suite).to_text(), size_table(suite).to_text());
    let _ = writeln!(out, "{}", list_failure_reasons(suite).join("\n"));
    let _ = write!(out, "{}", explain_figures(suite).join("\n"));
    out.trim_start().to_owned() + "\n"
}

/// Renders ratios by program and variant, and then all figures.
pub fn render_markdown(suite: &BenchResult) -> String {
    let mut out = format!("# Benchmark of {}\n\n", suite.date);
    let _ = writeln!(out, "{}\n", explain_figures(suite).join("\n"));
    let _ = writeln!(out, "| variant | what it is |\n|---|---|");
    for variant in &suite.variants {
        let _ = writeln!(out, "| `{}` | {} |", variant.name, variant.about);
    }
    let parts: [(&str, TextTable); 6] = [
        ("User time, ratio to the base", ratio_table(suite, |r| r.user)),
        ("Minimum user time, ratio to the base's minimum", ratio_table(suite, |r| r.least)),
        ("Instructions, ratio to the base", ratio_table(suite, |r| r.instructions)),
        ("Size of code, ratio to the base", ratio_table(suite, |r| r.code)),
        ("Times and instructions", time_table(suite)),
        ("Code, memory, build, counts", size_table(suite)),
    ];
    // A table that has only the column of program names is omitted.
    for (title, table) in parts.into_iter().filter(|(_, table)| table.head.len() > 1) {
        let _ = write!(out, "\n## {title}\n\n{}", table.to_markdown());
    }
    let reasons = list_failure_reasons(suite);
    if !reasons.is_empty() {
        let _ = write!(out, "\n## What was not measured\n\n");
        reasons.iter().for_each(|r| {
            let _ = writeln!(out, "- {r}");
        });
    }
    out
}

fn time_table(suite: &BenchResult) -> TextTable {
    let head = ["program", "variant", "user s", "+-", "ratio", "M instr.", "ratio"];
    let line = |row: &BenchRow, figures: &BenchFigures, ratios: VariantRatios| {
        vec![
            row.program.clone(),
            row.variant.clone() + if figures.same_output { "" } else { " (OUTPUT DIFFERS)" },
            format!("{:.3}", figures.user.median),
            format!("{:.1}%", figures.user.relative_width() * 50.0),
            format_ratio(ratios.user),
            figures.instructions.map_or_else(String::new, |n| format!("{:.0}", n as f64 / 1e6)),
            format_ratio(ratios.instructions),
        ]
    };
    let mean = |variant: &str| {
        vec![
            String::new(),
            String::new(),
            format_mean(suite, variant, |r| r.user),
            String::new(),
            format_mean(suite, variant, |r| r.instructions),
        ]
    };
    figure_table(suite, &head, line, mean)
}

fn size_table(suite: &BenchResult) -> TextTable {
    let head = ["program", "variant", "code KB", "ratio", "memory MB", "ratio", "build s", "ratio", "counts"];
    let line = |row: &BenchRow, figures: &BenchFigures, ratios: VariantRatios| {
        vec![
            row.program.clone(),
            row.variant.clone(),
            figures.code_bytes.map_or_else(String::new, |n| format!("{:.0}", n as f64 / 1024.0)),
            format_ratio(ratios.code),
            format!("{:.1}", figures.memory_kb as f64 / 1024.0),
            format_ratio(ratios.memory),
            figures.build_s.map_or_else(String::new, |s| format!("{s:.1}")),
            format_ratio(ratios.build),
            figures.exact.as_ref().map(format_exactness).or(figures.overlap.map(format_overlap)).unwrap_or_default(),
        ]
    };
    let mean = |variant: &str| {
        let of = |what: fn(&VariantRatios) -> Option<f64>| format_mean(suite, variant, what);
        vec![String::new(), of(|r| r.code), String::new(), of(|r| r.memory), String::new(), of(|r| r.build), String::new()]
    };
    figure_table(suite, &head, line, mean)
}

/// Builds a table with one line per measured or failed row, followed by the means.
fn figure_table(
    suite: &BenchResult,
    head: &[&str],
    line: impl Fn(&BenchRow, &BenchFigures, VariantRatios) -> Vec<String>,
    mean: impl Fn(&str) -> Vec<String>,
) -> TextTable {
    let mut rows = Vec::new();
    for row in &suite.rows {
        match &row.outcome {
            BenchOutcome::Measured(figures) => rows.push(line(row, figures, suite.ratios(&row.program, &row.variant))),
            BenchOutcome::Failed { .. } => {
                let mut cells = vec![row.program.clone(), row.variant.clone(), "failed".into()];
                cells.resize(head.len(), String::new());
                rows.push(cells);
            }
            BenchOutcome::Skipped { .. } => {}
        }
    }
    for variant in suite.variants.iter().filter(|v| v.base.is_some()) {
        let cells = mean(&variant.name);
        if cells.iter().any(|c| !c.is_empty()) {
            let programs = suite.programs().iter().filter(|p| suite.ratios(p, &variant.name) != VariantRatios::default()).count();
            rows.push([format!("geom. mean of {programs}"), variant.name.clone()].into_iter().chain(cells).collect());
        }
    }
    TextTable { head: head.iter().map(|h| (*h).to_owned()).collect(), words: 2, rows }
}

/// Builds a table of ratios. It has a column for each variant with a base.
fn ratio_table(suite: &BenchResult, of: fn(&VariantRatios) -> Option<f64>) -> TextTable {
    let variants: Vec<&str> = suite.variants.iter().filter(|v| v.base.is_some()).map(|v| v.name.as_str()).collect();
    let columns: Vec<&str> = variants.into_iter().filter(|v| suite.programs().iter().any(|p| of(&suite.ratios(p, v)).is_some())).collect();
    let cells = |program: &&str| {
        let own = columns.iter().map(|variant| format_ratio(of(&suite.ratios(program, variant))));
        std::iter::once((*program).to_owned()).chain(own).collect()
    };
    let mut rows: Vec<Vec<String>> = suite.programs().iter().map(cells).collect();
    rows.push(std::iter::once("geometric mean".to_owned()).chain(columns.iter().map(|v| format_mean(suite, v, of))).collect());
    TextTable { head: std::iter::once("program").chain(columns).map(str::to_owned).collect(), words: 1, rows }
}

/// Formats the geometric mean of a variant's ratios over all programs for which both the variant and its base were measured.
fn format_mean(suite: &BenchResult, variant: &str, of: fn(&VariantRatios) -> Option<f64>) -> String {
    let ratios: Vec<f64> = suite.programs().iter().filter_map(|p| of(&suite.ratios(p, variant))).collect();
    geometric_mean(&ratios).map_or_else(String::new, |mean| format!("{mean:.3}"))
}

fn format_overlap(overlap: MedianAndRange) -> String {
    format!("overlap {:.1}% (minimum {:.1}%)", overlap.median * 100.0, overlap.min * 100.0)
}

fn format_exactness(exact: &ExactnessCheck) -> String {
    match exact {
        ExactnessCheck::Failed(_) => "not checked".into(),
        ExactnessCheck::Checked(oracles) => {
            let part = |j: &super::result::OracleVerdict| match j.different {
                0 => format!("{}/{}", j.equal, j.functions),
                n => format!("{}/{} ({n} DIFFER)", j.equal, j.functions),
            };
            oracles.iter().map(part).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Lists the reasons for missing figures, each with the programs that it concerns.
fn list_failure_reasons(suite: &BenchResult) -> Vec<String> {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    let programs = suite.programs();
    for row in &suite.rows {
        let text = match &row.outcome {
            BenchOutcome::Skipped { reason } => format!("{} was skipped: {reason}", row.variant),
            BenchOutcome::Failed { reason } => format!("{} failed: {reason}", row.variant),
            BenchOutcome::Measured(BenchFigures { exact: Some(ExactnessCheck::Failed(reason)), .. }) => {
                format!("{} was not checked: {reason}", row.variant)
            }
            BenchOutcome::Measured(_) => continue,
        };
        match all.iter_mut().find(|(t, _)| *t == text) {
            Some((_, list)) => list.push(&row.program),
            None => all.push((text, vec![&row.program])),
        }
    }
    all.into_iter()
        .map(|(text, list)| format!("{text} ({})", if list == programs { "all programs".into() } else { list.join(", ") }))
        .collect()
}

fn explain_figures(suite: &BenchResult) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: medians of {} runs in turns (input {}), +- half of the range; ratios to the variant's base (plain, unless another is named).",
        suite.date, suite.rounds, suite.input
    )];
    if suite.rows.iter().any(|row| row.figures().is_some_and(|f| f.base_user_s.is_some())) {
        lines.push("callgrind: one short run, compared with a short run of the plain build.".into());
    }
    let run = if suite.instructions_input == "ref" { "long" } else { "short" };
    lines.extend(suite.instructions_by.as_ref().map(|counter| format!("Instructions of the {run} run, by {counter}.")));
    if suite.rows.iter().any(|row| row.figures().is_some_and(|f| f.exact.is_some())) {
        lines.push(
            "Counts: functions with equal counts of those compared, in the short run: a counter in every block; LLVM's own profile.".into(),
        );
    }
    if suite.rows.iter().any(|row| row.figures().is_some_and(|f| f.overlap.is_some())) {
        lines.push("Counts of sampled runs: overlap with the full profile, median and minimum of the runs.".into());
    }
    if suite.rows.iter().filter_map(BenchRow::figures).all(|f| f.same_output) {
        lines.push("Every variant printed what its base prints.".into());
    }
    lines.push(format!(
        "{}, {} cores, Linux {}; commit {}",
        suite.machine.processor, suite.machine.cores, suite.machine.kernel, suite.commit
    ));
    lines
}

fn format_ratio(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| format!("{v:.2}"))
}

impl TextTable {
    fn to_text(&self) -> String {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.head).chain(&self.rows).collect();
        let widths: Vec<usize> =
            (0..self.head.len()).map(|c| lines.iter().map(|l| l[c].chars().count()).max().unwrap_or_default()).collect();
        let mut out = String::new();
        for line in lines {
            let cell =
                |c: usize| if c < self.words { format!("{:<1$}", line[c], widths[c]) } else { format!("{:>1$}", line[c], widths[c]) };
            let cells: Vec<String> = (0..widths.len()).map(cell).collect();
            let _ = writeln!(out, "{}", cells.join("  ").trim_end());
        }
        out
    }

    fn to_markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.iter().map(|c| c.replace('|', "\\|")).collect::<Vec<_>>().join(" | "));
        let rule: Vec<&str> = (0..self.head.len()).map(|c| if c < self.words { "---" } else { "--:" }).collect();
        let mut out = line(&self.head) + &format!("|{}|\n", rule.join("|"));
        self.rows.iter().for_each(|row| out.push_str(&line(row)));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::{OracleVerdict, tests as sample};
    use super::*;

    fn create_sample_result() -> BenchResult {
        let mut suite = sample::create_result(&[
            ("a", "plain", &[1.0, 1.0, 1.0], 100_000_000),
            ("a", "trodden", &[2.0, 2.0, 2.0], 150_000_000),
            ("b", "plain", &[1.0], 10_000_000),
        ]);
        let reason = "no".to_owned();
        suite.rows.push(BenchRow { program: "b".into(), variant: "trodden".into(), outcome: BenchOutcome::Failed { reason } });
        suite
    }

    #[test]
    fn failed_row_shows_its_reason_and_is_not_in_the_mean() {
        let text = render_table(&create_sample_result());
        assert!(text.contains("a                trodden   2.000  0.0%   2.00       150   1.50"), "{text}");
        assert!(text.contains("b                trodden  failed"), "{text}");
        assert!(text.contains("trodden failed: no (b)"), "{text}");
        assert!(text.lines().any(|l| l.starts_with("geom. mean of 1  trodden") && l.contains(" 2.000 ")), "{text}");
    }

    #[test]
    fn markdown_has_a_column_per_variant() {
        let page = render_markdown(&create_sample_result());
        assert!(page.contains("| program | trodden |\n|---|--:|\n| a | 2.00 |\n| b |  |\n| geometric mean | 2.000 |\n"), "{page}");
        assert!(page.contains("- trodden failed: no (b)\n"), "{page}");
    }

    #[test]
    fn overlap_of_sampled_runs_is_shown() {
        let mut suite = create_sample_result();
        if let BenchOutcome::Measured(figures) = &mut suite.rows[1].outcome {
            figures.overlap = Some(MedianAndRange::from_values(&[0.9, 0.96, 0.95]));
        }
        let text = render_table(&suite);
        assert!(text.contains("  overlap 95.0% (minimum 90.0%)") && text.contains("Counts of sampled runs"), "{text}");
    }

    #[test]
    fn different_counts_are_marked() {
        let oracle = OracleVerdict { oracle: "j".into(), functions: 3, equal: 2, different: 1 };
        assert_eq!(format_exactness(&ExactnessCheck::Checked(vec![oracle])), "2/3 (1 DIFFER)");
    }
}
