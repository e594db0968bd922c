//! Known-path regions in which a node is copied for each context after which known paths continue differently.
//!
//! In a region that contains each node once ([`super::region`]), parts of different known paths can combine to unknown paths. Copies of
//! nodes prevent that, because the code then is an automaton of the known paths. The minimal automaton (Myhill-Nerode: one state for all
//! prefixes with the same continuations) needs the register at joins of edges with different values; a trie has no joins, but is large.
//! Frequently executed prefixes therefore get separate states, and all others share the states of the minimal automaton. Several sets of
//! paths and thresholds of executions are tried, and the cheapest result is used ([`super::prices`]).

use super::KnownPath;
use super::automaton::{KnownPathAutomaton, RegionState, RegionTransition};
use super::prices::RegionPrices;
use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;
use std::collections::{BTreeSet, HashMap};

/// Shares of all executions. For each share, the most frequent paths that make up the share are tried as a region. With only the last
/// share, three benchmark programs execute 1.0 to 8.2% more instructions; with only the first and the last, 0.2% fewer to 2.7% more
/// (docs/benchmarks/constants.md).
const TRIED_EXECUTION_SHARES: [f64; 6] = [0.9, 0.97, 0.99, 0.997, 0.999, 1.0];
/// The number of all executions is divided by each of these. The quotient is the minimum number of executions of a prefix with a separate
/// state; with the divisor 0, no prefix has a separate state. With only 0, three benchmark programs execute 0.6 to 5.1% more instructions;
/// with only 64 and 0, 0 to 1.4% more (docs/benchmarks/constants.md).
const TRIED_PREFIX_EXECUTION_DIVISORS: [u64; 5] = [4, 16, 64, 256, 0];
/// Maximum number of states of a region in excess of twice its nodes. If this is 0, two of three benchmark programs execute 6% more
/// instructions; if it is 160, one executes 1.3% fewer and has 3% more code (docs/benchmarks/constants.md).
const MAX_EXTRA_STATES: usize = 16;
/// Maximum total number of edges of a region's paths, which bounds the time and memory of a build.
const MAX_PREFIX_TRIE_EDGES: usize = 200_000;

/// Finds the cheapest region with contexts, or `None` if none costs less than `cost`, the cost of the region of `nodes` uncopied nodes.
pub fn find_cheapest_region(dag: &Dag, paths: &[KnownPath], prices: RegionPrices, cost: f64, nodes: usize) -> Option<KnownPathAutomaton> {
    let all: u64 = paths.iter().map(|p| p.executions).fold(0, u64::saturating_add);
    let mut ranked: Vec<&KnownPath> = paths.iter().collect();
    ranked.sort_by_key(|p| std::cmp::Reverse(p.executions));
    let max_states = 2 * nodes + MAX_EXTRA_STATES;
    let mut best: Option<(f64, KnownPathAutomaton)> = None;
    let mut tried = BTreeSet::new();
    for share in TRIED_EXECUTION_SHARES {
        let (mut region, mut sum, mut edges) = (0, 0u64, 0);
        while region < ranked.len() && (sum as f64) < share * all as f64 {
            sum = sum.saturating_add(ranked[region].executions);
            edges += ranked[region].edges.len();
            region += 1;
        }
        if edges > MAX_PREFIX_TRIE_EDGES || !tried.insert(region) {
            continue;
        }
        let trie = PrefixTrie::new(dag, &ranked[..region]);
        for divisor in TRIED_PREFIX_EXECUTION_DIVISORS {
            let distinct_from = all.checked_div(divisor).unwrap_or(u64::MAX);
            let Some(contexts) = trie.choose_states(distinct_from, max_states) else { continue };
            let more = contexts.states.len().saturating_sub(nodes);
            let new = prices.execution_cost((all - sum) as f64, 0.0, contexts.kept) + prices.state_cost(more);
            if new < best.as_ref().map_or(cost, |(least, _)| *least) {
                best = Some((new, contexts.build_automaton(dag, &trie)));
            }
        }
    }
    best.map(|(_, automaton)| automaton)
}

struct KnownPrefix {
    node: Node,
    /// The index of the prefix without its last edge, and the last edge. `None` for the empty prefix.
    before: Option<(usize, DagEdgeId)>,
    executions: u64,
    /// The edges that may follow, each with the extended prefix, or with `None` if the path ends.
    transitions: Vec<(DagEdgeId, Option<usize>)>,
}

/// All prefixes of a set of paths, and their states in the minimal automaton. A prefix comes after all shorter prefixes of itself.
struct PrefixTrie {
    prefixes: Vec<KnownPrefix>,
    /// The state of each prefix in the minimal automaton.
    class: Vec<usize>,
    /// Whether each state of the minimal automaton needs the register, because an unknown path may follow.
    needed: Vec<bool>,
}

impl PrefixTrie {
    fn new(dag: &Dag, paths: &[&KnownPath]) -> PrefixTrie {
        let mut prefixes = vec![KnownPrefix { node: dag.entry(), before: None, executions: 0, transitions: Vec::new() }];
        for path in paths {
            let mut at = 0;
            for &edge in &path.edges {
                prefixes[at].executions = prefixes[at].executions.saturating_add(path.executions_of_own_edges());
                let known = prefixes[at].transitions.iter().find(|(e, _)| *e == edge).map(|(_, to)| *to);
                let to = known.unwrap_or_else(|| {
                    let head = dag.edge(edge).to;
                    let new = (head != dag.exit()).then_some(prefixes.len());
                    if new.is_some() {
                        prefixes.push(KnownPrefix { node: head, before: Some((at, edge)), executions: 0, transitions: Vec::new() });
                    }
                    prefixes[at].transitions.push((edge, new));
                    new
                });
                at = to.unwrap_or(at);
            }
        }
        let mut trie = PrefixTrie { class: vec![0; prefixes.len()], prefixes, needed: Vec::new() };
        trie.classify(dag);
        trie
    }

    fn classify(&mut self, dag: &Dag) {
        let mut classes = HashMap::new();
        for at in (0..self.prefixes.len()).rev() {
            let KnownPrefix { node, transitions, .. } = &self.prefixes[at];
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

    /// Chooses the states, or returns `None` if there are more than `max_states`. Prefixes that need the register and have at least
    /// `distinct_from` executions get a separate state. All others share the state of their class.
    fn choose_states(&self, distinct_from: u64, max_states: usize) -> Option<ContextAutomaton> {
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
        Some(ContextAutomaton { states, state_of, kept })
    }
}

/// An automaton with more states than the minimal one, but fewer than the trie.
struct ContextAutomaton {
    /// One of the prefixes that lead to each state.
    states: Vec<usize>,
    state_of: Vec<usize>,
    /// Number of executions of states that join edges with different register values.
    kept: f64,
}

impl ContextAutomaton {
    fn build_automaton(&self, dag: &Dag, trie: &PrefixTrie) -> KnownPathAutomaton {
        let transition =
            |(edge, to): &(DagEdgeId, Option<usize>)| RegionTransition { edge: *edge, to: to.map(|to| self.state_of[to]), unclear: false };
        let state = |at: &usize| {
            let KnownPrefix { node, transitions, .. } = &trie.prefixes[*at];
            debug_assert!(transitions.iter().all(|(e, _)| dag.edge(*e).from == *node));
            RegionState { node: *node, transitions: transitions.iter().map(transition).collect() }
        };
        KnownPathAutomaton { states: self.states.iter().map(state).collect() }
    }
}
