//! Syntax of `trodden-lab patterns`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;
use trodden_console::arguments::shares::parse_percent;
use trodden_stored::named::LAST_RUN_NAME;

/// A kind of repetition in a sequence of paths and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PatternKind {
    /// Short subsequences of paths that cost most (Larus 1999).
    Hot,
    /// Paths over consecutive loop iterations, and periodic patterns of iterations.
    Iterations,
    /// Intervals that execute the same paths.
    Phases,
}

/// `trodden-lab patterns`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab patterns hot --length 2-10 --threshold 5
  trodden-lab patterns iterations 12 --length 4
  trodden-lab patterns phases 12 --html phases.html

The run must be recorded with `record --whole-program`, or for `iterations` also with
`record --copies K --divide iterations`. A text of events starts with
`#trodden events 1`, or was written by `trodden-lab simulate --sequence`.")]
pub struct PatternsArguments {
    /// Kind of repetition.
    #[arg(value_enum)]
    pub kind: PatternKind,
    /// Run (12, last, last~1) or its logs, or a sequence of events as text.
    #[arg(default_value = LAST_RUN_NAME)]
    pub file: PathBuf,
    /// Number of the thread.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub thread: usize,
    /// Paths in a subpath [default: 2-50], or iterations [default: 4].
    ///
    /// N or MIN-MAX for the kind `hot`, N for the kind `iterations`.
    #[arg(long, value_name = "N|MIN-MAX")]
    pub length: Option<LengthRange>,
    /// Minimum percentage [default: 1 for hot, 90 for iterations].
    ///
    /// `hot`: share of all paths. `iterations`: of the places where a pattern's beginning occurs, those where the pattern continues.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub threshold: Option<f64>,
    /// Maximum results, 0 for all [default: 10; JSON: all; phases: 10].
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// phases: write an HTML page with a chart to this file instead.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub html: Option<PathBuf>,
}

/// A range of lengths, in paths or iterations; both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthRange {
    /// Shortest length.
    pub min: usize,
    /// Longest length.
    pub max: usize,
}

impl FromStr for LengthRange {
    type Err = String;

    fn from_str(text: &str) -> Result<LengthRange, String> {
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| (1..=1000).contains(number));
            number.ok_or_else(|| format!("expected N or MIN-MAX of numbers from 1 to 1000, not `{text}`"))
        };
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        let length = LengthRange { min: number(min)?, max: number(max)? };
        if length.min > length.max { Err(format!("{} is more than {}", length.min, length.max)) } else { Ok(length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_numbers_or_ranges() {
        assert_eq!("3".parse(), Ok(LengthRange { min: 3, max: 3 }));
        assert_eq!("2-50".parse(), Ok(LengthRange { min: 2, max: 50 }));
        assert_eq!("5-4".parse::<LengthRange>(), Err("5 is more than 4".into()));
        for wrong in ["", "0", "1-", "-3", "1001", "a"] {
            assert!(wrong.parse::<LengthRange>().is_err(), "{wrong}");
        }
    }
}
