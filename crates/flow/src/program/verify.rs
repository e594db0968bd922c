//! Verifies that a probe program counts each path once, in a counter that counts no other path.
//!
//! [`verify_numbering`] proves that each path has a unique number. [`verify_counts`] executes walks from entry to exit on the
//! [machine](super::machine), and splits each walk into paths by the cuts of the acyclic graph. The paths' numbers give the expected
//! counts, or the expected stream. Walks are pseudo-random with a fixed seed, so results are reproducible; they can find faults, but not
//! prove that there are none. The verifier shares only the acyclic graph and the numbering with schemes and passes. Walks that do not reach
//! the exit are not verified, since counts may be pending.

use super::machine::{MachineFault, ProbeMachine, StreamItem};
use crate::dag::{DagEdge, DagEdgeId, Origin};
use crate::graph::{Edge, Node};
use crate::interesting::UninterestingPathAliases;
use crate::program::{CounterCells, ProbeProgram};
use crate::verify::{verify_complete_numbering, verify_part};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Number and length of the walks that are tried.
#[derive(Clone, Copy, Debug)]
pub struct WalkBudget {
    /// Number of walks.
    pub walks: u64,
    /// Number of edges after which a walk takes the shortest path to the exit.
    pub edges: usize,
}

impl Default for WalkBudget {
    fn default() -> WalkBudget {
        WalkBudget { walks: 16, edges: 200 }
    }
}

/// A fault of a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramFault {
    /// The program performed an illegal action.
    #[error("{fault} (on walk {walk:?} through the graph)")]
    ProbeMachine {
        /// The edges of the program's graph up to the fault.
        walk: Vec<Edge>,
        /// The illegal action.
        fault: MachineFault,
    },
    /// A counter has a wrong value after a walk.
    #[error("after walk {walk:?} through the graph, counter {cell} is {counted} instead of {expected}")]
    Count {
        /// The walk.
        walk: Vec<Edge>,
        /// The counter's index.
        cell: i64,
        /// The expected count.
        expected: u64,
        /// The actual count.
        counted: u64,
    },
    /// The stream does not consist of the walk's paths.
    #[error("after walk {walk:?} through the graph, the stream of path numbers is {written:?} instead of {expected:?}")]
    Stream {
        /// The walk.
        walk: Vec<Edge>,
        /// The expected stream.
        expected: Vec<StreamItem>,
        /// The actual stream.
        written: Vec<StreamItem>,
    },
    /// At a call, a wrong path is noted in the frame.
    #[error("at the call after walk {walk:?} through the graph, the stack frame records path {noted:?} instead of {expected:?}")]
    Noted {
        /// The edges up to the call.
        walk: Vec<Edge>,
        /// The expected path.
        expected: Option<i64>,
        /// The actual path.
        noted: Option<i64>,
    },
}

/// Verifies that a program's paths are numbered consecutively from 0 and, if their increments should sum to the numbers, that they do. If
/// the program counts by labels ([`CounterCells::Labels`]), verifies instead that its interesting paths have different numbers, and that
/// each is counted once. Linear in the size of the graph. The error describes the first fault.
pub fn verify_numbering(program: &ProbeProgram) -> Result<(), String> {
    if let CounterCells::Labels { part, .. } = program.cells() {
        return verify_part(program.dag(), part).map_err(|fault| fault.to_string());
    }
    let (dag, numbering) = (&program.paths().dag, &program.paths().numbering);
    // If the plan omits paths, increments do not sum to numbers, and are not verified here.
    let increments = program.increments().map_or(numbering.values(), |i| i.increments());
    let paths = verify_complete_numbering(dag, numbering.values(), increments).map_err(|fault| fault.to_string())?;
    match paths == numbering.paths() {
        true => Ok(()),
        false => Err(format!("expected {} paths, found {paths}", numbering.paths())),
    }
}

/// Verifies a program's counts along walks.
pub fn verify_counts(program: &ProbeProgram, budget: &WalkBudget) -> Result<(), ProgramFault> {
    let counting = ExpectedCounters::new(program);
    let distances = distances_to_exit(program);
    (0..budget.walks)
        .map_while(|number| random_walk(program, &distances, number, budget.edges))
        .try_for_each(|walk| counting.verify_walk(walk))
}

/// Returns the minimum number of edges from each node to the exit, or `None` if the exit is unreachable.
fn distances_to_exit(program: &ProbeProgram) -> Vec<Option<usize>> {
    let graph = program.graph();
    let mut distances = vec![None; graph.node_count()];
    distances[graph.exit().index()] = Some(0);
    let mut queue = VecDeque::from([graph.exit()]);
    while let Some(node) = queue.pop_front() {
        let next = distances[node.index()].map(|d: usize| d + 1);
        for edge in graph.incoming(node).iter().filter(|e| !program.is_dead(**e)) {
            let from = graph.from(*edge);
            if distances[from.index()].is_none() {
                distances[from.index()] = next;
                queue.push_back(from);
            }
        }
    }
    distances
}

/// Returns the pseudo-random walk that `number` selects, from entry to exit, or `None` if the exit is unreachable.
fn random_walk(program: &ProbeProgram, distances: &[Option<usize>], number: u64, max_edges: usize) -> Option<Vec<Edge>> {
    let graph = program.graph();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move |below: usize| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let (mut at, mut taken) = (graph.entry(), Vec::new());
    while at != graph.exit() {
        let leads = |e: &&Edge| !program.is_dead(**e) && distances[graph.to(**e).index()].is_some();
        let out: Vec<Edge> = graph.out(at).iter().filter(leads).copied().collect();
        let edge = match taken.len() < max_edges {
            true if out.is_empty() => return None,
            true => out[draw(out.len())],
            false => out.into_iter().min_by_key(|e| distances[graph.to(*e).index()])?,
        };
        taken.push(edge);
        at = graph.to(edge);
    }
    Some(taken)
}

enum ExpectedEffect {
    /// The path is counted once, in this counter.
    Cell(i64),
    Nothing,
    /// The path is counted in a counter that belongs to no single path, or is not counted.
    Elsewhere,
}

struct ExpectedCounters<'a> {
    program: &'a ProbeProgram,
    /// The edges of the numbered acyclic graph, by their ends and origin.
    numbered: HashMap<(Node, Node, Origin), DagEdgeId>,
    known: HashSet<u64>,
    /// The counters of interesting paths, by path number.
    interesting: HashMap<u64, i64>,
}

impl<'a> ExpectedCounters<'a> {
    fn new(program: &'a ProbeProgram) -> ExpectedCounters<'a> {
        let dag = &program.paths().dag;
        let key = |edge: DagEdge| (edge.from, edge.to, edge.origin);
        let interesting = match program.cells() {
            CounterCells::Interesting(cells) => cells.paths.iter().map(|(cell, path)| (*path, *cell as i64)).collect(),
            CounterCells::Paths | CounterCells::Labels { .. } | CounterCells::Preferential(_) => HashMap::new(),
        };
        let known = program.known().unwrap_or_default().iter().copied().collect();
        ExpectedCounters { program, numbered: dag.edge_ids().map(|e| (key(dag.edge(e)), e)).collect(), known, interesting }
    }

    fn verify_walk(&self, walk: Vec<Edge>) -> Result<(), ProgramFault> {
        let mut machine = ProbeMachine::with_known_paths(self.known.iter().map(|path| *path as i64));
        machine.enter_function(self.program);
        for (at, edge) in walk.iter().enumerate() {
            machine.take_edge(self.program, *edge).map_err(|fault| ProgramFault::ProbeMachine { walk: walk[..=at].to_vec(), fault })?;
            self.verify_note(&walk[..=at], &machine)?;
        }
        self.verify_stream(&walk, &machine)?;
        if self.program.stream().is_some() {
            return Ok(());
        }
        let (mut expected, mut elsewhere) = (BTreeMap::new(), 0);
        for path in self.split_walk(&walk) {
            match self.expected_effect(&path) {
                ExpectedEffect::Cell(cell) => *expected.entry(cell).or_insert(0u64) += 1,
                ExpectedEffect::Nothing => {}
                ExpectedEffect::Elsewhere => elsewhere += 1,
            }
        }
        let counted = self.counts_by_cell(&machine);
        let wrong = |cell: i64, expected, counted| ProgramFault::Count { walk: walk.clone(), cell, expected, counted };
        for (&cell, &expected) in &expected {
            let has = counted.get(&cell).copied().unwrap_or(0);
            if has < expected || (has > expected && !self.may_alias()) {
                return Err(wrong(cell, expected, has));
            }
        }
        for (&cell, &has) in counted.iter().filter(|(cell, _)| !expected.contains_key(cell)) {
            if has > elsewhere || self.counts_single_path(cell) {
                return Err(wrong(cell, 0, has));
            }
        }
        Ok(())
    }

    /// Checks that the program has noted the path that led to a call.
    fn verify_note(&self, walk: &[Edge], machine: &ProbeMachine) -> Result<(), ProgramFault> {
        let is_call = |edge: &Edge| self.program.stream().is_some_and(|s| s.calls.contains(*edge));
        if !walk.last().is_some_and(is_call) {
            return Ok(());
        }
        let expected = self.split_walk(walk).last().and_then(|path| self.path_number(path)).map(|number| number as i64);
        let noted = machine.noted;
        if noted == expected { Ok(()) } else { Err(ProgramFault::Noted { walk: walk.to_vec(), expected, noted }) }
    }

    /// Checks that the stream consists of the walk's paths in order, or is empty if the program writes none.
    fn verify_stream(&self, walk: &[Edge], machine: &ProbeMachine) -> Result<(), ProgramFault> {
        let mut expected = Vec::new();
        if let Some(edges) = self.program.stream() {
            let is_left = walk.last().is_some_and(|e| edges.leaves.contains(*e));
            let numbers = self.split_walk(walk).into_iter().filter_map(|path| self.path_number(&path));
            expected.push(StreamItem::EnterCall);
            expected.extend(numbers.map(|number| StreamItem::Path(number as i64)));
            expected.extend(is_left.then_some(StreamItem::LeaveCall));
        }
        let written = machine.stream.clone();
        if written == expected { Ok(()) } else { Err(ProgramFault::Stream { walk: walk.to_vec(), expected, written }) }
    }

    /// Returns the paths of a walk, as edges of the acyclic graph.
    fn split_walk(&self, walk: &[Edge]) -> Vec<Vec<DagEdgeId>> {
        let dag = self.program.dag();
        let (mut paths, mut path) = (Vec::new(), Vec::new());
        for edge in walk.iter().map(|e| self.program.origin(*e)) {
            match (dag.real(edge), dag.cut(edge)) {
                (Some(id), _) => {
                    path.push(id);
                    if dag.edge(id).to == dag.exit() {
                        paths.push(std::mem::take(&mut path));
                    }
                }
                (None, Some(cut)) => {
                    path.extend(cut.leave);
                    paths.push(std::mem::take(&mut path));
                    path.extend(cut.enter);
                }
                // The machine has already reported this edge as unreachable.
                (None, None) => {}
            }
        }
        paths
    }

    fn expected_effect(&self, path: &[DagEdgeId]) -> ExpectedEffect {
        if let CounterCells::Labels { part, .. } = self.program.cells() {
            return if part.is_interesting(path) { ExpectedEffect::Cell(part.id(path)) } else { ExpectedEffect::Elsewhere };
        }
        let Some(number) = self.path_number(path) else { return ExpectedEffect::Elsewhere };
        match self.program.cells() {
            CounterCells::Interesting(_) => {
                self.interesting.get(&number).map_or(ExpectedEffect::Elsewhere, |cell| ExpectedEffect::Cell(*cell))
            }
            _ if self.known.contains(&number) => ExpectedEffect::Nothing,
            _ => ExpectedEffect::Cell(number as i64),
        }
    }

    /// Returns a path's number, or `None` if the plan omits the path.
    fn path_number(&self, path: &[DagEdgeId]) -> Option<u64> {
        let whole = self.program.dag();
        let key = |edge: DagEdge| (edge.from, edge.to, edge.origin);
        let own: Option<Vec<DagEdgeId>> = path.iter().map(|e| self.numbered.get(&key(whole.edge(*e))).copied()).collect();
        Some(self.program.paths().numbering.id(&own?))
    }

    fn counts_by_cell(&self, machine: &ProbeMachine) -> BTreeMap<i64, u64> {
        let mut by_cell = BTreeMap::new();
        for (&index, &count) in &machine.counts {
            let cell = match self.program.cells() {
                CounterCells::Interesting(cells) => cells.ending.counter_of(index) as i64,
                CounterCells::Preferential(ending) => (index as u64 & ending.identity_mask().unwrap_or(u64::MAX)) as i64,
                CounterCells::Paths | CounterCells::Labels { .. } => index,
            };
            *by_cell.entry(cell).or_insert(0) += count;
        }
        by_cell
    }

    /// Returns whether a counter of an interesting path may also count uninteresting paths.
    fn may_alias(&self) -> bool {
        matches!(self.program.cells(), CounterCells::Interesting(cells) if !matches!(cells.aliases, UninterestingPathAliases::Exact(0)))
    }

    /// Returns whether a counter belongs to a single path.
    fn counts_single_path(&self, cell: i64) -> bool {
        match self.program.cells() {
            CounterCells::Paths | CounterCells::Preferential(_) => true,
            CounterCells::Labels { part, .. } => part.path(self.program.dag(), cell).is_some(),
            CounterCells::Interesting(cells) => !self.may_alias() && cells.paths.binary_search_by_key(&(cell as u64), |p| p.0).is_ok(),
        }
    }
}
