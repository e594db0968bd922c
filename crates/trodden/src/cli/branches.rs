//! The option of recording branches.

use std::convert::Infallible;
use trodden_recording::branches::BranchKind;

/// What perf is to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches {
    /// What hardware records of branches.
    pub kind: BranchKind,
    /// perf's event, if it is not the usual one.
    pub event: Option<String>,
}

/// Reads `records`, `trace`, or the name of an event whose branch records are wanted.
pub fn branches(text: &str) -> Result<Branches, Infallible> {
    Ok(match text {
        "records" => Branches { kind: BranchKind::Records, event: None },
        "trace" => Branches { kind: BranchKind::Trace, event: None },
        event => Branches { kind: BranchKind::Records, event: Some(event.to_owned()) },
    })
}
