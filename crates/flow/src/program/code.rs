//! The code of a probe program: the operations on each edge, and the loops that they refer to. Passes change it.

use super::operation::{LoopId, Operation, reads_register};
use crate::dag::{Cut, CutReason, Dag};
use crate::graph::{Edge, Graph, Node};
use std::num::NonZeroU64;

/// A loop that is counted by its trip count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TripCountedLoop {
    /// The loop's head.
    pub head: Node,
    /// The back edge.
    pub back: Edge,
    /// The loop's nodes in the order of an iteration.
    pub nodes: Vec<Node>,
    /// The register at the beginning of each iteration except the first.
    pub start: i64,
    /// The sum of increments in an iteration, including that of its count: the iteration's counter has the index `start + increment`.
    pub increment: i64,
    /// Number of executions of the back edge per entry if this number is constant; otherwise `None`. A constant count needs no code inside
    /// the loop.
    pub trip_count: Option<NonZeroU64>,
}

/// The dominant iteration of a loop, which is the one that nearly all iterations repeat, and how it is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DominantIterationCode {
    /// The back edge that ends the iteration.
    pub back: Edge,
    /// The index of the iteration's counter.
    pub index: i64,
    /// How the executions are counted in a register, or `None` if they are counted in memory.
    pub in_register: Option<RegisterCountedIteration>,
}

/// A dominant iteration whose executions are counted in a register. The register is 0 when the loop is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterCountedIteration {
    /// The loop's head.
    pub head: Node,
    /// The nodes in which the register may be nonzero, in topological order, the head first.
    pub nodes: Vec<Node>,
    /// The edges on which the register is added to the counter in memory and cleared.
    pub writes: Vec<Edge>,
}

/// The part of a program that passes do not change: its graph and the acyclic graph of its paths.
#[derive(Clone, Debug)]
pub(crate) struct ProgramGraphs {
    pub graph: Graph,
    /// The nodes except the exit, in topological order of the paths.
    pub order: Vec<Node>,
    /// The acyclic graph of the function's paths.
    pub dag: Dag,
    /// If `graph` has several versions of the function's code, the function's edge to which each edge corresponds.
    pub origins: Option<Vec<Edge>>,
}

impl ProgramGraphs {
    pub fn from_function(graph: &Graph, dag: &Dag) -> ProgramGraphs {
        let order = dag.order().iter().copied().filter(|n| *n != graph.exit()).collect();
        ProgramGraphs { graph: graph.clone(), order, dag: dag.clone(), origins: None }
    }

    pub fn origin(&self, edge: Edge) -> Edge {
        self.origins.as_ref().map_or(edge, |origins| origins[edge.index()])
    }

    pub fn cut(&self, edge: Edge) -> Option<&Cut> {
        self.dag.cut(self.origin(edge))
    }

    pub fn back_edges(&self) -> impl Iterator<Item = Edge> + '_ {
        self.graph.edges().filter(|e| self.cut(*e).is_some_and(|c| c.reason == CutReason::Back))
    }
}

/// Operations by edge, and the loops that they refer to.
#[derive(Clone, Debug)]
pub(super) struct EdgeCode {
    pub operations: Vec<Vec<Operation>>,
    pub loops: Vec<TripCountedLoop>,
    pub dominant: Vec<DominantIterationCode>,
}

impl EdgeCode {
    pub fn new(operations: Vec<Vec<Operation>>) -> EdgeCode {
        EdgeCode { operations, loops: Vec::new(), dominant: Vec::new() }
    }

    /// Returns the operations on an edge, in order.
    pub fn operations_on(&self, edge: Edge) -> &[Operation] {
        &self.operations[edge.index()]
    }

    /// Returns the operations on an edge without the flushes at its start, which add the counts of the loops that control leaves.
    pub fn operations_after_flushes(&self, edge: Edge) -> &[Operation] {
        let operations = self.operations_on(edge);
        let flushes = operations.iter().take_while(|o| matches!(o, Operation::Flush { .. } | Operation::FlushDominant(_)));
        &operations[flushes.count()..]
    }

    pub fn is_dead(&self, edge: Edge) -> bool {
        self.operations_on(edge) == [Operation::Unreachable]
    }

    /// Iterates over those of the given edges that may be taken.
    pub fn live_edges<'a>(&'a self, edges: &'a [Edge]) -> impl Iterator<Item = Edge> + 'a {
        edges.iter().copied().filter(|e| !self.is_dead(*e))
    }

    pub fn has_code(&self, edge: Edge) -> bool {
        self.operations_on(edge).iter().any(|o| o.needs_code())
    }

    pub fn reads_register(&self, edge: Edge) -> bool {
        reads_register(self.operations_on(edge))
    }

    pub fn next_loop_id(&self) -> LoopId {
        LoopId(self.loops.len())
    }
}
