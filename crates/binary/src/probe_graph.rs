//! A function's graph for following it from probe to probe: which edges lead from one block with an address to another,
//! and what they do to the path's number.
//!
//! Blocks without code have no probe. Between two probes control passed through blocks of that kind only; mostly one
//! sequence of edges does that.

use crate::probed_image::{ProbedFunction, ProbedImage};
use std::collections::HashMap;
use std::rc::Rc;
use trodden_flow::{Edge, Node, Origin};
use trodden_unit::probes::ProbeEvent;
use trodden_unit::{BlockKind, EdgeKind, MapError};

/// What an edge does to a path's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberStep {
    /// Adds to it.
    Add(i64),
    /// Adds to it, and the path ends with the function.
    End(i64),
    /// Adds the first, and the path ends; another begins with the second.
    Cut(i64, i64),
    /// The numbering holds that this edge is never taken.
    Dead,
}

/// How two blocks are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The only one.
    Unique(Rc<[Edge]>),
    /// The only short one, when blocks that have addresses elsewhere may be passed without.
    Inferred(Rc<[Edge]>),
    /// There are several.
    Ambiguous,
    /// There is none.
    None,
}

/// A function's graph.
#[derive(Debug)]
pub struct ProbeGraph {
    /// Out-edges of each block, without `Reach` edges.
    out: Vec<Vec<(Edge, u32)>>,
    kinds: Vec<EdgeKind>,
    steps: Vec<NumberStep>,
    /// Number of the node for the exit.
    exit: u32,
    /// Which blocks have an address.
    visible: Vec<bool>,
    /// For each block the value of its `Reach` edge, unless that has a probe of its own.
    reach: Vec<Option<i64>>,
    marked_reach: Vec<Option<i64>>,
    /// For each block the edge by which paths end in it before it does, unless that has a probe of its own.
    end: Vec<Option<Edge>>,
    marked_end: Vec<Option<Edge>>,
    /// For each block the number with which a path begins behind a cut edge to it.
    enter: HashMap<u32, i64>,
    continuations: Vec<bool>,
    connections: HashMap<(u32, u32), Connection>,
}

/// Most edges between two probes.
const LONGEST: usize = 24;
/// Most paths between two blocks that are tried.
const MOST_WAYS: usize = 64;
/// Most blocks without the addresses that they have elsewhere.
const MOST_INFERRED: usize = 2;

impl ProbeGraph {
    /// The graph of a function of an image.
    ///
    /// # Errors
    /// Its map is damaged.
    pub fn new(image: &ProbedImage, function: ProbedFunction) -> Result<ProbeGraph, MapError> {
        let map = image.map(function);
        let (graph, dag) = (map.graph()?, map.dag()?);
        let blocks = map.blocks.len();
        let value = |id: trodden_flow::DagEdgeId| map.values[id.index()];
        let mut enter = HashMap::new();
        for id in dag.edge_ids() {
            if let Origin::Enter(_) = dag.edge(id).origin {
                enter.entry(dag.edge(id).to.0).or_insert(value(id));
            }
        }
        let step = |edge: Edge| match (dag.real(edge), dag.cut(edge)) {
            (Some(id), _) if graph.to(edge) == dag.exit() => NumberStep::End(value(id)),
            (Some(id), _) => NumberStep::Add(value(id)),
            (None, Some(cut)) => {
                let own = cut.enter.map(value).or_else(|| enter.get(&graph.to(edge).0).copied());
                NumberStep::Cut(cut.leave.map_or(0, value), own.unwrap_or(0))
            }
            (None, None) => NumberStep::Dead,
        };
        let steps: Vec<NumberStep> = graph.edges().map(step).collect();
        let mut flow = ProbeGraph {
            out: vec![Vec::new(); blocks + 1],
            kinds: map.edges.iter().map(|e| e.kind).collect(),
            steps,
            exit: blocks as u32,
            visible: vec![false; blocks + 1],
            reach: vec![None; blocks],
            marked_reach: vec![None; blocks],
            end: vec![None; blocks],
            marked_end: vec![None; blocks],
            enter,
            continuations: map.blocks.iter().map(|b| b.kind == BlockKind::Continuation).collect(),
            connections: HashMap::new(),
        };
        flow.take_edges(map.edges.iter().map(|e| (e.from, e.to)));
        flow.take_marks(image, function);
        Ok(flow)
    }

    fn take_edges(&mut self, edges: impl Iterator<Item = (Node, Node)>) {
        for (number, (from, to)) in edges.enumerate() {
            let (edge, at) = (Edge(number as u32), from.index());
            match (self.kinds[number], self.steps[number]) {
                (EdgeKind::Reach, NumberStep::End(value)) => self.reach[at] = Some(value),
                (EdgeKind::Reach, _) => {}
                (kind, _) => {
                    self.out[at].push((edge, to.0));
                    if to.0 == self.exit && matches!(kind, EdgeKind::TailCall | EdgeKind::Resume | EdgeKind::NoReturn) {
                        self.end[at] = Some(edge);
                    }
                }
            }
        }
    }

    fn take_marks(&mut self, image: &ProbedImage, function: ProbedFunction) {
        let own = image.ranges.iter().filter(|r| r.function == function);
        for probe in own.flat_map(|r| image.probes_in(r.start, r.end)).filter(|m| m.function == function) {
            let at = probe.probe.block as usize;
            match probe.probe.event {
                ProbeEvent::Begin => self.visible[at] = true,
                ProbeEvent::Reach => self.marked_reach[at] = self.marked_reach[at].or(self.reach[at].take()),
                ProbeEvent::End => self.marked_end[at] = self.marked_end[at].or(self.end[at].take()),
            }
        }
    }

    /// What an edge does.
    pub fn step(&self, edge: Edge) -> NumberStep {
        self.steps[edge.index()]
    }

    /// Value of the edge that says that a call was reached: the one that is reached with the block, or the one that has a probe.
    pub fn reach(&self, block: u32, marked: bool) -> Option<i64> {
        if marked { self.marked_reach[block as usize] } else { self.reach[block as usize] }
    }

    /// The edge by which a path ends before its block does, likewise.
    pub fn end(&self, block: u32, marked: bool) -> Option<Edge> {
        if marked { self.marked_end[block as usize] } else { self.end[block as usize] }
    }

    /// The number with which a path begins where a function returned a second time.
    pub fn restart(&self, block: u32) -> Option<i64> {
        self.continuations[block as usize].then(|| self.enter.get(&block).copied().unwrap_or(0))
    }

    /// The block behind a call that returned a second time, where it is `next`, or `next` is the first block with an address of its own
    /// behind it: code generation puts its probe before the call. Nothing if it may be several.
    pub fn restarted(&mut self, next: Option<u32>) -> Option<u32> {
        if let Some(block) = next.filter(|block| self.restart(*block).is_some()) {
            return Some(block);
        }
        let all: Vec<u32> = (0..).zip(&self.continuations).filter(|(_, is_one)| **is_one).map(|(block, _)| block).collect();
        let leads = |block: &u32| matches!(self.connect(*block, next), Connection::Unique(_) | Connection::Inferred(_));
        let leading: Vec<u32> = all.into_iter().filter(leads).collect();
        if let [one] = leading[..] { Some(one) } else { None }
    }

    /// How a block is connected with the exit when a conditional jump led to another function: a block that only made
    /// the call was folded into the jump, so the edges pass one without an address.
    pub fn connect_folded(&self, from: u32) -> Connection {
        for budget in 0..=MOST_INFERRED {
            let mut search = Search { flow: self, to: self.exit, found: Vec::new(), most: 2, budget, folded: true };
            search.go(from, &mut Vec::new(), 0, LONGEST.min(budget + 2));
            match &search.found[..] {
                [] => continue,
                [one] => return Connection::Inferred(one.as_slice().into()),
                _ => return Connection::Ambiguous,
            }
        }
        Connection::None
    }

    /// The number with which a path begins at a block, if all of several paths to it from another block end with the same cut edge:
    /// then it is known whichever was taken.
    pub fn begins_behind(&self, from: u32, to: u32) -> Option<i64> {
        for budget in 0..=MOST_INFERRED {
            let mut search = Search { flow: self, to, found: Vec::new(), most: MOST_WAYS, budget, folded: false };
            search.go(from, &mut Vec::new(), 0, if budget == 0 { LONGEST } else { budget });
            let mut last = search.found.iter().filter_map(|path| path.last());
            let Some(edge) = last.next() else { continue };
            let is_same = search.found.len() < MOST_WAYS && last.all(|other| other == edge);
            return match self.step(*edge) {
                NumberStep::Cut(_, enter) if is_same => Some(enter),
                _ => None,
            };
        }
        None
    }

    /// How a block is connected with another, or with the exit by a return or tail call if none is given.
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
        let mut search = Search { flow: self, to, found: Vec::new(), most: 2, budget: 0, folded: false };
        search.go(from, &mut Vec::new(), 0, LONGEST);
        for seen in 1..=MOST_INFERRED {
            if !search.found.is_empty() {
                break;
            }
            search.budget = seen;
            search.go(from, &mut Vec::new(), 0, seen);
        }
        match (&search.found[..], search.budget) {
            ([], _) => Connection::None,
            ([one], 0) => Connection::Unique(one.as_slice().into()),
            ([one], _) => Connection::Inferred(one.as_slice().into()),
            _ => Connection::Ambiguous,
        }
    }
}

struct Search<'a> {
    flow: &'a ProbeGraph,
    to: u32,
    found: Vec<Vec<Edge>>,
    /// So many are enough.
    most: usize,
    /// How many blocks may be passed that have addresses.
    budget: usize,
    /// At least one block must be passed that has none.
    folded: bool,
}

impl Search<'_> {
    fn go(&mut self, at: u32, path: &mut Vec<Edge>, passed: usize, longest: usize) {
        for &(edge, next) in &self.flow.out[at as usize] {
            if self.found.len() >= self.most {
                return;
            }
            let kind = self.flow.kinds[edge.index()];
            if next == self.flow.exit && !matches!(kind, EdgeKind::Return | EdgeKind::TailCall) {
                continue;
            }
            path.push(edge);
            if next == self.to {
                // All blocks between are counted in `passed` or have no address.
                if !self.folded || path.len() > passed + 1 {
                    self.found.push(path.clone());
                }
            } else if next != self.flow.exit && path.len() <= longest {
                let passed = passed + usize::from(self.flow.visible[next as usize]);
                if passed <= self.budget {
                    self.go(next, path, passed, longest);
                }
            }
            path.pop();
        }
    }
}
