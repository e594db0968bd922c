//! An acyclic graph without some edges of the function: what is left of it are the edges on paths from entry to exit that take none of
//! them. Linear in the edges.

use crate::dag::{Dag, DagEdgeId, Origin};
use crate::graph::{Edge, Graph};

/// The graph without what is left out: for each edge its number there, and the graph. `None` if no path stays.
pub fn without(dag: &Dag, graph: &Graph, stays: &dyn Fn(Edge) -> bool) -> Option<(Vec<Option<DagEdgeId>>, Dag)> {
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
    let order: Vec<DagEdgeId> = dag.edge_ids().filter(whole).collect();
    if order.is_empty() {
        return None;
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
