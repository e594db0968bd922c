//! Two executions with equal partial traces, for a branch whose successors no profile distinguishes: a breadth-first search.
//!
//! The search first finds how runs come to the branch (the shortest few stacks of calls). Then it lets one run go on at one successor and
//! another at the other, always the one that has made fewer steps, until both are at one place with equal records; from there a shortest
//! path leads to the end. For each profile it keeps what one run has recorded beyond the other; where the records contradict each other,
//! the pair is dropped. The pairwise condition is sufficient only, so there may be nothing to find, and the search gives up after a
//! number of steps.

use super::Violation;
use super::automaton::{AutomatonState, StateAction};
use super::program::WitnessFunctionId;
use super::pushdown::Pushdown;
use super::structure::Structure;
use std::collections::{HashMap, HashSet, VecDeque};
use trodden_flow::graph::Node;

/// The blocks of an execution.
pub type Blocks = Vec<(WitnessFunctionId, Node)>;

// They bound the time of the search. What other values find of 81 violations in three programs is in docs/benchmarks/constants.md; where it
// is anything else, it stands here.

/// Stacks with more calls than this are not searched.
const DEEPEST: usize = 24;
/// So many symbols may one run be ahead of the other. With 4, one violation more is explained.
const FARTHEST: usize = 32;
/// So many different stacks are tried for a branch.
const STACKS: usize = 3;
/// Pairs of runs that are tried for one violation. With 200, four violations fewer are explained; with 160,000, one more.
const PAIRS: usize = 20_000;
/// Configurations that are tried to come from a place to the end.
const REST: usize = 5_000;
/// Configurations that are tried to come to all branches.
const CONFIGURATIONS: usize = 100_000;

/// For each violation two executions with equal partial traces, if the search finds any within `budget` pairs of runs in all.
pub fn find(structure: &Structure, members: &[Vec<bool>], violations: &[Violation], mut budget: usize) -> Vec<Option<[Blocks; 2]>> {
    let prefixes = prefixes(structure, violations);
    let search = |violation: &Violation| {
        for (stack, before) in prefixes.get(&violation.state).into_iter().flatten() {
            let mut pairs = PAIRS.min(budget);
            budget -= pairs;
            let found = Search { pushdown: &structure.pushdown, members, violation, stack }.run(&mut pairs);
            budget += pairs;
            if let Some(behind) = found {
                return Some(behind.map(|blocks| before.iter().copied().chain(blocks).collect()));
            }
        }
        None
    };
    violations.iter().map(search).collect()
}

/// A run: the state that was entered last, and the calls under way; no state at its end.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Run {
    state: Option<AutomatonState>,
    stack: Vec<AutomatonState>,
}

impl Run {
    /// Everything that can come next.
    fn next(&self, pushdown: &Pushdown) -> Vec<Run> {
        let Some(state) = self.state else { return Vec::new() };
        let go = |to: AutomatonState| Run { state: Some(to), stack: self.stack.clone() };
        match &pushdown.state(state).action {
            StateAction::Choose(next) => next.iter().map(|to| go(*to)).collect(),
            StateAction::End => vec![Run { state: None, stack: Vec::new() }],
            StateAction::Call { callee, .. } if self.stack.len() < DEEPEST => {
                let mut run = go(pushdown.entry(*callee));
                run.stack.push(state);
                vec![run]
            }
            StateAction::Call { .. } => Vec::new(),
            StateAction::Return | StateAction::Unwind => {
                let mut run = self.clone();
                let call = run.stack.pop().map(|call| &pushdown.state(call).action);
                let Some(StateAction::Call { after, unwound, .. }) = call else { return Vec::new() };
                let returns = pushdown.state(state).action == StateAction::Return;
                run.state = Some(if returns { *after } else { *unwound });
                vec![run]
            }
        }
    }
}

/// The block that entering a state executes.
fn block(pushdown: &Pushdown, state: Option<AutomatonState>) -> Option<(WitnessFunctionId, Node)> {
    let data = pushdown.state(state?);
    data.executes.then_some((data.function, data.node))
}

/// How runs come to the branches: for each a few stacks, with the blocks executed before.
fn prefixes(structure: &Structure, violations: &[Violation]) -> HashMap<AutomatonState, Vec<(Vec<AutomatonState>, Blocks)>> {
    let pushdown = &structure.pushdown;
    let mut wanted: HashMap<AutomatonState, usize> = violations.iter().map(|v| (v.state, STACKS)).collect();
    let mut found: HashMap<AutomatonState, Vec<(Vec<AutomatonState>, Blocks)>> = HashMap::new();
    let first = Run { state: Some(pushdown.root()), stack: Vec::new() };
    let (mut seen, mut met) = (HashSet::from([first.clone()]), vec![(first, 0usize)]);
    let (mut at, mut open) = (0, wanted.len());
    while at < met.len() && met.len() < CONFIGURATIONS && open > 0 {
        let run = met[at].0.clone();
        if let Some(left) = run.state.and_then(|s| wanted.get_mut(&s)).filter(|left| **left > 0) {
            open -= usize::from(*left == STACKS);
            *left -= 1;
            let before = blocks_to(pushdown, &met, at);
            found.entry(run.state.expect("it is wanted")).or_default().push((run.stack.clone(), before));
        }
        for next in run.next(pushdown) {
            if seen.insert(next.clone()) {
                met.push((next, at));
            }
        }
        at += 1;
    }
    found
}

fn blocks_to(pushdown: &Pushdown, met: &[(Run, usize)], mut at: usize) -> Blocks {
    let mut blocks = Vec::new();
    loop {
        blocks.extend(block(pushdown, met[at].0.state));
        if at == 0 {
            blocks.reverse();
            return blocks;
        }
        at = met[at].1;
    }
}

/// What one of two runs has beyond the other; which one, is known from `second`.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Lead {
    second: bool,
    symbols: VecDeque<u32>,
}

impl Lead {
    /// One more symbol of a run; false if the two runs contradict each other.
    fn add(&mut self, second: bool, symbol: u32) -> bool {
        if self.symbols.is_empty() || self.second == second {
            self.second = second;
            self.symbols.push_back(symbol);
            return self.symbols.len() <= FARTHEST;
        }
        self.symbols.pop_front() == Some(symbol)
    }
}

/// Two runs behind a branch.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Two {
    runs: [Run; 2],
    records: Vec<Lead>,
    /// The same for blocks; `None` once they differ.
    blocks: Option<Lead>,
}

impl Two {
    /// Whether both runs are at one place with equal records, but came there by different blocks.
    fn is_ambiguous(&self) -> bool {
        let differ = self.blocks.as_ref().is_none_or(|b| !b.symbols.is_empty());
        differ && self.runs[0] == self.runs[1] && self.records.iter().all(|r| r.symbols.is_empty())
    }
}

/// The blocks of a shortest path from a run to its end.
fn rest(pushdown: &Pushdown, run: &Run) -> Option<Blocks> {
    let (mut seen, mut met, mut at) = (HashSet::from([run.clone()]), vec![(run.clone(), 0usize)], 0);
    while at < met.len() && met.len() < REST {
        if met[at].0.state.is_none() {
            let mut blocks = blocks_to(pushdown, &met, at);
            if block(pushdown, run.state).is_some() {
                blocks.remove(0);
            }
            return Some(blocks);
        }
        for next in met[at].0.next(pushdown) {
            if seen.insert(next.clone()) {
                met.push((next, at));
            }
        }
        at += 1;
    }
    None
}

struct Search<'a> {
    pushdown: &'a Pushdown,
    members: &'a [Vec<bool>],
    violation: &'a Violation,
    stack: &'a [AutomatonState],
}

/// Two runs that were met, where they come from, and the steps that each has made.
struct Met {
    two: Two,
    from: usize,
    moved: usize,
    steps: [u32; 2],
}

impl Search<'_> {
    fn run(&self, budget: &mut usize) -> Option<[Blocks; 2]> {
        let nothing = Lead { second: false, symbols: VecDeque::new() };
        let runs = self.violation.successors.map(|s| Run { state: Some(s), stack: self.stack.to_vec() });
        let mut first = Two { runs, records: vec![nothing.clone(); self.members.len()], blocks: Some(nothing) };
        if !(self.entered(&mut first, 0) && self.entered(&mut first, 1)) {
            return None;
        }
        let (mut seen, mut met) = (HashSet::from([first.clone()]), vec![Met { two: first, from: 0, moved: 0, steps: [0, 0] }]);
        let mut at = 0;
        while at < met.len() && *budget > 0 {
            *budget -= 1;
            let Met { two, steps, .. } = &met[at];
            let (two, steps) = (two.clone(), *steps);
            let ended = two.runs.each_ref().map(|r| r.state.is_none());
            if let Some(rest) = two.is_ambiguous().then(|| rest(self.pushdown, &two.runs[0])).flatten() {
                return Some(self.blocks(&met, at).map(|blocks| blocks.into_iter().chain(rest.clone()).collect()));
            }
            if ended == [true, true] {
                at += 1;
                continue;
            }
            let side = usize::from(ended[0] || (!ended[1] && steps[1] < steps[0]));
            for next in two.runs[side].next(self.pushdown) {
                let mut new = two.clone();
                new.runs[side] = next;
                if self.entered(&mut new, side) && seen.insert(new.clone()) {
                    let mut steps = steps;
                    steps[side] += 1;
                    met.push(Met { two: new, from: at, moved: side, steps });
                }
            }
            at += 1;
        }
        None
    }

    /// Records what a run has entered; false if the runs can have equal records no more.
    fn entered(&self, two: &mut Two, side: usize) -> bool {
        let Some(state) = two.runs[side].state else { return true };
        let data = self.pushdown.state(state);
        if data.executes {
            let number = data.function.0.wrapping_mul(0x9e37_79b9) ^ data.node.0;
            two.blocks = two.blocks.take().and_then(|mut lead| lead.add(side == 1, number).then_some(lead));
        }
        let Some(witness) = data.witness else { return true };
        let mut records = two.records.iter_mut().zip(self.members).filter(|(_, member)| member[witness.index()]);
        records.all(|(record, _)| record.add(side == 1, witness.0))
    }

    /// The blocks of both runs, from the branch on.
    fn blocks(&self, met: &[Met], at: usize) -> [Blocks; 2] {
        let mut blocks = [Vec::new(), Vec::new()];
        let mut here = at;
        while here != 0 {
            let Met { two, from, moved, .. } = &met[here];
            blocks[*moved].extend(block(self.pushdown, two.runs[*moved].state));
            here = *from;
        }
        for (side, blocks) in blocks.iter_mut().enumerate() {
            blocks.extend(block(self.pushdown, met[0].two.runs[side].state));
            blocks.reverse();
        }
        blocks
    }
}
