//! A straight-line grammar: each rule has one body, so the grammar stands for exactly one sequence.
//!
//! Invariants, which every constructor establishes:
//! - a rule's body has only terminals and rules of smaller number: one pass over the rules in order is a fold from the leaves;
//! - the last rule is the root; only the root may be empty; each rule but the root is used;
//! - terminals are distinct.
//!
//! Folds over a grammar take time in the number of its items, not in the length of the sequence.

mod access;
mod codec;
mod fingerprint;
mod frames;
mod search;

pub use access::{Symbols, TerminalIds};
pub use codec::{Window, read_window};
pub use fingerprint::{Fingerprint, Fingerprints, common_extension};
pub use frames::{FrameEffect, Frames};
pub use search::{Occurrences, SearchPattern};

use crate::SequenceError;
use std::collections::HashMap;

/// The most items of a grammar: items are counted in 32 bits.
pub const MOST_ITEMS: usize = (u32::MAX >> 1) as usize;

/// A rule's number in its grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A distinct symbol's number in its grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TerminalId(pub u32);

/// One place of a rule's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GrammarItem {
    /// A symbol.
    Terminal(TerminalId),
    /// What a rule stands for.
    Rule(RuleId),
}

/// A grammar that stands for one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grammar {
    terminals: Vec<u64>,
    /// Where each rule's body begins in `items`; one more entry than rules.
    starts: Vec<u32>,
    /// Terminals as their number, rules as their number behind the terminals.
    items: Vec<u32>,
    /// Symbols up to and with each item, from the beginning of its rule's body.
    ends: Vec<u64>,
}

/// Sizes of a grammar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrammarStatistics {
    /// Symbols of the sequence.
    pub symbols: u64,
    /// Distinct symbols.
    pub terminals: usize,
    /// Rules, the root among them.
    pub rules: usize,
    /// Items of all rules.
    pub items: usize,
    /// Rules on the longest chain from the root to a terminal.
    pub depth: usize,
}

/// Rules in any order, as compressors make them. Items from `RULE` on are rules by their place in the list.
pub(crate) struct RawRules {
    pub terminals: Vec<u64>,
    pub bodies: Vec<Vec<u32>>,
    pub root: usize,
}

/// The bit that makes an item of a [`RawRules`] a rule.
pub(crate) const RULE: u32 = 1 << 31;

impl Grammar {
    /// The grammar of the empty sequence.
    pub fn empty() -> Grammar {
        Grammar { terminals: Vec::new(), starts: vec![0, 0], items: Vec::new(), ends: Vec::new() }
    }

    /// From rules of which each has smaller ones only.
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

    /// Symbols of the sequence.
    pub fn len(&self) -> u64 {
        self.rule_length(self.root())
    }

    /// Whether the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The rule that stands for the whole sequence.
    pub fn root(&self) -> RuleId {
        RuleId(self.starts.len() as u32 - 2)
    }

    /// All rules; each has terminals and rules before it only.
    pub fn rules(&self) -> impl DoubleEndedIterator<Item = RuleId> + use<> {
        (0..self.starts.len() as u32 - 1).map(RuleId)
    }

    /// Number of rules.
    pub fn rule_count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Distinct symbols, by number.
    pub fn terminals(&self) -> &[u64] {
        &self.terminals
    }

    /// The number of a symbol, if it occurs. Linear in the number of terminals.
    pub fn terminal(&self, symbol: u64) -> Option<TerminalId> {
        self.terminals.iter().position(|t| *t == symbol).map(|t| TerminalId(t as u32))
    }

    /// A rule's body.
    pub fn body(&self, rule: RuleId) -> impl DoubleEndedIterator<Item = GrammarItem> + ExactSizeIterator + '_ {
        self.items[self.places(rule)].iter().map(|item| self.item(*item))
    }

    /// Symbols that a rule stands for.
    pub fn rule_length(&self, rule: RuleId) -> u64 {
        rule_length(&self.starts, &self.ends, rule.0 as usize)
    }

    /// Symbols that an item stands for.
    pub fn item_length(&self, item: GrammarItem) -> u64 {
        match item {
            GrammarItem::Terminal(_) => 1,
            GrammarItem::Rule(rule) => self.rule_length(rule),
        }
    }

    /// Sizes. Linear in the number of items.
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

    /// How often each rule occurs in the derivation of the sequence; the root once.
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

    /// How often each symbol occurs, by the terminals' numbers: the sequence folded into a profile. Linear in the number of items.
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

    /// A value for each rule, from those of its body's items: a fold from the leaves, each rule once.
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

    /// Several windows as one grammar, in order. Time and memory are linear in their items; nothing is expanded.
    ///
    /// # Errors
    /// They have more than [`MOST_ITEMS`] items together.
    pub fn concatenated<'a>(windows: impl IntoIterator<Item = &'a Grammar>) -> Result<Grammar, SequenceError> {
        let mut raw = RawRules { terminals: Vec::new(), bodies: Vec::new(), root: 0 };
        let mut terminals = Terminals::default();
        let mut root = Vec::new();
        for window in windows {
            let numbers: Vec<u32> = window.terminals.iter().map(|symbol| terminals.number(*symbol)).collect();
            let first = raw.bodies.len() as u32;
            let carried = |item: GrammarItem| match item {
                GrammarItem::Terminal(terminal) => numbers[terminal.0 as usize],
                GrammarItem::Rule(rule) => RULE | (first + rule.0),
            };
            for rule in window.rules().filter(|rule| *rule != window.root()) {
                raw.bodies.push(window.body(rule).map(carried).collect());
            }
            root.extend(window.body(window.root()).map(carried));
        }
        raw.terminals = terminals.list;
        raw.root = raw.bodies.len();
        raw.bodies.push(root);
        raw.grammar()
    }

    /// The sequence without the symbols that `keep` refuses. Time and memory are linear in the items; nothing is expanded.
    ///
    /// # Errors
    /// None: the result has no more items.
    pub fn retained(&self, keep: impl Fn(u64) -> bool) -> Result<Grammar, SequenceError> {
        let mut terminals = Terminals::default();
        let kept: Vec<Option<u32>> = self.terminals.iter().map(|s| keep(*s).then(|| terminals.number(*s))).collect();
        let mut bodies: Vec<Vec<u32>> = Vec::with_capacity(self.rule_count());
        for rule in self.rules() {
            let mut body = Vec::new();
            for item in self.body(rule) {
                match item {
                    GrammarItem::Terminal(terminal) => body.extend(kept[terminal.0 as usize]),
                    // A rule of which at most one item is left is that item.
                    GrammarItem::Rule(child) if bodies[child.0 as usize].len() < 2 => {
                        body.extend(bodies[child.0 as usize].first().copied())
                    }
                    GrammarItem::Rule(child) => body.push(RULE | child.0),
                }
            }
            bodies.push(body);
        }
        RawRules { terminals: terminals.list, root: bodies.len() - 1, bodies }.grammar()
    }

    /// The sequence with other symbols in the place of each: none, one, or several. Time and memory are linear in the items and in what is
    /// put in for the distinct symbols; nothing is expanded.
    ///
    /// # Errors
    /// The result has more than [`MOST_ITEMS`] items.
    pub fn substituted(&self, put_in: impl FnMut(u64) -> Vec<u64>) -> Result<Grammar, SequenceError> {
        let mut terminals = Terminals::default();
        let mut bodies: Vec<Vec<u32>> = Vec::with_capacity(self.terminals.len() + self.rule_count());
        for symbols in self.terminals.iter().copied().map(put_in) {
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
                // What is one item, or none, is no rule.
                if bodies[place].len() < 2 {
                    body.extend(bodies[place].first().copied());
                } else {
                    body.push(RULE | place as u32);
                }
            }
            bodies.push(body);
        }
        RawRules { terminals: terminals.list, root: bodies.len() - 1, bodies }.grammar()
    }

    fn item(&self, item: u32) -> GrammarItem {
        let count = self.terminals.len() as u32;
        if item < count { GrammarItem::Terminal(TerminalId(item)) } else { GrammarItem::Rule(RuleId(item - count)) }
    }

    fn places(&self, rule: RuleId) -> std::ops::Range<usize> {
        self.starts[rule.0 as usize] as usize..self.starts[rule.0 as usize + 1] as usize
    }
}

fn rule_length(starts: &[u32], ends: &[u64], rule: usize) -> u64 {
    let (start, end) = (starts[rule], starts[rule + 1]);
    if start == end { 0 } else { ends[end as usize - 1] }
}

/// Numbers symbols in the order of their first occurrence.
#[derive(Default)]
pub(crate) struct Terminals {
    pub list: Vec<u64>,
    numbers: HashMap<u64, u32, crate::compress::hashing::Mixing>,
}

impl Terminals {
    pub fn number(&mut self, symbol: u64) -> u32 {
        let next = self.list.len() as u32;
        *self.numbers.entry(symbol).or_insert_with(|| {
            self.list.push(symbol);
            next
        })
    }
}

impl RawRules {
    /// Puts rules that are used into order, those that are used behind those that they use.
    pub fn grammar(self) -> Result<Grammar, SequenceError> {
        let order = self.order();
        let size: usize = order.iter().map(|rule| self.bodies[*rule as usize].len()).sum();
        if size + self.terminals.len() > MOST_ITEMS {
            return Err(SequenceError::TooLarge { items: size, most: MOST_ITEMS });
        }
        let count = self.terminals.len() as u32;
        let mut numbers = vec![u32::MAX; self.bodies.len()];
        let (mut starts, mut items) = (vec![0], Vec::with_capacity(size));
        for (number, rule) in (0..).zip(order) {
            numbers[rule as usize] = count + number;
            let carried = |item: &u32| if item & RULE == 0 { *item } else { numbers[(item & !RULE) as usize] };
            items.extend(self.bodies[rule as usize].iter().map(carried));
            starts.push(items.len() as u32);
        }
        Ok(Grammar::from_parts(self.terminals, starts, items))
    }

    /// Replaces rules that are used once by their bodies.
    pub fn without_single_uses(mut self) -> RawRules {
        let mut uses = vec![0_u32; self.bodies.len()];
        for item in self.bodies.iter().flatten().filter(|item| **item & RULE != 0) {
            uses[(item & !RULE) as usize] += 1;
        }
        for rule in self.order() {
            let body = std::mem::take(&mut self.bodies[rule as usize]);
            let mut longer = Vec::with_capacity(body.len());
            for item in body {
                if item & RULE != 0 && uses[(item & !RULE) as usize] == 1 {
                    longer.append(&mut self.bodies[(item & !RULE) as usize]);
                } else {
                    longer.push(item);
                }
            }
            self.bodies[rule as usize] = longer;
        }
        self
    }

    /// Rules in depth-first postorder from the root, without recursion.
    fn order(&self) -> Vec<u32> {
        let mut seen = vec![false; self.bodies.len()];
        let mut order = Vec::new();
        let mut open = vec![(self.root as u32, 0)];
        seen[self.root] = true;
        while let Some((rule, place)) = open.last_mut() {
            let next = self.bodies[*rule as usize][*place..].iter().position(|item| item & RULE != 0 && !seen[(item & !RULE) as usize]);
            match next {
                Some(distance) => {
                    *place += distance + 1;
                    let child = self.bodies[*rule as usize][*place - 1] & !RULE;
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
