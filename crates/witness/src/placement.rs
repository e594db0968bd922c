//! Placement: chooses the witnesses of a single profile that determines every path of a function.
//!
//! Sources: Ball and Larus, "Optimally profiling and tracing programs" (TOPLAS 1994): every block, targets of conditional branches, and the
//! edges outside a maximum spanning tree, which break every undirected cycle. D. Saha et al., section 5, figure 11: nodes derived from
//! those edges, where edges from a fork to a join that close a diamond (*special diamonds*) are in the tree from the start.

use super::eliminate::{
    RequiredDistinction, distinguishes_required_successors, drop_unneeded_states, mark_separators_and_list_others, marked_states,
    most_expensive_first,
};
use super::exact::find_cheapest_set_exactly;
use super::program::{NodeKind, WitnessFunction, WitnessKind, WitnessProgram};
use super::structure::PushdownStructure;
use super::view::StateGraph;
use super::weights::Weights;
use trodden_flow::graph::{Edge, Graph, Node};
use trodden_flow::placement::DisjointSets;

/// A rule that chooses the witnesses of a function.
///
/// The paper's node algorithm is not always realizable: for the edges 01, 02, 12, 13 and 23, the tree is 02, 13 and 01. The remaining edges
/// 12 and 23 give node 2, and the paths 0 1 2 3 and 0 2 3 leave the same trace. [`Placement::Repaired`] adds targets of conditional
/// branches, and then drops unnecessary ones. [`Placement::Fewest`] eliminates from all nodes, and from targets alone, and takes the
/// cheaper result. [`Placement::Exact`] proves the minimal cost for small functions ([`exact`](super::exact)). Spanning trees: O(E log E).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Every node, or every edge.
    Blocks,
    /// Targets of conditional branches.
    Targets,
    /// Edges outside a maximum spanning tree.
    SpanningTree,
    /// Nodes by the paper's algorithm, unchanged.
    Paper,
    /// Nodes by the paper's algorithm, verified and repaired.
    Repaired,
    /// The cheapest set that elimination finds.
    Fewest,
    /// The cheapest set that a bounded branch-and-bound search finds, starting from that of [`Placement::Fewest`].
    Exact,
}

/// An error: the placement needs the other kind of witnesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the witnesses (what is watched) of placement {placement:?} must be {}. Choose witnesses of this kind",
    if *.needs == WitnessKind::Edges { "edges" } else { "nodes" }
)]
pub struct WrongWitnessKind {
    /// The placement.
    pub placement: Placement,
    /// The kind that it needs.
    pub needs: WitnessKind,
}

/// The witnesses of one function.
#[derive(Clone, Debug)]
pub struct PlacedWitnesses {
    /// For each state of the [`StateGraph`], whether it is a witness.
    pub member: Vec<bool>,
    /// Whether the cost is proven to be minimal.
    pub proven: bool,
}

/// Step limit of the exact solver for a function. If this is 2,000, witnesses of 45 functions of each of three benchmark programs cost up
/// to 0.5% more; if it is ten times as much, they cost the same (docs/benchmarks/constants.md).
const MAX_EXACT_SEARCH_STEPS: usize = 20_000;

/// Places the witnesses of a function.
///
/// # Errors
/// The placement needs the other kind of witnesses.
pub fn place(
    program: &WitnessProgram,
    structure: &PushdownStructure,
    view: &StateGraph,
    weights: &Weights,
    placement: Placement,
) -> Result<PlacedWitnesses, WrongWitnessKind> {
    let kind = structure.pushdown.kind();
    let plain = |member| Ok(PlacedWitnesses { member, proven: false });
    match (placement, kind) {
        (Placement::Blocks, _) => plain(view.witness.iter().map(Option::is_some).collect()),
        (Placement::Targets, _) => plain(mark_branch_targets(view)),
        (Placement::SpanningTree, WitnessKind::Edges) => plain(mark_edges_outside_tree(view)),
        (Placement::SpanningTree, _) => Err(WrongWitnessKind { placement, needs: WitnessKind::Edges }),
        (Placement::Paper, WitnessKind::Nodes) => plain(place_nodes_by_published_algorithm(program, structure, view, weights)),
        (Placement::Repaired, WitnessKind::Nodes) => {
            let mut member = place_nodes_by_published_algorithm(program, structure, view, weights);
            repair_undistinguished_branches(view, &mut member);
            plain(member)
        }
        (Placement::Paper | Placement::Repaired, _) => Err(WrongWitnessKind { placement, needs: WitnessKind::Nodes }),
        (Placement::Fewest, _) => plain(find_cheapest_set_by_elimination(view)),
        (Placement::Exact, _) => {
            let (member, proven) =
                find_cheapest_set_exactly(view, &require_all(view), find_cheapest_set_by_elimination(view), MAX_EXACT_SEARCH_STEPS);
            Ok(PlacedWitnesses { member, proven })
        }
    }
}

/// Returns the requirement to distinguish the successors of all branches.
pub fn require_all(view: &StateGraph) -> Vec<RequiredDistinction> {
    (0..view.branches.len()).map(RequiredDistinction::all).collect()
}

/// Returns the cheaper result of elimination from all states and from targets.
pub fn find_cheapest_set_by_elimination(view: &StateGraph) -> Vec<bool> {
    let required = require_all(view);
    let mut from_all: Vec<bool> = view.witness.iter().map(Option::is_some).collect();
    let mut from_targets = mark_branch_targets(view);
    if !distinguishes_required_successors(view, &required, &from_targets) {
        from_targets = from_all.clone();
    }
    for member in [&mut from_all, &mut from_targets] {
        let order = mark_separators_and_list_others(view, member);
        drop_unneeded_states(view, &required, member, &order);
    }
    if view.sum(&from_targets) < view.sum(&from_all) { from_targets } else { from_all }
}

fn mark_branch_targets(view: &StateGraph) -> Vec<bool> {
    let mut member = vec![false; view.state_count()];
    for target in view.next.iter().filter(|next| next.len() > 1).flatten() {
        member[*target as usize] = view.witness[*target as usize].is_some();
    }
    member
}

/// Adds the targets of branches that are not distinguished, and then drops the witnesses that are not needed.
fn repair_undistinguished_branches(view: &StateGraph, member: &mut [bool]) {
    let required = require_all(view);
    for requirement in &required {
        if !distinguishes_required_successors(view, std::slice::from_ref(requirement), member) {
            let next = &view.branches[requirement.branch].next;
            next.iter().for_each(|n| member[*n as usize] |= view.witness[*n as usize].is_some());
        }
    }
    if !distinguishes_required_successors(view, &required, member) {
        member.iter_mut().zip(&view.witness).for_each(|(m, w)| *m = w.is_some());
    }
    let order = mark_separators_and_list_others(view, member);
    drop_unneeded_states(view, &required, member, &order);
}

/// Marks the states of edges outside a maximum spanning tree. Edges that have no witness, such as exit -> entry, are put into the tree
/// first.
fn mark_edges_outside_tree(view: &StateGraph) -> Vec<bool> {
    let end = Node(view.state_count() as u32);
    let mut sets = DisjointSets::new(view.state_count() + 1);
    let mut before = vec![None; view.state_count()];
    for (state, next) in (0u32..).zip(&view.next) {
        if view.ends[state as usize] {
            sets.join(Node(state), end);
        }
        for &to in next {
            match view.witness[to as usize] {
                Some(_) => before[to as usize] = Some(state),
                None if view.witness[state as usize].is_none() => _ = sets.join(Node(state), Node(to)),
                None => {}
            }
        }
    }
    let mut member: Vec<bool> = view.witness.iter().map(Option::is_some).collect();
    for state in most_expensive_first(view, &marked_states(&member)) {
        let (Some(from), [to]) = (before[state as usize], view.next[state as usize].as_slice()) else { continue };
        member[state as usize] = !sets.join(Node(from), Node(*to));
    }
    member
}

/// Chooses nodes by the paper's algorithm. Returns, for each state of the [`StateGraph`], whether it is a witness.
fn place_nodes_by_published_algorithm(
    program: &WitnessProgram,
    structure: &PushdownStructure,
    view: &StateGraph,
    weights: &Weights,
) -> Vec<bool> {
    let function = program.function(view.function);
    let graph = &function.graph;
    let mut sets = DisjointSets::new(graph.node_count());
    if structure.repeated[view.function.index()] {
        sets.join(graph.exit(), graph.entry());
    }
    let edges: Vec<Edge> = graph.edges().filter(|e| is_first_parallel_edge(graph, *e)).collect();
    let special: Vec<Edge> = edges.iter().copied().filter(|e| closes_diamond(graph, *e)).collect();
    let mut others: Vec<Edge> = edges.into_iter().filter(|e| !special.contains(e)).collect();
    let weight = |e: Edge| weights.edge(program, view.function, e);
    others.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)).then(a.cmp(b)));
    let outside: Vec<Edge> = special.into_iter().chain(others).filter(|e| !sets.join(graph.from(*e), graph.to(*e))).collect();
    let mut member = vec![false; view.state_count()];
    for edge in outside {
        let node = choose_end(function, edge, |n| weights.node(program, view.function, n));
        let state = structure.pushdown.node(view.function, node).0 - view.first.0;
        member[state as usize] = view.witness[state as usize].is_some();
    }
    member
}

fn is_first_parallel_edge(graph: &Graph, edge: Edge) -> bool {
    graph.out(graph.from(edge)).iter().find(|e| graph.to(**e) == graph.to(edge)) == Some(&edge)
}

/// Returns true if an edge leads from a fork directly to the join of one of its diamonds.
fn closes_diamond(graph: &Graph, edge: Edge) -> bool {
    let (fork, join) = (graph.from(edge), graph.to(edge));
    let mut seen = vec![false; graph.node_count()];
    seen[fork.index()] = true;
    let mut work: Vec<Node> = graph.out(fork).iter().map(|e| graph.to(*e)).filter(|n| *n != join).collect();
    while let Some(node) = work.pop() {
        if node == join {
            return true;
        }
        if !std::mem::replace(&mut seen[node.index()], true) {
            work.extend(graph.out(node).iter().map(|e| graph.to(*e)));
        }
    }
    false
}

/// Returns an end of the edge at which a witness is executed as often as on the edge; for a critical edge, its target. If that node is
/// virtual, returns the edge's other end.
fn choose_end(function: &WitnessFunction, edge: Edge, weight: impl Fn(Node) -> f64) -> Node {
    let graph = &function.graph;
    let (from, to) = (graph.from(edge), graph.to(edge));
    let distinct = |nodes: &mut Vec<Node>| {
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    };
    let fork = distinct(&mut graph.out(from).iter().map(|e| graph.to(*e)).collect()) > 1;
    let join = distinct(&mut graph.incoming(to).iter().map(|e| graph.from(*e)).collect()) > 1;
    let chosen = match (fork, join) {
        (true, _) => to,
        (false, true) => from,
        (false, false) if weight(to) < weight(from) => to,
        (false, false) => from,
    };
    let other = if chosen == to { from } else { to };
    if function.nodes[chosen.index()] == NodeKind::Virtual { other } else { chosen }
}
