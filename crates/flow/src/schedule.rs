//! When counts are made: the actions of a plan, rearranged so that fewer instructions run for the same counts.
//!
//! 1. *Rounds.* An innermost loop through which only one path leads, and in which nothing is called, is not counted
//!    round by round: the number of rounds is known when the loop is left, and is added to the path's count there
//!    ([`Rounds`]). Edge profilers keep counters in registers for the same purpose; here the loop's own counter usually
//!    serves.
//! 2. *Early counts.* Where ways with different register values meet in a node from which one way leads to the path's
//!    end, the counts are made on the edges into it: their places in the array are constants there, so no register has
//!    to be set, and the node keeps its size (which decides whether a code generator copies it, as it does with the
//!    computed jump of an interpreter).
//! 3. *Usual rounds.* In other loops, the path of the usual round, if that is short and comes through no loop inside,
//!    has an instruction of its own that counts it, or its rounds are counted in a register ([`Schedule::usual`]).
//!
//! What one of several copies counts of a function has tasks of its own ([`part`]): they count early by themselves, and
//! loops by rounds likewise.
//!
//! All leave the counts as they are; but a path in the middle of such a loop, or of such a node, may be seen in memory
//! late or early. That is why nodes that call something are left alone: nobody but a signal can look in between.

mod part;
mod usual;

use crate::dag::{Cut, CutReason, Dag};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph, Node};
use crate::partition::{Hits, Part};
use crate::plan::{Action, Plan};
use std::collections::{BTreeMap, BTreeSet};

pub use usual::{Held, Usual, UsualRounds};

/// Loops are counted by rounds if they come round this often: what the ways out cost then is less than what the rounds would.
const WORTHWHILE_ROUNDS: f64 = 5.0;
/// Loops that come round a constant number of times are counted when they are left if it is at least this: two
/// additions then, and none in the rounds.
const WORTHWHILE_TIMES: u64 = 3;
/// The most instructions in a round of a [tight](ByRounds::Tight) loop.
const TIGHT: u32 = 6;
/// The most ways out of a loop that is counted by rounds: each gets the code that adds them.
const MOST_EXITS: usize = 3;
/// The most nodes of a loop that is counted by rounds.
const MOST_NODES: usize = 64;

/// What a backend knows of a function beyond its graph: by number of node or edge.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Nodes whose code does nothing that could be observed from outside: no call.
    pub quiet: Vec<bool>,
    /// Nodes whose count has to be made on the edges into them, whatever it costs.
    pub early: Vec<bool>,
    /// Edges that can carry code.
    pub open: Vec<bool>,
    /// Edges that can carry code without another jump.
    pub free: Vec<bool>,
    /// Instructions of each node.
    pub sizes: Vec<u32>,
    /// Back edges on which control may leave this code for another version of it: their loops cannot be counted by rounds.
    pub crossed: BTreeSet<Edge>,
    /// How often each of these back edges is taken from when its loop is entered until the loop is left at the edge's
    /// tail, where that is a constant.
    pub times_round: BTreeMap<Edge, u64>,
    /// Back edges of loops whose rounds the program itself counts: nothing has to be done in them to know their number.
    pub counted: BTreeSet<Edge>,
}

/// Which loops of one path are counted by rounds, of those that come round often enough, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByRounds {
    /// None.
    No,
    /// Those of a few instructions, those that come round a constant number of times, and those with one way out whose
    /// rounds the program counts. In short ones an addition to the same word of memory in each round is what the
    /// processor waits for: it takes some five cycles from one to the next, where a round takes one or two. Longer
    /// rounds hide that.
    Tight,
    /// All.
    Often,
}

/// Which of the rearrangements are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Loops of one path that are counted by rounds.
    pub rounds: ByRounds,
    /// Counts are made early.
    pub early: bool,
    /// What counts the usual rounds of short loops.
    pub usual: UsualRounds,
}

impl Choices {
    /// Numbers of rounds are kept in registers wherever that is worthwhile, unless something is not rearranged at all:
    /// a program that is killed in the middle of a loop loses them.
    pub fn in_registers(self) -> Choices {
        let rounds = if self.rounds == ByRounds::Tight { ByRounds::Often } else { self.rounds };
        let usual = if self.usual == UsualRounds::Apart { UsualRounds::Held } else { self.usual };
        Choices { rounds, usual, ..self }
    }
}

/// What control does to the path register and the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// What the plan says.
    Plain(Action),
    /// `r = start`; the path that ends here was counted before.
    Restart {
        /// The register's value for the next path.
        start: i64,
    },
    /// A path ends that was counted before, or is not to be counted, and no other begins.
    Counted,
    /// A path ends that may or may not be known: `if !known[r + increment] { count[r + increment] += 1 }`.
    Check {
        /// What to add to `r` for the index.
        increment: i64,
        /// The register's value for the next path, if one begins.
        start: Option<i64>,
    },
    /// Another round of the loop with this number.
    Round(usize),
    /// Within a loop that is counted by rounds: nothing; [`Flush`] makes up for it.
    Inside,
}

/// Writes what the rounds of a loop count. With `n` rounds and the register `r` as it was when the loop was entered: if `n > 0`,
/// `count[r + increment] += 1`, `count[start + increment] += n - 1` and `r = start`; and in any case `r += partial`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The loop: a place in [`Schedule::loops`].
    pub rounds: usize,
    /// The increments on the way from the loop's head to the exit.
    pub partial: i64,
}

/// What has to be done when control takes an edge, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The loop that is left.
    pub flush: Option<Flush>,
    /// What happens to the register.
    pub step: Step,
    /// `count[r + this] += 1`, for the path that will end without another choice.
    pub count: Option<i64>,
    /// Usual rounds that are held, by their place in [`Schedule::usual`]: `count[index] += held`, and none are held any
    /// more. This comes first.
    pub write: Option<usize>,
}

/// What a schedule is made for: a graph, and where its paths end.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) dag: &'a Dag,
    /// The nodes in the order of paths.
    pub(crate) order: &'a [Node],
    /// Where the graph is of several versions of a function: which of the function's edges each one is.
    pub(crate) origins: Option<&'a [Edge]>,
}

impl<'a> Ground<'a> {
    /// How the path on an edge is cut, if it is.
    fn cut(&self, edge: Edge) -> Option<&'a Cut> {
        self.dag.cut(self.origins.map_or(edge, |origins| origins[edge.index()]))
    }

    /// The edges that close loops.
    fn back(&self) -> impl Iterator<Item = Edge> + use<'a> {
        let this = *self;
        this.graph.edges().filter(move |e| this.cut(*e).is_some_and(|c| c.reason == CutReason::Back))
    }
}

impl Task {
    /// Just this.
    pub fn of(step: Step) -> Task {
        Task { flush: None, step, count: None, write: None }
    }
}

/// A loop that is counted by rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Where it is entered.
    pub head: Node,
    /// The edge that closes it.
    pub back: Edge,
    /// Its nodes in the order of a round.
    pub nodes: Vec<Node>,
    /// The register at the beginning of every round but the first.
    pub start: i64,
    /// What a round adds to the register until it is counted.
    pub increment: i64,
    /// How often it comes round, whenever it is entered, if that is a constant (not 0): nothing has to be counted in it then.
    pub times: Option<u64>,
}

/// The tasks of a function's edges.
#[derive(Clone, Debug)]
pub struct Schedule {
    tasks: Vec<Task>,
    loops: Vec<Rounds>,
    /// The usual rounds of loops.
    usual: Vec<Usual>,
    /// By edge, if hits are to be counted.
    hits: Vec<Hits>,
}

impl Schedule {
    /// Rearranges a plan.
    pub fn of(graph: &Graph, plan: &Plan, frequencies: &Frequencies, facts: &Facts, choices: Choices) -> Schedule {
        let task = |e: Edge| Task::of(Step::Plain(plan.action(graph, e)));
        let mut schedule = match &plan.share {
            Some(share) => part::schedule(graph, &plan.dag, &share.part),
            None => Schedule::from_tasks(graph.edges().map(task).collect()),
        };
        let ground = Ground { graph, dag: &plan.dag, order: plan.dag.order(), origins: None };
        if plan.partial.is_none() {
            schedule.count_rounds(ground, frequencies, facts, choices.rounds);
        }
        // What one of several copies counts is counted at the ends of paths already.
        if plan.share.is_none() {
            schedule.count_early(graph, plan, frequencies, facts, choices.early);
        }
        if plan.share.is_none() && plan.partial.is_none() {
            schedule.tell_usual_apart(ground, frequencies, facts, choices.usual);
        }
        schedule
    }

    /// Rearranges how loops are counted in a graph of several versions of a function, which has these tasks: where the
    /// ends of their rounds need not be looked up.
    pub(crate) fn rearrange_rounds(&mut self, ground: Ground, frequencies: &Frequencies, facts: &Facts, choices: Choices) {
        self.count_rounds(ground, frequencies, facts, choices.rounds);
        self.tell_usual_apart(ground, frequencies, facts, choices.usual);
    }

    fn count_rounds(&mut self, ground: Ground, frequencies: &Frequencies, facts: &Facts, which: ByRounds) {
        if which > ByRounds::No {
            ground.back().for_each(|back| self.count_by_rounds(ground, frequencies, facts, which, back));
        }
    }

    fn tell_usual_apart(&mut self, ground: Ground, frequencies: &Frequencies, facts: &Facts, which: UsualRounds) {
        self.usual = usual::rounds(self, ground, frequencies, facts, which);
        for (place, usual) in self.usual.iter().enumerate() {
            for edge in usual.held.iter().flat_map(|h| &h.writes) {
                self.tasks[edge.index()].write = Some(place);
            }
        }
    }

    /// A schedule of just these tasks, by edge.
    pub fn from_tasks(tasks: Vec<Task>) -> Schedule {
        Schedule { tasks, loops: Vec::new(), usual: Vec::new(), hits: Vec::new() }
    }

    /// Has the probes of one copy's part counted besides, wherever control takes an edge with some: to check what their
    /// hits are said to be.
    pub fn count_hits(&mut self, graph: &Graph, dag: &Dag, part: &Part) {
        self.hits = graph.edges().map(|e| part::hits(dag, part, e)).collect();
    }

    /// Hits to be counted on an edge.
    pub fn hits(&self, edge: Edge) -> Hits {
        self.hits.get(edge.index()).copied().unwrap_or_default()
    }

    /// What has to be done on an edge.
    pub fn task(&self, edge: Edge) -> Task {
        self.tasks[edge.index()]
    }

    /// The loops that are counted by rounds.
    pub fn loops(&self) -> &[Rounds] {
        &self.loops
    }

    /// The usual rounds of loops that are told from others where they are counted: on the edges that close them.
    pub fn usual(&self) -> &[Usual] {
        &self.usual
    }

    /// The edges that close them.
    pub fn by_rounds(&self) -> Vec<Edge> {
        self.loops.iter().map(|l| l.back).collect()
    }

    /// Whether no control comes along an edge.
    pub fn is_dead(&self, edge: Edge) -> bool {
        self.tasks[edge.index()].step == Step::Plain(Action::Dead)
    }

    fn action(&self, edge: Edge) -> Option<Action> {
        match self.tasks[edge.index()].step {
            Step::Plain(action) => Some(action),
            _ => None,
        }
    }

    fn live<'a>(&'a self, edges: &'a [Edge]) -> impl Iterator<Item = Edge> + 'a {
        edges.iter().copied().filter(|e| !self.is_dead(*e))
    }

    fn count_by_rounds(&mut self, ground: Ground, frequencies: &Frequencies, facts: &Facts, which: ByRounds, back: Edge) {
        let graph = ground.graph;
        if facts.crossed.contains(&back) {
            return;
        }
        let Some(nodes) = self.only_way_round(ground, facts, back) else { return };
        let Some((counted, start)) = self.counted_in_a_round(graph, &nodes, back) else { return };
        let is_inside = |e: Edge| e == back || (nodes.contains(&graph.to(e)) && graph.to(e) != nodes[0]);
        let exits: Vec<Edge> = nodes.iter().flat_map(|n| self.live(graph.out(*n))).filter(|e| !is_inside(*e)).collect();
        // What an endless loop counts has to be counted in it.
        if exits.is_empty() || exits.len() > MOST_EXITS || exits.iter().any(|e| !facts.open[e.index()]) {
            return;
        }
        let times = facts.times_round.get(&back).copied().filter(|times| *times >= WORTHWHILE_TIMES && exits.len() == 1);
        let is_told = exits.len() == 1 && facts.counted.contains(&back);
        let is_short = which == ByRounds::Often || is_told || nodes.iter().map(|n| facts.sizes[n.index()]).sum::<u32>() <= TIGHT;
        let outside: f64 = self.live(graph.incoming(graph.to(back))).filter(|e| *e != back).map(|e| frequencies.edge(e)).sum();
        if times.is_none() && !(is_short && frequencies.edge(back) >= WORTHWHILE_ROUNDS * outside) {
            return;
        }
        let (mut partial, mut whole) = (0, 0);
        for node in &nodes {
            let (inside, leaving): (Vec<Edge>, Vec<Edge>) = graph.out(*node).iter().partition(|e| is_inside(**e));
            for edge in leaving {
                self.tasks[edge.index()].flush = Some(Flush { rounds: self.loops.len(), partial });
            }
            let chain = inside[0];
            if let Some(Action::Add { increment }) = self.action(chain) {
                partial = partial.wrapping_add(increment);
                self.tasks[chain.index()].step = Step::Inside;
            }
            if chain == counted {
                whole = partial.wrapping_add(self.added_before_counting(chain));
                self.tasks[chain.index()].count = None;
            }
        }
        self.tasks[back.index()].step = Step::Round(self.loops.len());
        let head = nodes[0];
        self.loops.push(Rounds { head, back, nodes, start, increment: whole, times });
    }

    /// The edge of a round on which its path is counted: the one that closes the loop, or an earlier one behind which
    /// there is no other way. And the register's value for the next round.
    fn counted_in_a_round(&self, graph: &Graph, nodes: &[Node], back: Edge) -> Option<(Edge, i64)> {
        let start = match (self.tasks[back.index()].step, self.tasks[back.index()].count) {
            (Step::Plain(Action::CountAndRestart { start, .. }), None) => return Some((back, start)),
            (Step::Restart { start }, None) => start,
            _ => return None,
        };
        let inside = |pair: &[Node]| self.live(graph.out(pair[0])).find(|e| graph.to(*e) == pair[1]);
        let counted = nodes.windows(2).filter_map(inside).find(|e| self.tasks[e.index()].count.is_some())?;
        Some((counted, start))
    }

    /// What is added to the register, as it is behind an edge of a round, where the edge counts.
    fn added_before_counting(&self, edge: Edge) -> i64 {
        match self.tasks[edge.index()] {
            Task { step: Step::Plain(Action::CountAndRestart { increment, .. }), .. } => increment,
            task => task.count.unwrap_or(0),
        }
    }

    /// The nodes of the loop that a back edge closes, if there is just one way round it, it can be entered at its head
    /// only, and it holds no other loop.
    fn only_way_round(&self, ground: Ground, facts: &Facts, back: Edge) -> Option<Vec<Node>> {
        let graph = ground.graph;
        let (latch, head) = (graph.from(back), graph.to(back));
        if head == graph.entry() || self.live(graph.incoming(head)).any(|e| e != back && ground.cut(e).is_some()) {
            return None;
        }
        let mut nodes = vec![latch];
        while nodes[nodes.len() - 1] != head {
            let here = nodes[nodes.len() - 1];
            let mut into = self.live(graph.incoming(here));
            let (Some(only), None) = (into.next(), into.next()) else { return None };
            if ground.cut(only).is_some() || nodes.len() == MOST_NODES {
                return None;
            }
            nodes.push(graph.from(only));
        }
        nodes.reverse();
        let follows = |i: usize| nodes.get(i + 1).copied().unwrap_or(head);
        let stays = |n: Node, to: Node| self.live(graph.out(n)).filter(|e| graph.to(*e) == to).count() == 1;
        let alone = (0..nodes.len()).all(|i| facts.quiet[nodes[i].index()] && stays(nodes[i], follows(i)));
        alone.then_some(nodes)
    }

    /// Moves counts to the edges into the nodes before them. Nodes are treated from the ends of paths on, so that a
    /// count moves as far as it pays.
    fn count_early(&mut self, graph: &Graph, plan: &Plan, frequencies: &Frequencies, facts: &Facts, wherever: bool) {
        let known = self.constants(graph, plan);
        let inside: Vec<Node> = self.loops.iter().flat_map(|l| l.nodes.iter().copied()).collect();
        for &node in plan.dag.order().iter().rev().filter(|n| **n != graph.exit() && **n != graph.entry()) {
            let mut out = self.live(graph.out(node));
            let (Some(end), None) = (out.next(), out.next()) else { continue };
            drop(out);
            let Some(increment) = self.ends(end) else { continue };
            let into: Vec<Edge> = self.live(graph.incoming(node)).collect();
            let can = facts.quiet[node.index()]
                && !inside.contains(&node)
                && graph.to(end) != node
                && into.iter().all(|e| facts.open[e.index()] && self.tasks[e.index()].count.is_none());
            if can && (facts.early[node.index()] || (wherever && self.pays(&into, &known, frequencies, facts))) {
                self.settle(end);
                into.iter().for_each(|e| self.tasks[e.index()].count = Some(increment));
            }
        }
    }

    /// If a path that takes this edge is bound to end: what has to be added to the register, as it is before the edge, for its count.
    fn ends(&self, edge: Edge) -> Option<i64> {
        let task = self.tasks[edge.index()];
        match (task.flush, task.step, task.count) {
            (Some(_), ..) => None,
            (None, Step::Plain(Action::Count { increment } | Action::CountAndRestart { increment, .. }), None) => Some(increment),
            (None, Step::Plain(Action::Add { increment }), Some(count)) => Some(increment.wrapping_add(count)),
            _ => None,
        }
    }

    /// The count of this edge is made before.
    fn settle(&mut self, edge: Edge) {
        let task = &mut self.tasks[edge.index()];
        task.count = None;
        task.step = match task.step {
            Step::Plain(Action::CountAndRestart { start, .. }) => Step::Restart { start },
            _ => Step::Counted,
        };
    }

    /// Whether counts on these edges cost less than one behind them: there every edge with a constant would have to set
    /// the register; here edges that cannot carry code may need a jump.
    fn pays(&self, into: &[Edge], known: &[Option<i64>], frequencies: &Frequencies, facts: &Facts) -> bool {
        let differ = into.iter().any(|e| known[e.index()].is_none() || known[e.index()] != known[into[0].index()]);
        let sum = |edges: &dyn Fn(&&Edge) -> bool| into.iter().filter(|e| edges(e)).map(|e| frequencies.edge(*e)).sum::<f64>();
        let constant = sum(&|e| known[e.index()].is_some());
        let jumps = sum(&|e| !facts.free[e.index()] && !self.has_code(**e));
        into.len() > 1 && differ && jumps < constant
    }

    /// Whether an edge needs code.
    pub fn has_code(&self, edge: Edge) -> bool {
        let task = self.tasks[edge.index()];
        let silent = matches!(
            task.step,
            Step::Plain(Action::Dead | Action::Add { increment: 0 } | Action::Poison { .. })
                | Step::Restart { .. }
                | Step::Counted
                | Step::Round(_)
                | Step::Inside
        );
        task.write.is_some() || task.flush.is_some() || task.count.is_some() || !silent || self.hits(edge) != Hits::default()
    }

    /// The register behind each edge, where it is the same on all ways there.
    fn constants(&self, graph: &Graph, plan: &Plan) -> Vec<Option<i64>> {
        let mut known = vec![None; graph.edge_count()];
        for edge in graph.edges() {
            if let Step::Plain(Action::CountAndRestart { start, .. }) = self.tasks[edge.index()].step {
                known[edge.index()] = Some(start);
            }
        }
        for &node in plan.dag.order() {
            let mut into = self.live(graph.incoming(node)).map(|e| known[e.index()]);
            let arriving = match (node == graph.entry(), into.next().flatten()) {
                (true, _) => Some(0),
                (false, first) => first.filter(|_| into.all(|k| k == first)),
            };
            for &edge in graph.out(node) {
                if let (Step::Plain(Action::Poison { value }), None) = (self.tasks[edge.index()].step, self.tasks[edge.index()].flush) {
                    known[edge.index()] = Some(value);
                }
                if let (Step::Plain(Action::Add { increment }), None) = (self.tasks[edge.index()].step, self.tasks[edge.index()].flush) {
                    known[edge.index()] = arriving.map(|a| a.wrapping_add(increment));
                }
            }
        }
        known
    }
}
