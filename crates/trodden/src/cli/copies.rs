//! Options of `trodden record --copies`.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::engines::{EngineChoice, parse_engine};
use trodden_console::arguments::laboratory::{CopyChoices, DivisionChoices};
use trodden_console::arguments::partition::parse_copies;

/// A recording by several copies of a program, each of which counts a part of the paths.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copies")]
pub struct RecordCopiesArguments {
    /// Run K copies that count different paths, and merge their counts.
    #[arg(long, value_name = "K", value_parser = parse_copies, conflicts_with_all = ["burst", "every", "branches"])]
    pub copies: Option<usize>,
    /// Divide paths, edges, iterations or segments:SET.
    #[arg(long, value_name = "WHAT", default_value = "paths", requires = "copies", value_parser = parse_copy_division)]
    pub divide: CopyDivision,
    /// Profile that guides the division [default: newest runs, or a sampled run].
    ///
    /// By default, up to four of the newest runs of the same build are used. If there are none, a sampled run is made first.
    #[arg(long, value_name = "PROFILE", requires = "copies")]
    pub weights: Option<String>,
    /// Engine: local, slurm, kubernetes or template:COMMAND.
    ///
    /// Forms with options: slurm[:OPTIONS], kubernetes:IMAGE,CLAIM, template:COMMAND with {script}, {index} or {each}.
    #[arg(long, value_name = "ENGINE", default_value = "local", requires = "copies", value_parser = parse_engine)]
    pub engine: EngineChoice,
    /// Maximum number of copies running at a time [default: number of cores].
    #[arg(short, long, value_name = "N", requires = "copies", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// Run each copy in its own copy of the working folder.
    ///
    /// Files that the first copy writes are copied back.
    #[arg(long, requires = "copies")]
    pub own_folders: bool,
    /// Do not compare the output of the copies.
    ///
    /// For programs that print times, process IDs and the like.
    #[arg(long, requires = "copies")]
    pub ignore_output: bool,
    /// Shared folder for copies and results [default: temporary].
    #[arg(long, value_name = "FOLDER", requires = "copies")]
    pub work: Option<PathBuf>,
    /// Options of `trodden-lab with` for the division.
    #[arg(skip)]
    pub division: DivisionChoices,
    /// Other options of `trodden-lab with`.
    #[arg(skip)]
    pub choices: CopyChoices,
}

/// The work that is divided among the copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyDivision {
    /// The counting of paths.
    Paths,
    /// The counting of edges. Each copy counts a part of a set of edges that determines all edge counts.
    Edges,
    /// The recording of path sequences; each function is recorded by one copy.
    Iterations,
    /// The counting of segments across calls; the text names the set of segments.
    Segments(String),
}

/// Parses the value of `--divide`.
fn parse_copy_division(text: &str) -> Result<CopyDivision, String> {
    match (text, text.split_once(':')) {
        ("paths", _) => Ok(CopyDivision::Paths),
        ("edges", _) => Ok(CopyDivision::Edges),
        ("iterations", _) => Ok(CopyDivision::Iterations),
        (_, Some(("segments", set))) if !set.is_empty() => Ok(CopyDivision::Segments(set.to_owned())),
        _ => Err("expected paths, edges, iterations or segments:SET".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_set_may_contain_colons() {
        assert_eq!(parse_copy_division("segments:top:9:last~1"), Ok(CopyDivision::Segments("top:9:last~1".into())));
        assert_eq!(parse_copy_division("edges"), Ok(CopyDivision::Edges));
        assert!(
            parse_copy_division("segments").is_err()
                && parse_copy_division("segments:").is_err()
                && parse_copy_division("edges:1").is_err()
        );
    }
}
