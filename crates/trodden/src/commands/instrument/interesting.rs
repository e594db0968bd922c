//! The sets of `--interesting`: words of the command line to paths of a program, united.

use crate::commands::copies::procedures::units;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use trodden_analysis::choice::{self, LineSpan};
use trodden_analysis::git::{self, GitDifference};
use trodden_report::Name;
use trodden_stored::known::known_in;
use trodden_stored::named::LAST;
use trodden_stored::named::load;
use trodden_unit::{FunctionMap, KnownPaths, UnitMap};

/// The paths of a program that are in one of the sets.
///
/// # Errors
/// A word is no set, its profile or file cannot be read, or no path of the program is in any.
pub fn paths(sets: &[String], program: &Path) -> Result<KnownPaths> {
    let maps: Vec<UnitMap> = units(program)?.into_iter().map(|(_, map)| map).collect();
    let maps: Vec<&UnitMap> = maps.iter().collect();
    let mut all = KnownPaths::default();
    for set in sets {
        let found = one(set, &maps).with_context(|| format!("--interesting {set}"))?;
        if found.is_empty() {
            bail!("--interesting {set}: the program has no such path");
        }
        all.unite(found)?;
    }
    // A profile may be of another program, or know functions that this one has not.
    let has = |unit: &str, name: &str| maps.iter().any(|m| m.source == unit && m.functions.iter().any(|f| f.name == name));
    all.retain(|unit, name, _, _| has(unit, name));
    if all.is_empty() {
        bail!("no function of {} has a path in --interesting: take a profile of this program", program.display());
    }
    Ok(all)
}

fn one(set: &str, maps: &[&UnitMap]) -> Result<KnownPaths> {
    let named = |f: &FunctionMap, name: &str| Name::from_linkage(f.plain_name()).is(name);
    let Some((kind, rest)) = set.split_once(':') else { return of_profile(set) };
    match kind {
        "executed" => of_profile(rest),
        "top" => {
            let (number, profile) = rest.split_once(':').unwrap_or((rest, LAST));
            let mut paths = of_profile(profile)?;
            choice::most_frequent(&mut paths, number.parse().with_context(|| format!("`{number}` is no number of paths"))?);
            Ok(paths)
        }
        "share" => {
            let (share, profile) = rest.split_once(':').unwrap_or((rest, LAST));
            let mut paths = of_profile(profile)?;
            choice::most_of(&mut paths, percent(share)?);
            Ok(paths)
        }
        "function" => Ok(choice::of_functions(maps, |f| named(f, rest))?),
        "touch" => Ok(choice::touching(maps, &places(rest)?)?),
        "through" => Ok(choice::through(maps, &places(rest)?)?),
        "paths" => {
            let text = fs::read_to_string(rest).with_context(|| format!("cannot read {rest}"))?;
            Ok(choice::along(maps, &choice::sequences(&text)?, named)?)
        }
        "diff" => {
            let places = {
                let GitDifference { text, root } = difference(rest)?;
                choice::changed(&text, root.as_deref())?
            };
            if places.is_empty() {
                bail!("nothing is changed");
            }
            Ok(choice::touching(maps, &places)?)
        }
        _ => of_profile(set),
    }
}

/// The executed paths of a profile, or those of a file of paths.
fn of_profile(wanted: &str) -> Result<KnownPaths> {
    match known_in(Path::new(wanted))? {
        Some(paths) => Ok(paths),
        None => Ok(load(wanted)?.complete_paths()?),
    }
}

fn places(text: &str) -> Result<Vec<LineSpan>> {
    Ok(text.split(',').map(LineSpan::parse).collect::<Result<_, _>>()?)
}

/// `99%` as a share of one.
fn percent(text: &str) -> Result<f64> {
    let number: Option<f64> = text.strip_suffix('%').and_then(|n| n.parse().ok());
    match number.filter(|n| *n > 0.0 && *n <= 100.0) {
        Some(number) => Ok(number / 100.0),
        None => bail!("`{text}` is no share of paths above 0% and up to 100%: write it as 99%"),
    }
}

/// A difference in a file, or from a revision to the files as they are.
fn difference(of: &str) -> Result<GitDifference> {
    let file = Path::new(of);
    if file.is_file() { git::diff_in(file) } else { git::diff(of) }
}
