//! Converts a graph with loops to the acyclic graph whose paths are numbered.
//!
//! Source: Ball and Larus, "Efficient path profiling" (1996), section 3.5; Vaswani's thesis, section 3.2.2 (which prints the two dummy
//! edges in the wrong direction). A cut edge `v -> h` is replaced by two dummy edges: `v -> exit` ([`Origin::Leave`]), which ends a path,
//! and `entry -> h` ([`Origin::Enter`]), which begins the next one. Most cut edges are back edges; [`CutReason`] lists the other reasons.
//!
//! [`Dag`] states the invariants.

use crate::dense_set::DenseSet;
use crate::graph::{Edge, Graph, Node, NodeSet, postorder};
use crate::incidence::Incidence;
use crate::indices;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod origin;

pub use origin::{CutReason, DagEdge, Origin};

/// The index of an edge in [`Dag::edges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DagEdgeId(pub u32);

indices!(DagEdgeId);

/// A set of the edges of a [`Dag`].
pub type DagEdgeSet = DenseSet<DagEdgeId>;

/// A cut edge and the dummy edges that replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The edge that was cut.
    pub edge: Edge,
    /// The reason why the edge was cut.
    pub reason: CutReason,
    /// The dummy edge that begins a path at the head, or `None` if the head is the entry, where paths begin without a dummy edge.
    pub enter: Option<DagEdgeId>,
    /// The dummy edge that ends a path at the tail, or `None` if the tail is the exit, where paths end without a dummy edge.
    pub leave: Option<DagEdgeId>,
}

/// Whether cut edges with the same head share the dummy edge from the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Each cut edge has a separate dummy edge, as published. Paths are then also distinguished by the cut edge before their first block.
    PerEdge,
    /// All cut edges with the same head share one dummy edge. There are fewer paths, but with the same block sequences.
    Shared,
}

/// An acyclic graph with the same nodes as a [`Graph`]. The graph and the origins of the DAG's edges determine the DAG
/// ([`Dag::from_origins`]), so only the origins are stored with the graph.
///
/// Invariants:
/// - The graph has no cycles. All nodes with edges are reachable from the entry, and the exit is reachable from them.
/// - No edge enters the entry, and none leaves the exit.
/// - A reachable node without out-edges (a path that ends without returning) has an edge to the exit ([`Origin::Stop`]).
/// - Out-edges are ordered: real edges by number, then dummy edges in the order of the cuts, unless [`Dag::with_reordered_edges`] reordered
///   them.
#[derive(Clone, Debug)]
pub struct Dag {
    entry: Node,
    exit: Node,
    edges: Vec<DagEdge>,
    out: Incidence<DagEdgeId>,
    into: Incidence<DagEdgeId>,
    nodes: usize,
    order: Vec<Node>,
    cuts: Vec<Cut>,
    real: Vec<Option<DagEdgeId>>,
}

impl Dag {
    /// Creates the DAG of a graph. Cuts the `forced` edges, and then all edges that still close a cycle.
    pub fn new(graph: &Graph, forced: &[(Edge, CutReason)], entries: Entries) -> Dag {
        let mut cut = vec![None; graph.edge_count()];
        for &(edge, reason) in forced {
            cut[edge.index()] = Some(reason);
        }
        for &edge in graph.out(graph.exit()) {
            cut[edge.index()].get_or_insert(CutReason::FromExit);
        }
        let reachable = cut_retreating_edges(graph, &mut cut);
        build_dag(graph, &cut, &reachable, entries)
    }

    /// Rebuilds a DAG from the graph and the stored [origins](Dag::origins) of its edges. `cuts` are the cut edges of the graph. If several
    /// cut edges share an [`Origin::Enter`] edge, only the cut edge that the origin names refers to it. Fails if an origin does not belong
    /// to the graph or contradicts the cuts, or if an invariant of [`Dag`] is violated. The error describes the first fault.
    pub fn from_origins(graph: &Graph, origins: &[Origin], cuts: &[(Edge, CutReason)]) -> Result<Dag, String> {
        let reasons: BTreeMap<Edge, CutReason> = cuts.iter().copied().collect();
        let mut named = reasons.keys().copied().chain(origins.iter().filter_map(|origin| origin.edge()));
        if let Some(bad) = named.find(|edge| edge.index() >= graph.edge_count()) {
            return Err(format!("edge {} does not exist", bad.0));
        }
        for origin in origins {
            match *origin {
                Origin::Real(edge) if reasons.contains_key(&edge) => return Err(format!("edge {} is cut, but it is on paths", edge.0)),
                Origin::Enter(edge) | Origin::Leave(edge) if !reasons.contains_key(&edge) => {
                    return Err(format!("edge {} is not cut, but dummy edges replace it", edge.0));
                }
                Origin::Stop(node) if node.index() >= graph.node_count() => return Err(format!("node {} does not exist", node.0)),
                _ => {}
            }
        }
        let edges = origins.iter().map(|origin| origin.dag_edge(graph)).collect();
        let mut dag = Dag::from_edges(graph.node_count() as u32, graph.entry(), graph.exit(), edges)?;
        dag.cuts.iter_mut().for_each(|cut| cut.reason = reasons[&cut.edge]);
        Ok(dag)
    }

    /// Builds a DAG from some edges of a different DAG. The cuts are recovered from the origins of the edges. The error describes the first
    /// violated invariant of [`Dag`].
    pub fn from_edges(nodes: u32, entry: Node, exit: Node, edges: Vec<DagEdge>) -> Result<Dag, String> {
        if entry.0 >= nodes || exit.0 >= nodes || entry == exit {
            return Err(format!("entry {} and exit {} are not two different nodes of {nodes}", entry.0, exit.0));
        }
        if let Some(bad) = edges.iter().find(|e| e.from.0 >= nodes || e.to.0 >= nodes || e.from == exit || e.to == entry) {
            return Err(format!(
                "edge {} -> {} enters the entry, leaves the exit, or names a node that does not exist",
                bad.from.0, bad.to.0
            ));
        }
        let mut dag = Dag::assemble_dag(nodes as usize, entry, exit, edges, Vec::new(), 0);
        let mut position = vec![None; nodes as usize];
        for (i, node) in dag.order.iter().enumerate() {
            position[node.index()] = Some(i);
        }
        for edge in &dag.edges {
            match (position[edge.from.index()], position[edge.to.index()]) {
                (Some(from), Some(to)) if from < to => {}
                (None, _) => return Err(format!("edge {} -> {} cannot be reached from the entry", edge.from.0, edge.to.0)),
                _ => return Err(format!("edge {} -> {} closes a cycle", edge.from.0, edge.to.0)),
            }
        }
        if let Some(dead) = dag.order.iter().find(|&&n| n != exit && dag.out(n).is_empty()) {
            return Err(format!("node {} has no out-edge", dead.0));
        }
        dag.recover_cuts();
        Ok(dag)
    }

    /// Returns the same graph with reordered edges, and thus reordered out-edges of each node. `order` must contain each edge once.
    pub fn with_reordered_edges(&self, order: &[DagEdgeId]) -> Dag {
        let mut new_ids = vec![DagEdgeId(0); self.edges.len()];
        for (i, id) in order.iter().enumerate() {
            new_ids[id.index()] = DagEdgeId(i as u32);
        }
        let moved = |id: Option<DagEdgeId>| id.map(|id| new_ids[id.index()]);
        let cuts = self.cuts.iter().map(|c| Cut { enter: moved(c.enter), leave: moved(c.leave), ..*c }).collect();
        let edges = order.iter().map(|id| self.edge(*id)).collect();
        Dag::assemble_dag(self.nodes, self.entry, self.exit, edges, cuts, self.real.len())
    }

    /// Returns the node where paths begin.
    pub fn entry(&self) -> Node {
        self.entry
    }

    /// Returns the node where paths end.
    pub fn exit(&self) -> Node {
        self.exit
    }

    /// Returns the number of nodes of the underlying graph, reachable or not.
    pub fn node_count(&self) -> usize {
        self.nodes
    }

    /// Returns all edges.
    pub fn edges(&self) -> &[DagEdge] {
        &self.edges
    }

    /// Returns the origins of all edges, from which the DAG can be [rebuilt](Dag::from_origins).
    pub fn origins(&self) -> Vec<Origin> {
        self.edges.iter().map(|edge| edge.origin).collect()
    }

    /// Returns the IDs of all edges.
    pub fn edge_ids(&self) -> impl Iterator<Item = DagEdgeId> + use<> {
        (0..self.edges.len() as u32).map(DagEdgeId)
    }

    /// Returns the edge with the given ID.
    pub fn edge(&self, id: DagEdgeId) -> DagEdge {
        self.edges[id.index()]
    }

    /// Returns the edges that leave a node, in the order in which numberings visit them.
    pub fn out(&self, node: Node) -> &[DagEdgeId] {
        self.out.of(node.index())
    }

    /// Returns the edges that enter a node.
    pub fn incoming(&self, node: Node) -> &[DagEdgeId] {
        self.into.of(node.index())
    }

    /// Returns the reachable nodes in topological order, the entry first.
    pub fn order(&self) -> &[Node] {
        &self.order
    }

    /// Returns the position of each node in the topological order, or 0 for an unreachable node.
    pub fn topological_positions(&self) -> Vec<usize> {
        let mut positions = vec![0; self.node_count()];
        self.order.iter().enumerate().for_each(|(at, node)| positions[node.index()] = at);
        positions
    }

    /// Returns the nodes that are reachable from `node` over marked edges, including `node`.
    pub fn nodes_reached_from(&self, node: Node, marked: impl Fn(DagEdgeId) -> bool) -> NodeSet {
        let mut reached = NodeSet::from_members(self.node_count(), [node]);
        for node in &self.order {
            let mut into = self.incoming(*node).iter().filter(|id| marked(**id));
            if into.any(|id| reached.contains(self.edge(*id).from)) {
                reached.insert(*node);
            }
        }
        reached
    }

    /// Returns the nodes from which `node` is reachable over marked edges, including `node`.
    pub fn nodes_leading_to(&self, node: Node, marked: impl Fn(DagEdgeId) -> bool) -> NodeSet {
        let mut leads = NodeSet::from_members(self.node_count(), [node]);
        for node in self.order.iter().rev() {
            let mut out = self.out(*node).iter().filter(|id| marked(**id));
            if out.any(|id| leads.contains(self.edge(*id).to)) {
                leads.insert(*node);
            }
        }
        leads
    }

    /// Returns the edges on paths from entry to exit that consist of marked edges.
    pub fn edges_on_marked_paths(&self, marked: impl Fn(DagEdgeId) -> bool) -> DagEdgeSet {
        let (reached, leads) = (self.nodes_reached_from(self.entry, &marked), self.nodes_leading_to(self.exit, &marked));
        let is_on_path = |id: DagEdgeId| marked(id) && reached.contains(self.edge(id).from) && leads.contains(self.edge(id).to);
        DagEdgeSet::from_fn(self.edges.len(), is_on_path)
    }

    /// Returns the minimum and maximum sum of values on paths from each node to the exit, or `None` for a node without such a path. Paths
    /// consist of the edges for which `value` is not `None`.
    pub fn min_and_max_sums_to_exit(&self, value: impl Fn(DagEdgeId) -> Option<i64>) -> Vec<Option<(i128, i128)>> {
        let mut sums: Vec<Option<(i128, i128)>> = vec![None; self.node_count()];
        sums[self.exit.index()] = Some((0, 0));
        for node in self.order.iter().rev().filter(|n| **n != self.exit) {
            let through = |id: &DagEdgeId| {
                let ((least, greatest), value) = (sums[self.edge(*id).to.index()]?, i128::from(value(*id)?));
                Some((least + value, greatest + value))
            };
            sums[node.index()] = self.out(*node).iter().filter_map(through).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        sums
    }

    /// Returns the cut edges, ordered by number.
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Returns the cut of an edge of the graph, or `None` if the edge was not cut.
    pub fn cut(&self, edge: Edge) -> Option<&Cut> {
        self.cuts.binary_search_by_key(&edge, |c| c.edge).ok().map(|at| &self.cuts[at])
    }

    /// Returns the DAG's edge for an edge of the graph, or `None` if the edge was cut or is unreachable.
    pub fn real(&self, edge: Edge) -> Option<DagEdgeId> {
        self.real.get(edge.index()).copied().flatten()
    }

    /// Returns the edge of the graph to which a DAG's edge corresponds, or `None` for [`Origin::Stop`].
    pub fn underlying_graph_edge(&self, id: DagEdgeId) -> Option<Edge> {
        self.edge(id).origin.edge()
    }

    fn assemble_dag(nodes: usize, entry: Node, exit: Node, edges: Vec<DagEdge>, cuts: Vec<Cut>, real_edges: usize) -> Dag {
        let out = Incidence::new(nodes, edges.iter().map(|edge| edge.from.index()));
        let into = Incidence::new(nodes, edges.iter().map(|edge| edge.to.index()));
        let mut real = vec![None; real_edges];
        for (i, edge) in edges.iter().enumerate() {
            let id = DagEdgeId(i as u32);
            if let Origin::Real(e) = edge.origin {
                if e.index() >= real.len() {
                    real.resize(e.index() + 1, None);
                }
                real[e.index()] = Some(id);
            }
        }
        let order = topological_order(nodes, entry, &edges, &out);
        Dag { entry, exit, edges, out, into, nodes, order, cuts, real }
    }

    /// Recovers the cuts from the dummy edges, as described at [`Dag::from_origins`]. Reasons are not stored, so they become `Back`.
    fn recover_cuts(&mut self) {
        let mut cuts = BTreeMap::<Edge, Cut>::new();
        for id in self.edge_ids() {
            let (edge, enter, leave) = match self.edge(id).origin {
                Origin::Leave(e) => (e, None, Some(id)),
                Origin::Enter(e) => (e, Some(id), None),
                _ => continue,
            };
            let cut = cuts.entry(edge).or_insert(Cut { edge, reason: CutReason::Back, enter: None, leave: None });
            cut.enter = cut.enter.or(enter);
            cut.leave = cut.leave.or(leave);
        }
        self.cuts = cuts.into_values().collect();
    }
}

/// Cuts all retreating edges of a depth-first search over the uncut edges. Returns the nodes that are reachable from the entry.
fn cut_retreating_edges(graph: &Graph, cut: &mut [Option<CutReason>]) -> NodeSet {
    #[derive(Clone, Copy, PartialEq)]
    enum NodeState {
        New,
        Open,
        Done,
    }
    let mut state = vec![NodeState::New; graph.node_count()];
    let mut roots = vec![graph.entry()];
    let mut next_root = 0;
    while next_root < roots.len() {
        let root = roots[next_root];
        next_root += 1;
        if state[root.index()] != NodeState::New {
            continue;
        }
        state[root.index()] = NodeState::Open;
        let mut stack = vec![(root, 0)];
        while let Some((node, next)) = stack.last_mut() {
            let Some(&edge) = graph.out(*node).get(*next) else {
                state[node.index()] = NodeState::Done;
                stack.pop();
                continue;
            };
            *next += 1;
            let to = graph.to(edge);
            if cut[edge.index()].is_some() {
                roots.push(to);
            } else if state[to.index()] == NodeState::Open || to == graph.entry() {
                cut[edge.index()] = Some(CutReason::Back);
            } else if state[to.index()] == NodeState::New {
                state[to.index()] = NodeState::Open;
                stack.push((to, 0));
            }
        }
    }
    NodeSet::from_fn(graph.node_count(), |node| state[node.index()] == NodeState::Done)
}

fn build_dag(graph: &Graph, cut: &[Option<CutReason>], reachable: &NodeSet, entries: Entries) -> Dag {
    let (entry, exit) = (graph.entry(), graph.exit());
    let live = |edge: &Edge| reachable.contains(graph.from(*edge));
    let mut edges: Vec<DagEdge> = Vec::new();
    for edge in graph.edges().filter(live).filter(|e| cut[e.index()].is_none()) {
        edges.push(Origin::Real(edge).dag_edge(graph));
    }
    let mut cuts = Vec::new();
    let mut shared: Vec<Option<DagEdgeId>> = vec![None; graph.node_count()];
    let mut push = |origin: Origin| {
        edges.push(origin.dag_edge(graph));
        DagEdgeId(edges.len() as u32 - 1)
    };
    for edge in graph.edges().filter(live) {
        let Some(reason) = cut[edge.index()] else { continue };
        let (tail, head) = (graph.from(edge), graph.to(edge));
        let enter = match shared[head.index()] {
            _ if head == entry => None,
            Some(id) if entries == Entries::Shared => Some(id),
            _ => Some(push(Origin::Enter(edge))),
        };
        shared[head.index()] = enter;
        let leave = (tail != exit).then(|| push(Origin::Leave(edge)));
        cuts.push(Cut { edge, reason, enter, leave });
    }
    for node in graph.nodes().filter(|n| reachable.contains(*n) && *n != exit && graph.out(*n).is_empty()) {
        push(Origin::Stop(node));
    }
    Dag::assemble_dag(graph.node_count(), entry, exit, edges, cuts, graph.edge_count())
}

fn topological_order(nodes: usize, entry: Node, edges: &[DagEdge], out: &Incidence<DagEdgeId>) -> Vec<Node> {
    let next = |node: usize| out.of(node).iter().map(|id| edges[id.index()].to.index());
    postorder(entry.index(), &mut vec![false; nodes], next).into_iter().rev().map(|node| Node(node as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: u32, edges: &[(u32, u32)]) -> Graph {
        Graph::new(nodes, Node(0), Node(nodes - 1), edges.iter().map(|&(a, b)| (Node(a), Node(b))).collect()).unwrap()
    }

    #[test]
    fn back_edge_is_replaced_by_entry_to_head_and_tail_to_exit() {
        // 0 -> 1 -> 2 -> 1, 2 -> 3
        let dag = Dag::new(&graph(4, &[(0, 1), (1, 2), (2, 1), (2, 3)]), &[], Entries::PerEdge);
        let cut = dag.cuts()[0];
        assert_eq!((cut.edge, cut.reason), (Edge(2), CutReason::Back));
        let enter = dag.edge(cut.enter.unwrap());
        let leave = dag.edge(cut.leave.unwrap());
        assert_eq!((enter.from, enter.to), (Node(0), Node(1)));
        assert_eq!((leave.from, leave.to), (Node(2), Node(3)));
    }

    #[test]
    fn entries_are_shared_on_request() {
        let g = graph(5, &[(0, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 4)]);
        assert_eq!(Dag::new(&g, &[], Entries::PerEdge).edges().len(), 4 + 4);
        assert_eq!(Dag::new(&g, &[], Entries::Shared).edges().len(), 4 + 3);
    }

    #[test]
    fn infinite_loops_and_dead_ends_reach_the_exit() {
        // Node 1 is an infinite loop and node 2 a dead end; no real edge leads to the exit (3).
        let dag = Dag::new(&graph(4, &[(0, 1), (1, 1), (0, 2)]), &[], Entries::PerEdge);
        let ends: Vec<_> = dag.incoming(Node(3)).iter().map(|&e| dag.edge(e).origin).collect();
        assert_eq!(ends, [Origin::Leave(Edge(1)), Origin::Stop(Node(2))]);
    }

    #[test]
    fn back_edges_to_the_entry_and_edges_from_the_exit_need_only_one_dummy_edge() {
        let dag = Dag::new(&graph(3, &[(0, 1), (1, 0), (1, 2), (2, 1)]), &[], Entries::PerEdge);
        assert_eq!(dag.cuts()[0].enter, None);
        assert_eq!(dag.cuts()[1].reason, CutReason::FromExit);
        assert_eq!(dag.cuts()[1].leave, None);
    }

    #[test]
    fn unreachable_nodes_are_not_in_the_dag() {
        let dag = Dag::new(&graph(4, &[(0, 3), (1, 2), (2, 1), (2, 3)]), &[], Entries::PerEdge);
        assert_eq!(dag.edges().len(), 1);
        assert_eq!(dag.order(), [Node(0), Node(3)]);
    }

    #[test]
    fn dag_is_rebuilt_from_the_graph_and_its_origins() {
        let graph = graph(5, &[(0, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 4)]);
        let dag = Dag::new(&graph, &[(Edge(2), CutReason::Limit)], Entries::Shared);
        let cuts: Vec<(Edge, CutReason)> = dag.cuts().iter().map(|cut| (cut.edge, cut.reason)).collect();
        let again = Dag::from_origins(&graph, &dag.origins(), &cuts).unwrap();
        assert_eq!((again.edges(), again.order()), (dag.edges(), dag.order()));
        assert!(again.cuts().iter().map(|cut| (cut.edge, cut.reason)).eq(cuts.iter().copied()));
        let refused = |origins: &[Origin], cuts: &[(Edge, CutReason)]| Dag::from_origins(&graph, origins, cuts).unwrap_err();
        assert_eq!(refused(&dag.origins(), &cuts[1..]), "edge 2 is not cut, but dummy edges replace it");
        assert_eq!(refused(&[Origin::Real(Edge(2))], &cuts), "edge 2 is cut, but it is on paths");
        assert_eq!(refused(&[Origin::Real(Edge(6))], &[]), "edge 6 does not exist");
        assert_eq!(refused(&[Origin::Stop(Node(5))], &[]), "node 5 does not exist");
    }

    #[test]
    fn edges_that_close_a_cycle_or_do_not_reach_the_exit_are_rejected() {
        let e = |a, b| DagEdge { from: Node(a), to: Node(b), origin: Origin::Real(Edge(0)) };
        assert!(Dag::from_edges(4, Node(0), Node(3), vec![e(0, 1), e(1, 2), e(2, 1), e(2, 3)]).is_err());
        assert!(Dag::from_edges(4, Node(0), Node(3), vec![e(0, 1)]).is_err());
    }
}
