//! `trodden coverage diff`: which lines and paths only one of two profiles has.

use super::{CoverageMapping, Lines};
use crate::cli::CoverageDiff;
use crate::output::{json_text, print};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::ExitCode;
use trodden_analysis::suite::{Suite, SuitePathKey};
use trodden_profile::Profile;
use trodden_report::Name;
use trodden_report::escape;
use trodden_report::words::plural;
use trodden_stored::named;

/// Version of the JSON.
const SCHEMA_VERSION: u32 = 1;
/// Exit status if the second lacks a line.
const EXCEEDED: u8 = 1;

/// Compares two profiles.
///
/// # Errors
/// As of [`CoverageMapping::new`]; they are of different builds.
pub fn run(job: &CoverageDiff) -> Result<ExitCode> {
    let (before, after) = (named::load(&job.before)?, named::load(&job.after)?);
    let [first_paths, second_paths] = paths([(&job.before, &before), (&job.after, &after)])?;
    let names = function_names(&[&before, &after]);
    let (first, second) = (executed(&before, job)?, executed(&after, job)?);
    let sides = [
        Side { of: &job.before, lines: difference(&first, &second), paths: by_function(&first_paths, &second_paths, &names) },
        Side { of: &job.after, lines: difference(&second, &first), paths: by_function(&second_paths, &first_paths, &names) },
    ];
    let is_less = !sides[0].lines.is_empty();
    if job.json {
        let both = sides.iter().map(Side::json).collect::<Vec<_>>();
        print(&json_text(&json!({ "schema_version": SCHEMA_VERSION, "kind": "coverage-diff", "only": both }))?)?;
    } else {
        print(escape::lines(&sides.iter().map(Side::text).collect::<Vec<_>>().join("\n")).as_bytes())?;
    }
    Ok(if job.fail && is_less { ExitCode::from(EXCEEDED) } else { ExitCode::SUCCESS })
}

type Executed = BTreeSet<(String, u32)>;

fn executed(profile: &Profile, job: &CoverageDiff) -> Result<Executed> {
    let lines = Lines::from_mapping(&CoverageMapping::new(profile, &job.files)?)?;
    Ok(lines.executed().map(|(file, line)| (file.to_owned(), line)).collect())
}

/// The paths of each profile. One suite of both says whether they are of one build.
fn paths(profiles: [(&String, &Profile); 2]) -> Result<[BTreeSet<SuitePathKey>; 2]> {
    let mut suite = Suite::default();
    for (name, profile) in profiles {
        let mut profile = profile.clone();
        profile.run.test = Some(name.clone());
        suite.add(&profile).with_context(|| name.clone())?;
    }
    let of = |name: &str| {
        let test = suite.tests.iter().find(|t| t.name == name);
        test.into_iter().flat_map(|t| &t.paths).map(|p| suite.paths[p.0 as usize]).collect()
    };
    Ok([of(profiles[0].0), of(profiles[1].0)])
}

fn function_names(profiles: &[&Profile]) -> BTreeMap<trodden_analysis::isolate::IsolatedFunction, String> {
    let units = profiles.iter().flat_map(|p| &p.images).flat_map(|i| &i.units);
    let named = units.flat_map(|u| u.map.functions.iter().enumerate().map(|(at, f)| ((u.unit, at), Name::from_linkage(&f.name).short)));
    named.collect()
}

/// Lines of the first that the second has not, by file.
fn difference(first: &Executed, second: &Executed) -> BTreeMap<String, Vec<u32>> {
    let mut files: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    first.difference(second).for_each(|(file, line)| files.entry(file.clone()).or_default().push(*line));
    files
}

/// How many paths of each function the first has and the second has not.
fn by_function(
    first: &BTreeSet<SuitePathKey>,
    second: &BTreeSet<SuitePathKey>,
    names: &BTreeMap<trodden_analysis::isolate::IsolatedFunction, String>,
) -> BTreeMap<String, u64> {
    let mut functions = BTreeMap::new();
    for path in first.difference(second) {
        *functions.entry(names.get(&path.function).cloned().unwrap_or_default()).or_default() += 1;
    }
    functions
}

/// What only one of the profiles has.
struct Side<'a> {
    of: &'a str,
    lines: BTreeMap<String, Vec<u32>>,
    paths: BTreeMap<String, u64>,
}

impl Side<'_> {
    fn json(&self) -> Value {
        json!({ "in": self.of, "lines": self.lines, "paths": self.paths })
    }

    fn text(&self) -> String {
        let lines = plural(self.lines.values().map(Vec::len).sum::<usize>() as u128, "line", "lines");
        let paths = plural(self.paths.values().map(|n| u128::from(*n)).sum(), "path", "paths");
        let mut out = format!("only in {}: {lines}, {paths}\n", self.of);
        for (file, lines) in &self.lines {
            writeln!(out, "  {file}: {}", ranges(lines)).expect("writing to a string");
        }
        for (function, count) in &self.paths {
            writeln!(out, "  {function}: {}", plural(u128::from(*count), "path", "paths")).expect("writing to a string");
        }
        out
    }
}

/// `3-5, 9` for 3, 4, 5 and 9.
pub fn ranges(lines: &[u32]) -> String {
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
    fn neighbouring_lines_are_one_range() {
        assert_eq!((ranges(&[3, 4, 5, 9]), ranges(&[1]), ranges(&[])), ("3-5, 9".into(), "1".into(), String::new()));
    }
}
