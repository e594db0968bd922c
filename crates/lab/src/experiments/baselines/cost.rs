//! The cost of a scheme in a run whose paths are known: the number of operations that the scheme executes.
//!
//! The operations are non-zero additions to the path register, assignments to it, and counter increments. Schemes are costed as published,
//! without trodden's optimisation passes. So all schemes are compared with Ball and Larus's by the same machine-independent measure.

use super::{Baseline, RegisterStep, has_only_obvious_paths, plan_practical, plan_structural, plan_targeted};
use trodden_flow::dag::Entries;
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::{Plan, PlanOptions, RegisterAction};
use trodden_flow::{CutReason, Edge, EdgeSet, Graph, Origin};
use trodden_profile::{FunctionPaths, Profile};
use trodden_unit::{EdgeKind, FunctionMap, MapError};

pub const COMPARED_SCHEMES: [&str; 5] = ["ball-larus", "targeted", "practical", "structural", "continuous, switch off"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemeCost {
    /// Number of additions and assignments to the path register.
    pub register: u64,
    pub counts: u64,
    /// Number of executions of paths that are not counted individually.
    pub unknown: u64,
}

struct FunctionExecution<'a> {
    map: &'a FunctionMap,
    graph: Graph,
    paths: FunctionPaths,
    frequencies: Frequencies,
    excluded: EdgeSet,
    forced: Vec<(Edge, CutReason)>,
}

/// Computes the cost of each scheme in a run, from a profile that counts all paths. The schemes choose their edges by the edge frequencies
/// of the same run.
pub fn compute_costs(profile: &Profile) -> Result<[SchemeCost; COMPARED_SCHEMES.len()], MapError> {
    let mut functions = Vec::new();
    for (_, unit, map) in profile.functions() {
        let paths = FunctionPaths::decode(map, unit.counts_of(map))?;
        if !paths.complete.is_empty() {
            functions.push(FunctionExecution::new(map, paths)?);
        }
    }
    let all = functions.iter().flat_map(|f| &f.paths.edges).map(|n| *n as f64).sum();
    let mut costs = [SchemeCost::default(); COMPARED_SCHEMES.len()];
    for function in &functions {
        for (sum, cost) in costs.iter_mut().zip(function.compute_scheme_costs(all)) {
            sum.register += cost.register;
            sum.counts += cost.counts;
            sum.unknown += cost.unknown;
        }
    }
    Ok(costs)
}

impl FunctionExecution<'_> {
    fn new(map: &FunctionMap, paths: FunctionPaths) -> Result<FunctionExecution<'_>, MapError> {
        let graph = (*map.graph).clone();
        let frequencies = Frequencies::from_measured_counts(&graph, paths.edges.iter().map(|n| *n as f64).collect());
        let excluded = EdgeSet::from_fn(map.graph.edge_count(), |e| map.graph.kind(e) == EdgeKind::Reach);
        // Back edges and the path limit lead to the same cuts in every plan, so only the other cuts must be given.
        let is_forced = |reason: CutReason| !matches!(reason, CutReason::Back | CutReason::Limit);
        let forced = map.cuts.iter().filter(|(_, reason)| is_forced(*reason)).copied().collect();
        Ok(FunctionExecution { map, graph, paths, frequencies, excluded, forced })
    }

    fn compute_scheme_costs(&self, all: f64) -> [SchemeCost; COMPARED_SCHEMES.len()] {
        let FunctionExecution { graph, frequencies, excluded, forced, map, .. } = self;
        let max_paths = map.counters.max(4096);
        let options = PlanOptions { max_paths, entries: Entries::Shared, hot_first: false, chords: true };
        let ball_larus = self.compute_cost(&Baseline::from_plan(Plan::ball_larus(graph, forced, frequencies, &options)));
        let targeted = plan_targeted(graph, forced, frequencies, excluded, &options);
        let targeted = if has_only_obvious_paths(targeted.numbered_graph(), &targeted.numbering) {
            SchemeCost::default()
        } else {
            self.compute_cost(&targeted)
        };
        let practical = self.compute_cost(&plan_practical(graph, forced, frequencies, excluded, all, &options));
        let structural = self.compute_cost(&plan_structural(graph, forced, frequencies, &options));
        let continuous = SchemeCost { counts: 0, unknown: self.paths.total(), ..ball_larus };
        [ball_larus, targeted, practical, structural, continuous]
    }

    fn compute_cost(&self, baseline: &Baseline) -> SchemeCost {
        let mut cost = SchemeCost::default();
        for (edge, &executions) in self.graph.edges().zip(&self.paths.edges) {
            let (register, counts) = match baseline.step(&self.graph, edge) {
                RegisterStep::Plan(RegisterAction::Add { increment: 0 } | RegisterAction::Dead) => (0, 0),
                RegisterStep::Plan(RegisterAction::Add { .. }) | RegisterStep::Poison(_) => (1, 0),
                RegisterStep::Plan(RegisterAction::Count { .. }) => (0, 1),
                RegisterStep::Plan(RegisterAction::CountAndRestart { .. }) => (1, 1),
            };
            cost.register += register * executions;
            cost.counts += counts * executions;
        }
        // A path is omitted if it takes an omitted edge, unless the scheme cuts paths at that edge.
        let is_omitted = |edge: Edge| baseline.dag.real(edge).is_some_and(|id| !baseline.is_on_numbered_path(id));
        let own = self.map.dag.as_slice();
        for path in &self.paths.complete {
            let takes = path.path.iter().filter_map(|id| match own[id.index()] {
                Origin::Real(edge) => Some(edge),
                _ => None,
            });
            if takes.into_iter().any(is_omitted) {
                cost.unknown += path.count;
            }
        }
        cost
    }
}
