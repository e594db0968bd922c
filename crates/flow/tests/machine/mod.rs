//! Machines that do what plans and schedules say, and what a backend might tell of a graph.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::Action;
use trodden_flow::schedule::{Facts, Schedule, Step};
use trodden_flow::{Edge, Graph, Node};
use trodden_testkit::Random;

/// A machine that does what a plan or a schedule says.
#[derive(Default)]
pub struct Machine {
    /// The path register.
    pub register: i64,
    /// By index.
    pub counts: BTreeMap<i64, u64>,
    /// Rounds of the loop under way, and the register when it was entered.
    rounds: BTreeMap<usize, (u64, i64)>,
    /// Usual rounds that are held, by loop.
    held: BTreeMap<usize, u64>,
    /// Paths that are not counted where they are looked up.
    pub known: BTreeSet<u64>,
}

impl Machine {
    fn count(&mut self, index: i64, by: u64) {
        if by > 0 {
            *self.counts.entry(index).or_default() += by;
        }
    }

    /// Does what a plan says.
    pub fn act(&mut self, action: Action) {
        match action {
            Action::Add { increment } => self.register += increment,
            Action::Count { increment } => self.count(self.register + increment, 1),
            Action::CountAndRestart { increment, start } => {
                self.count(self.register + increment, 1);
                self.register = start;
            }
            Action::Poison { .. } => panic!("nothing is left out"),
            Action::Dead => panic!("a walk took a dead edge"),
        }
    }

    /// Does what a schedule says.
    pub fn take(&mut self, schedule: &Schedule, graph: &Graph, edge: Edge) {
        let task = schedule.task(edge);
        if let Some(which) = task.write {
            let held = self.held.remove(&which).unwrap_or_default();
            self.count(schedule.usual()[which].index, held);
        }
        if let Some(flush) = task.flush {
            let rounds = &schedule.loops()[flush.rounds];
            let (n, entered) = self.rounds.remove(&flush.rounds).expect("a loop is entered before it is left");
            self.count(entered + rounds.increment, u64::from(n > 0));
            self.count(rounds.start + rounds.increment, n.saturating_sub(1));
            self.register = if n > 0 { rounds.start } else { entered } + flush.partial;
        }
        match task.step {
            Step::Plain(Action::CountAndRestart { increment, start }) if self.holds(schedule, graph, edge, increment) => {
                self.register = start
            }
            Step::Plain(action) => self.act(action),
            Step::Restart { start } => self.register = start,
            Step::Counted | Step::Inside => {}
            Step::Check { increment, start } => {
                let id = self.register + increment;
                if !self.known.contains(&(id as u64)) {
                    self.count(id, 1);
                }
                self.register = start.unwrap_or(self.register);
            }
            Step::Round(which) => self.rounds.get_mut(&which).expect("a loop is entered before it comes round").0 += 1,
        }
        if let Some(increment) = task.count {
            self.count(self.register + increment, 1);
        }
        for (which, rounds) in schedule.loops().iter().enumerate() {
            if graph.to(edge) == rounds.head && edge != rounds.back {
                self.rounds.insert(which, (0, self.register));
            }
        }
        for (which, usual) in schedule.usual().iter().enumerate() {
            let leaves =
                |nodes: &[Node]| !nodes.contains(&graph.to(edge)) || (graph.to(edge) == nodes[0] && !nodes.contains(&graph.from(edge)));
            let is_left = usual.held.as_ref().is_some_and(|h| leaves(&h.nodes));
            assert!(!is_left || !self.held.contains_key(&which), "rounds are written before their loop is left");
        }
    }

    /// Whether an edge closes a usual round that is held: there is one more then.
    fn holds(&mut self, schedule: &Schedule, graph: &Graph, edge: Edge, increment: i64) -> bool {
        let Some(which) = schedule.usual().iter().position(|u| u.back == edge) else { return false };
        let usual = &schedule.usual()[which];
        let is_held = usual.held.as_ref().is_some_and(|h| h.nodes.contains(&graph.from(edge)));
        if is_held && self.register + increment == usual.index {
            *self.held.entry(which).or_default() += 1;
            return true;
        }
        false
    }
}

/// Random frequencies of a graph in which control rather goes back than on, so that loops come round often.
pub fn frequencies(random: &mut Random, graph: &Graph) -> Frequencies {
    let mut weight = |e: Edge| random.below(40) * if graph.to(e) <= graph.from(e) { 20 } else { 1 };
    let weights: Vec<f64> = graph.edges().map(|e| weight(e) as f64).collect();
    Frequencies::estimate(graph, &weights)
}

/// Random facts.
pub fn facts(random: &mut Random, graph: &Graph) -> Facts {
    let open: Vec<bool> = graph.edges().map(|_| random.chance(90)).collect();
    let can_be_early = |n: Node| n != graph.entry() && graph.incoming(n).iter().all(|e| open[e.index()]);
    Facts {
        quiet: graph.nodes().map(|_| random.chance(85)).collect(),
        early: graph.nodes().map(|n| can_be_early(n) && random.chance(10)).collect(),
        free: graph.edges().map(|_| random.chance(50)).collect(),
        sizes: graph.nodes().map(|_| 1 + random.below(9) as u32).collect(),
        open,
        crossed: BTreeSet::new(),
        times_round: BTreeMap::new(),
        counted: graph.edges().filter(|_| random.chance(20)).collect(),
    }
}
