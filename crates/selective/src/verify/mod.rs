//! Verifies labellings. It shares no code with the numberings. Properties (P3 paper, section 2.1; thesis, problem A):
//! - *uniqueness*: every interesting path is recognised, and no two as the same one;
//! - *validity*: no other path is recognised as an interesting one;
//! - *compactness*: the interesting paths' numbers exactly span the claimed range.
//!
//! Small graphs are enumerated. On large ones, an exact search ([`pairs`]) looks for two paths with the same sums. Beyond the budget, paths
//! are drawn at random, which can refute a property but not prove it. [`trodden_flow::verify`] proves numberings of all paths in one pass.

mod pairs;
mod paths;

use crate::{Classification, InterestingSet, Labelling, PathClass};
use paths::MarkedPaths;
use std::collections::HashMap;
use trodden_flow::dag::{Dag, DagEdgeId, DagEdgeSet};
use trodden_flow::interesting::UninterestingPathAliases;

/// Limits of a verification.
#[derive(Clone, Copy, Debug)]
pub struct VerifyBudget {
    /// Maximum number of paths for enumeration.
    pub paths: u64,
    /// Maximum number of states of the search for two paths with the same sums.
    pub states: usize,
    /// Number of paths to draw at random if neither enumeration nor the search is possible.
    pub samples: u64,
}

impl Default for VerifyBudget {
    fn default() -> Self {
        VerifyBudget { paths: 100_000, states: 1_000_000, samples: 100_000 }
    }
}

/// The method by which the verifier reached its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyMethod {
    /// By enumerating all paths.
    Enumerated,
    /// An exact search for pairs of paths with the same sums.
    Searched,
    /// A trial of this number of random paths, which is not a proof.
    Sampled(u64),
}

/// What the verifier found out about one property: uniqueness, validity or compactness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyFinding {
    /// The property holds.
    Holds,
    /// The first path violates the property, together with the second path, if there is one. Without a path, the number of recognised
    /// register values differs from the number of interesting paths.
    Fails(Vec<DagEdgeId>, Option<Vec<DagEdgeId>>),
    /// None of the random paths violates the property, which is not a proof.
    NotRefuted,
}

/// The verdict on a labelling.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifierVerdict {
    /// The method by which the verdict was reached.
    pub method: VerifyMethod,
    /// Whether every interesting path is recognised, and no two as the same path.
    pub uniqueness: VerifyFinding,
    /// Whether no other path is recognised as an interesting one.
    pub validity: VerifyFinding,
    /// Whether the claimed span is that of the interesting paths' numbers.
    pub compactness: VerifyFinding,
    /// Number of other paths that are recognised as interesting ones.
    pub aliases: UninterestingPathAliases,
}

impl VerifierVerdict {
    /// Returns true if the labelling was not refuted. Validity is only considered if `exact` is true.
    pub fn is_not_refuted(&self, exact: bool) -> bool {
        let good = |f: &VerifyFinding| !matches!(f, VerifyFinding::Fails(..));
        good(&self.uniqueness) && good(&self.compactness) && (!exact || good(&self.validity))
    }

    /// Returns true if the verdict is a proof.
    pub fn is_proof(&self) -> bool {
        !matches!(self.method, VerifyMethod::Sampled(_))
    }
}

/// Verifies a labelling of the paths of `dag` for a set of interesting paths.
pub fn verify(dag: &Dag, set: &InterestingSet, labelling: &Labelling, budget: &VerifyBudget) -> VerifierVerdict {
    let (is_closed, counts_all) = match labelling.classification() {
        Classification::Closure { .. } => (true, false),
        Classification::Every { .. } => (false, true),
        Classification::Listed { .. } | Classification::Checked { .. } | Classification::Hashed(_) => (false, false),
    };
    let members = MarkedPaths::new(dag, set, is_closed, counts_all);
    if paths::count(dag, &DagEdgeSet::full(dag.edges().len())) <= u128::from(budget.paths) {
        let mut tally = PathFindings::default();
        paths::for_each_path(dag, |path| tally.add(dag, labelling, &members, path));
        return tally.verdict(labelling, VerifyMethod::Enumerated);
    }
    if let Some(found) = pairs::search_pairs(dag, &members, labelling, budget.states) {
        return searched_verdict(dag, &members, labelling, budget, found);
    }
    let mut tally = PathFindings::default();
    paths::for_each_random_path(dag, &members, budget.samples, |path| tally.add(dag, labelling, &members, path));
    tally.verdict(labelling, VerifyMethod::Sampled(tally.seen))
}

fn searched_verdict(
    dag: &Dag,
    members: &MarkedPaths,
    labelling: &Labelling,
    budget: &VerifyBudget,
    found: pairs::PairSearch,
) -> VerifierVerdict {
    // Even if no two paths have the same sums, exactly the sums of the interesting paths must be recognised.
    let mut tally = PathFindings::default();
    if !members.for_each(dag, |path| tally.add(dag, labelling, members, path)) {
        paths::for_each_random_path(dag, members, budget.samples, |path| tally.add(dag, labelling, members, path));
        tally.number_range = pairs::interesting_number_range(dag, members, labelling);
    }
    let sums_differ = found.interesting.is_none();
    let finding = |pair: Option<pairs::InterestingPair>| pair.map_or(VerifyFinding::Holds, |(p, q)| VerifyFinding::Fails(p, Some(q)));
    let uniqueness = if sums_differ { tally.uniqueness() } else { finding(found.interesting) };
    // A register value that is recognised although no interesting path has it could belong to a different path.
    let surplus = labelling.accepted().is_some_and(|accepted| accepted != members.count(dag));
    let validity = if surplus { VerifyFinding::Fails(Vec::new(), None) } else { finding(found.other) };
    let valid = validity == VerifyFinding::Holds;
    let aliases = match valid {
        true => UninterestingPathAliases::Exact(0),
        false => pairs::count_aliases(dag, members, labelling, budget.states).map_or_else(
            || {
                let mut drawn = PathFindings::default();
                paths::for_each_random_path(dag, members, budget.samples, |path| drawn.add(dag, labelling, members, path));
                UninterestingPathAliases::Sampled { aliases: drawn.aliases, of: drawn.others }
            },
            UninterestingPathAliases::Exact,
        ),
    };
    VerifierVerdict { method: VerifyMethod::Searched, uniqueness, validity, compactness: tally.compactness(labelling, false), aliases }
}

/// Findings about the paths visited so far.
#[derive(Default)]
struct PathFindings {
    seen: u64,
    others: u64,
    aliases: u64,
    /// For each counter, the interesting path that is recognised by it.
    recognised: HashMap<u64, Vec<DagEdgeId>>,
    number_range: Option<(i64, i64)>,
    not_unique: Option<VerifyFinding>,
    not_valid: Option<VerifyFinding>,
}

impl PathFindings {
    fn add(&mut self, dag: &Dag, labelling: &Labelling, members: &MarkedPaths, path: &[DagEdgeId]) {
        self.seen += 1;
        let sums = labelling.register_values(path);
        let class = labelling.classify(dag, sums);
        if !members.has(path) {
            self.others += 1;
            if let PathClass::Known(slot) = class {
                self.aliases += 1;
                self.not_valid.get_or_insert_with(|| VerifyFinding::Fails(path.to_vec(), self.recognised.get(&slot).cloned()));
            }
            return;
        }
        self.number_range = Some(self.number_range.map_or((sums[0], sums[0]), |(low, high)| (low.min(sums[0]), high.max(sums[0]))));
        let fault = match class {
            PathClass::Unknown => Some(VerifyFinding::Fails(path.to_vec(), None)),
            PathClass::Known(slot) => self
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

    /// Checks the span. `part` is true if only some of the interesting paths were visited.
    fn compactness(&self, labelling: &Labelling, part: bool) -> VerifyFinding {
        let span = labelling.span();
        match self.number_range {
            Some((low, high)) if (low, high) == (span.low, span.high) => VerifyFinding::Holds,
            Some((low, high)) if part && low >= span.low && high <= span.high => VerifyFinding::NotRefuted,
            _ => VerifyFinding::Fails(self.recognised.values().next().cloned().unwrap_or_default(), None),
        }
    }

    fn verdict(&self, labelling: &Labelling, method: VerifyMethod) -> VerifierVerdict {
        let sampled = matches!(method, VerifyMethod::Sampled(_));
        let or = |f: &Option<VerifyFinding>| f.clone().unwrap_or(if sampled { VerifyFinding::NotRefuted } else { VerifyFinding::Holds });
        let aliases = match sampled {
            true => UninterestingPathAliases::Sampled { aliases: self.aliases, of: self.others },
            false => UninterestingPathAliases::Exact(self.aliases.into()),
        };
        let (uniqueness, validity) = (or(&self.not_unique), or(&self.not_valid));
        VerifierVerdict { method, uniqueness, validity, compactness: self.compactness(labelling, sampled), aliases }
    }
}
