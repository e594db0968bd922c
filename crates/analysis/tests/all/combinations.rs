//! Checks untested combinations of random functions against a search through all of their paths.

use std::collections::BTreeSet;
use trodden_analysis::combinations::{PathCombinationCounts, find_untested_paths};
use trodden_flow::DagEdgeId;
use trodden_profile::{FunctionPaths, PathCount};
use trodden_testkit::functions::RandomFunction;
use trodden_testkit::random::Random;

fn complete_paths(subject: &RandomFunction, wanted: impl Fn(u64) -> bool) -> Vec<PathCount> {
    let counts = (0..subject.map.counters).filter(|id| wanted(*id)).map(|id| (id, 1));
    let mut paths = FunctionPaths::decode(&subject.map, counts).unwrap().complete;
    paths.sort_by_key(|p| p.id);
    paths
}

#[test]
fn combinations_are_untaken_paths_over_executed_edges() {
    let (mut random, mut with_untested) = (Random::new(32), 0);
    for _ in 0..300 {
        let subject = RandomFunction::random(&mut random, "f", 9);
        if subject.map.counters > 5000 {
            continue;
        }
        let share = 5 + random.below(60);
        let taken: BTreeSet<u64> = complete_paths(&subject, |_| true).iter().map(|p| p.id).filter(|_| random.below(100) < share).collect();
        let paths = FunctionPaths::decode(&subject.map, taken.iter().map(|id| (*id, 3))).unwrap();
        // Only complete paths are executed, so their edges are all executed edges.
        let executed: BTreeSet<DagEdgeId> = paths.complete.iter().flat_map(|p| p.path.clone()).collect();
        let all = complete_paths(&subject, |_| true);
        let is_untested = |p: &&PathCount| !taken.contains(&p.id) && p.path.iter().all(|e| executed.contains(e));
        let expected: BTreeSet<u64> = all.iter().filter(is_untested).map(|p| p.id).collect();
        let dag = subject.map.dag().unwrap();
        let unfinished = paths.unfinished.iter().any(|u| u.count > 0);
        assert!(!unfinished, "only complete paths were executed");
        let found = PathCombinationCounts::new(&subject.map, &dag, &paths);
        assert_eq!((found.possible, found.taken, found.untested), (all.len() as u128, taken.len() as u64, expected.len() as u128));
        let listed: BTreeSet<u64> = find_untested_paths(&subject.map, &dag, &paths, usize::MAX).iter().map(|p| p.id).collect();
        assert_eq!(listed, expected);
        assert_eq!(find_untested_paths(&subject.map, &dag, &paths, 2).len(), expected.len().min(2));
        with_untested += usize::from(!expected.is_empty());
    }
    assert!(with_untested > 30, "{with_untested}");
}
