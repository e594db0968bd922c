//! The order in which tests cover most soonest.
//!
//! *Additional coverage*: the next test is the one that takes most paths not taken yet. When no test takes any, all
//! paths count as not taken again, and another pass orders the rest. How good an order is: the average percentage of
//! paths covered, which is 100 % if the first test of many takes all. Both by Rothermel, Untch, Chu and Harrold,
//! "Prioritizing test cases for regression testing", 2001 (their APFD, with paths for faults).

use super::{PathIndex, SuiteTest};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// A test in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedTest {
    /// Its place in the suite.
    pub test: usize,
    /// How many of the interesting paths it takes.
    pub takes: u64,
    /// How many of them no earlier test of the same pass takes.
    pub adds: u64,
    /// The pass, from 0.
    pub pass: u32,
}

/// The value of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// The number of new paths.
    Paths,
    /// The number of new paths for its time.
    PathsPerTime,
}

/// Orders tests by the interesting paths. Tests that take none of them come last, ordered by all their paths.
pub fn order(tests: &[SuiteTest], interesting: Option<&BTreeSet<PathIndex>>, worth: Worth) -> Vec<OrderedTest> {
    let sets = |only: Option<&BTreeSet<PathIndex>>| -> Vec<Vec<PathIndex>> {
        tests.iter().map(|t| t.paths.iter().filter(|p| only.is_none_or(|w| w.contains(p))).copied().collect()).collect()
    };
    let sets_of_interest = sets(interesting);
    let (first, last): (Vec<usize>, Vec<usize>) = (0..tests.len()).partition(|t| interesting.is_none() || !sets_of_interest[*t].is_empty());
    let mut placed = additional(tests, first, &sets_of_interest, worth);
    let rest = additional(tests, last, &sets(None), worth);
    placed.extend(rest.into_iter().map(|p| OrderedTest { takes: 0, adds: 0, ..p }));
    placed
}

/// By what each test adds. What a test adds only falls while others are chosen, so an outdated value is an
/// upper bound: it is computed again only when it comes up.
fn additional(tests: &[SuiteTest], mut left: Vec<usize>, sets: &[Vec<PathIndex>], worth: Worth) -> Vec<OrderedTest> {
    let (mut placed, mut pass) = (Vec::new(), 0);
    while !left.is_empty() {
        let mut covered: BTreeSet<PathIndex> = BTreeSet::new();
        let value = |test: usize, adds: u64| match worth {
            Worth::Paths => u128::from(adds) << 64,
            // In paths a second, with enough digits.
            Worth::PathsPerTime => (u128::from(adds) << 64) / u128::from(tests[test].duration_ns.max(1)),
        };
        let mut heap: BinaryHeap<(u128, Reverse<usize>, u64)> =
            left.iter().map(|t| (value(*t, sets[*t].len() as u64), Reverse(*t), sets[*t].len() as u64)).collect();
        let before = placed.len();
        while let Some((_, Reverse(test), known)) = heap.pop() {
            let adds = sets[test].iter().filter(|p| !covered.contains(p)).count() as u64;
            if adds != known {
                heap.push((value(test, adds), Reverse(test), adds));
            } else if adds > 0 {
                covered.extend(&sets[test]);
                placed.push(OrderedTest { test, takes: sets[test].len() as u64, adds, pass });
            } else {
                break;
            }
        }
        let done: BTreeSet<usize> = placed[before..].iter().map(|p| p.test).collect();
        left.retain(|t| !done.contains(t));
        if done.is_empty() {
            // Tests without any path: as they were recorded.
            placed.extend(left.drain(..).map(|test| OrderedTest { test, takes: 0, adds: 0, pass }));
        }
        pass += 1;
    }
    placed
}

/// The average percentage of paths covered by an order of tests, from 0 to 100; none if there is nothing to cover.
pub fn average_covered(tests: &[SuiteTest], order: impl Iterator<Item = usize>, interesting: Option<&BTreeSet<PathIndex>>) -> Option<f64> {
    let (mut covered, mut places, mut length) = (BTreeSet::new(), 0u64, 0u64);
    for (place, test) in (1u64..).zip(order) {
        for path in tests[test].paths.iter().filter(|p| interesting.is_none_or(|w| w.contains(p))) {
            places += if covered.insert(*path) { place } else { 0 };
        }
        length = place;
    }
    if covered.is_empty() {
        return None;
    }
    let (n, m) = (length as f64, covered.len() as f64);
    Some(100.0 * (1.0 - places as f64 / (n * m) + 0.5 / n))
}
