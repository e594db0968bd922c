//! Sets of paths over iterations ([`IterationSet`]), which a build counts without recording a stream.
//!
//! A *path over K iterations* consists of K consecutive paths of one activation of a function. Each path except the first follows its
//! predecessor through a cut edge, such as a loop's back edge. The first K - 1 paths of an activation have fewer predecessors, so they end
//! shorter sequences. Therefore each complete path is the last one of exactly one path over iterations, and its count is the sum of the
//! counts of all paths over iterations that end with it. A path up to a call that may not return is not complete.

use crate::{FunctionKey, FunctionMap, NameVersion, UnitMap};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use trodden_container::{ContentError, FileFormat, FileKind};
use trodden_flow::dag::Entries;
use trodden_flow::part::PathEnds;
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Graph, Numbering, Origin, Plan};

const FORMAT: FileFormat =
    FileFormat { kind: FileKind::ITERATIONS, version: 1, remedy: "Create such files with `trodden-lab with --iterations`" };

/// Maximum value of K.
pub const MAX_ITERATIONS: u32 = 16;

/// The reason that is reported for functions that are not instrumented because none of their paths over iterations is counted.
pub const NO_COUNTED_ITERATION_PATHS: &str = "this build counts none of its paths over iterations (--iterations)";

/// A path over iterations, as the IDs of its paths in the order in which they are executed.
pub type IterationPath = Vec<u64>;

/// A set of paths over iterations that a build counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IterationSet {
    /// Maximum number of paths in a path over iterations (K).
    iterations: u32,
    functions: BTreeMap<FunctionKey, IterationFunction>,
}

/// The counted paths over iterations of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IterationFunction {
    /// The function's graph.
    pub graph: Graph,
    /// Edges at which the function's paths are divided, such as back edges.
    pub cuts: Vec<(Edge, CutReason)>,
    /// Number of the function's paths.
    pub paths: u64,
    /// Number of executions of each edge; all 0 if unknown.
    pub edges: Vec<u64>,
    /// The [edges](PathEnds::without_dummy_entry_edges) at which the build counts the last path of a path over iterations, ascending.
    pub ends: Vec<DagEdgeId>,
    /// The paths over iterations that have counters, with their executions as far as known. The last path of each is counted at one of
    /// `ends`.
    pub counted: BTreeMap<IterationPath, u64>,
}

impl IterationFunction {
    /// Returns the function's acyclic graph and the numbering of its paths; `None` if the data is corrupt.
    pub fn numbered_paths(&self) -> Option<(Dag, Numbering)> {
        Plan::cut_and_number_if_same_count(&self.graph, &self.cuts, Entries::Shared, self.paths)
    }

    fn is_sound(&self, iterations: u32) -> bool {
        let is_path = |path: &IterationPath| (1..=iterations as usize).contains(&path.len()) && path.iter().all(|p| *p < self.paths);
        let edges = self.graph.edge_count();
        let has_edges = self.edges.len() == edges && self.cuts.iter().all(|(edge, _)| edge.index() < edges);
        has_edges && self.ends.is_sorted_by(|a, b| a < b) && self.counted.keys().all(is_path)
    }
}

impl IterationSet {
    /// Creates an empty set. Its paths over iterations will consist of at most `iterations` paths.
    pub fn new(iterations: u32) -> IterationSet {
        IterationSet { iterations, functions: BTreeMap::new() }
    }

    /// Returns the maximum number of paths that form a path over iterations.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Returns the functions in the set.
    pub fn functions(&self) -> &BTreeMap<FunctionKey, IterationFunction> {
        &self.functions
    }

    /// Returns the set's entry for a function. Adds the function if it is new, so that it counts at all ends of complete paths. Returns
    /// `None` if the function has no cut edge, or if the set has an entry with different cuts.
    pub fn add_function(&mut self, unit: &UnitMap, function: &FunctionMap) -> Option<&mut IterationFunction> {
        if function.cuts.is_empty() {
            return None;
        }
        match self.functions.entry((unit.source.clone(), function.name.clone(), function.version())) {
            Entry::Occupied(known) => {
                Some(known.into_mut()).filter(|known| known.cuts == function.cuts && known.paths == function.counters)
            }
            Entry::Vacant(free) => {
                let mut added = IterationFunction {
                    graph: (*function.graph).clone(),
                    cuts: function.cuts.clone(),
                    paths: function.counters,
                    edges: vec![0; function.graph.edge_count()],
                    ends: Vec::new(),
                    counted: BTreeMap::new(),
                };
                let (dag, _) = added.numbered_paths()?;
                let completes = |edge: &DagEdgeId| match dag.edge(*edge).origin {
                    Origin::Real(edge) => function.graph.kind(edge) != crate::EdgeKind::Reach,
                    Origin::Enter(_) | Origin::Leave(_) | Origin::Stop(_) => true,
                };
                added.ends = PathEnds::without_dummy_entry_edges(&dag).edges().iter().copied().filter(completes).collect();
                Some(free.insert(added))
            }
        }
    }

    /// Returns the entry of the function with this name and graph. If no function has the same code, returns that of one with different
    /// code, since equal graphs have the same paths.
    pub fn find_function_with_same_shape(&self, unit: &str, name: &str, version: NameVersion) -> Option<&IterationFunction> {
        let key = |code| (unit.to_owned(), name.to_owned(), NameVersion { code, ..version });
        let same = self.functions.get(&key(version.code));
        same.or_else(|| self.functions.range(key(0)..=key(u64::MAX)).next().map(|(_, function)| function))
    }

    /// Returns whether the set contains a function with this name, in any version.
    pub fn has_function(&self, unit: &str, name: &str) -> bool {
        let from = (unit.to_owned(), name.to_owned(), NameVersion::default());
        self.functions.range(from..).next().is_some_and(|(key, _)| key.0 == unit && key.1 == name)
    }

    /// Returns the part of the set for an instrumented copy that counts only at ends for which `counts` returns true. It has the paths over
    /// iterations whose last path has such an end. Functions without such an end are omitted.
    pub fn part(&self, counts: impl Fn(&FunctionKey, DagEdgeId) -> bool) -> IterationSet {
        let mut part = self.clone();
        for (key, function) in &mut part.functions {
            function.ends.retain(|end| counts(key, *end));
            let Some((dag, numbering)) = function.numbered_paths() else {
                function.ends.clear();
                continue;
            };
            let (all, ends) = (PathEnds::without_dummy_entry_edges(&dag), &function.ends);
            function.counted.retain(|path, _| {
                end_of_iteration_path(path, &all, (&dag, &numbering)).is_some_and(|end| ends.binary_search(&end).is_ok())
            });
        }
        part.functions.retain(|_, function| !function.ends.is_empty());
        part
    }

    /// Encodes the set as the content of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        FORMAT.to_bytes(self)
    }

    /// Decodes the content of a file. Fails if it is of a different kind or version, or corrupt.
    pub fn from_bytes(bytes: &[u8]) -> Result<IterationSet, ContentError> {
        let is_sound = |set: &IterationSet| {
            (2..=MAX_ITERATIONS).contains(&set.iterations) && set.functions.values().all(|function| function.is_sound(set.iterations))
        };
        FORMAT.read_checked(bytes, is_sound)
    }
}

/// Returns the edge ([`PathEnds::without_dummy_entry_edges`]) at which the last path of a path over iterations is counted. `None` if that
/// path does not exist.
pub fn end_of_iteration_path(path: &[u64], ends: &PathEnds, (dag, numbering): (&Dag, &Numbering)) -> Option<DagEdgeId> {
    numbering.path(dag, *path.last()?)?.into_iter().find(|edge| ends.contains(*edge))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_flow::Node;

    /// Returns a loop that contains a branch: edges from node 0 to 1, from 1 to 2 and 3, from both to 4, and from 4 to 1 and to the exit,
    /// 5.
    fn build_loop_function() -> IterationFunction {
        let edges = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4), (4, 1), (4, 5)].map(|(from, to)| (Node(from), Node(to)));
        IterationFunction {
            edges: vec![0; edges.len()],
            graph: Graph::new(6, Node(0), Node(5), edges.to_vec()).unwrap(),
            cuts: vec![(Edge(5), CutReason::Back)],
            paths: 8,
            ends: Vec::new(),
            counted: BTreeMap::new(),
        }
    }

    fn create_set(function: IterationFunction) -> IterationSet {
        let key = ("a.c".to_owned(), "f".to_owned(), NameVersion { shape: 1, code: 2 });
        IterationSet { iterations: 2, functions: BTreeMap::from([(key, function)]) }
    }

    #[test]
    fn parts_divide_paths_by_their_ends() {
        let mut function = build_loop_function();
        let (dag, numbering) = function.numbered_paths().unwrap();
        function.ends = PathEnds::without_dummy_entry_edges(&dag).edges().to_vec();
        assert_eq!(function.ends.len(), 2, "the back edge and the edge to the exit");
        for path in 0..8 {
            function.counted.insert(vec![path], 1);
            function.counted.extend((0..8).map(|next| (vec![path, next], 1)));
        }
        let set = create_set(function.clone());
        let parts: Vec<IterationSet> = function.ends.iter().map(|own| set.part(|_, end| end == *own)).collect();
        let counted: Vec<usize> = parts.iter().map(|part| part.functions.values().next().unwrap().counted.len()).collect();
        assert_eq!(counted, [36, 36]);
        let own = parts[0].functions.values().next().unwrap();
        assert!(
            own.counted.keys().all(
                |path| end_of_iteration_path(path, &PathEnds::without_dummy_entry_edges(&dag), (&dag, &numbering)) == Some(own.ends[0])
            )
        );
        assert!(set.part(|_, _| false).functions.is_empty());
    }

    #[test]
    fn set_survives_encoding_and_corrupt_set_is_rejected() {
        let mut function = build_loop_function();
        function.counted = BTreeMap::from([(vec![1, 7], 3), (vec![0], 1)]);
        let set = create_set(function);
        assert_eq!(IterationSet::from_bytes(&set.to_bytes()), Ok(set.clone()));
        assert!(set.has_function("a.c", "f") && !set.has_function("a.c", "g"));
        let found = |shape, code| set.find_function_with_same_shape("a.c", "f", NameVersion { shape, code }).is_some();
        assert!(found(1, 2) && found(1, 3) && !found(2, 2));
        let refuses = |change: &dyn Fn(&mut IterationFunction)| {
            let mut changed = set.clone();
            change(changed.functions.values_mut().next().unwrap());
            IterationSet::from_bytes(&changed.to_bytes()).is_err()
        };
        assert!(!refuses(&|_| {}));
        assert!(refuses(&|function| function.counted.extend([(vec![8], 1)])));
        assert!(refuses(&|function| function.counted.extend([(vec![1, 1, 1], 1)])));
        assert!(refuses(&|function| function.cuts[0].0 = Edge(7)));
        assert!(refuses(&|function| function.edges.push(0)));
        assert!(refuses(&|function| function.ends = vec![DagEdgeId(1), DagEdgeId(1)]));
        assert!(IterationSet::from_bytes(&IterationSet::new(1).to_bytes()).is_err());
    }
}
