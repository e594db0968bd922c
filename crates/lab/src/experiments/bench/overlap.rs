//! The accuracy of sampled profiles: their overlap with the full profile of the same run, as `trodden diff` computes it, and the number of
//! true counts within the margins of their estimates.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::process::Command;
use trodden_corpus::steps;

/// Minimum number of counted executions for a path's margin to be judged.
const MIN_COMPARED_COUNT: u64 = 100;
/// A margin is narrow if it is less than this fraction of the estimate.
const NARROW_MARGIN_SHARE: f64 = 0.3;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MarginAccuracy {
    /// Number of judged paths, which have at least [`MIN_COMPARED_COUNT`] counted executions and a margin.
    judged: usize,
    /// Number of judged paths whose true count is within the margin.
    inside: usize,
    /// Number of judged paths with a narrow margin.
    narrow: usize,
    /// Number of paths with at least [`MIN_COMPARED_COUNT`] counted executions but no estimate or margin.
    missing: usize,
}

impl MarginAccuracy {
    /// Compares a sampled profile with the full profile of the same run.
    pub fn compare(full: &Path, sampled: &Path) -> Result<MarginAccuracy> {
        let report = |profile: &Path| -> Result<Value> {
            let mut report = Command::new(steps::target_folder().join("release/trodden"));
            serde_json::from_str(&steps::output(report.args(["report", "--json"]).arg(profile))?)
                .context("`trodden report --json` printed invalid JSON")
        };
        MarginAccuracy::from_reports(&report(full)?, &report(sampled)?)
    }

    fn from_reports(full: &Value, sampled: &Value) -> Result<MarginAccuracy> {
        let truth: HashMap<PathName, f64> =
            list_paths(full)?.into_iter().filter_map(|(name, path)| Some((name, path["count"].as_f64()?))).collect();
        let mut found = MarginAccuracy::default();
        for (name, path) in
            list_paths(sampled)?.into_iter().filter(|(_, path)| path["count"].as_u64().is_some_and(|count| count >= MIN_COMPARED_COUNT))
        {
            let estimate = &path["estimate"];
            let (Some(executions), Some(margin)) = (estimate["executions"].as_f64(), estimate["margin_95"].as_f64()) else {
                found.missing += 1;
                continue;
            };
            let truth = truth.get(&name).copied().unwrap_or(0.0);
            found.judged += 1;
            found.inside += usize::from((executions - truth).abs() <= margin);
            found.narrow += usize::from(margin < NARROW_MARGIN_SHARE * executions);
        }
        Ok(found)
    }

    pub fn add(&mut self, other: MarginAccuracy) {
        self.judged += other.judged;
        self.inside += other.inside;
        self.narrow += other.narrow;
        self.missing += other.missing;
    }

    pub fn is_empty(&self) -> bool {
        self.judged + self.missing == 0
    }
}

impl fmt::Display for MarginAccuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MarginAccuracy { judged, inside, narrow, missing } = self;
        let per_cent = |part: &usize| 100.0 * *part as f64 / (*judged).max(1) as f64;
        write!(
            f,
            "{inside} of {judged} true counts ({:.1} %) lie within the 95 % margins of paths counted {MIN_COMPARED_COUNT} times or more; \
                {narrow} margins ({:.1} %) are below {:.0} %; {missing} have none",
            per_cent(inside),
            per_cent(narrow),
            100.0 * NARROW_MARGIN_SHARE
        )
    }
}

/// Name that identifies a path in all builds: its unit's source file, its function's linkage name, and its number.
type PathName = (String, String, u64);

/// Returns the paths in a JSON report with their names. Fails if the report lacks a field.
fn list_paths(report: &Value) -> Result<Vec<(PathName, &Value)>> {
    let images = report["images"].as_array().with_context(|| describe_missing_field("images"))?;
    let units = images.iter().filter_map(|image| image["units"].as_array()).flatten();
    let sources: HashMap<&str, &str> = units.filter_map(|unit| Some((unit["identity"].as_str()?, unit["source"].as_str()?))).collect();
    let name = |path: &Value| -> Result<PathName> {
        let function =
            &report["functions"][path["function"].as_u64().with_context(|| describe_missing_field("paths[].function"))? as usize];
        let unit = function["unit"].as_str().with_context(|| describe_missing_field("functions[].unit"))?;
        let source = sources.get(unit).with_context(|| describe_missing_field("images[].units[].source"))?;
        let linkage_name = function["linkage_name"].as_str().with_context(|| describe_missing_field("functions[].linkage_name"))?;
        Ok((source.to_string(), linkage_name.to_owned(), path["id"].as_u64().with_context(|| describe_missing_field("paths[].id"))?))
    };
    let all = report["paths"].as_array().with_context(|| describe_missing_field("paths"))?;
    all.iter().map(|path| Ok((name(path)?, path))).collect()
}

fn describe_missing_field(field: &str) -> String {
    format!("the output of `trodden report --json` lacks the field `{field}`")
}

/// Returns the overlap of two profiles, between 0 and 1. It is the sum over all paths of the smaller of the path's two shares of
/// executions. Fails if the profiles belong to different programs.
pub fn compute_overlap(full: &Path, sampled: &Path) -> Result<f64> {
    let mut diff = Command::new(steps::target_folder().join("release/trodden"));
    parse_overlap(&steps::output(diff.args(["diff", "--across-builds", "--json"]).args([full, sampled]))?)
}

fn parse_overlap(text: &str) -> Result<f64> {
    let found: serde_json::Value = serde_json::from_str(text).context("`trodden diff --json` printed invalid JSON")?;
    found["overlap"]["executions"].as_f64().context("the output of `trodden diff --json` lacks the field `overlap.executions`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_counts_within_margins_are_counted() {
        let report = |paths: Value| {
            serde_json::json!({
                "images": [{ "units": [{ "identity": "u", "source": "a.c" }] }],
                "functions": [{ "unit": "u", "linkage_name": "f" }],
                "paths": paths,
            })
        };
        let path = |id: u64, count: u64, executions: f64, margin: Option<f64>| {
            let estimate = serde_json::json!({ "executions": executions, "margin_95": margin });
            serde_json::json!({ "function": 0, "id": id, "count": count, "estimate": estimate })
        };
        let full = report(serde_json::json!((0..5).map(|id| path(id, 10_000, 0.0, None)).collect::<Vec<_>>()));
        let sampled = [
            path(0, 500, 9_000.0, Some(1_500.0)),
            path(1, 500, 9_000.0, Some(900.0)),
            path(2, 500, 5_000.0, Some(5_500.0)),
            path(3, 500, 9_000.0, None),
            path(4, 99, 10.0, Some(1.0)),
        ];
        let mut found = MarginAccuracy::from_reports(&full, &report(serde_json::json!(sampled))).unwrap();
        assert_eq!(found, MarginAccuracy { judged: 3, inside: 2, narrow: 2, missing: 1 });
        found.add(found.clone());
        assert_eq!((found.judged, found.missing, MarginAccuracy::default().is_empty()), (6, 2, true));
        let error = MarginAccuracy::from_reports(&full, &serde_json::json!({})).unwrap_err();
        assert!(error.to_string().contains("`images`"), "{error}");
    }

    #[test]
    fn overlap_of_executions_is_parsed() {
        assert_eq!(parse_overlap(r#"{"overlap": {"executions": 0.75, "instructions": 0.5}}"#).unwrap(), 0.75);
        assert!(parse_overlap("{}").is_err() && parse_overlap("nonsense").is_err());
    }
}
