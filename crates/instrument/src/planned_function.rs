//! A function of a unit together with its plan.

use crate::describe::FunctionCfg;
use crate::llvm::Value;
use trodden_flow::frequency::Frequencies;
use trodden_flow::{Edge, Node, ProbeProgram};
use trodden_unit::{FlowGraph, SourcePosition, UnitBlock};

pub struct PlannedFunction {
    pub function: Value,
    pub position: Option<SourcePosition>,
    /// The function's description. Blocks and sites refer to the current code.
    pub cfg: FunctionCfg,
    /// The program to insert, before the passes.
    pub program: ProbeProgram,
    pub frequencies: Frequencies,
    pub is_measured: bool,
    /// True if a thread may enter the function before it has acquired a region.
    pub may_lack_region: bool,
    /// In a stream build, if the graph has more edges than that of a counting build: the paths of the counting build.
    pub counted: Option<Box<CountedPaths>>,
}

/// The paths of a function with the numbers that a counting build assigns.
pub struct CountedPaths {
    pub blocks: Vec<UnitBlock>,
    pub graph: FlowGraph,
    pub program: ProbeProgram,
    /// The additional edges of the graph of events, with their source nodes.
    pub extra_edges: Vec<(Edge, Node)>,
}
