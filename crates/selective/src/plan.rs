//! Plans that count each interesting path in a separate counter, and all other paths in one counter. They are made from a [`Labelling`].
//!
//! Both registers of a labelling are joined in one. The second register, a Ball-Larus number below 2^w, is in the lower w bits, and the
//! first is above them. Sums are linear, so one addition increments both registers, even by negative increments, and one comparison of the
//! word recognises a path. Every scheme therefore is a [`Plan`] with its increments and a [`PathEndCounterMapping`]. Paths that end with an
//! excluded edge, because a call was reached, are not counted: at the call, it is unknown whether such a path will be interesting. Every
//! plan is verified ([`mod@crate::verify`]).

use crate::verify::{VerifyBudget, verify};
use crate::{Classification, InterestingSet, Labelling, NumberOptions, NumberingError, number, number_listed};
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::frequency::Frequencies;
use trodden_flow::graph::{Edge, EdgeSet, Graph};
use trodden_flow::interesting::UninterestingPathAliases;
use trodden_flow::interesting::{InterestingPathPlan, PathEndCounterMapping};
use trodden_flow::numbering::{Numbering, NumberingScheme};
use trodden_flow::placement::Probes;
use trodden_flow::plan::{Plan, RestrictedPlan, probe_costs};
use trodden_flow::trim::restrict_to_edges;

/// Maximum number of counters of a function, including the one for all other paths.
pub const MAX_COUNTERS: u64 = 1 << 20;

/// The interesting paths of a function.
#[derive(Clone, Copy, Debug)]
pub struct InterestingInput<'a> {
    /// How paths are recognised.
    pub scheme: NumberingScheme,
    /// Ball-Larus numbers of the paths.
    pub ids: &'a [u64],
    /// Edges of the graph that only mark that a call was reached.
    pub marks_call: &'a EdgeSet,
}

fn plan_without_interesting_paths(
    dag: Dag,
    numbering: Numbering,
    trimmed: Dag,
    all: Numbering,
    input: &InterestingInput,
) -> InterestingPathPlan {
    let probes = Probes::direct(&vec![0; dag.edges().len()]);
    let partial = RestrictedPlan { dag: trimmed, never_taken: input.marks_call.clone() };
    let plan = Plan { dag: dag.clone(), numbering: all, probes, partial: Some(partial), part: None };
    let ending = PathEndCounterMapping::Direct { bias: 0, width: 0, checked: true };
    InterestingPathPlan { dag, numbering, plan, ending, paths: Vec::new(), aliases: UninterestingPathAliases::Exact(0), proven: true }
}

/// The reason why no plan could be made for the interesting paths.
#[derive(Clone, Debug, thiserror::Error)]
pub enum InterestingPlanError {
    /// Every path has an edge that only marks a call, or an interesting path does not exist.
    #[error("none of its paths reaches the function's exit")]
    Nothing,
    /// The scheme failed.
    #[error(transparent)]
    Numbering(#[from] NumberingError),
    /// Too many counters.
    #[error("the paths would need {words} counters, but the limit is {MAX_COUNTERS}. Select fewer paths, or use a different scheme")]
    TooWide {
        /// Number of counters.
        words: u128,
    },
    /// The joined registers do not fit into one word.
    #[error(
        "it has {paths} paths, so their Ball-Larus numbers leave no room for a second number in a 64-bit register. Use the scheme \
         known-table"
    )]
    TooLong {
        /// Number of paths.
        paths: u64,
    },
    /// The verifier refuted the numbering.
    #[error("the numbers of the paths are wrong: {0}")]
    Wrong(String),
}

/// Plans to count the paths of the acyclic graph `dag` that have the given numbers. Paths with an edge of `input.marks_call` are not
/// counted.
pub fn plan_interesting(
    graph: &Graph,
    (dag, numbering): (Dag, Numbering),
    input: &InterestingInput,
    frequencies: &Frequencies,
    options: &NumberOptions,
    budget: &VerifyBudget,
) -> Result<InterestingPathPlan, InterestingPlanError> {
    let (kept, trimmed) = restrict_to_edges(&dag, graph, &|e: Edge| !input.marks_call.contains(e)).ok_or(InterestingPlanError::Nothing)?;
    let all = Numbering::ball_larus(&trimmed).map_err(NumberingError::from)?;
    let mut paths = Vec::new();
    for id in input.ids {
        let path = numbering.path(&dag, *id).ok_or(NumberingError::NoSuchId { id: *id, paths: numbering.paths() })?;
        paths.extend(path.iter().map(|e| kept[e.index()]).collect::<Option<Vec<DagEdgeId>>>());
    }
    if paths.is_empty() {
        return Ok(plan_without_interesting_paths(dag, numbering, trimmed, all, input));
    }
    let set = InterestingSet::from_paths(&trimmed, &all, &paths)?;
    let labelling = number(input.scheme, &trimmed, &probe_costs(&trimmed, graph, frequencies), &set, options)?;
    let verdict = verify(&trimmed, &set, &labelling, budget);
    if !verdict.is_not_refuted(input.scheme.is_exact()) {
        return Err(InterestingPlanError::Wrong(format!("{verdict:?}")));
    }
    let register = SingleRegisterMapping { dag: &trimmed, all: &all, labelling: &labelling };
    let (ending, registers) = register.derive_path_end_mapping()?;
    let back: Vec<DagEdgeId> = dag.edge_ids().filter(|e| kept[e.index()].is_some()).collect();
    let interesting = if input.scheme.selects_edges() { set.closed() } else { set };
    let whole = |path: &[DagEdgeId]| numbering.id(&path.iter().map(|e| back[e.index()]).collect::<Vec<_>>());
    let mut paths: Vec<(u64, u64)> =
        interesting.paths(&trimmed)?.iter().map(|path| (ending.counter_of(sum_increments(path, &registers)), whole(path))).collect();
    paths.sort_unstable();
    if !paths.is_sorted_by(|a, b| a.0 < b.0) || paths.last().is_some_and(|p| p.0 + 1 >= ending.counter_count()) {
        return Err(InterestingPlanError::Wrong("two paths have the same word".into()));
    }
    let increments = kept.iter().map(|k| k.map_or(0, |e| registers[e.index()])).collect();
    let partial = RestrictedPlan { dag: trimmed, never_taken: input.marks_call.clone() };
    let plan = Plan { dag: dag.clone(), numbering: all, probes: Probes::from_increments(increments), partial: Some(partial), part: None };
    Ok(InterestingPathPlan { dag, numbering, plan, ending, paths, aliases: verdict.aliases, proven: verdict.is_proof() })
}

/// Returns the [`PathEndCounterMapping`] that maps a path's sum to its counter, and the increment of each edge of the acyclic graph.
/// `scheme` determines the numbers by which a program recognises the listed paths. Unless the scheme is `approximate`, the lower bits of a
/// sum are the path's Ball-Larus number, whether or not the path is listed.
pub fn map_register_to_listed_counters(
    scheme: NumberingScheme,
    (dag, all): (&Dag, &Numbering),
    paths: &[Vec<DagEdgeId>],
    weights: &[f64],
    options: &NumberOptions,
    budget: &VerifyBudget,
) -> Result<(PathEndCounterMapping, Vec<i64>), InterestingPlanError> {
    let set = InterestingSet::from_paths(dag, all, paths)?;
    let labelling = number_listed(scheme, dag, weights, &set, options)?;
    let verdict = verify(dag, &set, &labelling, budget);
    if !verdict.is_not_refuted(scheme.is_exact()) {
        return Err(InterestingPlanError::Wrong(format!("{verdict:?}")));
    }
    SingleRegisterMapping { dag, all, labelling: &labelling }.derive_path_end_mapping()
}

fn sum_increments(path: &[DagEdgeId], increments: &[i64]) -> i64 {
    path.iter().fold(0i64, |sum, e| sum.wrapping_add(increments[e.index()]))
}

struct SingleRegisterMapping<'a> {
    dag: &'a Dag,
    all: &'a Numbering,
    labelling: &'a Labelling,
}

impl SingleRegisterMapping<'_> {
    fn derive_path_end_mapping(&self) -> Result<(PathEndCounterMapping, Vec<i64>), InterestingPlanError> {
        let span = self.labelling.span();
        let first = || self.labelling.registers()[0].probes.increments().to_vec();
        match self.labelling.classification() {
            Classification::Checked { expected } => self.join_registers(expected, span.low),
            Classification::Hashed(_) if self.labelling.slots() >= self.all.paths().into() => {
                // The hash table has at least as many slots as there are paths, so an array indexed by path number needs no more counters.
                Ok((
                    PathEndCounterMapping::Direct { bias: 0, width: check_counter_count(self.all.paths().into())?, checked: false },
                    first(),
                ))
            }
            Classification::Hashed(table) => {
                let slots = check_counter_count(table.slots().into())?;
                let (multiplier, shift) = table.parameters();
                let keys = (0..slots).map(|s| table.key(s).unwrap_or(u64::MAX)).collect();
                Ok((PathEndCounterMapping::Hashed { multiplier, shift, keys }, first()))
            }
            Classification::Every { .. } | Classification::Closure { .. } | Classification::Listed { .. } => {
                let width = check_counter_count(span.width())?;
                let checked = !self.are_sums_between(span.low, span.high);
                Ok((PathEndCounterMapping::Direct { bias: span.low.wrapping_neg(), width, checked }, first()))
            }
        }
    }

    fn join_registers(&self, expected: &[Option<u64>], low: i64) -> Result<(PathEndCounterMapping, Vec<i64>), InterestingPlanError> {
        check_counter_count(expected.len() as u128)?;
        let shift = u64::BITS - (self.all.paths() - 1).leading_zeros();
        // The counter's index must fit above the Ball-Larus number.
        if (expected.len() as u128) << shift > 1 << 64 {
            return Err(InterestingPlanError::TooLong { paths: self.all.paths() });
        }
        let joined = |word: u64, id: u64| (word << shift) | id;
        let expected_value = |(word, id): (usize, &Option<u64>)| match id {
            Some(id) => joined(word as u64, *id),
            // No path has this number, so expect a value whose upper bits belong to a different counter: no register value matches it.
            None => joined(u64::from(word == 0), 0),
        };
        let expected = expected.iter().enumerate().map(expected_value).collect();
        let increments = self.dag.edge_ids().map(|e| {
            let [number, identity] = self.labelling.increments(e);
            number.wrapping_shl(shift).wrapping_add(identity)
        });
        Ok((PathEndCounterMapping::Checked { bias: low.wrapping_neg().wrapping_shl(shift), shift, expected }, increments.collect()))
    }

    fn are_sums_between(&self, low: i64, high: i64) -> bool {
        let values = &self.labelling.registers()[0].values;
        let sums = self.dag.min_and_max_sums_to_exit(|e| Some(values[e.index()]));
        sums[self.dag.entry().index()].is_some_and(|(least, greatest)| least >= low.into() && greatest <= high.into())
    }
}

fn check_counter_count(words: u128) -> Result<u64, InterestingPlanError> {
    u64::try_from(words).ok().filter(|w| *w < MAX_COUNTERS).ok_or(InterestingPlanError::TooWide { words })
}
