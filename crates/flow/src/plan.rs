//! Plans: the numbering of a function's paths, and the changes of the path register by which the paths are counted.
//!
//! Plans are data. A backend (LLVM, an interpreter in tests, breakpoints) maintains a path register `r` and performs [`Plan::action`] on
//! each edge. All schemes are expressed in the same few actions, so a new scheme does not require changes to backends.

use crate::dag::{CutReason, Dag, DagEdgeId, Entries, Origin};
use crate::frequency::Frequencies;
use crate::graph::{Edge, EdgeSet, Graph};
use crate::limit::cut_to_limit;
use crate::numbering::{Numbering, TooManyPaths};
use crate::part::Part;
use crate::placement::Probes;

/// Options for numbering and counting a function's paths.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Maximum number of paths. If the function has more, its paths are cut ([`crate::limit`]).
    pub max_paths: u64,
    /// Whether cut edges with the same head share a dummy edge.
    pub entries: Entries,
    /// Whether to number frequent paths first, so that their counters are adjacent.
    pub hot_first: bool,
    /// Whether to place increments on the chords of a spanning tree, instead of on all edges with a nonzero value.
    pub chords: bool,
}

/// Action on the path register `r` when control takes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// `r += increment`, or no action if the increment is zero.
    Add {
        /// The increment of `r`.
        increment: i64,
    },
    /// `count[r + increment] += 1`: the path ends.
    Count {
        /// The difference between the counter's index and `r`.
        increment: i64,
    },
    /// `count[r + increment] += 1; r = start`: the path ends and a new one begins.
    CountAndRestart {
        /// The difference between the counter's index and `r`.
        increment: i64,
        /// The register's value for the new path.
        start: i64,
    },
    /// No action, because control cannot reach the edge.
    Dead,
}

/// The numbering of a function's paths and the positions of its probes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The acyclic graph whose paths are counted.
    pub dag: Dag,
    /// The numbers of the paths.
    pub numbering: Numbering,
    /// The increments of the path register.
    pub probes: Probes,
    /// Set if the plan omits some paths. The numbering is then that of the remaining paths.
    pub partial: Option<RestrictedPlan>,
    /// Set if this is the plan of one of several copies of a program. The numbering is then that of the paths which this copy counts, and
    /// [`crate::program`] counts these paths at their ends.
    pub part: Option<PartPlan>,
}

/// The paths that one of several copies of a program counts ([`crate::part`]).
#[derive(Clone, Debug)]
pub struct PartPlan {
    /// The acyclic graph of the paths that are counted.
    pub dag: Dag,
    /// The label of each edge of `dag`. A path's counter is the sum of its labels.
    pub labels: Vec<i64>,
    /// Number of counters.
    pub words: u64,
    /// The copy's increments and the edges on which it counts, by edge of the plan's graph.
    pub part: Part,
}

/// The paths that a plan counts if it treats certain edges of the function as never taken.
#[derive(Clone, Debug)]
pub struct RestrictedPlan {
    /// The acyclic graph of the paths that are counted.
    pub dag: Dag,
    /// The edges of the function's graph that are treated as never taken.
    pub never_taken: EdgeSet,
}

impl Plan {
    /// Creates a plan that counts all paths of a graph, in which the `forced` edges are cut.
    pub fn ball_larus(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, options: &PlanOptions) -> Plan {
        let limited = cut_to_limit(graph, forced, frequencies, options.max_paths, options.entries);
        let (dag, numbering) = match options.hot_first {
            false => (limited.dag, limited.numbering),
            true => number_hottest_first(&limited.dag, graph, frequencies),
        };
        Plan::from_numbering(dag, numbering, graph, frequencies, options)
    }

    /// Creates a plan that counts the paths of an acyclic graph with the given numbering.
    pub fn from_numbering(dag: Dag, numbering: Numbering, graph: &Graph, frequencies: &Frequencies, options: &PlanOptions) -> Plan {
        let probes = match options.chords {
            true => Probes::on_chords(&dag, numbering.values(), &probe_costs(&dag, graph, frequencies)),
            false => Probes::direct(numbering.values()),
        };
        Plan { dag, numbering, probes, partial: None, part: None }
    }

    /// Creates the plan of one of several copies of a program, or returns `None` if `part` does not belong to this graph.
    pub fn from_part(dag: Dag, part: Part) -> Option<Plan> {
        if !part.has_edges(dag.edges().len()) {
            return None;
        }
        let edges = part.interesting.iter().map(|e| dag.edge(e)).collect();
        let counted = Dag::from_edges(dag.node_count() as u32, dag.entry(), dag.exit(), edges).ok()?;
        let numbering = Numbering::ball_larus(&counted).ok()?;
        let (least, greatest) = part.counted_number_range(&dag)?;
        let words = u64::try_from(greatest).ok().filter(|_| least >= 0)?.checked_add(1)?;
        let labels = part.interesting.iter().map(|e| part.values[e.index()]).collect();
        let probes = Probes::from_increments(part.increments.clone());
        Some(Plan { dag, numbering, probes, partial: None, part: Some(PartPlan { dag: counted, labels, words, part }) })
    }

    /// Returns the acyclic graph whose paths are numbered.
    pub fn numbered(&self) -> &Dag {
        match (&self.partial, &self.part) {
            (Some(partial), _) => &partial.dag,
            (None, Some(part)) => &part.dag,
            (None, None) => &self.dag,
        }
    }

    /// Cuts a graph at the same edges as an earlier plan, and numbers its paths.
    pub fn cut_and_number(graph: &Graph, cuts: &[(Edge, CutReason)], entries: Entries) -> Result<(Dag, Numbering), TooManyPaths> {
        let dag = Dag::new(graph, cuts, entries);
        let numbering = Numbering::ball_larus(&dag)?;
        Ok((dag, numbering))
    }

    /// Like [`Plan::cut_and_number`], but returns `None` if the number of paths is not `paths`.
    pub fn cut_and_number_if_same_count(
        graph: &Graph,
        cuts: &[(Edge, CutReason)],
        entries: Entries,
        paths: u64,
    ) -> Option<(Dag, Numbering)> {
        Plan::cut_and_number(graph, cuts, entries).ok().filter(|(_, numbering)| numbering.paths() == paths)
    }

    /// Returns the action for an edge of the plan's graph. Not valid for a plan with a [`PartPlan`] ([`crate::program`] handles it).
    pub fn action(&self, graph: &Graph, edge: Edge) -> RegisterAction {
        if self.partial.as_ref().is_some_and(|partial| partial.never_taken.contains(edge)) {
            return RegisterAction::Dead;
        }
        let increment = |id: DagEdgeId| self.probes.increment(id);
        if let Some(id) = self.dag.real(edge) {
            return match graph.to(edge) == self.dag.exit() && graph.out(self.dag.exit()).is_empty() {
                true => RegisterAction::Count { increment: increment(id) },
                false => RegisterAction::Add { increment: increment(id) },
            };
        }
        match self.dag.cut(edge) {
            None => RegisterAction::Dead,
            Some(cut) => {
                RegisterAction::CountAndRestart { increment: cut.leave.map_or(0, increment), start: cut.enter.map_or(0, increment) }
            }
        }
    }
}

/// Numbers paths with each node's hottest out-edge first, so that paths with cold edges have high numbers.
fn number_hottest_first(dag: &Dag, graph: &Graph, frequencies: &Frequencies) -> (Dag, Numbering) {
    let costs = edge_frequencies(dag, graph, frequencies);
    let mut order: Vec<DagEdgeId> = dag.edge_ids().collect();
    order.sort_by(|a, b| costs[b.index()].total_cmp(&costs[a.index()]));
    let dag = dag.with_reordered_edges(&order);
    let numbering = Numbering::ball_larus(&dag).expect("the order changes no number of paths");
    (dag, numbering)
}

/// Returns the number of executions of each edge of the DAG. An [`Origin::Enter`] edge has the sum over all cut edges into its head.
pub fn edge_frequencies(dag: &Dag, graph: &Graph, frequencies: &Frequencies) -> Vec<f64> {
    let frequency = |id: DagEdgeId| match dag.edge(id).origin {
        Origin::Real(e) | Origin::Leave(e) => frequencies.edge(e),
        Origin::Enter(e) => {
            let entering = graph.incoming(graph.to(e)).iter().filter(|e| dag.cut(**e).is_some());
            entering.map(|e| frequencies.edge(*e)).sum()
        }
        Origin::Stop(n) => frequencies.node(n),
    };
    dag.edge_ids().map(frequency).collect()
}

/// Returns each edge's number of executions times the cost of an increment there. The cost is almost 0 if the edge begins or ends a path,
/// because the increment is then part of the register's initial value or of the counter's address.
pub fn probe_costs(dag: &Dag, graph: &Graph, frequencies: &Frequencies) -> Vec<f64> {
    // Cost of an increment on an edge that begins or ends a path, relative to other edges. If this is 1, three benchmark programs execute
    // 0.3 to 7.3% more instructions; if it is 1e-6, the same number (docs/benchmarks/constants.md).
    const FOLDED_INCREMENT_COST: f64 = 1e-3;
    dag.edge_ids()
        .map(|id| match dag.edge(id).origin {
            Origin::Real(e) if graph.to(e) == dag.exit() || graph.from(e) == dag.entry() => frequencies.edge(e) * FOLDED_INCREMENT_COST,
            Origin::Real(e) => frequencies.edge(e),
            Origin::Enter(e) | Origin::Leave(e) => frequencies.edge(e) * FOLDED_INCREMENT_COST,
            Origin::Stop(n) => frequencies.node(n) * FOLDED_INCREMENT_COST,
        })
        .collect()
}
