//! The syntax of `trodden patterns`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::str::FromStr;
use trodden_console::arguments::shares::percent;
use trodden_stored::named::LAST;

/// What repeats in a sequence of paths and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PatternKind {
    /// Short strings of paths that cost much (Larus 1999).
    Hot,
    /// Paths across consecutive iterations of loops, and patterns that iterations repeat.
    Iterations,
    /// Intervals that execute the same paths.
    Phases,
}

/// `trodden patterns`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden patterns hot --length 2-10 --threshold 5
  trodden patterns iterations 12 --length 4
  trodden patterns phases 12 --html phases.html

A run is one of `record --whole-program`. Texts begin with `#trodden events 1`, or are sequences that `trodden simulate` wrote.")]
pub struct Patterns {
    /// What to look for.
    #[arg(value_enum)]
    pub kind: PatternKind,
    /// A run (12, last, last~1) or its logs, or a sequence of events as text.
    #[arg(default_value = LAST)]
    pub file: PathBuf,
    /// Thread, by its number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub thread: usize,
    /// Paths of a hot subpath, as N or MIN-MAX (default 2-50); consecutive iterations, as N (default 4).
    #[arg(long, value_name = "N")]
    pub length: Option<Length>,
    /// Least share in per cent: of all paths for hot subpaths (default 1), of equal beginnings for patterns of iterations (default 90).
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub threshold: Option<f64>,
    /// Maximum number of results; 0 for all. [default: 10, of JSON all; at most 10 phases]
    #[arg(long, value_name = "N")]
    pub top: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Phases: write an HTML page with the chart to this file instead.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub html: Option<PathBuf>,
}

/// A length, or a range of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// The shortest.
    pub least: usize,
    /// The longest.
    pub most: usize,
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Length, String> {
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| (1..=1000).contains(number));
            number.ok_or_else(|| format!("expected N or MIN-MAX of numbers from 1 to 1000, not `{text}`"))
        };
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let length = Length { least: number(least)?, most: number(most)? };
        if length.least > length.most { Err(format!("{} is more than {}", length.least, length.most)) } else { Ok(length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_numbers_or_ranges() {
        assert_eq!("3".parse(), Ok(Length { least: 3, most: 3 }));
        assert_eq!("2-50".parse(), Ok(Length { least: 2, most: 50 }));
        assert_eq!("5-4".parse::<Length>(), Err("5 is more than 4".into()));
        for wrong in ["", "0", "1-", "-3", "1001", "a"] {
            assert!(wrong.parse::<Length>().is_err(), "{wrong}");
        }
    }
}
