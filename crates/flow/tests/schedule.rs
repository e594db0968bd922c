//! Schedules against the plans they rearrange: on random walks through random graphs both count the same.

use std::collections::BTreeMap;
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::{Action, Plan};
use trodden_flow::schedule::{Choices, Facts, Schedule, Step};
use trodden_flow::{Edge, Graph, Node};
use trodden_testkit::Random;
use trodden_testkit::graphs::{Cycles, forced, graph, options};

/// A machine that does what a plan or a schedule says.
#[derive(Default)]
struct Machine {
    register: i64,
    counts: BTreeMap<i64, u64>,
    /// Rounds of the loop under way, and the register when it was entered.
    rounds: BTreeMap<usize, (u64, i64)>,
}

impl Machine {
    fn count(&mut self, index: i64, by: u64) {
        if by > 0 {
            *self.counts.entry(index).or_default() += by;
        }
    }

    fn act(&mut self, action: Action) {
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

    fn take(&mut self, schedule: &Schedule, graph: &Graph, edge: Edge) {
        let task = schedule.task(edge);
        if let Some(flush) = task.flush {
            let rounds = &schedule.loops()[flush.rounds];
            let (n, entered) = self.rounds.remove(&flush.rounds).expect("a loop is entered before it is left");
            self.count(entered + rounds.increment, u64::from(n > 0));
            self.count(rounds.start + rounds.increment, n.saturating_sub(1));
            self.register = if n > 0 { rounds.start } else { entered } + flush.partial;
        }
        match task.step {
            Step::Plain(action) => self.act(action),
            Step::Restart { start } => self.register = start,
            Step::Counted | Step::Inside => {}
            Step::Check { .. } => panic!("nothing is looked up where all is counted"),
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
    }
}

fn random_walk(random: &mut Random, graph: &Graph) -> Option<Vec<Edge>> {
    let (mut at, mut walk) = (graph.entry(), Vec::new());
    while !graph.out(at).is_empty() {
        let edge = random.pick(graph.out(at));
        walk.push(edge);
        at = graph.to(edge);
        if at == graph.exit() {
            return Some(walk);
        }
        if walk.len() > 200 {
            return None;
        }
    }
    None
}

fn facts(random: &mut Random, graph: &Graph) -> Facts {
    let open: Vec<bool> = graph.edges().map(|_| random.chance(90)).collect();
    let can_be_early = |n: Node| n != graph.entry() && graph.incoming(n).iter().all(|e| open[e.index()]);
    Facts {
        quiet: graph.nodes().map(|_| random.chance(85)).collect(),
        early: graph.nodes().map(|n| can_be_early(n) && random.chance(10)).collect(),
        free: graph.edges().map(|_| random.chance(50)).collect(),
        open,
    }
}

#[test]
fn schedules_count_what_plans_count() {
    let (mut by_rounds, mut early, mut many) = (0, 0, 0);
    for seed in 0..60_000 {
        let mut random = Random::new(seed ^ 0x5c_4ed1);
        let graph = graph(&mut random, 9, 16, Cycles::Some);
        if !graph.out(graph.exit()).is_empty() {
            continue;
        }
        let cuts = forced(&mut random, &graph);
        let weights: Vec<f64> = graph.edges().map(|_| random.below(40) as f64).collect();
        let frequencies = Frequencies::estimate(&graph, &weights);
        let plan = Plan::ball_larus(&graph, &cuts, &frequencies, &options(&mut random));
        let facts = facts(&mut random, &graph);
        let choices = Choices { rounds: random.chance(80), early: random.chance(80) };
        let schedule = Schedule::of(&graph, &plan, &frequencies, &facts, choices);
        for edge in graph.edges().filter(|e| schedule.has_code(*e)) {
            let moved = schedule.task(edge).flush.is_some() || schedule.task(edge).count.is_some();
            assert!(!moved || facts.open[edge.index()], "seed {seed}: {edge:?} cannot carry code");
        }
        by_rounds += schedule.loops().len();
        early += graph.edges().filter(|e| schedule.task(*e).count.is_some()).count();
        for _ in 0..8 {
            let Some(walk) = random_walk(&mut random, &graph) else { continue };
            let (mut planned, mut scheduled) = (Machine::default(), Machine::default());
            for edge in walk {
                planned.act(plan.action(&graph, edge));
                scheduled.take(&schedule, &graph, edge);
            }
            many += planned.counts.values().filter(|c| **c > 1).count();
            assert_eq!(scheduled.counts, planned.counts, "seed {seed}: {schedule:?}");
        }
    }
    assert!(by_rounds > 1_000 && early > 1_000 && many > 1_000, "{by_rounds} loops, {early} early counts, {many} counts above 1");
}
