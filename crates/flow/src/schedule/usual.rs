//! The usual round of a loop, short and through no loop in it, whose count is told apart from those of other rounds.
//!
//! Processors hand what was stored in memory to a load of the same place in no time if they guess which store it was;
//! they guess by the instructions' addresses. The first round of a loop ends another path than the rounds behind it, so
//! one instruction that counts both adds to different words; on an AMD EPYC (family 26) that spoils the guess for the
//! whole loop, and each round waits some seven cycles for the one before. With an instruction of its own for the word
//! that nearly all rounds add to, the guess is always right; one comparison tells them apart.
//!
//! Where a loop mostly comes round so several times before it is left or calls something, these rounds are not even
//! added to memory one by one: their number is kept in a register ([`Held`]), and written where control leaves the part
//! of the loop that calls nothing, or enters a loop in it.

use super::{Facts, Ground, Schedule, Step};
use crate::dag::CutReason;
use crate::frequency::{Frequencies, innermost_loops};
use crate::graph::{Edge, Node};
use crate::plan::Action;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Rounds of more instructions take as long as an addition to memory does.
const SHORT: u32 = 24;
/// Usual rounds are kept in a register if there are this many of them for each time that they have to be written.
const WORTHWHILE: f64 = 2.0;
/// The most places where a loop's rounds are written: each gets code for it.
const MOST_WRITES: usize = 8;

/// What counts the usual rounds of loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsualRounds {
    /// What counts all others, too.
    Together,
    /// An instruction of their own.
    Apart,
    /// The same, or a register where that is worthwhile.
    Held,
}

/// The usual round of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usual {
    /// The edge that closes it.
    pub back: Edge,
    /// The index that it counts.
    pub index: i64,
    /// If these rounds are kept in a register.
    pub held: Option<Held>,
}

/// Where usual rounds are kept in a register. At the loop's head it is 0 if control comes from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The loop's head.
    pub head: Node,
    /// The nodes where there may be rounds in it, the head first, in the order of a round.
    pub nodes: Vec<Node>,
    /// The edges on which they are written, and none are left.
    pub writes: Vec<Edge>,
}

/// The usual rounds of all loops that have one.
pub fn rounds(schedule: &Schedule, ground: Ground, frequencies: &Frequencies, facts: &Facts, which: UsualRounds) -> Vec<Usual> {
    if ground.back().next().is_none() || which == UsualRounds::Together {
        return Vec::new();
    }
    let walk = Walk { schedule, ground, frequencies, facts, innermost: innermost_loops(ground.graph) };
    let mut found: Vec<(Usual, f64)> = ground.back().filter_map(|back| walk.round(back)).collect();
    if which == UsualRounds::Held {
        // Of a loop that is closed by several edges the likeliest round is held.
        let mut likeliest = BTreeMap::<Node, usize>::new();
        for (i, (usual, often)) in found.iter().enumerate() {
            let best = likeliest.entry(ground.graph.to(usual.back)).or_insert(i);
            if found[*best].1 < *often {
                *best = i;
            }
        }
        for (head, i) in likeliest {
            found[i].0.held = walk.held(head, found[i].0.back, found[i].1);
        }
    }
    found.into_iter().map(|(usual, _)| usual).collect()
}

struct Walk<'a> {
    schedule: &'a Schedule,
    ground: Ground<'a>,
    frequencies: &'a Frequencies,
    facts: &'a Facts,
    innermost: Vec<Option<Node>>,
}

/// The likeliest way from a loop's head to a node.
#[derive(Clone, Copy)]
struct Way {
    probability: f64,
    /// The register at the node.
    register: i64,
    /// Instructions before the node.
    size: u32,
}

impl Walk<'_> {
    /// What the likeliest round adds up to, and how often it is taken; `None` if it is long, calls something, comes
    /// through another loop, or is counted elsewhere.
    fn round(&self, back: Edge) -> Option<(Usual, f64)> {
        let head = self.ground.graph.to(back);
        let (increment, start) = match (self.schedule.tasks[back.index()].step, self.schedule.tasks[back.index()].count) {
            (Step::Plain(Action::CountAndRestart { increment, start }), None) => (increment, start),
            _ => return None,
        };
        let mut ways = HashMap::from([(head, Way { probability: 1.0, register: start, size: 0 })]);
        for &node in self.ground.order {
            let Some(&way) = ways.get(&node) else { continue };
            if self.facts.quiet[node.index()] {
                self.go_on(node, head, way, &mut ways);
            }
        }
        let latch = self.ground.graph.from(back);
        let way = ways.get(&latch).filter(|_| self.facts.quiet[latch.index()])?;
        let often = self.frequencies.node(head) * way.probability * self.share(latch, back);
        let usual = Usual { back, index: way.register.wrapping_add(increment), held: None };
        (way.size + self.facts.sizes[latch.index()] <= SHORT).then_some((usual, often))
    }

    /// How often an edge is taken from its tail.
    fn share(&self, tail: Node, edge: Edge) -> f64 {
        self.frequencies.edge(edge) / self.frequencies.node(tail).max(f64::MIN_POSITIVE)
    }

    /// Enters the ways behind a node that stay in the loop, where none is likelier.
    fn go_on(&self, node: Node, head: Node, way: Way, ways: &mut HashMap<Node, Way>) {
        for edge in self.schedule.live(self.ground.graph.out(node)) {
            let to = self.ground.graph.to(edge);
            let task = self.schedule.tasks[edge.index()];
            let (None, Step::Plain(Action::Add { increment }), None) = (task.flush, task.step, task.count) else { continue };
            if self.innermost[to.index()] != Some(head) || self.ground.cut(edge).is_some() {
                continue;
            }
            let on = Way {
                probability: way.probability * self.share(node, edge),
                register: way.register.wrapping_add(increment),
                size: way.size + self.facts.sizes[node.index()],
            };
            if ways.get(&to).is_none_or(|known| known.probability < on.probability) {
                ways.insert(to, on);
            }
        }
    }

    /// How the usual rounds of a loop are kept in a register, if they can be and that is worthwhile.
    fn held(&self, head: Node, back: Edge, often: f64) -> Option<Held> {
        let body = self.body(head)?;
        let nodes = self.holding(head, &body);
        let stays = |e: Edge| self.ground.graph.to(e) == head || (nodes.contains(&self.ground.graph.to(e)) && self.ground.cut(e).is_none());
        let all = nodes.iter().flat_map(|n| self.schedule.live(self.ground.graph.out(*n)));
        let writes: Vec<Edge> = all.filter(|e| !stays(*e)).collect();
        let written: f64 = writes.iter().map(|e| self.frequencies.edge(*e)).sum();
        // Of an endless loop they never would be.
        let can = !writes.is_empty() && nodes.contains(&self.ground.graph.from(back)) && writes.iter().all(|e| self.facts.open[e.index()]);
        let pays = often >= WORTHWHILE * written && writes.len() <= MOST_WRITES;
        (can && pays).then_some(Held { head, nodes, writes })
    }

    /// The nodes of a loop that is entered at its head only, with those of loops in it.
    fn body(&self, head: Node) -> Option<BTreeSet<Node>> {
        let closes = |e: &Edge| self.ground.cut(*e).is_some_and(|c| c.reason == CutReason::Back);
        let before = |node: Node| self.schedule.live(self.ground.graph.incoming(node));
        let mut body = BTreeSet::from([head]);
        let mut stack: Vec<Node> = before(head).filter(closes).map(|e| self.ground.graph.from(e)).collect();
        while let Some(node) = stack.pop() {
            if node == self.ground.graph.entry() {
                return None;
            }
            if body.insert(node) {
                stack.extend(before(node).map(|e| self.ground.graph.from(e)));
            }
        }
        (head != self.ground.graph.entry()).then_some(body)
    }

    /// The nodes of a loop at which there may be held rounds: none in the loops in it.
    fn holding(&self, head: Node, body: &BTreeSet<Node>) -> Vec<Node> {
        let mut nodes = vec![head];
        let may = |n: Node| n != head && body.contains(&n) && self.innermost[n.index()] == Some(head) && self.facts.quiet[n.index()];
        for &node in self.ground.order.iter().filter(|n| may(**n)) {
            let comes = |e: Edge| nodes.contains(&self.ground.graph.from(e)) && self.ground.cut(e).is_none();
            if self.schedule.live(self.ground.graph.incoming(node)).any(comes) {
                nodes.push(node);
            }
        }
        nodes
    }
}
