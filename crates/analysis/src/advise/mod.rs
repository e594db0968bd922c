//! Findings about a function that need counts of paths: counts of edges cannot show them.
//!
//! | finding | what | file |
//! |---|---|---|
//! | [`Correlated`] | a branch that an earlier branch on the same path decides, though neither is decided by itself | `correlated.rs` |
//! | [`LoopPatterns`] | a loop whose iterations fall into fewer patterns than independent branches would give | `loops.rs` |
//! | [`Redundant`] | computations whose result nearly all executions already have; only rare paths do not | `redundant.rs` |
//! | [`Never`] | two edges, each executed often, and never on one path | `never.rs` |
//!
//! All are pure functions of a function's map and counts. Redundant computations also need the [properties](trodden_unit::properties) of
//! its instructions. Only executed paths are analysed, so the time does not depend on the number of possible paths.
//!
//! Paths end at back edges. So correlations between one iteration and the next are unknown, and so are correlations between two branches
//! with an inner loop between them.
//!
//! Savings are estimates in executed instructions, which rank the findings. They are those of an ideal transformation: see each kind.

mod correlated;
mod loops;
mod nest;
mod never;
mod pairs;
mod redundant;
mod statistics;
mod trace;
mod walks;

pub use correlated::{BranchOutcome, Correlated, Given, Stretch};
pub use loops::{LoopPattern, LoopPatterns, Split};
pub use nest::loops as loops_of;
pub use never::Never;
pub use redundant::{OperationSite, Redundant, Repeated};
pub use walks::{BlockWalk, Walks};

use trodden_profile::paths::FunctionPaths;
use trodden_unit::FunctionMap;
use trodden_unit::properties::{FunctionProperties, UnitProperties};

/// Instructions that a decided branch saves: a comparison and a jump.
const TEST: u64 = 2;

/// Thresholds of findings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviseOptions {
    /// A branch counts as decided if one outcome has at least this share of its executions, from 0 to 1.
    pub decided: f64,
    /// Code that was executed less often is left out.
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
    /// [`Correlated`]
    Correlated,
    /// [`LoopPatterns`]
    Loop,
    /// [`Redundant`]
    Redundant,
    /// [`Never`]
    Never,
}

trodden_unit::spell! { AdviceKind:
    AdviceKind::Correlated => "correlated", "Branches that an earlier branch on the path decides";
    AdviceKind::Loop => "loop", "Loops whose iterations fall into few patterns";
    AdviceKind::Redundant => "redundant", "Results that are computed again though nearly all executions had them";
    AdviceKind::Never => "never", "Edges that are taken often, and never on one path";
}

/// A finding about a function.
#[derive(Clone, Debug, PartialEq)]
pub struct AdviceFinding {
    /// What was found.
    pub advice: Advice,
    /// Upper bound of the executed instructions of the intermediate code that could be saved; 0 if the finding is not about speed.
    pub saves: u64,
}

/// The kinds of findings with their data.
#[derive(Clone, Debug, PartialEq)]
pub enum Advice {
    /// A branch that an earlier one decides.
    Correlated(Correlated),
    /// A loop with few patterns.
    Loop(LoopPatterns),
    /// Computations whose result is already there.
    Redundant(Redundant),
    /// Edges that exclude each other.
    Never(Never),
}

impl AdviceFinding {
    /// Its kind.
    pub fn kind(&self) -> AdviceKind {
        match self.advice {
            Advice::Correlated(_) => AdviceKind::Correlated,
            Advice::Loop(_) => AdviceKind::Loop,
            Advice::Redundant(_) => AdviceKind::Redundant,
            Advice::Never(_) => AdviceKind::Never,
        }
    }

    /// The negated decimal logarithm of the probability that it is chance; only for [`Never`].
    pub fn surprise(&self) -> f64 {
        match &self.advice {
            Advice::Never(never) => never.surprise,
            _ => 0.0,
        }
    }
}

/// All findings of a function: those that save most first, then those that are least likely to be chance. Without block properties no
/// [`Redundant`] is found.
pub fn advise(
    map: &FunctionMap,
    paths: &FunctionPaths,
    properties: Option<(&UnitProperties, &FunctionProperties)>,
    options: &AdviseOptions,
) -> Vec<AdviceFinding> {
    let walks = Walks::new(map, paths);
    let pairs = pairs::Pairs::from_walks(&walks);
    let nest = nest::loops(map);
    let correlated = correlated::find(&walks, &pairs, &nest, options);
    let never = never::find(&walks, &pairs, &nest, &correlated, options);
    let mut findings: Vec<AdviceFinding> =
        correlated.into_iter().map(|c| AdviceFinding { saves: c.decided * TEST, advice: Advice::Correlated(c) }).collect();
    findings.extend(loops::find(&walks, &nest, options).into_iter().map(|l| AdviceFinding { saves: l.saves(), advice: Advice::Loop(l) }));
    if let Some((unit, function)) = properties {
        let redundant = redundant::find(&walks, unit, function, options);
        findings.extend(redundant.into_iter().map(|r| AdviceFinding { saves: r.saves(), advice: Advice::Redundant(r) }));
    }
    findings.extend(never.into_iter().map(|n| AdviceFinding { saves: 0, advice: Advice::Never(n) }));
    findings.sort_by(|a, b| b.saves.cmp(&a.saves).then_with(|| b.surprise().total_cmp(&a.surprise())));
    findings
}
