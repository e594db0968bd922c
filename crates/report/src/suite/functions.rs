//! Selects the functions whose paths are compared between tests. Excluding the test harness and its libraries is useful, because they take
//! different paths in each test.

use crate::words::plural;
use crate::{DemangledName, select};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use trodden_analysis::changes::is_at_or_below;
use trodden_analysis::isolate::UnitFunction;
use trodden_analysis::suite::Suite;

struct ExecutedFunction {
    key: UnitFunction,
    name: DemangledName,
    file: Option<String>,
}

/// Selects the functions whose paths are compared. A function must meet all criteria.
#[derive(Clone, Copy, Debug)]
pub struct ComparedFunctions<'a> {
    /// A name, or a regular expression for names; `None` accepts all functions.
    pub function: Option<&'a str>,
    /// Files and folders in which the function may be declared. An empty list accepts all functions.
    pub files: &'a [PathBuf],
    /// Names, and regular expressions for names, of functions to exclude.
    pub exclude: &'a [String],
}

impl ComparedFunctions<'_> {
    /// Returns true if at least one criterion is set.
    pub fn is_restricted(&self) -> bool {
        self.function.is_some() || !self.files.is_empty() || !self.exclude.is_empty()
    }
}

/// Reduces a suite to the paths of the selected functions. Fails if a name or file matches no function, or if no function is left.
pub fn keep_functions(suite: &mut Suite, criteria: &ComparedFunctions) -> Result<()> {
    if !criteria.is_restricted() {
        return Ok(());
    }
    let all = executed_functions(suite);
    let mut wanted: BTreeSet<usize> = (0..all.len()).collect();
    if let Some(text) = criteria.function {
        wanted = functions_named(&all, text)?;
    }
    if !criteria.files.is_empty() {
        let places = criteria.files.iter().map(|place| functions_declared_at(&all, place)).collect::<Result<Vec<_>>>()?;
        wanted.retain(|at| places.iter().any(|place| place.contains(at)));
    }
    for text in criteria.exclude {
        // This is not an error, because the functions to exclude may have been inlined into other functions.
        let others = matching_names(&all, text)?;
        if others.is_empty() {
            log::info!("--except {text} excludes nothing, because no function that the tests execute matches it");
        }
        wanted.retain(|at| !others.contains(at));
    }
    ensure!(
        !wanted.is_empty(),
        "--function, --file and --except together exclude all {} that the tests execute. Omit or change one of them",
        plural(all.len() as u128, "function", "functions")
    );
    log::info!(
        "the comparison of tests covers {} of {} that they execute",
        wanted.len(),
        plural(all.len() as u128, "function", "functions")
    );

    suite.keep_functions_in(&wanted.into_iter().map(|at| all[at].key).collect());
    Ok(())
}

fn executed_functions(suite: &Suite) -> Vec<ExecutedFunction> {
    let known = suite.functions().into_iter().filter_map(|key| Some((key, suite.function(key)?)));
    let file = known.map(|(key, (unit, function))| {
        let file = function.position.and_then(|p| unit.files.get(p.file as usize)).cloned();
        ExecutedFunction { key, name: DemangledName::from_linkage(&function.name), file }
    });
    file.collect()
}

fn matching_names(all: &[ExecutedFunction], text: &str) -> Result<BTreeSet<usize>> {
    Ok(select::matching_names(all.iter().map(|f| &f.name), text)?.into_iter().collect())
}

fn functions_named(all: &[ExecutedFunction], text: &str) -> Result<BTreeSet<usize>> {
    let found = matching_names(all, text)?;
    ensure!(!found.is_empty(), "no function that the tests execute matches `{text}`. To list these functions, run `trodden report SUITE`");
    Ok(found)
}

fn functions_declared_at(all: &[ExecutedFunction], place: &Path) -> Result<BTreeSet<usize>> {
    let below = make_absolute(place)?;
    // Paths in debug information may contain symbolic links, depending on the compiler's working directory.
    let places: Vec<String> =
        [Some(below.clone()), below.canonicalize().ok()].into_iter().flatten().map(|p| p.to_string_lossy().into_owned()).collect();
    let is_there = |f: &ExecutedFunction| f.file.as_ref().is_some_and(|file| places.iter().any(|place| is_at_or_below(file, place)));
    let found: BTreeSet<usize> = (0..all.len()).filter(|at| is_there(&all[*at])).collect();
    let known = all.iter().filter(|f| f.file.is_some()).count();
    ensure!(
        !found.is_empty(),
        "the tests execute no function that is declared in or below {} (the source file is known for {known} of {}). Build with -g, and \
         name the folder from which the program was compiled",
        below.display(),
        plural(all.len() as u128, "function", "functions")
    );
    Ok(found)
}

/// Makes a path absolute without resolving links, as in debug information.
fn make_absolute(place: &Path) -> Result<PathBuf> {
    std::path::absolute(place).with_context(|| {
        format!(
            "cannot determine the absolute path of {}, because the working folder was deleted. Change to an existing folder",
            place.display()
        )
    })
}
