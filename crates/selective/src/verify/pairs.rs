//! Searches for two paths with the same sums, exactly, over pairs of nodes and the difference of the sums so far.
//!
//! One path is interesting, the other is any path. Both advance together until they diverge; afterwards, the one whose node comes first in
//! topological order advances. A search state consists of two nodes, each path's state as an interesting path, and the difference of the
//! sums. A state is dropped if the least and greatest sums from its nodes to the exit show that the difference cannot become zero. Each
//! state is visited once, so the caller limits the work by the number of states. Sums are exact integers, and the search requires that all
//! of them fit into a word.

use super::paths::MarkedPaths;
use crate::{Labelling, PathClass};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use trodden_flow::dag::{Dag, DagEdgeId, DagEdgeSet};
use trodden_flow::graph::Node;

/// An interesting path and a different one.
pub type InterestingPair = (Vec<DagEdgeId>, Vec<DagEdgeId>);

pub struct PairSearch {
    /// Two interesting paths with the same sums.
    pub interesting: Option<InterestingPair>,
    /// An interesting path and an uninteresting one with the same sums.
    pub other: Option<InterestingPair>,
}

type RegisterSums = [i128; 2];

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PairState {
    /// The interesting path's node, and its automaton state ([`MarkedPaths::step`]).
    first: (Node, u32),
    /// The other path's node, and its automaton state as long as the path may be interesting.
    second: (Node, Option<u32>),
    differ: bool,
    difference: RegisterSums,
}

struct VisitedPairState {
    state: PairState,
    before: usize,
    edges: (Option<DagEdgeId>, Option<DagEdgeId>),
}

/// Searches for paths with the same sums. Returns `None` if there are more than `max_states` states, or if a sum does not fit into a word.
pub fn search_pairs(dag: &Dag, members: &MarkedPaths, labelling: &Labelling, max_states: usize) -> Option<PairSearch> {
    let all = DagEdgeSet::full(dag.edges().len());
    let (region, outside) = (sum_bounds(dag, &members.edges(dag), labelling), sum_bounds(dag, &all, labelling));
    let fits = |b: &[(i128, i128); 2]| b.iter().all(|(low, high)| *low >= i128::from(i64::MIN) && *high <= i128::from(i64::MAX));
    if !outside[dag.entry().index()].as_ref().is_some_and(fits) {
        return None;
    }
    let place = dag.topological_positions();
    let start = PairState { first: (dag.entry(), 0), second: (dag.entry(), Some(0)), differ: false, difference: [0, 0] };
    let mut visits = vec![VisitedPairState { state: start, before: 0, edges: (None, None) }];
    let mut seen = HashSet::from([start]);
    let mut open = vec![0];
    let mut found = PairSearch { interesting: None, other: None };
    while let Some(at) = open.pop() {
        let state = visits[at].state;
        if state.differ && state.first.0 == dag.exit() && state.second.0 == dag.exit() {
            let of = if state.second.1.is_some() { &mut found.interesting } else { &mut found.other };
            if of.is_none() {
                *of = Some(trace_back_paths(&visits, at));
            }
            if found.interesting.is_some() && found.other.is_some() {
                break;
            }
            continue;
        }
        let too_many = for_each_successor(dag, members, labelling, &place, state, &mut |next, edges| {
            let rests = (region[next.first.0.index()], outside[next.second.0.index()]);
            let (Some(a), Some(b)) = rests else { return ControlFlow::Continue(()) };
            // The difference, plus the possible sums of the first path, minus those of the second, must include zero.
            let can = |i: usize| next.difference[i] + a[i].0 - b[i].1 <= 0 && next.difference[i] + a[i].1 - b[i].0 >= 0;
            if (!next.differ || (can(0) && can(1))) && seen.insert(next) {
                if seen.len() > max_states {
                    return ControlFlow::Break(());
                }
                visits.push(VisitedPairState { state: next, before: at, edges });
                open.push(visits.len() - 1);
            }
            ControlFlow::Continue(())
        });
        if too_many.is_break() {
            return None;
        }
    }
    Some(found)
}

type EdgePair = (Option<DagEdgeId>, Option<DagEdgeId>);

/// Calls `visit` with each successor of a state until `visit` breaks. There may be too many successors to collect them.
fn for_each_successor(
    dag: &Dag,
    members: &MarkedPaths,
    labelling: &Labelling,
    place: &[usize],
    state: PairState,
    visit: &mut dyn FnMut(PairState, EdgePair) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let sums = |e: DagEdgeId| labelling.increments(e).map(i128::from);
    if !state.differ {
        for &e in dag.out(state.first.0) {
            let Some(first) = members.step(state.first.1, e) else { continue };
            for &f in dag.out(state.first.0) {
                let second = (dag.edge(f).to, state.second.1.and_then(|s| members.step(s, f)));
                let (a, b) = (sums(e), sums(f));
                let difference = [a[0] - b[0], a[1] - b[1]];
                let next = PairState { first: (dag.edge(e).to, first), second, differ: e != f, difference };
                visit(next, (Some(e), Some(f)))?;
            }
        }
    } else if place[state.first.0.index()] <= place[state.second.0.index()] && state.first.0 != dag.exit() {
        for &e in dag.out(state.first.0) {
            let Some(first) = members.step(state.first.1, e) else { continue };
            let a = sums(e);
            let difference = [state.difference[0] + a[0], state.difference[1] + a[1]];
            visit(PairState { first: (dag.edge(e).to, first), difference, ..state }, (Some(e), None))?;
        }
    } else {
        for &f in dag.out(state.second.0) {
            let second = (dag.edge(f).to, state.second.1.and_then(|s| members.step(s, f)));
            let b = sums(f);
            let difference = [state.difference[0] - b[0], state.difference[1] - b[1]];
            visit(PairState { second, difference, ..state }, (None, Some(f)))?;
        }
    }
    ControlFlow::Continue(())
}

fn trace_back_paths(visits: &[VisitedPairState], mut at: usize) -> InterestingPair {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    while at != 0 {
        first.extend(visits[at].edges.0);
        second.extend(visits[at].edges.1);
        at = visits[at].before;
    }
    first.reverse();
    second.reverse();
    (first, second)
}

/// Returns the least and greatest sum in each register on marked edges from each node to the exit.
fn sum_bounds(dag: &Dag, marked: &DagEdgeSet, labelling: &Labelling) -> Vec<Option<[(i128, i128); 2]>> {
    let mut bounds: Vec<Option<[(i128, i128); 2]>> = vec![None; dag.node_count()];
    bounds[dag.exit().index()] = Some([(0, 0), (0, 0)]);
    for &node in dag.order().iter().rev() {
        for &edge in dag.out(node).iter().filter(|e| marked.contains(**e)) {
            let Some(rest) = bounds[dag.edge(edge).to.index()] else { continue };
            let step = labelling.increments(edge).map(i128::from);
            let through = [0, 1].map(|i| (rest[i].0 + step[i], rest[i].1 + step[i]));
            let here = &mut bounds[node.index()];
            *here = Some(here.map_or(through, |h| [0, 1].map(|i| (h[i].0.min(through[i].0), h[i].1.max(through[i].1)))));
        }
    }
    bounds
}

pub fn interesting_number_range(dag: &Dag, members: &MarkedPaths, labelling: &Labelling) -> Option<(i64, i64)> {
    let (low, high) = sum_bounds(dag, &members.edges(dag), labelling)[dag.entry().index()]?[0];
    Some((low.try_into().ok()?, high.try_into().ok()?))
}

/// Numbers of paths by their sums and automaton state.
type PathCountsBySums = HashMap<([i64; 2], Option<u32>), u128>;

/// Returns the number of uninteresting paths recognised as interesting, or `None` if there are more than `max_states` sums.
pub fn count_aliases(dag: &Dag, members: &MarkedPaths, labelling: &Labelling, max_states: usize) -> Option<u128> {
    // A path's automaton state is `None` if the path is not interesting, so paths with the same sums are counted separately.
    let mut states: Vec<PathCountsBySums> = vec![PathCountsBySums::new(); dag.node_count()];
    states[dag.entry().index()].insert(([0, 0], Some(0)), 1);
    let mut size = 1;
    for &node in dag.order().iter().filter(|n| **n != dag.exit()) {
        for ((sums, member), paths) in std::mem::take(&mut states[node.index()]) {
            for &edge in dag.out(node) {
                let step = labelling.increments(edge);
                let key = ([0, 1].map(|i| sums[i].wrapping_add(step[i])), member.and_then(|m| members.step(m, edge)));
                let there = states[dag.edge(edge).to.index()].entry(key).or_insert_with(|| {
                    size += 1;
                    0
                });
                *there = there.saturating_add(paths);
            }
        }
        if size > max_states {
            return None;
        }
    }
    let aliased =
        |(sums, member): &([i64; 2], Option<u32>)| member.is_none() && matches!(labelling.classify(dag, *sums), PathClass::Known(_));
    Some(states[dag.exit().index()].iter().filter(|(key, _)| aliased(key)).map(|(_, paths)| *paths).sum())
}
