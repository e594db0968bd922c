//! Parses the sets of `--interesting` and merges them into one set of a program's paths.

use crate::context::driver_context;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use trodden_analysis::choice::{self, LineSpan};
use trodden_analysis::git::{self, UnifiedDiff};
use trodden_recording::copies::read_units;
use trodden_report::DemangledName;
use trodden_stored::known::read_known_paths;
use trodden_stored::named::LAST_RUN_NAME;
use trodden_stored::named::load_profile;
use trodden_unit::{FunctionMap, KnownPaths, UnitMap};

/// Returns those paths of a program that are in at least one of the sets. Fails if a set is malformed, its profile or file cannot be read,
/// or no path of the program is in any set.
pub fn read_interesting_paths(sets: &[String], program: &Path) -> Result<KnownPaths> {
    let maps: Vec<UnitMap> = read_units(program, driver_context().store().ok().as_ref())?.into_iter().map(|(_, map)| map).collect();
    let maps: Vec<&UnitMap> = maps.iter().collect();
    let mut all = KnownPaths::default();
    for set in sets {
        let found = resolve_path_set(set, &maps).with_context(|| format!("cannot use the paths of --interesting {set}"))?;
        if found.is_empty() {
            bail!("cannot use the paths of --interesting {set}: none of them is a path of the program");
        }
        all.merge(found)?;
    }
    // The profile may belong to a different program, or contain functions that this program lacks.
    let has = |unit: &str, name: &str| maps.iter().any(|m| m.source == unit && m.functions.iter().any(|f| f.name == name));
    all.retain(|unit, name, _, _| has(unit, name));
    if all.is_empty() {
        bail!("--interesting selects no path of {}. Use a profile of this program", program.display());
    }
    Ok(all)
}

fn resolve_path_set(set: &str, maps: &[&UnitMap]) -> Result<KnownPaths> {
    let named = |f: &FunctionMap, name: &str| DemangledName::from_linkage(f.plain_name()).matches(name);
    let Some((kind, rest)) = set.split_once(':') else { return read_executed_paths(set) };
    match kind {
        "executed" => read_executed_paths(rest),
        "top" => {
            let (number, profile) = rest.split_once(':').unwrap_or((rest, LAST_RUN_NAME));
            let mut paths = read_executed_paths(profile)?;
            choice::keep_most_frequent(&mut paths, number.parse().with_context(|| format!("invalid number of paths `{number}`"))?);
            Ok(paths)
        }
        "share" => {
            let (share, profile) = rest.split_once(':').unwrap_or((rest, LAST_RUN_NAME));
            let mut paths = read_executed_paths(profile)?;
            choice::keep_most_frequent_share(&mut paths, parse_percent(share)?);
            Ok(paths)
        }
        "function" => Ok(choice::all_paths_of(maps, |f| named(f, rest))?),
        "touch" => Ok(choice::paths_with_block_in_any(maps, &parse_line_spans(rest)?)?),
        "through" => Ok(choice::paths_with_blocks_in_all(maps, &parse_line_spans(rest)?)?),
        "paths" => {
            let text = fs::read_to_string(rest).with_context(|| format!("cannot read the list of paths in {rest}"))?;
            Ok(choice::paths_matching(maps, &choice::parse_sequences(&text)?, named)?)
        }
        "diff" => {
            let places = {
                let UnifiedDiff { text, root } = read_unified_diff(rest)?;
                choice::changed_places(&text, root.as_deref())?
            };
            if places.is_empty() {
                bail!("the diff contains no changed line");
            }
            Ok(choice::paths_with_block_in_any(maps, &places)?)
        }
        _ => read_executed_paths(set),
    }
}

/// Returns the paths that a profile has executed, or the paths in a file of known paths.
fn read_executed_paths(name: &str) -> Result<KnownPaths> {
    match read_known_paths(Path::new(name))? {
        Some(paths) => Ok(paths),
        None => Ok(load_profile(name)?.complete_paths()?),
    }
}

fn parse_line_spans(text: &str) -> Result<Vec<LineSpan>> {
    Ok(text.split(',').map(LineSpan::parse).collect::<Result<_, _>>()?)
}

/// Parses a percentage such as `99%` to a fraction of one.
fn parse_percent(text: &str) -> Result<f64> {
    let number: Option<f64> = text.strip_suffix('%').and_then(|n| n.parse().ok());
    match number.filter(|n| *n > 0.0 && *n <= 100.0) {
        Some(number) => Ok(number / 100.0),
        None => bail!("invalid share `{text}`: expected a percentage above 0% and at most 100%, such as 99%"),
    }
}

/// Reads a diff from a file, or runs `git diff` to get the changes from a revision to the working tree.
fn read_unified_diff(source: &str) -> Result<UnifiedDiff> {
    let file = Path::new(source);
    if file.is_file() { git::read_diff(file) } else { git::diff_against_revision(source) }
}
