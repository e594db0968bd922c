//! The syntax of `trodden-lab graph extract`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `trodden-lab graph extract`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trodden-lab graph extract /usr/bin/gzip                                   every function, as JSON
  trodden-lab graph extract /usr/bin/gzip --function 0x36b5                 the function that this address lies in
  trodden-lab graph extract ./prog --function main --format dot | dot -Tsvg -o main.svg
  trodden-lab graph extract ./prog --side-build ./prog-with-map             blocks by the compiler's map of another build of the same code

The graph of a function comes from the compiler's map of its blocks (clang -fbasic-block-address-map) where there is one, and otherwise \
from the
machine code; `source` says which, and `uncertain` what is not certain.")]
pub struct Extract {
    /// An x86-64 ELF executable or shared library, stripped or not.
    pub binary: PathBuf,
    /// Only this function: its name (as in the source, or mangled), or an address in it (0x...). May be given several times.
    #[arg(long, short, value_name = "FUNCTION")]
    pub function: Vec<String>,
    /// A build of the same sources with the same code and with the compiler's map of its blocks.
    #[arg(long, value_name = "FILE")]
    pub side_build: Option<PathBuf>,
    /// In which form.
    #[arg(long, value_enum, default_value_t = GraphFormat::Json)]
    pub format: GraphFormat,
}

/// The form of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphFormat {
    /// One JSON object.
    Json,
    /// Graphviz: one cluster for each function.
    Dot,
}
