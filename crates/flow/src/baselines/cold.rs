//! Plans that leave edges out: paths that take one are not told apart, and cost nothing more.
//!
//! The paths that take none are numbered from 0 to N-1 as ever. On an edge that is left out the register is set to a
//! number so high ("poisoned") that whatever is added to it until the path ends, the sum is not below N: the words
//! behind those of the N paths count such executions, and no check is needed ("free poisoning", Bond and McKinley
//! 2005). How many words that takes follows from the sums of increments from each block on.
//!
//! Invariant: where nothing is left out, the plan is that of all paths, and exact.

use crate::dag::{CutReason, Dag, DagEdgeId, Origin};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph, Node};
use crate::limit::cut_to_limit;
use crate::numbering::Numbering;
use crate::placement::Probes;
use crate::plan::{Partial, Plan, PlanOptions, edge_frequencies, probe_costs};

/// What is left out, by edge of the graph.
#[derive(Clone, Debug)]
pub struct Left {
    /// Edges that are no part of the flow (they say that a call was reached): never taken.
    pub aside: Vec<bool>,
    /// Edges that are hardly ever taken. Those to the exit are kept all the same.
    pub cold: Vec<bool>,
}

/// Numbers the paths without the edges that are left out.
pub fn leave_out(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, left: &Left, options: &PlanOptions) -> Plan {
    let is_cold = |e: Edge| left.cold[e.index()] && !left.aside[e.index()] && graph.to(e) != graph.exit();
    let full = || Plan::ball_larus(graph, forced, frequencies, options);
    if !graph.edges().any(is_cold) {
        return full();
    }
    let stays = |e: Edge| !left.aside[e.index()] && !is_cold(e);
    let dag = cut_what_stays(graph, forced, frequencies, &stays, options);
    let Some((kept, hot)) = without(&dag, graph, frequencies, &stays, options.hot_first) else { return full() };
    let Ok(numbering) = Numbering::ball_larus(&hot) else { return full() };
    let chords = Probes::on_chords(&hot, numbering.values(), &probe_costs(&hot, graph, frequencies));
    let direct = Probes::direct(numbering.values());
    let by = |probes: &Probes| poisoned(&dag, &hot, &kept, &numbering, probes);
    let many = 4 * numbering.paths() as i128 + 64;
    let (increments, poison, beyond) = match options.chords {
        true => Some(by(&chords)).filter(|(_, _, beyond)| i128::from(*beyond) <= many).unwrap_or_else(|| by(&direct)),
        false => by(&direct),
    };
    let partial = Partial { dag: hot, kept: kept.iter().map(Option::is_some).collect(), aside: left.aside.clone(), poison, beyond };
    Plan { dag, numbering, probes: Probes::of(increments), partial: Some(partial), share: None }
}

/// The acyclic graph of everything, cut until the paths that stay are few enough.
fn cut_what_stays(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    stays: &dyn Fn(Edge) -> bool,
    options: &PlanOptions,
) -> Dag {
    let all = Dag::new(graph, forced, options.entries);
    let kept: Vec<Edge> = graph.edges().filter(|e| stays(*e)).collect();
    let ends = kept.iter().map(|e| (graph.from(*e), graph.to(*e))).collect();
    let Ok(smaller) = Graph::new(graph.node_count() as u32, graph.entry(), graph.exit(), ends) else { return all };
    let measured = Frequencies::measured(&smaller, kept.iter().map(|e| frequencies.edge(*e)).collect());
    let place = |e: Edge| kept.binary_search(&e).ok().map(|i| Edge(i as u32));
    let known: Vec<(Edge, CutReason)> = all.cuts().iter().filter_map(|c| Some((place(c.edge)?, c.reason))).collect();
    let limited = cut_to_limit(&smaller, &known, &measured, options.max_paths, options.entries);
    let mut cuts: Vec<(Edge, CutReason)> = all.cuts().iter().map(|c| (c.edge, c.reason)).collect();
    let more = limited.dag.cuts().iter().filter(|c| c.reason == CutReason::Limit);
    cuts.extend(more.map(|c| (kept[c.edge.index()], CutReason::Limit)));
    Dag::new(graph, &cuts, options.entries)
}

/// The graph without what is left out: for each edge its number there, and the graph. `None` if no path stays.
pub(crate) fn without(
    dag: &Dag,
    graph: &Graph,
    frequencies: &Frequencies,
    stays: &dyn Fn(Edge) -> bool,
    hot_first: bool,
) -> Option<(Vec<Option<DagEdgeId>>, Dag)> {
    let live = reached(graph, stays);
    let allowed = |id: DagEdgeId| match dag.edge(id).origin {
        Origin::Real(e) => stays(e),
        Origin::Enter(e) => live[graph.to(e).index()],
        Origin::Leave(_) | Origin::Stop(_) => true,
    };
    let mut from_entry = vec![false; dag.node_count()];
    let mut to_exit = vec![false; dag.node_count()];
    from_entry[dag.entry().index()] = true;
    to_exit[dag.exit().index()] = true;
    for &node in dag.order().iter().filter(|n| **n != dag.exit()) {
        if from_entry[node.index()] {
            dag.out(node).iter().filter(|e| allowed(**e)).for_each(|e| from_entry[dag.edge(*e).to.index()] = true);
        }
    }
    for &node in dag.order().iter().rev().filter(|n| **n != dag.exit()) {
        to_exit[node.index()] = dag.out(node).iter().any(|e| allowed(*e) && to_exit[dag.edge(*e).to.index()]);
    }
    let whole = |id: &DagEdgeId| allowed(*id) && from_entry[dag.edge(*id).from.index()] && to_exit[dag.edge(*id).to.index()];
    let mut order: Vec<DagEdgeId> = dag.edge_ids().filter(whole).collect();
    if order.is_empty() {
        return None;
    }
    if hot_first {
        let often = edge_frequencies(dag, graph, frequencies);
        order.sort_by(|a, b| often[b.index()].total_cmp(&often[a.index()]));
    }
    let mut kept = vec![None; dag.edges().len()];
    order.iter().enumerate().for_each(|(i, id)| kept[id.index()] = Some(DagEdgeId(i as u32)));
    let edges = order.iter().map(|id| dag.edge(*id)).collect();
    Some((kept, Dag::from_edges(dag.node_count() as u32, dag.entry(), dag.exit(), edges).ok()?))
}

/// The nodes that control reaches along edges that stay.
fn reached(graph: &Graph, stays: &dyn Fn(Edge) -> bool) -> Vec<bool> {
    let mut seen = vec![false; graph.node_count()];
    let mut stack = vec![graph.entry()];
    seen[graph.entry().index()] = true;
    while let Some(node) = stack.pop() {
        for &edge in graph.out(node).iter().filter(|e| stays(**e)) {
            if !std::mem::replace(&mut seen[graph.to(edge).index()], true) {
                stack.push(graph.to(edge));
            }
        }
    }
    seen
}

/// The increments by edge of the whole graph, the poison, and how many numbers from the number of paths on poisoned sums may have.
fn poisoned(dag: &Dag, hot: &Dag, kept: &[Option<DagEdgeId>], numbering: &Numbering, probes: &Probes) -> (Vec<i64>, i64, u64) {
    let increments: Vec<i64> = kept.iter().map(|k| k.map_or(0, |id| probes.increment(id))).collect();
    let inside = |node: Node| node == hot.entry() || !hot.incoming(node).is_empty();
    let mut sums: Vec<Option<(i64, i64)>> = vec![None; dag.node_count()];
    let (mut least, mut most) = (0, 0);
    let join = |a: Option<(i64, i64)>, b: (i64, i64)| a.map_or(b, |a| (a.0.min(b.0), a.1.max(b.1)));
    for &node in dag.order().iter().rev() {
        let mut sum = (node == dag.exit()).then_some((0, 0));
        for &edge in dag.out(node) {
            let behind = sums[dag.edge(edge).to.index()].unwrap_or((0, 0));
            let is_entry = matches!(dag.edge(edge).origin, Origin::Enter(_));
            match kept[edge.index()] {
                // Whoever comes here poisoned is not at the function's entry.
                Some(_) if is_entry => {}
                Some(_) => {
                    let by = increments[edge.index()];
                    sum = Some(join(sum, (behind.0.wrapping_add(by), behind.1.wrapping_add(by))));
                }
                None => {
                    // The register is poisoned here, or was before.
                    (least, most) = (least.min(behind.0), most.max(behind.1));
                    if !inside(node) {
                        sum = Some(join(sum, behind));
                    }
                }
            }
        }
        sums[node.index()] = sum;
    }
    let poison = (numbering.paths() as i64).wrapping_sub(least);
    (increments, poison, most.wrapping_sub(least) as u64 + 1)
}
