//! Programs that count interesting paths only, compared with one that counts all, in the same run: each path of the set
//! has the same count, and all others together have theirs.
//!
//! The oracle is the full numbering's probes, which share neither numbers nor words with those of interesting paths.

use std::collections::HashMap;
use trodden_profile::{FunctionPaths, Profile, UnitProfile};
use trodden_unit::{FunctionMap, MapError};

/// What was compared, and what differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterestingFindings {
    /// Functions that count interesting paths.
    pub functions: usize,
    /// Functions that count all paths instead.
    pub instead: usize,
    /// Paths with words of their own.
    pub paths: usize,
    /// Of those, paths that were executed.
    pub executed: usize,
    /// Executions of paths with words of their own.
    pub executions: u128,
    /// Executions of others.
    pub others: u128,
    /// Executions counted for a path that were another's, or the other way round.
    pub misplaced: u128,
    /// What differs.
    pub differences: Vec<String>,
}

/// Compares. Functions are known again by unit, name and shape.
///
/// # Errors
/// A map is damaged.
pub fn compare(full: &Profile, interesting: &Profile) -> Result<InterestingFindings, MapError> {
    let mut known: HashMap<(&str, &str, u64), (&UnitProfile, &FunctionMap)> = HashMap::new();
    for (_, unit, function) in full.functions() {
        known.insert((&unit.map.source, &function.name, function.shape), (unit, function));
    }
    let mut findings = InterestingFindings::default();
    for (_, unit, function) in interesting.functions() {
        match known.get(&(unit.map.source.as_str(), function.name.as_str(), function.shape)) {
            Some((in_full, oracle)) => one(&mut findings, (in_full, oracle), (unit, function))?,
            None => findings.differences.push(format!("`{}` is not in the full profile", function.name)),
        }
    }
    Ok(findings)
}

fn one(
    findings: &mut InterestingFindings,
    full: (&UnitProfile, &FunctionMap),
    interesting: (&UnitProfile, &FunctionMap),
) -> Result<(), MapError> {
    let (unit, function) = interesting;
    let checked: HashMap<u64, u64> = full.0.counts_of(full.1).collect();
    let counted: HashMap<u64, u64> = unit.counts_of(function).collect();
    let Some(set) = function.interesting() else {
        findings.instead += 1;
        if checked != counted {
            findings.differences.push(format!("`{}` counts all paths, but otherwise", function.name));
        }
        return Ok(());
    };
    findings.functions += 1;
    let all = u128::from(FunctionPaths::decode(full.1, full.0.counts_of(full.1))?.total());
    let (mut asked, mut misplaced) = (0u128, 0u128);
    for (_, path) in &set.paths {
        let (expected, found) = (checked.get(path).copied().unwrap_or(0), counted.get(path).copied().unwrap_or(0));
        findings.paths += 1;
        findings.executed += usize::from(expected > 0);
        asked += u128::from(expected);
        if expected != found {
            misplaced += u128::from(expected.abs_diff(found));
            findings.differences.push(format!("`{}` path {path}: {found}, not {expected}", function.name));
        }
    }
    let others = u128::from(unit.unattributed(function));
    if others + asked != all {
        findings.differences.push(format!("`{}`: {others} executions of other paths, not {}", function.name, all - asked));
    }
    findings.executions += asked;
    findings.others += all - asked;
    findings.misplaced += misplaced;
    Ok(())
}
