//! Published ways to spend less on path profiles than all paths cost, to measure against: programs are not built so.
//!
//! | scheme | source | what is lost |
//! |---|---|---|
//! | [`targeted`] | Joshi, Bond, Zilles (CGO 2004) | paths with a rarely taken edge; functions whose paths an edge profile determines |
//! | [`practical`] | Bond, McKinley (CGO 2005) | paths with an edge that is rare in the whole program |
//! | [`structural`] | Yasue, Suganuma, Komatsu, Nakatani (JILP 2003) | how paths go on across the borders of loops |
//!
//! | continuous | Bond, McKinley (MICRO 2005) | nothing while the switch is on; all counts while it is off: only the register is kept |
//!
//! The first two leave edges out ([`cold`]): they need measured frequencies, and their profiles are partial. What is
//! counted of the third is exact. What each costs, in operations of a run whose paths are known: [`cost`].

mod cold;
mod cost;
mod structural;
#[cfg(test)]
mod tests;

use anyhow::Result;
use clap::Args;
use cold::{Left, leave_out};
use std::path::PathBuf;
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::{Plan, PlanOptions, RegisterAction};
use trodden_flow::{CutReason, Dag, DagEdgeId, Edge, Graph, Numbering};
use trodden_profile::Profile;

/// `trodden-lab experiment baselines`
#[derive(Debug, Args)]
pub struct BaselinesOptions {
    /// A profile of a program that counts all paths.
    pub profile: PathBuf,
}

/// Prints what each scheme would have executed in the profile's run.
///
/// # Errors
/// The profile cannot be read.
pub fn run(options: &BaselinesOptions) -> Result<()> {
    let costs = cost::of_profile(&Profile::read(&options.profile)?)?;
    let all = |cost: &cost::Cost| (cost.register + cost.counts) as f64;
    println!("{:24}{:>14}{:>14}{:>10}{:>16}", "scheme", "register", "counts", "of all", "executions lost");
    for (name, cost) in cost::SCHEMES.iter().zip(&costs) {
        let share = all(cost) / all(&costs[0]).max(1.0);
        println!("{name:24}{:>14}{:>14}{share:>10.3}{:>16}", cost.register, cost.counts, cost.unknown);
    }
    Ok(())
}

/// How one of these schemes counts.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// The acyclic graph of all paths.
    pub dag: Dag,
    /// The numbers of those that are counted each.
    pub numbering: Numbering,
    /// What is added to the register, by edge of `dag`.
    increments: Vec<i64>,
    left_out: Option<LeftOut>,
}

/// Paths that are counted together.
#[derive(Clone, Debug)]
struct LeftOut {
    /// The acyclic graph of the other paths.
    dag: Dag,
    /// Which edges of the graph of all paths it has.
    kept: Vec<bool>,
    /// Edges of the function's graph that are never taken.
    excluded: Vec<bool>,
    /// The register on paths that are left out, before anything is added to it.
    poison: i64,
    /// How many numbers after those of the paths such executions may be counted by.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests check this bound"))]
    overflow: u64,
}

/// What happens to the register on an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterStep {
    /// What a plan of all paths says.
    Plan(RegisterAction),
    /// It is set to a value from which no sum comes back to the numbers of paths.
    Poison(i64),
}

impl Baseline {
    /// Of a plan that leaves nothing out.
    fn from_plan(plan: Plan) -> Baseline {
        Baseline { dag: plan.dag, numbering: plan.numbering, increments: plan.probes.increments().to_vec(), left_out: None }
    }

    /// The acyclic graph whose paths have numbers.
    pub fn numbered(&self) -> &Dag {
        self.left_out.as_ref().map_or(&self.dag, |left| &left.dag)
    }

    /// Whether an edge of the graph of all paths is on a path that has a number.
    fn keeps(&self, edge: DagEdgeId) -> bool {
        self.left_out.as_ref().is_none_or(|left| left.kept[edge.index()])
    }

    /// What happens when control takes an edge.
    pub fn step(&self, graph: &Graph, edge: Edge) -> RegisterStep {
        let whole = self.action(graph, edge);
        let Some(left) = &self.left_out else { return RegisterStep::Plan(whole) };
        let kept = |id: DagEdgeId| left.kept[id.index()];
        let from = graph.from(edge);
        let inside = from == left.dag.entry() || !left.dag.incoming(from).is_empty();
        RegisterStep::Plan(match whole {
            _ if left.excluded[edge.index()] => RegisterAction::Dead,
            RegisterAction::Add { .. } if inside && !self.dag.real(edge).is_some_and(kept) => return RegisterStep::Poison(left.poison),
            RegisterAction::CountAndRestart { increment, .. } if self.dag.cut(edge).and_then(|c| c.enter).is_some_and(|id| !kept(id)) => {
                RegisterAction::CountAndRestart { increment, start: left.poison }
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

/// An edge that is taken less often than this share of its block's executions is cold, locally.
/// Published: 5 %.
const LOCALLY_COLD: f64 = 0.05;
/// An edge that is taken less often than this share of all executions of edges in the program is cold, globally.
/// Published: 0.1 % of the program's paths; a path has some ten edges.
const GLOBALLY_COLD: f64 = 1e-4;
/// By how much the global share grows where there are too many paths still, and how often.
/// Published: 1.5.
const GROWTH: f64 = 1.5;
/// More steps would leave out all that was ever executed: 1.5^80 is 10^14.
const MOST_STEPS: usize = 80;

/// Targeted path profiling: edges that are cold locally are left out, where they have been measured at all. Probes are on chords.
/// `excluded` names edges that are no part of the function's flow.
pub fn targeted(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    excluded: &[bool],
    options: &PlanOptions,
) -> Baseline {
    let cold = |e: Edge| frequencies.edge(e) < LOCALLY_COLD * frequencies.node(graph.from(e));
    let left = Left { excluded: excluded.to_vec(), cold: graph.edges().map(cold).collect() };
    leave_out(graph, forced, frequencies, &left, options)
}

/// Practical path profiling: edges that are cold in the whole program, of whose edges `all` executions were measured,
/// are left out; if too many paths are left, more of them. The hottest edge out of each block has the value 0.
pub fn practical(
    graph: &Graph,
    forced: &[(Edge, CutReason)],
    frequencies: &Frequencies,
    excluded: &[bool],
    all: f64,
    options: &PlanOptions,
) -> Baseline {
    let options = PlanOptions { hot_first: true, chords: false, ..options.clone() };
    let mut threshold = GLOBALLY_COLD * all;
    let most = graph.edges().map(|e| frequencies.edge(e)).fold(0.0, f64::max);
    for _ in 0..MOST_STEPS {
        let left = Left { excluded: excluded.to_vec(), cold: graph.edges().map(|e| frequencies.edge(e) < threshold).collect() };
        let uncut = PlanOptions { max_paths: i64::MAX as u64, ..options.clone() };
        let plan = leave_out(graph, forced, frequencies, &left, &uncut);
        if plan.numbering.paths() <= options.max_paths {
            return plan;
        }
        if threshold * GROWTH > most {
            return leave_out(graph, forced, frequencies, &left, &options);
        }
        threshold *= GROWTH;
    }
    leave_out(graph, forced, frequencies, &Left { excluded: excluded.to_vec(), cold: vec![false; graph.edge_count()] }, &options)
}

/// Structural path profiling: paths of each loop separately.
pub fn structural(graph: &Graph, forced: &[(Edge, CutReason)], frequencies: &Frequencies, options: &PlanOptions) -> Baseline {
    Baseline::from_plan(Plan::ball_larus(graph, &structural::cuts(graph, forced), frequencies, options))
}

/// Whether an edge profile determines how often each path is taken: each has an edge that no other has ("obvious" paths).
pub fn is_obvious(dag: &Dag, numbering: &Numbering) -> bool {
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
        ids.push(only_path(dag, numbering, edge));
    }
    ids.sort();
    ids.dedup();
    ids.len() as u64 == numbering.paths()
}

/// The number of the only path through an edge.
fn only_path(dag: &Dag, numbering: &Numbering, edge: DagEdgeId) -> u64 {
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
