//! Command-line definition of `trodden-lab graph extract`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab graph extract /usr/bin/gzip                                   every function, as JSON
  trodden-lab graph extract /usr/bin/gzip --function 0x36b5                 the function that contains this address
  trodden-lab graph extract ./prog --function main --format dot | dot -Tsvg -o main.svg
  trodden-lab graph extract ./prog --side-build ./prog-with-map             blocks from the compiler's map in another build

Graphs are taken from the compiler's map of the basic blocks (clang -fbasic-block-address-map) if the program has one, otherwise from the \
machine code. `source` says which was used, and `uncertain` lists facts that could not be determined for certain.")]
pub struct ExtractArguments {
    /// An x86-64 ELF executable or shared library, stripped or not.
    pub binary: PathBuf,
    /// Extract only this function: its name (source or mangled), or an address in it (0x...). Can be repeated.
    #[arg(long, short, value_name = "FUNCTION")]
    pub function: Vec<String>,
    /// Another build with identical code that contains the compiler's map of the basic blocks.
    #[arg(long, value_name = "FILE")]
    pub side_build: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = GraphFormat::Json)]
    pub format: GraphFormat,
}

/// Output format of graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// One JSON object.
    Json,
    /// Graphviz, with one cluster per function.
    Dot,
}
