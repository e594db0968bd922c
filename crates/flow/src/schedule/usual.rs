//! The usual round of a short innermost loop, whose count is told apart from those of other rounds.
//!
//! Processors hand what was stored in memory to a load of the same place in no time if they guess which store it was; they guess by the instructions' addresses. The first round of a loop
//! ends another path than the rounds behind it, so one instruction that counts both adds to different words; on an AMD EPYC (family 26) that spoils the guess for the whole loop, and each
//! round waits some seven cycles for the one before. With an instruction of its own for the word that nearly all rounds add to, the guess is always right; one comparison tells them apart.

use super::{Facts, Schedule, Step};
use crate::dag::{Cut, CutReason};
use crate::frequency::{Frequencies, innermost_loops};
use crate::graph::{Edge, Graph, Node};
use crate::plan::{Action, Plan};
use std::collections::{BTreeMap, HashMap};

/// Rounds of more instructions take as long as an addition to memory does.
const SHORT: u32 = 24;

/// The index that the usual round counts, by the edge that closes the loop.
pub fn rounds(schedule: &Schedule, graph: &Graph, plan: &Plan, frequencies: &Frequencies, facts: &Facts) -> BTreeMap<Edge, i64> {
    let back: Vec<&Cut> = plan.dag.cuts().iter().filter(|c| c.reason == CutReason::Back).collect();
    if back.is_empty() {
        return BTreeMap::new();
    }
    let walk = Walk { schedule, graph, plan, frequencies, facts, innermost: innermost_loops(graph) };
    back.into_iter().filter_map(|cut| Some((cut.edge, walk.round(cut.edge)?))).collect()
}

struct Walk<'a> {
    schedule: &'a Schedule,
    graph: &'a Graph,
    plan: &'a Plan,
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
    /// What the likeliest round adds up to; `None` if it is long, calls something, comes through another loop, or is counted elsewhere.
    fn round(&self, back: Edge) -> Option<i64> {
        let head = self.graph.to(back);
        let (increment, start) = match (self.schedule.tasks[back.index()].step, self.schedule.tasks[back.index()].count) {
            (Step::Plain(Action::CountAndRestart { increment, start }), None) => (increment, start),
            _ => return None,
        };
        let mut ways = HashMap::from([(head, Way { probability: 1.0, register: start, size: 0 })]);
        for &node in self.plan.dag.order() {
            let Some(&way) = ways.get(&node) else { continue };
            if self.facts.quiet[node.index()] {
                self.go_on(node, head, way, &mut ways);
            }
        }
        let latch = self.graph.from(back);
        let way = ways.get(&latch).filter(|_| self.facts.quiet[latch.index()])?;
        (way.size + self.facts.sizes[latch.index()] <= SHORT).then(|| way.register.wrapping_add(increment))
    }

    /// Enters the ways behind a node that stay in the loop, where none is likelier.
    fn go_on(&self, node: Node, head: Node, way: Way, ways: &mut HashMap<Node, Way>) {
        let all = self.frequencies.node(node).max(f64::MIN_POSITIVE);
        for edge in self.schedule.live(self.graph.out(node)) {
            let to = self.graph.to(edge);
            let task = self.schedule.tasks[edge.index()];
            let (None, Step::Plain(Action::Add { increment }), None) = (task.flush, task.step, task.count) else { continue };
            if self.innermost[to.index()] != Some(head) || self.plan.dag.cut(edge).is_some() {
                continue;
            }
            let on = Way {
                probability: way.probability * self.frequencies.edge(edge) / all,
                register: way.register.wrapping_add(increment),
                size: way.size + self.facts.sizes[node.index()],
            };
            if ways.get(&to).is_none_or(|known| known.probability < on.probability) {
                ways.insert(to, on);
            }
        }
    }
}
