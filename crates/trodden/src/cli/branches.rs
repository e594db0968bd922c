//! Options of recording branches.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trodden_recording::branches;

/// What perf is to record, if anything.
#[derive(Debug, Args)]
pub struct Branches {
    /// Have perf record the branches of a program built with --addresses, and make the profile of them.
    #[arg(
        long = "branches",
        value_enum,
        value_name = "KIND",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "records",
        conflicts_with_all = ["sample", "burst", "every"]
    )]
    pub kind: Option<BranchKind>,
    /// With --branches: perf's event, if another than the usual one is needed (branch-brs on AMD Zen 3).
    #[arg(long = "branch-event", value_name = "EVENT", requires = "kind")]
    pub event: Option<String>,
    /// With --branches: an executable or library whose branches are wanted, if it is not the command's. May be given several times.
    #[arg(long = "program", value_name = "FILE", requires = "kind")]
    pub programs: Vec<PathBuf>,
}

/// What hardware records of branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BranchKind {
    /// The last few before each sample (`perf record -b`).
    Records,
    /// All, by Intel PT.
    Trace,
}

impl From<BranchKind> for branches::BranchKind {
    fn from(kind: BranchKind) -> branches::BranchKind {
        match kind {
            BranchKind::Records => branches::BranchKind::Records,
            BranchKind::Trace => branches::BranchKind::Trace,
        }
    }
}
