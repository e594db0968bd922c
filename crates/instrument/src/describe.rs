//! Describes an LLVM function as a graph, with the condition under which each edge is taken.
//!
//! Nodes are the blocks in the order given by [`crate::shape::prepare_function_blocks`], then a dispatch block if the function has indirect
//! branches, then the exit. Parallel edges between two blocks are merged, since a path is a sequence of blocks. Every block that ends the
//! function has an edge to the exit, and so has every block with a call that may not return ([`EdgeKind::Reach`]).

use crate::calls;
use crate::code;
use crate::debug::SourcePositionCollector;
use crate::handle_map::HandleMap;
use crate::host;
use crate::llvm::{Block, Value};
use crate::no_return::{NoReturnAnalysis, returns_twice};
use crate::trip_count::constant_trip_count;
use crate::weights;
use llvm_sys::LLVMOpcode;
use llvm_sys::LLVMTailCallKind;
use trodden_flow::frequency::BranchHint;
use trodden_flow::{CutReason, Edge, EdgeSet, Node, NodeSet};
use trodden_unit::{BlockCall, BlockKind, EdgeKind, FlowEdge, FlowGraph, UnitBlock as BlockMap};

/// A function's graph with the LLVM handles of its nodes, and of the places where code for its edges is inserted.
#[derive(Clone)]
pub struct FunctionCfg {
    /// The graph, to whose nodes and edges the other fields refer.
    pub graph: FlowGraph,
    /// The basic block of each node; `None` for the dispatch block, an artificial node through which all indirect branches lead.
    pub nodes: Vec<Option<Block>>,
    pub blocks: Vec<BlockMap>,
    /// For each block, its calls that may not return. The number says how many of the block's source positions come before the call or
    /// belong to it.
    pub reached: Vec<Vec<(Value, u32)>>,
    /// Digest of the function's code.
    pub code: u64,
    pub calls: Vec<BlockCall>,
    pub sites: Vec<EdgeInsertionSite>,
    pub hints: Vec<BranchHint>,
    /// Edges on which one path must end and the next one start, with the reasons.
    pub forced: Vec<(Edge, CutReason)>,
}

/// The point at which code for an edge can be inserted.
#[derive(Clone, Debug)]
pub enum EdgeInsertionSite {
    /// Before this instruction of the edge's source block, which is only executed if the edge is taken.
    Before(Value),
    /// Before this instruction of the edge's source block for code that ends a path, and at the target block for code that starts one.
    BeforeThenHead(Value),
    /// On the edge itself, which must be split. These are the indices of the terminator's successors that the edge stands for.
    OnEdge(Vec<usize>),
    /// At the start of the target block, which is reached by indirect branches.
    Head,
}

pub fn is_must_tail(call: Value) -> bool {
    call.is(LLVMOpcode::LLVMCall) && call.tail_call_kind() == LLVMTailCallKind::LLVMTailCallKindMustTail
}

impl FunctionCfg {
    /// Returns the block of a node; `None` for a dispatch block and the exit.
    pub fn block(&self, node: Node) -> Option<Block> {
        self.nodes.get(node.index()).copied().flatten()
    }

    /// Returns the edges from calls that may not return to the exit. A path that ends with such an edge is a prefix of the paths that
    /// continue after the call.
    pub fn edges_from_calls_to_exit(&self) -> EdgeSet {
        self.graph.edges_where(|kind| kind == EdgeKind::Reach)
    }

    /// Returns this graph's edges that are missing from `fewer`, each with the node it starts from. `fewer` describes the same function,
    /// but assumes that more of its calls return.
    pub fn edges_missing_from(&self, fewer: &FunctionCfg) -> Vec<(Edge, Node)> {
        let mut own = fewer.graph.flow_edges().peekable();
        let extra_edges = self.graph.edges().zip(self.graph.flow_edges()).filter(|(_, edge)| own.next_if(|own| own == edge).is_none());
        let extra_edges = extra_edges.map(|(number, edge)| (number, edge.from)).collect();
        assert!(own.peek().is_none(), "a description with more calls has all edges of one with fewer");
        extra_edges
    }

    /// Describes a function whose blocks were prepared by [`crate::shape::prepare_function_blocks`].
    pub fn new(
        function: Value,
        prepared: &[(Block, BlockKind)],
        no_return: &NoReturnAnalysis,
        positions: &mut SourcePositionCollector,
    ) -> FunctionCfg {
        let number: HandleMap<Block, u32> = prepared.iter().enumerate().map(|(i, (b, _))| (*b, i as u32)).collect();
        let jumps = function.blocks().any(|b| b.terminator().is(LLVMOpcode::LLVMIndirectBr));
        let described = prepared.iter().map(|&(b, kind)| describe_block(b, kind, no_return, positions));
        let (mut blocks, reached): (Vec<BlockMap>, _) = described.unzip();
        let mut nodes: Vec<Option<Block>> = prepared.iter().map(|(b, _)| Some(*b)).collect();
        let dispatch = jumps.then(|| {
            nodes.push(None);
            blocks.push(BlockMap { instructions: 0, positions: Vec::new(), up_to_calls: 0, branch: None, kind: BlockKind::Dispatch });
            Node(nodes.len() as u32 - 1)
        });
        let (exit, mut described) = (Node(nodes.len() as u32), DescribedEdges::default());
        for (i, &(block, _)) in prepared.iter().enumerate() {
            let next_continues = prepared.get(i + 1).is_some_and(|(_, kind)| *kind == BlockKind::Continuation);
            let from = Node(i as u32);
            match block.terminator().opcode() {
                LLVMOpcode::LLVMIndirectBr if dispatch.is_some() => described.add_jump_to_dispatch(from, dispatch.expect("checked"), block),
                _ if next_continues => described.add_return_twice_edge(from, block),
                _ => described.add_successor_edges(from, block, &number),
            }
            described.add_exit_edges(from, exit, block, no_return);
        }
        if let Some(dispatch) = dispatch {
            described.add_jumps_from_dispatch(dispatch, function, &number);
        }
        described.mark_cold_edges(nodes.len());
        let DescribedEdges { edges, sites, hints, forced } = described;
        FunctionCfg {
            graph: FlowGraph::new(nodes.len(), edges).expect("successors are blocks of the function"),
            nodes,
            blocks,
            reached,
            code: code::hash_function_code(&prepared.iter().map(|(b, _)| *b).collect::<Vec<_>>()),
            calls: prepared.iter().zip(0..).flat_map(|((block, _), number)| calls::callees_of_block(*block, Node(number))).collect(),
            sites,
            hints,
            forced,
        }
    }
}

/// The edges that have been described so far. Each field holds the same as the field of this name in [`FunctionCfg`].
#[derive(Default)]
struct DescribedEdges {
    edges: Vec<FlowEdge<'static>>,
    sites: Vec<EdgeInsertionSite>,
    hints: Vec<BranchHint>,
    forced: Vec<(Edge, CutReason)>,
}

impl DescribedEdges {
    fn add(&mut self, edge: FlowEdge<'static>, site: EdgeInsertionSite, hint: BranchHint) -> Edge {
        self.edges.push(edge);
        self.sites.push(site);
        self.hints.push(hint);
        Edge(self.edges.len() as u32 - 1)
    }

    fn add_jump_to_dispatch(&mut self, from: Node, dispatch: Node, block: Block) {
        let edge = FlowEdge::new(from, dispatch, EdgeKind::Indirect(0));
        let edge = self.add(edge, EdgeInsertionSite::Before(block.terminator()), BranchHint::None);
        self.forced.push((edge, CutReason::Unsplittable));
    }

    fn add_jumps_from_dispatch(&mut self, dispatch: Node, function: Value, number: &HandleMap<Block, u32>) {
        let jumps = function.blocks().filter(|b| b.terminator().is(LLVMOpcode::LLVMIndirectBr));
        let mut targets: Vec<u32> = jumps.flat_map(|b| b.terminator().successors()).map(|b| number[&b]).collect();
        targets.sort();
        targets.dedup();
        for (i, to) in targets.into_iter().enumerate() {
            self.add(FlowEdge::new(dispatch, Node(to), EdgeKind::Indirect(i as u32)), EdgeInsertionSite::Head, BranchHint::None);
        }
    }

    /// Adds the edge after a call that returns twice, such as `setjmp`. A new path starts each time the call returns.
    fn add_return_twice_edge(&mut self, from: Node, block: Block) {
        let call = block.instructions().filter(|i| i.is_call() && returns_twice(*i)).last().expect("the block was split after it");
        let edge = FlowEdge::new(from, Node(from.0 + 1), EdgeKind::ReturnsTwice);
        let edge = self.add(edge, EdgeInsertionSite::BeforeThenHead(call), BranchHint::None);
        self.forced.push((edge, CutReason::ReturnsTwice));
    }

    /// Adds one edge for each distinct successor of a terminator.
    fn add_successor_edges(&mut self, from: Node, block: Block, number: &HandleMap<Block, u32>) {
        let terminator = block.terminator();
        let successors = terminator.successors();
        let weights = weights::read_branch_weights(terminator).or_else(|| weights_by_trip_count(block, &successors));
        let mut merged: Vec<(u32, Vec<usize>)> = Vec::new();
        for (index, to) in successors.iter().enumerate() {
            match merged.iter_mut().find(|(t, _)| *t == number[to]) {
                Some((_, indices)) => indices.push(index),
                None => merged.push((number[to], vec![index])),
            }
        }
        let alone = merged.len() == 1 && terminator.is(LLVMOpcode::LLVMBr);
        for (to, indices) in merged {
            let kind = match tail_call_before_return(block) {
                Some(_) => EdgeKind::TailCall,
                None => edge_kind(terminator, indices[0], alone),
            };
            let cases: Vec<i64> = indices.iter().filter_map(|i| case_value(terminator, *i)).collect();
            let hint = match (&weights, kind) {
                (_, EdgeKind::Unwind) => BranchHint::Cold,
                (Some(w), _) => BranchHint::Weight(indices.iter().map(|i| w.get(*i).copied().unwrap_or(0.0)).sum()),
                _ => BranchHint::None,
            };
            let site = match (terminator.opcode(), kind) {
                (LLVMOpcode::LLVMIndirectBr, _) => EdgeInsertionSite::Head,
                (_, EdgeKind::Always | EdgeKind::TailCall) => EdgeInsertionSite::Before(terminator),
                _ => EdgeInsertionSite::OnEdge(indices),
            };
            self.add(FlowEdge { from, to: Node(to), kind, cases: cases.into() }, site, hint);
        }
    }

    /// Adds the block's edges to the exit: one if a call may not return, and one if the block ends the function.
    fn add_exit_edges(&mut self, from: Node, exit: Node, block: Block, no_return: &NoReturnAnalysis) {
        if let Some(&call) = reached_calls(block, no_return).first() {
            self.add(FlowEdge::new(from, exit, EdgeKind::Reach), EdgeInsertionSite::Before(call), BranchHint::Never);
        }
        if let Some((kind, at)) = find_function_ending(block) {
            let hint = if kind == EdgeKind::NoReturn { BranchHint::Cold } else { BranchHint::None };
            self.add(FlowEdge::new(from, exit, kind), EdgeInsertionSite::Before(at), hint);
        }
    }

    /// Marks edges into blocks that never return as cold.
    fn mark_cold_edges(&mut self, blocks: usize) {
        let never_return = self.edges.iter().filter(|e| matches!(e.kind, EdgeKind::NoReturn | EdgeKind::Resume));
        let cold = NodeSet::from_members(blocks + 1, never_return.map(|edge| edge.from));
        for (edge, hint) in self.edges.iter().zip(&mut self.hints) {
            if *hint == BranchHint::None && cold.contains(edge.to) {
                *hint = BranchHint::Cold;
            }
        }
    }
}

/// Returns edge weights for a latch whose loop has a constant trip count; `None` for other blocks.
fn weights_by_trip_count(block: Block, successors: &[Block]) -> Option<Vec<f64>> {
    let times = successors.iter().find_map(|to| Some((*to, constant_trip_count(block, *to)? as f64)));
    times.map(|(head, times)| successors.iter().map(|to| if *to == head { times } else { 1.0 }).collect())
}

/// Returns how a block ends the function and the instruction before which the path ends; `None` if the block does not end the function.
fn find_function_ending(block: Block) -> Option<(EdgeKind, Value)> {
    let terminator = block.terminator();
    match terminator.opcode() {
        LLVMOpcode::LLVMRet => Some(find_return_ending(terminator)),
        LLVMOpcode::LLVMResume => Some((EdgeKind::Resume, terminator)),
        LLVMOpcode::LLVMUnreachable => Some((EdgeKind::NoReturn, noreturn_call_before(terminator))),
        _ => None,
    }
}

/// Returns the call or terminator with which a block ends the function. Paths are counted before it.
pub fn find_function_ending_instruction(block: Block) -> Option<Value> {
    find_function_ending(block).map(|(_, at)| at).or_else(|| tail_call_before_return(block))
}

pub fn calls_that_may_not_return(block: Block, no_return: &NoReturnAnalysis) -> Vec<Value> {
    let suspicious = |i: &Value| i.is_call() && no_return.may_not_return(*i) && !has_return_twice_edge(*i);
    block.instructions().filter(suspicious).collect()
}

/// Returns true for a call that returns twice: the edge after it already ends the path.
fn has_return_twice_edge(call: Value) -> bool {
    call.is(LLVMOpcode::LLVMCall) && returns_twice(call)
}

pub fn contains_only_return(block: Block) -> bool {
    block.instructions().all(|i| match i.opcode() {
        LLVMOpcode::LLVMPHI | LLVMOpcode::LLVMRet => true,
        LLVMOpcode::LLVMCall => emits_no_code(i),
        _ => false,
    })
}

/// Returns a block's final tail call if its successor only returns the call's result. Code generation turns the call into a jump.
pub fn tail_call_before_return(block: Block) -> Option<Value> {
    let jump = block.terminator();
    let [to] = jump.successors().try_into().ok()?;
    if !jump.is(LLVMOpcode::LLVMBr) || !contains_only_return(to) {
        return None;
    }
    let real = block.instructions().filter(|i| *i != jump && !(i.is(LLVMOpcode::LLVMCall) && emits_no_code(*i)));
    let call = real.last().filter(|i| is_tail_call(*i))?;
    let ret = to.terminator();
    let Some(phi) = ret.operands().next() else { return Some(call) };
    let is_phi = to.phis().any(|p| p == phi);
    (is_phi && phi.incoming().contains(&(call, block))).then_some(call)
}

/// Returns how a returning block ends, and the instruction before which the path is counted. For a tail call, that is the call, so that it
/// remains the last instruction and can become a jump.
fn find_return_ending(terminator: Value) -> (EdgeKind, Value) {
    let mut last = None;
    for instruction in terminator.block().instructions() {
        match instruction.opcode() {
            LLVMOpcode::LLVMCall if is_tail_call(instruction) => last = Some(instruction),
            LLVMOpcode::LLVMRet => {}
            // A cast may follow a tail call.
            LLVMOpcode::LLVMBitCast => {}
            LLVMOpcode::LLVMCall if emits_no_code(instruction) => {}
            _ => last = None,
        }
    }
    match last {
        Some(call) if returns_value_of(terminator, call) => (EdgeKind::TailCall, call),
        _ => (EdgeKind::Return, terminator),
    }
}

/// Returns true if a call in tail position may become a jump: a call to a real function, unless tail calls are disabled for the caller.
fn is_tail_call(call: Value) -> bool {
    if !call.is(LLVMOpcode::LLVMCall) || !call.is_tail_call() || call.calls_intrinsic() {
        return false;
    }
    !call.callee().is_assembly() && (is_must_tail(call) || !disables_tail_calls(call))
}

/// Returns true if the function containing an instruction was compiled with `-fno-optimize-sibling-calls`.
fn disables_tail_calls(instruction: Value) -> bool {
    instruction.block().function().text_attribute("disable-tail-calls").is_some_and(|value| value == b"true")
}

/// Returns true if a `ret` returns nothing, or the result of `call`.
fn returns_value_of(terminator: Value, call: Value) -> bool {
    let Some(value) = terminator.operands().next() else { return true };
    let is_cast = value.is(LLVMOpcode::LLVMBitCast);
    value == call || (is_cast && value.operand(0) == call)
}

/// Returns true for calls of intrinsics that emit no code.
pub fn emits_no_code(call: Value) -> bool {
    let names = ["llvm.lifetime.", "llvm.dbg.", "llvm.assume", "llvm.fake.use", "llvm.pseudoprobe", "llvm.invariant."];
    call.calls_intrinsic() && names.iter().any(|n| call.callee().name().starts_with(n))
}

/// Returns the `noreturn` call that makes the terminator unreachable, or the terminator if there is none.
fn noreturn_call_before(terminator: Value) -> Value {
    let calls = terminator.block().instructions().filter(|i| i.is_call() && !emits_no_code(*i));
    calls.last().filter(|c| c.call_has_attribute("noreturn")).unwrap_or(terminator)
}

/// Returns the block's calls that may not return, except the one that ends the function.
fn reached_calls(block: Block, no_return: &NoReturnAnalysis) -> Vec<Value> {
    let ending = find_function_ending_instruction(block);
    calls_that_may_not_return(block, no_return).into_iter().filter(|call| Some(*call) != ending).collect()
}

fn describe_block(
    block: Block,
    kind: BlockKind,
    no_return: &NoReturnAnalysis,
    positions: &mut SourcePositionCollector,
) -> (BlockMap, Vec<(Value, u32)>) {
    let calls = reached_calls(block, no_return);
    let (mut at, mut reached) = (Vec::new(), Vec::new());
    let mut instructions = 0;
    for instruction in block.instructions().filter(|i| !i.is(LLVMOpcode::LLVMPHI)) {
        if instruction.is(LLVMOpcode::LLVMCall) && emits_no_code(instruction) {
            continue;
        }
        instructions += 1;
        if let Some(position) = positions.position_of(instruction)
            && !at.contains(&position)
        {
            at.push(position);
        }
        if calls.contains(&instruction) {
            reached.push((instruction, at.len() as u32));
        }
    }
    let up_to_calls = reached.last().map_or(at.len() as u32, |(_, length)| *length);
    (BlockMap { instructions, positions: at, up_to_calls, branch: positions.position_of(block.terminator()), kind }, reached)
}

fn edge_kind(terminator: Value, index: usize, alone: bool) -> EdgeKind {
    if alone {
        return EdgeKind::Always;
    }
    match (terminator.opcode(), index) {
        (LLVMOpcode::LLVMBr, 0) => EdgeKind::True,
        (LLVMOpcode::LLVMBr, _) => EdgeKind::False,
        (LLVMOpcode::LLVMSwitch, 0) => EdgeKind::Default,
        (LLVMOpcode::LLVMSwitch, i) => case_value(terminator, i).map_or(EdgeKind::Case(i as i64), EdgeKind::Case),
        (LLVMOpcode::LLVMInvoke | LLVMOpcode::LLVMCallBr, 0) => EdgeKind::Normal,
        (LLVMOpcode::LLVMInvoke, _) => EdgeKind::Unwind,
        (_, i) => EdgeKind::Indirect(i as u32),
    }
}

/// Returns the switch value that selects a successor; `None` for the default.
fn case_value(terminator: Value, index: usize) -> Option<i64> {
    host::case_value(terminator, index)?.as_integer()
}
