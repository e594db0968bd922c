//! Residual path profiling: a program that knows a set of paths, spends next to nothing on them, and counts every other one exactly.
//!
//! Source of the idea: Vaswani's thesis, chapter 3 (residual path profiling); Pavlopoulou and Young, "Residual test
//! coverage monitoring" (ICSE 1999). Published builds distinguish known paths from unknown ones where a path ends. Here what
//! can be decided when the program is made costs nothing when it runs. The function's original code is the known-path region*: an
//! automaton of known paths ([`Automaton`]). A path that leaves it by an edge without a transition goes on in the
//! *instrumented code* until the path ends; there it is looked up, and counted if it is unknown. Of two kinds of region
//! the one that costs less is taken:
//!
//! - each node once, the transitions being edges that known paths take. Where these can be combined to an unknown path, the
//!   edges that are executed least are left out ([`region`]), or paths are looked up where they end, if that costs
//!   less;
//! - nodes copied for what was taken before them, so that nothing but known paths is left ([`contexts`]).
//!
//! So the region checks nothing, but for the path register, where it may still be left and edges with different
//! values meet, and at those ends.
//!
//! ```text
//!   region:   a ---> b ---> d ---> e --(back edge)--> a        instrumented:      d" ---> e" --> unknown? count --(back edge)--> a
//!              `---> c ---> d' ---> f                                             ^
//!                              `--------------------------- edge outside ---------'
//! ```
//!
//! Identities are those of the full profile: increments are the same in all versions, so a register that crosses over means the same.

use crate::dag::{Dag, DagEdgeId, Origin};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph, Node};
use crate::numbering::Numbering;
use crate::placement::Probes;
use crate::plan::{Plan, RegisterAction};
use crate::program::operation::Operation;
use crate::program::{CodeVersion, NodePlace, ProbeProgram, of_action};
use automaton::{Automaton, RegionTransition};
use prices::Prices;
use region::KnownPathRegion;
use std::cmp::Reverse;
use std::collections::HashMap;

pub mod automaton;
mod contexts;
mod prices;
mod region;

/// What is known of a function's paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidualPlan {
    known: Vec<bool>,
    region: Automaton,
    /// Nodes that exist once, and their states.
    single: Vec<(Node, usize)>,
    paths: Vec<KnownPath>,
    /// Numbers of the paths.
    ids: Vec<u64>,
}

/// What a plan is made of, besides graph and numbering.
#[derive(Clone, Copy, Debug)]
pub struct ResidualInput<'a> {
    /// The known paths' identities and executions; identities of no path are left out.
    pub paths: &'a [(u64, u64)],
    /// Nodes that exist once: all edges into them are cut.
    pub single: &'a [Node],
    /// For each edge of the graph, whether it says that a call was reached: paths that end with it are executed besides those that go on.
    pub excluded: &'a [bool],
}

/// A known path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownPath {
    edges: Vec<DagEdgeId>,
    executions: u64,
    /// whether it says that a call was reached.
    excluded: bool,
}

impl KnownPath {
    /// How often its edges but the last are executed for this path only.
    fn own_executions(&self) -> u64 {
        if self.excluded { 0 } else { self.executions }
    }
}

impl ResidualPlan {
    /// Of what is known.
    pub fn new(dag: &Dag, numbering: &Numbering, known: ResidualInput) -> ResidualPlan {
        let ResidualInput { single, excluded, .. } = known;
        let is_excluded = |edge: DagEdgeId| dag.underlying(edge).is_some_and(|e| excluded[e.index()]);
        let ids = known.paths.iter().map(|(id, _)| *id).collect();
        let path = |(id, executions): &(u64, u64)| {
            let edges = numbering.path(dag, *id)?;
            Some(KnownPath { excluded: edges.last().is_some_and(|e| is_excluded(*e)), executions: *executions, edges })
        };
        let paths: Vec<KnownPath> = known.paths.iter().filter_map(path).collect();
        let prices = Prices::new(paths.iter().map(KnownPath::own_executions).fold(0, u64::saturating_add));
        let mut choice = KnownPathRegion::all(dag, paths, prices);
        let known = choice.edges.clone();
        choice.improve();
        let (cost, nodes, unclear) = (choice.cost(), choice.node_count(), choice.unclear());
        let (edges, paths) = choice.into_parts();
        // In interpreters by indirect branches registers decide, and copies take some: one executed 9 % more than the plain build with
        // them, and 5 % without.
        let contexts = if single.is_empty() { contexts::cheapest(dag, &paths, prices, cost, nodes) } else { None };
        let region = contexts.unwrap_or_else(|| Automaton::from_edges(dag, &edges, &unclear));
        let single = single.iter().filter_map(|node| Some((*node, region.state_of(*node)?))).collect();
        ResidualPlan { known, region, single, paths, ids }
    }

    /// Whether a known path takes this edge.
    pub fn is_known(&self, edge: DagEdgeId) -> bool {
        self.known[edge.index()]
    }

    /// The checking code.
    pub fn region(&self) -> &Automaton {
        &self.region
    }

    /// What happens on the edges of a function that stays one version: paths are looked up where they end, unless their
    /// last edge says that they are unknown.
    pub fn with_lookups(&self, graph: &Graph, plan: &Plan) -> ProbeProgram {
        let operations = graph.edges().map(|e| operations(graph, plan, self, &[], e, At::Instrumented)).collect();
        ProbeProgram::from_lookups(graph, plan, operations, self.ids.clone())
    }

    /// Increments that known paths meet as rarely as possible.
    pub fn probes(&self, dag: &Dag, numbering: &Numbering, graph: &Graph, frequencies: &Frequencies) -> Probes {
        // A fraction of what an increment costs that known paths meet. A thousand times as much or as little changes at most 0.1 % of three
        // programs' instructions (docs/benchmarks/constants.md).
        const NEVER: f64 = 1e-6;
        let needed = self.region.needed(dag);
        let mut costs = crate::plan::probe_costs(dag, graph, frequencies);
        let mut is_met = vec![false; costs.len()];
        for transition in self.region.states.iter().flat_map(|s| &s.transitions) {
            is_met[transition.edge.index()] |= transition.to.is_none_or(|to| needed[to]);
        }
        costs.iter_mut().zip(is_met).filter(|(_, met)| !met).for_each(|(cost, _)| *cost *= NEVER);
        Probes::on_chords(dag, numbering.values(), &costs)
    }
}

/// Where control is: a state of the region, or the instrumented code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum At {
    Known(usize),
    Instrumented,
}

impl ResidualPlan {
    /// All versions of a function, whose exit is its last node, as one graph with what happens on its edges. Only places
    /// that control reaches are in it: its first node is the entry, its last one the exit.
    pub fn versions(&self, graph: &Graph, plan: &Plan) -> ProbeProgram {
        let needed = self.region.needed(&plan.dag);
        let version_edges = VersionEdges { graph, plan, residual: self };
        let mut found: Vec<(Node, At)> = vec![(graph.entry(), At::Known(0))];
        let mut number = HashMap::from([(found[0], 0)]);
        let (mut edges, mut origins, mut code) = (Vec::new(), Vec::new(), Vec::new());
        let mut at = 0;
        while at < found.len() {
            let (node, version) = found[at];
            for &edge in graph.out(node) {
                let to = graph.to(edge);
                let head = (to != graph.exit()).then(|| {
                    let head = (to, version_edges.head(edge, version));
                    *number.entry(head).or_insert_with(|| {
                        found.push(head);
                        found.len() - 1
                    })
                });
                edges.push((at, head));
                origins.push(edge);
                code.push(operations(graph, plan, self, &needed, edge, version));
            }
            at += 1;
        }
        let exit = Node(found.len() as u32);
        let edges = edges.into_iter().map(|(from, to)| (Node(from as u32), to.map_or(exit, |to| Node(to as u32)))).collect();
        let versions = Graph::new(exit.0 + 1, Node(0), exit, edges).expect("versions of a graph are one");
        let executions = version_edges.executions(&number, &versions, &origins);
        let places = places(&found, &versions, &executions);
        let order = order(&plan.dag, &found);
        ProbeProgram::from_versions((versions, order, origins), plan, code, (self.ids.clone(), places, executions))
    }
}

/// The nodes in an order in which those of a path follow each other: paths leave the known-path region, and do not come back.
fn order(dag: &Dag, found: &[(Node, At)]) -> Vec<Node> {
    let position = dag.positions();
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by_key(|at| (found[*at].1 == At::Instrumented, position[found[*at].0.index()]));
    order.into_iter().map(|at| Node(at as u32)).collect()
}

/// The places: of the states of a node, the one that is executed most is the original.
fn places(found: &[(Node, At)], versions: &Graph, executions: &[u64]) -> Vec<NodePlace> {
    let executed = |at: usize| versions.out(Node(at as u32)).iter().map(|e| executions[e.index()]).fold(0, u64::saturating_add);
    let mut ranked: Vec<usize> = (0..found.len()).collect();
    ranked.sort_by_key(|at| (Reverse(executed(*at)), *at));
    let mut copies = HashMap::<Node, u32>::new();
    let mut places = vec![None; found.len()];
    for at in ranked {
        let (node, place) = found[at];
        let version = match place {
            At::Instrumented => CodeVersion::Instrumented,
            At::Known(_) => {
                let copies = copies.entry(node).or_default();
                *copies += 1;
                CodeVersion::Known(*copies - 1)
            }
        };
        places[at] = Some(NodePlace { node, version });
    }
    places.into_iter().flatten().collect()
}

/// Where control goes on.
struct VersionEdges<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    residual: &'a ResidualPlan,
}

impl VersionEdges<'_> {
    fn head(&self, edge: Edge, from: At) -> At {
        match (self.plan.dag.real(edge), self.plan.dag.cut(edge).map(|cut| cut.enter)) {
            (Some(id), _) => self.behind(id, edge, from),
            // A path begins.
            (None, Some(Some(enter))) => self.behind(enter, edge, At::Known(0)),
            (None, Some(None)) => At::Known(0),
            (None, None) => At::Instrumented,
        }
    }

    /// Where control is behind an edge of the path graph, which stands for one of the function.
    fn behind(&self, id: DagEdgeId, edge: Edge, from: At) -> At {
        let transition = match from {
            At::Known(state) => self.residual.region.transition(state, id),
            At::Instrumented => None,
        };
        let single = self.residual.single.iter().find(|(node, _)| *node == self.graph.to(edge)).map(|(_, state)| *state);
        single.or(transition.and_then(|transition| transition.to)).map_or(At::Instrumented, At::Known)
    }

    /// How often the known paths take each edge of all versions.
    fn executions(&self, number: &HashMap<(Node, At), usize>, versions: &Graph, origins: &[Edge]) -> Vec<u64> {
        let mut executions = vec![0u64; versions.edge_count()];
        for path in &self.residual.paths {
            let mut version = At::Known(0);
            for &id in &path.edges {
                let origin = self.plan.dag.edge(id).origin;
                if let Origin::Real(e) | Origin::Leave(e) = origin {
                    let at = Node(number[&(self.graph.from(e), version)] as u32);
                    let taken = versions.out(at).iter().find(|t| origins[t.index()] == e).expect("all edges of a node are there");
                    executions[taken.index()] = executions[taken.index()].saturating_add(path.own_executions());
                }
                if let Origin::Enter(e) | Origin::Real(e) = origin {
                    version = self.behind(id, e, version);
                }
            }
        }
        executions
    }
}

/// What is done on an edge of the function in a version.
fn operations(graph: &Graph, plan: &Plan, residual: &ResidualPlan, needed: &[bool], edge: Edge, at: At) -> Vec<Operation> {
    let action = plan.action(graph, edge);
    let transition = |id: Option<DagEdgeId>| match at {
        At::Known(state) => id.and_then(|id| residual.region.transition(state, id)),
        At::Instrumented => None,
    };
    let real = plan.dag.real(edge);
    match action {
        RegisterAction::Count { increment } => match end(residual, real, transition(real)) {
            End::Unknown => of_action(action),
            End::Unclear => vec![Operation::Check { increment }],
            End::Known => vec![Operation::Discard],
        },
        RegisterAction::CountAndRestart { increment, start } => {
            let leave = plan.dag.cut(edge).and_then(|c| c.leave);
            match end(residual, leave, transition(leave)) {
                End::Unknown => of_action(action),
                End::Unclear => vec![Operation::Check { increment }, Operation::Set(start)],
                End::Known => vec![Operation::Set(start)],
            }
        }
        // No unknown path is ahead.
        RegisterAction::Add { .. } if transition(real).is_some_and(|transition| transition.to.is_none_or(|to| !needed[to])) => {
            vec![Operation::Discard]
        }
        action => of_action(action),
    }
}

/// What is known of the paths that end somewhere.
enum End {
    Known,
    Unclear,
    Unknown,
}

fn end(residual: &ResidualPlan, edge: Option<DagEdgeId>, transition: Option<RegionTransition>) -> End {
    match (edge, transition) {
        // The path ends where the graph does.
        (None, _) => End::Known,
        (Some(_), Some(transition)) if !transition.unclear => End::Known,
        (Some(e), _) if !residual.is_known(e) => End::Unknown,
        _ => End::Unclear,
    }
}
