//! The control flow between a function's probes: the edges between two blocks with addresses, and the effect of these edges on the path
//! number.
//!
//! Blocks without code have no probe. Between two probes that execute one after the other, control has passed only through such blocks,
//! usually along a unique sequence of edges.

use crate::probed_image::{ProbedFunction, ProbedImage};
use std::collections::HashMap;
use std::rc::Rc;
use trodden_flow::{Edge, Node, Origin};
use trodden_unit::probes::ProbeEvent;
use trodden_unit::{BlockKind, EdgeKind, MapError};

/// The effect of an edge on the path number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberStep {
    /// Adds a value.
    Add(i64),
    /// Adds a value; the path ends with the function.
    End(i64),
    /// Adds the first value and ends the path. The next path starts with the second value.
    Cut(i64, i64),
    /// None, because the numbering assumes that the edge is never taken.
    Dead,
}

/// The paths that lead from one block to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Exactly one path connects the blocks.
    Unique(Rc<[Edge]>),
    /// Exactly one short path connects the blocks, assuming that the probes of the blocks in between were not recorded.
    Inferred(Rc<[Edge]>),
    /// Several paths connect the blocks.
    Ambiguous,
    /// No path connects the blocks.
    None,
}

/// The control flow of one function in terms of its probes.
#[derive(Debug)]
pub struct ProbeGraph {
    /// Outgoing edges of each block and their target blocks, without `Reach` edges.
    out_edges: Vec<Vec<(Edge, u32)>>,
    kinds: Vec<EdgeKind>,
    steps: Vec<NumberStep>,
    exit: u32,
    /// Whether each block has an address.
    visible: Vec<bool>,
    /// The value of each block's `Reach` edge, unless that edge has its own probe.
    reach: Vec<Option<i64>>,
    marked_reach: Vec<Option<i64>>,
    /// For each block, the edge to the exit by which a path ends in the block, unless that edge has its own probe.
    end: Vec<Option<Edge>>,
    marked_end: Vec<Option<Edge>>,
    /// For the target block of each cut edge, the initial number of the path that starts there.
    start_numbers: HashMap<u32, i64>,
    continuations: Vec<bool>,
    connections: HashMap<(u32, u32), Connection>,
}

/// Maximum number of edges between two probes.
const MAX_EDGES: usize = 24;
/// Maximum number of paths to try between two blocks.
const MAX_PATHS: usize = 64;
/// Maximum number of blocks on a path whose probes were not recorded.
const MAX_INFERRED_BLOCKS: usize = 2;

impl ProbeGraph {
    /// Builds the graph of one of an image's functions.
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

    /// Returns an edge's effect on the path number.
    pub fn step(&self, edge: Edge) -> NumberStep {
        self.steps[edge.index()]
    }

    /// Returns the value of the block's `Reach` edge, provided that the edge has its own probe if `is_marked`, and none otherwise.
    pub fn reach(&self, block: u32, is_marked: bool) -> Option<i64> {
        if is_marked { self.marked_reach[block as usize] } else { self.reach[block as usize] }
    }

    /// Returns the edge to the exit by which a path ends in a block; `is_marked` is as in [`Self::reach`].
    pub fn end(&self, block: u32, is_marked: bool) -> Option<Edge> {
        if is_marked { self.marked_end[block as usize] } else { self.end[block as usize] }
    }

    /// Returns the initial path number in a block that continues after the second return of a call. Returns `None` for other blocks.
    pub fn restart_number(&self, block: u32) -> Option<i64> {
        self.continuations[block as usize].then(|| self.start_numbers.get(&block).copied().unwrap_or(0))
    }

    /// Returns the block that continues after the second return of a call, given the block `next` whose probe executed next. This is
    /// `next` itself or a block that leads to `next`, because code generation may move the continuation's probe before the call. Returns
    /// `None` if several blocks qualify.
    pub fn continuation_of_second_return(&mut self, next: Option<u32>) -> Option<u32> {
        if let Some(block) = next.filter(|block| self.restart_number(*block).is_some()) {
            return Some(block);
        }
        let continuations = (0..).zip(&self.continuations).filter(|(_, is_continuation)| **is_continuation).map(|(block, _)| block);
        let continuations: Vec<u32> = continuations.collect();
        let leads = |block: &u32| matches!(self.connect(*block, next), Connection::Unique(_) | Connection::Inferred(_));
        let leading: Vec<u32> = continuations.into_iter().filter(leads).collect();
        if let [one] = leading[..] { Some(one) } else { None }
    }

    /// Returns the paths from a block to the exit after a conditional tail call. Code generation folded the block that contained only the
    /// call into the conditional jump, so the path passes through a block without an address.
    pub fn connect_folded(&self, from: u32) -> Connection {
        for budget in 0..=MAX_INFERRED_BLOCKS {
            let mut search = ProbeSearch { flow: self, to: self.exit, found: Vec::new(), max_found: 2, budget, needs_folded_block: true };
            search.search_from(from, &mut Vec::new(), 0, MAX_EDGES.min(budget + 2));
            match &search.found[..] {
                [] => continue,
                [one] => return Connection::Inferred(one.as_slice().into()),
                _ => return Connection::Ambiguous,
            }
        }
        Connection::None
    }

    /// Returns the initial path number at `to` if all paths from `from` to `to` end with the same cut edge, so that the choice among them
    /// does not matter. Returns `None` otherwise.
    pub fn start_after_common_cut(&self, from: u32, to: u32) -> Option<i64> {
        for budget in 0..=MAX_INFERRED_BLOCKS {
            let mut search = ProbeSearch { flow: self, to, found: Vec::new(), max_found: MAX_PATHS, budget, needs_folded_block: false };
            search.search_from(from, &mut Vec::new(), 0, if budget == 0 { MAX_EDGES } else { budget });
            let mut last = search.found.iter().filter_map(|path| path.last());
            let Some(edge) = last.next() else { continue };
            let is_same = search.found.len() < MAX_PATHS && last.all(|other| other == edge);
            return match self.step(*edge) {
                NumberStep::Cut(_, start) if is_same => Some(start),
                _ => None,
            };
        }
        None
    }

    /// Returns the paths from one block to another. If `to` is `None`, returns the paths to the exit by a return or tail call.
    pub fn connect(&mut self, from: u32, to: Option<u32>) -> Connection {
        let key = (from, to.unwrap_or(self.exit));
        if let Some(known) = self.connections.get(&key) {
            return known.clone();
        }
        let connection = self.search(key.0, key.1);
        self.connections.insert(key, connection.clone());
        connection
    }

    fn search(&self, from: u32, to: u32) -> Connection {
        let mut search = ProbeSearch { flow: self, to, found: Vec::new(), max_found: 2, budget: 0, needs_folded_block: false };
        search.search_from(from, &mut Vec::new(), 0, MAX_EDGES);
        for seen in 1..=MAX_INFERRED_BLOCKS {
            if !search.found.is_empty() {
                break;
            }
            search.budget = seen;
            search.search_from(from, &mut Vec::new(), 0, seen);
        }
        match (&search.found[..], search.budget) {
            ([], _) => Connection::None,
            ([one], 0) => Connection::Unique(one.as_slice().into()),
            ([one], _) => Connection::Inferred(one.as_slice().into()),
            _ => Connection::Ambiguous,
        }
    }
}

struct ProbeSearch<'a> {
    flow: &'a ProbeGraph,
    to: u32,
    found: Vec<Vec<Edge>>,
    /// Number of paths after which the search stops.
    max_found: usize,
    /// Maximum number of blocks with addresses on a path.
    budget: usize,
    /// Whether a path must contain at least one block without an address.
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
                // Every block on the path is either counted in `passed` or has no address.
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
