//! Attributes waiting time to the code that causes it, added up over all waits (the *delay cost*).
//!
//! A wait is explained by a longer path, of the location that ended it, and a shorter path, of the location that waited. Code causes the
//! wait if the longer path spends more time in it than the shorter one. The wait is divided among its causes in proportion to this excess.
//! The parts are integers that add up to the wait. For the comparison, it does not matter which location executed the code; the result is
//! divided among the locations on the longer path in proportion to their times.

use crate::classes::{SiteWaits, WaitClass};
use crate::hash::Map;
use crate::step::{CodeId, LocationState, Step, Steps};
use std::collections::BTreeMap;

/// A step, and the waiting time of other locations that it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The step for which other locations wait.
    pub step: Step,
    /// Waiting time that the step causes, in ns.
    pub wait_ns: u64,
}

/// Returns the causes of all waits, largest first. Their times add up to the total waiting time.
pub fn find_causes(steps: &Steps, sites: &[SiteWaits]) -> Vec<Cause> {
    let mut sums: Map<Step, u64> = Map::default();
    for class in sites.iter().flat_map(|site| &site.classes) {
        for (step, ns) in causes_of_class(steps, class) {
            *sums.entry(step).or_default() += ns;
        }
    }
    let mut causes: Vec<Cause> = sums.into_iter().map(|(step, wait_ns)| Cause { step, wait_ns }).collect();
    causes.sort_by_key(|cause| (std::cmp::Reverse(cause.wait_ns), cause.step));
    causes
}

/// Returns the causes of the waits in a class. Their times add up to the waiting time of the class.
pub fn causes_of_class(steps: &Steps, class: &WaitClass) -> Vec<(Step, u64)> {
    let mut excess: BTreeMap<(CodeId, LocationState), i128> = BTreeMap::new();
    let mut executed: BTreeMap<(CodeId, LocationState), Vec<(Step, u64)>> = BTreeMap::new();
    for (id, ns) in &class.plus {
        let step = steps.get(*id);
        *excess.entry((step.code, step.state)).or_default() += i128::from(*ns);
        executed.entry((step.code, step.state)).or_default().push((step, *ns));
    }
    for (id, ns) in &class.minus {
        let step = steps.get(*id);
        *excess.entry((step.code, step.state)).or_default() -= i128::from(*ns);
    }
    let positive: Vec<((CodeId, LocationState), u64)> =
        excess.into_iter().filter_map(|(code, ns)| u64::try_from(ns).ok().filter(|ns| *ns > 0).map(|ns| (code, ns))).collect();
    let mut found = Vec::new();
    let shares = divide_in_proportion(class.total_ns, &positive.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
    for ((code, _), share) in positive.iter().zip(shares) {
        let mut locations = executed.remove(code).unwrap_or_default();
        locations.sort_by_key(|(step, _)| *step);
        let parts = divide_in_proportion(share, &locations.iter().map(|(_, ns)| *ns).collect::<Vec<_>>());
        found.extend(locations.iter().zip(parts).filter(|(_, ns)| *ns > 0).map(|((step, _), ns)| (*step, ns)));
    }
    found
}

/// Divides `total` in proportion to the weights. The parts add up to `total`, unless all weights are 0.
fn divide_in_proportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|w| u128::from(*w)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let mut before: u128 = 0;
    let share = |weight: u128| (u128::from(total) * weight / sum) as u64;
    weights
        .iter()
        .map(|weight| {
            let from = share(before);
            before += u128::from(*weight);
            share(before) - from
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divided_parts_add_up_to_the_total() {
        assert_eq!(divide_in_proportion(10, &[1, 1, 1]).iter().sum::<u64>(), 10);
        assert_eq!(divide_in_proportion(7, &[0, 5, 0]), [0, 7, 0]);
        assert_eq!(divide_in_proportion(7, &[]), Vec::<u64>::new());
    }
}
