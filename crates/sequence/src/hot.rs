//! Minimal hot subpaths, computed from the grammar (J. R. Larus, "Whole program paths", PLDI 1999, section 4).
//!
//! A *subpath* is a string of symbols in the sequence, its *frequency* is the number of its (possibly overlapping) occurrences, and its
//! *cost* is its frequency times the sum of its symbols' weights. A subpath is *hot* if its length is within bounds and its cost reaches a
//! threshold, and *minimal* if it contains no shorter hot subpath. Most strings that contain a hot subpath are also hot, so minimality
//! keeps the result short. Strings of each length are found in O(items x longest) time by extending those of the previous length; strings
//! that are already hot, or too rare to become hot, are not extended.

use crate::SequenceError;
use crate::compress::hashing::BuildSymbolHasher;
use crate::crossing::{BoundaryTexts, OMITTED_SYMBOLS};
use crate::grammar::Grammar;
use std::collections::HashMap;

/// The parameters that determine which subpaths are hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotParameters {
    /// Minimum number of symbols.
    pub shortest: usize,
    /// Maximum number of symbols.
    pub longest: usize,
    /// Minimum cost.
    pub threshold: u128,
}

/// A minimal hot subpath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotSubpath {
    /// The symbols in order.
    pub symbols: Vec<u64>,
    /// Number of occurrences.
    pub frequency: u64,
    /// The sum of the symbols' weights, multiplied by the frequency.
    pub cost: u128,
}

/// Maximum value of [`HotParameters::longest`].
pub const MAX_LENGTH: usize = 1000;

/// Returns the minimal hot subpaths in order of descending cost, then by symbols. Fails if the bounds are empty or exceed [`MAX_LENGTH`].
pub fn minimal_hot_subpaths(
    grammar: &Grammar,
    parameters: HotParameters,
    weight: impl Fn(u64) -> u64,
) -> Result<Vec<HotSubpath>, SequenceError> {
    let HotParameters { shortest, longest, threshold } = parameters;
    if shortest == 0 || shortest > longest || longest > MAX_LENGTH {
        let bounds = format!("{shortest} to {longest}");
        return Err(SequenceError::invalid_parameter("lengths of hot subpaths", bounds, "1 to 1000, with the minimum first"));
    }
    let weights: Vec<u64> = grammar.terminals().iter().map(|symbol| weight(*symbol)).collect();
    let heaviest = u128::from(weights.iter().copied().max().unwrap_or(0)) * longest as u128;
    let texts = BoundaryTexts::new(grammar, longest);
    let mut level = HotCandidateStrings::of_length_one(&texts, weights.len());
    let mut found = Vec::new();
    for length in 1..=longest {
        if length > 1 {
            level = level.extend_strings(&texts, length);
        }
        let mut alive = vec![true; level.strings.len()];
        for (string, alive) in level.strings.iter().zip(&mut alive) {
            let text = &texts.text[string.place..string.place + length];
            let cost = text.iter().map(|t| u128::from(weights[*t as usize])).sum::<u128>() * u128::from(string.frequency);
            let is_hot = length >= shortest && cost >= threshold && string.frequency > 0;
            if is_hot {
                let symbols = text.iter().map(|t| grammar.terminals()[*t as usize]).collect();
                found.push(HotSubpath { symbols, frequency: string.frequency, cost });
            }
            *alive = !is_hot && heaviest * u128::from(string.frequency) >= threshold;
        }
        level.remove_strings_never_hot(&alive);
    }
    found.sort_by(|a, b| b.cost.cmp(&a.cost).then_with(|| a.symbols.cmp(&b.symbols)));
    Ok(found)
}

/// Strings of one length that may be part of a hot subpath.
struct HotCandidateStrings {
    /// For each position in the texts, the number of the string that begins there; [`OMITTED_SYMBOLS`] if none does.
    at: Vec<u32>,
    strings: Vec<CountedString>,
}

struct CountedString {
    place: usize,
    frequency: u64,
}

impl HotCandidateStrings {
    fn of_length_one(texts: &BoundaryTexts, terminals: usize) -> HotCandidateStrings {
        let strings = (0..terminals).map(|_| CountedString { place: 0, frequency: 0 }).collect();
        let mut level = HotCandidateStrings { at: texts.text.clone(), strings };
        for (range, occurrences) in &texts.rules {
            for place in range.clone().filter(|place| texts.text[*place] != OMITTED_SYMBOLS) {
                level.count_occurrence(texts, place, 1, texts.text[place], *occurrences);
            }
        }
        level
    }

    /// Returns the strings that are longer by one symbol. Each combines two strings of the current length that overlap in all symbols but
    /// one.
    fn extend_strings(self, texts: &BoundaryTexts, length: usize) -> HotCandidateStrings {
        let mut numbers: HashMap<u64, u32, BuildSymbolHasher> = HashMap::default();
        let mut longer = HotCandidateStrings { at: self.at, strings: Vec::new() };
        for (range, occurrences) in &texts.rules {
            for place in range.clone() {
                let head = longer.at[place];
                let tail = if place + 1 < range.end { longer.at[place + 1] } else { OMITTED_SYMBOLS };
                longer.at[place] = OMITTED_SYMBOLS;
                if head == OMITTED_SYMBOLS || tail == OMITTED_SYMBOLS || place + length > range.end {
                    continue;
                }
                let next = longer.strings.len() as u32;
                let number = *numbers.entry(u64::from(head) << 32 | u64::from(tail)).or_insert(next);
                if number == next {
                    longer.strings.push(CountedString { place, frequency: 0 });
                }
                longer.at[place] = number;
                longer.count_occurrence(texts, place, length, number, *occurrences);
            }
        }
        longer
    }

    fn count_occurrence(&mut self, texts: &BoundaryTexts, place: usize, length: usize, number: u32, occurrences: u64) {
        let string = &mut self.strings[number as usize];
        string.place = place;
        if texts.extends_beyond_first_item(place, length) {
            string.frequency += occurrences;
        }
    }

    fn remove_strings_never_hot(&mut self, alive: &[bool]) {
        for number in self.at.iter_mut().filter(|number| **number != OMITTED_SYMBOLS) {
            if !alive[*number as usize] {
                *number = OMITTED_SYMBOLS;
            }
        }
    }
}
