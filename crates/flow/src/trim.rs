//! Removes edges of a function from its acyclic graph, and all edges that are then not on a path from entry to exit. Linear in the edges.

use crate::dag::{Dag, DagEdgeId, Origin};
use crate::graph::{Edge, Graph, Node, NodeSet, postorder};

/// Restricts the graph to the edges for which `stays` returns true. Returns the new ID of each edge (`None` if the edge is removed) and the
/// new graph, or `None` if no path remains.
pub fn restrict_to_edges(dag: &Dag, graph: &Graph, stays: &dyn Fn(Edge) -> bool) -> Option<(Vec<Option<DagEdgeId>>, Dag)> {
    let live = find_reached_nodes(graph, stays);
    let allowed = |id: DagEdgeId| match dag.edge(id).origin {
        Origin::Real(e) => stays(e),
        Origin::Enter(e) => live.contains(graph.to(e)),
        Origin::Leave(_) | Origin::Stop(_) => true,
    };
    let order: Vec<DagEdgeId> = dag.edges_on_marked_paths(allowed).iter().collect();
    if order.is_empty() {
        return None;
    }
    let mut new_ids = vec![None; dag.edges().len()];
    order.iter().enumerate().for_each(|(i, id)| new_ids[id.index()] = Some(DagEdgeId(i as u32)));
    let edges = order.iter().map(|id| dag.edge(*id)).collect();
    Some((new_ids, Dag::from_edges(dag.node_count() as u32, dag.entry(), dag.exit(), edges).ok()?))
}

fn find_reached_nodes(graph: &Graph, stays: &dyn Fn(Edge) -> bool) -> NodeSet {
    let mut seen = vec![false; graph.node_count()];
    let next = |node: usize| graph.out(Node(node as u32)).iter().filter(|e| stays(**e)).map(|e| graph.to(*e).index());
    let found = postorder(graph.entry().index(), &mut seen, next);
    NodeSet::from_members(graph.node_count(), found.into_iter().map(|node| Node(node as u32)))
}
