//! Command-line definition of `trodden-lab graph`.

use super::numbering::{GraphModelArguments, GraphNumberArguments};
use super::{ExtractArguments, ReconstructArguments, WitnessesArguments};
use clap::Subcommand;
use std::path::PathBuf;
use trodden_console::arguments::choices::parser_of_choices;
use trodden_console::arguments::partition::{COPY_STRATEGY_CHOICES, HIT_MEASURE_CHOICES, parse_copies};
use trodden_flow::part::Measure;
use trodden_partition::PartitionStrategy;

#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    /// Number the paths of a graph in JSON or DOT, and print the numbering as JSON.
    #[command(after_help = "\
Examples:
  echo '{\"entry\":\"s\",\"exit\":\"t\",\"edges\":[[\"s\",\"a\"],[\"a\",\"t\"],[\"s\",\"t\"]]}' | trodden-lab graph number -
  trodden-lab graph number function.dot --list 20
  trodden-lab graph number function.json --scheme pspp --interesting-edges 0,2,5
  trodden-lab graph number function.json --scheme ppp-optimal --interesting 3,17,40 --time-limit 10
  trodden-lab graph number function.dot --scheme pertinent --through a,f")]
    Number(GraphNumberArguments),
    /// Print a path numbering as a probability model: edge ranges, entropy and arithmetic-coder numbers, as JSON.
    #[command(after_help = "\
Examples:
  trodden-lab graph model function.json
  trodden-lab graph model function.json --scheme ppp --interesting 0,1,5
  trodden-lab graph model function.json --scheme executed --order 2 --interesting 0,1,5 --executions 70,25,5 --explain")]
    Model(GraphModelArguments),
    /// Divide a graph's paths among copies, and print each copy's interesting edges and labels as JSON.
    #[command(after_help = "\
Examples:
  echo '{\"entry\":\"s\",\"exit\":\"t\",\"edges\":[[\"s\",\"a\"],[\"a\",\"t\"],[\"s\",\"t\"]]}' | trodden-lab graph partition - --copies 2
  trodden-lab graph partition function.dot --copies 4 --strategy p3")]
    Partition {
        /// Graph file (JSON or DOT); `-` reads standard input.
        file: PathBuf,
        /// Number of copies.
        #[arg(short = 'k', long, value_name = "K", default_value_t = 2, value_parser = parse_copies)]
        copies: usize,
        /// Strategy that divides the paths.
        #[arg(long, value_parser = parser_of_choices(COPY_STRATEGY_CHOICES), default_value = "weighted")]
        strategy: PartitionStrategy,
        /// Fold conditionals repeatedly until no more can be folded, instead of once (p3).
        #[arg(long)]
        fold_again: bool,
        /// Cost measure to minimise.
        #[arg(long, value_parser = parser_of_choices(HIT_MEASURE_CHOICES), default_value = "all")]
        hits: Measure,
        /// Also print the tasks with their costs and shared probes (p3).
        #[arg(long)]
        explain: bool,
    },
    /// Choose witnesses (blocks or edges to record), divide them among runs, and check that their traces determine the execution.
    Witnesses(WitnessesArguments),
    /// Reconstruct an execution from the partial traces of several runs.
    Reconstruct(ReconstructArguments),
    /// Print the control-flow graphs of a program's machine code, as JSON or DOT.
    Extract(ExtractArguments),
    /// Print the control-flow graph of an instrumented function, as DOT or JSON.
    Show {
        /// Instrumented program or shared library.
        program: PathBuf,
        /// Function to show, by name (source or mangled).
        function: String,
        /// Print JSON instead of DOT.
        #[arg(long)]
        json: bool,
    },
}
