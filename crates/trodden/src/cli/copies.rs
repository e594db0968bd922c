//! Options of recording with several copies.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::engines::{EngineChoice, engine};
use trodden_console::arguments::laboratory::{CopyChoices, DivisionChoices};
use trodden_console::arguments::partition::copies;

/// Several copies of a program, each of which counts a part of the paths.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copies")]
pub struct Copies {
    /// Run K copies, each instrumented for a different part of the paths, and merge their counts.
    #[arg(long, value_name = "K", value_parser = copies, conflicts_with_all = ["burst", "every", "branches"])]
    pub copies: Option<usize>,
    /// What to divide: paths, edges, iterations (sequences of paths), or segments:SET (RUN, top:N[:RUN], share:99%[:RUN]).
    #[arg(long, value_name = "WHAT", default_value = "paths", requires = "copies", value_parser = division)]
    pub divide: Division,
    /// With --divide segments:SET: maximum number of calls in a segment. [default: 1]
    #[arg(long, value_name = "K", requires = "copies", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: Option<u32>,
    /// Profile to divide by: a file, run or suite (default: the newest run of this build, else a first, sampled run).
    #[arg(long, value_name = "PROFILE", requires = "copies")]
    pub weights: Option<String>,
    /// Who runs the copies: local, slurm[:OPTIONS], kubernetes:IMAGE,CLAIM, or template:COMMAND with {script}, {index} or {each}.
    #[arg(long, value_name = "ENGINE", default_value = "local", requires = "copies", value_parser = engine)]
    pub engine: EngineChoice,
    /// Maximum number of copies at a time (default: one for each core).
    #[arg(short, long, value_name = "N", requires = "copies", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// Run each copy in a copy of the working folder; what the first one writes is copied back.
    #[arg(long, requires = "copies")]
    pub own_folders: bool,
    /// Do not compare what copies print, for programs that print times, process numbers and the like.
    #[arg(long, requires = "copies")]
    pub ignore_output: bool,
    /// Folder for the copies and their results, visible to all machines, and kept (default: a temporary one).
    #[arg(long, value_name = "FOLDER", requires = "copies")]
    pub work: Option<PathBuf>,
    /// How the laboratory divides.
    #[arg(skip)]
    pub division: DivisionChoices,
    /// What else only the laboratory chooses.
    #[arg(skip)]
    pub choices: CopyChoices,
}

/// What is divided among copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Division {
    /// The counting of paths.
    Paths,
    /// The counting of edges: some of those from which the counts of all follow.
    Edges,
    /// Sequences of paths, by whole functions.
    Iterations,
    /// The counting of these segments across calls.
    Segments(String),
}

/// Reads what is divided.
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
    fn a_set_of_segments_may_have_colons() {
        assert_eq!(division("segments:top:9:last~1"), Ok(Division::Segments("top:9:last~1".into())));
        assert_eq!(division("edges"), Ok(Division::Edges));
        assert!(division("segments").is_err() && division("segments:").is_err() && division("edges:1").is_err());
    }
}
