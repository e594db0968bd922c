//! Known-path regions in which a node is copied for each context after which known paths continue differently.
//!
//! In a region with each node once ([`super::region`]), known paths can combine to unknown ones. Copies avoid that: the code becomes an
//! automaton of the known paths. The minimal automaton (Myhill-Nerode: a state for all prefixes with the same continuations) must keep
//! the register where edges with different values meet; a trie, where nothing meets, is large. So prefixes that are executed often are
//! states of their own, and all others share those of the minimal automaton. Several choices of the paths in the region and of the
//! threshold for "often" are tried, and the cheapest is taken ([`super::prices`]).

use super::KnownPath;
use super::automaton::{Automaton, RegionState, RegionTransition};
use super::prices::Prices;
use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;
use std::collections::{BTreeSet, HashMap};

/// Shares of all executions: the most executed paths that make up a share form a region to try. With the last share alone, three programs
/// execute 1.0 to 8.2 % more instructions, with the first and the last 0 to 2.7 % more (docs/benchmarks/constants.md).
const REGION_SHARES: [f64; 6] = [0.9, 0.97, 0.99, 0.997, 0.999, 1.0];
/// Divisors of all executions, each of which gives the number of executions from which on a prefix has a state of its own; 0 means that
/// none has. With 0 alone, three programs execute 0.6 to 5.1 % more instructions, with 64 and 0 from 0 to 1.4 % more
/// (docs/benchmarks/constants.md).
const DISTINCT_DIVISORS: [u64; 5] = [4, 16, 64, 256, 0];
/// Number of states that a region may have beyond twice its nodes. With 0, two of three programs execute 6 % more instructions; with 160,
/// one executes 1.4 % fewer, and has 3 % more code (docs/benchmarks/constants.md).
const MAX_EXTRA_STATES: usize = 16;
/// Maximum number of edges of all paths of a region to try, which bounds the time and memory of a build.
const MAX_EDGES: usize = 200_000;

/// The cheapest region with contexts, if it costs less than `cost`, the cost of the region with each of its `nodes` once.
pub fn cheapest(dag: &Dag, paths: &[KnownPath], prices: Prices, cost: f64, nodes: usize) -> Option<Automaton> {
    let all: u64 = paths.iter().map(|p| p.executions).fold(0, u64::saturating_add);
    let mut ranked: Vec<&KnownPath> = paths.iter().collect();
    ranked.sort_by_key(|p| std::cmp::Reverse(p.executions));
    let max_states = 2 * nodes + MAX_EXTRA_STATES;
    let mut best: Option<(f64, Automaton)> = None;
    let mut tried = BTreeSet::new();
    for share in REGION_SHARES {
        let (mut region, mut sum, mut edges) = (0, 0u64, 0);
        while region < ranked.len() && (sum as f64) < share * all as f64 {
            sum = sum.saturating_add(ranked[region].executions);
            edges += ranked[region].edges.len();
            region += 1;
        }
        if edges > MAX_EDGES || !tried.insert(region) {
            continue;
        }
        let trie = Trie::new(dag, &ranked[..region]);
        for divisor in DISTINCT_DIVISORS {
            let distinct_from = all.checked_div(divisor).unwrap_or(u64::MAX);
            let Some(contexts) = trie.contexts(distinct_from, max_states) else { continue };
            let more = contexts.states.len().saturating_sub(nodes);
            let new = prices.executed((all - sum) as f64, 0.0, contexts.kept) + prices.copies(more);
            if new < best.as_ref().map_or(cost, |(least, _)| *least) {
                best = Some((new, contexts.automaton(dag, &trie)));
            }
        }
    }
    best.map(|(_, automaton)| automaton)
}

/// A prefix of known paths.
struct Prefix {
    node: Node,
    /// The prefix without its last edge, and that edge.
    before: Option<(usize, DagEdgeId)>,
    executions: u64,
    /// The edges that may follow, with the longer prefix; `None` where the path ends.
    transitions: Vec<(DagEdgeId, Option<usize>)>,
}

/// All prefixes of some paths, shorter ones first, with the states of the minimal automaton.
struct Trie {
    prefixes: Vec<Prefix>,
    /// For each prefix, its state in the minimal automaton.
    class: Vec<usize>,
    /// For each state of the minimal automaton, whether an unknown path may follow.
    needed: Vec<bool>,
}

impl Trie {
    fn new(dag: &Dag, paths: &[&KnownPath]) -> Trie {
        let mut prefixes = vec![Prefix { node: dag.entry(), before: None, executions: 0, transitions: Vec::new() }];
        for path in paths {
            let mut at = 0;
            for &edge in &path.edges {
                prefixes[at].executions = prefixes[at].executions.saturating_add(path.own_executions());
                let known = prefixes[at].transitions.iter().find(|(e, _)| *e == edge).map(|(_, to)| *to);
                let to = known.unwrap_or_else(|| {
                    let head = dag.edge(edge).to;
                    let new = (head != dag.exit()).then_some(prefixes.len());
                    if new.is_some() {
                        prefixes.push(Prefix { node: head, before: Some((at, edge)), executions: 0, transitions: Vec::new() });
                    }
                    prefixes[at].transitions.push((edge, new));
                    new
                });
                at = to.unwrap_or(at);
            }
        }
        let mut trie = Trie { class: vec![0; prefixes.len()], prefixes, needed: Vec::new() };
        trie.classify(dag);
        trie
    }

    fn classify(&mut self, dag: &Dag) {
        let mut classes = HashMap::new();
        for at in (0..self.prefixes.len()).rev() {
            let Prefix { node, transitions, .. } = &self.prefixes[at];
            let mut follows: Vec<(DagEdgeId, Option<usize>)> =
                transitions.iter().map(|(e, to)| (*e, to.map(|to| self.class[to]))).collect();
            follows.sort();
            let needed = transitions.len() < dag.out(*node).len() || follows.iter().any(|(_, to)| to.is_some_and(|to| self.needed[to]));
            let new = self.needed.len();
            self.class[at] = *classes.entry((*node, follows)).or_insert(new);
            if self.class[at] == new {
                self.needed.push(needed);
            }
        }
    }

    /// The states, if there are at most `max_states`. Prefixes with at least `distinct_from` executions get a state of their own; others
    /// share that of their class.
    fn contexts(&self, distinct_from: u64, max_states: usize) -> Option<Contexts> {
        let mut of_class = vec![None; self.needed.len()];
        let (mut state_of, mut states) = (vec![0; self.prefixes.len()], Vec::<usize>::new());
        let (mut arriving, mut into) = (Vec::<u64>::new(), Vec::<Option<(usize, DagEdgeId)>>::new());
        let mut meets = Vec::new();
        for (at, prefix) in self.prefixes.iter().enumerate() {
            let class = self.class[at];
            let distinct = self.needed[class] && prefix.executions >= distinct_from;
            let known = if distinct { None } else { of_class[class] };
            let state = known.unwrap_or(states.len());
            let from = prefix.before.map(|(before, edge)| (state_of[before], edge));
            if known.is_none() {
                states.push(at);
                arriving.push(0);
                into.push(from);
                meets.push(false);
                if states.len() > max_states {
                    return None;
                }
            }
            if !distinct {
                of_class[class] = Some(state);
            }
            state_of[at] = state;
            arriving[state] = arriving[state].saturating_add(prefix.executions);
            meets[state] |= into[state] != from;
        }
        let kept = (0..states.len()).filter(|s| meets[*s] && self.needed[self.class[states[*s]]]).map(|s| arriving[s] as f64).sum();
        Some(Contexts { states, state_of, kept })
    }
}

/// An automaton between the minimal one and the trie.
struct Contexts {
    /// One prefix of each state.
    states: Vec<usize>,
    /// The state of each prefix.
    state_of: Vec<usize>,
    /// How often the register is set because edges with different values meet.
    kept: f64,
}

impl Contexts {
    fn automaton(&self, dag: &Dag, trie: &Trie) -> Automaton {
        let transition =
            |(edge, to): &(DagEdgeId, Option<usize>)| RegionTransition { edge: *edge, to: to.map(|to| self.state_of[to]), unclear: false };
        let state = |at: &usize| {
            let Prefix { node, transitions, .. } = &trie.prefixes[*at];
            debug_assert!(transitions.iter().all(|(e, _)| dag.edge(*e).from == *node));
            RegionState { node: *node, transitions: transitions.iter().map(transition).collect() }
        };
        Automaton { states: self.states.iter().map(state).collect() }
    }
}
