//! Plans that count the interesting paths, and all others together: from a [`Labelling`] to
//! what a backend inserts.
//!
//! Both registers of a numbering are one here: the second, a Ball-Larus identity below 2^w, lies in the lower w bits of
//! the word, the first above them. Sums are linear, so one addition on an edge adds to both, negative increments and
//! all; and a path is recognised by one comparison of the whole word, whatever overflowed. So every scheme is a [`Plan`] with
//! increments of its own and an [`PathEnding`] that says which word counts a path.
//!
//! Paths that end because a call was reached (edges set `excluded`) are never counted: who came to a call says nothing of
//! paths that are not interesting.
//!
//! Every plan is verified ([`mod@crate::verify`]) before it is given out.

use crate::verify::{VerifyBudget, verify};
use crate::{Classification, InterestingSet, Labelling, NumberOptions, NumberingError, number};
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::frequency::Frequencies;
use trodden_flow::graph::{Edge, Graph};
use trodden_flow::interesting::NumberAliases;
use trodden_flow::interesting::{InterestingPlan, PathEnding};
use trodden_flow::numbering::{Numbering, NumberingScheme};
use trodden_flow::placement::Probes;
use trodden_flow::plan::{Partial, Plan, probe_costs};
use trodden_flow::trim::without;

/// A function has at most this many words for its paths.
pub const MOST_WORDS: u64 = 1 << 20;

/// Which paths of a function are interesting.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// How paths are recognised.
    pub scheme: NumberingScheme,
    /// Ball-Larus identities of the paths.
    pub ids: &'a [u64],
    /// Edges of the graph that are no part of its flow: they say that a call was reached.
    pub excluded: &'a [bool],
}

/// The plan that counts all paths together, since none of the possible ones is interesting.
fn all_others(dag: Dag, numbering: Numbering, trimmed: Dag, all: Numbering, wish: &Wish) -> InterestingPlan {
    let probes = Probes::direct(&vec![0; dag.edges().len()]);
    let partial = Partial { dag: trimmed, excluded: wish.excluded.to_vec() };
    let plan = Plan { dag: dag.clone(), numbering: all, probes, partial: Some(partial), part: None };
    let ending = PathEnding::Direct { bias: 0, width: 0, checked: true };
    InterestingPlan { dag, numbering, plan, ending, paths: Vec::new(), aliases: NumberAliases::Exactly(0), proven: true }
}

/// Why there is no such plan.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoInterestingPlan {
    /// All edges are excluded.
    #[error("none of its paths comes to an end")]
    Nothing,
    /// The scheme does not serve.
    #[error(transparent)]
    Numbering(#[from] NumberingError),
    /// It would take too much memory.
    #[error("{words} words would be needed, and there may be {MOST_WORDS}: name fewer paths, or take another scheme")]
    TooWide {
        /// How many.
        words: u128,
    },
    /// Number and identity do not fit one word.
    #[error("it has {paths} paths, and their identities leave no room for numbers in a word of 64 bits: take known-table")]
    TooLong {
        /// How many.
        paths: u64,
    },
    /// The numbering was refuted.
    #[error("the numbering does not hold: {0}")]
    Wrong(String),
}

/// Plans to count the paths with these identities of the acyclic graph `dag`; those that end excluded are left out.
///
/// # Errors
/// See [`NoInterestingPlan`].
pub fn plan_interesting(
    graph: &Graph,
    (dag, numbering): (Dag, Numbering),
    wish: &Wish,
    frequencies: &Frequencies,
    options: &NumberOptions,
    budget: &VerifyBudget,
) -> Result<InterestingPlan, NoInterestingPlan> {
    let (kept, trimmed) = without(&dag, graph, &|e: Edge| !wish.excluded[e.index()]).ok_or(NoInterestingPlan::Nothing)?;
    let all = Numbering::ball_larus(&trimmed).map_err(NumberingError::from)?;
    let mut paths = Vec::new();
    for id in wish.ids {
        let path = numbering.path(&dag, *id).ok_or(NumberingError::NoSuchId { id: *id, paths: numbering.paths() })?;
        paths.extend(path.iter().map(|e| kept[e.index()]).collect::<Option<Vec<DagEdgeId>>>());
    }
    if paths.is_empty() {
        return Ok(all_others(dag, numbering, trimmed, all, wish));
    }
    let set = InterestingSet::from_paths(&trimmed, &all, &paths)?;
    let labelling = number(wish.scheme, &trimmed, &probe_costs(&trimmed, graph, frequencies), &set, options)?;
    let verdict = verify(&trimmed, &set, &labelling, budget);
    if !verdict.is_good(wish.scheme.is_exact()) {
        return Err(NoInterestingPlan::Wrong(format!("{verdict:?}")));
    }
    let distinguished = Distinguished { dag: &trimmed, all: &all, labelling: &labelling };
    let (ending, registers) = distinguished.ending()?;
    let back: Vec<DagEdgeId> = dag.edge_ids().filter(|e| kept[e.index()].is_some()).collect();
    let interesting = if wish.scheme.takes_closure() { set.closed() } else { set };
    let whole = |path: &[DagEdgeId]| numbering.id(&path.iter().map(|e| back[e.index()]).collect::<Vec<_>>());
    let mut paths: Vec<(u64, u64)> =
        interesting.paths(&trimmed)?.iter().map(|path| (ending.word(sum(path, &registers)), whole(path))).collect();
    paths.sort_unstable();
    if !paths.is_sorted_by(|a, b| a.0 < b.0) || paths.last().is_some_and(|p| p.0 + 1 >= ending.words()) {
        return Err(NoInterestingPlan::Wrong("two paths have one word".into()));
    }
    let increments = kept.iter().map(|k| k.map_or(0, |e| registers[e.index()])).collect();
    let partial = Partial { dag: trimmed, excluded: wish.excluded.to_vec() };
    let plan = Plan { dag: dag.clone(), numbering: all, probes: Probes::from_increments(increments), partial: Some(partial), part: None };
    Ok(InterestingPlan { dag, numbering, plan, ending, paths, aliases: verdict.aliases, proven: verdict.is_proof() })
}

/// How a program recognises the paths of a list by preferential numbering: the increment of each edge of the acyclic graph, and the word of
/// a path by its sum. The lower bits of a sum are the path's Ball-Larus number, whether or not the path is on the list.
///
/// # Errors
/// See [`NoInterestingPlan`].
pub fn preferential_register(
    (dag, all): (&Dag, &Numbering),
    paths: &[Vec<DagEdgeId>],
    weights: &[f64],
    options: &NumberOptions,
    budget: &VerifyBudget,
) -> Result<(PathEnding, Vec<i64>), NoInterestingPlan> {
    let scheme = NumberingScheme::Ppp;
    let set = InterestingSet::from_paths(dag, all, paths)?;
    let labelling = number(scheme, dag, weights, &set, options)?;
    let verdict = verify(dag, &set, &labelling, budget);
    if !verdict.is_good(scheme.is_exact()) {
        return Err(NoInterestingPlan::Wrong(format!("{verdict:?}")));
    }
    Distinguished { dag, all, labelling: &labelling }.ending()
}

fn sum(path: &[DagEdgeId], increments: &[i64]) -> i64 {
    path.iter().fold(0i64, |sum, e| sum.wrapping_add(increments[e.index()]))
}

/// How a labelling is carried out with one register.
struct Distinguished<'a> {
    dag: &'a Dag,
    all: &'a Numbering,
    labelling: &'a Labelling,
}

impl Distinguished<'_> {
    /// The ending, and the increment of each edge.
    fn ending(&self) -> Result<(PathEnding, Vec<i64>), NoInterestingPlan> {
        let span = self.labelling.span();
        let first = || self.labelling.registers()[0].probes.increments().to_vec();
        match self.labelling.classification() {
            Classification::Checked { expected } => self.checked(expected, span.low),
            Classification::Hashed(_) if self.labelling.slots() >= self.all.paths().into() => {
                // The identities themselves take no more words.
                Ok((PathEnding::Direct { bias: 0, width: small(self.all.paths().into())?, checked: false }, first()))
            }
            Classification::Hashed(table) => {
                let slots = small(table.slots().into())?;
                let (multiplier, shift) = table.parameters();
                let keys = (0..slots).map(|s| table.key(s).unwrap_or(u64::MAX)).collect();
                Ok((PathEnding::Hashed { multiplier, shift, keys }, first()))
            }
            Classification::Every { .. } | Classification::Closure { .. } | Classification::Listed { .. } => {
                let width = small(span.width())?;
                let checked = !self.sums_lie_between(span.low, span.high);
                Ok((PathEnding::Direct { bias: span.low.wrapping_neg(), width, checked }, first()))
            }
        }
    }

    /// Two registers as one.
    fn checked(&self, expected: &[Option<u64>], low: i64) -> Result<(PathEnding, Vec<i64>), NoInterestingPlan> {
        small(expected.len() as u128)?;
        let shift = u64::BITS - (self.all.paths() - 1).leading_zeros();
        // The words' numbers must fit beside the identity.
        if (expected.len() as u128) << shift > 1 << 64 {
            return Err(NoInterestingPlan::TooLong { paths: self.all.paths() });
        }
        let joined = |word: u64, id: u64| (word << shift) | id;
        let note = |(word, id): (usize, &Option<u64>)| match id {
            Some(id) => joined(word as u64, *id),
            // Of another word.
            None => joined(u64::from(word == 0), 0),
        };
        let expected = expected.iter().enumerate().map(note).collect();
        let increments = self.dag.edge_ids().map(|e| {
            let [number, identity] = self.labelling.increments(e);
            number.wrapping_shl(shift).wrapping_add(identity)
        });
        Ok((PathEnding::Checked { bias: low.wrapping_neg().wrapping_shl(shift), shift, expected }, increments.collect()))
    }

    /// Whether no path's sum lies outside of a span.
    fn sums_lie_between(&self, low: i64, high: i64) -> bool {
        let values = &self.labelling.registers()[0].values;
        let behind = self.dag.sums_to_exit(|e| Some(values[e.index()]));
        behind[self.dag.entry().index()].is_some_and(|(least, most)| least >= low.into() && most <= high.into())
    }
}

/// A number of words, if it is not too great.
fn small(words: u128) -> Result<u64, NoInterestingPlan> {
    u64::try_from(words).ok().filter(|w| *w < MOST_WORDS).ok_or(NoInterestingPlan::TooWide { words })
}
