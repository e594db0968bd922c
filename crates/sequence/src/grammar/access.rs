//! Random access to symbols, and expansion of ranges. A position is reached by a descent from the root, guided by the number of symbols
//! that each item generates.
//!
//! Reaching a position takes O(depth x log(longest body)), each further symbol amortised O(1). In practice, the depth is logarithmic for
//! Re-Pair and locally consistent grammars; for Sequitur, it can be the number of rules.

use super::{Grammar, GrammarItem, RuleId, TerminalId};

/// Iterator over the symbols of a sequence, starting at some position.
#[derive(Clone, Debug)]
pub struct SequenceSymbols<'a>(TerminalIds<'a>);

/// Iterator over the terminal numbers of a sequence, starting at some position.
#[derive(Clone, Debug)]
pub struct TerminalIds<'a> {
    grammar: &'a Grammar,
    /// For each rule that is being expanded, the rest of its body. The outermost rule comes first.
    pub(super) open: Vec<std::ops::Range<usize>>,
}

impl Grammar {
    /// Returns the symbol at a position, or `None` after the end.
    pub fn at(&self, position: u64) -> Option<u64> {
        self.symbols_from(position).next()
    }

    /// Iterates over the symbols of the complete sequence.
    pub fn symbols(&self) -> SequenceSymbols<'_> {
        self.symbols_of_rule(self.root())
    }

    /// Iterates over the symbols that a rule generates.
    pub fn symbols_of_rule(&self, rule: RuleId) -> SequenceSymbols<'_> {
        SequenceSymbols(self.terminal_ids(rule, 0))
    }

    /// Iterates over the symbols of the sequence, starting at a position.
    pub fn symbols_from(&self, position: u64) -> SequenceSymbols<'_> {
        SequenceSymbols(self.terminal_ids(self.root(), position))
    }

    /// Iterates over the terminal numbers of the symbols that a rule generates, starting at a position.
    pub fn terminal_ids(&self, rule: RuleId, position: u64) -> TerminalIds<'_> {
        let mut open = Vec::new();
        let (mut rule, mut rest) = (rule, position);
        loop {
            let places = self.body_range(rule);
            let before = self.ends[places.clone()].partition_point(|end| *end <= rest);
            let place = places.start + before;
            if before > 0 {
                rest -= self.ends[place - 1];
            }
            if place == places.end {
                return TerminalIds { grammar: self, open };
            }
            match self.decode_item(self.items[place]) {
                GrammarItem::Rule(child) if rest > 0 => {
                    open.push(place + 1..places.end);
                    rule = child;
                }
                _ => {
                    open.push(place..places.end);
                    return TerminalIds { grammar: self, open };
                }
            }
        }
    }
}

impl Iterator for SequenceSymbols<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0.next().map(|terminal| self.0.grammar.terminals[terminal.0 as usize])
    }
}

impl Iterator for TerminalIds<'_> {
    type Item = TerminalId;

    fn next(&mut self) -> Option<TerminalId> {
        while let Some(rest) = self.open.last_mut() {
            let Some(place) = rest.next() else {
                self.open.pop();
                continue;
            };
            match self.grammar.decode_item(self.grammar.items[place]) {
                GrammarItem::Terminal(terminal) => return Some(terminal),
                GrammarItem::Rule(child) => {
                    // A finished body is removed before the next one is added, so that the stack is never deeper than the grammar.
                    if rest.start == rest.end {
                        self.open.pop();
                    }
                    self.open.push(self.grammar.body_range(child));
                }
            }
        }
        None
    }
}
