//! The part of a probe program that passes change: operations by edge, and the loops that they name.

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
    /// Its nodes in the order of an iteration.
    pub nodes: Vec<Node>,
    /// The register at the beginning of every iteration but the first.
    pub start: i64,
    /// The sum of increments in an iteration, up to the count.
    pub increment: i64,
    /// How often the back edge is taken per entry of the loop, if that is a constant. Then nothing is counted inside the loop.
    pub trip_count: Option<NonZeroU64>,
}

/// The dominant iteration of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DominantIterationCode {
    /// The back edge that ends it.
    pub back: Edge,
    /// The index of its counter.
    pub index: i64,
    /// Set if its executions are kept in a register.
    pub in_register: Option<RegisterCounted>,
}

/// How executions of a dominant iteration are kept in a register. The register is 0 when the loop is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterCounted {
    /// The loop's head.
    pub head: Node,
    /// The nodes where the register may be nonzero, the head first, in topological order.
    pub nodes: Vec<Node>,
    /// The edges on which the register is added to the counter and cleared.
    pub writes: Vec<Edge>,
}

/// The fixed part of a program: its graph, and where paths end.
#[derive(Clone, Debug)]
pub(super) struct ProgramFrame {
    pub graph: Graph,
    /// The nodes except the exit, in topological order of the paths.
    pub order: Vec<Node>,
    /// The acyclic graph of the function's graph.
    pub dag: Dag,
    /// If the graph has several versions of a function: for each edge, the function's edge.
    pub origins: Option<Vec<Edge>>,
}

impl ProgramFrame {
    /// The frame of a function's own graph.
    pub fn from_function(graph: &Graph, dag: &Dag) -> ProgramFrame {
        let order = dag.order().iter().copied().filter(|n| *n != graph.exit()).collect();
        ProgramFrame { graph: graph.clone(), order, dag: dag.clone(), origins: None }
    }

    /// The function's edge that an edge stands for.
    pub fn origin(&self, edge: Edge) -> Edge {
        self.origins.as_ref().map_or(edge, |origins| origins[edge.index()])
    }

    /// The cut on an edge, if it is cut.
    pub fn cut(&self, edge: Edge) -> Option<&Cut> {
        self.dag.cut(self.origin(edge))
    }

    /// The back edges.
    pub fn back_edges(&self) -> impl Iterator<Item = Edge> + '_ {
        self.graph.edges().filter(|e| self.cut(*e).is_some_and(|c| c.reason == CutReason::Back))
    }
}

/// Operations by edge, with the loops they name.
#[derive(Clone, Debug)]
pub(super) struct Code {
    pub operations: Vec<Vec<Operation>>,
    pub loops: Vec<TripCountedLoop>,
    pub dominant: Vec<DominantIterationCode>,
}

impl Code {
    /// Code with these operations, and no loops.
    pub fn new(operations: Vec<Vec<Operation>>) -> Code {
        Code { operations, loops: Vec::new(), dominant: Vec::new() }
    }

    /// The operations on an edge, in order.
    pub fn on(&self, edge: Edge) -> &[Operation] {
        &self.operations[edge.index()]
    }

    /// The operations on an edge without those that flush a loop at its start.
    pub fn after_flushes(&self, edge: Edge) -> &[Operation] {
        let operations = self.on(edge);
        let flushes = operations.iter().take_while(|o| matches!(o, Operation::Flush { .. } | Operation::FlushDominant(_)));
        &operations[flushes.count()..]
    }

    /// Whether an edge is never taken.
    pub fn is_dead(&self, edge: Edge) -> bool {
        self.on(edge) == [Operation::Unreachable]
    }

    /// The edges that may be taken.
    pub fn live<'a>(&'a self, edges: &'a [Edge]) -> impl Iterator<Item = Edge> + 'a {
        edges.iter().copied().filter(|e| !self.is_dead(*e))
    }

    /// Whether an edge needs code.
    pub fn has_code(&self, edge: Edge) -> bool {
        self.on(edge).iter().any(|o| o.needs_code())
    }

    /// Whether the register's value before an edge is used later.
    pub fn reads_register(&self, edge: Edge) -> bool {
        reads_register(self.on(edge))
    }

    /// The number of the next loop to be added.
    pub fn next_loop(&self) -> LoopId {
        LoopId(self.loops.len())
    }
}
