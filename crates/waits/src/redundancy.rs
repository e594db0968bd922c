//! What of two paths need not be shown.
//!
//! Just before presentation (Carnival): a step that both paths have is dropped from both as far as they share it, which changes no
//! difference. Then, greedily,
//! a step of one path and one of the same code and state on another location in the other path are dropped whole if their times are
//! comparable, as long as what is left
//! explains at least 95 % of the wait. What was dropped is part of the result.

use crate::classes::Class;
use crate::hash::Map;
use crate::step::{CodeId, LocationState, Step, StepId, Steps};
use std::collections::BTreeMap;

/// What is left must explain this part of the wait. With 0.8, three recordings show 2 to 3 % fewer steps; with 0.99, 0 to 7 % more
/// (docs/benchmarks/constants.md).
pub const EXPLAINED: f64 = 0.95;
/// Times are comparable if the smaller is at least this part of the greater. With 0.5, they show 9 to 10 % fewer steps; with 0.9, 4 to 11 %
/// more.
pub const COMPARABLE: f64 = 0.75;

/// Two paths without redundant steps, the longest steps first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Steps executed ...
    pub plus: Vec<(Step, u64)>,
    /// ... instead of these.
    pub minus: Vec<(Step, u64)>,
    /// Time of equal steps that was dropped from both, ns.
    pub equal_ns: u64,
    /// Pairs of steps on different locations that were dropped.
    pub pairs: u64,
    /// What was dropped with them from the longer path and from the shorter one, ns.
    pub pairs_ns: (u64, u64),
}

/// The paths of a class without redundant steps.
pub fn explain(steps: &Steps, class: &Class) -> Explanation {
    reduce(steps, &class.plus, &class.minus)
}

/// Two paths without redundant steps.
pub fn reduce(steps: &Steps, plus: &Map<StepId, u64>, minus: &Map<StepId, u64>) -> Explanation {
    let mut explanation = Explanation::default();
    let mut longer: BTreeMap<StepId, u64> = plus.iter().map(|(step, ns)| (*step, *ns)).collect();
    let mut shorter: BTreeMap<StepId, u64> = minus.iter().map(|(step, ns)| (*step, *ns)).collect();
    let wait_ns = longer.values().sum::<u64>() as i128 - shorter.values().sum::<u64>() as i128;
    for (step, ns) in &mut shorter {
        if let Some(other) = longer.get_mut(step) {
            let equal = (*ns).min(*other);
            *ns -= equal;
            *other -= equal;
            explanation.equal_ns += equal;
        }
    }
    let mut longer = ordered(steps, &longer);
    let mut shorter = ordered(steps, &shorter);
    drop_pairs(&mut longer, &mut shorter, wait_ns, &mut explanation);
    (explanation.plus, explanation.minus) = (longer, shorter);
    explanation
}

fn ordered(steps: &Steps, path: &BTreeMap<StepId, u64>) -> Vec<(Step, u64)> {
    let mut path: Vec<(Step, u64)> = path.iter().filter(|(_, ns)| **ns > 0).map(|(step, ns)| (steps.get(*step), *ns)).collect();
    path.sort_by_key(|(step, ns)| (std::cmp::Reverse(*ns), *step));
    path
}

fn drop_pairs(longer: &mut Vec<(Step, u64)>, shorter: &mut Vec<(Step, u64)>, wait_ns: i128, explanation: &mut Explanation) {
    let budget = (wait_ns.max(0) as f64 * (1.0 - EXPLAINED)) as i128;
    let mut change: i128 = 0;
    let mut candidates: Map<(CodeId, LocationState), Vec<usize>> = Map::default();
    for (index, (step, _)) in shorter.iter().enumerate() {
        candidates.entry((step.code, step.state)).or_default().push(index);
    }
    let (mut dropped, mut gone) = (vec![false; longer.len()], vec![false; shorter.len()]);
    for (index, (step, ns)) in longer.iter().enumerate() {
        let others = candidates.get(&(step.code, step.state)).into_iter().flatten();
        let open = others.filter(|other| !gone[**other] && shorter[**other].0.location != step.location);
        let Some(nearest) = open.min_by_key(|other| shorter[**other].1.abs_diff(*ns)).copied() else { continue };
        let other_ns = shorter[nearest].1;
        let is_comparable = (*ns).min(other_ns) as f64 >= COMPARABLE * (*ns).max(other_ns) as f64;
        let after = change + i128::from(*ns) - i128::from(other_ns);
        if is_comparable && after.abs() <= budget {
            change = after;
            (dropped[index], gone[nearest]) = (true, true);
            explanation.pairs += 1;
            explanation.pairs_ns.0 += ns;
            explanation.pairs_ns.1 += other_ns;
        }
    }
    let mut flags = dropped.into_iter();
    longer.retain(|_| !flags.next().unwrap_or(false));
    let mut flags = gone.into_iter();
    shorter.retain(|_| !flags.next().unwrap_or(false));
}
