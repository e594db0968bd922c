//! Checks covers against all subsets, orders against their definition, and merging of runs into tests.

use crate::profiles::profile;
use std::collections::BTreeSet;
use trodden_analysis::suite::cover::{CoverProblem, SetCover, find_cheapest_cover, find_greedy_cover};
use trodden_analysis::suite::order::{TestOrderMeasure, average_covered_percent, order_tests};
use trodden_analysis::suite::{PathIndex, Suite, SuiteError, SuiteTest};
use trodden_profile::ProcessEnding;
use trodden_testkit::Random;

fn random_problem(random: &mut Random, sets: u64, elements: u64, most_cost: u64) -> CoverProblem {
    let mut set = || -> Vec<u32> {
        let share = 5 + random.below(50);
        (0..elements as u32).filter(|_| random.chance(share)).collect()
    };
    let sets: Vec<Vec<u32>> = (0..sets).map(|_| set()).collect();
    CoverProblem { costs: sets.iter().map(|_| 1 + random.below(most_cost)).collect(), sets }
}

fn covers(problem: &CoverProblem, selected: &[usize]) -> bool {
    let of = |sets: &mut dyn Iterator<Item = &Vec<u32>>| sets.flatten().copied().collect::<BTreeSet<u32>>();
    of(&mut problem.sets.iter()) == of(&mut selected.iter().map(|s| &problem.sets[*s]))
}

fn total_cost(problem: &CoverProblem, selected: &[usize]) -> u64 {
    selected.iter().map(|s| problem.costs[*s]).sum()
}

fn assert_cover_is_valid(problem: &CoverProblem, cover: &SetCover) {
    assert!(covers(problem, &cover.selected), "{problem:?}: {cover:?}");
    assert_eq!(total_cost(problem, &cover.selected), cover.cost);
    assert!(cover.bound <= cover.cost);
}

#[test]
fn exact_cover_is_cheapest_of_all_subsets() {
    let mut random = Random::new(1);
    let mut better = 0;
    for pass in 0..1500 {
        let (sets, elements, most_cost) = (random.below(11), random.below(25), 1 + random.below(3) * (pass % 2));
        let problem = random_problem(&mut random, sets, elements, most_cost);
        let subsets = (0u32..1 << sets).map(|bits| (0..sets as usize).filter(|s| bits >> s & 1 == 1).collect::<Vec<_>>());
        let least = subsets.filter(|s| covers(&problem, s)).map(|s| total_cost(&problem, &s)).min().unwrap();
        let (quick, best) = (find_greedy_cover(&problem), find_cheapest_cover(&problem, &mut || true));
        assert_cover_is_valid(&problem, &quick);
        assert_cover_is_valid(&problem, &best);
        assert_eq!((best.cost, best.bound), (least, least), "{problem:?}");
        assert!(quick.bound <= least);
        better += u32::from(best.cost < quick.cost);
    }
    assert!(better > 20, "greedy must be worse in some cases: {better}");
}

#[test]
fn bound_of_stopped_search_is_valid() {
    let mut random = Random::new(2);
    let mut unproven = 0;
    for _ in 0..20 {
        let problem = random_problem(&mut random, 40, 120, 1);
        let best = find_cheapest_cover(&problem, &mut || true);
        assert_cover_is_valid(&problem, &best);
        assert!(best.is_proven());
        let mut nodes = 3;
        let stopped = find_cheapest_cover(&problem, &mut || {
            nodes -= 1;
            nodes > 0
        });
        assert_cover_is_valid(&problem, &stopped);
        assert!(stopped.bound <= best.cost && best.cost <= stopped.cost, "{stopped:?} {best:?}");
        unproven += u32::from(!stopped.is_proven());
    }
    assert!(unproven > 0, "no search was stopped before its end");
}

fn suite_test(name: &str, duration_ns: u64, paths: &[u32]) -> SuiteTest {
    SuiteTest { name: name.into(), runs: 1, duration_ns, failed: false, paths: paths.iter().map(|p| PathIndex(*p)).collect() }
}

fn order_as_tuples(tests: &[SuiteTest], wanted: Option<&[u32]>, by: TestOrderMeasure) -> Vec<(usize, u64, u64)> {
    let wanted = wanted.map(|w| w.iter().map(|p| PathIndex(*p)).collect::<BTreeSet<_>>());
    order_tests(tests, wanted.as_ref(), by).iter().map(|p| (p.test, p.paths, p.new_paths)).collect()
}

#[test]
fn tests_with_most_new_paths_come_first() {
    let tests = [
        suite_test("a", 10, &[1, 2]),
        suite_test("b", 10, &[1, 2, 3]),
        suite_test("c", 1, &[4, 5]),
        suite_test("d", 10, &[]),
        suite_test("e", 10, &[5]),
    ];
    // When no test adds a new path, a new pass orders the remaining tests.
    assert_eq!(order_as_tuples(&tests, None, TestOrderMeasure::Paths), [(1, 3, 3), (2, 2, 2), (0, 2, 2), (4, 1, 1), (3, 0, 0)]);
    assert_eq!(order_as_tuples(&tests, None, TestOrderMeasure::PathsPerTime)[0], (2, 2, 2));
    // Only e and c take path 5. The others are ordered by all of their paths.
    assert_eq!(order_as_tuples(&tests, Some(&[5]), TestOrderMeasure::Paths), [(2, 1, 1), (4, 1, 1), (1, 0, 0), (0, 0, 0), (3, 0, 0)]);
}

#[test]
fn average_covered_matches_its_formula() {
    // Paths 1 and 2 are covered at position 1, path 3 at position 2: 1 - (1 + 1 + 2) / (2 * 3) + 1 / 4.
    let tests = [suite_test("a", 1, &[1, 2]), suite_test("b", 1, &[2, 3])];
    assert!((average_covered_percent(&tests, 0..2, None).unwrap() - 100.0 * (1.0 - 4.0 / 6.0 + 0.25)).abs() < 1e-9);
    let wanted = BTreeSet::from([PathIndex(3)]);
    assert!((average_covered_percent(&tests, 0..2, Some(&wanted)).unwrap() - 25.0).abs() < 1e-9);
    assert_eq!(average_covered_percent(&tests, 0..2, Some(&BTreeSet::new())), None);
}

#[test]
fn order_is_greedy_on_random_suites() {
    let mut random = Random::new(3);
    for _ in 0..300 {
        let tests: Vec<SuiteTest> = (0..1 + random.below(12))
            .map(|i| suite_test(&i.to_string(), 1 + random.below(100), &(0..20).filter(|_| random.chance(20)).collect::<Vec<u32>>()))
            .collect();
        let placed = order_tests(&tests, None, TestOrderMeasure::Paths);
        assert_eq!(placed.iter().map(|p| p.test).collect::<BTreeSet<_>>().len(), tests.len());
        let (mut covered, mut pass) = (BTreeSet::new(), 0);
        for (at, p) in placed.iter().enumerate() {
            if p.pass != pass {
                (covered, pass) = (BTreeSet::new(), p.pass);
            }
            let new = |t: usize| tests[t].paths.iter().filter(|x| !covered.contains(*x)).count() as u64;
            assert_eq!(p.new_paths, new(p.test));
            let most = placed[at..].iter().map(|p| new(p.test)).max().unwrap();
            assert_eq!(p.new_paths, most, "{tests:?}: {placed:?}");
            covered.extend(tests[p.test].paths.iter().copied());
        }
    }
}

#[test]
fn runs_with_the_same_name_are_one_test_and_builds_are_not_mixed() {
    let mut suite = Suite::default();
    for (seed, name, status) in [(1, Some("one"), 0), (2, None, 0), (3, Some("one"), 1)] {
        let mut run = profile(0, seed);
        (run.run.test, run.run.ending) = (name.map(str::to_owned), Some(ProcessEnding::Exit(status)));
        suite.add(&run).unwrap();
    }
    let seen: Vec<_> = suite.tests.iter().map(|t| (t.runs, t.failed)).collect();
    assert_eq!((suite.tests[0].name.as_str(), seen), ("one", vec![(2, true), (1, false)]));
    assert_eq!(suite.tests_per_path().iter().filter(|n| **n == 0).count(), 0);
    let before = suite.paths.len();
    assert!(matches!(suite.add(&profile(1, 1)), Err(SuiteError::OtherBuild { .. })));
    assert_eq!(suite.paths.len(), before);
}
