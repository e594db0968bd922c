//! Chooses where the code of a sampled program checks the switch, a byte that tells whether to count, and changes between its plain and its
//! instrumented version: in which loops, and in which functions (others leave the check to their callers). The switch does not depend on
//! the program, so estimates are unbiased wherever it is checked. Points are therefore chosen by cost, provided that the program passes one
//! of them regularly: in loops with long iterations; in short loops without a check nearby, once in several iterations ([`super::unroll`]);
//! at landing blocks of indirect branches that precede much work or a jump of an interpreted program ([`super::steps`], [`super::latch`]);
//! and at function entry, except in non-recursive functions that only instrumented code calls. Loops are those closed by retreating edges.
//! In irreducible code a loop consists of the nodes on a path from the edge's target back to it, and is not unrolled.

use crate::describe::FunctionCfg;
use crate::llvm::{Block, Value};
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use std::collections::BTreeMap;
use trodden_flow::frequency::Frequencies;
use trodden_flow::{CutReason, Dag, Edge, Graph, Node};
use trodden_unit::EdgeKind;

// docs/benchmarks/constants.md shows how these constants, divided or multiplied by four, change the number of executed instructions of four
// programs while sampling is off: mostly by at most 1 %. Larger increases are given below.

/// Minimum length of an iteration for a check in a loop that is neither outermost nor innermost, in instructions.
const MIN_ITERATION_LENGTH: f64 = 256.0;
/// Minimum length of an iteration for a check in an outermost loop, in instructions. It is lower because the function may have no other
/// check.
const MIN_OUTERMOST_ITERATION_LENGTH: f64 = 64.0;
/// Minimum length of an iteration for a check in an innermost loop without calls, in instructions. With 32, two of four programs execute 5
/// and 12 % more instructions.
const MIN_INNERMOST_ITERATION_LENGTH: f64 = 128.0;
/// Minimum amount of work after an indirect branch for a check at its target, in instructions. Higher values may keep an interpreter in one
/// version of its code for a long time. With 32, the instructions of four interpreters change by -1.5 to +11.5 %; without such checks, by
/// -2.1 to +0.5 % (docs/benchmarks/constants.md).
const MIN_ITERATION_LENGTH_AFTER_JUMP: f64 = 128.0;
/// An interpreter's code for one kind of instruction contains a check if the estimated probability that such an instruction jumps in the
/// interpreted program is at least this. Conditional jumps and the ends of counted loops count as jumps. With 0.1, three interpreters
/// execute between 0.1 % more and 0.6 % fewer instructions; with 0.7, -0.9 to +1.1 % (docs/benchmarks/constants.md).
const MIN_JUMP_PROBABILITY: f64 = 0.4;
/// Number of instructions between two checks in a short loop, which is unrolled for this purpose.
const CHECK_DISTANCE_INSTRUCTIONS: f64 = 64.0;
/// Number of instructions between two checks in an unrolled loop with calls or inner loops. Many such loops iterate only a few times (along
/// a chain of a hash table), and then never reach the check.
const CHECK_DISTANCE_INSTRUCTIONS_WITH_CALLS: f64 = 128.0;
/// Maximum size of an unrolled loop, in instructions. It limits the distance of checks in case iterations are longer than estimated.
const MAX_UNROLLED_SIZE: f64 = 512.0;
const MAX_UNROLLED_ITERATIONS: usize = 16;
/// Short loops also get checks if at least this many loops have checks: values are then merged at many points already, and further checks
/// hardly matter. In a function with one such loop (dynamic programming on a matrix), a second check cost 8 % of the instructions.
const MIN_CHECKS_FOR_CHECKS_IN_SHORT_LOOPS: usize = 3;
/// A loop with calls or inner loops and at least this many blocks is assumed to be an interpreter's main loop, whose iterations are short
/// and which may run for a long time. With 64, three of six programs execute 0.6 to 1.4 % more instructions; with 1, four programs execute
/// 0 to 3.5 % more.
const MIN_INTERPRETER_LOOP_BLOCKS: usize = 16;
/// Maximum trip count assumed for inner loops when the length of an iteration is estimated. The static estimate is 32, but a low value is
/// assumed because checks matter most in loops whose inner loops have few iterations.
const MAX_ASSUMED_TRIPS: f64 = 3.0;
/// Assumed cost of a call, in instructions.
const CALL_COST_INSTRUCTIONS: f64 = 24.0;

struct CheckedLoop {
    head: Node,
    back: Vec<Edge>,
    body: IndexSet<Node>,
    calls: bool,
}

/// The loops of a function that check the switch.
#[derive(Clone, Default)]
pub struct CheckSites {
    pub every_iteration: Vec<Edge>,
    /// Loops that check once in several iterations.
    pub unrolled: Vec<UnrolledLoop>,
}

impl CheckSites {
    pub fn is_empty(&self) -> bool {
        self.every_iteration.is_empty() && self.unrolled.is_empty()
    }
}

#[derive(Clone)]
pub struct UnrolledLoop {
    pub back: Edge,
    pub body: Vec<Node>,
    pub iterations: usize,
}

pub fn nodes_in_loops(cfg: &FunctionCfg, graph: &Graph, dag: &Dag) -> IndexSet<Node> {
    find_loops(cfg, graph, dag).into_iter().flat_map(|l| l.body).collect()
}

impl CheckSites {
    /// Adds a check to a loop: once in several iterations if the loop can be unrolled, otherwise in each iteration. Returns true if the
    /// loop is to be unrolled.
    fn add_check(&mut self, this: &CheckedLoop, cfg: &FunctionCfg, unrolled: Option<UnrolledLoop>) -> bool {
        let unrolled = unrolled.filter(|u| u.iterations > 1);
        if unrolled.is_none() {
            self.every_iteration.extend(this.back.iter().filter(|e| can_carry_code(cfg, **e)));
        }
        let is_unrolled = unrolled.is_some();
        self.unrolled.extend(unrolled);
        is_unrolled
    }
}

/// How often a function is called, as far as the unit shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CallFrequency {
    /// Once, because it is `main`.
    Once,
    Rare,
    /// Possibly very often. Its short loops only get checks if many other loops have them.
    Unknown,
}

/// Chooses the loops of a function that check the switch. Short loops may be unrolled for this, but not in a function with indirect
/// branches.
pub fn choose_check_sites(
    cfg: &FunctionCfg,
    graph: &Graph,
    dag: &Dag,
    frequencies: &Frequencies,
    of: CallFrequency,
    jumps_by_address: bool,
) -> CheckSites {
    let is_main = of == CallFrequency::Once;
    let mut loops = find_loops(cfg, graph, dag);
    loops.sort_by_key(|l| (l.body.len(), l.head));
    let mut chosen = CheckSites::default();
    let mut checking: Vec<&CheckedLoop> = Vec::new();
    let mut short: Vec<&CheckedLoop> = Vec::new();
    // Loops around one of these may iterate without reaching a check.
    let mut unrolled_outer: Vec<&CheckedLoop> = Vec::new();
    let unrolled = |this: &CheckedLoop, distance| {
        this.plan_unrolling(cfg, graph, frequencies, distance).filter(|_| !this.is_in_irreducible_code(&loops))
    };
    for (at, this) in loops.iter().enumerate() {
        let innermost = !loops[..at].iter().any(|l| this.body.contains(&l.head) && l.head != this.head);
        let outermost = !loops[at + 1..].iter().any(|l| l.body.contains(&this.head));
        let length = this.iteration_length(cfg, frequencies);
        let long = length >= if outermost { MIN_OUTERMOST_ITERATION_LENGTH } else { MIN_ITERATION_LENGTH };
        if innermost && !this.calls && length < MIN_INNERMOST_ITERATION_LENGTH {
            short.push(this);
        } else if innermost && !this.calls
            || long
            || (outermost && (this.calls || is_main))
            || this.body.len() >= MIN_INTERPRETER_LOOP_BLOCKS
        {
            // Unrolling copies the loop's body, so a loop that contains checks of inner loops is not unrolled.
            let checks_inside = || checking.iter().chain(&unrolled_outer).any(|l| this.body.contains(&l.head));
            let holds_checks = !innermost && (is_main || checks_inside());
            let unrolling = unrolled(this, CHECK_DISTANCE_INSTRUCTIONS_WITH_CALLS).filter(|_| !holds_checks && !jumps_by_address);
            match chosen.add_check(this, cfg, unrolling) {
                true => unrolled_outer.push(this),
                false => checking.push(this),
            }
        }
    }
    checking.extend(unrolled_outer);
    if of != CallFrequency::Unknown || checking.len() >= MIN_CHECKS_FOR_CHECKS_IN_SHORT_LOOPS {
        for this in short.into_iter().filter(|l| is_main || !checking.iter().any(|c| c.body.contains(&l.head))) {
            chosen.add_check(this, cfg, unrolled(this, CHECK_DISTANCE_INSTRUCTIONS));
        }
    }
    chosen.every_iteration.sort();
    chosen
}

impl CheckedLoop {
    /// Returns true if this loop and another one contain each other's header, as in irreducible code. Unrolling one would copy the checks
    /// of the other.
    fn is_in_irreducible_code(&self, loops: &[CheckedLoop]) -> bool {
        loops.iter().any(|l| l.head != self.head && l.body.contains(&self.head) && self.body.contains(&l.head))
    }

    /// Returns how to unroll the loop so that its checks are `distance` instructions apart. `None` if the loop has several entries or back
    /// edges, or a block that cannot be copied.
    fn plan_unrolling(&self, cfg: &FunctionCfg, graph: &Graph, frequencies: &Frequencies, distance: f64) -> Option<UnrolledLoop> {
        let &[back] = self.back.as_slice() else { return None };
        let is_entered = |n: &Node| *n != self.head && graph.incoming(*n).iter().any(|e| !self.body.contains(&graph.from(*e)));
        let is_simple =
            |n: &Node| cfg.nodes[n.index()].is_some_and(|b| matches!(b.terminator().opcode(), LLVMOpcode::LLVMBr | LLVMOpcode::LLVMSwitch));
        if !can_carry_code(cfg, back) || self.body.iter().any(|n| is_entered(n) || !is_simple(n)) {
            return None;
        }
        let mut body: Vec<Node> = self.body.iter().copied().collect();
        body.sort();
        let iterations = (distance / self.iteration_length(cfg, frequencies).max(1.0)).ceil();
        let all: f64 = self.body.iter().map(|n| instruction_cost(cfg, *n)).sum();
        let iterations = iterations.min(MAX_UNROLLED_SIZE / all.max(1.0)) as usize;
        Some(UnrolledLoop { back, body, iterations: iterations.min(MAX_UNROLLED_ITERATIONS) })
    }

    /// Returns an estimate, rather too low, of the number of instructions per iteration.
    fn iteration_length(&self, cfg: &FunctionCfg, frequencies: &Frequencies) -> f64 {
        let iterations = frequencies.node(self.head).max(f64::MIN_POSITIVE);
        self.body.iter().map(|n| (frequencies.node(*n) / iterations).min(MAX_ASSUMED_TRIPS) * instruction_cost(cfg, *n)).sum()
    }
}

/// Returns the targets of indirect branches that get a check: those followed by much work before the next indirect branch or iteration, and
/// those at which an interpreter executes an instruction that may jump.
pub fn choose_landings_with_check(
    landings: &[Block],
    cfg: &FunctionCfg,
    graph: &Graph,
    dag: &Dag,
    frequencies: &Frequencies,
) -> Vec<Block> {
    let jumping_blocks = super::steps::blocks_jumping_in_interpreter(landings);
    // For each node, the amount of work from there on (in instructions), and the probability of a jump.
    let mut ahead = vec![(0.0, 0.0); graph.node_count()];
    for &node in dag.order().iter().rev() {
        let often = frequencies.node(node).max(f64::MIN_POSITIVE);
        let continues = |e: &&Edge| dag.cut(**e).is_none() && cfg.graph.kind(**e) != EdgeKind::Reach;
        let (mut far, mut jumps) = (instruction_cost(cfg, node), 0.0);
        for edge in graph.out(node).iter().filter(continues) {
            let (share, next_node) = (frequencies.edge(*edge) / often, ahead[graph.to(*edge).index()]);
            far += share * next_node.0;
            jumps += share * next_node.1;
        }
        let is_jump = cfg.block(node).is_some_and(|b| jumping_blocks.contains(&b));
        ahead[node.index()] = (far, if is_jump { 1.0 } else { jumps });
    }
    let is_chosen = |(far, jumps): (f64, f64)| far >= MIN_ITERATION_LENGTH_AFTER_JUMP || jumps >= MIN_JUMP_PROBABILITY;
    let sites = |landing: &Block| cfg.nodes.iter().position(|n| *n == Some(*landing)).is_some_and(|n| is_chosen(ahead[n]));
    landings.iter().copied().filter(sites).collect()
}

/// Returns true if code can be inserted on an edge. This excludes unwind edges.
fn can_carry_code(cfg: &FunctionCfg, edge: Edge) -> bool {
    let kind = cfg.graph.kind(edge);
    matches!(kind, EdgeKind::Always | EdgeKind::True | EdgeKind::False | EdgeKind::Case(_) | EdgeKind::Default | EdgeKind::Normal)
}

fn find_loops(cfg: &FunctionCfg, graph: &Graph, dag: &Dag) -> Vec<CheckedLoop> {
    let mut by_head = BTreeMap::<Node, Vec<Edge>>::new();
    for cut in dag.cuts().iter().filter(|c| c.reason == CutReason::Back) {
        by_head.entry(graph.to(cut.edge)).or_default().push(cut.edge);
    }
    let mut loops = Vec::new();
    for (head, back) in by_head {
        let mut body = IndexSet::from([head]);
        let mut stack: Vec<Node> = back.iter().map(|e| graph.from(*e)).collect();
        while let Some(node) = stack.pop() {
            if body.insert(node) {
                stack.extend(graph.incoming(node).iter().map(|e| graph.from(*e)));
            }
        }
        if body.contains(&graph.entry()) && head != graph.entry() {
            // The loop has a second entry. Nodes that lead to that entry from outside are not part of the loop.
            let reachable = reachable_nodes(graph, head);
            body.retain(|n| reachable.contains(n));
        }
        let calls = body.iter().any(|n| cfg.nodes[n.index()].is_some_and(|b| b.instructions().any(is_call)));
        loops.push(CheckedLoop { head, back, body, calls });
    }
    loops
}

fn reachable_nodes(graph: &Graph, from: Node) -> IndexSet<Node> {
    let (mut reached, mut stack) = (IndexSet::from([from]), vec![from]);
    while let Some(node) = stack.pop() {
        stack.extend(graph.out(node).iter().map(|e| graph.to(*e)).filter(|n| reached.insert(*n)));
    }
    reached
}

fn instruction_cost(cfg: &FunctionCfg, node: Node) -> f64 {
    let Some(block) = cfg.block(node) else { return 0.0 };
    let calls = block.instructions().filter(|i| is_call(*i)).count();
    f64::from(cfg.blocks[node.index()].instructions) + CALL_COST_INSTRUCTIONS * calls as f64
}

/// Returns true if an instruction calls a function other than an intrinsic.
fn is_call(instruction: Value) -> bool {
    instruction.is_call() && !instruction.calls_intrinsic()
}

/// Returns the functions that leave the check to their callers: the candidates, except those needed to break all recursion among them.
/// `calls` has the direct calls among the candidates.
pub fn functions_without_check(candidates: &[Value], calls: &IndexMap<Value, Vec<Value>>) -> IndexSet<Value> {
    #[derive(Clone, Copy, PartialEq)]
    enum VisitState {
        Open,
        Done,
    }
    let mut left: IndexSet<Value> = candidates.iter().copied().collect();
    let mut state = IndexMap::<Value, VisitState>::new();
    for &root in candidates {
        if state.contains_key(&root) {
            continue;
        }
        state.insert(root, VisitState::Open);
        let mut stack = vec![(root, 0)];
        while let Some((function, next)) = stack.last_mut() {
            let Some(&callee) = calls.get(function).and_then(|c| c.get(*next)) else {
                state.insert(*function, VisitState::Done);
                stack.pop();
                continue;
            };
            *next += 1;
            match state.get(&callee) {
                // The call is recursive, so this callee needs a check.
                Some(VisitState::Open) => _ = left.swap_remove(&callee),
                Some(VisitState::Done) => {}
                None => {
                    state.insert(callee, VisitState::Open);
                    stack.push((callee, 0));
                }
            }
        }
    }
    left
}

/// Returns true if a recursive function calls itself at most once on each path, outside loops, and not in tail position. The time a call
/// takes is then proportional to the depth of the recursion, which the stack limits, so the function needs no check.
pub fn recurses_at_most_once(function: Value, cfg: &FunctionCfg, graph: &Graph, dag: &Dag) -> bool {
    if dag.cuts().iter().any(|c| c.reason != CutReason::Back) {
        return false;
    }
    let own_calls = |node: Node| -> Vec<Value> {
        cfg.block(node).map(|b| b.instructions().filter(|i| i.is_call() && i.callee() == function).collect()).unwrap_or_default()
    };
    let is_last = |call: &Value| call.next().is_some_and(|next| next.is(LLVMOpcode::LLVMRet));
    let loops = find_loops(cfg, graph, dag);
    // For each node, the maximum number of recursive calls on a path from there.
    let mut max_calls = vec![0; graph.node_count()];
    for &node in dag.order().iter().rev() {
        let calls = own_calls(node);
        if calls.iter().any(is_last) || (!calls.is_empty() && loops.iter().any(|l| l.body.contains(&node))) {
            return false;
        }
        let next_node = graph.out(node).iter().filter(|e| dag.cut(**e).is_none()).map(|e| max_calls[graph.to(*e).index()]);
        max_calls[node.index()] = calls.len() + next_node.max().unwrap_or(0);
    }
    max_calls.into_iter().all(|calls| calls <= 1)
}
