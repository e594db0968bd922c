//! What a function's paths tell an engineer that its edges cannot.
//!
//! | finding | what | file |
//! |---|---|---|
//! | [`Correlated`] | a branch that an earlier branch on the same path decides, though neither is decided by itself | `correlated.rs` |
//! | [`LoopPatterns`] | a loop whose iterations fall into fewer patterns than its branches would let expect | `loops.rs` |
//! | [`Redundant`] | computations that nearly all executions have made before, on ways of which the graph has others | `redundant.rs` |
//! | [`Never`] | two edges, each executed often, and never on one path | `never.rs` |
//!
//! All are pure functions of a function's map and counts, and the redundant ones of [facts](trodden_unit::facts) about
//! its instructions. Only executed paths are looked at, so the time does not depend on how many there could be.
//!
//! Paths end at back edges, so nothing is known of what one iteration of a loop tells of the next; where an inner loop
//! lies between two branches, nothing is known of them either.
//!
//! Savings are estimates in executed instructions, to rank findings by, and are those of an ideal transformation: see each kind.

mod correlated;
mod loops;
mod nest;
mod never;
mod pairs;
mod redundant;
mod statistics;
mod trace;
mod walks;

pub use correlated::{Correlated, Given, Outcome, Stretch};
pub use loops::{LoopPatterns, Pattern, Split};
pub use nest::loops as loops_of;
pub use never::Never;
pub use redundant::{Redundant, Repeated, Site};
pub use walks::{Walk, Walks};

use trodden_profile::paths::FunctionPaths;
use trodden_unit::FunctionMap;
use trodden_unit::facts::{FunctionFacts, UnitFacts};

/// Instructions that a decided branch saves: a comparison and a jump.
const TEST: u64 = 2;

/// When something is worth telling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviseOptions {
    /// A branch counts as decided if at least this share of its executions goes one way, from 0 to 1.
    pub decided: f64,
    /// Whatever was executed less often than this is left out.
    pub min_count: u64,
}

impl Default for AdviseOptions {
    fn default() -> AdviseOptions {
        AdviseOptions { decided: 0.99, min_count: 100 }
    }
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// [`Correlated`]
    Correlated,
    /// [`LoopPatterns`]
    Loop,
    /// [`Redundant`]
    Redundant,
    /// [`Never`]
    Never,
}

/// Something worth telling of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What.
    pub advice: Advice,
    /// Executed instructions of the intermediate code that could be saved, at most; 0 where speed is not the point.
    pub saves: u64,
}

/// What a finding says.
#[derive(Clone, Debug, PartialEq)]
pub enum Advice {
    /// A branch that an earlier one decides.
    Correlated(Correlated),
    /// A loop with few patterns.
    Loop(LoopPatterns),
    /// Work that was done before.
    Redundant(Redundant),
    /// Edges that exclude each other.
    Never(Never),
}

impl Finding {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self.advice {
            Advice::Correlated(_) => Kind::Correlated,
            Advice::Loop(_) => Kind::Loop,
            Advice::Redundant(_) => Kind::Redundant,
            Advice::Never(_) => Kind::Never,
        }
    }
}

/// All findings of a function: those that save most first, then those that are least likely to be chance. Without facts
/// none is [`Redundant`].
pub fn advise(
    map: &FunctionMap,
    paths: &FunctionPaths,
    facts: Option<(&UnitFacts, &FunctionFacts)>,
    options: &AdviseOptions,
) -> Vec<Finding> {
    let walks = Walks::of(map, paths);
    let pairs = pairs::Pairs::of(&walks);
    let nest = nest::loops(map);
    let correlated = correlated::find(&walks, &pairs, &nest, options);
    let never = never::find(&walks, &pairs, &nest, &correlated, options);
    let mut findings: Vec<Finding> =
        correlated.into_iter().map(|c| Finding { saves: c.decided * TEST, advice: Advice::Correlated(c) }).collect();
    findings.extend(loops::find(&walks, &nest, options).into_iter().map(|l| Finding { saves: l.saves(), advice: Advice::Loop(l) }));
    if let Some((unit, function)) = facts {
        let redundant = redundant::find(&walks, unit, function, options);
        findings.extend(redundant.into_iter().map(|r| Finding { saves: r.saves(), advice: Advice::Redundant(r) }));
    }
    findings.extend(never.into_iter().map(|n| Finding { saves: 0, advice: Advice::Never(n) }));
    findings.sort_by(|a, b| b.saves.cmp(&a.saves).then_with(|| b.surprise().total_cmp(&a.surprise())));
    findings
}

impl Finding {
    /// How unlikely it is to be chance, in powers of ten; of [`Never`] only.
    pub fn surprise(&self) -> f64 {
        match &self.advice {
            Advice::Never(never) => never.surprise,
            _ => 0.0,
        }
    }
}
