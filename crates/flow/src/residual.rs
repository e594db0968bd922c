//! Residual path profiling: known paths have almost no overhead, and all other paths are counted exactly.
//!
//! Source of the idea: Vaswani's thesis, chapter 3; Pavlopoulou and Young, "Residual test coverage monitoring" (ICSE 1999). The published
//! method recognises known paths at their end. Here the function's original code becomes the *known-path region*, an automaton of known
//! paths ([`KnownPathAutomaton`]) without checks. A path that leaves the region, over an edge without a transition, continues in the
//! *instrumented code* and is looked up at its end. The region contains each node once ([`region`]), or copies of nodes by context
//! ([`contexts`]), whichever costs less. Paths have the same numbers as in a full profile, and increments are the same in all versions of
//! the code, so the register remains valid when control changes the version.

use crate::dag::{Dag, DagEdgeId, DagEdgeSet, Origin};
use crate::frequency::Frequencies;
use crate::graph::{Edge, EdgeSet, Graph, Node};
use crate::numbering::Numbering;
use crate::placement::Probes;
use crate::plan::{Plan, RegisterAction};
use crate::program::operation::Operation;
use crate::program::{CodeVersion, CodeVersions, NodePlace, ProbeProgram, ProgramGraphs, operations_of_action};
use automaton::{KnownPathAutomaton, RegionTransition};
use prices::RegionPrices;
use region::KnownPathRegion;
use std::cmp::Reverse;
use std::collections::HashMap;

pub mod automaton;
mod contexts;
mod prices;
mod region;

/// The known-path region of a function, and the known paths.
///
/// ```text
///   region:   a ---> b ---> d ---> e --(back edge)--> a        instrumented:      d" ---> e" --> unknown? count --(back edge)--> a
///              `---> c ---> d' ---> f                                             ^
///                              `--------------------------- edge outside ---------'
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidualPlan {
    known: DagEdgeSet,
    region: KnownPathAutomaton,
    /// The nodes that must not be copied, each with its state in the region.
    single: Vec<(Node, usize)>,
    paths: Vec<KnownPath>,
    ids: Vec<u64>,
}

/// The known paths of a function, and constraints on the code that executes them.
#[derive(Clone, Copy, Debug)]
pub struct ResidualInput<'a> {
    /// The numbers of the known paths with their executions. Numbers that do not denote a path are ignored.
    pub paths: &'a [(u64, u64)],
    /// Nodes that must not be copied. All edges into them are cut.
    pub uncopied: &'a [Node],
    /// Edges that only mark that a call was reached. A path that continues after the call includes the executions of its marked prefix.
    pub marks_call: &'a EdgeSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownPath {
    edges: Vec<DagEdgeId>,
    executions: u64,
    /// Whether the last edge marks that a call was reached.
    ends_at_call: bool,
}

impl KnownPath {
    /// Returns how many executions of the path's edges, except the last one, belong to no other path. The number is 0 if the path ends at a
    /// call, because these executions are then included in the path that continues after the call.
    fn executions_of_own_edges(&self) -> u64 {
        if self.ends_at_call { 0 } else { self.executions }
    }
}

impl ResidualPlan {
    /// Plans the known-path region of a function, which is the code for known paths.
    pub fn new(dag: &Dag, numbering: &Numbering, known: ResidualInput) -> ResidualPlan {
        let ResidualInput { uncopied, marks_call, .. } = known;
        let ends_at_call = |edge: DagEdgeId| dag.underlying_graph_edge(edge).is_some_and(|e| marks_call.contains(e));
        let ids = known.paths.iter().map(|(id, _)| *id).collect();
        let path = |(id, executions): &(u64, u64)| {
            let edges = numbering.path(dag, *id)?;
            Some(KnownPath { ends_at_call: edges.last().is_some_and(|e| ends_at_call(*e)), executions: *executions, edges })
        };
        let paths: Vec<KnownPath> = known.paths.iter().filter_map(path).collect();
        let prices = RegionPrices::new(paths.iter().map(KnownPath::executions_of_own_edges).fold(0, u64::saturating_add));
        let mut choice = KnownPathRegion::from_all_paths(dag, paths, prices);
        let known = choice.edges.clone();
        choice.remove_edges_while_cheaper();
        let (cost, nodes, unclear) = (choice.cost(), choice.node_count(), choice.find_unclear_ends());
        let (edges, paths) = choice.into_edges_and_paths();
        // If some nodes must not be copied, no nodes are: this is the case in interpreters with indirect branches, whose register pressure
        // is high, and copies increase it. One interpreter executed 9% more instructions than an uninstrumented build with copies, and 5%
        // more without.
        let contexts = if uncopied.is_empty() { contexts::find_cheapest_region(dag, &paths, prices, cost, nodes) } else { None };
        let region = contexts.unwrap_or_else(|| KnownPathAutomaton::from_edges(dag, &edges, &unclear));
        let single = uncopied.iter().filter_map(|node| Some((*node, region.first_state_of_node(*node)?))).collect();
        ResidualPlan { known, region, single, paths, ids }
    }

    /// Returns whether a known path takes this edge.
    pub fn is_known(&self, edge: DagEdgeId) -> bool {
        self.known.contains(edge)
    }

    /// Returns the known-path region.
    pub fn region(&self) -> &KnownPathAutomaton {
        &self.region
    }

    /// Creates a program with a single version of the code. Each path is looked up at its end, except where no known path has the same last
    /// edge.
    pub fn program_with_lookups(&self, graph: &Graph, plan: &Plan) -> ProbeProgram {
        let operations = graph.edges().map(|e| operations_on_edge(graph, plan, self, &[], e, CodeVersionState::Instrumented)).collect();
        ProbeProgram::from_lookups(graph, plan, operations, self.ids.clone())
    }

    /// Places increments such that known paths execute as few of them as possible.
    pub fn probes(&self, dag: &Dag, numbering: &Numbering, graph: &Graph, frequencies: &Frequencies) -> Probes {
        // Relative cost of an increment that no known path executes. If this is 1,000 times more or less, three benchmark programs'
        // instruction counts change by at most 0.1% (docs/benchmarks/constants.md).
        const UNEXECUTED_COST: f64 = 1e-6;
        let needed = self.region.needs_register(dag);
        let mut costs = crate::plan::probe_costs(dag, graph, frequencies);
        let transitions = self.region.states.iter().flat_map(|s| &s.transitions);
        let executed = transitions.filter(|transition| transition.to.is_none_or(|to| needed[to]));
        let met = DagEdgeSet::from_members(costs.len(), executed.map(|transition| transition.edge));
        dag.edge_ids().filter(|edge| !met.contains(*edge)).for_each(|edge| costs[edge.index()] *= UNEXECUTED_COST);
        Probes::on_chords(dag, numbering.values(), &costs)
    }
}

/// The version of the code in which control is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum CodeVersionState {
    /// This state of the region.
    Known(usize),
    Instrumented,
}

impl ResidualPlan {
    /// Creates a program whose graph has all versions of the code, its entry first and its exit last. The exit of `graph` must be last.
    pub fn program_with_versions(&self, graph: &Graph, plan: &Plan) -> ProbeProgram {
        let needed = self.region.needs_register(&plan.dag);
        let successors = Successors { graph, plan, residual: self };
        let mut found: Vec<(Node, CodeVersionState)> = vec![(graph.entry(), CodeVersionState::Known(0))];
        let mut number = HashMap::from([(found[0], 0)]);
        let (mut edges, mut origins, mut code) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = 0;
        while at < found.len() {
            let (node, version) = found[at];
            for &edge in graph.out(node) {
                let to = graph.to(edge);
                let head = (to != graph.exit()).then(|| {
                    let head = (to, successors.version_after_edge(edge, version));
                    *number.entry(head).or_insert_with(|| {
                        found.push(head);
                        found.len() - 1
                    })
                });
                edges.push((at, head));
                origins.push(edge);
                code.push(operations_on_edge(graph, plan, self, &needed, edge, version));
            }
            at += 1;
        }
        let exit = Node(found.len() as u32);
        let edges = edges.into_iter().map(|(from, to)| (Node(from as u32), to.map_or(exit, |to| Node(to as u32)))).collect();
        let versions = Graph::new(exit.0 + 1, Node(0), exit, edges).expect("the edges connect nodes of the graph");
        let executions = successors.count_executions(&number, &versions, &origins);
        let places = number_versions(&found, &versions, &executions);
        let order = topological_order(&plan.dag, &found);
        let frame = ProgramGraphs { graph: versions, order, dag: plan.dag.clone(), origins: Some(origins) };
        ProbeProgram::from_versions(frame, plan, code, CodeVersions { places, executions }, self.ids.clone())
    }
}

/// Returns the nodes in topological order of the paths. The region comes first, because paths that leave it do not return.
fn topological_order(dag: &Dag, found: &[(Node, CodeVersionState)]) -> Vec<Node> {
    let position = dag.topological_positions();
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|at| (found[*at].1 == CodeVersionState::Instrumented, position[found[*at].0.index()]));
    order.into_iter().map(|at| Node(at as u32)).collect()
}

/// Returns the version of each node. Of a node's states, the one with the most executions becomes the original.
fn number_versions(found: &[(Node, CodeVersionState)], versions: &Graph, executions: &[u64]) -> Vec<NodePlace> {
    let executed = |at: usize| versions.out(Node(at as u32)).iter().map(|e| executions[e.index()]).fold(0, u64::saturating_add);
    let mut ranked: Vec<usize> = (0..found.len()).collect();
    ranked.sort_by_key(|at| (Reverse(executed(*at)), *at));
    let mut copies = HashMap::<Node, u32>::new();
    let mut places = vec![None; found.len()];
    for at in ranked {
        let (node, place) = found[at];
        let version = match place {
            CodeVersionState::Instrumented => CodeVersion::Instrumented,
            CodeVersionState::Known(_) => {
                let copies = copies.entry(node).or_default();
                *copies += 1;
                CodeVersion::Known(*copies - 1)
            }
        };
        places[at] = Some(NodePlace { node, version });
    }
    places.into_iter().flatten().collect()
}

/// Determines in which version of the code control continues after an edge.
struct Successors<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    residual: &'a ResidualPlan,
}

impl Successors<'_> {
    fn version_after_edge(&self, edge: Edge, from: CodeVersionState) -> CodeVersionState {
        match (self.plan.dag.real(edge), self.plan.dag.cut(edge).map(|cut| cut.enter)) {
            (Some(id), _) => self.version_after(id, edge, from),
            (None, Some(Some(enter))) => self.version_after(enter, edge, CodeVersionState::Known(0)),
            (None, Some(None)) => CodeVersionState::Known(0),
            (None, None) => CodeVersionState::Instrumented,
        }
    }

    /// Returns the version of the code in which control continues after `edge` of the function. `id` is the corresponding edge of the
    /// acyclic graph.
    fn version_after(&self, id: DagEdgeId, edge: Edge, from: CodeVersionState) -> CodeVersionState {
        let transition = match from {
            CodeVersionState::Known(state) => self.residual.region.transition(state, id),
            CodeVersionState::Instrumented => None,
        };
        let single = self.residual.single.iter().find(|(node, _)| *node == self.graph.to(edge)).map(|(_, state)| *state);
        single.or(transition.and_then(|transition| transition.to)).map_or(CodeVersionState::Instrumented, CodeVersionState::Known)
    }

    fn count_executions(&self, number: &HashMap<(Node, CodeVersionState), usize>, versions: &Graph, origins: &[Edge]) -> Vec<u64> {
        let mut executions = vec![0u64; versions.edge_count()];
        for path in &self.residual.paths {
            let mut version = CodeVersionState::Known(0);
            for &id in &path.edges {
                let origin = self.plan.dag.edge(id).origin;
                if let Origin::Real(e) | Origin::Leave(e) = origin {
                    let at = Node(number[&(self.graph.from(e), version)] as u32);
                    let taken = versions
                        .out(at)
                        .iter()
                        .find(|t| origins[t.index()] == e)
                        .expect("each version of a node has all edges of the node");
                    executions[taken.index()] = executions[taken.index()].saturating_add(path.executions_of_own_edges());
                }
                if let Origin::Enter(e) | Origin::Real(e) = origin {
                    version = self.version_after(id, e, version);
                }
            }
        }
        executions
    }
}

fn operations_on_edge(
    graph: &Graph,
    plan: &Plan,
    residual: &ResidualPlan,
    needed: &[bool],
    edge: Edge,
    at: CodeVersionState,
) -> Vec<Operation> {
    let action = plan.action(graph, edge);
    let transition = |id: Option<DagEdgeId>| match at {
        CodeVersionState::Known(state) => id.and_then(|id| residual.region.transition(state, id)),
        CodeVersionState::Instrumented => None,
    };
    let real = plan.dag.real(edge);
    match action {
        RegisterAction::Count { increment } => match classify_path_end(residual, real, transition(real)) {
            ResidualPathEnd::Unknown => operations_of_action(action),
            ResidualPathEnd::Unclear => vec![Operation::Check { increment }],
            ResidualPathEnd::Known => vec![Operation::Discard],
        },
        RegisterAction::CountAndRestart { increment, start } => {
            let leave = plan.dag.cut(edge).and_then(|c| c.leave);
            match classify_path_end(residual, leave, transition(leave)) {
                ResidualPathEnd::Unknown => operations_of_action(action),
                ResidualPathEnd::Unclear => vec![Operation::Check { increment }, Operation::Set(start)],
                ResidualPathEnd::Known => vec![Operation::Set(start)],
            }
        }
        // No unknown path can follow, so the register is not needed.
        RegisterAction::Add { .. } if transition(real).is_some_and(|transition| transition.to.is_none_or(|to| !needed[to])) => {
            vec![Operation::Discard]
        }
        action => operations_of_action(action),
    }
}

enum ResidualPathEnd {
    Known,
    Unclear,
    Unknown,
}

fn classify_path_end(residual: &ResidualPlan, edge: Option<DagEdgeId>, transition: Option<RegionTransition>) -> ResidualPathEnd {
    match (edge, transition) {
        // The path ends at the exit of the graph.
        (None, _) => ResidualPathEnd::Known,
        (Some(_), Some(transition)) if !transition.unclear => ResidualPathEnd::Known,
        (Some(e), _) if !residual.is_known(e) => ResidualPathEnd::Unknown,
        _ => ResidualPathEnd::Unclear,
    }
}
