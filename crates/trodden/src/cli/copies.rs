//! Options of `trodden record --copies`.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::engines::{EngineChoice, engine};
use trodden_console::arguments::laboratory::{CopyChoices, DivisionChoices};
use trodden_console::arguments::partition::copies;

/// A recording by several copies of a program, each of which counts a part of the paths.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copies")]
pub struct Copies {
    /// Run K copies, each counting a different part of the paths, and merge their counts.
    #[arg(long, value_name = "K", value_parser = copies, conflicts_with_all = ["burst", "every", "branches"])]
    pub copies: Option<usize>,
    /// What to divide: paths, edges, iterations, or segments:SET (as of `instrument`).
    #[arg(long, value_name = "WHAT", default_value = "paths", requires = "copies", value_parser = division)]
    pub divide: Division,
    /// With --divide segments:SET: maximum number of calls in a segment [default: 1].
    #[arg(long, value_name = "K", requires = "copies", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: Option<u32>,
    /// Profile to divide by [default: the newest run of this build, else a sampled run].
    #[arg(long, value_name = "PROFILE", requires = "copies")]
    pub weights: Option<String>,
    /// Run copies on: local, slurm[:OPTIONS], kubernetes:IMAGE,CLAIM or template:COMMAND.
    #[arg(long, value_name = "ENGINE", default_value = "local", requires = "copies", value_parser = engine)]
    pub engine: EngineChoice,
    /// Maximum number of copies running at a time [default: number of cores].
    #[arg(short, long, value_name = "N", requires = "copies", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// Run each copy in its own copy of the working folder; keep the first one's files.
    #[arg(long, requires = "copies")]
    pub own_folders: bool,
    /// Do not compare the output of the copies (for programs that print times or PIDs).
    #[arg(long, requires = "copies")]
    pub ignore_output: bool,
    /// Shared folder for copies and results, which is kept [default: a temporary folder].
    #[arg(long, value_name = "FOLDER", requires = "copies")]
    pub work: Option<PathBuf>,
    /// Options of `trodden-lab with` for the division.
    #[arg(skip)]
    pub division: DivisionChoices,
    /// Other options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: CopyChoices,
}

/// What is divided among the copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
    /// The counting of paths.
    Paths,
    /// The counting of edges; each copy counts some of those that determine all edge counts.
    Edges,
    /// The recording of sequences of paths, divided by whole functions.
    Iterations,
    /// The counting of the segments across calls in this set.
    Segments(String),
}

/// Parses the value of `--divide`.
fn division(text: &str) -> Result<Division, String> {
    match (text, text.split_once(':')) {
        ("paths", _) => Ok(Division::Paths),
        ("edges", _) => Ok(Division::Edges),
        ("iterations", _) => Ok(Division::Iterations),
        (_, Some(("segments", set))) if !set.is_empty() => Ok(Division::Segments(set.to_owned())),
        _ => Err("expected paths, edges, iterations or segments:SET".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_set_may_contain_colons() {
        assert_eq!(division("segments:top:9:last~1"), Ok(Division::Segments("top:9:last~1".into())));
        assert_eq!(division("edges"), Ok(Division::Edges));
        assert!(division("segments").is_err() && division("segments:").is_err() && division("edges:1").is_err());
    }
}
