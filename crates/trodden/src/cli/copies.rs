//! Options of recording with several copies.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::partition::copies;
use trodden_flow::part::Measure;
use trodden_partition::PartitionStrategy;

/// Several copies of a program, each of which counts a part of the paths.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copies")]
pub struct Copies {
    /// Run so many differently instrumented copies on the same input, and add up what they count.
    #[arg(long, value_name = "K", value_parser = copies, conflicts_with_all = ["sample", "kind", "together"])]
    pub copies: Option<usize>,
    /// How to divide the counting; only the laboratory chooses another way.
    #[arg(skip = PartitionStrategy::Weighted)]
    pub strategy: PartitionStrategy,
    /// Count edges, not paths: each copy some of those from which the counts of all follow.
    #[arg(long, requires = "copies")]
    pub edges: bool,
    /// Share the counting of interprocedural segments, not of paths: those of a run with a stream (12, last), or of a program that
    /// counted them; `top:N[:RUN]` or `share:99%[:RUN]` of them. `trodden segments` shows the result.
    #[arg(
        long,
        value_name = "SET",
        requires = "copies",
        conflicts_with_all = ["edges", "weights", "no_first_run", "baseline", "costs"]
    )]
    pub segments: Option<String>,
    /// Share the sequences of paths across iterations, by whole functions, not the counting of paths. `trodden stream iterations` shows the
    /// result.
    #[arg(
        long,
        requires = "copies",
        conflicts_with_all = ["edges", "segments", "weights", "no_first_run", "baseline", "costs"]
    )]
    pub iterations: bool,
    /// With --segments: calls that a segment runs through at most.
    #[arg(long, value_name = "K", default_value_t = 1, requires = "segments", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub depth: u32,
    /// A profile of an earlier run, by which to divide: a file, a run or a suite. By default (weighted) the newest run
    /// of this build; without one, the program runs once more first, sampled.
    #[arg(long, value_name = "PROFILE", requires = "copies")]
    pub weights: Option<String>,
    /// If no run of this build is in the run store, divide by estimated frequencies.
    #[arg(long, requires = "copies", conflicts_with = "weights")]
    pub no_first_run: bool,
    /// What is to be small, as the laboratory chooses.
    #[arg(skip = Measure::All)]
    pub hits: Measure,
    /// Divide functions that are called from several places as well: a choice of the laboratory, for its strategy p3.
    #[arg(skip)]
    pub all_procedures: bool,
    /// Who runs the copies.
    #[arg(long, value_enum, default_value_t = EngineKind::Local, requires = "copies")]
    pub engine: EngineKind,
    /// With --engine template: a command of the shell with {script} or {index} (run for each copy), or {each} (run
    /// once): `ssh host{index} sh {script}`.
    #[arg(long, value_name = "COMMAND", required_if_eq("engine", "template"), requires = "copies")]
    pub template: Option<String>,
    /// With --engine slurm: an option of sbatch; may be given several times.
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true, requires = "copies")]
    pub slurm_option: Vec<String>,
    /// With --engine kubernetes: the container image.
    #[arg(long, value_name = "IMAGE", required_if_eq("engine", "kubernetes"), requires = "copies")]
    pub image: Option<String>,
    /// With --engine kubernetes: the claim of the volume that has the working folder.
    #[arg(long, value_name = "CLAIM", required_if_eq("engine", "kubernetes"), requires = "copies")]
    pub claim: Option<String>,
    /// Most copies at a time (local, template); by default as many as there are cores.
    #[arg(long, value_name = "N", requires = "copies", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub parallel: Option<u32>,
    /// Bound on each copy's memory (address space) in MiB (local).
    #[arg(long, value_name = "MIB", requires = "copies", value_parser = clap::value_parser!(u64).range(16..=1 << 30))]
    pub memory: Option<u64>,
    /// How often a copy that did not come to its end is run again.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "copies")]
    pub retries: u32,
    /// Each copy runs in a copy of the working folder, so that their files do not clash; what the first one makes is copied back.
    #[arg(long, requires = "copies")]
    pub own_folders: bool,
    /// Do not compare what copies print: for programs that print times, process numbers and the like. Their counts and
    /// exit status are compared.
    #[arg(long, requires = "copies")]
    pub ignore_output: bool,
    /// Standard input of each copy. By default what comes by a pipe is kept and given to each; else there is none.
    #[arg(long, value_name = "FILE", requires = "copies")]
    pub input: Option<PathBuf>,
    /// Run the program itself and one without counting as well, each alone: for overheads, and to compare the profiles.
    #[arg(long, requires = "copies")]
    pub baseline: bool,
    /// Count executions of probes in the copies as well: a choice of the laboratory.
    #[arg(skip)]
    pub count_hits: bool,
    /// Write what each copy cost to this file: a page with a chart if its name ends in .html, else JSON.
    #[arg(long, value_name = "FILE", requires = "copies")]
    pub costs: Option<PathBuf>,
    /// Folder for the copies and their results, which all machines see; kept. By default a temporary one beside the profile.
    #[arg(long, value_name = "FOLDER", requires = "copies")]
    pub work: Option<PathBuf>,
}

/// Who runs copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineKind {
    /// Processes of this machine.
    Local,
    /// A job array of a Slurm cluster.
    Slurm,
    /// Any command that runs a script elsewhere.
    Template,
    /// An Indexed Job; its manifest is written, and results are waited for.
    Kubernetes,
}
