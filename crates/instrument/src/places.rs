//! Places for the code of edges.
//!
//! Code for an edge goes to the end of its tail or to the head where only that edge leads there; otherwise the edge is
//! split. An edge along which an exception arrives is split by giving it a landing pad of its own, since a landing pad
//! must be where the call unwinds to. The remaining edges to that pad share another.
//!
//! A block that does nothing but return is counted on the edges into it where one of them comes behind a tail call (and
//! in front of that call): code generation will copy the return behind the call and make it a jump, and code in the
//! returning block would prevent that and let the stack grow.

use crate::describe::{EdgeSite, FunctionCfg, only_returns, tail_call_before_return};
use crate::handle_map::HandleMap;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::no_return::returns_twice;
use crate::phis;
use crate::shape::new_block_behind;
use crate::trip_count;
use indexmap::IndexMap;
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMMetadataRef;
use std::collections::BTreeSet;
use trodden_flow::program::BlockProperties;
use trodden_flow::{Edge, Graph, Node, ProbeProgram};
use trodden_unit::EdgeKind;

/// A place for code: in front of an instruction, found when it is used, since other code may have come in front of it by then.
#[derive(Clone, Copy, Debug)]
pub enum InsertionPlace {
    /// In front of this instruction.
    Before(Value),
    /// At the beginning of this block.
    Top(Block),
}

impl InsertionPlace {
    /// The instruction in front of which the code goes.
    pub fn instruction(&self) -> Value {
        match self {
            InsertionPlace::Before(instruction) => *instruction,
            InsertionPlace::Top(block) => block.first_insertion_point(),
        }
    }
}

/// For blocks into which edges were split: which block now comes in between, by the block it came from.
type Renames = IndexMap<Block, IndexMap<Block, Block>>;

/// The places of a function's edges, and the control flow between its blocks now.
pub struct Places {
    code: Vec<Option<InsertionPlace>>,
    /// Which edge leads from one block to another (as blocks are now).
    arrivals: HandleMap<(Block, Block), Edge>,
    /// Landing pads shared by edges without code.
    shared_pads: IndexMap<Block, Vec<Edge>>,
    /// Values that are no more, with what took their places, in the order of the replacements.
    replaced: Vec<(Value, Value)>,
}

/// What passes have to know of the blocks.
pub fn block_properties(cfg: &FunctionCfg, graph: &Graph) -> BlockProperties {
    let node = |n: Node| cfg.block(n);
    let can_split = |e: Edge| match &cfg.sites[e.index()] {
        EdgeSite::Before(_) => true,
        EdgeSite::OnEdge(_) => cfg.edges[e.index()].kind != EdgeKind::Unwind,
        EdgeSite::BeforeThenHead(_) | EdgeSite::Head => false,
    };
    let trip_count = |e: Edge| trip_count::constant_trip_count(node(graph.from(e))?, node(graph.to(e))?);
    let counts = |e: Edge| trip_count::counter(node(graph.from(e))?, node(graph.to(e))?);
    let is_free = |e: Edge| matches!(cfg.sites[e.index()], EdgeSite::Before(_)) || graph.incoming(graph.to(e)).len() == 1;
    BlockProperties {
        quiet: graph.nodes().map(|n| node(n).is_some_and(is_quiet)).collect(),
        early: graph.nodes().map(|n| node(n).is_some_and(|b| n != graph.entry() && returns_behind_tail_call(cfg, graph, n, b))).collect(),
        open: graph.edges().map(can_split).collect(),
        free: graph.edges().map(is_free).collect(),
        sizes: graph.nodes().map(|n| node(n).map_or(0, size)).collect(),
        crossed: BTreeSet::new(),
        trip_counts: graph.edges().filter_map(|e| Some((e, trip_count(e)?))).collect(),
        counted: graph.edges().filter(|e| counts(*e).is_some()).collect(),
    }
}

/// Instructions of a block that become code.
fn size(block: Block) -> u32 {
    let is_none = |i: &Value| i.is(LLVMOpcode::LLVMPHI) || i.is(LLVMOpcode::LLVMGetElementPtr);
    block.instructions().filter(|i| !is_none(i)).count() as u32
}

/// Whether nothing in a block can be observed from outside: it calls nothing but what becomes a few instructions. A
/// block that ends with an indirect branch does not count as such: code generation copies it to wherever one leads there,
/// and how well it does (interpreters live on it) depends on those blocks.
fn is_quiet(block: Block) -> bool {
    if block.terminator().is(LLVMOpcode::LLVMIndirectBr) {
        return false;
    }
    let is_call = |i: &Value| i.is_call() && (!i.calls_intrinsic() || returns_twice(*i));
    block.landing_pad().is_none() && !block.instructions().any(|i| is_call(&i) || i.is(LLVMOpcode::LLVMResume))
}

/// Whether a block does nothing but return and one of the edges into it comes behind a tail call.
fn returns_behind_tail_call(cfg: &FunctionCfg, graph: &Graph, node: Node, block: Block) -> bool {
    only_returns(block) && graph.incoming(node).iter().any(|e| tail_call(cfg, graph, *e).is_some())
}

/// The tail call behind which an edge leads to a block that only returns.
fn tail_call(cfg: &FunctionCfg, graph: &Graph, edge: Edge) -> Option<Value> {
    cfg.block(graph.from(edge)).and_then(tail_call_before_return)
}

impl Places {
    /// Finds a place for every edge that needs code, splitting edges as needed.
    pub fn make(module: Module, cfg: &FunctionCfg, program: &ProbeProgram, location: Option<LLVMMetadataRef>) -> Places {
        let graph = program.graph();
        let code = vec![None; graph.edge_count()];
        let mut places = Places { code, arrivals: HandleMap::default(), shared_pads: IndexMap::new(), replaced: Vec::new() };
        for edge in graph.edges() {
            places.note_arrival(cfg, edge);
        }
        let mut pads: BTreeSet<Node> = BTreeSet::new();
        let mut renames = Renames::new();
        let coded: Vec<Edge> = graph.edges().filter(|e| program.has_code(*e)).collect();
        for edge in coded {
            let to = graph.to(edge);
            places.code[edge.index()] = Some(match &cfg.sites[edge.index()] {
                EdgeSite::Before(instruction) if program.counts_early(edge) => {
                    InsertionPlace::Before(tail_call(cfg, graph, edge).unwrap_or(*instruction))
                }
                EdgeSite::Before(instruction) | EdgeSite::BeforeThenHead(instruction) => InsertionPlace::Before(*instruction),
                EdgeSite::Head => InsertionPlace::Top(cfg.nodes[to.index()].expect("a dispatch block is no landing")),
                EdgeSite::OnEdge(_) if graph.incoming(to).len() == 1 => {
                    InsertionPlace::Top(cfg.nodes[to.index()].expect("a dispatch block has no such edges"))
                }
                EdgeSite::OnEdge(_) if cfg.edges[edge.index()].kind == EdgeKind::Unwind => {
                    pads.insert(to);
                    continue;
                }
                EdgeSite::OnEdge(successors) => places.split(module, cfg, edge, successors, location, &mut renames),
            });
        }
        // Once for each block, however many edges into it were split: a switch may have thousands.
        for (to, renamed) in renames {
            places.replaced.extend(phis::rename_all(module, to, &renamed));
        }
        for pad in pads {
            places.split_landing_pad(module, cfg, program, pad, location);
        }
        places
    }

    /// Where the code of an edge goes.
    pub fn code(&self, edge: Edge) -> Option<&InsertionPlace> {
        self.code[edge.index()].as_ref()
    }

    /// The edge that leads from one block to another.
    pub fn arrival(&self, from: Block, to: Block) -> Option<Edge> {
        self.arrivals.get(&(from, to)).copied()
    }

    /// The edges that meet in a landing pad made for those without code.
    pub fn shared_pad(&self, block: Block) -> Option<&[Edge]> {
        self.shared_pads.get(&block).map(Vec::as_slice)
    }

    /// Values that are no more, with what took their places, in the order of the replacements.
    pub fn into_replaced(self) -> Vec<(Value, Value)> {
        self.replaced
    }

    fn note_arrival(&mut self, cfg: &FunctionCfg, edge: Edge) {
        let flow = &cfg.edges[edge.index()];
        // An edge that goes through a block of its own arrives from there.
        let own = match &cfg.sites[edge.index()] {
            EdgeSite::Before(instruction) => Some(instruction.block()),
            _ => None,
        };
        if let (Some(from), Some(to)) = (own.or(cfg.block(flow.from)), cfg.block(flow.to)) {
            self.arrivals.insert((from, to), edge);
        }
    }

    fn split(
        &mut self,
        module: Module,
        cfg: &FunctionCfg,
        edge: Edge,
        successors: &[usize],
        location: Option<LLVMMetadataRef>,
        renames: &mut Renames,
    ) -> InsertionPlace {
        let flow = &cfg.edges[edge.index()];
        let (from, to) = (cfg.nodes[flow.from.index()].expect("a block"), cfg.nodes[flow.to.index()].expect("a block"));
        let between = new_block_behind(module, from);
        Builder::at_end(module, between, location).jump(to);
        for &index in successors {
            from.terminator().set_successor(index, between);
        }
        renames.entry(to).or_default().insert(from, between);
        self.arrivals.swap_remove(&(from, to));
        self.arrivals.insert((between, to), edge);
        InsertionPlace::Before(between.terminator())
    }

    /// Gives every edge to a landing pad that has code a pad of its own, and the others one that they share.
    fn split_landing_pad(
        &mut self,
        module: Module,
        cfg: &FunctionCfg,
        program: &ProbeProgram,
        pad: Node,
        location: Option<LLVMMetadataRef>,
    ) {
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
            let new = new_block_behind(module, old);
            let copy = Value(llvm!(LLVMInstructionClone(instruction.0)));
            Builder::at_end(module, new, None).insert(copy);
            copy.set_location(instruction.location());
            Builder::at_end(module, new, location).jump(old);
            for &edge in edges {
                let from = cfg.nodes[graph.from(edge).index()].expect("a block");
                let EdgeSite::OnEdge(successors) = &cfg.sites[edge.index()] else { unreachable!("unwinding is no jump") };
                successors.iter().for_each(|&i| from.terminator().set_successor(i, new));
                self.arrivals.swap_remove(&(from, old));
            }
            match edges.as_slice() {
                [edge] => {
                    self.arrivals.insert((new, old), *edge);
                    self.code[edge.index()] = Some(InsertionPlace::Before(new.terminator()));
                }
                _ => self.share(cfg, graph, new, edges),
            }
            values.push((copy, new));
        }
        let replaced = self.redirect_phis(module, cfg, graph, old, &groups, &values);
        self.replaced.extend(replaced);
        let merged = Builder::phi_before(module, instruction, instruction.kind(), instruction.location());
        merged.add_incoming(&values);
        instruction.replace_uses(merged);
        // SAFETY: what still holds the handle looks it up in `replaced`, by comparison.
        unsafe { instruction.erase() };
        self.replaced.push((instruction, merged));
    }

    fn share(&mut self, cfg: &FunctionCfg, graph: &Graph, pad: Block, edges: &[Edge]) {
        for &edge in edges {
            let from = cfg.nodes[graph.from(edge).index()].expect("a block");
            self.arrivals.insert((from, pad), edge);
        }
        self.shared_pads.insert(pad, edges.to_vec());
    }

    /// Phi nodes of a split landing pad: what came from a call comes from its new pad; in the shared pad it is merged first.
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
        phis::rebuild(module, old, |entries| {
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
