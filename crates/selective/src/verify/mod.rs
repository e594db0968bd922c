//! Verifier of numberings: does a labelling distinguish interesting paths, from each other and from all others?
//!
//! Shares no code with what makes them: it takes the increments as they will be inserted and asks for the class of
//! what they sum to. Three properties (P3 paper, section 2.1; thesis, problem A):
//! - *uniqueness*: every interesting path is recognised, and each as another;
//! - *validity*: no other path is recognised as an interesting one;
//! - *compactness*: the interesting paths' numbers lie in the span that is claimed, and both its ends are taken.
//!
//! Small graphs are enumerated. On large ones ([`pairs`]) a search looks for an interesting path and another one with
//! the same sums: over pairs of nodes and the difference of the sums so far, cut off where the rest of the two paths
//! cannot make up for it; it is exact. Beyond the budget paths are drawn at random, and the verdict says so: a fault
//! that was found is one, but none found proves nothing. Numberings of all paths are proven in one pass
//! ([`trodden_flow::verify`]).

mod pairs;
mod paths;

use crate::{Class, InterestingSet, Labelling};
use paths::MarkedPaths;
use std::collections::HashMap;
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::interesting::NumberAliases;

/// How much a verification may take.
#[derive(Clone, Copy, Debug)]
pub struct VerifyBudget {
    /// Graphs of at most this many paths are enumerated.
    pub paths: u64,
    /// Pairs of states that the search for two paths with the same sums may visit.
    pub states: usize,
    /// Paths drawn at random where neither suffices.
    pub samples: u64,
}

impl Default for VerifyBudget {
    fn default() -> Self {
        VerifyBudget { paths: 100_000, states: 1_000_000, samples: 100_000 }
    }
}

/// How a verdict was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMethod {
    /// By all paths.
    Enumerated,
    /// By all pairs of paths that could have the same sums.
    Searched,
    /// By this many paths drawn at random: no proof.
    Sampled(u64),
}

/// What was found of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyFinding {
    /// It holds.
    Holds,
    /// It does not hold for this path, and this other one if it takes two. Without a path: more is recognised as known than
    /// there are interesting paths.
    Fails(Vec<DagEdgeId>, Option<Vec<DagEdgeId>>),
    /// No fault among the paths that were drawn.
    NotRefuted,
}

/// The verdict on a labelling.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// How it was reached.
    pub method: VerifyMethod,
    /// Whether every interesting path is recognised, and each as another.
    pub uniqueness: VerifyFinding,
    /// Whether no other path is recognised as an interesting one.
    pub validity: VerifyFinding,
    /// Whether the claimed span is that of the interesting paths' numbers.
    pub compactness: VerifyFinding,
    /// How many are, if not.
    pub aliases: NumberAliases,
}

impl Verdict {
    /// Whether nothing speaks against the labelling; `exact` asks for validity, too.
    pub fn is_good(&self, exact: bool) -> bool {
        let good = |f: &VerifyFinding| !matches!(f, VerifyFinding::Fails(..));
        good(&self.uniqueness) && good(&self.compactness) && (!exact || good(&self.validity))
    }

    /// Whether it is proven, not only not refuted.
    pub fn is_proof(&self) -> bool {
        !matches!(self.method, VerifyMethod::Sampled(_))
    }
}

/// Checks a labelling of the paths of `dag` for a set of interesting paths.
pub fn verify(dag: &Dag, set: &InterestingSet, labelling: &Labelling, budget: &VerifyBudget) -> Verdict {
    let members =
        MarkedPaths::new(dag, set, labelling.scheme.takes_closure(), matches!(labelling.scheme, trodden_flow::NumberingScheme::BallLarus));
    if paths::count(dag, &vec![true; dag.edges().len()]) <= u128::from(budget.paths) {
        let mut tally = Tally::default();
        paths::each(dag, |path| tally.add(dag, labelling, &members, path));
        return tally.verdict(labelling, VerifyMethod::Enumerated);
    }
    if let Some(found) = pairs::search(dag, &members, labelling, budget.states) {
        return exact(dag, &members, labelling, budget, found);
    }
    let mut tally = Tally::default();
    paths::draw(dag, &members, budget.samples, |path| tally.add(dag, labelling, &members, path));
    tally.verdict(labelling, VerifyMethod::Sampled(tally.seen))
}

/// The verdict where the search for pairs came to an end.
fn exact(dag: &Dag, members: &MarkedPaths, labelling: &Labelling, budget: &VerifyBudget, found: pairs::PairSearch) -> Verdict {
    // Sums differ; besides, each sum of an interesting path must be recognised, and nothing else.
    let mut tally = Tally::default();
    if !members.each(dag, |path| tally.add(dag, labelling, members, path)) {
        paths::draw(dag, members, budget.samples, |path| tally.add(dag, labelling, members, path));
        tally.ends = pairs::ends(dag, members, labelling);
    }
    let sums_differ = found.interesting.is_none();
    let finding = |pair: Option<pairs::Pair>| pair.map_or(VerifyFinding::Holds, |(p, q)| VerifyFinding::Fails(p, Some(q)));
    let uniqueness = if sums_differ { tally.uniqueness() } else { finding(found.interesting) };
    // What no interesting path sums to must not be recognised as one, or the sums of another might be.
    let surplus = labelling.accepted().is_some_and(|accepted| accepted != members.count(dag));
    let validity = if surplus { VerifyFinding::Fails(Vec::new(), None) } else { finding(found.other) };
    let valid = validity == VerifyFinding::Holds;
    let aliases = match valid {
        true => NumberAliases::Exactly(0),
        false => pairs::aliases(dag, members, labelling, budget.states).map_or_else(
            || {
                let mut drawn = Tally::default();
                paths::draw(dag, members, budget.samples, |path| drawn.add(dag, labelling, members, path));
                NumberAliases::Drawn { aliases: drawn.aliases, of: drawn.others }
            },
            NumberAliases::Exactly,
        ),
    };
    Verdict { method: VerifyMethod::Searched, uniqueness, validity, compactness: tally.compactness(labelling, false), aliases }
}

/// Paths seen, one by one.
#[derive(Default)]
struct Tally {
    seen: u64,
    others: u64,
    aliases: u64,
    /// For each class the interesting path that has it.
    recognised: HashMap<u64, Vec<DagEdgeId>>,
    ends: Option<(i64, i64)>,
    not_unique: Option<VerifyFinding>,
    not_valid: Option<VerifyFinding>,
}

impl Tally {
    fn add(&mut self, dag: &Dag, labelling: &Labelling, members: &MarkedPaths, path: &[DagEdgeId]) {
        self.seen += 1;
        let sums = labelling.run(path);
        let class = labelling.classify(dag, sums);
        if !members.has(path) {
            self.others += 1;
            if let Class::Known(slot) = class {
                self.aliases += 1;
                self.not_valid.get_or_insert_with(|| VerifyFinding::Fails(path.to_vec(), self.recognised.get(&slot).cloned()));
            }
            return;
        }
        self.ends = Some(self.ends.map_or((sums[0], sums[0]), |(low, high)| (low.min(sums[0]), high.max(sums[0]))));
        let fault = match class {
            Class::Unknown => Some(VerifyFinding::Fails(path.to_vec(), None)),
            Class::Known(slot) => self
                .recognised
                .insert(slot, path.to_vec())
                .filter(|o| o != path)
                .map(|other| VerifyFinding::Fails(path.to_vec(), Some(other))),
        };
        self.not_unique = self.not_unique.take().or(fault);
    }

    fn uniqueness(&self) -> VerifyFinding {
        self.not_unique.clone().unwrap_or(VerifyFinding::Holds)
    }

    /// `part`: not every interesting path was seen.
    fn compactness(&self, labelling: &Labelling, part: bool) -> VerifyFinding {
        let span = labelling.span();
        match self.ends {
            Some((low, high)) if (low, high) == (span.low, span.high) => VerifyFinding::Holds,
            Some((low, high)) if part && low >= span.low && high <= span.high => VerifyFinding::NotRefuted,
            _ => VerifyFinding::Fails(self.recognised.values().next().cloned().unwrap_or_default(), None),
        }
    }

    fn verdict(&self, labelling: &Labelling, method: VerifyMethod) -> Verdict {
        let sampled = matches!(method, VerifyMethod::Sampled(_));
        let or = |f: &Option<VerifyFinding>| f.clone().unwrap_or(if sampled { VerifyFinding::NotRefuted } else { VerifyFinding::Holds });
        let aliases = match sampled {
            true => NumberAliases::Drawn { aliases: self.aliases, of: self.others },
            false => NumberAliases::Exactly(self.aliases.into()),
        };
        let (uniqueness, validity) = (or(&self.not_unique), or(&self.not_valid));
        Verdict { method, uniqueness, validity, compactness: self.compactness(labelling, sampled), aliases }
    }
}
