//! Value of `trodden record --branches`.

use std::convert::Infallible;
use trodden_recording::branches::RecordedBranches;

/// Branches for perf to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfBranchSelection {
    /// Which branches the hardware records.
    pub kind: RecordedBranches,
    /// perf's event; `None` selects the default event of the kind.
    pub event: Option<String>,
}

/// Parses `records`, `trace`, or the name of an event to take branch records at.
pub fn parse_branch_selection(text: &str) -> Result<PerfBranchSelection, Infallible> {
    Ok(match text {
        "records" => PerfBranchSelection { kind: RecordedBranches::Records, event: None },
        "trace" => PerfBranchSelection { kind: RecordedBranches::Trace, event: None },
        event => PerfBranchSelection { kind: RecordedBranches::Records, event: Some(event.to_owned()) },
    })
}
