//! Known-path regions with several copies of a node: a node is copied for the contexts in which known paths go on from it differently.
//!
//! A region of edges ([`super::region`]) has each node once; then known paths can be combined to unknown ones, so that
//! some have to be left out, looked up where they end, or distinguished by the path register. With nodes copied for what
//! was taken before, none of that is needed: the code is the finite automaton of the known paths. The smallest one
//! (Myhill and Nerode: one state for all beginnings of paths behind which the same may follow) still keeps the register
//! where edges with different values meet and an unknown path may follow. A trie, in which nothing meets, keeps none,
//! and is large. So beginnings that are executed often are states of their own, as in a trie, and all others share
//! those of the smallest automaton:
//!
//! ```text
//!   known: a b d e, a c d f      one state for each node: d e, d f are to be distinguished      contexts: a ---> b ---> d ---> e
//!                                                                                                         `--> c ---> d' --> f
//! ```
//!
//! Which paths are in the region at all, and from how many executions on beginnings are kept separate, is tried; what costs least
//! is taken. Code is not free either ([`super::prices`]).

use super::KnownPath;
use super::automaton::{Automaton, RegionState, RegionTransition};
use super::prices::Prices;
use crate::dag::{Dag, DagEdgeId};
use crate::graph::Node;
use std::collections::{BTreeSet, HashMap};

/// Shares of all executions that are tried for the paths in the region, those executed most first. With the last alone, three programs
/// execute 1.0 to 8.2 % more, with the first and the last 0 to 2.7 % more (docs/benchmarks/constants.md).
const SHARES: [f64; 6] = [0.9, 0.97, 0.99, 0.997, 0.999, 1.0];
/// Beginnings are kept separate that are executed as often as all paths by these; 0: none is. With 0 alone, three programs execute 0.6 to
/// 5.1 % more, with 64 and 0 from 0 to 1.4 % more (docs/benchmarks/constants.md).
const PARTS: [u64; 5] = [4, 16, 64, 256, 0];
/// How many more states than twice its nodes a function may have. With 0, two of three programs execute 6 % more; with 160, one executes
/// 1.4 % less, and has 3 % more code (docs/benchmarks/constants.md).
const FEW_MORE: usize = 16;
/// Edges of all paths in a region, up to which it is tried: bounds the time and memory of a build.
const MOST_EDGES: usize = 200_000;

/// The cheapest region of contexts, if it costs less than `cost` with `nodes` states. Of the known paths with their executions.
pub fn cheapest(dag: &Dag, paths: &[KnownPath], prices: Prices, cost: f64, nodes: usize) -> Option<Automaton> {
    let all: u64 = paths.iter().map(|p| p.executions).fold(0, u64::saturating_add);
    let mut ranked: Vec<&KnownPath> = paths.iter().collect();
    ranked.sort_by_key(|p| std::cmp::Reverse(p.executions));
    let most = 2 * nodes + FEW_MORE;
    let mut best: Option<(f64, Automaton)> = None;
    let mut tried = BTreeSet::new();
    for share in SHARES {
        let (mut region, mut sum, mut edges) = (0, 0u64, 0);
        while region < ranked.len() && (sum as f64) < share * all as f64 {
            sum = sum.saturating_add(ranked[region].executions);
            edges += ranked[region].edges.len();
            region += 1;
        }
        if edges > MOST_EDGES || !tried.insert(region) {
            continue;
        }
        let trie = Trie::new(dag, &ranked[..region]);
        for part in PARTS {
            let distinct_from = all.checked_div(part).unwrap_or(u64::MAX);
            let Some(contexts) = trie.contexts(distinct_from, most) else { continue };
            let more = contexts.states.len().saturating_sub(nodes);
            let new = prices.executed((all - sum) as f64, 0.0, contexts.kept) + prices.copies(more);
            if new < best.as_ref().map_or(cost, |(least, _)| *least) {
                best = Some((new, contexts.automaton(dag, &trie)));
            }
        }
    }
    best.map(|(_, automaton)| automaton)
}

/// A beginning of paths.
struct Beginning {
    node: Node,
    /// Where it comes from.
    before: Option<(usize, DagEdgeId)>,
    executions: u64,
    /// What may follow: an edge, and the longer beginning; `None` where the path ends.
    transitions: Vec<(DagEdgeId, Option<usize>)>,
}

/// All beginnings of some paths, shorter ones first, with the states of the smallest automaton.
struct Trie {
    beginnings: Vec<Beginning>,
    /// For each beginning, its state in the smallest automaton.
    class: Vec<usize>,
    /// For each such state, whether unknown paths may follow.
    needed: Vec<bool>,
}

impl Trie {
    fn new(dag: &Dag, paths: &[&KnownPath]) -> Trie {
        let mut beginnings = vec![Beginning { node: dag.entry(), before: None, executions: 0, transitions: Vec::new() }];
        for path in paths {
            let mut at = 0;
            for &edge in &path.edges {
                beginnings[at].executions = beginnings[at].executions.saturating_add(path.own_executions());
                let known = beginnings[at].transitions.iter().find(|(e, _)| *e == edge).map(|(_, to)| *to);
                let to = known.unwrap_or_else(|| {
                    let head = dag.edge(edge).to;
                    let new = (head != dag.exit()).then_some(beginnings.len());
                    if new.is_some() {
                        beginnings.push(Beginning { node: head, before: Some((at, edge)), executions: 0, transitions: Vec::new() });
                    }
                    beginnings[at].transitions.push((edge, new));
                    new
                });
                at = to.unwrap_or(at);
            }
        }
        let mut trie = Trie { class: vec![0; beginnings.len()], beginnings, needed: Vec::new() };
        trie.classify(dag);
        trie
    }

    fn classify(&mut self, dag: &Dag) {
        let mut classes = HashMap::new();
        for at in (0..self.beginnings.len()).rev() {
            let Beginning { node, transitions, .. } = &self.beginnings[at];
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

    /// The states, if they are not more than `most`: beginnings that are executed so often are states of their own,
    /// others are of their class.
    fn contexts(&self, distinct_from: u64, most: usize) -> Option<Contexts> {
        let mut of_class = vec![None; self.needed.len()];
        let (mut state_of, mut states) = (vec![0; self.beginnings.len()], Vec::<usize>::new());
        let (mut arriving, mut into) = (Vec::<u64>::new(), Vec::<Option<(usize, DagEdgeId)>>::new());
        let mut meets = Vec::new();
        for (at, beginning) in self.beginnings.iter().enumerate() {
            let class = self.class[at];
            let distinct = self.needed[class] && beginning.executions >= distinct_from;
            let known = if distinct { None } else { of_class[class] };
            let state = known.unwrap_or(states.len());
            let from = beginning.before.map(|(before, edge)| (state_of[before], edge));
            if known.is_none() {
                states.push(at);
                arriving.push(0);
                into.push(from);
                meets.push(false);
                if states.len() > most {
                    return None;
                }
            }
            if !distinct {
                of_class[class] = Some(state);
            }
            state_of[at] = state;
            arriving[state] = arriving[state].saturating_add(beginning.executions);
            meets[state] |= into[state] != from;
        }
        let kept = (0..states.len()).filter(|s| meets[*s] && self.needed[self.class[states[*s]]]).map(|s| arriving[s] as f64).sum();
        Some(Contexts { states, state_of, kept })
    }
}

/// States in which some beginnings are states of their own.
struct Contexts {
    /// A beginning of each state.
    states: Vec<usize>,
    /// The state of each beginning.
    state_of: Vec<usize>,
    /// How often the register is set because edges with different values of it meet.
    kept: f64,
}

impl Contexts {
    fn automaton(&self, dag: &Dag, trie: &Trie) -> Automaton {
        let transition =
            |(edge, to): &(DagEdgeId, Option<usize>)| RegionTransition { edge: *edge, to: to.map(|to| self.state_of[to]), unclear: false };
        let state = |at: &usize| {
            let Beginning { node, transitions, .. } = &trie.beginnings[*at];
            debug_assert!(transitions.iter().all(|(e, _)| dag.edge(*e).from == *node));
            RegionState { node: *node, transitions: transitions.iter().map(transition).collect() }
        };
        Automaton { states: self.states.iter().map(state).collect() }
    }
}
