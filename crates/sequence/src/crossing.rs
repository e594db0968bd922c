//! Short strings of a sequence, read off its grammar: each occurrence once, without expanding the sequence.
//!
//! An occurrence of a string of length l lies in a smallest rule of the derivation: there it is not inside one item of the body. So it is
//! enough to look, for each rule, at the strings that cross a boundary between two items, and to count each as often as the rule occurs.
//! For them only the first and last l - 1 symbols of what an item stands for matter; the rest is a gap.
//!
//! Source: for whole program paths, J. R. Larus, "Whole program paths" (PLDI 1999), section 4.
//! Complexity: O(items x l) time and memory for strings of up to l symbols.

use crate::grammar::{Grammar, GrammarItem, TerminalId};
use std::ops::Range;

/// The place of a gap in [`CrossingTexts::text`].
pub(crate) const GAP: u32 = u32::MAX;

/// For each rule, what is needed of its expansion.
pub(crate) struct CrossingTexts {
    /// Terminals' numbers and gaps, rule after rule.
    pub text: Vec<u32>,
    /// For each place of the text, where the item that it comes from ends; a terminal's own place for itself.
    ends: Vec<u32>,
    /// Each rule's text and how often the rule occurs.
    pub rules: Vec<(Range<usize>, u64)>,
}

impl CrossingTexts {
    /// Texts for strings of up to `longest` symbols.
    pub fn new(grammar: &Grammar, longest: usize) -> CrossingTexts {
        let mut texts = CrossingTexts { text: Vec::new(), ends: Vec::new(), rules: Vec::new() };
        for (rule, occurrences) in grammar.rules().zip(grammar.rule_occurrences()) {
            let start = texts.text.len();
            for item in grammar.body(rule) {
                texts.append(grammar, item, longest.saturating_sub(1));
            }
            texts.rules.push((start..texts.text.len(), occurrences));
        }
        texts
    }

    fn append(&mut self, grammar: &Grammar, item: GrammarItem, kept: usize) {
        let rule = match item {
            GrammarItem::Terminal(terminal) => {
                self.ends.push(self.text.len() as u32);
                self.text.push(terminal.0);
                return;
            }
            GrammarItem::Rule(rule) => rule,
        };
        let length = grammar.rule_length(rule);
        let number = |terminal: TerminalId| terminal.0;
        if length <= 2 * kept as u64 {
            self.text.extend(grammar.terminal_ids(rule, 0).map(number));
        } else {
            self.text.extend(grammar.terminal_ids(rule, 0).take(kept).map(number));
            self.text.push(GAP);
            self.text.extend(grammar.terminal_ids(rule, length - kept as u64).map(number));
        }
        self.ends.resize(self.text.len(), self.text.len() as u32);
    }

    /// Whether the string of that length at a place is not inside one item.
    pub fn is_crossing(&self, place: usize, length: usize) -> bool {
        place + length > self.ends[place] as usize
    }

    /// Calls `visit` with each string of exactly `length` symbols, which is at most the longest, and the number of its occurrences there.
    pub fn for_each(&self, length: usize, mut visit: impl FnMut(&[u32], u64)) {
        for (range, occurrences) in &self.rules {
            let mut gap_free = range.start;
            for end in range.start + 1..=range.end {
                if self.text[end - 1] == GAP {
                    gap_free = end;
                } else if end >= gap_free + length && self.is_crossing(end - length, length) {
                    visit(&self.text[end - length..end], *occurrences);
                }
            }
        }
    }
}
