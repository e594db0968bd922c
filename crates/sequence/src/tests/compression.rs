//! Tests that grammars generate their sequences, keep their invariants, and answer queries as the expanded sequences do.

use super::sequences::random_sequence;
use crate::grammar::{Grammar, GrammarItem, SearchPattern, read_window};
use crate::{CompressionMethod, SequenceError, WindowLimits, WindowWriter};
use std::collections::{HashMap, HashSet};
use trodden_testkit::Random;

fn letters_to_symbols(text: &str) -> Vec<u64> {
    text.bytes().map(u64::from).collect()
}

fn rule_bodies(grammar: &Grammar) -> Vec<Vec<GrammarItem>> {
    grammar.rules().map(|rule| grammar.body(rule).collect()).collect()
}

fn count_repeated_digrams(grammar: &Grammar) -> usize {
    let mut seen: HashMap<(GrammarItem, GrammarItem), (usize, usize)> = HashMap::new();
    let mut repeated = 0;
    for (rule, body) in rule_bodies(grammar).iter().enumerate() {
        for (index, pair) in body.windows(2).enumerate() {
            match seen.get(&(pair[0], pair[1])) {
                Some(&(other, at)) if other == rule && at + 1 == index => {}
                Some(_) => repeated += 1,
                None => {
                    seen.insert((pair[0], pair[1]), (rule, index));
                }
            }
        }
    }
    repeated
}

fn assert_invariants(grammar: &Grammar, seed: u64) {
    let mut uses = vec![0; grammar.rule_count()];
    for rule in grammar.rules() {
        assert!(rule == grammar.root() || grammar.body(rule).len() >= 2, "seed {seed}: {rule:?} has one item");
        for item in grammar.body(rule) {
            if let GrammarItem::Rule(child) = item {
                assert!(child < rule, "seed {seed}: {rule:?} uses {child:?}");
                uses[child.0 as usize] += 1;
            }
        }
    }
    let root = uses.pop();
    assert_eq!(root, Some(0), "seed {seed}");
    assert!(uses.iter().all(|uses| *uses >= 2), "seed {seed}: a rule is used once");
}

#[test]
fn sequitur_reproduces_the_examples_of_its_paper() {
    // The examples are from figure 1 of the paper: "abcdbc" is S -> aAdA, A -> bc; "abcdbcabcdbc" is S -> AA, A -> aBdB, B -> bc.
    let grammar = CompressionMethod::Sequitur.compress(letters_to_symbols("abcdbc")).unwrap();
    assert_eq!((grammar.statistics().rules, grammar.statistics().items), (2, 6));
    let grammar = CompressionMethod::Sequitur.compress(letters_to_symbols("abcdbcabcdbc")).unwrap();
    assert_eq!((grammar.statistics().rules, grammar.statistics().items, grammar.statistics().depth), (3, 8, 3));
    assert_eq!(grammar.symbols().collect::<Vec<_>>(), letters_to_symbols("abcdbcabcdbc"));
}

#[test]
fn grammars_expand_to_their_sequences() {
    for seed in 0..1000 {
        let symbols = random_sequence(seed, 300);
        for method in CompressionMethod::ALL {
            let grammar = method.compress(symbols.iter().copied()).unwrap();
            assert_eq!(grammar.symbols().collect::<Vec<_>>(), symbols, "seed {seed}, {}", method.name());
            assert_eq!(grammar.len(), symbols.len() as u64);
            assert_invariants(&grammar, seed);
            if method == CompressionMethod::Sequitur {
                assert_eq!(count_repeated_digrams(&grammar), 0, "seed {seed}, {}: {:?}", method.name(), rule_bodies(&grammar));
            }
        }
    }
}

#[test]
fn positions_counts_and_searches_match_the_sequence() {
    for seed in 0..400 {
        let symbols = random_sequence(seed, 200);
        let mut random = Random::new(seed);
        for method in CompressionMethod::ALL {
            let grammar = method.compress(symbols.iter().copied()).unwrap();
            let position = random.index(symbols.len() + 2);
            assert_eq!(grammar.at(position as u64), symbols.get(position).copied());
            let rest: Vec<u64> = grammar.symbols_from(position as u64).collect();
            assert_eq!(rest, symbols[position.min(symbols.len())..]);
            for (symbol, count) in grammar.terminals().iter().zip(grammar.terminal_counts()) {
                assert_eq!(count, symbols.iter().filter(|s| *s == symbol).count() as u64);
            }
            assert_search_matches_sequence(&grammar, &symbols, &mut random);
            let is_kept = |symbol: u64| !(symbol / 1_000_003 + seed).is_multiple_of(3);
            let retained = grammar.with_symbols_retained(is_kept).unwrap();
            assert!(retained.symbols().eq(symbols.iter().copied().filter(|symbol| is_kept(*symbol))), "seed {seed}");
            let replacement = |symbol: u64| (0..(symbol / 1_000_003 + seed) % 4).map(|n| symbol % 7 + n).collect::<Vec<_>>();
            let substituted = grammar.with_symbols_replaced(replacement).unwrap();
            assert!(substituted.symbols().eq(symbols.iter().copied().flat_map(replacement)), "seed {seed}, {}", method.name());
        }
    }
}

fn assert_search_matches_sequence(grammar: &Grammar, symbols: &[u64], random: &mut Random) {
    assert!(SearchPattern::new(grammar, &[]).is_none());
    assert!(SearchPattern::new(grammar, &[77]).is_none());
    if symbols.is_empty() {
        return;
    }
    let start = random.index(symbols.len());
    let end = start + 1 + random.index(7.min(symbols.len() - start));
    let mut wanted = symbols[start..end].to_vec();
    if random.chance(20) {
        wanted[0] = symbols[0];
    }
    let expected: Vec<u64> = (0..).zip(symbols.windows(wanted.len())).filter(|(_, w)| *w == wanted).map(|(at, _)| at).collect();
    let pattern = SearchPattern::new(grammar, &wanted).unwrap();
    assert_eq!(pattern.positions().collect::<Vec<_>>(), expected);
    assert_eq!(pattern.count(), expected.len() as u64);
}

#[test]
fn windows_are_bounded_and_can_be_read_one_by_one() {
    for (seed, method) in (0..60).flat_map(|seed| CompressionMethod::ALL.map(|method| (seed, method))) {
        let symbols = random_sequence(seed, 3000);
        let limits = WindowLimits { max_symbols: 700, max_held: 150 };
        let mut writer = WindowWriter::new(method, limits).unwrap();
        let mut windows = Vec::new();
        for symbol in &symbols {
            windows.extend(writer.push(*symbol).unwrap());
        }
        windows.extend(writer.close().unwrap());
        assert_eq!(writer.position(), symbols.len() as u64);
        let mut bytes = Vec::new();
        windows.iter().for_each(|window| window.write(&mut bytes).unwrap());
        let (mut offset, mut read) = (0, Vec::new());
        while offset < bytes.len() {
            let (window, size) = read_window(&bytes[offset..]).unwrap();
            assert_eq!((window.first, window.method), (read.len() as u64, method));
            assert!(window.grammar.len() <= 700 && window.grammar.statistics().items <= 2 * limits.max_held + 256);
            read.extend(window.grammar.symbols());
            offset += size;
        }
        assert_eq!(read, symbols);
        let whole = Grammar::concatenated(windows.iter().map(|window| &window.grammar)).unwrap();
        assert_eq!(whole.symbols().collect::<Vec<_>>(), symbols);
    }
}

#[test]
fn truncated_and_corrupt_windows_are_errors() {
    let grammar = CompressionMethod::Sequitur.compress(random_sequence(5, 400)).unwrap();
    let mut bytes = Vec::new();
    crate::grammar::Window { first: 7, method: CompressionMethod::Sequitur, grammar }.write(&mut bytes).unwrap();
    for cut in 0..bytes.len() {
        assert!(matches!(read_window(&bytes[..cut]), Err(SequenceError::Truncated { .. })), "cut at {cut}");
    }
    let mut kinds = HashSet::new();
    for index in 0..bytes.len() {
        let mut corrupt = bytes.clone();
        corrupt[index] ^= 0x41;
        let error = read_window(&corrupt).unwrap_err();
        kinds.insert(std::mem::discriminant(&error));
        // The checksum matches, so the content itself must be validated.
        let end = corrupt.len() - 8;
        let checksum = xxhash_rust::xxh3::xxh3_64(&corrupt[..end]).to_le_bytes();
        corrupt[end..].copy_from_slice(&checksum);
        if let Ok((window, _)) = read_window(&corrupt) {
            assert!(window.grammar.symbols().take(10_000).count() as u64 == window.grammar.len().min(10_000));
        }
    }
    assert_eq!(kinds.len(), 3);
}

#[test]
fn deep_grammars_need_no_deep_stack() {
    // The n-th part is one symbol longer than the previous one, so the rule for a part uses the rule for the previous part.
    let symbols: Vec<u64> = (1..1500_u64).flat_map(|length| (0..length).chain([1_000_000 + length])).collect();
    for method in CompressionMethod::ALL {
        let grammar = method.compress(symbols.iter().copied()).unwrap();
        assert!(grammar.symbols().eq(symbols.iter().copied()), "{}", method.name());
        assert_eq!(grammar.at(symbols.len() as u64 / 2), Some(symbols[symbols.len() / 2]));
    }
}
