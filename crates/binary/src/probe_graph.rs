//! The control flow between the pseudo probes of a function, from which the paths of an execution are reconstructed: the edges between two
//! blocks with addresses, and their effect on the number (ID) of the path.
//!
//! Blocks without code have no probe. Between two probes that execute one after the other, control has passed only through such blocks,
//! usually by a unique sequence of edges.

use crate::probed_image::{ProbedFunction, ProbedImage};
use std::collections::HashMap;
use std::rc::Rc;
use trodden_flow::{Edge, Node, Origin};
use trodden_unit::probes::ProbeEvent;
use trodden_unit::{BlockKind, EdgeKind, MapError};

/// The effect that taking an edge has on the path number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberStep {
    /// Adds a value.
    Add(i64),
    /// Adds a value and ends the path, because the edge leaves the function.
    End(i64),
    /// Adds the first value and ends the path at a cut edge. The next path starts with the second value.
    Cut(i64, i64),
    /// Has no effect, because the edge is never taken according to the numbering.
    Dead,
}

/// The paths that connect two blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockConnection {
    /// Exactly one path connects the blocks, given by its edges.
    Unique(Rc<[Edge]>),
    /// Exactly one short path connects the blocks if the probes of the blocks between them were not recorded.
    Inferred(Rc<[Edge]>),
    /// Several paths connect the blocks.
    Ambiguous,
    /// No path connects the blocks.
    None,
}

/// The control flow of one function between its probes.
#[derive(Debug)]
pub struct ProbeGraph {
    /// Outgoing edges of each block with their target blocks, without `Reach` edges.
    out_edges: Vec<Vec<(Edge, u32)>>,
    kinds: Vec<EdgeKind>,
    steps: Vec<NumberStep>,
    exit: u32,
    /// Whether each block has an address, because it has a probe.
    visible: Vec<bool>,
    /// Value of the `Reach` edge of each block (the edge that counts a call that may not return), unless this edge has its own probe.
    reach: Vec<Option<i64>>,
    marked_reach: Vec<Option<i64>>,
    /// The edge to the exit by which a path ends in each block, unless this edge has its own probe.
    end: Vec<Option<Edge>>,
    marked_end: Vec<Option<Edge>>,
    /// Initial path number of the paths that start at the target of a cut edge, by target block.
    start_numbers: HashMap<u32, i64>,
    continuations: Vec<bool>,
    connections: HashMap<(u32, u32), BlockConnection>,
}

/// Maximum number of edges between two probes.
const MAX_EDGES_BETWEEN_PROBES: usize = 24;
/// Maximum number of paths that are tried between two blocks.
const MAX_PATHS_BETWEEN_BLOCKS: usize = 64;
/// Maximum number of blocks on a path whose probes were not recorded, although they have addresses.
const MAX_INFERRED_BLOCKS_PER_PATH: usize = 2;

impl ProbeGraph {
    /// Builds the graph for a function of an image.
    pub fn new(image: &ProbedImage, function: ProbedFunction) -> Result<ProbeGraph, MapError> {
        let map = image.map(function);
        let (graph, dag) = (&map.graph, map.dag()?);
        let blocks = map.blocks.len();
        let value = |id: trodden_flow::DagEdgeId| map.values[id.index()];
        let mut start_numbers = HashMap::new();
        for id in dag.edge_ids() {
            if let Origin::Enter(_) = dag.edge(id).origin {
                start_numbers.entry(dag.edge(id).to.0).or_insert(value(id));
            }
        }
        let step = |edge: Edge| match (dag.real(edge), dag.cut(edge)) {
            (Some(id), _) if graph.to(edge) == dag.exit() => NumberStep::End(value(id)),
            (Some(id), _) => NumberStep::Add(value(id)),
            (None, Some(cut)) => {
                let own = cut.enter.map(value).or_else(|| start_numbers.get(&graph.to(edge).0).copied());
                NumberStep::Cut(cut.leave.map_or(0, value), own.unwrap_or(0))
            }
            (None, None) => NumberStep::Dead,
        };
        let steps: Vec<NumberStep> = graph.edges().map(step).collect();
        let mut flow = ProbeGraph {
            out_edges: vec![Vec::new(); blocks + 1],
            kinds: map.graph.flow_edges().map(|e| e.kind).collect(),
            steps,
            exit: blocks as u32,
            visible: vec![false; blocks + 1],
            reach: vec![None; blocks],
            marked_reach: vec![None; blocks],
            end: vec![None; blocks],
            marked_end: vec![None; blocks],
            start_numbers,
            continuations: map.blocks.iter().map(|b| b.kind == BlockKind::Continuation).collect(),
            connections: HashMap::new(),
        };
        flow.add_edges(map.graph.flow_edges().map(|e| (e.from, e.to)));
        flow.add_probes(image, function);
        Ok(flow)
    }

    fn add_edges(&mut self, edges: impl Iterator<Item = (Node, Node)>) {
        for (number, (from, to)) in edges.enumerate() {
            let (edge, at) = (Edge(number as u32), from.index());
            match (self.kinds[number], self.steps[number]) {
                (EdgeKind::Reach, NumberStep::End(value)) => self.reach[at] = Some(value),
                (EdgeKind::Reach, _) => {}
                (kind, _) => {
                    self.out_edges[at].push((edge, to.0));
                    if to.0 == self.exit && matches!(kind, EdgeKind::TailCall | EdgeKind::Resume | EdgeKind::NoReturn) {
                        self.end[at] = Some(edge);
                    }
                }
            }
        }
    }

    fn add_probes(&mut self, image: &ProbedImage, function: ProbedFunction) {
        let own = image.ranges.iter().filter(|r| r.function == function);
        for probe in own.flat_map(|r| image.probes_between(r.start, r.end)).filter(|m| m.function == function) {
            let at = probe.probe.block as usize;
            match probe.probe.event {
                ProbeEvent::Begin => self.visible[at] = true,
                ProbeEvent::Reach => self.marked_reach[at] = self.marked_reach[at].or(self.reach[at].take()),
                ProbeEvent::End => self.marked_end[at] = self.marked_end[at].or(self.end[at].take()),
            }
        }
    }

    /// Returns the effect of an edge on the path number.
    pub fn step(&self, edge: Edge) -> NumberStep {
        self.steps[edge.index()]
    }

    /// Returns the value of a block's `Reach` edge. With `is_marked`, returns it only if the edge has its own probe, and otherwise only if
    /// it has none.
    pub fn reach(&self, block: u32, is_marked: bool) -> Option<i64> {
        if is_marked { self.marked_reach[block as usize] } else { self.reach[block as usize] }
    }

    /// Returns the edge to the exit by which a path ends in a block. `is_marked` has the same meaning as in [`Self::reach`].
    pub fn end(&self, block: u32, is_marked: bool) -> Option<Edge> {
        if is_marked { self.marked_end[block as usize] } else { self.end[block as usize] }
    }

    /// Returns the initial path number in a block where execution continues after the second return of a call, such as `setjmp`. Returns
    /// `None` for all other blocks.
    pub fn path_number_after_second_return(&self, block: u32) -> Option<i64> {
        self.continuations[block as usize].then(|| self.start_numbers.get(&block).copied().unwrap_or(0))
    }

    /// Returns the block where execution continues after the second return of a call, given the block `next` whose probe was executed next.
    /// It is `next` itself or a block that leads to `next`, because code generation may move the probe of this block before the call.
    /// Returns `None` if several blocks are possible.
    pub fn continuation_of_second_return(&mut self, next: Option<u32>) -> Option<u32> {
        if let Some(block) = next.filter(|block| self.path_number_after_second_return(*block).is_some()) {
            return Some(block);
        }
        let continuations = (0..).zip(&self.continuations).filter(|(_, is_continuation)| **is_continuation).map(|(block, _)| block);
        let continuations: Vec<u32> = continuations.collect();
        let leads = |block: &u32| matches!(self.connect(*block, next), BlockConnection::Unique(_) | BlockConnection::Inferred(_));
        let leading: Vec<u32> = continuations.into_iter().filter(leads).collect();
        if let [one] = leading[..] { Some(one) } else { None }
    }

    /// Returns the path from a block to the exit through a conditional tail call. Code generation has folded the block that contained only
    /// the call into the conditional jump, so the path leads through a block without an address.
    pub fn connect_folded(&self, from: u32) -> BlockConnection {
        for budget in 0..=MAX_INFERRED_BLOCKS_PER_PATH {
            let mut search = ProbeSearch { flow: self, to: self.exit, found: Vec::new(), max_found: 2, budget, needs_folded_block: true };
            search.search_from(from, &mut Vec::new(), 0, MAX_EDGES_BETWEEN_PROBES.min(budget + 2));
            match &search.found[..] {
                [] => continue,
                [one] => return BlockConnection::Inferred(one.as_slice().into()),
                _ => return BlockConnection::Ambiguous,
            }
        }
        BlockConnection::None
    }

    /// Returns the initial path number at `to` if all paths from `from` to `to` end with the same cut edge, so that it does not matter
    /// which of them was taken. Otherwise returns `None`.
    pub fn start_after_common_cut(&self, from: u32, to: u32) -> Option<i64> {
        for budget in 0..=MAX_INFERRED_BLOCKS_PER_PATH {
            let mut search =
                ProbeSearch { flow: self, to, found: Vec::new(), max_found: MAX_PATHS_BETWEEN_BLOCKS, budget, needs_folded_block: false };
            search.search_from(from, &mut Vec::new(), 0, if budget == 0 { MAX_EDGES_BETWEEN_PROBES } else { budget });
            let mut last = search.found.iter().filter_map(|path| path.last());
            let Some(edge) = last.next() else { continue };
            let is_same = search.found.len() < MAX_PATHS_BETWEEN_BLOCKS && last.all(|other| other == edge);
            return match self.step(*edge) {
                NumberStep::Cut(_, start) if is_same => Some(start),
                _ => None,
            };
        }
        None
    }

    /// Returns the path from one block to another or, if `to` is `None`, to the exit by a return or tail call.
    pub fn connect(&mut self, from: u32, to: Option<u32>) -> BlockConnection {
        let key = (from, to.unwrap_or(self.exit));
        if let Some(known) = self.connections.get(&key) {
            return known.clone();
        }
        let connection = self.search_connection(key.0, key.1);
        self.connections.insert(key, connection.clone());
        connection
    }

    fn search_connection(&self, from: u32, to: u32) -> BlockConnection {
        let mut search = ProbeSearch { flow: self, to, found: Vec::new(), max_found: 2, budget: 0, needs_folded_block: false };
        search.search_from(from, &mut Vec::new(), 0, MAX_EDGES_BETWEEN_PROBES);
        for seen in 1..=MAX_INFERRED_BLOCKS_PER_PATH {
            if !search.found.is_empty() {
                break;
            }
            search.budget = seen;
            search.search_from(from, &mut Vec::new(), 0, seen);
        }
        match (&search.found[..], search.budget) {
            ([], _) => BlockConnection::None,
            ([one], 0) => BlockConnection::Unique(one.as_slice().into()),
            ([one], _) => BlockConnection::Inferred(one.as_slice().into()),
            _ => BlockConnection::Ambiguous,
        }
    }
}

struct ProbeSearch<'a> {
    flow: &'a ProbeGraph,
    to: u32,
    found: Vec<Vec<Edge>>,
    /// Number of found paths at which the search stops.
    max_found: usize,
    /// Maximum number of blocks on a path that have addresses, not counting its ends.
    budget: usize,
    /// Whether a path must lead through at least one block without an address.
    needs_folded_block: bool,
}

impl ProbeSearch<'_> {
    fn search_from(&mut self, at: u32, path: &mut Vec<Edge>, passed: usize, max_edges: usize) {
        for &(edge, next) in &self.flow.out_edges[at as usize] {
            if self.found.len() >= self.max_found {
                return;
            }
            let kind = self.flow.kinds[edge.index()];
            if next == self.flow.exit && !matches!(kind, EdgeKind::Return | EdgeKind::TailCall) {
                continue;
            }
            path.push(edge);
            if next == self.to {
                // A block on the path either has an address and is counted in `passed`, or has no address.
                if !self.needs_folded_block || path.len() > passed + 1 {
                    self.found.push(path.clone());
                }
            } else if next != self.flow.exit && path.len() <= max_edges {
                let passed = passed + usize::from(self.flow.visible[next as usize]);
                if passed <= self.budget {
                    self.search_from(next, path, passed, max_edges);
                }
            }
            path.pop();
        }
    }
}
