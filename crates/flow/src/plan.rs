//! A plan: what a backend has to insert on which edge of a function so that all its paths are counted.
//!
//! Plans are data. A backend (LLVM, an interpreter in tests, breakpoints) keeps a path register `r` and does, edge by edge, what
//! [`Plan::action`] says. Whatever a scheme decides, it ends as these few actions, so that a new scheme needs no backend work.

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
    /// Most paths a function may have before it is cut further; see [`crate::limit`].
    pub max_paths: u64,
    /// Whether cut edges with one head have one entry.
    pub entries: Entries,
    /// Number the paths that are taken most often first, so that their counters lie side by side.
    pub hot_first: bool,
    /// Increments on chords of a spanning tree rather than wherever a value is not zero.
    pub chords: bool,
}

/// What the path register has to undergo when control takes an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAction {
    /// `r += increment` (nothing if that is zero).
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
    /// Control cannot come here from the entry: nothing.
    Dead,
}

/// The numbering of a function's paths and where its probes are.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The acyclic graph whose paths are counted.
    pub dag: Dag,
    /// Their identities.
    pub numbering: Numbering,
    /// The increments of the path register.
    pub probes: Probes,
    /// What is left out, if anything is: then the numbering is that of the paths which are not.
    pub partial: Option<Partial>,
    /// If one of several copies is to count just a part of the paths: then the numbering is that of this part, and
    /// [`crate::program`] counts at ends.
    pub part: Option<PartPlan>,
}

/// What one of several copies counts; see [`crate::part`].
#[derive(Clone, Debug)]
pub struct PartPlan {
    /// The acyclic graph of the paths that are counted.
    pub dag: Dag,
    /// For each of its edges the label whose sum along a path says in which word the path is counted.
    pub labels: Vec<i64>,
    /// Number of words.
    pub words: u64,
    /// Increments and places of counts, by edge of the plan's graph.
    pub part: Part,
}

/// What a plan leaves out: paths that end on edges which are no part of the function's flow.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The acyclic graph of the paths that are counted.
    pub dag: Dag,
    /// Edges of the function's graph that are never taken.
    pub excluded: Vec<bool>,
}

impl Plan {
    /// Ball-Larus path profiling: every path of the graph, `forced` edges cut.
    pub fn ball_larus(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, options: &PlanOptions) -> Plan {
        let limited = cut_to_limit(graph, forced, frequencies, options.max_paths, options.entries);
        let (dag, numbering) = match options.hot_first {
            false => (limited.dag, limited.numbering),
            true => hottest_first(&limited.dag, graph, frequencies),
        };
        Plan::from_numbering(dag, numbering, graph, frequencies, options)
    }

    /// Path profiling of the paths of an acyclic graph, by these numbers.
    pub fn from_numbering(dag: Dag, numbering: Numbering, graph: &Graph, frequencies: &Frequencies, options: &PlanOptions) -> Plan {
        let probes = match options.chords {
            true => Probes::on_chords(&dag, numbering.values(), &probe_costs(&dag, graph, frequencies)),
            false => Probes::direct(numbering.values()),
        };
        Plan { dag, numbering, probes, partial: None, part: None }
    }

    /// One copy's part of the paths of a graph; `None` if the part is not of this graph.
    pub fn from_part(dag: Dag, part: Part) -> Option<Plan> {
        if !part.fits(dag.edges().len()) {
            return None;
        }
        let region = || dag.edge_ids().filter(|e| part.interesting[e.index()]);
        let edges = region().map(|e| dag.edge(e)).collect();
        let counted = Dag::from_edges(dag.node_count() as u32, dag.entry(), dag.exit(), edges).ok()?;
        let numbering = Numbering::ball_larus(&counted).ok()?;
        let (least, most) = part.counted_numbers(&dag)?;
        let words = u64::try_from(most).ok().filter(|_| least >= 0)?.checked_add(1)?;
        let labels = region().map(|e| part.values[e.index()]).collect();
        let probes = Probes::from_increments(part.increments.clone());
        Some(Plan { dag, numbering, probes, partial: None, part: Some(PartPlan { dag: counted, labels, words, part }) })
    }

    /// The acyclic graph whose paths are numbered: without what is left out.
    pub fn numbered(&self) -> &Dag {
        match (&self.partial, &self.part) {
            (Some(partial), _) => &partial.dag,
            (None, Some(part)) => &part.dag,
            (None, None) => &self.dag,
        }
    }

    /// The numbering of paths that are cut at exactly these edges, as an earlier plan cut them.
    ///
    /// # Errors
    /// They are more than can be numbered.
    pub fn cut_at(graph: &Graph, cuts: &[(Edge, CutReason)], entries: Entries) -> Result<(Dag, Numbering), TooManyPaths> {
        let dag = Dag::new(graph, cuts, entries);
        let numbering = Numbering::ball_larus(&dag)?;
        Ok((dag, numbering))
    }

    /// The same, if there are as many paths as there were then.
    pub fn cut_as(graph: &Graph, cuts: &[(Edge, CutReason)], entries: Entries, paths: u64) -> Option<(Dag, Numbering)> {
        Plan::cut_at(graph, cuts, entries).ok().filter(|(_, numbering)| numbering.paths() == paths)
    }

    /// What happens when control takes an edge of the graph the plan was made for. Of a plan with a [`PartPlan`] that is a
    /// matter of [`crate::program`].
    pub fn action(&self, graph: &Graph, edge: Edge) -> RegisterAction {
        if self.partial.as_ref().is_some_and(|partial| partial.excluded[edge.index()]) {
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

/// Visits the out-edges of each node by decreasing frequency: along the hottest edges values are 0, and paths with a
/// cold edge have high numbers.
fn hottest_first(dag: &Dag, graph: &Graph, frequencies: &Frequencies) -> (Dag, Numbering) {
    let costs = edge_frequencies(dag, graph, frequencies);
    let mut order: Vec<DagEdgeId> = dag.edge_ids().collect();
    order.sort_by(|a, b| costs[b.index()].total_cmp(&costs[a.index()]));
    let dag = dag.in_order(&order);
    let numbering = Numbering::ball_larus(&dag).expect("the order changes no number of paths");
    (dag, numbering)
}

/// How often each edge of the DAG is executed; of a shared entry, the first cut edge that leads there.
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

/// What an increment on each edge of the DAG would cost: executions times the work of one.
///
/// An increment on an edge that begins or ends a path is all but free, because it becomes part of the constant the register is set to
/// or of the counter's address.
pub fn probe_costs(dag: &Dag, graph: &Graph, frequencies: &Frequencies) -> Vec<f64> {
    // A fraction of what it costs elsewhere. With 1, three programs execute 0.3 to 7.3 % more; with a thousandth of it, the same
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
