//! Published schemes that are cheaper than counting all paths, as baselines for comparison.
//!
//! [`plan_targeted`] (Joshi, Bond, Zilles, CGO 2004) omits locally cold edges and obvious functions, [`plan_practical`] (Bond, McKinley,
//! CGO 2005) omits globally cold edges, and [`plan_structural`] (Yasue et al., JILP 2003) ends paths at loop borders. Continuous profiling
//! (Bond, McKinley, MICRO 2005) only maintains the path register while it is switched off. [`cost`] computes the number of operations that
//! each scheme executes in a run.

mod cold;
mod cost;
mod structural;
#[cfg(test)]
mod tests;

use anyhow::Result;
use clap::Args;
use cold::{OmittedEdges, omit_edges};
use std::path::PathBuf;
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::{Plan, PlanOptions, RegisterAction};
use trodden_flow::{CutReason, Dag, DagEdgeId, DagEdgeSet, Edge, EdgeSet, Graph, Numbering};
use trodden_profile::Profile;

#[derive(Debug, Args)]
pub struct BaselinesOptions {
    /// Profile of a program that counts all paths.
    pub profile: PathBuf,
}

pub fn run(options: &BaselinesOptions) -> Result<()> {
    let costs = cost::compute_costs(&Profile::read(&options.profile)?)?;
    let all = |cost: &cost::SchemeCost| (cost.register + cost.counts) as f64;
    println!("{:24}{:>14}{:>14}{:>10}{:>16}", "scheme", "register", "counts", "of all", "executions lost");
    for (name, cost) in cost::COMPARED_SCHEMES.iter().zip(&costs) {
        let share = all(cost) / all(&costs[0]).max(1.0);
        println!("{name:24}{:>14}{:>14}{share:>10.3}{:>16}", cost.register, cost.counts, cost.unknown);
    }
    Ok(())
}

#[derive(Clone, Debug)]
pub struct Baseline {
    pub dag: Dag,
    /// Numbers the paths that are counted individually.
    pub numbering: Numbering,
    /// Amount added to the path register on each edge of `dag`.
    increments: Vec<i64>,
    partial: Option<PartialPlan>,
}

/// The part of a plan that exists only if the plan omits paths. Executions of all omitted paths are counted together.
#[derive(Clone, Debug)]
struct PartialPlan {
    /// The acyclic graph of the paths that are counted individually.
    dag: Dag,
    /// The edges of the full graph that are also in `dag`.
    kept: DagEdgeSet,
    /// Edges of the function's graph that are never taken.
    excluded: EdgeSet,
    /// Value that the path register gets on an omitted edge. Later increments are added to it.
    poison: i64,
    /// Size of the number range after the path numbers, in which executions of omitted paths are counted.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests check this bound"))]
    overflow: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterStep {
    /// An action of the plan without omitted paths.
    Plan(RegisterAction),
    /// Sets the register to a value from which later increments cannot lead to a path number.
    Poison(i64),
}

impl Baseline {
    fn from_plan(plan: Plan) -> Baseline {
        Baseline { dag: plan.dag, numbering: plan.numbering, increments: plan.probes.increments().to_vec(), partial: None }
    }

    /// Returns the acyclic graph whose paths have numbers.
    pub fn numbered_graph(&self) -> &Dag {
        self.partial.as_ref().map_or(&self.dag, |partial| &partial.dag)
    }

    /// Returns true if an edge of the full graph is on a path that has a number.
    fn is_on_numbered_path(&self, edge: DagEdgeId) -> bool {
        self.partial.as_ref().is_none_or(|partial| partial.kept.contains(edge))
    }

    pub fn step(&self, graph: &Graph, edge: Edge) -> RegisterStep {
        let whole = self.action(graph, edge);
        let Some(partial) = &self.partial else { return RegisterStep::Plan(whole) };
        let kept = |id: DagEdgeId| partial.kept.contains(id);
        let from = graph.from(edge);
        let inside = from == partial.dag.entry() || !partial.dag.incoming(from).is_empty();
        RegisterStep::Plan(match whole {
            _ if partial.excluded.contains(edge) => RegisterAction::Dead,
            RegisterAction::Add { .. } if inside && !self.dag.real(edge).is_some_and(kept) => return RegisterStep::Poison(partial.poison),
            RegisterAction::CountAndRestart { increment, .. } if self.dag.cut(edge).and_then(|c| c.enter).is_some_and(|id| !kept(id)) => {
                RegisterAction::CountAndRestart { increment, start: partial.poison }
            }
            other => other,
        })
    }

    fn action(&self, graph: &Graph, edge: Edge) -> RegisterAction {
        let increment = |id: DagEdgeId| self.increments[id.index()];
        if let Some(id) = self.dag.real(edge) {
            let ends = graph.to(edge) == self.dag.exit() && graph.out(self.dag.exit()).is_empty();
            return if ends {
                RegisterAction::Count { increment: increment(id) }
            } else {
                RegisterAction::Add { increment: increment(id) }
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

/// An edge is locally cold if it gets less than this share of its block's executions (published: 5 %).
const LOCALLY_COLD_SHARE: f64 = 0.05;
/// An edge is globally cold if it gets less than this share of all edge executions in the program. The published threshold is 0.1 % of the
/// program's path executions; it is divided by ten here, because a path has about ten edges.
const GLOBALLY_COLD_SHARE: f64 = 1e-4;
/// The global threshold is multiplied by this factor while there are too many paths (published: 1.5).
const THRESHOLD_GROWTH_FACTOR: f64 = 1.5;
/// Maximum number of multiplications by `THRESHOLD_GROWTH_FACTOR`. 1.5^80 = 10^14 exceeds all realistic counts.
const MAX_THRESHOLD_STEPS: usize = 80;

/// Plans targeted path profiling. Omits locally cold edges if their block was executed, and places probes on chords. `excluded` has edges
/// that are not part of the function's control flow.
pub fn plan_targeted(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    excluded: &EdgeSet,
    options: &PlanOptions,
) -> Baseline {
    let cold = |e: Edge| frequencies.edge(e) < LOCALLY_COLD_SHARE * frequencies.node(graph.from(e));
    let omitted = OmittedEdges { excluded: excluded.clone(), cold: EdgeSet::from_fn(graph.edge_count(), cold) };
    omit_edges(graph, forced, frequencies, &omitted, options)
}

/// Plans practical path profiling. Omits globally cold edges, and further edges while there are too many paths. Gives the value 0 to the
/// hottest out-edge of each block. `all` is the total number of edge executions in the program.
pub fn plan_practical(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    excluded: &EdgeSet,
    all: f64,
    options: &PlanOptions,
) -> Baseline {
    let options = PlanOptions { hot_first: true, chords: false, ..options.clone() };
    let mut threshold = GLOBALLY_COLD_SHARE * all;
    let hottest = graph.edges().map(|e| frequencies.edge(e)).fold(0.0, f64::max);
    for _ in 0..MAX_THRESHOLD_STEPS {
        let omitted =
            OmittedEdges { excluded: excluded.clone(), cold: EdgeSet::from_fn(graph.edge_count(), |e| frequencies.edge(e) < threshold) };
        let uncut = PlanOptions { max_paths: i64::MAX as u64, ..options.clone() };
        let plan = omit_edges(graph, forced, frequencies, &omitted, &uncut);
        if plan.numbering.paths() <= options.max_paths {
            return plan;
        }
        if threshold * THRESHOLD_GROWTH_FACTOR > hottest {
            return omit_edges(graph, forced, frequencies, &omitted, &options);
        }
        threshold *= THRESHOLD_GROWTH_FACTOR;
    }
    omit_edges(graph, forced, frequencies, &OmittedEdges { excluded: excluded.clone(), cold: EdgeSet::empty(graph.edge_count()) }, &options)
}

/// Plans structural path profiling, in which paths do not cross loop borders.
pub fn plan_structural(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, options: &PlanOptions) -> Baseline {
    Baseline::from_plan(Plan::ball_larus(graph, &structural::loop_border_cuts(graph, forced), frequencies, options))
}

/// Returns true if an edge profile determines all path counts. This is the case if each path has an edge that no other path contains
/// ("obvious" paths).
pub fn has_only_obvious_paths(dag: &Dag, numbering: &Numbering) -> bool {
    let mut to = vec![0u64; dag.node_count()];
    to[dag.entry().index()] = 1;
    for &node in dag.order() {
        for &edge in dag.out(node) {
            let head = dag.edge(edge).to.index();
            to[head] = to[head].saturating_add(to[node.index()]);
        }
    }
    let alone = |id: &DagEdgeId| to[dag.edge(*id).from.index()] == 1 && numbering.paths_from(dag.edge(*id).to) == 1;
    let mut ids: Vec<u64> = Vec::new();
    for edge in dag.edge_ids().filter(alone) {
        ids.push(only_path_through_edge(dag, numbering, edge));
    }
    ids.sort();
    ids.dedup();
    ids.len() as u64 == numbering.paths()
}

fn only_path_through_edge(dag: &Dag, numbering: &Numbering, edge: DagEdgeId) -> u64 {
    let mut path = vec![edge];
    let mut node = dag.edge(edge).from;
    while let Some(&into) = dag.incoming(node).first() {
        path.push(into);
        node = dag.edge(into).from;
    }
    let mut node = dag.edge(edge).to;
    while let Some(&out) = dag.out(node).first() {
        path.push(out);
        node = dag.edge(out).to;
    }
    numbering.id(&path)
}
