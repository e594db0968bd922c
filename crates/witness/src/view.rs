//! A function as a graph of states on which witnesses are placed. Calls are steps without witnesses, and a return leads back to the entry
//! if the function can be entered more than once.
//!
//! This is the graph of the paper (section 4.1) with an edge exit -> entry, and an edge from each call to its return. Witnesses that
//! distinguish the successors of a branch here do so in the trace of the function alone. Whether they also do so in the program's trace is
//! checked for the complete program ([`repair`](super::repair)). Construction: O(states + transitions), and for each branch a search to the
//! next witnesses.

use super::WitnessKind;
use super::automaton::{AutomatonState, StateAction, StateRole};
use super::program::{Witness, WitnessFunctionId};
use super::sets::disjoint;
use super::structure::{ENDS, PushdownStructure, RETURNS, UNWINDS};
use super::weights::Weights;
use std::collections::{BTreeSet, HashMap};
use trodden_flow::dominators::immediate_dominators;
use trodden_flow::graph::Node;

/// Represents the end of the run in lists of local states.
pub const END: u32 = u32::MAX;

/// Functions with at least this many branches have separators: witnesses that every path passes (`find_separators`). Without separators,
/// functions of 2,500 branches in a row take 4 to 10 times as long to plan, because the time is quadratic, and cost up to 0.7% less
/// (docs/benchmarks/constants.md).
const MIN_BRANCHES_FOR_SEPARATORS: usize = 1000;
/// Number of branches between two separators, not counting those that some path avoids. If this is 64, the same functions cost up to 1.8%
/// more; if it is 1,024, they take 2 to 3.5 times as long (docs/benchmarks/constants.md).
const BRANCHES_BETWEEN_SEPARATORS: usize = 256;
/// Number of candidates for a separator, of which the cheapest is chosen. If this is 1, the same functions cost the same; if it is 128,
/// 0.2% less.
const SEPARATOR_CANDIDATES: usize = 16;

/// A branch of a [`StateGraph`], and its successors.
#[derive(Clone, Debug)]
pub struct StateGraphBranch {
    /// Index of the branch's state in the graph.
    pub state: u32,
    /// Indices of the successors.
    pub next: Vec<u32>,
}

/// A function as a graph of states.
#[derive(Clone, Debug)]
pub struct StateGraph {
    /// The function.
    pub function: WitnessFunctionId,
    /// Successors of each state.
    pub next: Vec<Vec<u32>>,
    /// For each state, whether the run can end in it.
    pub ends: Vec<bool>,
    /// Witness that each state can have.
    pub witness: Vec<Option<Witness>>,
    /// Parallel edges of an edge; they all become witnesses or none does.
    pub parallel: HashMap<u32, Vec<Witness>>,
    /// Cost of a witness on each state.
    pub cost: Vec<f64>,
    /// Branches whose successors the function's witnesses can distinguish.
    pub branches: Vec<StateGraphBranch>,
    /// The first state of the function in the automaton.
    pub first: AutomatonState,
    /// States that are witnesses in every profile that has witnesses of the function (`find_separators`).
    pub separators: BTreeSet<u32>,
}

impl StateGraph {
    /// Builds the graph of a function's states.
    pub fn new(structure: &PushdownStructure, kind: WitnessKind, weights: &Weights, function: WitnessFunctionId) -> StateGraph {
        let states: Vec<AutomatonState> = structure.states_of(function).collect();
        let first = states[0];
        let mut view = StateGraph {
            function,
            next: vec![Vec::new(); states.len()],
            ends: vec![false; states.len()],
            witness: states.iter().map(|s| structure.pushdown.state(*s).witness).collect(),
            parallel: HashMap::new(),
            cost: Vec::new(),
            branches: Vec::new(),
            first,
            separators: BTreeSet::new(),
        };
        for (&state, place) in states.iter().zip(0usize..) {
            view.connect_state(structure, state, place);
        }
        let cost = |w: &Witness| weights.cost(kind, *w);
        view.cost = view.witness.iter().map(|w| w.as_ref().map_or(0.0, cost)).collect();
        view.parallel.iter().for_each(|(s, others)| view.cost[*s as usize] += others.iter().map(cost).sum::<f64>());
        view.mark_states_in_endless_loops_as_ends();
        view.find_branches(structure, &states);
        view.separators = view.find_separators(structure.pushdown.entry(function).0 - first.0);
        view
    }

    /// Returns the immediate postdominator of each state, without the edge exit -> entry; `None` if it is the run's end or does not exist.
    pub fn postdominators(&self) -> Vec<Option<u32>> {
        let count = self.state_count();
        let exit = count as u32;
        let mut into = vec![Vec::new(); count + 1];
        for state in 0..exit {
            // A return is followed by the end here, not by the entry.
            match &self.next[state as usize][..] {
                next if !self.ends[state as usize] && !next.is_empty() => next.iter().for_each(|n| into[*n as usize].push(state)),
                _ => into[count].push(state),
            }
        }
        immediate_dominators(&into, exit)[..count].iter().map(|d| d.filter(|d| *d != exit)).collect()
    }

    /// Chooses states that always are witnesses, so that functions with very many branches take at most seconds.
    ///
    /// The first witnesses after a successor of a branch may include one witness of each later branch. Then the sets that elimination
    /// maintains are as large as the function, and its time is quadratic. A witness that every path passes bounds the sets, because no
    /// later witness comes first.
    fn find_separators(&self, entry: u32) -> BTreeSet<u32> {
        if self.branches.len() < MIN_BRANCHES_FOR_SEPARATORS {
            return BTreeSet::new();
        }
        let mut is_branch = vec![false; self.state_count()];
        self.branches.iter().for_each(|branch| is_branch[branch.state as usize] = true);
        let postdominators = self.postdominators();
        let on_every_path: Vec<u32> = std::iter::successors(Some(entry), |state| postdominators[*state as usize]).collect();
        let (mut found, mut passed, mut at) = (BTreeSet::new(), 0, 0);
        while let Some(&state) = on_every_path.get(at) {
            if passed < BRANCHES_BETWEEN_SEPARATORS {
                (passed, at) = (passed + usize::from(is_branch[state as usize]), at + 1);
                continue;
            }
            let next = &on_every_path[at..on_every_path.len().min(at + SEPARATOR_CANDIDATES)];
            let cost = |state: &&u32| self.cost[**state as usize];
            found.extend(next.iter().filter(|s| self.witness[**s as usize].is_some()).min_by(|a, b| cost(a).total_cmp(&cost(b))));
            (passed, at) = (0, at + next.len());
        }
        found
    }

    /// Returns, for each state, whether it is a separator.
    pub fn mark_separators(&self) -> Vec<bool> {
        let mut member = vec![false; self.state_count()];
        self.separators.iter().for_each(|state| member[*state as usize] = true);
        member
    }

    fn connect_state(&mut self, structure: &PushdownStructure, state: AutomatonState, place: usize) {
        let local = |s: AutomatonState| s.0 - self.first.0;
        let entry = local(structure.pushdown.entry(self.function));
        match &structure.pushdown.state(state).action {
            StateAction::Choose(next) => self.connect_choice(structure, next, place),
            StateAction::Return | StateAction::Unwind => {
                self.ends[place] = true;
                if structure.repeated[self.function.index()] {
                    self.next[place] = vec![entry];
                }
            }
            StateAction::End => self.ends[place] = true,
            StateAction::Call { callee, after, unwound } => {
                let exits = structure.exits[structure.pushdown.entry(*callee).index()];
                self.ends[place] = exits & ENDS != 0;
                let steps = [(RETURNS, local(*after)), (UNWINDS, local(*unwound))];
                self.next[place] = steps.iter().filter(|(how, _)| exits & how != 0).map(|(_, to)| *to).collect();
            }
        }
    }

    /// Marks states from which no end can be reached, as in the main loop of a server, as ends: the run can be ended from outside at
    /// any time.
    fn mark_states_in_endless_loops_as_ends(&mut self) {
        let mut before = vec![Vec::new(); self.state_count()];
        (0..self.state_count()).for_each(|s| self.next[s].iter().for_each(|n| before[*n as usize].push(s)));
        let mut can_end = vec![false; self.state_count()];
        let mut work: Vec<usize> = (0..self.state_count()).filter(|s| self.ends[*s]).collect();
        while let Some(state) = work.pop() {
            if !std::mem::replace(&mut can_end[state], true) {
                work.extend(&before[state]);
            }
        }
        self.ends.iter_mut().zip(can_end).for_each(|(ends, can)| *ends |= !can);
    }

    /// Adds the successors of a choice; parallel edges are merged.
    fn connect_choice(&mut self, structure: &PushdownStructure, next: &[AutomatonState], place: usize) {
        let mut edges: HashMap<Node, u32> = HashMap::new();
        for &state in next {
            let (data, local) = (structure.pushdown.state(state), state.0 - self.first.0);
            let first = if data.role == StateRole::Edge { *edges.entry(data.node).or_insert(local) } else { local };
            match first == local {
                true => self.next[place].push(local),
                false => self.parallel.entry(first).or_default().extend(data.witness),
            }
        }
    }

    /// Finds the reachable branches whose successors can be distinguished if every state is a witness.
    fn find_branches(&mut self, structure: &PushdownStructure, states: &[AutomatonState]) {
        let all: Vec<bool> = self.witness.iter().map(Option::is_some).collect();
        let mut scratch = SearchMemory::default();
        for (&state, place) in states.iter().zip(0u32..) {
            let data = structure.pushdown.state(state);
            let next = self.next[place as usize].clone();
            let chooses = matches!(data.action, StateAction::Choose(_)) && data.role != StateRole::Call;
            if next.len() < 2 || !structure.reached[state.index()] || !chooses {
                continue;
            }
            let sets: Vec<Vec<u32>> = next.iter().map(|n| scratch.first_of(self, &all, *n)).collect();
            let differ = |i: usize| (0..i).all(|j| disjoint(&sets[i], &sets[j]));
            if (1..next.len()).all(differ) {
                self.branches.push(StateGraphBranch { state: place, next });
            }
        }
    }

    /// Returns the number of states.
    pub fn state_count(&self) -> usize {
        self.next.len()
    }

    /// Returns the cost of the marked states as witnesses.
    pub fn sum(&self, member: &[bool]) -> f64 {
        member.iter().zip(&self.cost).filter(|(m, _)| **m).map(|(_, c)| c).sum()
    }

    /// Returns the witnesses of the marked states.
    pub fn witnesses(&self, member: &[bool]) -> Vec<Witness> {
        let marked = (0u32..).zip(member).filter(|(_, m)| **m).map(|(s, _)| s);
        marked.flat_map(|s| self.witness[s as usize].into_iter().chain(self.parallel.get(&s).into_iter().flatten().copied())).collect()
    }

    /// Returns the number of witnesses of the marked states.
    pub fn count(&self, member: &[bool]) -> usize {
        let parallel = |s: usize| self.parallel.get(&(s as u32)).map_or(0, Vec::len);
        (0..member.len()).filter(|s| member[*s]).map(|s| 1 + parallel(s)).sum()
    }
}

/// Working memory of searches, which is kept between them because most are short.
#[derive(Clone, Debug, Default)]
pub struct SearchMemory {
    visited: Vec<u32>,
    search: u32,
    work: Vec<u32>,
}

impl SearchMemory {
    /// Returns the marked states that can come first from `from` on, itself included, and [`END`] if the run can end before, sorted.
    pub fn first_of(&mut self, view: &StateGraph, member: &[bool], from: u32) -> Vec<u32> {
        self.first_marked_states_from(view, member, &[from])
    }

    /// Returns the marked states that can come first after a state, and [`END`] if the run can end before, sorted.
    pub fn first_after(&mut self, view: &StateGraph, member: &[bool], state: u32) -> Vec<u32> {
        let mut found = self.first_marked_states_from(view, member, &view.next[state as usize]);
        if view.ends[state as usize] && found.last() != Some(&END) {
            found.push(END);
        }
        found
    }

    fn first_marked_states_from(&mut self, view: &StateGraph, member: &[bool], from: &[u32]) -> Vec<u32> {
        self.visited.resize(view.state_count(), 0);
        self.search += 1;
        self.work.extend(from);
        let mut found = Vec::new();
        while let Some(state) = self.work.pop() {
            if std::mem::replace(&mut self.visited[state as usize], self.search) == self.search {
                continue;
            }
            if member[state as usize] {
                found.push(state);
                continue;
            }
            if view.ends[state as usize] {
                found.push(END);
            }
            self.work.extend(&view.next[state as usize]);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Performs a single search like [`SearchMemory::first_of`], with its own working memory.
pub fn first_of(view: &StateGraph, member: &[bool], from: u32) -> Vec<u32> {
    SearchMemory::default().first_of(view, member, from)
}
