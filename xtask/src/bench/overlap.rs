//! How much of the truth does a sampled profile show? The overlap with the full profile of the same run, by `trodden diff`.

use crate::steps;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// The share of path executions that two profiles have in common, of 1: the sum over all paths of the smaller of their shares.
///
/// # Errors
/// A profile is missing or not of this program.
pub fn of(full: &Path, sampled: &Path) -> Result<f64> {
    let mut diff = Command::new(steps::target().join("release/trodden"));
    read(&steps::output(diff.args(["diff", "--across-builds", "--json"]).args([full, sampled]))?)
}

fn read(text: &str) -> Result<f64> {
    let found: serde_json::Value = serde_json::from_str(text).context("`trodden diff --json` printed no JSON")?;
    found["overlap"]["executions"].as_f64().context("`trodden diff --json` says no overlap")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlap_of_executions_is_read() {
        assert_eq!(read(r#"{"overlap": {"executions": 0.75, "instructions": 0.5}}"#).unwrap(), 0.75);
        assert!(read("{}").is_err() && read("nonsense").is_err());
    }
}
