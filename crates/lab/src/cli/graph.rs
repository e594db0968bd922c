//! Syntax of `trodden-lab graph`: the algorithms alone, on graphs from files, and graphs of programs.

use super::numbering::{ModelJob, NumberJob};
use super::{Extract, Reconstruct, Witnesses};
use clap::Subcommand;
use std::path::PathBuf;
use trodden_console::arguments::choices::one_of;
use trodden_console::arguments::partition::{COPY_STRATEGIES, HITS, copies};
use trodden_flow::part::Measure;
use trodden_partition::PartitionStrategy;

/// `trodden-lab graph`
#[derive(Debug, Subcommand)]
pub enum Graph {
    /// Number the paths of a graph in JSON or DOT, and print the numbering as JSON.
    #[command(after_help = "\
Examples:
  echo '{\"entry\":\"s\",\"exit\":\"t\",\"edges\":[[\"s\",\"a\"],[\"a\",\"t\"],[\"s\",\"t\"]]}' | trodden-lab graph number -
  trodden-lab graph number function.dot --list 20
  trodden-lab graph number function.json --scheme pspp --interesting-edges 0,2,5
  trodden-lab graph number function.json --scheme ppp-optimal --interesting 3,17,40 --time-limit 10
  trodden-lab graph number function.dot --scheme pertinent --through a,f")]
    Number(NumberJob),
    /// Print the numbering of a graph's paths as a probability model: ranges of edges, entropy, and the numbers of an arithmetic coder.
    #[command(after_help = "\
Examples:
  trodden-lab graph model function.json
  trodden-lab graph model function.json --scheme ppp --interesting 0,1,5
  trodden-lab graph model function.json --scheme executed --order 2 --interesting 0,1,5 --executions 70,25,5 --explain")]
    Model(ModelJob),
    /// Divide the paths of a graph among copies, and print for each its interesting edges and labels as JSON.
    #[command(after_help = "\
Examples:
  echo '{\"entry\":\"s\",\"exit\":\"t\",\"edges\":[[\"s\",\"a\"],[\"a\",\"t\"],[\"s\",\"t\"]]}' | trodden-lab graph partition - --copies 2
  trodden-lab graph partition function.dot --copies 4 --strategy p3")]
    Partition {
        /// The graph's file; `-` for standard input.
        file: PathBuf,
        /// Number of copies.
        #[arg(short = 'k', long, value_name = "K", default_value_t = 2, value_parser = copies)]
        copies: usize,
        /// How to divide.
        #[arg(long, value_parser = one_of(COPY_STRATEGIES), default_value = "weighted")]
        strategy: PartitionStrategy,
        /// Fold conditionals until nothing folds, rather than once (p3).
        #[arg(long)]
        fold_again: bool,
        /// What is to be small.
        #[arg(long, value_parser = one_of(HITS), default_value = "all")]
        hits: Measure,
        /// Print the tasks, too, with their costs and the probes that they share (p3).
        #[arg(long)]
        explain: bool,
    },
    /// Choose witnesses of a graph, or of functions that call each other, divide them among runs, and check that
    /// partial traces give the execution back.
    Witnesses(Witnesses),
    /// Rebuild an execution from the partial traces of its runs.
    Reconstruct(Reconstruct),
    /// Print the control-flow graphs of any program's machine code, as JSON or DOT.
    Extract(Extract),
    /// Print a function's control-flow graph, as DOT or JSON.
    Show {
        /// An instrumented program or shared library.
        program: PathBuf,
        /// Its function, by name (as in the source, or mangled).
        function: String,
        /// JSON instead of DOT.
        #[arg(long)]
        json: bool,
    },
}
