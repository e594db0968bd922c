//! Test order by additional coverage.
//!
//! The next test is always the one with the most paths that no earlier test takes. When no remaining test has such a path, a new pass
//! orders the rest as if no path had been taken. An order is rated by its average percentage of paths covered. Both follow Rothermel,
//! Untch, Chu and Harrold, "Prioritizing test cases for regression testing", 2001 (their APFD, with paths in place of faults).

use super::{PathIndex, SuiteTest};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// A test and its position in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedTest {
    /// The test's index in the suite.
    pub test: usize,
    /// Number of interesting paths that the test takes.
    pub paths: u64,
    /// Number of interesting paths that no earlier test of the same pass takes.
    pub new_paths: u64,
    /// The pass, from 0.
    pub pass: u32,
}

/// The criterion by which tests are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOrderMeasure {
    /// The number of new paths.
    Paths,
    /// The number of new paths per unit of run time.
    PathsPerTime,
}

/// Orders tests by interesting paths, or by all paths if `interesting` is `None`. Tests without interesting paths come last, ordered by all
/// of their paths.
pub fn order_tests(tests: &[SuiteTest], interesting: Option<&BTreeSet<PathIndex>>, by: TestOrderMeasure) -> Vec<OrderedTest> {
    let sets = |only: Option<&BTreeSet<PathIndex>>| -> Vec<Vec<PathIndex>> {
        tests.iter().map(|t| t.paths.iter().filter(|p| only.is_none_or(|w| w.contains(p))).copied().collect()).collect()
    };
    let sets_of_interest = sets(interesting);
    let (first, last): (Vec<usize>, Vec<usize>) = (0..tests.len()).partition(|t| interesting.is_none() || !sets_of_interest[*t].is_empty());
    let mut placed = order_by_new_paths(tests, first, &sets_of_interest, by);
    let rest = order_by_new_paths(tests, last, &sets(None), by);
    placed.extend(rest.into_iter().map(|p| OrderedTest { paths: 0, new_paths: 0, ..p }));
    placed
}

/// Orders tests greedily. A test's value only decreases, so a value in the heap is an upper bound, and is updated only when it reaches the
/// top.
fn order_by_new_paths(tests: &[SuiteTest], mut remaining: Vec<usize>, sets: &[Vec<PathIndex>], by: TestOrderMeasure) -> Vec<OrderedTest> {
    let (mut placed, mut pass) = (Vec::new(), 0);
    while !remaining.is_empty() {
        let mut covered: BTreeSet<PathIndex> = BTreeSet::new();
        let value = |test: usize, adds: u64| match by {
            TestOrderMeasure::Paths => u128::from(adds) << 64,
            // Fixed point, with 64 fractional bits.
            TestOrderMeasure::PathsPerTime => (u128::from(adds) << 64) / u128::from(tests[test].duration_ns.max(1)),
        };
        let mut heap: BinaryHeap<(u128, Reverse<usize>, u64)> =
            remaining.iter().map(|t| (value(*t, sets[*t].len() as u64), Reverse(*t), sets[*t].len() as u64)).collect();
        let before = placed.len();
        while let Some((_, Reverse(test), known)) = heap.pop() {
            let new_paths = sets[test].iter().filter(|p| !covered.contains(p)).count() as u64;
            if new_paths != known {
                heap.push((value(test, new_paths), Reverse(test), new_paths));
            } else if new_paths > 0 {
                covered.extend(&sets[test]);
                placed.push(OrderedTest { test, paths: sets[test].len() as u64, new_paths, pass });
            } else {
                break;
            }
        }
        let done: BTreeSet<usize> = placed[before..].iter().map(|p| p.test).collect();
        remaining.retain(|t| !done.contains(t));
        if done.is_empty() {
            // Tests without paths keep their order.
            placed.extend(remaining.drain(..).map(|test| OrderedTest { test, paths: 0, new_paths: 0, pass }));
        }
        pass += 1;
    }
    placed
}

/// Returns the average percentage (0 to 100) of paths covered by an order of tests, or `None` if there is nothing to cover.
pub fn average_covered_percent(
    tests: &[SuiteTest],
    order: impl Iterator<Item = usize>,
    interesting: Option<&BTreeSet<PathIndex>>,
) -> Option<f64> {
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
