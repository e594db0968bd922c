//! Pass: counts the dominant iteration of a short innermost loop by a separate instruction.
//!
//! Processors forward a stored value to a load from the same address if they correctly predict the store, by the instruction's address. A
//! single instruction that counts all iterations adds to different words (the first iteration ends a different path than later ones), which
//! makes the prediction fail: on an AMD EPYC (family 26), each iteration then waits about seven cycles for the previous one. If the word to
//! which nearly all iterations add has an instruction of its own, the prediction is always correct. If the dominant iteration is often
//! repeated before control leaves the loop or makes a call, its executions are counted in a register ([`RegisterCountedIteration`]) until
//! then.

use super::BlockProperties;
use super::code::{DominantIterationCode, EdgeCode, ProgramGraphs, RegisterCountedIteration};
use super::operation::{DominantId, Operation};
use crate::dag::CutReason;
use crate::frequency::{Frequencies, innermost_loops};
use crate::graph::{Edge, Node};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum number of instructions of an iteration. Longer iterations hide the latency of the addition to memory. If this is 100, three
/// benchmark programs execute 0 to 0.6% more instructions (docs/benchmarks/constants.md).
const MAX_ITERATION_INSTRUCTIONS: u32 = 24;
/// Minimum number of dominant iterations per write of their register. If this is 0.5, three benchmark programs built with measured weights
/// execute 0 to 1.8% more instructions; if it is 8, 0 to 0.2% fewer, and fewer loops qualify (docs/benchmarks/constants.md).
const MIN_ITERATIONS_PER_REGISTER_WRITE: f64 = 2.0;
/// Maximum number of edges on which a loop's register is written, each of which needs code. If this is 2, three benchmark programs execute
/// 0 to 0.2% fewer instructions; if it is 64, the same number.
const MAX_REGISTER_WRITES: usize = 8;

/// How the dominant iterations of loops are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DominantCounting {
    /// They are counted by the same instruction as all other iterations.
    Shared,
    /// They are counted by a separate instruction.
    Split,
    /// They are counted in a register if that is profitable, otherwise by a separate instruction.
    Register,
}

/// Separates the counts of the dominant iterations of all loops that have one.
pub fn count_dominant_iterations(
    frame: &ProgramGraphs,
    code: &mut EdgeCode,
    frequencies: &Frequencies,
    blocks: &BlockProperties,
    counting: DominantCounting,
) {
    code.dominant = find_dominant_iterations(frame, code, frequencies, blocks, counting);
    for index in 0..code.dominant.len() {
        let (id, back) = (DominantId(index), code.dominant[index].back);
        for operation in &mut code.operations[back.index()] {
            if let Operation::Count { increment } = *operation {
                *operation = Operation::CountIteration { increment, dominant: id };
            }
        }
        for edge in code.dominant[index].in_register.iter().flat_map(|h| &h.writes) {
            code.operations[edge.index()].insert(0, Operation::FlushDominant(id));
        }
    }
}

fn find_dominant_iterations(
    frame: &ProgramGraphs,
    code: &EdgeCode,
    frequencies: &Frequencies,
    blocks: &BlockProperties,
    counting: DominantCounting,
) -> Vec<DominantIterationCode> {
    if frame.back_edges().next().is_none() || counting == DominantCounting::Shared {
        return Vec::new();
    }
    let search = LoopSearch { frame, code, frequencies, blocks, innermost: innermost_loops(&frame.graph) };
    let mut found: Vec<(DominantIterationCode, f64)> = frame.back_edges().filter_map(|back| search.find_iteration(back)).collect();
    if counting == DominantCounting::Register {
        // Only the most frequent dominant iteration of a loop with several back edges is counted in a register.
        let mut most_frequent = BTreeMap::<Node, usize>::new();
        for (i, (dominant, often)) in found.iter().enumerate() {
            let best = most_frequent.entry(frame.graph.to(dominant.back)).or_insert(i);
            if found[*best].1 < *often {
                *best = i;
            }
        }
        for (head, i) in most_frequent {
            found[i].0.in_register = search.plan_register_counting(head, found[i].0.back, found[i].1);
        }
    }
    found.into_iter().map(|(dominant, _)| dominant).collect()
}

struct LoopSearch<'a> {
    frame: &'a ProgramGraphs,
    code: &'a EdgeCode,
    frequencies: &'a Frequencies,
    blocks: &'a BlockProperties,
    innermost: Vec<Option<Node>>,
}

/// The most frequent path from a loop's head to a node.
#[derive(Clone, Copy)]
struct DominantPrefix {
    probability: f64,
    register: i64,
    size: u32,
}

impl LoopSearch<'_> {
    /// Returns the most frequent iteration that ends with a back edge and is counted there, if it is short and has no calls or loops.
    fn find_iteration(&self, back: Edge) -> Option<(DominantIterationCode, f64)> {
        let head = self.frame.graph.to(back);
        let [Operation::Count { increment }, Operation::Set(start)] = *self.code.operations_after_flushes(back) else { return None };
        let mut prefixes = HashMap::from([(head, DominantPrefix { probability: 1.0, register: start, size: 0 })]);
        for &node in &self.frame.order {
            let Some(&prefix) = prefixes.get(&node) else { continue };
            if self.blocks.quiet.contains(node) {
                self.extend_prefix(node, head, prefix, &mut prefixes);
            }
        }
        let latch = self.frame.graph.from(back);
        let prefix = prefixes.get(&latch).filter(|_| self.blocks.quiet.contains(latch))?;
        let often = self.frequencies.node(head) * prefix.probability * self.branch_probability(latch, back);
        let dominant = DominantIterationCode { back, index: prefix.register.wrapping_add(increment), in_register: None };
        (prefix.size + self.blocks.sizes[latch.index()] <= MAX_ITERATION_INSTRUCTIONS).then_some((dominant, often))
    }

    fn branch_probability(&self, tail: Node, edge: Edge) -> f64 {
        self.frequencies.edge(edge) / self.frequencies.node(tail).max(f64::MIN_POSITIVE)
    }

    /// Extends a node's prefix along the out-edges that stay in the loop, unless a more frequent prefix is known.
    fn extend_prefix(&self, node: Node, head: Node, prefix: DominantPrefix, prefixes: &mut HashMap<Node, DominantPrefix>) {
        for edge in self.code.live_edges(self.frame.graph.out(node)) {
            let to = self.frame.graph.to(edge);
            let increment = match self.code.operations_on(edge) {
                [] => 0,
                [Operation::Add(increment)] => *increment,
                _ => continue,
            };
            if self.innermost[to.index()] != Some(head) || self.frame.cut(edge).is_some() {
                continue;
            }
            let extended = DominantPrefix {
                probability: prefix.probability * self.branch_probability(node, edge),
                register: prefix.register.wrapping_add(increment),
                size: prefix.size + self.blocks.sizes[node.index()],
            };
            if prefixes.get(&to).is_none_or(|known| known.probability < extended.probability) {
                prefixes.insert(to, extended);
            }
        }
    }

    /// Returns how a loop's dominant iterations are counted in a register, or `None` if that is impossible or not profitable.
    fn plan_register_counting(&self, head: Node, back: Edge, often: f64) -> Option<RegisterCountedIteration> {
        let body = self.find_loop_nodes(head)?;
        let nodes = self.find_register_nodes(head, &body);
        let stays = |e: Edge| self.frame.graph.to(e) == head || (nodes.contains(&self.frame.graph.to(e)) && self.frame.cut(e).is_none());
        let all = nodes.iter().flat_map(|n| self.code.live_edges(self.frame.graph.out(*n)));
        let writes: Vec<Edge> = all.filter(|e| !stays(*e)).collect();
        let written: f64 = writes.iter().map(|e| self.frequencies.edge(*e)).sum();
        // A loop whose register is never written has no exit, so it is infinite.
        let is_possible = !writes.is_empty()
            && nodes.contains(&self.frame.graph.from(back))
            && writes.iter().all(|e| self.blocks.can_carry_code.contains(*e));
        let is_profitable = often >= MIN_ITERATIONS_PER_REGISTER_WRITE * written && writes.len() <= MAX_REGISTER_WRITES;
        (is_possible && is_profitable).then_some(RegisterCountedIteration { head, nodes, writes })
    }

    /// Returns the nodes of a loop, including those of inner loops, or `None` if the loop has an entry other than its head.
    fn find_loop_nodes(&self, head: Node) -> Option<BTreeSet<Node>> {
        let closes = |e: &Edge| self.frame.cut(*e).is_some_and(|c| c.reason == CutReason::Back);
        let before = |node: Node| self.code.live_edges(self.frame.graph.incoming(node));
        let mut body = BTreeSet::from([head]);
        let mut stack: Vec<Node> = before(head).filter(closes).map(|e| self.frame.graph.from(e)).collect();
        while let Some(node) = stack.pop() {
            if node == self.frame.graph.entry() {
                return None;
            }
            if body.insert(node) {
                stack.extend(before(node).map(|e| self.frame.graph.from(e)));
            }
        }
        (head != self.frame.graph.entry()).then_some(body)
    }

    /// Returns the nodes of a loop in which the register may be nonzero. Nodes of inner loops are excluded.
    fn find_register_nodes(&self, head: Node, body: &BTreeSet<Node>) -> Vec<Node> {
        let mut nodes = vec![head];
        let may = |n: Node| n != head && body.contains(&n) && self.innermost[n.index()] == Some(head) && self.blocks.quiet.contains(n);
        for &node in self.frame.order.iter().filter(|n| may(**n)) {
            let comes = |e: Edge| nodes.contains(&self.frame.graph.from(e)) && self.frame.cut(e).is_none();
            if self.code.live_edges(self.frame.graph.incoming(node)).any(comes) {
                nodes.push(node);
            }
        }
        nodes
    }
}
