//! Random access and expansion by a descent from the root, guided by the lengths of expansions.
//!
//! Reaching a position takes O(depth x log(longest body)), each further symbol amortised O(1). In practice, the depth is logarithmic for
//! Re-Pair and locally consistent grammars; for Sequitur, it can be the number of rules.

use super::{Grammar, GrammarItem, RuleId, TerminalId};

/// Iterator over the symbols from a position on.
#[derive(Clone, Debug)]
pub struct SymbolsFrom<'a>(TerminalIds<'a>);

/// Iterator over the terminal numbers from a position on.
#[derive(Clone, Debug)]
pub struct TerminalIds<'a> {
    grammar: &'a Grammar,
    /// The rest of each open rule's body, outermost first.
    pub(super) open: Vec<std::ops::Range<usize>>,
}

impl Grammar {
    /// Returns the symbol at a position, or `None` after the end.
    pub fn at(&self, position: u64) -> Option<u64> {
        self.symbols_from(position).next()
    }

    /// Iterates over the complete sequence.
    pub fn symbols(&self) -> SymbolsFrom<'_> {
        self.expanded(self.root())
    }

    /// Iterates over the expansion of a rule.
    pub fn expanded(&self, rule: RuleId) -> SymbolsFrom<'_> {
        SymbolsFrom(self.terminal_ids(rule, 0))
    }

    /// Iterates over the symbols from a position on.
    pub fn symbols_from(&self, position: u64) -> SymbolsFrom<'_> {
        SymbolsFrom(self.terminal_ids(self.root(), position))
    }

    /// Iterates over the terminal numbers in a rule's expansion, from a position on.
    pub fn terminal_ids(&self, rule: RuleId, position: u64) -> TerminalIds<'_> {
        let mut open = Vec::new();
        let (mut rule, mut rest) = (rule, position);
        loop {
            let places = self.places(rule);
            let before = self.ends[places.clone()].partition_point(|end| *end <= rest);
            let place = places.start + before;
            if before > 0 {
                rest -= self.ends[place - 1];
            }
            if place == places.end {
                return TerminalIds { grammar: self, open };
            }
            match self.item(self.items[place]) {
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

impl Iterator for SymbolsFrom<'_> {
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
            match self.grammar.item(self.grammar.items[place]) {
                GrammarItem::Terminal(terminal) => return Some(terminal),
                GrammarItem::Rule(child) => {
                    // Pop a finished body first, so that the stack is no deeper than the grammar.
                    if rest.start == rest.end {
                        self.open.pop();
                    }
                    self.open.push(self.grammar.places(child));
                }
            }
        }
        None
    }
}
