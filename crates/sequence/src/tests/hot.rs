//! Tests minimal hot subpaths against a brute-force search of all strings of the sequence.

use super::sequences::random_sequence;
use crate::CompressionMethod;
use crate::hot::{HotParameters, HotSubpath, minimal_hot_subpaths};
use std::collections::HashMap;
use trodden_testkit::Random;

fn weight(symbol: u64) -> u64 {
    1 + symbol % 5
}

/// Counts every string within the bounds, and drops hot strings that contain a shorter hot one.
fn find_hot_by_brute_force(symbols: &[u64], parameters: HotParameters) -> Vec<HotSubpath> {
    let mut counts: HashMap<&[u64], u64> = HashMap::new();
    for length in parameters.shortest..=parameters.longest {
        symbols.windows(length).for_each(|string| *counts.entry(string).or_default() += 1);
    }
    let cost = |string: &[u64], count: u64| string.iter().map(|s| u128::from(weight(*s))).sum::<u128>() * u128::from(count);
    let hot: HashMap<&[u64], u64> = counts.into_iter().filter(|(string, count)| cost(string, *count) >= parameters.threshold).collect();
    let is_minimal = |string: &[u64]| !(1..string.len()).any(|length| string.windows(length).any(|part| hot.contains_key(part)));
    let minimal = hot.iter().filter(|(string, _)| is_minimal(string));
    let mut found: Vec<HotSubpath> =
        minimal.map(|(string, count)| HotSubpath { symbols: string.to_vec(), frequency: *count, cost: cost(string, *count) }).collect();
    found.sort_by(|a, b| b.cost.cmp(&a.cost).then_with(|| a.symbols.cmp(&b.symbols)));
    found
}

#[test]
fn hot_subpaths_match_brute_force() {
    let mut found = 0;
    for seed in 0..250 {
        let mut random = Random::new(seed);
        let symbols = random_sequence(seed, 120);
        let shortest = 1 + random.index(4);
        let longest = shortest + random.index(9);
        let parameters = HotParameters { shortest, longest, threshold: 1 + u128::from(random.below(150)) };
        for method in CompressionMethod::ALL {
            let grammar = method.compress(symbols.iter().copied()).unwrap();
            let hot = minimal_hot_subpaths(&grammar, parameters, weight).unwrap();
            assert_eq!(hot, find_hot_by_brute_force(&symbols, parameters), "seed {seed}, {}, {parameters:?}", method.name());
            found += hot.len();
        }
    }
    assert!(found > 400);
}

#[test]
fn invalid_bounds_are_errors() {
    let grammar = CompressionMethod::Sequitur.compress([1, 2]).unwrap();
    for (shortest, longest) in [(0, 3), (4, 3), (1, 5000)] {
        assert!(minimal_hot_subpaths(&grammar, HotParameters { shortest, longest, threshold: 1 }, weight).is_err());
    }
}
