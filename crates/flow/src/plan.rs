//! A plan: the numbering of a function's paths, and where the path register changes so that all of them are counted.
//!
//! Plans are data. A backend (LLVM, an interpreter in tests, breakpoints) keeps a path register `r` and does on each edge what
//! [`Plan::action`] says. Every scheme is expressed in these few actions, so a new scheme needs no backend work.

use crate::dag::{CutReason, Dag, DagEdgeId, Entries, Origin};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph};
use crate::limit::cut_to_limit;
use crate::numbering::{Numbering, TooManyPaths};
use crate::part::Part;
use crate::placement::Probes;

/// How a function's paths are to be numbered and counted.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Maximum number of paths of a function; above it, the function is cut ([`crate::limit`]).
    pub max_paths: u64,
    /// Whether cut edges with the same head share an entry.
    pub entries: Entries,
    /// Whether to number frequent paths first, so that their counters lie side by side.
    pub hot_first: bool,
    /// Whether to put increments on the chords of a spanning tree, and not wherever a value is not zero.
    pub chords: bool,
}

/// What happens to the path register when control takes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// `r += increment`; nothing if that is zero.
    Add {
        /// What to add.
        increment: i64,
    },
    /// `count[r + increment] += 1`: the path ends here.
    Count {
        /// What to add to `r` for the index.
        increment: i64,
    },
    /// `count[r + increment] += 1; r = start`: a path ends and another begins.
    CountAndRestart {
        /// What to add to `r` for the index.
        increment: i64,
        /// The register's value for the next path.
        start: i64,
    },
    /// Control never takes this edge from the entry, so nothing happens.
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
    /// What the plan leaves out, if anything; then the numbering is that of the remaining paths.
    pub partial: Option<Partial>,
    /// The part of the paths that is counted, if this is the plan of one of several copies of a program. Then the numbering is that of
    /// this part, and [`crate::program`] counts at ends.
    pub part: Option<PartPlan>,
}

/// What one of several copies of a program counts; see [`crate::part`].
#[derive(Clone, Debug)]
pub struct PartPlan {
    /// The acyclic graph of the paths that are counted.
    pub dag: Dag,
    /// For each of its edges the label; a path's counter is the sum of the labels along it.
    pub labels: Vec<i64>,
    /// Number of counters.
    pub words: u64,
    /// Increments and counting edges, by edge of the plan's graph.
    pub part: Part,
}

/// What a plan leaves out: paths that end on edges which are not part of the function's flow.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The acyclic graph of the paths that are counted.
    pub dag: Dag,
    /// For each edge of the function's graph, whether it is treated as never taken.
    pub never_taken: Vec<bool>,
}

impl Plan {
    /// Plans Ball-Larus path profiling of every path of the graph, with the `forced` edges cut.
    pub fn ball_larus(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, options: &PlanOptions) -> Plan {
        let limited = cut_to_limit(graph, forced, frequencies, options.max_paths, options.entries);
        let (dag, numbering) = match options.hot_first {
            false => (limited.dag, limited.numbering),
            true => hottest_first(&limited.dag, graph, frequencies),
        };
        Plan::from_numbering(dag, numbering, graph, frequencies, options)
    }

    /// Plans path profiling of an acyclic graph that is already numbered.
    pub fn from_numbering(dag: Dag, numbering: Numbering, graph: &Graph, frequencies: &Frequencies, options: &PlanOptions) -> Plan {
        let probes = match options.chords {
            true => Probes::on_chords(&dag, numbering.values(), &probe_costs(&dag, graph, frequencies)),
            false => Probes::direct(numbering.values()),
        };
        Plan { dag, numbering, probes, partial: None, part: None }
    }

    /// Plans one copy's part of the paths of a graph; `None` if the part does not belong to this graph.
    pub fn from_part(dag: Dag, part: Part) -> Option<Plan> {
        if !part.has_edges(dag.edges().len()) {
            return None;
        }
        let region = || dag.edge_ids().filter(|e| part.interesting[e.index()]);
        let edges = region().map(|e| dag.edge(e)).collect();
        let counted = Dag::from_edges(dag.node_count() as u32, dag.entry(), dag.exit(), edges).ok()?;
        let numbering = Numbering::ball_larus(&counted).ok()?;
        let (least, greatest) = part.counted_numbers(&dag)?;
        let words = u64::try_from(greatest).ok().filter(|_| least >= 0)?.checked_add(1)?;
        let labels = region().map(|e| part.values[e.index()]).collect();
        let probes = Probes::from_increments(part.increments.clone());
        Some(Plan { dag, numbering, probes, partial: None, part: Some(PartPlan { dag: counted, labels, words, part }) })
    }

    /// The acyclic graph whose paths are numbered, without what is left out.
    pub fn numbered(&self) -> &Dag {
        match (&self.partial, &self.part) {
            (Some(partial), _) => &partial.dag,
            (None, Some(part)) => &part.dag,
            (None, None) => &self.dag,
        }
    }

    /// Numbers the paths of a graph that is cut at exactly these edges, as an earlier plan cut it.
    ///
    /// # Errors
    /// There are more paths than can be numbered.
    pub fn cut_at(graph: &Graph, cuts: &[(Edge, CutReason)], entries: Entries) -> Result<(Dag, Numbering), TooManyPaths> {
        let dag = Dag::new(graph, cuts, entries);
        let numbering = Numbering::ball_larus(&dag)?;
        Ok((dag, numbering))
    }

    /// Like [`Plan::cut_at`]; `None` if the number of paths is not `paths`.
    pub fn cut_at_if_same_count(graph: &Graph, cuts: &[(Edge, CutReason)], entries: Entries, paths: u64) -> Option<(Dag, Numbering)> {
        Plan::cut_at(graph, cuts, entries).ok().filter(|(_, numbering)| numbering.paths() == paths)
    }

    /// What happens when control takes an edge of the plan's graph. For plans with a [`PartPlan`], [`crate::program`] decides that.
    pub fn action(&self, graph: &Graph, edge: Edge) -> RegisterAction {
        if self.partial.as_ref().is_some_and(|partial| partial.never_taken[edge.index()]) {
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

/// Visits the out-edges of each node by decreasing frequency, so that the values along the hottest edges are 0 and paths with a cold edge
/// have high numbers.
fn hottest_first(dag: &Dag, graph: &Graph, frequencies: &Frequencies) -> (Dag, Numbering) {
    let costs = edge_frequencies(dag, graph, frequencies);
    let mut order: Vec<DagEdgeId> = dag.edge_ids().collect();
    order.sort_by(|a, b| costs[b.index()].total_cmp(&costs[a.index()]));
    let dag = dag.in_order(&order);
    let numbering = Numbering::ball_larus(&dag).expect("the order changes no number of paths");
    (dag, numbering)
}

/// How often each edge of the DAG is executed. The frequency of an entry edge is that of all cut edges into its head.
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

/// The cost of an increment on each edge of the DAG: its executions times the work of one.
///
/// An increment on an edge that begins or ends a path is almost free, because it is folded into the constant that the register is set to,
/// or into the counter's address.
pub fn probe_costs(dag: &Dag, graph: &Graph, frequencies: &Frequencies) -> Vec<f64> {
    // A fraction of the cost elsewhere. With 1, three programs execute 0.3 to 7.3 % more instructions; with a thousandth of it, as many
    // (docs/benchmarks/constants.md).
    const FREE: f64 = 1e-3;
    dag.edge_ids()
        .map(|id| match dag.edge(id).origin {
            Origin::Real(e) if graph.to(e) == dag.exit() || graph.from(e) == dag.entry() => frequencies.edge(e) * FREE,
            Origin::Real(e) => frequencies.edge(e),
            Origin::Enter(e) | Origin::Leave(e) => frequencies.edge(e) * FREE,
            Origin::Stop(n) => frequencies.node(n) * FREE,
        })
        .collect()
}
