//! Test suites: each test as the set of paths that it takes.
//!
//! Thesis, section 6.2.2: a test that takes no path that others do not take is redundant; tests that take paths along
//! which code was changed come first.
//!
//! Runs of one name are one test: a test may be several programs, or have been recorded twice. Complete paths and paths
//! that did not end are distinguished, as in [`crate::isolate`].
//!
//! | module | what |
//! |---|---|
//! | [`cover`] | the smallest set of tests that covers what all cover |
//! | [`order`] | the order in which tests cover most soonest, and how good an order is |

pub mod cover;
pub mod order;

use crate::changes::ChangedLines;
use crate::isolate::IsolatedFunction;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use trodden_profile::model::{ProcessEnding, Profile};
use trodden_profile::paths::{FunctionPaths, Walks};
use trodden_unit::{EdgeKind, FunctionMap, Identity, MapError, UnitMap};

/// A path of a suite, by its place in [`Suite::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathIndex(pub u32);

/// A path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SuitePathKey {
    /// Its function.
    pub function: IsolatedFunction,
    /// Its number.
    pub id: u64,
    /// Whether it was completed; else it is unfinished.
    pub complete: bool,
}

/// A test: all runs of one name.
#[derive(Clone, Debug, Default)]
pub struct SuiteTest {
    /// Its name; the command if it has none.
    pub name: String,
    /// Number of its runs.
    pub runs: u64,
    /// Time of all its runs in nanoseconds.
    pub duration_ns: u64,
    /// Whether a run of it failed.
    pub failed: bool,
    /// What it takes.
    pub paths: BTreeSet<PathIndex>,
}

/// A suite of tests.
#[derive(Debug, Default)]
pub struct Suite {
    /// Its tests, in the order in which they were recorded.
    pub tests: Vec<SuiteTest>,
    /// All paths that some test takes.
    pub paths: Vec<SuitePathKey>,
    index: HashMap<SuitePathKey, PathIndex>,
    names: HashMap<String, usize>,
    units: HashMap<Identity, Arc<UnitMap>>,
    /// Image by path, with a test that ran it.
    builds: BTreeMap<String, (Identity, String)>,
}

/// Why a run cannot be added to a suite.
#[derive(Debug, thiserror::Error)]
pub enum SuiteError {
    /// A map is damaged.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Paths of another build are others.
    #[error(
        "`{test}` ran another build of {image} than `{other}`: paths can be compared within one build only; record the suite again, or \
            remove old runs (`trodden runs remove`)"
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
    /// Adds a run.
    ///
    /// # Errors
    /// It is of another build than those before, or a map is damaged. The suite is as before then.
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
        let keys = taken(profile)?;
        for image in &profile.images {
            self.builds.entry(image.path.clone()).or_insert_with(|| (image.identity, name.clone()));
            self.units.extend(image.units.iter().map(|u| (u.unit, u.map.clone())));
        }
        let place = *self.names.entry(name.clone()).or_insert(self.tests.len());
        if place == self.tests.len() {
            self.tests.push(SuiteTest { name, ..SuiteTest::default() });
        }
        let found: Vec<PathIndex> = keys.into_iter().map(|key| self.index(key)).collect();
        let test = &mut self.tests[place];
        test.runs += 1;
        test.duration_ns = test.duration_ns.saturating_add(run.duration_ns);
        test.failed |= !matches!(run.ending, None | Some(ProcessEnding::Exit(0)));
        test.paths.extend(found);
        Ok(())
    }

    fn index(&mut self, key: SuitePathKey) -> PathIndex {
        let next = PathIndex(self.paths.len() as u32);
        *self.index.entry(key).or_insert_with(|| {
            self.paths.push(key);
            next
        })
    }

    /// How many tests take each path.
    pub fn takers(&self) -> Vec<u32> {
        let mut takers = vec![0; self.paths.len()];
        self.tests.iter().flat_map(|t| &t.paths).for_each(|p| takers[p.0 as usize] += 1);
        takers
    }

    /// The functions of which some test takes a path.
    pub fn functions(&self) -> BTreeSet<IsolatedFunction> {
        self.paths.iter().map(|p| p.function).collect()
    }

    /// Leaves paths of these functions only. The tests stay, some perhaps with no path.
    pub fn keep(&mut self, functions: &BTreeSet<IsolatedFunction>) {
        let all = std::mem::take(&mut self.paths);
        self.index.clear();
        let places: Vec<Option<PathIndex>> = all.iter().map(|p| functions.contains(&p.function).then(|| self.index(*p))).collect();
        for test in &mut self.tests {
            test.paths = test.paths.iter().filter_map(|p| places[p.0 as usize]).collect();
        }
    }

    /// The function of a path, with the map of its unit.
    pub fn function(&self, key: IsolatedFunction) -> Option<(&UnitMap, &FunctionMap)> {
        let map = self.units.get(&key.0)?;
        Some((map, map.functions.get(key.1)?))
    }

    /// The paths that run through changed lines.
    ///
    /// # Errors
    /// A map is damaged.
    pub fn changed_paths(&self, changes: &mut ChangedLines) -> Result<BTreeSet<PathIndex>, MapError> {
        let mut of_function: BTreeMap<IsolatedFunction, Vec<usize>> = BTreeMap::new();
        for (at, path) in self.paths.iter().enumerate() {
            of_function.entry(path.function).or_default().push(at);
        }
        // Changed lines of functions that no test executes are found, too: the report must name them.
        for map in self.units.values() {
            map.functions.iter().for_each(|function| drop(changes.blocks(map, function)));
        }
        let mut found = BTreeSet::new();
        for (key, paths) in of_function {
            let Some((map, function)) = self.function(key) else { continue };
            let touched = changes.blocks(map, function);
            if touched.is_empty() {
                continue;
            }
            let walks = Walks::from_function(function)?;
            for at in paths {
                let blocks = walks.walk(self.paths[at].id).map_or_else(Vec::new, |w| w.blocks);
                if blocks.iter().any(|b| touched.contains(b)) {
                    found.insert(PathIndex(at as u32));
                }
            }
        }
        Ok(found)
    }
}

/// The paths that a run takes.
fn taken(profile: &Profile) -> Result<BTreeSet<SuitePathKey>, MapError> {
    let mut keys = BTreeSet::new();
    for unit in profile.images.iter().flat_map(|i| &i.units) {
        for (at, function) in unit.map.functions.iter().enumerate() {
            let function_key = (unit.unit, at);
            let key = |id, complete| SuitePathKey { function: function_key, id, complete };
            let mut counts = unit.counts_of(function).filter(|(_, count)| *count > 0).peekable();
            if counts.peek().is_none() {
                continue;
            }
            // In a function without calls that may not return, each counter is a complete path.
            if function.edges.iter().all(|e| e.kind != EdgeKind::Reach) {
                keys.extend(counts.map(|(id, _)| key(id, true)));
                continue;
            }
            let paths = FunctionPaths::decode(function, counts)?;
            keys.extend(paths.all().filter(|p| p.count > 0).map(|p| key(p.id, p.is_complete())));
        }
    }
    Ok(keys)
}
