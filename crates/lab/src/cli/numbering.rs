//! Arguments of `trodden-lab graph number` and `trodden-lab graph model`.

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_console::arguments::choices::parser_of_choices;
use trodden_flow::NumberingScheme;

#[derive(Debug, Args)]
pub struct GraphNumberArguments {
    /// Graph file (JSON or DOT); `-` reads standard input.
    pub file: PathBuf,
    /// Numbering scheme.
    #[arg(long, default_value = "ball-larus", value_parser = numbering_scheme_parser())]
    pub scheme: NumberingScheme,
    #[command(flatten)]
    pub interesting: InterestingPathsArguments,
    /// Number of out-edge orders that ppp tries in addition to the graph's own [default: 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=65536))]
    pub restarts: Option<u32>,
    /// Time limit of ppp-optimal, in seconds; when it expires, the best numbering so far and the proven bound are printed [default: 60].
    #[arg(long, value_name = "SECONDS", value_parser = trodden_console::arguments::times::parse_seconds)]
    pub time_limit: Option<u64>,
    /// Maximum number of paths to list.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub list: u64,
    /// Also print intermediate results (pspp, ppp).
    #[arg(long)]
    pub explain: bool,
}

impl Default for GraphNumberArguments {
    fn default() -> Self {
        let interesting = InterestingPathsArguments::default();
        GraphNumberArguments {
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

/// Options that select the interesting paths. By default, they are the paths that the graph file lists, or all paths if it lists none.
#[derive(Debug, Default, Args)]
#[group(multiple = false)]
pub struct InterestingPathsArguments {
    /// Interesting paths, by their Ball-Larus numbers.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub interesting: Option<Vec<u64>>,
    /// Edges; a path is interesting if it takes no others.
    #[arg(long, value_name = "EDGES", value_delimiter = ',')]
    pub interesting_edges: Option<Vec<u32>>,
    /// Nodes; a path is interesting if it passes through all of them.
    #[arg(long, value_name = "NODES", value_delimiter = ',')]
    pub through: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelScheme {
    /// All paths are equally likely.
    BallLarus,
    /// The interesting paths share the number range that preferential numbering assigns to them.
    Ppp,
    /// Branch probabilities follow the weights in the graph.
    Measured,
    /// A finite-context model of the edge sequences on the interesting paths (--order, --executions).
    Executed,
}

#[derive(Debug, Args)]
pub struct GraphModelArguments {
    /// Graph file (JSON or DOT); `-` reads standard input.
    pub file: PathBuf,
    /// Probability model.
    #[arg(long, value_enum, default_value_t = ModelScheme::BallLarus)]
    pub scheme: ModelScheme,
    /// Interesting paths, by their Ball-Larus numbers [default: the paths that the file lists].
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub interesting: Vec<u64>,
    /// Number of preceding edges that, together with an edge's source node, form the edge's context (executed).
    #[arg(long, value_name = "K", default_value_t = 1)]
    pub order: usize,
    /// Execution counts of the interesting paths, in the same order (executed) [default: 1 each].
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub executions: Vec<u64>,
    /// Precision of entropy and gamma, in bits after the binary point.
    #[arg(long, value_name = "BITS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub bits: u32,
    /// Maximum number of paths and contexts to list.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub list: u64,
    /// Also print how each path is encoded, edge by edge, and what its number decodes to.
    #[arg(long)]
    pub explain: bool,
}

impl Default for GraphModelArguments {
    fn default() -> Self {
        GraphModelArguments {
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

fn numbering_scheme_parser() -> impl TypedValueParser<Value = NumberingScheme> {
    parser_of_choices(NumberingScheme::ALL.map(|scheme| (scheme, scheme.name(), describe_scheme(scheme))))
}

fn describe_scheme(scheme: NumberingScheme) -> &'static str {
    match scheme {
        NumberingScheme::BallLarus => "Number every acyclic path (Ball and Larus)",
        NumberingScheme::Spp => "Selective: few probes; an uninteresting path may share a number with an interesting one",
        NumberingScheme::Mspp => "Like spp, but no uninteresting path shares an interesting one's number; small graphs only",
        NumberingScheme::Pertinent => "Compact numbers for the paths over selected edges; higher numbers for all others",
        NumberingScheme::Pspp => "Precise selective: no uninteresting path shares a number with an interesting one",
        NumberingScheme::Ppp => "Preferential: compact numbers for listed paths, verified by the Ball-Larus number",
        NumberingScheme::KnownTable => "Ball-Larus numbers, looked up in a perfect hash table of the known numbers",
        NumberingScheme::PppOptimal => "Like ppp, but searches for the most compact numbers and proves a bound",
        NumberingScheme::Approximate => "Like ppp, but without the verification",
    }
}
