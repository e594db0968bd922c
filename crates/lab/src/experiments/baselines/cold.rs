//! Plans that leave edges out: paths that take one are not distinguished, and cost nothing more.
//!
//! The paths that take none are numbered from 0 to N-1 as ever. On an edge that is left out the register is set to a
//! number so high ("poisoned") that whatever is added to it until the path ends, the sum is not below N: the words
//! behind those of the N paths count such executions, and no check is needed ("free poisoning", Bond and McKinley
//! 2005). How many words that takes follows from the sums of increments from each block on.
//!
//! Invariant: where nothing is left out, the plan is that of all paths, and exact.

use super::{Baseline, LeftOut};
use trodden_flow::frequency::Frequencies;
use trodden_flow::limit::cut_to_limit;
use trodden_flow::plan::{Plan, PlanOptions, edge_frequencies, probe_costs};
use trodden_flow::trim::without;
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Graph, Node, Numbering, Origin, Probes};

/// What is left out, by edge of the graph.
#[derive(Clone, Debug)]
pub struct Left {
    /// Edges that are no part of the flow (they say that a call was reached): never taken.
    pub excluded: Vec<bool>,
    /// Edges that are hardly ever taken. Those to the exit are kept all the same.
    pub cold: Vec<bool>,
}

/// Numbers the paths without the edges that are left out.
pub fn leave_out(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, left: &Left, options: &PlanOptions) -> Baseline {
    let is_cold = |e: Edge| left.cold[e.index()] && !left.excluded[e.index()] && graph.to(e) != graph.exit();
    let full = || Baseline::from_plan(Plan::ball_larus(graph, forced, frequencies, options));
    if !graph.edges().any(is_cold) {
        return full();
    }
    let stays = |e: Edge| !left.excluded[e.index()] && !is_cold(e);
    let dag = cut_what_stays(graph, forced, frequencies, &stays, options);
    let Some((kept, hot)) = without(&dag, graph, &stays) else { return full() };
    let (kept, hot) = if options.hot_first { hottest_first(&dag, graph, frequencies, kept, &hot) } else { (kept, hot) };
    let Ok(numbering) = Numbering::ball_larus(&hot) else { return full() };
    let chords = Probes::on_chords(&hot, numbering.values(), &probe_costs(&hot, graph, frequencies));
    let direct = Probes::direct(numbering.values());
    let by = |probes: &Probes| poisoned(&dag, &hot, &kept, &numbering, probes);
    let many = 4 * numbering.paths() as i128 + 64;
    let (increments, poison, overflow) = match options.chords {
        true => Some(by(&chords)).filter(|(_, _, overflow)| i128::from(*overflow) <= many).unwrap_or_else(|| by(&direct)),
        false => by(&direct),
    };
    let kept = kept.iter().map(Option::is_some).collect();
    let left_out = LeftOut { dag: hot, kept, excluded: left.excluded.clone(), poison, overflow };
    Baseline { dag, numbering, increments, left_out: Some(left_out) }
}

/// The acyclic graph with the edges that are taken most often first, so that these have the value 0.
fn hottest_first(
    dag: &Dag,
    graph: &Graph,
    frequencies: &Frequencies,
    mut kept: Vec<Option<DagEdgeId>>,
    hot: &Dag,
) -> (Vec<Option<DagEdgeId>>, Dag) {
    let often = edge_frequencies(dag, graph, frequencies);
    let mut order: Vec<DagEdgeId> = dag.edge_ids().filter(|id| kept[id.index()].is_some()).collect();
    order.sort_by(|a, b| often[b.index()].total_cmp(&often[a.index()]));
    let hot = hot.in_order(&order.iter().filter_map(|id| kept[id.index()]).collect::<Vec<_>>());
    order.iter().enumerate().for_each(|(i, id)| kept[id.index()] = Some(DagEdgeId(i as u32)));
    (kept, hot)
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
                // What comes here poisoned is not at the function's entry.
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
