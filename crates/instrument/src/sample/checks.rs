//! Where control may change versions: which loops check as they iterate, and which functions leave the
//! decision to their callers.
//!
//! What makes estimates unbiased is not how often the switch is checked: a path is counted exactly if the switch was
//! on when it was checked last, and the switch knows nothing of the program. So places are chosen for cost, as long
//! as a program cannot run for long without passing one:
//!
//! - innermost loops that call nothing have one if an iteration is long, or, once in several iterations ([`super::unroll`]), if
//!   no loop around them has (and in `main`), but not in functions that may be called again and again and have few
//!   other checks: there, and in all others, one run of the loop stays in one version;
//! - other loops have one if an iteration is long enough for it not to matter, or if nothing around them has and they call something;
//! - where iterations of such loops are short, too, they check once in several iterations: many iterate only a few times, and
//!   never check. Not in functions with indirect branches, whose dispatch suffered by it (an interpreter's instructions grew by 4
//!   %);
//! - where indirect branches arrive, if each version has landings of its own, those have one behind which much is done
//!   before the next such jump, and those of an interpreter's instructions that may set its program counter to
//!   something else than what follows ([`super::steps`]), most of the time: those that may as well go on cost more than
//!   they bring;
//! - a function that other code cannot call, and no chain of such functions calls itself through, has none at its
//!   entry: its callers enter the version they are in. It becomes two functions then. A function that calls itself, but
//!   only once on each path through it, may be one of them ([`recurs_once`]);
//! - an interpreter that is one `switch` in a loop has one where the interpreted program jumps, and none where it goes
//!   on ([`super::latch`]).
//!
//! Loops are those that retreating edges close. In irreducible code a loop is entered elsewhere than at the target of
//! such an edge, too; then it consists of the nodes that lie on a path from that target back to it, and is not unrolled:
//! to check at its closing edges is right wherever it is entered. Nor is another loop that holds its head and whose head it holds.

use crate::describe::FunctionCfg;
use crate::llvm::{Block, Value};
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use std::collections::BTreeMap;
use trodden_flow::frequency::Frequencies;
use trodden_flow::{CutReason, Dag, Edge, Graph, Node};
use trodden_unit::EdgeKind;

// What these constants change of four programs built for sampling, in instructions executed while sampling is off, is in
// docs/benchmarks/constants.md: by half and by double nearly all of it is below 1 %. Where it is more, it stands here.

/// An iteration of an inner loop below so many instructions is too short for a check.
const SHORT: f64 = 256.0;
/// The same of an outermost loop, where there may be no other check.
const SHORT_OUTERMOST: f64 = 64.0;
/// An iteration of an innermost loop that calls nothing is long from so many instructions on: with 32, two of four programs execute 5
/// and 12 % more.
const LONG: f64 = 128.0;
/// What follows an indirect branch is long from so many on. An interpreter may do little that is longer for a long time, and stay in one
/// version as long. With 32, four interpreters execute -1.5 to +11 %; without it, -2.1 to +0.5 % (docs/benchmarks/constants.md).
const LONG_BEHIND_JUMP: f64 = 128.0;
/// An instruction of an interpreter that jumps as often as that, by estimate, is one that jumps: conditional jumps and
/// the ends of counting loops among them. With 0.1, three interpreters execute 0.1 % more to 0.6 % less; with 0.7, -0.9 to +1.1 %
/// (docs/benchmarks/constants.md).
const LIKELY_JUMP: f64 = 0.4;
/// So many instructions there are from one check to the next in a short loop that checks once in several iterations.
const DISTANCE: f64 = 64.0;
/// The same in other loops, those that call something or hold others: many of them iterate only a few times (a list
/// of equal hashes), and have no check then.
const DISTANCE_WITH_CALLS: f64 = 128.0;
/// So many instructions may a loop have with its copies: an iteration may be short only by estimate.
const MOST_CODE: f64 = 512.0;
/// So many iterations, at most, from one check to the next.
const MOST_ITERATIONS: usize = 16;
/// A function with so many loops that check has its values merged in many places: more of them hardly matter. One more
/// in a function with one (dynamic programming over a matrix) cost 8 % of what it executes.
const MANY_CHECKS: usize = 3;
/// A loop of so many blocks that calls something is held for the heart of an interpreter: its iterations are short, and
/// it is not known when it ends. With 64, three of six programs execute 0.6 to 1.4 % more, the others the same; with 1, -0.8 to +3.5 %.
const MANY_BLOCKS: usize = 16;
/// How often an inner loop is assumed to iterate, at most. Static estimates say 32, but loops that matter for cost
/// are those that iterate less.
const MOST_TRIPS: f64 = 3.0;
/// What a call counts for, in instructions.
const CALL: f64 = 24.0;

/// A loop: the edges that close it, and what one iteration does.
struct Loop {
    head: Node,
    back: Vec<Edge>,
    body: IndexSet<Node>,
    calls: bool,
}

/// The loops of a function that check.
#[derive(Clone, Default)]
pub struct CheckSites {
    /// Back edges: in each iteration.
    pub each_iteration: Vec<Edge>,
    /// Once in several iterations.
    pub unrolled: Vec<Unrolled>,
}

impl CheckSites {
    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.each_iteration.is_empty() && self.unrolled.is_empty()
    }
}

/// A short loop that checks once in several iterations.
#[derive(Clone)]
pub struct Unrolled {
    /// The edge that closes it.
    pub back: Edge,
    /// Its nodes.
    pub body: Vec<Node>,
    /// In so many iterations once.
    pub iterations: usize,
}

/// The nodes of a function's loops.
pub fn in_loops(cfg: &FunctionCfg, graph: &Graph, dag: &Dag) -> IndexSet<Node> {
    loops(cfg, graph, dag).into_iter().flat_map(|l| l.body).collect()
}

impl CheckSites {
    /// Lets a loop check: once in several iterations if it can be unrolled, else in each. Gives whether it is unrolled.
    fn add(&mut self, this: &Loop, cfg: &FunctionCfg, unrolled: Option<Unrolled>) -> bool {
        let unrolled = unrolled.filter(|u| u.iterations > 1);
        if unrolled.is_none() {
            self.each_iteration.extend(this.back.iter().filter(|e| can_carry(cfg, **e)));
        }
        let is_unrolled = unrolled.is_some();
        self.unrolled.extend(unrolled);
        is_unrolled
    }
}

/// What is known of a function's calls.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CheckedFunction {
    /// It is called once.
    Main,
    /// It is called a few times.
    Seldom,
    /// It may be called again and again: its short loops check only if many others do.
    Other,
}

/// Chooses the loops of a function that check, and that may be copied for it if the function does not jump by address.
pub fn check_sites(
    cfg: &FunctionCfg,
    graph: &Graph,
    dag: &Dag,
    frequencies: &Frequencies,
    of: CheckedFunction,
    jumps_by_address: bool,
) -> CheckSites {
    let is_main = of == CheckedFunction::Main;
    let mut loops = loops(cfg, graph, dag);
    loops.sort_by_key(|l| (l.body.len(), l.head));
    let mut chosen = CheckSites::default();
    let mut checking: Vec<&Loop> = Vec::new();
    let mut short: Vec<&Loop> = Vec::new();
    // Loops around them may iterate without such a check.
    let mut now_and_then: Vec<&Loop> = Vec::new();
    let unrolled = |this: &Loop, distance| this.unrolled(cfg, graph, frequencies, distance).filter(|_| !this.is_entangled(&loops));
    for (at, this) in loops.iter().enumerate() {
        let innermost = !loops[..at].iter().any(|l| this.body.contains(&l.head) && l.head != this.head);
        let outermost = !loops[at + 1..].iter().any(|l| l.body.contains(&this.head));
        let length = this.iteration_length(cfg, frequencies);
        let long = length >= if outermost { SHORT_OUTERMOST } else { SHORT };
        if innermost && !this.calls && length < LONG {
            short.push(this);
        } else if innermost && !this.calls || long || (outermost && (this.calls || is_main)) || this.body.len() >= MANY_BLOCKS {
            // Copies of a loop would have to copy what another one in it became.
            let checks_inside = || checking.iter().chain(&now_and_then).any(|l| this.body.contains(&l.head));
            let holds_checks = !innermost && (is_main || checks_inside());
            match chosen.add(this, cfg, unrolled(this, DISTANCE_WITH_CALLS).filter(|_| !holds_checks && !jumps_by_address)) {
                true => now_and_then.push(this),
                false => checking.push(this),
            }
        }
    }
    checking.extend(now_and_then);
    if of != CheckedFunction::Other || checking.len() >= MANY_CHECKS {
        for this in short.into_iter().filter(|l| is_main || !checking.iter().any(|c| c.body.contains(&l.head))) {
            chosen.add(this, cfg, unrolled(this, DISTANCE));
        }
    }
    chosen.each_iteration.sort();
    chosen
}

impl Loop {
    /// Whether another loop holds this one's head, and this one the other's: then neither is inside the other, as in irreducible code, and
    /// the checks of one would be among the blocks of which the other has copies.
    fn is_entangled(&self, loops: &[Loop]) -> bool {
        loops.iter().any(|l| l.head != self.head && l.body.contains(&self.head) && self.body.contains(&l.head))
    }

    /// How it checks once in several iterations, with so many instructions from one check to the next, if it is
    /// entered at its head only, closed by one edge, and of blocks of which there may be several.
    fn unrolled(&self, cfg: &FunctionCfg, graph: &Graph, frequencies: &Frequencies, distance: f64) -> Option<Unrolled> {
        let &[back] = self.back.as_slice() else { return None };
        let is_entered = |n: &Node| *n != self.head && graph.incoming(*n).iter().any(|e| !self.body.contains(&graph.from(*e)));
        let is_simple =
            |n: &Node| cfg.nodes[n.index()].is_some_and(|b| matches!(b.terminator().opcode(), LLVMOpcode::LLVMBr | LLVMOpcode::LLVMSwitch));
        if !can_carry(cfg, back) || self.body.iter().any(|n| is_entered(n) || !is_simple(n)) {
            return None;
        }
        let mut body: Vec<Node> = self.body.iter().copied().collect();
        body.sort();
        let iterations = (distance / self.iteration_length(cfg, frequencies).max(1.0)).ceil();
        let all: f64 = self.body.iter().map(|n| work(cfg, *n)).sum();
        let iterations = iterations.min(MOST_CODE / all.max(1.0)) as usize;
        Some(Unrolled { back, body, iterations: iterations.min(MOST_ITERATIONS) })
    }

    /// Instructions of an iteration, by cautious estimate.
    fn iteration_length(&self, cfg: &FunctionCfg, frequencies: &Frequencies) -> f64 {
        let iterations = frequencies.node(self.head).max(f64::MIN_POSITIVE);
        self.body.iter().map(|n| (frequencies.node(*n) / iterations).min(MOST_TRIPS) * work(cfg, *n)).sum()
    }
}

/// Of the blocks where indirect branches arrive, those behind which much is done before the next indirect branch, or the
/// end, or the next iteration of a loop; and those of an interpreter's instructions that may jump.
pub fn long_landings(landings: &[Block], cfg: &FunctionCfg, graph: &Graph, dag: &Dag, frequencies: &Frequencies) -> Vec<Block> {
    let jumping = super::steps::jumping(landings);
    // What is ahead of a block: work, and how likely a jump.
    let mut ahead = vec![(0.0, 0.0); graph.node_count()];
    for &node in dag.order().iter().rev() {
        let often = frequencies.node(node).max(f64::MIN_POSITIVE);
        let goes_on = |e: &&Edge| dag.cut(**e).is_none() && cfg.edges[e.index()].kind != EdgeKind::Reach;
        let (mut far, mut jumps) = (work(cfg, node), 0.0);
        for edge in graph.out(node).iter().filter(goes_on) {
            let (share, behind) = (frequencies.edge(*edge) / often, ahead[graph.to(*edge).index()]);
            far += share * behind.0;
            jumps += share * behind.1;
        }
        let is_jump = cfg.block(node).is_some_and(|b| jumping.contains(&b));
        ahead[node.index()] = (far, if is_jump { 1.0 } else { jumps });
    }
    let is_chosen = |(far, jumps): (f64, f64)| far >= LONG_BEHIND_JUMP || jumps >= LIKELY_JUMP;
    let sites = |landing: &Block| cfg.nodes.iter().position(|n| *n == Some(*landing)).is_some_and(|n| is_chosen(ahead[n]));
    landings.iter().copied().filter(sites).collect()
}

/// Whether code can go on the edge itself. Exceptions arrive in landing pads only.
fn can_carry(cfg: &FunctionCfg, edge: Edge) -> bool {
    let kind = cfg.edges[edge.index()].kind;
    matches!(kind, EdgeKind::Always | EdgeKind::True | EdgeKind::False | EdgeKind::Case(_) | EdgeKind::Default | EdgeKind::Normal)
}

fn loops(cfg: &FunctionCfg, graph: &Graph, dag: &Dag) -> Vec<Loop> {
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
            // It has another entrance than its head: what lies in front of that is no part of it.
            let reachable = reached(graph, head);
            body.retain(|n| reachable.contains(n));
        }
        let calls = body.iter().any(|n| cfg.nodes[n.index()].is_some_and(|b| b.instructions().any(is_call)));
        loops.push(Loop { head, back, body, calls });
    }
    loops
}

/// The nodes to which paths from a node lead.
fn reached(graph: &Graph, from: Node) -> IndexSet<Node> {
    let (mut reached, mut stack) = (IndexSet::from([from]), vec![from]);
    while let Some(node) = stack.pop() {
        stack.extend(graph.out(node).iter().map(|e| graph.to(*e)).filter(|n| reached.insert(*n)));
    }
    reached
}

fn work(cfg: &FunctionCfg, node: Node) -> f64 {
    let Some(block) = cfg.block(node) else { return 0.0 };
    let calls = block.instructions().filter(|i| is_call(*i)).count();
    f64::from(cfg.blocks[node.index()].instructions) + CALL * calls as f64
}

/// Whether an instruction calls a function that is not part of the language.
fn is_call(instruction: Value) -> bool {
    instruction.is_call() && !instruction.calls_intrinsic()
}

/// Of functions that could leave the decision to their callers, those that do: no chain of direct calls leads from one
/// of them back to itself without coming through another function. `calls` has the direct calls among them.
pub fn without_entry(candidates: &[Value], calls: &IndexMap<Value, Vec<Value>>) -> IndexSet<Value> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        Open,
        Done,
    }
    let mut left: IndexSet<Value> = candidates.iter().copied().collect();
    let mut state = IndexMap::<Value, State>::new();
    for &root in candidates {
        if state.contains_key(&root) {
            continue;
        }
        state.insert(root, State::Open);
        let mut stack = vec![(root, 0)];
        while let Some((function, next)) = stack.last_mut() {
            let Some(&callee) = calls.get(function).and_then(|c| c.get(*next)) else {
                state.insert(*function, State::Done);
                stack.pop();
                continue;
            };
            *next += 1;
            match state.get(&callee) {
                // The chain comes back to it: it checks.
                Some(State::Open) => _ = left.swap_remove(&callee),
                Some(State::Done) => {}
                None => {
                    state.insert(callee, State::Open);
                    stack.push((callee, 0));
                }
            }
        }
    }
    left
}

/// Whether a function that calls itself does so at most once on each path through it, in no loop, and not as the last
/// thing it does. One call of it then goes as deep as the stack is, and does no more in all: it needs no check at the
/// switch.
pub fn recurs_once(function: Value, cfg: &FunctionCfg, graph: &Graph, dag: &Dag) -> bool {
    if dag.cuts().iter().any(|c| c.reason != CutReason::Back) {
        return false;
    }
    let own_calls = |node: Node| -> Vec<Value> {
        cfg.block(node).map(|b| b.instructions().filter(|i| i.is_call() && i.callee() == function).collect()).unwrap_or_default()
    };
    let is_last = |call: &Value| call.next().is_some_and(|next| next.is(LLVMOpcode::LLVMRet));
    let loops = loops(cfg, graph, dag);
    // Of each node, the most calls on a path from there on.
    let mut most = vec![0; graph.node_count()];
    for &node in dag.order().iter().rev() {
        let calls = own_calls(node);
        if calls.iter().any(is_last) || (!calls.is_empty() && loops.iter().any(|l| l.body.contains(&node))) {
            return false;
        }
        let behind = graph.out(node).iter().filter(|e| dag.cut(**e).is_none()).map(|e| most[graph.to(*e).index()]);
        most[node.index()] = calls.len() + behind.max().unwrap_or(0);
    }
    most.into_iter().all(|calls| calls <= 1)
}

/// Whether the function holds something of which there cannot be two; the reason, for people.
pub fn reason_not_to_double(function: Value) -> Option<&'static str> {
    let mut instructions = function.blocks().flat_map(|b| b.instructions().collect::<Vec<_>>());
    instructions.find_map(|i| match i.opcode() {
        LLVMOpcode::LLVMCallBr => Some("it is not sampled: it has assembly that jumps"),
        _ if i.is_call() && i.call_has_attribute("returns_twice") => {
            Some("it is not sampled: it calls a function that returns twice (setjmp)")
        }
        _ if i.is_call() && i.call_has_attribute("noduplicate") => {
            Some("it is not sampled: it makes a call of which there must be one only")
        }
        _ if i.is_token() => Some("it is not sampled: it holds values that cannot be chosen between (tokens)"),
        _ => None,
    })
}
