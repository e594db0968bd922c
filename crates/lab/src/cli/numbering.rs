//! Arguments of `trodden-lab graph number` and `trodden-lab graph model`.

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::choices::one_of;
use trodden_flow::NumberingScheme;

/// What to number, and how.
#[derive(Debug, Args)]
pub struct NumberJob {
    /// The graph's file; `-` for standard input.
    pub file: PathBuf,
    /// Numbering of paths.
    #[arg(long, default_value = "ball-larus", value_parser = schemes())]
    pub scheme: NumberingScheme,
    #[command(flatten)]
    pub interesting: Interesting,
    /// Orders of out-edges that ppp tries besides that of the graph (default: 16).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65536))]
    pub restarts: Option<u32>,
    /// Seconds that ppp-optimal may search; then the best so far comes with the bound that was proven (default: 60).
    #[arg(long, value_name = "SECONDS", value_parser = trodden_console::arguments::times::seconds)]
    pub time_limit: Option<u64>,
    /// List this many paths with their numbers.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub list: u64,
    /// Print what is computed on the way, too (pspp, ppp).
    #[arg(long)]
    pub explain: bool,
}

impl Default for NumberJob {
    fn default() -> Self {
        let interesting = Interesting::default();
        NumberJob {
            file: PathBuf::from("-"),
            scheme: NumberingScheme::BallLarus,
            interesting,
            restarts: None,
            time_limit: None,
            list: 1000,
            explain: false,
        }
    }
}

/// Which paths are of interest; without, those that the graph's file names, and if it names none, all.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub struct Interesting {
    /// Paths of interest, by their Ball-Larus numbers.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub interesting: Option<Vec<u64>>,
    /// Edges: all paths are of interest that take no other edges.
    #[arg(long, value_name = "EDGES", value_delimiter = ',')]
    pub interesting_edges: Option<Vec<u32>>,
    /// Nodes: all paths that pass through all of them are of interest.
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    pub through: Option<Vec<String>>,
}

/// A probability model of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelScheme {
    /// Every path is as likely as any other.
    BallLarus,
    /// The interesting paths share the numbers that preferential numbering gives them.
    Ppp,
    /// Branches as the graph's weights have them.
    Measured,
    /// Edges as they followed others on the paths of interest: a finite-context model (--order, --executions).
    Executed,
}

/// What to show as a probability model, and how.
#[derive(Debug, Args)]
pub struct ModelJob {
    /// The graph's file; `-` for standard input.
    pub file: PathBuf,
    /// The model.
    #[arg(long, value_enum, default_value_t = ModelScheme::BallLarus)]
    pub scheme: ModelScheme,
    /// Paths of interest, by their Ball-Larus numbers, rather than those that the file names.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub interesting: Vec<u64>,
    /// With executed: how many edges before an edge are its context, besides its source.
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub order: usize,
    /// With executed: executions of the paths of interest, in their order [default: 1 each].
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub executions: Vec<u64>,
    /// Precision of entropy and gamma, in bits after the point.
    #[arg(long, value_name = "BITS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub bits: u32,
    /// List this many paths and contexts.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub list: u64,
    /// Print how each path is encoded, edge by edge, and what its number is decoded to.
    #[arg(long)]
    pub explain: bool,
}

impl Default for ModelJob {
    fn default() -> Self {
        ModelJob {
            file: PathBuf::from("-"),
            scheme: ModelScheme::BallLarus,
            interesting: Vec::new(),
            order: 1,
            executions: Vec::new(),
            bits: 64,
            list: 1000,
            explain: false,
        }
    }
}

fn schemes() -> impl TypedValueParser<Value = NumberingScheme> {
    one_of(NumberingScheme::ALL.map(|scheme| (scheme, scheme.name(), help(scheme))))
}

fn help(scheme: NumberingScheme) -> &'static str {
    match scheme {
        NumberingScheme::BallLarus => "Every acyclic path has a number (Ball and Larus)",
        NumberingScheme::Spp => "Selective: few probes; other paths may have the number of an interesting one",
        NumberingScheme::Mspp => "Selective, with probes put back until that is no longer so; small graphs only",
        NumberingScheme::Pertinent => "Compact numbers for the paths over some edges; other paths have higher ones",
        NumberingScheme::Pspp => "Precise selective: no other path has the number of an interesting one",
        NumberingScheme::Ppp => "Preferential: compact numbers for a list of paths, checked against the Ball-Larus number",
        NumberingScheme::KnownTable => "Ball-Larus numbers in a perfect hash table of the known ones",
        NumberingScheme::PppOptimal => "As ppp with the most compact numbers, and a bound on how compact they can be",
        NumberingScheme::Approximate => "As ppp without the check",
    }
}
