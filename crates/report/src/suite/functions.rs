//! Whose paths tests are compared by: a harness that runs each test by a function of its own, and the library below it,
//! take other paths in each test.

use crate::words::plural;
use crate::{Name, select};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use trodden_analysis::changes::lies_at;
use trodden_analysis::isolate::IsolatedFunction;
use trodden_analysis::suite::Suite;

/// A function that tests execute.
struct Executed {
    key: IsolatedFunction,
    name: Name,
    /// Where it is declared, if that is known.
    file: Option<String>,
}

/// Whose paths tests are compared by.
#[derive(Clone, Copy, Debug)]
pub struct SuiteFunctions<'a> {
    /// Only functions of this name, or whose name this regular expression matches.
    pub function: Option<&'a str>,
    /// Only functions declared in one of these files, or below one of these folders.
    pub files: &'a [PathBuf],
    /// No functions of these names.
    pub except: &'a [String],
}

impl SuiteFunctions<'_> {
    /// Whether not all functions are meant.
    pub fn is_asked(&self) -> bool {
        self.function.is_some() || !self.files.is_empty() || !self.except.is_empty()
    }
}

/// Leaves a suite the paths of the functions that are meant.
///
/// # Errors
/// There are none: a name or a file is that of none, or all are excepted.
pub fn keep(suite: &mut Suite, of: &SuiteFunctions) -> Result<()> {
    if !of.is_asked() {
        return Ok(());
    }
    let all = executed(suite);
    let mut wanted: BTreeSet<usize> = (0..all.len()).collect();
    if let Some(text) = of.function {
        wanted = named(&all, text)?;
    }
    if !of.files.is_empty() {
        let places = of.files.iter().map(|place| declared_at(&all, place)).collect::<Result<Vec<_>>>()?;
        wanted.retain(|at| places.iter().any(|place| place.contains(at)));
    }
    for text in of.except {
        // Those that are to be left out may all have become part of others, by inlining.
        let others = matching_names(&all, text)?;
        if others.is_empty() {
            log::info!("--except {text}: the tests execute no such function");
        }
        wanted.retain(|at| !others.contains(at));
    }
    ensure!(
        !wanted.is_empty(),
        "none of {} that the tests execute is meant by --function, --file and --except together",
        plural(all.len() as u128, "function", "functions")
    );
    log::info!("looked at: {} of {} that the tests execute", wanted.len(), plural(all.len() as u128, "function", "functions"));
    suite.keep(&wanted.into_iter().map(|at| all[at].key).collect());
    Ok(())
}

fn executed(suite: &Suite) -> Vec<Executed> {
    let known = suite.functions().into_iter().filter_map(|key| Some((key, suite.function(key)?)));
    let file = known.map(|(key, (unit, function))| {
        let file = function.position.and_then(|p| unit.files.get(p.file as usize)).cloned();
        Executed { key, name: Name::from_linkage(&function.name), file }
    });
    file.collect()
}

fn matching_names(all: &[Executed], text: &str) -> Result<BTreeSet<usize>> {
    Ok(select::matching_names(all.iter().map(|f| &f.name), text)?.into_iter().collect())
}

fn named(all: &[Executed], text: &str) -> Result<BTreeSet<usize>> {
    let found = matching_names(all, text)?;
    ensure!(
        !found.is_empty(),
        "the tests execute no function of which `{text}` is the name, or a regular expression for it; `trodden report SUITE` lists those \
            that they execute"
    );
    Ok(found)
}

fn declared_at(all: &[Executed], place: &Path) -> Result<BTreeSet<usize>> {
    let below = absolute(place)?;
    // Compilers name files by way of links, if the shell that called them came by these.
    let places: Vec<String> =
        [Some(below.clone()), below.canonicalize().ok()].into_iter().flatten().map(|p| p.to_string_lossy().into_owned()).collect();
    let is_there = |f: &Executed| f.file.as_ref().is_some_and(|file| places.iter().any(|place| lies_at(file, place)));
    let found: BTreeSet<usize> = (0..all.len()).filter(|at| is_there(&all[*at])).collect();
    let known = all.iter().filter(|f| f.file.is_some()).count();
    ensure!(
        !found.is_empty(),
        "the tests execute no function declared in {} or below ({known} of {} say where they are declared: it takes debug information, \
            -g). Was the program compiled from sources elsewhere?",
        below.display(),
        all.len()
    );
    Ok(found)
}

/// Source files are known by the names that the compiler saw.
fn absolute(place: &Path) -> Result<PathBuf> {
    std::path::absolute(place).with_context(|| format!("cannot say where {} is: there is no current folder", place.display()))
}
