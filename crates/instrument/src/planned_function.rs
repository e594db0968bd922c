//! The plan of a function, which the observations of a unit insert.

use crate::describe::FunctionCfg;
use crate::llvm::Value;
use trodden_flow::frequency::Frequencies;
use trodden_flow::{Edge, Node, ProbeProgram};
use trodden_unit::{FlowGraph, Position, UnitBlock};

/// A function with its plan, before anything is inserted.
pub struct PlannedFunction {
    pub function: Value,
    pub position: Option<Position>,
    /// Its description; blocks and sites refer to the current blocks.
    pub cfg: FunctionCfg,
    /// The program to insert, before the passes.
    pub program: ProbeProgram,
    /// Its edge frequencies, measured or estimated.
    pub frequencies: Frequencies,
    pub measured: bool,
    /// True if the function may be called by other code than sampled functions of this unit.
    pub open: bool,
    /// For stream builds whose graph has more edges than a counting build's: what a counting build would use.
    pub counted: Option<Box<CountedPaths>>,
}

/// A function's paths as a counting build numbers them, where a stream has more events than paths.
pub struct CountedPaths {
    pub blocks: Vec<UnitBlock>,
    pub graph: FlowGraph,
    pub program: ProbeProgram,
    /// The additional edges of the graph of events, with their source nodes.
    pub extra_edges: Vec<(Edge, Node)>,
}
