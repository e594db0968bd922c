//! Pass: the dominant iteration of a loop, short and through no loop in it, whose count is split from those of other iterations.
//!
//! Processors hand what was stored in memory to a load of the same place in no time if they guess which store it was;
//! they guess by the instructions' addresses. The first iteration of a loop ends another path than those behind it, so
//! one instruction that counts both adds to different words; on an AMD EPYC (family 26) that spoils the guess for the
//! whole loop, and each iteration waits some seven cycles for the one before. With an instruction of its own for the word
//! that nearly all iterations add to, the guess is always right; one comparison distinguishes them.
//!
//! Where a loop mostly iterates so several times before it is left or calls something, these iterations are not even
//! added to memory one by one: their number is kept in a register ([`RegisterCounted`]), and written where control leaves the part
//! of the loop that calls nothing, or enters a loop in it.

use super::BlockProperties;
use super::code::{Code, DominantIterationCode, ProgramFrame, RegisterCounted};
use super::operation::{DominantId, Operation};
use crate::dag::CutReason;
use crate::frequency::{Frequencies, innermost_loops};
use crate::graph::{Edge, Node};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Iterations of more instructions take as long as an addition to memory does. With 100 three programs execute 0 to 0.6 % more
/// (docs/benchmarks/constants.md).
const SHORT: u32 = 24;
/// Dominant iterations are kept in a register if there are this many of them for each time that they have to be written. With 0.5, three
/// programs built with measured weights execute 0 to 1.8 % more; with 8, 0 to 0.2 % less, and fewer are kept
/// (docs/benchmarks/constants.md).
const WORTHWHILE: f64 = 2.0;
/// The most places where a loop's iterations are written: each gets code for it. With 2, three programs execute 0 to 0.2 % less; with 64,
/// they are the same.
const MOST_WRITES: usize = 8;

/// What counts the dominant iterations of loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DominantCounting {
    /// What counts all others, too.
    Shared,
    /// An instruction of their own.
    Split,
    /// The same, or a register where that is worthwhile.
    Register,
}

/// Splits the counts of the dominant iterations of all loops that have one.
pub fn run(frame: &ProgramFrame, code: &mut Code, frequencies: &Frequencies, blocks: &BlockProperties, which: DominantCounting) {
    code.dominant = iterations(frame, code, frequencies, blocks, which);
    for place in 0..code.dominant.len() {
        let (id, back) = (DominantId(place), code.dominant[place].back);
        for operation in &mut code.operations[back.index()] {
            if let Operation::Count { increment } = *operation {
                *operation = Operation::CountIteration { increment, dominant: id };
            }
        }
        for edge in code.dominant[place].in_register.iter().flat_map(|h| &h.writes) {
            code.operations[edge.index()].insert(0, Operation::FlushDominant(id));
        }
    }
}

fn iterations(
    frame: &ProgramFrame,
    code: &Code,
    frequencies: &Frequencies,
    blocks: &BlockProperties,
    which: DominantCounting,
) -> Vec<DominantIterationCode> {
    if frame.back_edges().next().is_none() || which == DominantCounting::Shared {
        return Vec::new();
    }
    let walk = Walk { frame, code, frequencies, blocks, innermost: innermost_loops(&frame.graph) };
    let mut found: Vec<(DominantIterationCode, f64)> = frame.back_edges().filter_map(|back| walk.iteration(back)).collect();
    if which == DominantCounting::Register {
        // Of a loop that is closed by several edges the most frequent iteration is in the register.
        let mut most_frequent = BTreeMap::<Node, usize>::new();
        for (i, (dominant, often)) in found.iter().enumerate() {
            let best = most_frequent.entry(frame.graph.to(dominant.back)).or_insert(i);
            if found[*best].1 < *often {
                *best = i;
            }
        }
        for (head, i) in most_frequent {
            found[i].0.in_register = walk.in_register(head, found[i].0.back, found[i].1);
        }
    }
    found.into_iter().map(|(dominant, _)| dominant).collect()
}

struct Walk<'a> {
    frame: &'a ProgramFrame,
    code: &'a Code,
    frequencies: &'a Frequencies,
    blocks: &'a BlockProperties,
    innermost: Vec<Option<Node>>,
}

/// The most frequent path from a loop's head to a node.
#[derive(Clone, Copy)]
struct Prefix {
    probability: f64,
    /// The register at the node.
    register: i64,
    /// Instructions before the node.
    size: u32,
}

impl Walk<'_> {
    /// What the most frequent iteration adds up to, and how often it is taken; `None` if it is long, calls something, comes
    /// through another loop, or is counted elsewhere.
    fn iteration(&self, back: Edge) -> Option<(DominantIterationCode, f64)> {
        let head = self.frame.graph.to(back);
        let [Operation::Count { increment }, Operation::Set(start)] = *self.code.behind_flushes(back) else { return None };
        let mut prefixes = HashMap::from([(head, Prefix { probability: 1.0, register: start, size: 0 })]);
        for &node in &self.frame.order {
            let Some(&prefix) = prefixes.get(&node) else { continue };
            if self.blocks.quiet[node.index()] {
                self.go_on(node, head, prefix, &mut prefixes);
            }
        }
        let latch = self.frame.graph.from(back);
        let prefix = prefixes.get(&latch).filter(|_| self.blocks.quiet[latch.index()])?;
        let often = self.frequencies.node(head) * prefix.probability * self.share(latch, back);
        let dominant = DominantIterationCode { back, index: prefix.register.wrapping_add(increment), in_register: None };
        (prefix.size + self.blocks.sizes[latch.index()] <= SHORT).then_some((dominant, often))
    }

    /// How often an edge is taken from its tail.
    fn share(&self, tail: Node, edge: Edge) -> f64 {
        self.frequencies.edge(edge) / self.frequencies.node(tail).max(f64::MIN_POSITIVE)
    }

    /// Enters the prefixes behind a node that stay in the loop, where none is more frequent.
    fn go_on(&self, node: Node, head: Node, prefix: Prefix, prefixes: &mut HashMap<Node, Prefix>) {
        for edge in self.code.live(self.frame.graph.out(node)) {
            let to = self.frame.graph.to(edge);
            let increment = match self.code.on(edge) {
                [] => 0,
                [Operation::Add(increment)] => *increment,
                _ => continue,
            };
            if self.innermost[to.index()] != Some(head) || self.frame.cut(edge).is_some() {
                continue;
            }
            let on = Prefix {
                probability: prefix.probability * self.share(node, edge),
                register: prefix.register.wrapping_add(increment),
                size: prefix.size + self.blocks.sizes[node.index()],
            };
            if prefixes.get(&to).is_none_or(|known| known.probability < on.probability) {
                prefixes.insert(to, on);
            }
        }
    }

    /// How the dominant iterations of a loop are kept in a register, if they can be and that is worthwhile.
    fn in_register(&self, head: Node, back: Edge, often: f64) -> Option<RegisterCounted> {
        let body = self.body(head)?;
        let nodes = self.holding(head, &body);
        let stays = |e: Edge| self.frame.graph.to(e) == head || (nodes.contains(&self.frame.graph.to(e)) && self.frame.cut(e).is_none());
        let all = nodes.iter().flat_map(|n| self.code.live(self.frame.graph.out(*n)));
        let writes: Vec<Edge> = all.filter(|e| !stays(*e)).collect();
        let written: f64 = writes.iter().map(|e| self.frequencies.edge(*e)).sum();
        // Of an endless loop they never would be.
        let can = !writes.is_empty() && nodes.contains(&self.frame.graph.from(back)) && writes.iter().all(|e| self.blocks.open[e.index()]);
        let pays = often >= WORTHWHILE * written && writes.len() <= MOST_WRITES;
        (can && pays).then_some(RegisterCounted { head, nodes, writes })
    }

    /// The nodes of a loop that is entered at its head only, with those of loops in it.
    fn body(&self, head: Node) -> Option<BTreeSet<Node>> {
        let closes = |e: &Edge| self.frame.cut(*e).is_some_and(|c| c.reason == CutReason::Back);
        let before = |node: Node| self.code.live(self.frame.graph.incoming(node));
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

    /// The nodes of a loop at which there may be iterations in a register: none in the loops in it.
    fn holding(&self, head: Node, body: &BTreeSet<Node>) -> Vec<Node> {
        let mut nodes = vec![head];
        let may = |n: Node| n != head && body.contains(&n) && self.innermost[n.index()] == Some(head) && self.blocks.quiet[n.index()];
        for &node in self.frame.order.iter().filter(|n| may(**n)) {
            let comes = |e: Edge| nodes.contains(&self.frame.graph.from(e)) && self.frame.cut(e).is_none();
            if self.code.live(self.frame.graph.incoming(node)).any(comes) {
                nodes.push(node);
            }
        }
        nodes
    }
}
