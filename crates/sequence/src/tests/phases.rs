//! Tests that paths reveal phases that blocks do not.

use crate::phases::{IntervalVector, PhaseParameters, Phases, find_phases, split_into_intervals};
use trodden_testkit::Random;

/// Code with two branches in series, each of which executes one of two blocks. A path is therefore a pair of blocks.
const BLOCKS: [[u64; 2]; 4] = [[0, 2], [0, 3], [1, 2], [1, 3]];
const INTERVAL_LENGTH: u64 = 200;

/// Returns an execution whose phases have ten intervals. All blocks are equally frequent, but the choices at both branches agree in even
/// phases and differ in odd phases.
fn phased_execution(seed: u64, phases: usize) -> Vec<u64> {
    let mut random = Random::new(seed);
    let pairs = [[0, 3], [1, 2]];
    (0..phases).flat_map(|phase| (0..10 * INTERVAL_LENGTH).map(|_| pairs[phase % 2][random.index(2)]).collect::<Vec<_>>()).collect()
}

fn find_phases_by_paths(symbols: &[u64]) -> Phases {
    let vectors = split_into_intervals(symbols.iter().copied(), INTERVAL_LENGTH, |path, add| add(path, 1.0)).unwrap();
    find_phases(&vectors, PhaseParameters::default()).unwrap()
}

fn find_phases_by_blocks(symbols: &[u64]) -> Phases {
    let vectors =
        split_into_intervals(symbols.iter().copied(), INTERVAL_LENGTH, |path, add| BLOCKS[path as usize].iter().for_each(|b| add(*b, 1.0)));
    find_phases(&vectors.unwrap(), PhaseParameters::default()).unwrap()
}

#[test]
fn paths_find_phases_that_blocks_do_not() {
    for seed in 0..20 {
        let symbols = phased_execution(seed, 4);
        let paths = find_phases_by_paths(&symbols);
        assert_eq!(paths.phases.len(), 2, "seed {seed}");
        assert_eq!(paths.phase_change_intervals(), [10, 20, 30], "seed {seed}");
        assert_eq!(paths.phases[0].intervals, 20);
        let mut hot: Vec<u64> = paths.phases[1].features.iter().map(|(path, _)| *path).collect();
        hot.sort_unstable();
        assert_eq!(hot, [1, 2]);
        assert_eq!(
            find_phases_by_blocks(&symbols).phase_change_intervals(),
            [0; 0],
            "seed {seed}: blocks should not distinguish the phases"
        );
    }
}

#[test]
fn phases_with_different_blocks_are_found_by_both() {
    let symbols: Vec<u64> = (0..40 * INTERVAL_LENGTH).map(|at| [0, 3][(at / (10 * INTERVAL_LENGTH) % 2) as usize]).collect();
    assert_eq!(find_phases_by_blocks(&symbols).phase_change_intervals(), [10, 20, 30]);
    assert_eq!(find_phases_by_paths(&symbols).phase_change_intervals(), [10, 20, 30]);
}

#[test]
fn uniform_execution_is_one_phase() {
    let symbols = phased_execution(3, 1);
    assert_eq!(find_phases_by_paths(&symbols).phases.len(), 1);
    assert_eq!(find_phases(&[], PhaseParameters::default()).unwrap().phases.len(), 0);
    let one = [IntervalVector(vec![(1, 2.0)])];
    assert_eq!(find_phases(&one, PhaseParameters::default()).unwrap().phase_of_interval, [0]);
    assert!(split_into_intervals([1].into_iter(), 0, |_, _| {}).is_err());
    assert!(find_phases(&one, PhaseParameters { max_phases: 0, ..PhaseParameters::default() }).is_err());
}
