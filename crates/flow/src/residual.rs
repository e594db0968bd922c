//! Residual path profiling: a program that knows a set of paths, spends next to nothing on them, and counts every other one exactly.
//!
//! Source of the idea: Vaswani's thesis, chapter 3 (residual path profiling); Pavlopoulou and Young, "Residual test coverage monitoring" (ICSE 1999).
//! Published builds tell known paths from unknown ones where a path ends. Here what can be decided when the program is made costs nothing when it
//! runs. Some edges that known paths take, mostly all of them, are the *inside*: the function's first version. Whoever leaves it by another edge goes on in a
//! second, *counted* version until the path ends; there it is looked up, and counted if it is unknown. The inside is chosen so that all its paths are known: where known
//! edges can be combined to an unknown path, those that are executed least are left out ([`inside`]). So the first version looks at nothing, but for
//!
//! - the path register, where it may still be left ([`Doubled`] finds out where);
//! - ends of paths where looking up costs less than leaving out what is executed there ([`Residual::is_unclear`]).
//!
//! ```text
//!   inside:   a ---> b ---> d --(back edge)--> a        counted:           c' ---> d' --> unknown? count --(back edge)--> a
//!              `------------------------------------------ edge outside ---^
//! ```
//!
//! Identities are those of the full profile: increments are the same in both versions, so a register that crosses over means the same.

use crate::dag::{Dag, DagEdgeId, Origin};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph, Node};
use crate::numbering::Numbering;
use crate::placement::Probes;
use crate::plan::{Action, Plan};
use crate::schedule::{Choices, Facts, Schedule, Step, Task};
use inside::Inside;

mod inside;

/// What is known of a function's paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residual {
    known: Vec<bool>,
    inside: Vec<bool>,
    unclear: Vec<bool>,
    /// The known paths, with their executions.
    paths: Vec<(Vec<DagEdgeId>, u64)>,
}

impl Residual {
    /// Of the known paths' identities and executions; identities of no path are left out.
    pub fn of(dag: &Dag, numbering: &Numbering, known: &[(u64, u64)]) -> Residual {
        let paths = known.iter().filter_map(|(id, count)| Some((numbering.path(dag, *id)?, *count))).collect();
        let mut choice = Inside::all(dag, paths);
        let known = choice.edges.clone();
        choice.improve();
        let unclear = choice.unclear();
        let (inside, paths) = choice.into_parts();
        Residual { known, inside, unclear, paths }
    }

    /// Whether a known path takes this edge.
    pub fn is_known(&self, edge: DagEdgeId) -> bool {
        self.known[edge.index()]
    }

    /// Whether the first version has this edge.
    pub fn is_inside(&self, edge: DagEdgeId) -> bool {
        self.inside[edge.index()]
    }

    /// Whether unknown paths end with this edge too, though all their edges are inside.
    pub fn is_unclear(&self, edge: DagEdgeId) -> bool {
        self.unclear[edge.index()]
    }

    /// For each node, whether the first version has to keep the path register there: an edge outside or an unclear end may follow.
    fn needed(&self, dag: &Dag) -> Vec<bool> {
        let mut needed = vec![false; dag.node_count()];
        for &node in dag.order().iter().rev() {
            needed[node.index()] =
                dag.out(node).iter().any(|e| !self.is_inside(*e) || self.is_unclear(*e) || needed[dag.edge(*e).to.index()]);
        }
        needed
    }

    /// What happens on the edges of a function that stays one version: paths are looked up where they end, unless their last edge says that they are unknown.
    pub fn looked_up(&self, graph: &Graph, plan: &Plan) -> Schedule {
        let needed = vec![true; graph.node_count()];
        Schedule::from_tasks(graph.edges().map(|e| task(graph, plan, self, &needed, e, Version::Counted)).collect())
    }

    /// Increments that known paths meet as rarely as possible.
    pub fn probes(&self, dag: &Dag, numbering: &Numbering, graph: &Graph, frequencies: &Frequencies) -> Probes {
        const NEVER: f64 = 1e-6;
        let needed = self.needed(dag);
        let mut costs = crate::plan::probe_costs(dag, graph, frequencies);
        for edge in dag.edge_ids() {
            let to = dag.edge(edge).to;
            if !self.is_inside(edge) || (to != dag.exit() && !needed[to.index()]) {
                costs[edge.index()] *= NEVER;
            }
        }
        Probes::on_chords(dag, numbering.values(), &costs)
    }
}

/// Which version of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The one of the inside.
    First,
    /// The one in which whatever leaves it goes on.
    Counted,
}

/// Both versions of a function as one graph, and what happens on its edges.
///
/// Of a graph of `n` nodes before the exit and `m` edges, nodes `0..n` and edges `0..m` are the first version, `n..2n` and `m..2m` the counted one, and `2n`
/// is the exit.
#[derive(Clone, Debug)]
pub struct Doubled {
    /// The graph.
    pub graph: Graph,
    /// Its nodes that control reaches, but the exit; those of a path in its order.
    pub order: Vec<Node>,
    /// What happens on its edges; nothing on those that no control reaches.
    pub schedule: Schedule,
    /// Which nodes control reaches.
    pub reached: Vec<bool>,
    /// How often the known paths take its edges.
    pub executions: Vec<u64>,
}

impl Doubled {
    /// Doubles a graph whose exit is its last node. `single` are nodes that exist once, in the first version: all edges into them are cut.
    pub fn of(graph: &Graph, plan: &Plan, residual: &Residual, single: &[Node]) -> Doubled {
        let (n, m) = (graph.exit().0, graph.edge_count() as u32);
        let needed = residual.needed(&plan.dag);
        let mut edges = Vec::with_capacity(2 * m as usize);
        let mut tasks = Vec::with_capacity(2 * m as usize);
        for version in [Version::First, Version::Counted] {
            for edge in graph.edges() {
                let from = place(graph.from(edge), version, n);
                let to = graph.to(edge);
                let head = if single.contains(&to) { Version::First } else { head(plan, residual, edge, version) };
                edges.push((from, if to == graph.exit() { Node(2 * n) } else { place(to, head, n) }));
                tasks.push(task(graph, plan, residual, &needed, edge, version));
            }
        }
        let doubled = Graph::new(2 * n + 1, graph.entry(), Node(2 * n), edges).expect("twice a graph is one");
        let reached = reached(&doubled);
        let inner = || plan.dag.order().iter().filter(|x| **x != graph.exit());
        let both = [Version::First, Version::Counted].into_iter().flat_map(|v| inner().map(move |x| place(*x, v, n)));
        let order = both.filter(|x| reached[x.index()]).collect();
        for edge in doubled.edges().filter(|e| !reached[doubled.from(*e).index()]) {
            tasks[edge.index()].step = Step::Plain(Action::Dead);
        }
        let executions = executions(graph, plan, residual, single);
        Doubled { graph: doubled, order, schedule: Schedule::from_tasks(tasks), reached, executions }
    }

    /// Rearranges how loops are counted that the known paths do not take, of which the frequencies and choices are; the facts are of both versions. Counts stay at the ends of their paths.
    pub fn rearrange_rounds(&mut self, plan: &Plan, frequencies: &Frequencies, facts: &Facts, choices: Choices) {
        let edges = frequencies.edges().iter().cycle().copied().take(self.graph.edge_count()).collect();
        let both = Frequencies::measured(&self.graph, edges);
        self.schedule.rearrange_rounds(&self.graph, &self.order, &plan.dag, &both, facts, choices);
    }

    /// Whether anything has to be done at all.
    pub fn has_code(&self) -> bool {
        self.graph.edges().any(|e| self.schedule.has_code(e))
    }
}

/// How often the known paths take each edge of the doubled graph.
fn executions(graph: &Graph, plan: &Plan, residual: &Residual, single: &[Node]) -> Vec<u64> {
    let m = graph.edge_count();
    let mut executions = vec![0u64; 2 * m];
    for (path, count) in &residual.paths {
        let mut version = Version::First;
        for &id in path {
            let stays = version == Version::First && residual.is_inside(id);
            match plan.dag.edge(id).origin {
                Origin::Enter(e) => {
                    version = if residual.is_inside(id) || single.contains(&graph.to(e)) { Version::First } else { Version::Counted }
                }
                Origin::Real(e) | Origin::Leave(e) => {
                    let at = e.index() + if version == Version::First { 0 } else { m };
                    executions[at] = executions[at].saturating_add(*count);
                    version = if stays { Version::First } else { Version::Counted };
                }
                Origin::Stop(_) => {}
            }
        }
    }
    executions
}

fn place(node: Node, version: Version, n: u32) -> Node {
    match version {
        Version::First => node,
        Version::Counted => Node(node.0 + n),
    }
}

/// Where control goes on behind an edge.
fn head(plan: &Plan, residual: &Residual, edge: Edge, version: Version) -> Version {
    let inside = |id: Option<DagEdgeId>| match id.is_none_or(|id| residual.is_inside(id)) {
        true => Version::First,
        false => Version::Counted,
    };
    match (plan.dag.real(edge), plan.dag.cut(edge)) {
        (Some(_), _) if version == Version::Counted => Version::Counted,
        (Some(id), _) => inside(Some(id)),
        // A path begins.
        (None, Some(cut)) => inside(cut.enter),
        (None, None) => version,
    }
}

fn task(graph: &Graph, plan: &Plan, residual: &Residual, needed: &[bool], edge: Edge, version: Version) -> Task {
    let action = plan.action(graph, edge);
    let is_over = |id: DagEdgeId| residual.is_inside(id) && !needed[graph.to(edge).index()];
    let step = match (version, action) {
        (_, Action::Count { increment }) => match end(residual, plan.dag.real(edge), version) {
            End::Unknown => Step::Plain(action),
            End::Unclear => Step::Check { increment, start: None },
            End::Known => Step::Counted,
        },
        (_, Action::CountAndRestart { increment, start }) => match end(residual, plan.dag.cut(edge).and_then(|c| c.leave), version) {
            End::Unknown => Step::Plain(action),
            End::Unclear => Step::Check { increment, start: Some(start) },
            End::Known => Step::Restart { start },
        },
        (Version::First, Action::Add { .. }) if plan.dag.real(edge).is_some_and(is_over) => Step::Counted,
        (_, action) => Step::Plain(action),
    };
    Task::of(step)
}

/// What is known of the paths that end somewhere.
enum End {
    Known,
    Unclear,
    Unknown,
}

fn end(residual: &Residual, edge: Option<DagEdgeId>, version: Version) -> End {
    match edge {
        // The path ends where the graph does.
        None => End::Known,
        Some(e) if !residual.is_known(e) => End::Unknown,
        Some(e) if version == Version::First && residual.is_inside(e) && !residual.is_unclear(e) => End::Known,
        Some(_) => End::Unclear,
    }
}

fn reached(graph: &Graph) -> Vec<bool> {
    let mut reached = vec![false; graph.node_count()];
    let mut stack = vec![graph.entry()];
    while let Some(node) = stack.pop() {
        if !std::mem::replace(&mut reached[node.index()], true) {
            stack.extend(graph.out(node).iter().map(|e| graph.to(*e)));
        }
    }
    reached
}
