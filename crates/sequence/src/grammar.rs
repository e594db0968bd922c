//! Straight-line grammars, in which each rule has only one body, so that a grammar generates exactly one sequence.
//!
//! Every grammar has these invariants: a rule's body contains only terminals and rules with smaller numbers; the last rule is the root;
//! every other rule is used and is not empty; terminals are distinct. Therefore, one pass over the rules in order visits each rule after
//! the rules that it uses. Such a pass takes time proportional to the number of items, not to the length of the sequence.

mod access;
mod codec;
mod fingerprint;
mod frames;
mod search;

pub use access::{SequenceSymbols, TerminalIds};
pub use codec::{Window, read_window};
pub use fingerprint::{Fingerprint, Fingerprints, common_extension};
pub use frames::{FrameEffect, RuleFrameEffects};
pub use search::{Occurrences, SearchPattern};

use crate::SequenceError;
use std::collections::HashMap;

/// Maximum number of items in a grammar. The number of an item must fit in 31 bits.
pub const MAX_ITEMS: usize = (u32::MAX >> 1) as usize;

/// A rule, by its number in the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A distinct symbol of the sequence, by its number in the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TerminalId(pub u32);

/// An element of a rule's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrammarItem {
    /// A symbol.
    Terminal(TerminalId),
    /// The expansion of a rule.
    Rule(RuleId),
}

/// A straight-line grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grammar {
    terminals: Vec<u64>,
    /// For each rule, the start of its body in `items`, followed by the end of the last body.
    starts: Vec<u32>,
    /// The bodies of all rules. A terminal is represented by its number, and a rule by its number plus the number of terminals.
    items: Vec<u32>,
    /// For each item, the number of symbols from the start of its rule's body to the end of the item.
    ends: Vec<u64>,
}

/// Size of a grammar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrammarStatistics {
    /// Length of the sequence.
    pub symbols: u64,
    /// Number of distinct symbols.
    pub terminals: usize,
    /// Number of rules, including the root.
    pub rules: usize,
    /// Total number of items in all bodies.
    pub items: usize,
    /// Maximum number of rules on a chain from the root to a terminal.
    pub depth: usize,
}

/// Rules in any order, as compressors create them. In a body, an item with the bit [`RULE_BIT`] set is an index into `bodies`, and any
/// other is a terminal.
pub(crate) struct RawRules {
    pub terminals: Vec<u64>,
    pub bodies: Vec<Vec<u32>>,
    pub root: usize,
}

/// Bit of a [`RawRules`] item that stands for a rule.
pub(crate) const RULE_BIT: u32 = 1 << 31;

impl Grammar {
    /// Returns the grammar of the empty sequence.
    pub fn empty() -> Grammar {
        Grammar { terminals: Vec::new(), starts: vec![0, 0], items: Vec::new(), ends: Vec::new() }
    }

    /// Assembles a grammar. The caller guarantees the invariants of grammars.
    pub(crate) fn from_parts(terminals: Vec<u64>, starts: Vec<u32>, items: Vec<u32>) -> Grammar {
        let count = terminals.len() as u32;
        let mut ends: Vec<u64> = Vec::with_capacity(items.len());
        for body in starts.windows(2) {
            let mut length = 0;
            for &item in &items[body[0] as usize..body[1] as usize] {
                length += if item < count { 1 } else { rule_length(&starts, &ends, (item - count) as usize) };
                ends.push(length);
            }
        }
        Grammar { terminals, starts, items, ends }
    }

    /// Returns the length of the sequence.
    pub fn len(&self) -> u64 {
        self.rule_length(self.root())
    }

    /// Returns true if the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the rule that generates the complete sequence.
    pub fn root(&self) -> RuleId {
        RuleId(self.starts.len() as u32 - 2)
    }

    /// Iterates over all rules in order. A rule comes after the rules that it uses.
    pub fn rules(&self) -> impl DoubleEndedIterator<Item = RuleId> + use<> {
        (0..self.starts.len() as u32 - 1).map(RuleId)
    }

    /// Returns the number of rules.
    pub fn rule_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the distinct symbols, by terminal number.
    pub fn terminals(&self) -> &[u64] {
        &self.terminals
    }

    /// Returns the terminal for a symbol, or `None` if the symbol does not occur. Takes time linear in the number of terminals.
    pub fn terminal(&self, symbol: u64) -> Option<TerminalId> {
        self.terminals.iter().position(|t| *t == symbol).map(|t| TerminalId(t as u32))
    }

    /// Returns the body of a rule.
    pub fn body(&self, rule: RuleId) -> impl DoubleEndedIterator<Item = GrammarItem> + ExactSizeIterator + '_ {
        self.items[self.body_range(rule)].iter().map(|item| self.decode_item(*item))
    }

    /// Returns the number of symbols that a rule generates.
    pub fn rule_length(&self, rule: RuleId) -> u64 {
        rule_length(&self.starts, &self.ends, rule.0 as usize)
    }

    /// Returns the number of symbols that an item generates.
    pub fn item_length(&self, item: GrammarItem) -> u64 {
        match item {
            GrammarItem::Terminal(_) => 1,
            GrammarItem::Rule(rule) => self.rule_length(rule),
        }
    }

    /// Computes statistics of the grammar, in time linear in the number of items.
    pub fn statistics(&self) -> GrammarStatistics {
        let depth = self.fold(|_| 0, |children: &[&usize]| children.iter().map(|depth| **depth).max().unwrap_or(0) + 1);
        GrammarStatistics {
            symbols: self.len(),
            terminals: self.terminals.len(),
            rules: self.rule_count(),
            items: self.items.len(),
            depth: depth[self.root().0 as usize],
        }
    }

    /// Returns how often each rule occurs in the derivation of the sequence. The root occurs once.
    pub fn rule_occurrences(&self) -> Vec<u64> {
        let mut occurrences = vec![0; self.rule_count()];
        occurrences[self.root().0 as usize] = 1;
        for rule in self.rules().rev() {
            for item in self.body(rule) {
                if let GrammarItem::Rule(child) = item {
                    occurrences[child.0 as usize] += occurrences[rule.0 as usize];
                }
            }
        }
        occurrences
    }

    /// Returns the number of occurrences of each symbol, by terminal number. Takes time linear in the number of items.
    pub fn terminal_counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.terminals.len()];
        for (rule, occurrences) in self.rules().zip(self.rule_occurrences()) {
            for item in self.body(rule) {
                if let GrammarItem::Terminal(terminal) = item {
                    counts[terminal.0 as usize] += occurrences;
                }
            }
        }
        counts
    }

    /// Computes a value for each rule from the values of the items in its body. `leaf` returns the value of a symbol, and `join` that of a
    /// rule.
    pub fn fold<T>(&self, leaf: impl Fn(u64) -> T, join: impl Fn(&[&T]) -> T) -> Vec<T> {
        let leaves: Vec<T> = self.terminals.iter().map(|symbol| leaf(*symbol)).collect();
        let mut values: Vec<T> = Vec::with_capacity(self.rule_count());
        for rule in self.rules() {
            let children: Vec<&T> = self
                .body(rule)
                .map(|item| match item {
                    GrammarItem::Terminal(terminal) => &leaves[terminal.0 as usize],
                    GrammarItem::Rule(child) => &values[child.0 as usize],
                })
                .collect();
            let value = join(&children);
            values.push(value);
        }
        values
    }

    /// Concatenates windows into one grammar without expanding them. Fails if the result has more than [`MAX_ITEMS`] items.
    pub fn concatenated<'a>(windows: impl IntoIterator<Item = &'a Grammar>) -> Result<Grammar, SequenceError> {
        let mut raw = RawRules { terminals: Vec::new(), bodies: Vec::new(), root: 0 };
        let mut terminals = TerminalNumbering::default();
        let mut root = Vec::new();
        for window in windows {
            let numbers: Vec<u32> = window.terminals.iter().map(|symbol| terminals.number(*symbol)).collect();
            let first = raw.bodies.len() as u32;
            let translate = |item: GrammarItem| match item {
                GrammarItem::Terminal(terminal) => numbers[terminal.0 as usize],
                GrammarItem::Rule(rule) => RULE_BIT | (first + rule.0),
            };
            for rule in window.rules().filter(|rule| *rule != window.root()) {
                raw.bodies.push(window.body(rule).map(translate).collect());
            }
            root.extend(window.body(window.root()).map(translate));
        }
        raw.terminals = terminals.list;
        raw.root = raw.bodies.len();
        raw.bodies.push(root);
        raw.grammar()
    }

    /// Returns the grammar of the sequence that remains if only symbols with `keep(symbol)` are retained. Takes time linear in the number
    /// of items, because nothing is expanded.
    pub fn with_symbols_retained(&self, keep: impl Fn(u64) -> bool) -> Result<Grammar, SequenceError> {
        let mut terminals = TerminalNumbering::default();
        let kept: Vec<Option<u32>> = self.terminals.iter().map(|s| keep(*s).then(|| terminals.number(*s))).collect();
        let mut bodies: Vec<Vec<u32>> = Vec::with_capacity(self.rule_count());
        for rule in self.rules() {
            let mut body = Vec::new();
            for item in self.body(rule) {
                match item {
                    GrammarItem::Terminal(terminal) => body.extend(kept[terminal.0 as usize]),
                    // A rule of which only one item or none remains is replaced by what remains.
                    GrammarItem::Rule(child) if bodies[child.0 as usize].len() < 2 => {
                        body.extend(bodies[child.0 as usize].first().copied())
                    }
                    GrammarItem::Rule(child) => body.push(RULE_BIT | child.0),
                }
            }
            bodies.push(body);
        }
        RawRules { terminals: terminals.list, root: bodies.len() - 1, bodies }.grammar()
    }

    /// Replaces each symbol by any number of symbols, without expanding the sequence. Fails if the result has more than [`MAX_ITEMS`]
    /// items.
    pub fn with_symbols_replaced(&self, replacement: impl FnMut(u64) -> Vec<u64>) -> Result<Grammar, SequenceError> {
        let mut terminals = TerminalNumbering::default();
        let mut bodies: Vec<Vec<u32>> = Vec::with_capacity(self.terminals.len() + self.rule_count());
        for symbols in self.terminals.iter().copied().map(replacement) {
            bodies.push(symbols.into_iter().map(|symbol| terminals.number(symbol)).collect());
        }
        let first = bodies.len();
        for rule in self.rules() {
            let mut body = Vec::new();
            for item in self.body(rule) {
                let place = match item {
                    GrammarItem::Terminal(terminal) => terminal.0 as usize,
                    GrammarItem::Rule(child) => first + child.0 as usize,
                };
                // A rule with at most one item is replaced by that item.
                if bodies[place].len() < 2 {
                    body.extend(bodies[place].first().copied());
                } else {
                    body.push(RULE_BIT | place as u32);
                }
            }
            bodies.push(body);
        }
        RawRules { terminals: terminals.list, root: bodies.len() - 1, bodies }.grammar()
    }

    fn decode_item(&self, item: u32) -> GrammarItem {
        let count = self.terminals.len() as u32;
        if item < count { GrammarItem::Terminal(TerminalId(item)) } else { GrammarItem::Rule(RuleId(item - count)) }
    }

    fn body_range(&self, rule: RuleId) -> std::ops::Range<usize> {
        self.starts[rule.0 as usize] as usize..self.starts[rule.0 as usize + 1] as usize
    }
}

fn rule_length(starts: &[u32], ends: &[u64], rule: usize) -> u64 {
    let (start, end) = (starts[rule], starts[rule + 1]);
    if start == end { 0 } else { ends[end as usize - 1] }
}

/// Numbers distinct symbols in order of their first occurrence.
#[derive(Default)]
pub(crate) struct TerminalNumbering {
    pub list: Vec<u64>,
    numbers: HashMap<u64, u32, crate::compress::hashing::BuildSymbolHasher>,
}

impl TerminalNumbering {
    pub fn number(&mut self, symbol: u64) -> u32 {
        let next = self.list.len() as u32;
        *self.numbers.entry(symbol).or_insert_with(|| {
            self.list.push(symbol);
            next
        })
    }
}

impl RawRules {
    /// Builds a grammar from the rules that are reachable from the root. They are sorted so that each rule comes after the rules that it
    /// uses.
    pub fn grammar(self) -> Result<Grammar, SequenceError> {
        let order = self.postorder();
        let size: usize = order.iter().map(|rule| self.bodies[*rule as usize].len()).sum();
        if size + self.terminals.len() > MAX_ITEMS {
            return Err(SequenceError::TooLarge { items: size, max: MAX_ITEMS });
        }
        let count = self.terminals.len() as u32;
        let mut numbers = vec![u32::MAX; self.bodies.len()];
        let (mut starts, mut items) = (vec![0], Vec::with_capacity(size));
        for (number, rule) in (0..).zip(order) {
            numbers[rule as usize] = count + number;
            let translate = |item: &u32| if item & RULE_BIT == 0 { *item } else { numbers[(item & !RULE_BIT) as usize] };
            items.extend(self.bodies[rule as usize].iter().map(translate));
            starts.push(items.len() as u32);
        }
        Ok(Grammar::from_parts(self.terminals, starts, items))
    }

    pub fn inline_single_uses(mut self) -> RawRules {
        let mut uses = vec![0_u32; self.bodies.len()];
        for item in self.bodies.iter().flatten().filter(|item| **item & RULE_BIT != 0) {
            uses[(item & !RULE_BIT) as usize] += 1;
        }
        for rule in self.postorder() {
            let body = std::mem::take(&mut self.bodies[rule as usize]);
            let mut longer = Vec::with_capacity(body.len());
            for item in body {
                if item & RULE_BIT != 0 && uses[(item & !RULE_BIT) as usize] == 1 {
                    longer.append(&mut self.bodies[(item & !RULE_BIT) as usize]);
                } else {
                    longer.push(item);
                }
            }
            self.bodies[rule as usize] = longer;
        }
        self
    }

    /// Returns the rules reachable from the root in depth-first postorder, computed without recursion.
    fn postorder(&self) -> Vec<u32> {
        let mut seen = vec![false; self.bodies.len()];
        let mut order = Vec::new();
        let mut open = vec![(self.root as u32, 0)];
        seen[self.root] = true;
        while let Some((rule, place)) = open.last_mut() {
            let next =
                self.bodies[*rule as usize][*place..].iter().position(|item| item & RULE_BIT != 0 && !seen[(item & !RULE_BIT) as usize]);
            match next {
                Some(distance) => {
                    *place += distance + 1;
                    let child = self.bodies[*rule as usize][*place - 1] & !RULE_BIT;
                    seen[child as usize] = true;
                    open.push((child, 0));
                }
                None => {
                    order.push(*rule);
                    open.pop();
                }
            }
        }
        order
    }
}
