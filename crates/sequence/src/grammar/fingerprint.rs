//! Fingerprints (hashes) of ranges, by which equal ranges of two sequences are found without expanding them.
//!
//! A string s of n symbols has the fingerprint `s[0] B^(n-1) + ... + s[n-1]` modulo the prime 2^61 - 1, where symbols are mixed first (R.
//! M. Karp and M. O. Rabin, "Efficient randomized pattern-matching algorithms", 1987). The base is fixed, so results are reproducible. Two
//! different strings that were not constructed to collide have equal fingerprints with a probability of about n / 2^61. So a difference may
//! be missed, but every reported difference is real. After O(items) preparation, a prefix takes O(depth x log n) time, and the longest
//! common extension of two positions takes O(depth x log^2 n).

use super::{Grammar, GrammarItem};
use crate::compress::hashing::mix_bits;

const FINGERPRINT_PRIME: u64 = (1 << 61) - 1;
/// The base of the fingerprints: an arbitrary number below the prime.
const FINGERPRINT_BASE: u64 = 0x0d1b_54a3_2d19_2ed1;

/// Fingerprint of a string of symbols. Different strings have different fingerprints, except with negligible probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

/// The fingerprints of all rules of a grammar.
#[derive(Clone, Debug)]
pub struct Fingerprints<'a> {
    grammar: &'a Grammar,
    /// For each item, the fingerprint of the part of its rule's body that ends with the item.
    prefixes: Vec<u64>,
}

impl<'a> Fingerprints<'a> {
    /// Computes the fingerprints of all rules.
    pub fn new(grammar: &'a Grammar) -> Fingerprints<'a> {
        let mut fingerprints = Fingerprints { grammar, prefixes: Vec::with_capacity(grammar.items.len()) };
        for rule in grammar.rules() {
            let mut sum = 0;
            for item in grammar.body(rule) {
                sum = concatenate_fingerprints(sum, fingerprints.item_fingerprint(item), grammar.item_length(item));
                fingerprints.prefixes.push(sum);
            }
        }
        fingerprints
    }

    /// Returns the grammar that the fingerprints belong to.
    pub fn grammar(&self) -> &'a Grammar {
        self.grammar
    }

    /// Returns the fingerprint of the symbols from `start` (inclusive) to `end` (exclusive).
    pub fn range(&self, start: u64, end: u64) -> Fingerprint {
        let length = end.saturating_sub(start);
        let shifted = multiply_modulo_prime(self.prefix_fingerprint(start), power_of_base(length));
        Fingerprint((self.prefix_fingerprint(start + length) + FINGERPRINT_PRIME - shifted) % FINGERPRINT_PRIME)
    }

    fn item_fingerprint(&self, item: GrammarItem) -> u64 {
        match item {
            GrammarItem::Terminal(terminal) => mix_bits(self.grammar.terminals[terminal.0 as usize]) % FINGERPRINT_PRIME,
            GrammarItem::Rule(rule) => self.prefixes[self.grammar.body_range(rule).end - 1],
        }
    }

    fn prefix_fingerprint(&self, length: u64) -> u64 {
        let (mut rule, mut rest, mut sum) = (self.grammar.root(), length, 0);
        loop {
            let places = self.grammar.body_range(rule);
            let before = self.grammar.ends[places.clone()].partition_point(|end| *end <= rest);
            let place = places.start + before;
            if before > 0 {
                sum = concatenate_fingerprints(sum, self.prefixes[place - 1], self.grammar.ends[place - 1]);
                rest -= self.grammar.ends[place - 1];
            }
            if rest == 0 || place == places.end {
                return sum;
            }
            match self.grammar.decode_item(self.grammar.items[place]) {
                GrammarItem::Rule(child) => rule = child,
                GrammarItem::Terminal(_) => return sum,
            }
        }
    }
}

/// Returns the number of symbols that are equal in two sequences, counted from a position in each.
pub fn common_extension(left: &Fingerprints, left_start: u64, right: &Fingerprints, right_start: u64) -> u64 {
    let limit = left.grammar.len().saturating_sub(left_start).min(right.grammar.len().saturating_sub(right_start));
    let equal = |from: u64, to: u64| left.range(left_start + from, left_start + to) == right.range(right_start + from, right_start + to);
    // The length is bounded by doubling steps and then found by binary search.
    let (mut known, mut step) = (0, 1);
    while known + step <= limit && equal(known, known + step) {
        known += step;
        step *= 2;
    }
    while step > 0 {
        if known + step <= limit && equal(known, known + step) {
            known += step;
        }
        step /= 2;
    }
    known
}

fn multiply_modulo_prime(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let sum = (product as u64 & FINGERPRINT_PRIME) + (product >> 61) as u64;
    if sum >= FINGERPRINT_PRIME { sum - FINGERPRINT_PRIME } else { sum }
}

fn power_of_base(mut exponent: u64) -> u64 {
    let (mut base, mut result) = (FINGERPRINT_BASE, 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply_modulo_prime(result, base);
        }
        base = multiply_modulo_prime(base, base);
        exponent >>= 1;
    }
    result
}

fn concatenate_fingerprints(left: u64, right: u64, right_length: u64) -> u64 {
    (multiply_modulo_prime(left, power_of_base(right_length)) + right) % FINGERPRINT_PRIME
}
