//! Finds the insertion point for the code of each edge, and splits edges if necessary.
//!
//! Code for an edge goes to the end of its source block if the block has no other successor, or to its target block if that has no other
//! predecessor; otherwise the edge is split. An unwind edge is split by giving it its own landing pad, because calls must unwind to a
//! landing pad. The remaining edges to the old pad share a second new pad. If a block only returns and one of its predecessors ends with a
//! tail call, paths through it are counted on its incoming edges, before the call. Code in the block itself would keep LLVM from turning
//! the call into a jump, so the stack would grow.

use crate::describe::{EdgeInsertionSite, FunctionCfg, contains_only_return, tail_call_before_return};
use crate::handle_map::HandleMap;
use crate::llvm::{Block, Builder, DebugLocation, Module, Value};
use crate::no_return::returns_twice;
use crate::phis;
use crate::shape::new_block_after;
use crate::trip_count;
use indexmap::IndexMap;
use llvm_sys::LLVMOpcode;
use std::collections::BTreeSet;
use trodden_flow::program::BlockProperties;
use trodden_flow::{Edge, EdgeSet, Graph, Node, NodeSet, ProbeProgram};
use trodden_unit::EdgeKind;

/// An insertion point. For the top of a block, the instruction is only looked up when code is inserted, because other code may have been
/// inserted in the meantime.
#[derive(Clone, Copy, Debug)]
pub enum InsertionPoint {
    Before(Value),
    /// At the beginning of this block, after the phi nodes and the landing pad.
    Top(Block),
}

impl InsertionPoint {
    pub fn instruction(&self) -> Value {
        match self {
            InsertionPoint::Before(instruction) => *instruction,
            InsertionPoint::Top(block) => block.first_insertion_point(),
        }
    }
}

/// For each block with incoming edges that were split: a map from its old predecessors to the new blocks.
type PredecessorRenames = IndexMap<Block, IndexMap<Block, Block>>;

/// The insertion points of a function's edges, and its control flow after edges were split.
pub struct EdgeInsertionPoints {
    code: Vec<Option<InsertionPoint>>,
    /// The edge that leads from one block to another, after edges were split.
    arrivals: HandleMap<(Block, Block), Edge>,
    /// The new landing pads that several edges without code share, each with these edges.
    shared_pads: IndexMap<Block, Vec<Edge>>,
    /// Deleted values and their replacements, in chronological order.
    replaced: Vec<(Value, Value)>,
}

pub fn block_properties(cfg: &FunctionCfg) -> BlockProperties {
    let graph = &cfg.graph;
    let (node, nodes, edges) = (|n: Node| cfg.block(n), graph.node_count(), graph.edge_count());
    let can_split = |e: Edge| match &cfg.sites[e.index()] {
        EdgeInsertionSite::Before(_) => true,
        EdgeInsertionSite::OnEdge(_) => graph.kind(e) != EdgeKind::Unwind,
        EdgeInsertionSite::BeforeThenHead(_) | EdgeInsertionSite::Head => false,
    };
    let trip_count = |e: Edge| trip_count::constant_trip_count(node(graph.from(e))?, node(graph.to(e))?);
    let counts = |e: Edge| trip_count::existing_counter(node(graph.from(e))?, node(graph.to(e))?);
    let is_free = |e: Edge| matches!(cfg.sites[e.index()], EdgeInsertionSite::Before(_)) || graph.incoming(graph.to(e)).len() == 1;
    BlockProperties {
        quiet: NodeSet::from_fn(nodes, |n| node(n).is_some_and(calls_no_other_function)),
        must_count_early: NodeSet::from_fn(nodes, |n| node(n).is_some_and(|b| n != graph.entry() && returns_after_tail_call(cfg, n, b))),
        can_carry_code: EdgeSet::from_fn(edges, can_split),
        carries_code_for_free: EdgeSet::from_fn(edges, is_free),
        sizes: graph.nodes().map(|n| node(n).map_or(0, estimated_size)).collect(),
        changes_version: BTreeSet::new(),
        trip_counts: graph.edges().filter_map(|e| Some((e, trip_count(e)?))).collect(),
        counted: graph.edges().filter(|e| counts(*e).is_some()).collect(),
    }
}

/// Returns an estimate of the number of machine instructions in a block.
fn estimated_size(block: Block) -> u32 {
    let is_none = |i: &Value| i.is(LLVMOpcode::LLVMPHI) || i.is(LLVMOpcode::LLVMGetElementPtr);
    block.instructions().filter(|i| !is_none(i)).count() as u32
}

/// Returns true if no other function can run in the middle of a block: it contains no calls except of intrinsics, and neither starts nor
/// resumes unwinding. Blocks that end with an indirect branch never qualify: interpreters depend on tail duplication, which copies such
/// blocks into their predecessors, and additional code would prevent that.
fn calls_no_other_function(block: Block) -> bool {
    if block.terminator().is(LLVMOpcode::LLVMIndirectBr) {
        return false;
    }
    let is_call = |i: &Value| i.is_call() && (!i.calls_intrinsic() || returns_twice(*i));
    block.landing_pad().is_none() && !block.instructions().any(|i| is_call(&i) || i.is(LLVMOpcode::LLVMResume))
}

/// Returns true if a block only returns and one of its incoming edges follows a tail call.
fn returns_after_tail_call(cfg: &FunctionCfg, node: Node, block: Block) -> bool {
    contains_only_return(block) && cfg.graph.incoming(node).iter().any(|e| find_tail_call_on_edge(cfg, *e).is_some())
}

/// Returns the tail call that an edge follows, if it leads to a block that only returns.
fn find_tail_call_on_edge(cfg: &FunctionCfg, edge: Edge) -> Option<Value> {
    cfg.block(cfg.graph.from(edge)).and_then(tail_call_before_return)
}

impl EdgeInsertionPoints {
    /// Determines the insertion point of every edge that needs code, splitting edges where necessary.
    pub fn new(module: Module, cfg: &FunctionCfg, program: &ProbeProgram, location: Option<DebugLocation>) -> EdgeInsertionPoints {
        let graph = program.graph();
        let code = vec![None; graph.edge_count()];
        let mut places = EdgeInsertionPoints { code, arrivals: HandleMap::default(), shared_pads: IndexMap::new(), replaced: Vec::new() };
        for edge in graph.edges() {
            places.record_edge_arrival(cfg, edge);
        }
        let mut pads: BTreeSet<Node> = BTreeSet::new();
        let mut renames = PredecessorRenames::new();
        let coded: Vec<Edge> = graph.edges().filter(|e| program.has_code(*e)).collect();
        for edge in coded {
            let to = graph.to(edge);
            places.code[edge.index()] = Some(match &cfg.sites[edge.index()] {
                EdgeInsertionSite::Before(instruction) if program.counts_before_path_end(edge) => {
                    InsertionPoint::Before(find_tail_call_on_edge(cfg, edge).unwrap_or(*instruction))
                }
                EdgeInsertionSite::Before(instruction) | EdgeInsertionSite::BeforeThenHead(instruction) => {
                    InsertionPoint::Before(*instruction)
                }
                EdgeInsertionSite::Head => InsertionPoint::Top(cfg.nodes[to.index()].expect("a dispatch block is not a landing block")),
                EdgeInsertionSite::OnEdge(_) if graph.incoming(to).len() == 1 => {
                    InsertionPoint::Top(cfg.nodes[to.index()].expect("only indirect edges lead to a dispatch block"))
                }
                EdgeInsertionSite::OnEdge(_) if cfg.graph.kind(edge) == EdgeKind::Unwind => {
                    pads.insert(to);
                    continue;
                }
                EdgeInsertionSite::OnEdge(successors) => places.split_edge(module, cfg, edge, successors, location, &mut renames),
            });
        }
        // Rebuild the phi nodes once per block rather than once per split edge: a switch may have thousands of edges to one block.
        for (to, renamed) in renames {
            places.replaced.extend(phis::rename_phi_predecessors(module, to, &renamed));
        }
        for pad in pads {
            places.split_landing_pad(module, cfg, program, pad, location);
        }
        places
    }

    /// Returns the insertion point of an edge; `None` if it needs no code.
    pub fn insertion_point(&self, edge: Edge) -> Option<&InsertionPoint> {
        self.code[edge.index()].as_ref()
    }

    pub fn edge_between(&self, from: Block, to: Block) -> Option<Edge> {
        self.arrivals.get(&(from, to)).copied()
    }

    /// Returns the edges that share a new landing pad, because they have no code; `None` for other blocks.
    pub fn edges_sharing_landing_pad(&self, block: Block) -> Option<&[Edge]> {
        self.shared_pads.get(&block).map(Vec::as_slice)
    }

    pub fn into_replaced_values(self) -> Vec<(Value, Value)> {
        self.replaced
    }

    fn record_edge_arrival(&mut self, cfg: &FunctionCfg, edge: Edge) {
        let flow = cfg.graph.edge(edge);
        // Describing the function may have split the source block: control arrives from the part with the edge's insertion point.
        let own = match &cfg.sites[edge.index()] {
            EdgeInsertionSite::Before(instruction) => Some(instruction.block()),
            _ => None,
        };
        if let (Some(from), Some(to)) = (own.or(cfg.block(flow.from)), cfg.block(flow.to)) {
            self.arrivals.insert((from, to), edge);
        }
    }

    fn split_edge(
        &mut self,
        module: Module,
        cfg: &FunctionCfg,
        edge: Edge,
        successors: &[usize],
        location: Option<DebugLocation>,
        renames: &mut PredecessorRenames,
    ) -> InsertionPoint {
        let flow = cfg.graph.edge(edge);
        let (from, to) = (cfg.nodes[flow.from.index()].expect("a block"), cfg.nodes[flow.to.index()].expect("a block"));
        let between = new_block_after(module, from);
        Builder::at_end(module, between, location).jump(to);
        for &index in successors {
            from.terminator().set_successor(index, between);
        }
        renames.entry(to).or_default().insert(from, between);
        self.arrivals.swap_remove(&(from, to));
        self.arrivals.insert((between, to), edge);
        InsertionPoint::Before(between.terminator())
    }

    /// Splits a landing pad: each incoming edge with code gets its own pad, and the edges without code share one.
    fn split_landing_pad(&mut self, module: Module, cfg: &FunctionCfg, program: &ProbeProgram, pad: Node, location: Option<DebugLocation>) {
        let graph = program.graph();
        let old = cfg.nodes[pad.index()].expect("a block");
        let instruction = old.landing_pad().expect("calls unwind to landing pads");
        let (own, shared): (Vec<Edge>, Vec<Edge>) = graph.incoming(pad).iter().partition(|e| program.has_code(**e));
        let mut groups: Vec<Vec<Edge>> = own.iter().map(|e| vec![*e]).collect();
        if !shared.is_empty() {
            groups.push(shared.clone());
        }
        let mut values = Vec::new();
        for edges in &groups {
            let new = new_block_after(module, old);
            let copy = instruction.duplicate();
            Builder::at_end(module, new, None).insert(copy);
            copy.set_location(instruction.location());
            Builder::at_end(module, new, location).jump(old);
            for &edge in edges {
                let from = cfg.nodes[graph.from(edge).index()].expect("a block");
                let EdgeInsertionSite::OnEdge(successors) = &cfg.sites[edge.index()] else {
                    unreachable!("unwind edges are split on the edge")
                };
                successors.iter().for_each(|&i| from.terminator().set_successor(i, new));
                self.arrivals.swap_remove(&(from, old));
            }
            match edges.as_slice() {
                [edge] => {
                    self.arrivals.insert((new, old), *edge);
                    self.code[edge.index()] = Some(InsertionPoint::Before(new.terminator()));
                }
                _ => self.share_landing_pad(cfg, graph, new, edges),
            }
            values.push((copy, new));
        }
        let replaced = self.redirect_phis(module, cfg, graph, old, &groups, &values);
        self.replaced.extend(replaced);
        let merged = Builder::phi_before(module, instruction, instruction.kind(), instruction.location());
        merged.add_incoming(&values);
        instruction.replace_uses(merged);
        // SAFETY: the handle in `replaced` and any other copy are only compared with each other.
        unsafe { instruction.erase() };
        self.replaced.push((instruction, merged));
    }

    fn share_landing_pad(&mut self, cfg: &FunctionCfg, graph: &Graph, pad: Block, edges: &[Edge]) {
        for &edge in edges {
            let from = cfg.nodes[graph.from(edge).index()].expect("a block");
            self.arrivals.insert((from, pad), edge);
        }
        self.shared_pads.insert(pad, edges.to_vec());
    }

    /// Updates the phi nodes of a split landing pad for its new predecessors. The values of edges that share a pad are merged in that pad.
    fn redirect_phis(
        &self,
        module: Module,
        cfg: &FunctionCfg,
        graph: &Graph,
        old: Block,
        groups: &[Vec<Edge>],
        pads: &[(Value, Block)],
    ) -> Vec<(Value, Value)> {
        let sources =
            |edges: &[Edge]| -> Vec<Block> { edges.iter().map(|e| cfg.nodes[graph.from(*e).index()].expect("a block")).collect() };
        phis::rebuild_phis(module, old, |entries| {
            let mut new = Vec::new();
            for (edges, &(copy, pad)) in groups.iter().zip(pads) {
                let from = sources(edges);
                let mine: Vec<(Value, Block)> = entries.iter().copied().filter(|(_, b)| from.contains(b)).collect();
                let value = match mine.as_slice() {
                    [(value, _)] => *value,
                    _ => {
                        let phi = Builder::phi_before(module, copy, mine[0].0.kind(), None);
                        phi.add_incoming(&mine);
                        phi
                    }
                };
                new.push((value, pad));
            }
            new
        })
    }
}
