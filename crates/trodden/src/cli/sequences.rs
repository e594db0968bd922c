//! The syntax of questions asked of sequences of paths and calls: `trodden stream find`, `hot` and others.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use trodden_console::arguments::METHODS;
use trodden_console::arguments::choices::one_of;
use trodden_sequence::CompressionMethod;

/// Questions about sequences of paths and calls.
#[derive(Debug, Subcommand)]
pub enum StreamAnalysis {
    /// Find where a string of events occurs, without expanding the sequence.
    Find(StreamFind),
    /// Find minimal hot subpaths: short strings of paths that cost much (Larus 1999).
    Hot(StreamHot),
    /// Count interprocedural path segments of depth k.
    Segments(StreamSegments),
    /// Count paths across k consecutive iterations, and patterns that iterations repeat.
    Iterations(StreamIterations),
    /// Where two recordings differ, aligned by calls.
    Diff(StreamDiff),
    /// Find phases: intervals that execute the same paths.
    Phases(StreamPhases),
}

/// What is read, and how it is shown.
#[derive(Debug, Args)]
pub struct StreamInput {
    /// A run recorded with --whole-program (12, last, last~1), or its logs; or a sequence as text: a file that begins with
    /// `#trodden events 1`, or what `trodden simulate --preset whole-program --sequence` writes.
    pub recording: String,
    /// Which thread, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub thread: usize,
    /// Compress the sequence again, in memory. By default a run's grammars are used as they were recorded, and a text is compressed by
    /// phrases.
    #[arg(long, value_parser = one_of(METHODS))]
    pub method: Option<CompressionMethod>,
    /// At most so many results; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A number of a range.
fn number<const LEAST: usize, const MOST: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| format!("expected a number, {LEAST} to {MOST}"))
}

/// A share in percent.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a number of percent, 0 to 100".to_owned())
}

/// `trodden stream find`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden stream find run.events 'parse:12' 'enter lex' 'lex:3'
  trodden stream find run.events 'enter free' 'leave' 'enter free'")]
pub struct StreamFind {
    /// What is read.
    #[command(flatten)]
    pub input: StreamInput,
    /// Events in order, as other commands print them: FUNCTION:PATH, `enter FUNCTION`, `leave`.
    #[arg(required = true, value_name = "EVENT")]
    pub events: Vec<String>,
}

/// `trodden stream hot`
#[derive(Debug, Args)]
pub struct StreamHot {
    /// What is read.
    #[command(flatten)]
    pub input: StreamInput,
    /// The fewest paths of a subpath.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = number::<1, 1000>)]
    pub shortest: usize,
    /// The most paths of a subpath.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number::<1, 1000>)]
    pub longest: usize,
    /// The least cost, number of paths times frequency, in percent of all paths of the sequence.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub threshold: f64,
}

/// `trodden stream segments`
#[derive(Debug, Args)]
pub struct StreamSegments {
    /// What is read.
    #[command(flatten)]
    pub input: StreamInput,
    /// Calls that a segment spans at most; or levels of calls of a supergraph.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = number::<0, 100>)]
    pub depth: usize,
    /// Count supergraph paths: across siblings, out of loops of callees (what counting in inlined code counts).
    #[arg(long)]
    pub supergraph: bool,
}

/// `trodden stream iterations`
#[derive(Debug, Args)]
pub struct StreamIterations {
    /// What is read.
    #[command(flatten)]
    pub input: StreamInput,
    /// Consecutive iterations.
    #[arg(long, value_name = "K", default_value_t = 4, conflicts_with = "branches", value_parser = number::<1, 64>)]
    pub iterations: usize,
    /// Patterns that at least so many percent of the paths with their iterations go on with.
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, conflicts_with = "branches", value_parser = percent)]
    pub share: f64,
    /// Count the last N branches as a path instead (Young and Smith); the events must name their blocks.
    #[arg(long, value_name = "N", value_parser = number::<1, 1000>)]
    pub branches: Option<usize>,
}

/// `trodden stream diff`
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 if the sequences are equal, 1 if they differ, 2 if one cannot be read.")]
pub struct StreamDiff {
    /// What is read on the left side.
    #[command(flatten)]
    pub input: StreamInput,
    /// The recording on the right side.
    pub right: String,
}

/// `trodden stream phases`
#[derive(Debug, Args)]
pub struct StreamPhases {
    /// What is read.
    #[command(flatten)]
    pub input: StreamInput,
    /// Events of paths in an interval; by default a hundredth of the sequence.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub interval: Option<u64>,
    /// The most phases.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = number::<1, 1_000_000>)]
    pub most: usize,
    /// Write a self-contained HTML page with the chart.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
