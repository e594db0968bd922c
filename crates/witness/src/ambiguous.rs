//! A breadth-first search for two executions that explain a violation of the pairwise condition: they take different successors of a
//! branch, but leave equal partial traces.
//!
//! The search first finds a few call stacks, those with which the shortest runs reach the branch. From each call stack, two runs continue
//! at different successors. The search always advances the run with fewer steps, until both runs are in the same state with equal call
//! stacks and records; a shortest path to the end then completes both. For each profile, the search stores the symbols (executed witnesses)
//! that only one run has recorded so far, and it drops a pair of runs whose records contradict each other. Such executions need not exist,
//! because the pairwise condition is only sufficient. Every part of the search is bounded.

use super::Violation;
use super::automaton::{AutomatonState, StateAction};
use super::program::{WitnessFunctionId, WitnessSet};
use super::pushdown::Pushdown;
use super::structure::PushdownStructure;
use std::collections::{HashMap, HashSet, VecDeque};
use trodden_flow::graph::Node;

/// The blocks of an execution, in order.
pub type BlockSequence = Vec<(WitnessFunctionId, Node)>;

// These constants bound the search time. The comments give the effects of other values on 81 violations in three programs
// (docs/benchmarks/constants.md).

/// Longer call stacks are not searched.
const MAX_SEARCHED_CALL_DEPTH: usize = 24;
/// Maximum number of recorded symbols by which one run may be ahead of the other. If this is 4, one more violation is explained.
const MAX_SYMBOLS_AHEAD: usize = 32;
const MAX_STACKS_PER_STATE: usize = 3;
/// Maximum number of pairs of runs tried for a violation. If this is 200, four fewer violations are explained; if it is 160,000, one more.
const MAX_RUN_PAIRS: usize = 20_000;
const MAX_END_CONFIGURATIONS: usize = 5_000;
const MAX_PREFIX_CONFIGURATIONS: usize = 100_000;

/// Returns two executions with equal partial traces for each violation, if the search finds any. `budget` bounds the pairs of runs tried
/// for all violations together.
pub fn find_ambiguous_executions(
    structure: &PushdownStructure,
    members: &[WitnessSet],
    violations: &[Violation],
    mut budget: usize,
) -> Vec<Option<[BlockSequence; 2]>> {
    let prefixes = find_prefixes(structure, violations);
    let search = |violation: &Violation| {
        for (stack, before) in prefixes.get(&violation.state).into_iter().flatten() {
            let mut pairs = MAX_RUN_PAIRS.min(budget);
            budget -= pairs;
            let found = AmbiguitySearch { pushdown: &structure.pushdown, members, violation, stack }.search(&mut pairs);
            budget += pairs;
            if let Some(rest) = found {
                return Some(rest.map(|blocks| before.iter().copied().chain(blocks).collect()));
            }
        }
        None
    };
    violations.iter().map(search).collect()
}

/// A run: the state it entered last (`None` after the run's end) and its active calls.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PartialRun {
    state: Option<AutomatonState>,
    stack: Vec<AutomatonState>,
}

impl PartialRun {
    fn successor_runs(&self, pushdown: &Pushdown) -> Vec<PartialRun> {
        let Some(state) = self.state else { return Vec::new() };
        let step = |to: AutomatonState| PartialRun { state: Some(to), stack: self.stack.clone() };
        match &pushdown.state(state).action {
            StateAction::Choose(next) => next.iter().map(|to| step(*to)).collect(),
            StateAction::End => vec![PartialRun { state: None, stack: Vec::new() }],
            StateAction::Call { callee, .. } if self.stack.len() < MAX_SEARCHED_CALL_DEPTH => {
                let mut run = step(pushdown.entry(*callee));
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

/// Returns the block that is executed when a run enters this state, or `None` if entering it executes none.
fn executed_block(pushdown: &Pushdown, state: Option<AutomatonState>) -> Option<(WitnessFunctionId, Node)> {
    let data = pushdown.state(state?);
    data.executes.then_some((data.function, data.node))
}

/// Returns, for each branch, a few call stacks that runs can have when they reach the branch, each with the blocks executed up to the
/// branch.
fn find_prefixes(
    structure: &PushdownStructure,
    violations: &[Violation],
) -> HashMap<AutomatonState, Vec<(Vec<AutomatonState>, BlockSequence)>> {
    let pushdown = &structure.pushdown;
    let mut wanted: HashMap<AutomatonState, usize> = violations.iter().map(|v| (v.state, MAX_STACKS_PER_STATE)).collect();
    let mut found: HashMap<AutomatonState, Vec<(Vec<AutomatonState>, BlockSequence)>> = HashMap::new();
    let first = PartialRun { state: Some(pushdown.root()), stack: Vec::new() };
    let (mut seen, mut visited) = (HashSet::from([first.clone()]), vec![(first, 0usize)]);
    let (mut at, mut open) = (0, wanted.len());
    while at < visited.len() && visited.len() < MAX_PREFIX_CONFIGURATIONS && open > 0 {
        let run = visited[at].0.clone();
        if let Some(left) = run.state.and_then(|s| wanted.get_mut(&s)).filter(|left| **left > 0) {
            open -= usize::from(*left == MAX_STACKS_PER_STATE);
            *left -= 1;
            let before = blocks_up_to(pushdown, &visited, at);
            found.entry(run.state.expect("only states are looked up")).or_default().push((run.stack.clone(), before));
        }
        for next in run.successor_runs(pushdown) {
            if seen.insert(next.clone()) {
                visited.push((next, at));
            }
        }
        at += 1;
    }
    found
}

fn blocks_up_to(pushdown: &Pushdown, visited: &[(PartialRun, usize)], mut at: usize) -> BlockSequence {
    let mut blocks = Vec::new();
    loop {
        blocks.extend(executed_block(pushdown, visited[at].0.state));
        if at == 0 {
            blocks.reverse();
            return blocks;
        }
        at = visited[at].1;
    }
}

/// The symbols that one run has recorded ahead of the other; `second` is true if this is the second run.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SymbolsAhead {
    second: bool,
    symbols: VecDeque<u32>,
}

impl SymbolsAhead {
    /// Records a symbol of a run. Returns false if the two runs' records contradict each other, or if one run is too far ahead.
    fn record_symbol(&mut self, second: bool, symbol: u32) -> bool {
        if self.symbols.is_empty() || self.second == second {
            self.second = second;
            self.symbols.push_back(symbol);
            return self.symbols.len() <= MAX_SYMBOLS_AHEAD;
        }
        self.symbols.pop_front() == Some(symbol)
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct RunPair {
    runs: [PartialRun; 2],
    records: Vec<SymbolsAhead>,
    /// The blocks that one run has executed ahead of the other; `None` once the runs' blocks differ or one run is too far ahead.
    blocks: Option<SymbolsAhead>,
}

impl RunPair {
    /// Returns true if both runs are in the same state with equal records, but have executed different blocks.
    fn is_ambiguous(&self) -> bool {
        let differ = self.blocks.as_ref().is_none_or(|b| !b.symbols.is_empty());
        differ && self.runs[0] == self.runs[1] && self.records.iter().all(|r| r.symbols.is_empty())
    }
}

/// Returns the blocks of a shortest path from the run's state to its end, or `None` if none was found within the limit.
fn find_shortest_end(pushdown: &Pushdown, run: &PartialRun) -> Option<BlockSequence> {
    let (mut seen, mut visited, mut at) = (HashSet::from([run.clone()]), vec![(run.clone(), 0usize)], 0);
    while at < visited.len() && visited.len() < MAX_END_CONFIGURATIONS {
        if visited[at].0.state.is_none() {
            let mut blocks = blocks_up_to(pushdown, &visited, at);
            if executed_block(pushdown, run.state).is_some() {
                blocks.remove(0);
            }
            return Some(blocks);
        }
        for next in visited[at].0.successor_runs(pushdown) {
            if seen.insert(next.clone()) {
                visited.push((next, at));
            }
        }
        at += 1;
    }
    None
}

struct AmbiguitySearch<'a> {
    pushdown: &'a Pushdown,
    members: &'a [WitnessSet],
    violation: &'a Violation,
    stack: &'a [AutomatonState],
}

/// A visited pair of runs, with the index of the pair from which it was reached, the run that was advanced last, and both runs' step
/// counts.
struct VisitedPair {
    pair: RunPair,
    from: usize,
    moved: usize,
    steps: [u32; 2],
}

impl AmbiguitySearch<'_> {
    fn search(&self, budget: &mut usize) -> Option<[BlockSequence; 2]> {
        let nothing = SymbolsAhead { second: false, symbols: VecDeque::new() };
        let runs = self.violation.successors.map(|s| PartialRun { state: Some(s), stack: self.stack.to_vec() });
        let mut first = RunPair { runs, records: vec![nothing.clone(); self.members.len()], blocks: Some(nothing) };
        if !(self.record_entry(&mut first, 0) && self.record_entry(&mut first, 1)) {
            return None;
        }
        let (mut seen, mut visited) = (HashSet::from([first.clone()]), vec![VisitedPair { pair: first, from: 0, moved: 0, steps: [0, 0] }]);
        let mut at = 0;
        while at < visited.len() && *budget > 0 {
            *budget -= 1;
            let VisitedPair { pair, steps, .. } = &visited[at];
            let (pair, steps) = (pair.clone(), *steps);
            let ended = pair.runs.each_ref().map(|r| r.state.is_none());
            if let Some(rest) = pair.is_ambiguous().then(|| find_shortest_end(self.pushdown, &pair.runs[0])).flatten() {
                return Some(self.collect_blocks(&visited, at).map(|blocks| blocks.into_iter().chain(rest.clone()).collect()));
            }
            if ended == [true, true] {
                at += 1;
                continue;
            }
            let side = usize::from(ended[0] || (!ended[1] && steps[1] < steps[0]));
            for next in pair.runs[side].successor_runs(self.pushdown) {
                let mut new = pair.clone();
                new.runs[side] = next;
                if self.record_entry(&mut new, side) && seen.insert(new.clone()) {
                    let mut steps = steps;
                    steps[side] += 1;
                    visited.push(VisitedPair { pair: new, from: at, moved: side, steps });
                }
            }
            at += 1;
        }
        None
    }

    /// Records that a run has entered its current state. Returns false if the records of the two runs can no longer become equal, or if one
    /// run is too far ahead.
    fn record_entry(&self, pair: &mut RunPair, side: usize) -> bool {
        let Some(state) = pair.runs[side].state else { return true };
        let data = self.pushdown.state(state);
        if data.executes {
            let number = data.function.0.wrapping_mul(0x9e37_79b9) ^ data.node.0;
            pair.blocks = pair.blocks.take().and_then(|mut lead| lead.record_symbol(side == 1, number).then_some(lead));
        }
        let Some(witness) = data.witness else { return true };
        let mut records = pair.records.iter_mut().zip(self.members).filter(|(_, members)| members.contains(witness));
        records.all(|(record, _)| record.record_symbol(side == 1, witness.0))
    }

    fn collect_blocks(&self, visited: &[VisitedPair], at: usize) -> [BlockSequence; 2] {
        let mut blocks = [Vec::new(), Vec::new()];
        let mut here = at;
        while here != 0 {
            let VisitedPair { pair, from, moved, .. } = &visited[here];
            blocks[*moved].extend(executed_block(self.pushdown, pair.runs[*moved].state));
            here = *from;
        }
        for (side, blocks) in blocks.iter_mut().enumerate() {
            blocks.extend(executed_block(self.pushdown, visited[0].pair.runs[side].state));
            blocks.reverse();
        }
        blocks
    }
}
