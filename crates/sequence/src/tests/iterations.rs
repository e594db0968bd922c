//! Tests iteration paths and general paths against counts of all strings of the sequence.

use super::executions::{LEAVE, class, enter, random_execution, subpath};
use super::sequences::random_sequence;
use crate::CompressionMethod;
use crate::events::SubpathEnd::{BackEdge, Call, Return};
use crate::events::{EventClass, SubpathEnd};
use crate::general_paths::GeneralPaths;
use crate::iterations::{IterationPathTrie, IterationProfile};
use std::collections::BTreeMap;

#[test]
fn forest_counts_all_strings_of_each_activation() {
    for seed in 0..500 {
        for k in 1..7 {
            let mut forest = IterationPathTrie::new(k).unwrap();
            let activations: Vec<Vec<u32>> =
                (0..3).map(|n| random_sequence(seed * 3 + n, 60).iter().map(|symbol| (symbol % 7) as u32).collect()).collect();
            for activation in &activations {
                let mut position = forest.start();
                activation.iter().for_each(|path| forest.push(&mut position, *path));
            }
            for length in 1..=k {
                let mut expected: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
                for string in activations.iter().flat_map(|paths| paths.windows(length)) {
                    *expected.entry(string.to_vec()).or_default() += 1;
                }
                assert_eq!(forest.counts(length), expected, "seed {seed}, k {k}, length {length}");
            }
        }
    }
}

/// Counts the paths across iterations of each activation, by simulating the call stack.
fn naive_profile(events: &[u64], k: usize) -> BTreeMap<(u32, Vec<Vec<u64>>), u64> {
    let mut counts = BTreeMap::new();
    let mut frames: Vec<(Vec<u64>, Vec<Vec<u64>>)> = vec![Default::default()];
    for event in events {
        match class(*event) {
            EventClass::Enter => frames.push(Default::default()),
            EventClass::Leave => drop(frames.pop()),
            EventClass::Subpath { function, end } => {
                let (subpaths, paths) = frames.last_mut().unwrap();
                subpaths.push(*event);
                if end != SubpathEnd::Call {
                    paths.push(std::mem::take(subpaths));
                    if paths.len() >= k {
                        *counts.entry((function, paths[paths.len() - k..].to_vec())).or_default() += 1;
                    }
                }
            }
        }
    }
    counts
}

#[test]
fn iterations_are_counted_per_activation() {
    for seed in 0..300 {
        let events = random_execution(seed, 300);
        let grammar = CompressionMethod::RePair.compress(events.iter().copied()).unwrap();
        for k in 1..5 {
            let profile = IterationProfile::from_grammar(&grammar, &class, k).unwrap();
            let mut counts = BTreeMap::new();
            for (function, forest) in profile.functions() {
                for (string, count) in forest.counts(k) {
                    counts.insert((function, string.iter().map(|path| profile.path(*path).to_vec()).collect::<Vec<_>>()), count);
                }
            }
            assert_eq!(counts, naive_profile(&events, k), "seed {seed}, k {k}");
        }
    }
}

#[test]
fn alternating_iterations_are_a_pattern_of_period_two() {
    let (a, b) = (subpath(1, 10, BackEdge), subpath(1, 11, BackEdge));
    let call = subpath(1, 12, Call);
    let mut profile = IterationProfile::new(4).unwrap();
    let iterations = (0..100).flat_map(|n| if n % 2 == 0 { vec![a] } else { vec![call, enter(2), subpath(2, 1, Return), LEAVE, b] });
    for event in [enter(1)].into_iter().chain(iterations).chain([subpath(1, 13, Return), LEAVE]) {
        profile.push(event, class(event)).unwrap();
    }
    let patterns = profile.repeated_patterns(1, 2, 0.95);
    assert_eq!(patterns.len(), 1);
    assert_eq!(patterns[0].paths, [vec![a], vec![call, b]]);
    assert_eq!((patterns[0].count, patterns[0].of), (97, 98));
    assert!(profile.repeated_patterns(1, 3, 0.5).is_empty());
    assert!(IterationProfile::new(0).is_err());
}

#[test]
fn general_paths_are_the_last_k_branches() {
    for seed in 0..200 {
        for k in 1..6 {
            let mut paths = GeneralPaths::new(k).unwrap();
            let mut expected: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
            for frame in 0..3 {
                let branches = random_sequence(seed * 3 + frame, 80);
                let mut position = paths.start();
                for (at, branch) in branches.iter().enumerate() {
                    paths.push(&mut position, *branch);
                    *expected.entry(branches[(at + 1).saturating_sub(k)..=at].to_vec()).or_default() += 1;
                }
            }
            let counts: BTreeMap<Vec<u64>, u64> = paths.counts().into_iter().map(|(path, count)| (path.to_vec(), count)).collect();
            assert_eq!(counts, expected, "seed {seed}, k {k}");
        }
    }
}
