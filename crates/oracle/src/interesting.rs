//! Compares a program that counts only interesting paths with one that counts all paths, on the same input: each interesting path must have
//! the same count in both, and the executions of all other paths must add up to the rest.
//!
//! The oracle is the full numbering: it shares neither path numbers nor counters with a numbering of interesting paths.

use std::collections::HashMap;
use trodden_profile::{FunctionPaths, Profile, UnitProfile};
use trodden_unit::{FunctionMap, MapError};

/// The outcome of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterestingFindings {
    /// Number of functions that count interesting paths.
    pub functions: usize,
    /// Number of functions that count all paths instead of interesting ones.
    pub counting_all: usize,
    /// Number of interesting paths.
    pub paths: usize,
    /// Number of interesting paths that were executed.
    pub executed: usize,
    /// Number of executions of interesting paths.
    pub executions: u128,
    /// Number of executions of all other paths.
    pub others: u128,
    /// Sum of the absolute differences between the two counts of each interesting path.
    pub misplaced: u128,
    /// Descriptions of all differences.
    pub differences: Vec<String>,
}

/// Compares two profiles. Functions are matched by unit, name and shape.
///
/// # Errors
/// A map is corrupt.
pub fn compare(full: &Profile, interesting: &Profile) -> Result<InterestingFindings, MapError> {
    let mut known: HashMap<(&str, &str, u64), (&UnitProfile, &FunctionMap)> = HashMap::new();
    for (_, unit, function) in full.functions() {
        known.insert((&unit.map.source, &function.name, function.shape), (unit, function));
    }
    let mut findings = InterestingFindings::default();
    for (_, unit, function) in interesting.functions() {
        match known.get(&(unit.map.source.as_str(), function.name.as_str(), function.shape)) {
            Some((in_full, oracle)) => compare_function(&mut findings, (in_full, oracle), (unit, function))?,
            None => findings.differences.push(format!("`{}` is not in the full profile", function.name)),
        }
    }
    Ok(findings)
}

fn compare_function(
    findings: &mut InterestingFindings,
    full: (&UnitProfile, &FunctionMap),
    interesting: (&UnitProfile, &FunctionMap),
) -> Result<(), MapError> {
    let (unit, function) = interesting;
    let checked: HashMap<u64, u64> = full.0.counts_of(full.1).collect();
    let counted: HashMap<u64, u64> = unit.counts_of(function).collect();
    let Some(set) = function.interesting_words() else {
        findings.counting_all += 1;
        if checked != counted {
            findings.differences.push(format!("`{}` counts all paths, but its counts differ from the full profile", function.name));
        }
        return Ok(());
    };
    findings.functions += 1;
    let all = u128::from(FunctionPaths::decode(full.1, full.0.counts_of(full.1))?.total());
    let (mut interesting_executions, mut misplaced) = (0u128, 0u128);
    for (_, path) in &set.paths {
        let (expected, found) = (checked.get(path).copied().unwrap_or(0), counted.get(path).copied().unwrap_or(0));
        findings.paths += 1;
        findings.executed += usize::from(expected > 0);
        interesting_executions += u128::from(expected);
        if expected != found {
            misplaced += u128::from(expected.abs_diff(found));
            findings.differences.push(format!("`{}` path {path}: counted {found}, expected {expected}", function.name));
        }
    }
    let others = u128::from(unit.unattributed(function));
    if others + interesting_executions != all {
        findings.differences.push(format!(
            "`{}`: counted {others} executions of other paths, expected {}",
            function.name,
            all - interesting_executions
        ));
    }
    findings.executions += interesting_executions;
    findings.others += all - interesting_executions;
    findings.misplaced += misplaced;
    Ok(())
}
