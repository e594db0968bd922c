//! Minimal hot subpaths, read off the grammar.
//!
//! Definition, after J. R. Larus, "Whole program paths" (PLDI 1999), section 4. A *subpath* is a string of symbols that occurs in the
//! sequence. Its *frequency* is the number of places at which it occurs; occurrences may overlap. Its *cost* is its weight times its
//! frequency, where the weight of a string is the sum of its symbols' weights (instructions of a path, say; 1 where nothing is known).
//! With bounds `shortest` and `longest` and a threshold T, a subpath is *hot* if its length is within the bounds and its cost is at least
//! T. A hot subpath is *minimal* if no shorter hot subpath is a part of it: no prefix, no suffix, nothing between.
//!
//! Minimality is what makes the answer short: whatever has a hot part is nearly always hot itself.
//!
//! Complexity: O(items x longest) for each length. Strings that are too rare to become hot by any extension are not extended, nor are those
//! that are hot.

use crate::SequenceError;
use crate::compress::hashing::Mixing;
use crate::crossing::{CrossingTexts, GAP};
use crate::grammar::Grammar;
use std::collections::HashMap;

/// What is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotParameters {
    /// The fewest symbols of a subpath.
    pub shortest: usize,
    /// The most symbols of a subpath.
    pub longest: usize,
    /// The least cost.
    pub threshold: u128,
}

/// A minimal hot subpath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotSubpath {
    /// Its symbols.
    pub symbols: Vec<u64>,
    /// Places at which it occurs.
    pub frequency: u64,
    /// Weight times frequency.
    pub cost: u128,
}

/// The longest subpaths that are searched for.
pub const LONGEST: usize = 1000;

/// The minimal hot subpaths, by falling cost, then by symbols.
///
/// # Errors
/// The bounds are empty, or longer than [`LONGEST`].
pub fn minimal_hot_subpaths(
    grammar: &Grammar,
    parameters: HotParameters,
    weight: impl Fn(u64) -> u64,
) -> Result<Vec<HotSubpath>, SequenceError> {
    let HotParameters { shortest, longest, threshold } = parameters;
    if shortest == 0 || shortest > longest || longest > LONGEST {
        let bounds = format!("{shortest} to {longest}");
        return Err(SequenceError::parameter("lengths of hot subpaths", bounds, "1 to 1000, the shortest first"));
    }
    let weights: Vec<u64> = grammar.terminals().iter().map(|symbol| weight(*symbol)).collect();
    let heaviest = u128::from(weights.iter().copied().max().unwrap_or(0)) * longest as u128;
    let texts = CrossingTexts::new(grammar, longest);
    let mut level = Level::first(&texts, weights.len());
    let mut found = Vec::new();
    for length in 1..=longest {
        if length > 1 {
            level = level.longer(&texts, length);
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
        level.keep(&alive);
    }
    found.sort_by(|a, b| b.cost.cmp(&a.cost).then_with(|| a.symbols.cmp(&b.symbols)));
    Ok(found)
}

/// All strings of one length that may matter.
struct Level {
    /// The string that begins at each place of the texts, by number; [`GAP`] where there is none that matters.
    at: Vec<u32>,
    strings: Vec<CountedString>,
}

struct CountedString {
    /// A place of the texts where it is.
    place: usize,
    frequency: u64,
}

impl Level {
    fn first(texts: &CrossingTexts, terminals: usize) -> Level {
        let strings = (0..terminals).map(|_| CountedString { place: 0, frequency: 0 }).collect();
        let mut level = Level { at: texts.text.clone(), strings };
        for (range, occurrences) in &texts.rules {
            for place in range.clone().filter(|place| texts.text[*place] != GAP) {
                level.count(texts, place, 1, texts.text[place], *occurrences);
            }
        }
        level
    }

    /// Strings one longer: two that overlap in all but their ends.
    fn longer(self, texts: &CrossingTexts, length: usize) -> Level {
        let mut numbers: HashMap<u64, u32, Mixing> = HashMap::default();
        let mut longer = Level { at: self.at, strings: Vec::new() };
        for (range, occurrences) in &texts.rules {
            for place in range.clone() {
                let head = longer.at[place];
                let tail = if place + 1 < range.end { longer.at[place + 1] } else { GAP };
                longer.at[place] = GAP;
                if head == GAP || tail == GAP || place + length > range.end {
                    continue;
                }
                let next = longer.strings.len() as u32;
                let number = *numbers.entry(u64::from(head) << 32 | u64::from(tail)).or_insert(next);
                if number == next {
                    longer.strings.push(CountedString { place, frequency: 0 });
                }
                longer.at[place] = number;
                longer.count(texts, place, length, number, *occurrences);
            }
        }
        longer
    }

    fn count(&mut self, texts: &CrossingTexts, place: usize, length: usize, number: u32, occurrences: u64) {
        let string = &mut self.strings[number as usize];
        string.place = place;
        if texts.is_crossing(place, length) {
            string.frequency += occurrences;
        }
    }

    fn keep(&mut self, alive: &[bool]) {
        for number in self.at.iter_mut().filter(|number| **number != GAP) {
            if !alive[*number as usize] {
                *number = GAP;
            }
        }
    }
}
