//! Builds that count interesting paths, compared with the one that counts all: every interesting path has the same
//! count, and all others together have theirs.

use super::OracleOptions;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use trodden_corpus::interesting::InterestingBuilds;
use trodden_corpus::{Corpus, Input, steps};

/// What `trodden-oracle interesting` prints.
#[derive(Debug, Deserialize)]
struct Findings {
    functions: usize,
    instead: usize,
    paths: usize,
    executed: usize,
    executions: String,
    others: String,
    misplaced: String,
    differences: Vec<String>,
}

/// A program that was built by a scheme.
pub struct OracleRow {
    program: String,
    scheme: String,
    exact: bool,
    /// None: two runs of the program that counts all differ, so nothing can be compared.
    found: Option<Findings>,
}

impl OracleRow {
    /// Whether something differs that should not.
    pub fn is_wrong(&self) -> bool {
        self.exact && self.found.as_ref().is_some_and(|f| !f.differences.is_empty())
    }

    fn reported(&self) -> String {
        let Some(f) = &self.found else { return format!("{}: not checked, for two runs of it take different paths", self.program) };
        let mut text = format!(
            "{} {}: {} functions, {} interesting paths, {} of them executed, {} times; {} executions of other paths; {} counted as others; \
                {} functions count all paths instead",
            self.program, self.scheme, f.functions, f.paths, f.executed, f.executions, f.others, f.misplaced, f.instead
        );
        if self.exact {
            f.differences.iter().take(20).for_each(|d| write!(text, "\n  differs: {d}").expect("strings take all"));
        }
        text
    }
}

/// Compares builds of a program that count interesting paths with the one that counts all.
///
/// # Errors
/// A recipe, trodden or the oracle failed, or there is no such scheme.
pub fn check(corpus: &Corpus, program: &str, options: &OracleOptions, oracle: &Path) -> Result<Vec<OracleRow>> {
    let made = InterestingBuilds::prepare(corpus, program, options.input)?;
    let again = made.run_full_again(corpus)?;
    let row = |scheme: &str, exact: bool, found: Option<Findings>| OracleRow {
        program: program.to_owned(),
        scheme: scheme.to_owned(),
        exact,
        found,
    };
    if !compare(oracle, &made.full, &again)?.differences.is_empty() {
        let row = row("", true, None);
        println!("{}", row.reported());
        return Ok(vec![row]);
    }
    let all = SCHEMES.map(|(name, _)| name.to_owned()).to_vec();
    let schemes = if options.scheme.iter().any(|s| s == "all") { &all } else { &options.scheme };
    let mut rows = Vec::new();
    for scheme in schemes {
        let Some((_, exact)) = SCHEMES.iter().find(|(name, _)| name == scheme) else {
            bail!("there is no scheme {scheme}; there are {}", all.join(", "));
        };
        let set = format!("{}:{}", options.interesting, made.full.display());
        let counted = made.run(corpus, scheme, &set)?;
        let row = row(scheme, *exact, Some(compare(oracle, &made.full, &counted)?));
        println!("{}", row.reported());
        rows.push(row);
    }
    Ok(rows)
}

fn compare(oracle: &Path, full: &Path, interesting: &Path) -> Result<Findings> {
    let said = steps::output(Command::new(oracle).arg("interesting").args([full, interesting]))?;
    serde_json::from_str(&said).context("the oracle prints something else than what it found")
}

/// The result as a table.
///
/// # Errors
/// The date cannot be asked for.
pub fn page(rows: &[OracleRow], input: Input, interesting: &str) -> Result<String> {
    let date = steps::output(Command::new("date").args(["-u", "+%F"]))?;
    let mut out = format!(
        "# Interesting paths against all paths, {}\n\nBy `cargo xtask oracle --scheme`, commit {}; input {}, paths `{interesting}` of the \
            same run. Each build counted the run that the build of all paths counted.\n\n\
         | program | scheme | functions | interesting paths | executed | their executions | executions of others | counted as others | \
         functions that count all | differences |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        date.trim(),
        steps::commit(),
        input.name(),
    );
    for row in rows {
        let Some(f) = &row.found else {
            writeln!(out, "| {} | not checked: two runs of it take different paths | | | | | | | | |", row.program)?;
            continue;
        };
        let differences = if row.exact { f.differences.len().to_string() } else { "not exact".to_owned() };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {differences} |",
            row.program, row.scheme, f.functions, f.paths, f.executed, f.executions, f.others, f.misplaced, f.instead
        )?;
    }
    Ok(out)
}

/// Numberings of interesting paths, and whether they promise to be exact.
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
