//! Test suites: each test as the set of paths that it takes.
//!
//! A test is redundant if other tests take all of its paths, and tests that take paths through changed code should run first. Runs with the
//! same name are one test, because a test may run several programs or be recorded twice. Completed and unfinished paths are distinguished,
//! as in [`crate::isolate`]. [`cover`] finds the cheapest set of tests that covers all paths; [`order`] orders tests by additional
//! coverage.

pub mod cover;
pub mod order;

use crate::changes::ChangedLines;
use crate::isolate::UnitFunction;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use trodden_profile::model::{ProcessEnding, Profile};
use trodden_profile::paths::{FunctionPaths, PathDecoder};
use trodden_unit::{EdgeKind, FunctionMap, Identity, MapError, UnitMap};

/// Index into [`Suite::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathIndex(pub u32);

/// Identifies a path of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SuitePathKey {
    /// The path's function.
    pub function: UnitFunction,
    /// The path's number.
    pub id: u64,
    /// True for a completed path, false for an unfinished one.
    pub complete: bool,
}

/// A test: all runs with one name.
#[derive(Clone, Debug, Default)]
pub struct SuiteTest {
    /// The test's name, or the command line if the run has no name.
    pub name: String,
    /// Number of runs.
    pub runs: u64,
    /// Total time of all runs, in nanoseconds.
    pub duration_ns: u64,
    /// Whether any run failed.
    pub failed: bool,
    /// The paths that the test takes.
    pub paths: BTreeSet<PathIndex>,
}

/// A suite of tests.
#[derive(Debug, Default)]
pub struct Suite {
    /// The tests, in the order in which they were recorded.
    pub tests: Vec<SuiteTest>,
    /// All paths that some test takes.
    pub paths: Vec<SuitePathKey>,
    index: HashMap<SuitePathKey, PathIndex>,
    names: HashMap<String, usize>,
    units: HashMap<Identity, Arc<UnitMap>>,
    /// For the file path of each image, the image's identity and a test that ran the image.
    builds: BTreeMap<String, (Identity, String)>,
}

/// The reasons why a run cannot be added to a suite.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// A unit map is corrupt.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The run executed a different build of an image than an earlier run.
    #[error(
        "cannot compare tests `{test}` and `{other}`: they ran different builds of {image}. Record the suite again, or remove its old \
         runs with `trodden runs remove`"
    )]
    OtherBuild {
        /// The test.
        test: String,
        /// The program or library.
        image: String,
        /// A test that ran the build that was seen first.
        other: String,
    },
}

impl Suite {
    /// Adds a run. If the run is of a different build than earlier runs, or a map is corrupt, this fails and leaves the suite unchanged.
    pub fn add(&mut self, profile: &Profile) -> Result<(), SuiteError> {
        let run = &profile.run;
        let name = run.test.clone().unwrap_or_else(|| run.command.join(" "));
        for image in &profile.images {
            match self.builds.get(&image.path) {
                Some((build, other)) if *build != image.identity => {
                    return Err(SuiteError::OtherBuild { test: name, image: image.path.clone(), other: other.clone() });
                }
                _ => {}
            }
        }
        let keys = collect_taken_paths(profile)?;
        for image in &profile.images {
            self.builds.entry(image.path.clone()).or_insert_with(|| (image.identity, name.clone()));
            self.units.extend(image.units.iter().map(|u| (u.unit, u.map.clone())));
        }
        let place = *self.names.entry(name.clone()).or_insert(self.tests.len());
        if place == self.tests.len() {
            self.tests.push(SuiteTest { name, ..SuiteTest::default() });
        }
        let found: Vec<PathIndex> = keys.into_iter().map(|key| self.intern_path(key)).collect();
        let test = &mut self.tests[place];
        test.runs += 1;
        test.duration_ns = test.duration_ns.saturating_add(run.duration_ns);
        test.failed |= !matches!(run.ending, None | Some(ProcessEnding::Exit(0)));
        test.paths.extend(found);
        Ok(())
    }

    fn intern_path(&mut self, key: SuitePathKey) -> PathIndex {
        let next = PathIndex(self.paths.len() as u32);
        *self.index.entry(key).or_insert_with(|| {
            self.paths.push(key);
            next
        })
    }

    /// Returns the number of tests that take each path.
    pub fn tests_per_path(&self) -> Vec<u32> {
        let mut takers = vec![0; self.paths.len()];
        self.tests.iter().flat_map(|t| &t.paths).for_each(|p| takers[p.0 as usize] += 1);
        takers
    }

    /// Returns the functions with a path that a test takes.
    pub fn functions(&self) -> BTreeSet<UnitFunction> {
        self.paths.iter().map(|p| p.function).collect()
    }

    /// Removes the paths of all functions that are not in `functions`. Tests without remaining paths stay in the suite.
    pub fn keep_functions_in(&mut self, functions: &BTreeSet<UnitFunction>) {
        let all = std::mem::take(&mut self.paths);
        self.index.clear();
        let new_indices: Vec<Option<PathIndex>> =
            all.iter().map(|p| functions.contains(&p.function).then(|| self.intern_path(*p))).collect();
        for test in &mut self.tests {
            test.paths = test.paths.iter().filter_map(|p| new_indices[p.0 as usize]).collect();
        }
    }

    /// Returns the map of a function's unit, and the function's map.
    pub fn function(&self, key: UnitFunction) -> Option<(&UnitMap, &FunctionMap)> {
        let map = self.units.get(&key.0)?;
        Some((map, map.functions.get(key.1)?))
    }

    /// Returns the paths that run through changed lines.
    pub fn changed_paths(&self, changes: &mut ChangedLines) -> Result<BTreeSet<PathIndex>, MapError> {
        let mut of_function: BTreeMap<UnitFunction, Vec<usize>> = BTreeMap::new();
        for (at, path) in self.paths.iter().enumerate() {
            of_function.entry(path.function).or_default().push(at);
        }
        // Also mark changed lines in functions that no test executes, since the report counts them.
        for map in self.units.values() {
            map.functions.iter().for_each(|function| drop(changes.changed_blocks(map, function)));
        }
        let mut found = BTreeSet::new();
        for (key, paths) in of_function {
            let Some((map, function)) = self.function(key) else { continue };
            let touched = changes.changed_blocks(map, function);
            if touched.is_empty() {
                continue;
            }
            let walks = PathDecoder::from_function(function)?;
            for at in paths {
                let blocks = walks.decode(self.paths[at].id).map_or_else(Vec::new, |w| w.blocks);
                if blocks.iter().any(|b| touched.contains(b)) {
                    found.insert(PathIndex(at as u32));
                }
            }
        }
        Ok(found)
    }
}

fn collect_taken_paths(profile: &Profile) -> Result<BTreeSet<SuitePathKey>, MapError> {
    let mut keys = BTreeSet::new();
    for unit in profile.images.iter().flat_map(|i| &i.units) {
        for (at, function) in unit.map.functions.iter().enumerate() {
            let function_key = (unit.unit, at);
            let key = |id, complete| SuitePathKey { function: function_key, id, complete };
            let mut counts = unit.counts_of(function).filter(|(_, count)| *count > 0).peekable();
            if counts.peek().is_none() {
                continue;
            }
            // Without calls that may not return, each counter is a complete path.
            if function.graph.flow_edges().all(|e| e.kind != EdgeKind::Reach) {
                keys.extend(counts.map(|(id, _)| key(id, true)));
                continue;
            }
            let paths = FunctionPaths::decode(function, counts)?;
            keys.extend(paths.all().filter(|p| p.count > 0).map(|p| key(p.id, p.is_complete())));
        }
    }
    Ok(keys)
}
