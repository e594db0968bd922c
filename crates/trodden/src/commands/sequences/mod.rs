//! Questions asked of sequences of paths and calls; the algorithms are in `trodden-sequence`.
//!
//! | file | what |
//! |---|---|
//! | `recording.rs` | a recording: a compressed sequence for each thread, and what its symbols mean |
//! | `streams.rs`, `text.rs` | recordings of runs; recordings as text |
//! | `grammar.rs` | methods of compression beside each other |
//! | `find.rs`, `hot.rs`, `segments.rs`, `iterations.rs` | strings of events, and what they count |
//! | `diff.rs` | two recordings compared |
//! | `in_report.rs` | what reports and advice of a recorded stream say besides counts |
//! | `phases.rs`, `phases/page.rs` | phases, and their chart |

mod diff;
mod find;
mod grammar;
mod hot;
pub mod in_report;
pub mod iterations;
mod open;
mod phases;
mod recording;
mod segments;
mod streams;
mod text;

use crate::cli::StreamAnalysis;
use crate::output;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

const SCHEMA_VERSION: u32 = 1;

/// Answers a question.
///
/// # Errors
/// A recording cannot be read, or a parameter is out of its range.
pub fn run(job: &StreamAnalysis) -> Result<ExitCode> {
    match job {
        StreamAnalysis::Grammar(job) => grammar::run(job),
        StreamAnalysis::Find(job) => find::run(job),
        StreamAnalysis::Hot(job) => hot::run(job),
        StreamAnalysis::Segments(job) => segments::run(job),
        StreamAnalysis::Iterations(job) => iterations::run(job),
        StreamAnalysis::Diff(job) => diff::run(job),
        StreamAnalysis::Phases(job) => phases::run(job),
    }
}

/// Prints a result as JSON or as lines.
fn print(json: bool, document: &impl Serialize, lines: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(output::text_or_json(json));
    if json {
        #[derive(Serialize)]
        struct Versioned<'a, T> {
            schema_version: u32,
            #[serde(flatten)]
            document: &'a T,
        }
        serde_json::to_writer_pretty(&mut out, &Versioned { schema_version: SCHEMA_VERSION, document })?;
        writeln!(out)?;
    } else {
        lines(&mut out)?;
    }
    Ok(out.flush()?)
}

/// Where paths run, below the results that name them.
fn write_sources(out: &mut dyn Write, sources: &BTreeMap<String, String>) -> io::Result<()> {
    if !sources.is_empty() {
        writeln!(out, "\npaths:")?;
    }
    let width = sources.keys().map(String::len).max().unwrap_or(0).min(40);
    sources.iter().try_for_each(|(label, source)| writeln!(out, "  {label:<width$}  {source}"))
}

/// The first of many, all if `top` is 0.
fn first<T>(mut results: Vec<T>, top: usize) -> Vec<T> {
    if top > 0 {
        results.truncate(top);
    }
    results
}

fn percent(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}
