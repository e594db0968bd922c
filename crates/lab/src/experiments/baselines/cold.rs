//! Plans that omit cold edges, so that paths which take a cold edge are not distinguished.
//!
//! The remaining paths are numbered from 0 to N-1. An omitted edge sets the path register to a value ("poison") from which all later
//! increments lead to N or above. Executions of omitted paths are therefore counted by additional counters after those of the N paths, and
//! no check is needed ("free poisoning", Bond and McKinley 2005). The number of additional counters follows from the sums of increments
//! from each block to the exit. If no edge is omitted, the plan is the exact plan for all paths.
use super::{Baseline, PartialPlan};
use trodden_flow::frequency::Frequencies;
use trodden_flow::limit::cut_to_limit;
use trodden_flow::plan::{Plan, PlanOptions, edge_frequencies, probe_costs};
use trodden_flow::trim::restrict_to_edges;
use trodden_flow::{CutReason, Dag, DagEdgeId, DagEdgeSet, Edge, EdgeSet, Graph, Node, Numbering, Origin, Probes};

#[derive(Clone, Debug)]
pub struct OmittedEdges {
    /// Edges that only mark that a call was reached. They are not part of the control flow, so they are never taken.
    pub excluded: EdgeSet,
    /// Rarely taken edges. Edges to the exit are kept even if they are in this set.
    pub cold: EdgeSet,
}

/// Returns a plan that counts the paths without omitted edges.
pub fn omit_edges(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    omitted: &OmittedEdges,
    options: &PlanOptions,
) -> Baseline {
    let is_cold = |e: Edge| omitted.cold.contains(e) && !omitted.excluded.contains(e) && graph.to(e) != graph.exit();
    let full = || Baseline::from_plan(Plan::ball_larus(graph, forced, frequencies, options));
    if !graph.edges().any(is_cold) {
        return full();
    }
    let is_kept = |e: Edge| !omitted.excluded.contains(e) && !is_cold(e);
    let dag = cut_kept_part(graph, forced, frequencies, &is_kept, options);
    let Some((kept, hot)) = restrict_to_edges(&dag, graph, &is_kept) else { return full() };
    let (kept, hot) = if options.hot_first { order_edges_by_frequency(&dag, graph, frequencies, kept, &hot) } else { (kept, hot) };
    let Ok(numbering) = Numbering::ball_larus(&hot) else { return full() };
    let chords = Probes::on_chords(&hot, numbering.values(), &probe_costs(&hot, graph, frequencies));
    let direct = Probes::direct(numbering.values());
    let poison_for = |probes: &Probes| find_poison_values(&dag, &hot, &kept, &numbering, probes);
    let max_overflow = 4 * numbering.paths() as i128 + 64;
    let (increments, poison, overflow) = match options.chords {
        true => Some(poison_for(&chords))
            .filter(|(_, _, overflow)| i128::from(*overflow) <= max_overflow)
            .unwrap_or_else(|| poison_for(&direct)),
        false => poison_for(&direct),
    };
    let kept = DagEdgeSet::from_fn(kept.len(), |edge| kept[edge.index()].is_some());
    let partial = PartialPlan { dag: hot, kept, excluded: omitted.excluded.clone(), poison, overflow };
    Baseline { dag, numbering, increments, partial: Some(partial) }
}

/// Reorders the edges of the acyclic graph by descending frequency, so that the hottest edges get the value 0.
fn order_edges_by_frequency(
    dag: &Dag,
    graph: &Graph,
    frequencies: &Frequencies,
    mut kept: Vec<Option<DagEdgeId>>,
    hot: &Dag,
) -> (Vec<Option<DagEdgeId>>, Dag) {
    let often = edge_frequencies(dag, graph, frequencies);
    let mut order: Vec<DagEdgeId> = dag.edge_ids().filter(|id| kept[id.index()].is_some()).collect();
    order.sort_by(|a, b| often[b.index()].total_cmp(&often[a.index()]));
    let hot = hot.with_reordered_edges(&order.iter().filter_map(|id| kept[id.index()]).collect::<Vec<_>>());
    order.iter().enumerate().for_each(|(i, id)| kept[id.index()] = Some(DagEdgeId(i as u32)));
    (kept, hot)
}

/// Returns the acyclic graph of all edges, after cutting edges until the part to keep has at most `options.max_paths` paths.
fn cut_kept_part(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    is_kept: &dyn Fn(Edge) -> bool,
    options: &PlanOptions,
) -> Dag {
    let all = Dag::new(graph, forced, options.entries);
    let kept: Vec<Edge> = graph.edges().filter(|e| is_kept(*e)).collect();
    let ends = kept.iter().map(|e| (graph.from(*e), graph.to(*e))).collect();
    let Ok(smaller) = Graph::new(graph.node_count() as u32, graph.entry(), graph.exit(), ends) else { return all };
    let measured = Frequencies::from_measured_counts(&smaller, kept.iter().map(|e| frequencies.edge(*e)).collect());
    let place = |e: Edge| kept.binary_search(&e).ok().map(|i| Edge(i as u32));
    let known: Vec<(Edge, CutReason)> = all.cuts().iter().filter_map(|c| Some((place(c.edge)?, c.reason))).collect();
    let limited = cut_to_limit(&smaller, &known, &measured, options.max_paths, options.entries);
    let mut cuts: Vec<(Edge, CutReason)> = all.cuts().iter().map(|c| (c.edge, c.reason)).collect();
    let more = limited.dag.cuts().iter().filter(|c| c.reason == CutReason::Limit);
    cuts.extend(more.map(|c| (kept[c.edge.index()], CutReason::Limit)));
    Dag::new(graph, &cuts, options.entries)
}

/// Returns the increments by edge of the complete graph, the poison, and the number of counters after the N path counters that poisoned
/// sums can reach.
fn find_poison_values(dag: &Dag, hot: &Dag, kept: &[Option<DagEdgeId>], numbering: &Numbering, probes: &Probes) -> (Vec<i64>, i64, u64) {
    let increments: Vec<i64> = kept.iter().map(|k| k.map_or(0, |id| probes.increment(id))).collect();
    let inside = |node: Node| node == hot.entry() || !hot.incoming(node).is_empty();
    let mut sums: Vec<Option<(i64, i64)>> = vec![None; dag.node_count()];
    let (mut min, mut max) = (0, 0);
    let join = |a: Option<(i64, i64)>, b: (i64, i64)| a.map_or(b, |a| (a.0.min(b.0), a.1.max(b.1)));
    for &node in dag.order().iter().rev() {
        let mut sum = (node == dag.exit()).then_some((0, 0));
        for &edge in dag.out(node) {
            let after = sums[dag.edge(edge).to.index()].unwrap_or((0, 0));
            let is_entry = matches!(dag.edge(edge).origin, Origin::Enter(_));
            match kept[edge.index()] {
                // Edges at the start of a path are ignored, because no path is poisoned before it starts.
                Some(_) if is_entry => {}
                Some(_) => {
                    let by = increments[edge.index()];
                    sum = Some(join(sum, (after.0.wrapping_add(by), after.1.wrapping_add(by))));
                }
                None => {
                    // On this edge, the register is poisoned, or was poisoned before.
                    (min, max) = (min.min(after.0), max.max(after.1));
                    if !inside(node) {
                        sum = Some(join(sum, after));
                    }
                }
            }
        }
        sums[node.index()] = sum;
    }
    let poison = (numbering.paths() as i64).wrapping_sub(min);
    (increments, poison, max.wrapping_sub(min) as u64 + 1)
}
