//! Tests comparisons of sequences against comparisons of the expanded sequences.

use super::executions::{LEAVE, class, enter, random_execution, subpath};
use super::sequences::random_sequence;
use crate::compare::{SequenceDifference, differences, first_difference};
use crate::events::SubpathEnd::{BackEdge, Call, Return};
use crate::grammar::{Fingerprints, RuleFrameEffects, common_extension};
use crate::{CompressionMethod, Grammar};
use trodden_testkit::Random;

fn compress_randomly(symbols: &[u64], random: &mut Random) -> Grammar {
    random.pick(&CompressionMethod::ALL).compress(symbols.iter().copied()).unwrap()
}

#[test]
fn common_extension_matches_expanded_sequences() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let left = random_sequence(seed, 200);
        let mut right = left.clone();
        if !right.is_empty() && random.chance(80) {
            let place = random.index(right.len());
            right[place] = 99;
        }
        let grammars = (compress_randomly(&left, &mut random), compress_randomly(&right, &mut random));
        let (a, b) = (Fingerprints::new(&grammars.0), Fingerprints::new(&grammars.1));
        let differing = left.iter().zip(&right).position(|(x, y)| x != y).map(|place| place as u64);
        assert_eq!(first_difference(&a, &b), differing, "seed {seed}");
        for _ in 0..20 {
            let (i, j) = (random.index(left.len() + 1), random.index(right.len() + 1));
            let expected = left[i..].iter().zip(&right[j..]).take_while(|(x, y)| x == y).count();
            assert_eq!(common_extension(&a, i as u64, &b, j as u64), expected as u64, "seed {seed}, {i}, {j}");
        }
    }
}

#[test]
fn frames_match_a_simulated_call_stack() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let events = random_execution(seed, 200);
        let grammar = compress_randomly(&events, &mut random);
        let frames = RuleFrameEffects::new(&grammar, &class);
        let mut open: Vec<u64> = Vec::new();
        for (position, event) in events.iter().enumerate() {
            assert_eq!(frames.open_calls(position as u64), open, "seed {seed}, {position}");
            let mut depth = 0;
            let end = events[position..].iter().position(|event| {
                depth += i64::from(*event & 0xff == 3) - i64::from(*event == LEAVE);
                depth < 0
            });
            assert_eq!(frames.frame_end(position as u64), end.map_or(events.len(), |end| position + end) as u64);
            match event & 0xff {
                3 => open.push(*event),
                4 => drop(open.pop()),
                _ => {}
            }
        }
    }
}

#[test]
fn additional_iteration_and_changed_call_are_two_small_differences() {
    let iteration = |path| vec![subpath(1, 0, Call), enter(2), subpath(2, path, Return), LEAVE, subpath(1, 1, BackEdge)];
    let execution = |changed: u64, iterations: usize| -> Vec<u64> {
        let mut events = vec![enter(1)];
        (0..iterations).for_each(|n| events.extend(iteration(if n == 20 { changed } else { n as u64 % 3 })));
        events.extend([subpath(1, 2, Return), LEAVE, enter(3), subpath(3, 0, Return), LEAVE]);
        events
    };
    let mut random = Random::new(1);
    let (left, right) = (compress_randomly(&execution(7, 60), &mut random), compress_randomly(&execution(8, 61), &mut random));
    let found = differences(&left, &right, &class, 10);
    let symbols = |grammar: &Grammar, range: &std::ops::Range<u64>| -> Vec<u64> {
        grammar.symbols_from(range.start).take((range.end - range.start) as usize).collect()
    };
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(symbols(&left, &found[0].left), [subpath(2, 7, Return)]);
    assert_eq!(symbols(&right, &found[0].right), [subpath(2, 8, Return)]);
    assert!(found[1].left.is_empty());
    assert_eq!(symbols(&right, &found[1].right), iteration(0));
    assert!(differences(&left, &left, &class, 10).is_empty());
}

#[test]
fn long_frames_are_aligned_piece_by_piece() {
    let mut random = Random::new(3);
    let left: Vec<u64> = (0..30_000).map(|_| subpath(1, random.below(3), BackEdge)).collect();
    let mut right = left.clone();
    right.remove(25_000);
    right[14_000] = subpath(1, 9, BackEdge);
    right.insert(7, subpath(1, 8, BackEdge));
    let (a, b) = (compress_randomly(&left, &mut random), compress_randomly(&right, &mut random));
    let found = differences(&a, &b, &class, 10);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|difference| difference.aligned && difference.left.end - difference.left.start <= 1));
}

#[test]
fn sequences_without_their_differences_are_equal() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let left = random_execution(seed, 200);
        let mut right = left.clone();
        for _ in 0..random.index(4) {
            let Some(place) = right.iter().position(|event| event & 0xff < 3 && random.chance(5)) else { continue };
            match random.below(3) {
                0 => right[place] ^= 1 << 40,
                1 => drop(right.remove(place)),
                _ => right.insert(place, subpath(9, 9, BackEdge)),
            }
        }
        let (a, b) = (compress_randomly(&left, &mut random), compress_randomly(&right, &mut random));
        let found = differences(&a, &b, &class, usize::MAX);
        assert_eq!(found.is_empty(), left == right, "seed {seed}");
        let remains = |symbols: &[u64], range: fn(&SequenceDifference) -> &std::ops::Range<u64>| -> Vec<u64> {
            let inside = |at: u64| found.iter().any(|difference| range(difference).contains(&at));
            (0..).zip(symbols).filter(|(at, _)| !inside(*at)).map(|(_, symbol)| *symbol).collect()
        };
        assert_eq!(remains(&left, |d| &d.left), remains(&right, |d| &d.right), "seed {seed}");
        let changed: u64 = found.iter().map(|d| d.left.end - d.left.start + d.right.end - d.right.start).sum();
        assert!(changed <= 60, "seed {seed}: {found:?}");
    }
}
