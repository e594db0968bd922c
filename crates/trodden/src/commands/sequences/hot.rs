//! `trodden stream hot`: minimal hot subpaths, of the sequence of paths alone, as they ended. A path weighs one.

use super::open::{self, path_events};
use super::{first, print, write_sources};
use crate::cli::StreamHot;
use anyhow::{Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use trodden_report::words::plural;
use trodden_sequence::hot::{HotParameters, minimal_hot_subpaths};

#[derive(Serialize)]
struct Document {
    /// Events of paths.
    paths: u64,
    /// The least cost.
    threshold: u64,
    subpaths: Vec<Row>,
    /// Where paths run.
    sources: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Row {
    events: Vec<String>,
    frequency: u64,
    cost: u64,
    percent: f64,
}

/// Finds them.
///
/// # Errors
/// The recording cannot be read, or a parameter is out of its range.
pub fn run(job: &StreamHot) -> Result<ExitCode> {
    ensure!(job.threshold > 0.0 && job.threshold <= 100.0, "--threshold {}: more than 0, at most 100 percent", job.threshold);
    ensure!(job.shortest <= job.longest, "--shortest {} is more than --longest {}", job.shortest, job.longest);
    let opened = open::open(&job.input)?;
    let paths = path_events(&opened.grammar, &opened.table);
    let threshold = ((paths as f64 * job.threshold / 100.0).ceil() as u64).max(1);
    let parameters = HotParameters { shortest: job.shortest, longest: job.longest, threshold: threshold.into() };
    let sequence = opened.grammar.retained(|symbol| opened.table.is_path(symbol))?;
    let found = minimal_hot_subpaths(&sequence, parameters, |_| 1)?;
    let subpaths: Vec<Row> = first(found, job.input.top)
        .into_iter()
        .map(|hot| Row {
            events: opened.table.labels(&hot.symbols),
            frequency: hot.frequency,
            cost: hot.cost as u64,
            percent: super::percent(hot.cost as u64, paths),
        })
        .collect();
    let sources = opened.table.sources(subpaths.iter().flat_map(|row| &row.events));
    let document = Document { paths, threshold, subpaths, sources };
    print(job.input.json, &document, |out| {
        writeln!(
            out,
            "{} executed; a subpath of {} to {} is hot from {} on",
            plural(paths.into(), "path", "paths"),
            job.shortest,
            plural(job.longest as u128, "path", "paths"),
            plural(threshold.into(), "path", "paths")
        )?;
        for row in &document.subpaths {
            writeln!(out, "{:>6.2} %  {:>10} x  {}", row.percent, row.frequency, row.events.join("  "))?;
        }
        write_sources(out, &document.sources)
    })?;
    Ok(ExitCode::SUCCESS)
}
