//! Removes steps that do not help to explain a wait, before its two paths are shown (as in Carnival).
//!
//! First, the time that both paths spend in the same step is removed from both, which does not change their difference. Then steps with the
//! same code and state on different locations are paired, and a pair is removed if its times are similar, as long as the remaining steps
//! still explain 95 % of the wait. The result includes what was removed.

use crate::classes::WaitClass;
use crate::hash::Map;
use crate::step::{CodeId, LocationState, Step, StepId, Steps};
use std::collections::BTreeMap;

/// Minimum fraction of the wait that the remaining steps must explain. On three recordings, 0.8 leaves 2 to 3 % fewer steps, and 0.99
/// leaves 0 to 7 % more (docs/benchmarks/constants.md).
pub const MIN_EXPLAINED_WAIT_FRACTION: f64 = 0.95;
/// Minimum ratio of two times that count as similar. On the same recordings, 0.5 leaves 9 to 10 % fewer steps, and 0.9 leaves 4 to 11 %
/// more.
pub const MIN_SIMILAR_TIME_RATIO: f64 = 0.75;

/// The two paths of a wait after steps have been removed, each with the longest step first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitExplanation {
    /// Remaining steps of the longer path, with their times in ns.
    pub plus: Vec<(Step, u64)>,
    /// Remaining steps of the shorter path, with their times in ns.
    pub minus: Vec<(Step, u64)>,
    /// Time in ns that was removed from each path because both spend it in the same step.
    pub equal_ns: u64,
    /// Number of pairs of similar steps on different locations that were removed.
    pub pairs: u64,
    /// Total time in ns of the steps in these pairs: those on the longer path, and those on the shorter path.
    pub pairs_ns: (u64, u64),
}

/// Removes steps that do not help to explain the waits of a class.
pub fn explain_wait_class(steps: &Steps, class: &WaitClass) -> WaitExplanation {
    remove_redundant_steps(steps, &class.plus, &class.minus)
}

/// Removes steps that do not help to explain the difference of two paths. A path is given as the time in ns of each step.
pub fn remove_redundant_steps(steps: &Steps, plus: &Map<StepId, u64>, minus: &Map<StepId, u64>) -> WaitExplanation {
    let mut explanation = WaitExplanation::default();
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
    let mut longer = sort_by_time(steps, &longer);
    let mut shorter = sort_by_time(steps, &shorter);
    remove_similar_pairs(&mut longer, &mut shorter, wait_ns, &mut explanation);
    (explanation.plus, explanation.minus) = (longer, shorter);
    explanation
}

fn sort_by_time(steps: &Steps, path: &BTreeMap<StepId, u64>) -> Vec<(Step, u64)> {
    let mut path: Vec<(Step, u64)> = path.iter().filter(|(_, ns)| **ns > 0).map(|(step, ns)| (steps.get(*step), *ns)).collect();
    path.sort_by_key(|(step, ns)| (std::cmp::Reverse(*ns), *step));
    path
}

fn remove_similar_pairs(longer: &mut Vec<(Step, u64)>, shorter: &mut Vec<(Step, u64)>, wait_ns: i128, explanation: &mut WaitExplanation) {
    let budget = (wait_ns.max(0) as f64 * (1.0 - MIN_EXPLAINED_WAIT_FRACTION)) as i128;
    let mut change: i128 = 0;
    let mut candidates: Map<(CodeId, LocationState), Vec<usize>> = Map::default();
    for (index, (step, _)) in shorter.iter().enumerate() {
        candidates.entry((step.code, step.state)).or_default().push(index);
    }
    let (mut is_dropped_longer, mut is_dropped_shorter) = (vec![false; longer.len()], vec![false; shorter.len()]);
    for (index, (step, ns)) in longer.iter().enumerate() {
        let others = candidates.get(&(step.code, step.state)).into_iter().flatten();
        let available = others.filter(|other| !is_dropped_shorter[**other] && shorter[**other].0.location != step.location);
        let Some(nearest) = available.min_by_key(|other| shorter[**other].1.abs_diff(*ns)).copied() else { continue };
        let other_ns = shorter[nearest].1;
        let is_comparable = (*ns).min(other_ns) as f64 >= MIN_SIMILAR_TIME_RATIO * (*ns).max(other_ns) as f64;
        let after = change + i128::from(*ns) - i128::from(other_ns);
        if is_comparable && after.abs() <= budget {
            change = after;
            (is_dropped_longer[index], is_dropped_shorter[nearest]) = (true, true);
            explanation.pairs += 1;
            explanation.pairs_ns.0 += ns;
            explanation.pairs_ns.1 += other_ns;
        }
    }
    let mut flags = is_dropped_longer.into_iter();
    longer.retain(|_| !flags.next().unwrap_or(false));
    let mut flags = is_dropped_shorter.into_iter();
    shorter.retain(|_| !flags.next().unwrap_or(false));
}
