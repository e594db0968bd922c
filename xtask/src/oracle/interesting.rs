//! Checks builds that count only interesting paths, by comparing them with a build that counts all paths. Both must agree on the count of
//! every interesting path, and on the total number of executions of the other paths.

use super::OracleOptions;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use trodden_corpus::interesting::InterestingBuilds;
use trodden_corpus::{Corpus, CorpusInput, steps};

/// The output of `trodden-oracle interesting`, which compares the two profiles of a program.
#[derive(Debug, Deserialize)]
struct OracleComparison {
    functions: usize,
    counting_all: usize,
    paths: usize,
    executed: usize,
    executions: String,
    others: String,
    misplaced: String,
    differences: Vec<String>,
}

pub struct OracleRow {
    program: String,
    scheme: String,
    exact: bool,
    /// The result of the comparison. `None` if two runs of the build that counts all paths differ: then the program's paths vary from run
    /// to run, and nothing can be compared.
    found: Option<OracleComparison>,
}

impl OracleRow {
    /// Returns true if the counts differ although the scheme claims to be exact.
    pub fn is_wrong(&self) -> bool {
        self.exact && self.found.as_ref().is_some_and(|f| !f.differences.is_empty())
    }

    fn describe(&self) -> String {
        let Some(f) = &self.found else { return format!("{}: not checked, since two runs take different paths", self.program) };
        let mut text = format!(
            "{} {}: functions {}, interesting paths {}, of these executed {}; executions of interesting paths {}, of other paths {}; \
                misplaced executions {}; functions that count all paths {}",
            self.program, self.scheme, f.functions, f.paths, f.executed, f.executions, f.others, f.misplaced, f.counting_all
        );
        if self.exact {
            f.differences.iter().take(20).for_each(|d| write!(text, "\n  differs: {d}").expect("writing to a string does not fail"));
        }
        text
    }
}

/// Builds and runs a program with each of the chosen numbering schemes for interesting paths, and compares it with the build that counts
/// all paths. Fails if a build, a run or the oracle fails, or if a scheme is unknown.
pub fn check(corpus: &Corpus, program: &str, options: &OracleOptions, oracle: &Path) -> Result<Vec<OracleRow>> {
    let made = InterestingBuilds::prepare(corpus, program, options.input)?;
    let again = made.run_full_again(corpus)?;
    let row = |scheme: &str, exact: bool, found: Option<OracleComparison>| OracleRow {
        program: program.to_owned(),
        scheme: scheme.to_owned(),
        exact,
        found,
    };
    if !compare_profiles(oracle, &made.full, &again)?.differences.is_empty() {
        let row = row("", true, None);
        println!("{}", row.describe());
        return Ok(vec![row]);
    }
    let all = SCHEMES.map(|(name, _)| name.to_owned()).to_vec();
    let schemes = if options.scheme.iter().any(|s| s == "all") { &all } else { &options.scheme };
    let mut rows = Vec::new();
    for scheme in schemes {
        let Some((_, exact)) = SCHEMES.iter().find(|(name, _)| name == scheme) else {
            bail!("unknown scheme {scheme}. Choose from {}", all.join(", "));
        };
        let set = format!("{}:{}", options.interesting, made.full.display());
        let counted = made.run(corpus, scheme, &set)?;
        let row = row(scheme, *exact, Some(compare_profiles(oracle, &made.full, &counted)?));
        println!("{}", row.describe());
        rows.push(row);
    }
    Ok(rows)
}

fn compare_profiles(oracle: &Path, full: &Path, interesting: &Path) -> Result<OracleComparison> {
    let text = steps::output(Command::new(oracle).arg("interesting").args([full, interesting]))?;
    serde_json::from_str(&text).context("cannot read the output of `trodden-oracle interesting`")
}

pub fn render_page(rows: &[OracleRow], input: CorpusInput, interesting: &str) -> Result<String> {
    let date = steps::output(Command::new("date").args(["-u", "+%F"]))?;
    let mut out = format!(
        "# Interesting paths compared with all paths, {}\n\nMeasured by `cargo xtask oracle --scheme`, commit {}, on input {}. Interesting \
            paths: `{interesting}` of a profile of all paths of the same run.\n\n\
         | program | scheme | functions | interesting paths | executed | executions | executions of other paths | misplaced executions | \
         functions that count all paths | differences |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        date.trim(),
        steps::describe_commit(),
        input.name(),
    );
    for row in rows {
        let Some(f) = &row.found else {
            writeln!(out, "| {} | not checked: two runs take different paths | | | | | | | | |", row.program)?;
            continue;
        };
        let differences = if row.exact { f.differences.len().to_string() } else { "not exact".to_owned() };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {differences} |",
            row.program, row.scheme, f.functions, f.paths, f.executed, f.executions, f.others, f.misplaced, f.counting_all
        )?;
    }
    Ok(out)
}

/// The numbering schemes for interesting paths, each with true if it claims to count exactly.
const SCHEMES: [(&str, bool); 9] = [
    ("ball-larus", true),
    ("spp", false),
    ("mspp", true),
    ("pertinent", true),
    ("pspp", true),
    ("ppp", true),
    ("known-table", true),
    ("ppp-optimal", true),
    ("approximate", false),
];
