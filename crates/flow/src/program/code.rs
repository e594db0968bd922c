//! The changing half of a probe program: operations by edge, and the loops they name; what passes ask of them.

use super::operation::{LoopId, Operation, reads_register};
use crate::dag::{Cut, CutReason, Dag};
use crate::graph::{Edge, Graph, Node};
use std::num::NonZeroU64;

/// A loop that is counted by its trip count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TripCountedLoop {
    /// Where it is entered.
    pub head: Node,
    /// The edge that closes it.
    pub back: Edge,
    /// Its nodes in the order of an iteration.
    pub nodes: Vec<Node>,
    /// The register at the beginning of every iteration but the first.
    pub start: i64,
    /// What an iteration adds to the register until it is counted.
    pub increment: i64,
    /// How often the loop goes back, if that is the same constant whenever it is entered: nothing has to be counted in it then.
    pub trip_count: Option<NonZeroU64>,
}

/// The dominant iteration of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DominantIterationCode {
    /// The edge that closes it.
    pub back: Edge,
    /// The index that it counts.
    pub index: i64,
    /// If its executions are kept in a register.
    pub in_register: Option<RegisterCounted>,
}

/// Where executions of a dominant iteration are kept in a register. At the loop's head it is 0 if control comes from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterCounted {
    /// The loop's head.
    pub head: Node,
    /// The nodes where there may be some in it, the head first, in the order of an iteration.
    pub nodes: Vec<Node>,
    /// The edges on which they are written, and none are left.
    pub writes: Vec<Edge>,
}

/// What a program is for: a graph, and where its paths end. No pass changes it.
#[derive(Clone, Debug)]
pub(super) struct ProgramFrame {
    pub graph: Graph,
    /// Its nodes but the exit, those of a path in its order.
    pub order: Vec<Node>,
    /// The acyclic graph of the function's graph.
    pub dag: Dag,
    /// Where the graph is of several versions of a function: which of the function's edges each one is.
    pub origins: Option<Vec<Edge>>,
}

impl ProgramFrame {
    /// Of a function's own graph.
    pub fn from_function(graph: &Graph, dag: &Dag) -> ProgramFrame {
        let order = dag.order().iter().copied().filter(|n| *n != graph.exit()).collect();
        ProgramFrame { graph: graph.clone(), order, dag: dag.clone(), origins: None }
    }

    /// Which of the function's edges an edge is.
    pub fn origin(&self, edge: Edge) -> Edge {
        self.origins.as_ref().map_or(edge, |origins| origins[edge.index()])
    }

    /// How the path on an edge is cut, if it is.
    pub fn cut(&self, edge: Edge) -> Option<&Cut> {
        self.dag.cut(self.origin(edge))
    }

    /// The edges that close loops.
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
    /// Of just these operations.
    pub fn new(operations: Vec<Vec<Operation>>) -> Code {
        Code { operations, loops: Vec::new(), dominant: Vec::new() }
    }

    /// What is done on an edge, in this order.
    pub fn on(&self, edge: Edge) -> &[Operation] {
        &self.operations[edge.index()]
    }

    /// The same but for what is done because a loop is left.
    pub fn behind_flushes(&self, edge: Edge) -> &[Operation] {
        let operations = self.on(edge);
        let flushes = operations.iter().take_while(|o| matches!(o, Operation::Flush { .. } | Operation::FlushDominant(_)));
        &operations[flushes.count()..]
    }

    /// Whether no control comes along an edge.
    pub fn is_dead(&self, edge: Edge) -> bool {
        self.on(edge) == [Operation::Unreachable]
    }

    /// The edges along which control may come.
    pub fn live<'a>(&'a self, edges: &'a [Edge]) -> impl Iterator<Item = Edge> + 'a {
        edges.iter().copied().filter(|e| !self.is_dead(*e))
    }

    /// Whether an edge needs code.
    pub fn has_code(&self, edge: Edge) -> bool {
        self.on(edge).iter().any(|o| o.needs_code())
    }

    /// Whether the register's value in front of an edge matters.
    pub fn reads_register(&self, edge: Edge) -> bool {
        reads_register(self.on(edge))
    }

    /// The next loop to be added.
    pub fn next_loop(&self) -> LoopId {
        LoopId(self.loops.len())
    }
}
