//! Finds what path counts reveal about a function and edge counts cannot: [`CorrelatedBranches`] branches, [`LoopPatterns`],
//! [`RedundantBlock`] computations, and pairs of edges that never occur together ([`NeverTogether`]).
//!
//! The analyses depend only on a function's map and counts, and consider executed paths only. Paths end at back edges, so correlations
//! across iterations or across an inner loop are not found. Savings are estimated in executed instructions, under the assumption of an
//! ideal transformation, and serve to rank findings.

mod correlated;
mod loops;
mod nest;
mod never;
mod pairs;
mod redundant;
mod statistics;
mod trace;
mod walks;

pub use correlated::{BlocksBetween, BranchOutcome, ConditionalOutcomes, CorrelatedBranches};
pub use loops::{LoopPattern, LoopPatterns, PatternSplitBranch};
pub use nest::natural_loops;
pub use never::NeverTogether;
pub use redundant::{OperationSite, RedundantBlock, RepeatedComputation};
pub use walks::{ExecutedBlockPath, ExecutedPaths};

use trodden_profile::paths::FunctionPaths;
use trodden_unit::FunctionMap;
use trodden_unit::properties::{FunctionProperties, UnitProperties};

/// Number of instructions saved when a branch is decided: a comparison and a jump.
const INSTRUCTIONS_PER_BRANCH: u64 = 2;

/// Thresholds of findings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviseOptions {
    /// A branch counts as decided if at least this share (0 to 1) of its executions have the same outcome.
    pub decided: f64,
    /// Minimum number of executions of the code that a finding is about.
    pub min_count: u64,
}

impl Default for AdviseOptions {
    fn default() -> AdviseOptions {
        AdviseOptions { decided: 0.99, min_count: 100 }
    }
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdviceKind {
    /// A [`CorrelatedBranches`] branch.
    Correlated,
    /// A loop with few iteration patterns ([`LoopPatterns`]).
    Loop,
    /// Computations whose result is already available ([`RedundantBlock`]).
    Redundant,
    /// Two frequent edges that never occur on the same path ([`NeverTogether`]).
    Never,
}

trodden_unit::spell! { AdviceKind:
    AdviceKind::Correlated => "correlated", "Branches that an earlier branch on the path decides";
    AdviceKind::Loop => "loop", "Loops whose iterations fall into few patterns";
    AdviceKind::Redundant => "redundant", "Results that are recomputed although nearly all executions already had them";
    AdviceKind::Never => "never", "Pairs of edges that are taken often, but never on the same path";
}

/// A finding about a function.
#[derive(Clone, Debug, PartialEq)]
pub struct AdviceFinding {
    /// What was found.
    pub advice: Advice,
    /// Upper bound on the number of executed LLVM IR instructions that could be saved, or 0 if the finding is not about speed.
    pub saves: u64,
}

/// The data of a finding, by kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Advice {
    /// A branch that an earlier branch decides.
    Correlated(CorrelatedBranches),
    /// A loop with few iteration patterns.
    Loop(LoopPatterns),
    /// Computations whose result is already available.
    Redundant(RedundantBlock),
    /// Edges that never occur on the same path.
    Never(NeverTogether),
}

impl AdviceFinding {
    /// Returns the finding's kind.
    pub fn kind(&self) -> AdviceKind {
        match self.advice {
            Advice::Correlated(_) => AdviceKind::Correlated,
            Advice::Loop(_) => AdviceKind::Loop,
            Advice::Redundant(_) => AdviceKind::Redundant,
            Advice::Never(_) => AdviceKind::Never,
        }
    }

    /// Returns the negated decimal logarithm of the probability that a [`NeverTogether`] is due to chance, or 0 for other kinds.
    pub fn surprise_score(&self) -> f64 {
        match &self.advice {
            Advice::Never(never) => never.surprise,
            _ => 0.0,
        }
    }
}

/// Returns all findings of a function, ordered by saving, then by [`AdviceFinding::surprise`]. Redundant computations are only found if
/// `properties` are given.
pub fn advise(
    map: &FunctionMap,
    paths: &FunctionPaths,
    properties: Option<(&UnitProperties, &FunctionProperties)>,
    options: &AdviseOptions,
) -> Vec<AdviceFinding> {
    let walks = ExecutedPaths::new(map, paths);
    let pairs = pairs::BranchPairs::from_walks(&walks);
    let nest = nest::natural_loops(map);
    let correlated = correlated::find(&walks, &pairs, &nest, options);
    let never = never::find(&walks, &pairs, &nest, &correlated, options);
    let mut findings: Vec<AdviceFinding> = correlated
        .into_iter()
        .map(|c| AdviceFinding { saves: c.decided * INSTRUCTIONS_PER_BRANCH, advice: Advice::Correlated(c) })
        .collect();
    findings.extend(
        loops::find(&walks, &nest, options)
            .into_iter()
            .map(|l| AdviceFinding { saves: l.max_saved_instructions(), advice: Advice::Loop(l) }),
    );
    if let Some((unit, function)) = properties {
        let redundant = redundant::find(&walks, unit, function, options);
        findings.extend(redundant.into_iter().map(|r| AdviceFinding { saves: r.max_saved_instructions(), advice: Advice::Redundant(r) }));
    }
    findings.extend(never.into_iter().map(|n| AdviceFinding { saves: 0, advice: Advice::Never(n) }));
    findings.sort_by(|a, b| b.saves.cmp(&a.saves).then_with(|| b.surprise_score().total_cmp(&a.surprise_score())));
    findings
}
