//! A function of a unit, with its graph and the plan for counting its paths.

use crate::describe::FunctionCfg;
use crate::llvm::Value;
use trodden_flow::frequency::Frequencies;
use trodden_flow::{Edge, Node, ProbeProgram};
use trodden_unit::{FlowGraph, SourcePosition, UnitBlock};

pub struct PlannedFunction {
    pub function: Value,
    pub position: Option<SourcePosition>,
    /// The function's graph, and the blocks and instructions to which it refers.
    pub cfg: FunctionCfg,
    /// The probe program, before passes optimise it.
    pub program: ProbeProgram,
    pub frequencies: Frequencies,
    pub is_measured: bool,
    /// True if a thread may enter the function before it has counters of its own.
    pub may_lack_region: bool,
    /// In a stream build, whose graph may have additional edges: the paths as a counting build would number them.
    pub counted: Option<Box<CountedPaths>>,
}

/// The paths of a function with the numbers that a counting build assigns.
pub struct CountedPaths {
    pub blocks: Vec<UnitBlock>,
    pub graph: FlowGraph,
    pub program: ProbeProgram,
    /// The edges that the stream build's graph has in addition, with their source nodes.
    pub extra_edges: Vec<(Edge, Node)>,
}
