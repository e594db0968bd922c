//! Sets of paths as input of builds: known paths, which the build does not count, or interesting paths, which it counts.
//!
//! A file is a list of functions ([`FileFormat`]), which are identified by unit, name, [shape](crate::graph_hash) (a hash of the graph) and
//! code. For each function it has the cut edges, so that paths have the same IDs in the build as in the profile, and the number of
//! executions of each edge, so that probes are placed on rarely executed edges.

use crate::{FunctionMap, UnitMap};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use trodden_container::{ContentError, FileFormat, FileKind};
use trodden_flow::{CutReason, Edge};

const FORMAT: FileFormat = FileFormat { kind: FileKind::KNOWN_PATHS, version: 1, remedy: "Create one with `trodden export known -o FILE`" };

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPaths {
    functions: BTreeMap<FunctionKey, KnownFunction>,
}

/// The known or interesting paths of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFunction {
    /// Edges at which the function's paths are divided, such as back edges.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Number of all paths of the function, known or not.
    pub paths: u64,
    /// IDs of the known paths, each with its number of executions, sorted by ID.
    pub known: Vec<(u64, u64)>,
    /// Number of executions of each edge.
    pub edges: Vec<u64>,
}

impl KnownFunction {
    /// Adds known paths of the same function. Returns `None`, without adding anything, if the paths are numbered differently.
    fn merge(&mut self, more: KnownFunction) -> Option<()> {
        if self.cuts != more.cuts || self.paths != more.paths || self.edges.len() != more.edges.len() {
            return None;
        }
        self.known.extend(more.known);
        self.known.sort_unstable();
        self.known.dedup_by(|more, kept| {
            let same = more.0 == kept.0;
            kept.1 = if same { kept.1.saturating_add(more.1) } else { kept.1 };
            same
        });
        self.edges.iter_mut().zip(more.edges).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        Some(())
    }

    /// Returns whether a path is known.
    pub fn knows(&self, path: u64) -> bool {
        self.known.binary_search_by_key(&path, |k| k.0).is_ok()
    }

    fn is_sound(&self) -> bool {
        let ids = self.known.is_sorted_by(|a, b| a.0 < b.0) && self.known.last().is_none_or(|(id, _)| *id < self.paths);
        ids && self.cuts.iter().all(|(edge, _)| edge.index() < self.edges.len())
    }
}

/// Version of a function, which distinguishes functions with the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NameVersion {
    /// Hash of the control-flow graph ([`FunctionMap::shape`]).
    pub shape: u64,
    /// Hash of the code ([`FunctionMap::code`]).
    pub code: u64,
}

/// Key of a function: source file of its unit, linkage name, and version.
pub type FunctionKey = (String, String, NameVersion);

/// Error for a function whose paths are numbered differently in two profiles, so that path IDs are ambiguous.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot combine these profiles: the paths of function `{0}` are cut into different pieces. Record all runs with programs that were \
     built with the same settings"
)]
pub struct ConflictingNumberingsError(pub String);

impl KnownPaths {
    /// Adds known paths of a function with their executions, and the executions of its edges. Fails if the set has this function with
    /// different cuts.
    pub fn add(
        &mut self,
        unit: &UnitMap,
        function: &FunctionMap,
        known: impl Iterator<Item = (u64, u64)>,
        edges: &[u64],
    ) -> Result<(), ConflictingNumberingsError> {
        let key = (unit.source.clone(), function.name.clone(), function.version());
        let fresh = || KnownFunction {
            cuts: function.cuts.clone(),
            paths: function.counters,
            known: Vec::new(),
            edges: vec![0; function.graph.edge_count()],
        };
        let more = KnownFunction { known: known.collect(), edges: edges.to_vec(), ..fresh() };
        self.functions.entry(key).or_insert_with(fresh).merge(more).ok_or_else(|| ConflictingNumberingsError(function.name.clone()))
    }

    /// Returns whether the set contains a function with this name, in any version.
    pub fn has_function(&self, unit: &str, name: &str) -> bool {
        let from = (unit.to_owned(), name.to_owned(), NameVersion::default());
        self.functions.range(from..).next().is_some_and(|(key, _)| key.0 == unit && key.1 == name)
    }

    /// Returns the known paths of a function; `None` if the set does not have this version of it.
    pub fn get(&self, unit: &str, name: &str, version: NameVersion) -> Option<&KnownFunction> {
        self.functions.get(&(unit.to_owned(), name.to_owned(), version))
    }

    /// Returns the known paths of a function. If the set does not have this version, returns those of a function with the same graph but
    /// different code, since equal graphs have the same paths.
    pub fn find_function_with_same_shape(&self, unit: &str, name: &str, version: NameVersion) -> Option<&KnownFunction> {
        let key = |code| (unit.to_owned(), name.to_owned(), NameVersion { code, ..version });
        self.get(unit, name, version).or_else(|| self.functions.range(key(0)..=key(u64::MAX)).next().map(|(_, function)| function))
    }

    /// Adds all functions and executions of `other`. Fails if the sets contain the same function with different cuts.
    pub fn merge(&mut self, other: KnownPaths) -> Result<(), ConflictingNumberingsError> {
        for (key, more) in other.functions {
            match self.functions.entry(key) {
                Entry::Vacant(free) => drop(free.insert(more)),
                Entry::Occupied(mut there) => {
                    let name = there.key().1.clone();
                    there.get_mut().merge(more).ok_or(ConflictingNumberingsError(name))?;
                }
            }
        }
        Ok(())
    }

    /// Keeps only the known paths for which `keep` returns true. Its arguments are the unit, the function's name, the path ID and the
    /// executions. Removes functions that then have no known paths.
    pub fn retain(&mut self, keep: impl Fn(&str, &str, u64, u64) -> bool) {
        for ((unit, name, _), function) in &mut self.functions {
            function.known.retain(|(path, count)| keep(unit, name, *path, *count));
        }
        self.functions.retain(|_, function| !function.known.is_empty());
    }

    /// Keeps only the functions for which `is_kept` returns true.
    pub fn retain_functions_where(&mut self, is_kept: impl Fn(&FunctionKey) -> bool) {
        self.functions.retain(|key, _| is_kept(key));
    }

    /// Keeps only the known paths for which `is_kept` returns true. Removes functions that then have no known paths.
    pub fn retain_paths(&mut self, is_kept: impl Fn(&FunctionKey, u64) -> bool) {
        self.functions.iter_mut().for_each(|(key, function)| function.known.retain(|(path, _)| is_kept(key, *path)));
        self.functions.retain(|_, function| !function.known.is_empty());
    }

    /// Returns, for each function, the IDs of its known paths in ascending order.
    pub fn known(&self) -> impl Iterator<Item = (&FunctionKey, Vec<u64>)> {
        self.functions.iter().map(|(key, function)| (key, function.known.iter().map(|(path, _)| *path).collect()))
    }

    /// Returns, for each function, the IDs of its unknown paths in ascending order.
    pub fn unknown(&self) -> impl Iterator<Item = (&FunctionKey, Vec<u64>)> {
        self.functions.iter().map(|(key, function)| {
            let mut known = function.known.iter().map(|(path, _)| *path).peekable();
            (key, (0..function.paths).filter(|path| known.next_if_eq(path).is_none()).collect())
        })
    }

    /// Makes the unknown paths known for which `is_known` returns true, with 0 executions.
    pub fn make_unknown_paths_known_if(&mut self, is_known: impl Fn(&FunctionKey, u64) -> bool) {
        let unknown: Vec<(FunctionKey, Vec<u64>)> = self.unknown().map(|(key, paths)| (key.clone(), paths)).collect();
        for (key, paths) in unknown {
            let added = paths.into_iter().filter(|path| is_known(&key, *path)).map(|path| (path, 0));
            let known = &mut self.functions.get_mut(&key).expect("the key is from this map").known;
            known.extend(added.collect::<Vec<_>>());
            known.sort_unstable();
        }
    }

    /// Iterates over the functions. Returns the source file of the unit, the linkage name and the known paths of each.
    pub fn functions(&self) -> impl Iterator<Item = (&str, &str, &KnownFunction)> {
        self.functions.iter().map(|((unit, name, _), function)| (unit.as_str(), name.as_str(), function))
    }

    /// Returns the number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Returns whether the set has no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Encodes the set as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Returns whether the header of a file shows that it contains known paths. The file may be of any version, and may be corrupt.
    pub fn is_known_paths_file(bytes: &[u8]) -> bool {
        FORMAT.matches_kind(bytes)
    }

    /// Decodes the content of a file. Fails if it is of a different kind or version, or corrupt.
    pub fn from_bytes(bytes: &[u8]) -> Result<KnownPaths, ContentError> {
        FORMAT.read_checked(bytes, |known: &KnownPaths| known.functions.values().all(KnownFunction::is_sound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_container::FileError;

    const VERSION: NameVersion = NameVersion { shape: 7, code: 3 };

    fn encode_set(cut: u32, known: &[(u64, u64)]) -> Vec<u8> {
        let function = KnownFunction { cuts: vec![(Edge(cut), CutReason::Back)], paths: 4, known: known.to_vec(), edges: vec![1, 2] };
        let key = ("u.c".to_owned(), "f".to_owned(), VERSION);
        KnownPaths { functions: BTreeMap::from([(key, function)]) }.to_bytes()
    }

    #[test]
    fn merging_sets_adds_executions() {
        let mut one = KnownPaths::from_bytes(&encode_set(1, &[(0, 5), (2, 9)])).unwrap();
        one.merge(KnownPaths::from_bytes(&encode_set(1, &[(2, 1), (3, 7)])).unwrap()).unwrap();
        let known = |set: &KnownPaths| set.get("u.c", "f", VERSION).unwrap().clone();
        assert_eq!((known(&one).known, known(&one).edges), (vec![(0, 5), (2, 10), (3, 7)], vec![2, 4]));
        assert!(known(&one).knows(3) && !known(&one).knows(1));
        let other = KnownPaths::from_bytes(&encode_set(0, &[(0, 1)])).unwrap();
        assert_eq!(one.merge(other), Err(ConflictingNumberingsError("f".into())));
    }

    #[test]
    fn unknown_paths_can_be_added_as_known() {
        let mut set = KnownPaths::from_bytes(&encode_set(1, &[(1, 5)])).unwrap();
        let unknown = |set: &KnownPaths| set.unknown().map(|(_, paths)| paths).collect::<Vec<_>>();
        assert_eq!(unknown(&set), [[0, 2, 3]]);
        set.make_unknown_paths_known_if(|key, path| key.1 == "f" && path != 2);
        assert_eq!(set.get("u.c", "f", VERSION).unwrap().known, [(0, 0), (1, 5), (3, 0)]);
        assert_eq!(unknown(&set), [[2]]);
    }

    #[test]
    fn versions_of_a_function_are_distinguished() {
        let set = KnownPaths::from_bytes(&encode_set(1, &[(0, 5)])).unwrap();
        let (code, shape) = (NameVersion { code: 4, ..VERSION }, NameVersion { shape: 8, ..VERSION });
        assert!(set.get("u.c", "f", VERSION).is_some() && set.has_function("u.c", "f"));
        assert_eq!(
            (set.get("u.c", "f", code), set.get("u.c", "f", shape), set.find_function_with_same_shape("u.c", "f", shape)),
            (None, None, None)
        );
        assert_eq!(set.find_function_with_same_shape("u.c", "f", code), set.get("u.c", "f", VERSION));
    }

    #[test]
    fn invalid_paths_and_cuts_are_rejected() {
        assert_eq!(KnownPaths::from_bytes(&encode_set(1, &[(0, 5), (3, 1)])).map(|known| known.len()), Ok(1));
        for corrupt in
            [encode_set(2, &[(0, 5)]), encode_set(1, &[(4, 5)]), encode_set(1, &[(3, 1), (0, 5)]), encode_set(1, &[(3, 1), (3, 1)])]
        {
            assert_eq!(KnownPaths::from_bytes(&corrupt).unwrap_err().error, FileError::Inconsistent);
        }
    }
}
