//! What a scheme costs in a run whose paths are known: how many operations it carries out.
//!
//! Operations are those of schemes as published, without the passes that make trodden's own cheaper: additions to the register of
//! something other than 0, settings of it, and counts. So schemes are compared with Ball and Larus's by the same measure, and the figure
//! is the same on every machine. Linear in the edges and executed paths of the profile's functions.

use super::{Baseline, RegisterStep, is_obvious, practical, structural, targeted};
use trodden_flow::dag::Entries;
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::{Plan, PlanOptions, RegisterAction};
use trodden_flow::{CutReason, Edge, Graph, Origin};
use trodden_profile::{FunctionPaths, Profile};
use trodden_unit::{EdgeKind, FunctionMap, MapError};

/// The schemes, in the order of the table.
pub const SCHEMES: [&str; 5] = ["ball-larus", "targeted", "practical", "structural", "continuous, switch off"];

/// What a scheme does in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Additions to the register and settings of it.
    pub register: u64,
    /// Counts.
    pub counts: u64,
    /// Executions of paths that have no number of their own.
    pub unknown: u64,
}

/// A function, and what was executed of it.
struct Executed<'a> {
    map: &'a FunctionMap,
    graph: Graph,
    paths: FunctionPaths,
    frequencies: Frequencies,
    excluded: Vec<bool>,
    forced: Vec<(Edge, CutReason)>,
}

/// The cost of each scheme in the run of a profile that counts all paths, by the frequencies of that same run.
///
/// # Errors
/// A map is damaged.
pub fn of_profile(profile: &Profile) -> Result<[Cost; SCHEMES.len()], MapError> {
    let mut functions = Vec::new();
    for (_, unit, map) in profile.functions() {
        let paths = FunctionPaths::decode(map, unit.counts_of(map))?;
        if !paths.complete.is_empty() {
            functions.push(Executed::new(map, paths)?);
        }
    }
    let all = functions.iter().flat_map(|f| &f.paths.edges).map(|n| *n as f64).sum();
    let mut costs = [Cost::default(); SCHEMES.len()];
    for function in &functions {
        for (sum, cost) in costs.iter_mut().zip(function.costs(all)) {
            sum.register += cost.register;
            sum.counts += cost.counts;
            sum.unknown += cost.unknown;
        }
    }
    Ok(costs)
}

impl Executed<'_> {
    fn new(map: &FunctionMap, paths: FunctionPaths) -> Result<Executed<'_>, MapError> {
        let graph = map.graph()?;
        let frequencies = Frequencies::measured(&graph, paths.edges.iter().map(|n| *n as f64).collect());
        let excluded = map.edges.iter().map(|e| e.kind == EdgeKind::Reach).collect();
        // The others follow from the graph.
        let is_forced = |reason: CutReason| !matches!(reason, CutReason::Back | CutReason::Limit);
        let forced = map.cuts.iter().filter(|(_, reason)| is_forced(*reason)).copied().collect();
        Ok(Executed { map, graph, paths, frequencies, excluded, forced })
    }

    fn costs(&self, all: f64) -> [Cost; SCHEMES.len()] {
        let Executed { graph, frequencies, excluded, forced, map, .. } = self;
        let max_paths = map.counters.max(4096);
        let options = PlanOptions { max_paths, entries: Entries::Shared, hot_first: false, chords: true };
        let ball_larus = self.cost(&Baseline::from_plan(Plan::ball_larus(graph, forced, frequencies, &options)));
        let targeted = targeted(graph, forced, frequencies, excluded, &options);
        let targeted = if is_obvious(targeted.numbered(), &targeted.numbering) { Cost::default() } else { self.cost(&targeted) };
        let practical = self.cost(&practical(graph, forced, frequencies, excluded, all, &options));
        let structural = self.cost(&structural(graph, forced, frequencies, &options));
        let continuous = Cost { counts: 0, unknown: self.paths.total(), ..ball_larus };
        [ball_larus, targeted, practical, structural, continuous]
    }

    fn cost(&self, baseline: &Baseline) -> Cost {
        let mut cost = Cost::default();
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
        // A path is left out by an edge that it takes, unless the scheme cuts paths there.
        let is_left = |edge: Edge| baseline.dag.real(edge).is_some_and(|id| !baseline.keeps(id));
        let own = self.map.dag.as_slice();
        for path in &self.paths.complete {
            let takes = path.path.iter().filter_map(|id| match own[id.index()].origin {
                Origin::Real(edge) => Some(edge),
                _ => None,
            });
            if takes.into_iter().any(is_left) {
                cost.unknown += path.count;
            }
        }
        cost
    }
}
