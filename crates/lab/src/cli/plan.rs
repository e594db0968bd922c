//! Command-line definition of `trodden-lab plan`.

use clap::Args;
use std::path::PathBuf;
use trodden_console::arguments::choices::parser_of_choices;
use trodden_console::arguments::partition::{COPY_STRATEGY_CHOICES, HIT_MEASURE_CHOICES, ProfitableChoices, parse_copies};
use trodden_flow::part::Measure;
use trodden_partition::PartitionStrategy;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab plan ./prog -k 8
  trodden-lab plan ./prog -k 2,4,8 --strategy sbl,pbl,p3,weighted --profile last
  trodden-lab plan ./prog -k 4 --hits labels --json")]
pub struct PlanArguments {
    /// Instrumented program or shared library.
    pub program: PathBuf,
    /// Numbers of copies to plan for.
    #[arg(short = 'k', long, value_name = "K", default_value = "4", value_delimiter = ',', value_parser = parse_copies)]
    pub copies: Vec<usize>,
    /// Strategies that divide the paths.
    #[arg(long, value_parser = parser_of_choices(COPY_STRATEGY_CHOICES), default_value = "weighted", value_delimiter = ',')]
    pub strategy: Vec<PartitionStrategy>,
    /// Profile of the program: a file, a run or a suite. By default, frequencies are estimated.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// Maximum number of probes per copy; uses as many copies as needed, instead of --copies and --strategy.
    #[arg(long, value_name = "N", conflicts_with_all = ["copies", "strategy"], value_parser = clap::value_parser!(u32).range(1..))]
    pub max_probes: Option<u32>,
    /// Functions to divide (p3).
    #[command(flatten)]
    pub profitable: ProfitableChoices,
    /// Fold conditionals repeatedly until no more can be folded, instead of once (p3).
    #[arg(long)]
    pub fold_again: bool,
    /// Cost measure to minimise.
    #[arg(long, value_parser = parser_of_choices(HIT_MEASURE_CHOICES), default_value = "all")]
    pub hits: Measure,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
