//! `trodden coverage report --baseline`: the lines and paths that only one of two profiles executes.

use crate::LineExecutions;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use trodden_analysis::suite::{Suite, SuitePathKey};
use trodden_profile::Profile;
use trodden_report::DemangledName;
use trodden_report::escape;
use trodden_report::words::plural;

const SCHEMA_VERSION: u32 = 1;

/// The lines and paths that only one of two profiles executes, for each of the profiles.
pub struct CoverageDifference {
    sides: [CoverageSide; 2],
}

/// One side of a comparison: a profile, its name and its line counts.
pub struct NamedCoverage<'p> {
    /// Name shown to the user.
    pub name: &'p str,
    /// Profile whose paths are compared.
    pub profile: &'p Profile,
    /// The counts of the lines to compare.
    pub lines: &'p LineExecutions,
}

impl CoverageDifference {
    /// Compares two profiles. Fails if they are of different builds.
    pub fn new(before: &NamedCoverage, after: &NamedCoverage) -> Result<CoverageDifference> {
        let [first_paths, second_paths] = taken_paths([before, after])?;
        let names = function_names(&[before.profile, after.profile]);
        let (first, second) = (executed_lines(before.lines), executed_lines(after.lines));
        let side = |named: &NamedCoverage, lines, paths| CoverageSide { profile_name: named.name.to_owned(), lines, paths };
        let sides = [
            side(before, lines_only_in_first(&first, &second), count_by_function(&first_paths, &second_paths, &names)),
            side(after, lines_only_in_first(&second, &first), count_by_function(&second_paths, &first_paths, &names)),
        ];
        Ok(CoverageDifference { sides })
    }

    /// Returns true if the second profile lacks a line that the first one executes.
    pub fn has_lost_lines(&self) -> bool {
        !self.sides[0].lines.is_empty()
    }

    /// Returns the difference as JSON.
    pub fn json(&self) -> Value {
        let both = self.sides.iter().map(CoverageSide::json).collect::<Vec<_>>();
        json!({ "schema_version": SCHEMA_VERSION, "kind": "coverage-diff", "only": both })
    }

    /// Renders the difference as text.
    pub fn text(&self) -> String {
        escape::escape_lines(&self.sides.iter().map(CoverageSide::text).collect::<Vec<_>>().join("\n"))
    }
}

type ExecutedLines = BTreeSet<(String, u32)>;

fn executed_lines(lines: &LineExecutions) -> ExecutedLines {
    lines.executed().map(|(file, line)| (file.to_owned(), line)).collect()
}

/// Returns the paths that were executed in each profile. Fails if the profiles are of different builds, which is noticed because both are
/// added to one suite.
fn taken_paths(profiles: [&NamedCoverage; 2]) -> Result<[BTreeSet<SuitePathKey>; 2]> {
    let mut suite = Suite::default();
    for NamedCoverage { name, profile, .. } in profiles {
        let mut profile = (*profile).clone();
        profile.run.test = Some((*name).to_owned());
        suite.add(&profile).with_context(|| (*name).to_owned())?;
    }
    let of = |name: &str| {
        let test = suite.tests.iter().find(|t| t.name == name);
        test.into_iter().flat_map(|t| &t.paths).map(|p| suite.paths[p.0 as usize]).collect()
    };
    Ok([of(profiles[0].name), of(profiles[1].name)])
}

fn function_names(profiles: &[&Profile]) -> BTreeMap<trodden_analysis::isolate::UnitFunction, String> {
    let units = profiles.iter().flat_map(|p| &p.images).flat_map(|i| &i.units);
    let named =
        units.flat_map(|u| u.map.functions.iter().enumerate().map(|(at, f)| ((u.unit, at), DemangledName::from_linkage(&f.name).short)));
    named.collect()
}

fn lines_only_in_first(first: &ExecutedLines, second: &ExecutedLines) -> BTreeMap<String, Vec<u32>> {
    let mut files: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    first.difference(second).for_each(|(file, line)| files.entry(file.clone()).or_default().push(*line));
    files
}

/// Counts the paths that only the first profile takes, by function.
fn count_by_function(
    first: &BTreeSet<SuitePathKey>,
    second: &BTreeSet<SuitePathKey>,
    names: &BTreeMap<trodden_analysis::isolate::UnitFunction, String>,
) -> BTreeMap<String, u64> {
    let mut functions = BTreeMap::new();
    for path in first.difference(second) {
        *functions.entry(names.get(&path.function).cloned().unwrap_or_default()).or_default() += 1;
    }
    functions
}

struct CoverageSide {
    profile_name: String,
    lines: BTreeMap<String, Vec<u32>>,
    paths: BTreeMap<String, u64>,
}

impl CoverageSide {
    fn json(&self) -> Value {
        json!({ "in": self.profile_name, "lines": self.lines, "paths": self.paths })
    }

    fn text(&self) -> String {
        let lines = plural(self.lines.values().map(Vec::len).sum::<usize>() as u128, "line", "lines");
        let paths = plural(self.paths.values().map(|n| u128::from(*n)).sum(), "path", "paths");
        let mut out = format!("only in {}: {lines}, {paths}\n", self.profile_name);
        for (file, lines) in &self.lines {
            writeln!(out, "  {file}: {}", format_ranges(lines)).expect("writing to a string");
        }
        for (function, count) in &self.paths {
            writeln!(out, "  {function}: {}", plural(u128::from(*count), "path", "paths")).expect("writing to a string");
        }
        out
    }
}

/// Formats line numbers as ranges: `3-5, 9` for 3, 4, 5 and 9.
pub fn format_ranges(lines: &[u32]) -> String {
    let mut out: Vec<(u32, u32)> = Vec::new();
    for &line in lines {
        match out.last_mut() {
            Some((_, last)) if *last + 1 == line => *last = line,
            _ => out.push((line, line)),
        }
    }
    let range = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    out.iter().map(range).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_lines_form_a_range() {
        assert_eq!((format_ranges(&[3, 4, 5, 9]), format_ranges(&[1]), format_ranges(&[])), ("3-5, 9".into(), "1".into(), String::new()));
    }
}
