//! Enumerates the short strings of a sequence from its grammar, each occurrence once, without expanding the sequence (J. R. Larus, "Whole
//! program paths", PLDI 1999, section 4).
//!
//! Consider an occurrence of a string of length l, and the smallest rule that generates it. In that rule's body, the string crosses a
//! boundary between two items. So it suffices to visit all strings that cross such a boundary, and to count each as often as its rule
//! occurs. Only the first and last l - 1 symbols that an item generates are needed for this, so a gap replaces the others. Time and memory
//! are O(items x l).

use crate::grammar::{Grammar, GrammarItem, TerminalId};
use std::ops::Range;

/// Stands for the omitted symbols in [`BoundaryTexts::text`].
pub(crate) const OMITTED_SYMBOLS: u32 = u32::MAX;

/// For all rules, the symbols near the boundaries between the items of the rule's body.
pub(crate) struct BoundaryTexts {
    /// Terminal numbers and gaps of all rules, one rule after the other.
    pub text: Vec<u32>,
    /// For each position in `text`, the end of the item to which it belongs. For terminals, this is the position itself, so that strings of
    /// length 1 count as crossing.
    ends: Vec<u32>,
    /// For each rule, its range in `text`, and how often the rule occurs in the sequence.
    pub rules: Vec<(Range<usize>, u64)>,
}

impl BoundaryTexts {
    /// Prepares the enumeration of strings with up to `longest` symbols.
    pub fn new(grammar: &Grammar, longest: usize) -> BoundaryTexts {
        let mut texts = BoundaryTexts { text: Vec::new(), ends: Vec::new(), rules: Vec::new() };
        for (rule, occurrences) in grammar.rules().zip(grammar.rule_occurrences()) {
            let start = texts.text.len();
            for item in grammar.body(rule) {
                texts.append_item(grammar, item, longest.saturating_sub(1));
            }
            texts.rules.push((start..texts.text.len(), occurrences));
        }
        texts
    }

    fn append_item(&mut self, grammar: &Grammar, item: GrammarItem, kept: usize) {
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
            self.text.push(OMITTED_SYMBOLS);
            self.text.extend(grammar.terminal_ids(rule, length - kept as u64).map(number));
        }
        self.ends.resize(self.text.len(), self.text.len() as u32);
    }

    /// Returns true if the string of `length` symbols at `place` extends beyond the item in which it starts.
    pub fn extends_beyond_first_item(&self, place: usize, length: usize) -> bool {
        place + length > self.ends[place] as usize
    }

    /// Calls `visit` with each string of exactly `length` symbols, and how often it occurs in the sequence at this place of the rule.
    /// `length` must not exceed `longest`.
    pub fn for_each(&self, length: usize, mut visit: impl FnMut(&[u32], u64)) {
        for (range, occurrences) in &self.rules {
            let mut gap_free = range.start;
            for end in range.start + 1..=range.end {
                if self.text[end - 1] == OMITTED_SYMBOLS {
                    gap_free = end;
                } else if end >= gap_free + length && self.extends_beyond_first_item(end - length, length) {
                    visit(&self.text[end - length..end], *occurrences);
                }
            }
        }
    }
}
