//! The syntax of `trodden segments`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_stored::named::LAST;

/// `trodden segments`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden segments                          of the last run, recorded by `record --whole-program`, or by a program made by
                                            `trodden instrument --segments`
  trodden segments 12 --function parse      those that end in a function
  trodden segments last --check 12          did the program count what the whole program path of run 12 says?
  trodden segments field --untested --known tests --format sarif

A segment is a caller's path up to a call and the callee's path behind it; of depth k, through k calls.")]
pub struct Segments {
    /// A run (12, last, last~1), a suite, a profile, or logs of a stream.
    #[arg(default_value = LAST)]
    pub profile: String,
    /// Calls that a segment runs through. [default: 1; with --check all depths that the program counts]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: Option<u32>,
    /// Only segments that end in functions of this name.
    #[arg(long, short, value_name = "NAME")]
    pub function: Option<String>,
    /// Only segments that no test executed: those that the program was not made with, nor that --known names.
    #[arg(long)]
    pub untested: bool,
    /// With --untested: runs whose segments are tested, too. May be given several times.
    #[arg(long, value_name = "PROFILE", requires = "untested")]
    pub known: Vec<String>,
    /// Compare the counts of all segments that the program was made to count with those of another run; exit with status 1 if they differ.
    #[arg(long, value_name = "PROFILE", conflicts_with = "untested")]
    pub check: Option<String>,
    /// Exit with status 1 if there is an untested segment.
    #[arg(long, requires = "untested")]
    pub fail_if_new: bool,
    /// At most this many; 0 for all. [default: 10, of other forms than text all]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// In which form.
    #[arg(long, value_enum, default_value_t = SegmentFormat::Text)]
    pub format: SegmentFormat,
    /// Print JSON.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// A form of a report of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SegmentFormat {
    /// For people: both paths beside each other.
    Text,
    /// JSON.
    Json,
    /// SARIF 2.1.0, with code flows through both functions.
    Sarif,
}
