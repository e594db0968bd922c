//! Sequitur: a grammar in which no digram occurs twice and each rule is used at least twice.
//!
//! After C. G. Nevill-Manning and I. H. Witten, "Identifying hierarchical structure in sequences: a linear-time algorithm" (JAIR 1997), and
//! for whole program paths after J. R. Larus, "Whole program paths" (PLDI 1999). A digram is a pair of adjacent items. Two invariants hold
//! after each symbol. *Digram uniqueness*: no digram occurs twice, except for overlapping occurrences in a run of three equal items. *Rule
//! utility*: each rule except the root is used at least twice. Time is amortised O(1) per symbol, and memory is proportional to the number
//! of items in the grammar. The depth is not bounded.

use super::Compressor;
use super::hashing::BuildSymbolHasher;
use crate::grammar::{RULE_BIT, RawRules, TerminalNumbering};
use crate::{Grammar, SequenceError};
use std::collections::HashMap;

/// An item of a rule's body, given as the index of its node in the arena.
type BodyNode = u32;

/// Bit in the value of a guard node. A rule's body is a ring of nodes that a guard node closes.
const GUARD_NODE_BIT: u32 = 1 << 30;
/// Value of an unused node. Like the values of guards, it is not part of any digram.
const UNUSED_NODE_VALUE: u32 = GUARD_NODE_BIT | (GUARD_NODE_BIT - 1);

/// Compressor that maintains a complete Sequitur grammar after every symbol.
pub struct Sequitur {
    terminals: TerminalNumbering,
    /// Value of each node: a terminal, `RULE_BIT | rule` or `GUARD_NODE_BIT | rule`.
    values: Vec<u32>,
    next: Vec<BodyNode>,
    previous: Vec<BodyNode>,
    free_nodes: Vec<BodyNode>,
    rules: Vec<SequiturRule>,
    free_rules: Vec<u32>,
    /// For each digram in the grammar, its first node.
    digrams: HashMap<u64, BodyNode, BuildSymbolHasher>,
    /// Rules that have lost a use since the last check, and may now have only one.
    suspects: Vec<u32>,
}

#[derive(Clone, Copy)]
struct SequiturRule {
    guard: BodyNode,
    uses: u32,
    /// Exclusive or of all nodes that use the rule. If only one node uses the rule, this is that node.
    users: BodyNode,
}

impl Default for Sequitur {
    fn default() -> Sequitur {
        let mut sequitur = Sequitur {
            terminals: TerminalNumbering::default(),
            values: Vec::new(),
            next: Vec::new(),
            previous: Vec::new(),
            free_nodes: Vec::new(),
            rules: Vec::new(),
            free_rules: Vec::new(),
            digrams: HashMap::default(),
            suspects: Vec::new(),
        };
        sequitur.new_rule();
        sequitur
    }
}

impl Compressor for Sequitur {
    fn push(&mut self, symbol: u64) {
        let value = self.terminals.number(symbol);
        let last = self.previous_node(self.rules[0].guard);
        self.insert(last, value);
        self.replace_if_repeated_digram(last);
        while let Some(rule) = self.suspects.pop() {
            let SequiturRule { uses, users, .. } = self.rules[rule as usize];
            if uses == 1 {
                self.inline_rule(users);
            }
        }
    }

    fn item_count_in_memory(&self) -> usize {
        self.values.len() - self.free_nodes.len() + self.terminals.list.len()
    }

    fn close(self: Box<Self>) -> Result<Grammar, SequenceError> {
        let mut bodies: Vec<Vec<u32>> = (0..self.rules.len() as u32).map(|_| Vec::new()).collect();
        let mut open = vec![0];
        while let Some(rule) = open.pop() {
            let body = self.body(rule);
            let fresh = |item: &&u32| **item & RULE_BIT != 0 && bodies[(**item & !RULE_BIT) as usize].is_empty();
            open.extend(body.iter().filter(fresh).map(|item| item & !RULE_BIT));
            bodies[rule as usize] = body;
        }
        RawRules { terminals: self.terminals.list, bodies, root: 0 }.grammar()
    }
}

impl Sequitur {
    /// Looks for another occurrence of the digram at a node. If there is one, replaces both by a rule and returns true.
    fn replace_if_repeated_digram(&mut self, node: BodyNode) -> bool {
        let Some(key) = self.digram_key(node) else { return false };
        let Some(&known) = self.digrams.get(&key) else {
            self.digrams.insert(key, node);
            return false;
        };
        if known == node || self.next_node(known) == node {
            return false;
        }
        let mut known = known;
        if self.next_node(node) == known {
            // A run of equal items has grown at its front. Its first digram is recorded instead, so that it is found when the run grows at
            // its end.
            self.digrams.insert(key, node);
            known = self.next_node(known);
            if self.digram_key(known) != Some(key) {
                return false;
            }
        }
        match (self.rule_with_body(known), self.rule_with_body(node)) {
            (Some(rule), None) => self.replace_digram_by_rule(node, rule),
            (None, Some(rule)) => {
                self.digrams.insert(key, node);
                self.replace_digram_by_rule(known, rule);
            }
            (None, None) => self.add_rule_for_digram(key, known, node),
            // This cannot happen: two rules with the same body would have been merged when the second one was created.
            (Some(_), Some(_)) => return false,
        }
        true
    }

    /// Returns the rule whose body is exactly the digram at a node.
    fn rule_with_body(&self, node: BodyNode) -> Option<u32> {
        let (left, right) = (self.previous_node(node), self.next_node(self.next_node(node)));
        (left == right && self.is_guard(left) && left != self.rules[0].guard).then(|| self.value(left) & !GUARD_NODE_BIT)
    }

    fn add_rule_for_digram(&mut self, key: u64, known: BodyNode, node: BodyNode) {
        let rule = self.new_rule();
        let (first, second) = (self.value(node), self.value(self.next_node(node)));
        let guard = self.rules[rule as usize].guard;
        let first = self.insert(guard, first);
        self.insert(first, second);
        self.digrams.insert(key, first);
        // The rule is new, so the digrams that its uses form are new, too.
        self.replace_digram_by_rule(known, rule);
        self.replace_digram_by_rule(node, rule);
    }

    /// Replaces the digram at a node by a rule.
    fn replace_digram_by_rule(&mut self, node: BodyNode, rule: u32) {
        let (left, second) = (self.previous_node(node), self.next_node(node));
        let right = self.next_node(second);
        let in_run = (self.value(left) == self.value(node), self.value(second) == self.value(right));
        for gone in [left, node, second] {
            self.remove_digram(gone);
        }
        self.free_node(node);
        self.free_node(second);
        self.link(left, right);
        // Of the overlapping digrams in a run of equal items, only one is recorded. If that one is removed, another must be recorded.
        if in_run.0 && self.value(self.previous_node(left)) == self.value(left) {
            self.record_digram(self.previous_node(left));
        }
        if in_run.1 && self.value(right) == self.value(self.next_node(right)) {
            self.record_digram(right);
        }
        let inserted = self.insert(left, RULE_BIT | rule);
        if !self.replace_if_repeated_digram(left) {
            self.replace_if_repeated_digram(inserted);
        }
    }

    /// Replaces the only use of a rule, at `node`, by the rule's body.
    fn inline_rule(&mut self, node: BodyNode) {
        let rule = self.value(node) & !RULE_BIT;
        let guard = self.rules[rule as usize].guard;
        let (left, right) = (self.previous_node(node), self.next_node(node));
        let (first, last) = (self.next_node(guard), self.previous_node(guard));
        self.remove_digram(left);
        self.remove_digram(node);
        self.free_node(node);
        self.link(left, first);
        self.link(last, right);
        self.values[guard as usize] = UNUSED_NODE_VALUE;
        self.free_nodes.push(guard);
        self.free_rules.push(rule);
        self.replace_if_repeated_digram(left);
        // If the first check removed the last node, that node is now free, and this check does nothing.
        self.replace_if_repeated_digram(last);
    }

    fn new_node(&mut self, value: u32) -> BodyNode {
        let node = self.free_nodes.pop().unwrap_or_else(|| {
            self.values.push(0);
            self.next.push(0);
            self.previous.push(0);
            self.values.len() as u32 - 1
        });
        self.values[node as usize] = value;
        if value & RULE_BIT != 0 {
            let rule = &mut self.rules[(value & !RULE_BIT) as usize];
            rule.uses += 1;
            rule.users ^= node;
        }
        node
    }

    fn new_rule(&mut self) -> u32 {
        let rule = self.free_rules.pop().unwrap_or(self.rules.len() as u32);
        let guard = self.new_node(GUARD_NODE_BIT | rule);
        self.link(guard, guard);
        let entry = SequiturRule { guard, uses: 0, users: 0 };
        match self.rules.get_mut(rule as usize) {
            Some(old) => *old = entry,
            None => self.rules.push(entry),
        }
        rule
    }

    fn insert(&mut self, left: BodyNode, value: u32) -> BodyNode {
        let (node, right) = (self.new_node(value), self.next_node(left));
        self.link(left, node);
        self.link(node, right);
        node
    }

    /// Frees a node. Linking the node's neighbours to each other is left to the caller.
    fn free_node(&mut self, node: BodyNode) {
        let value = self.value(node);
        if value & RULE_BIT != 0 {
            let number = value & !RULE_BIT;
            let rule = &mut self.rules[number as usize];
            rule.uses -= 1;
            rule.users ^= node;
            if rule.uses == 1 {
                self.suspects.push(number);
            }
        }
        self.values[node as usize] = UNUSED_NODE_VALUE;
        self.free_nodes.push(node);
    }

    fn link(&mut self, left: BodyNode, right: BodyNode) {
        self.next[left as usize] = right;
        self.previous[right as usize] = left;
    }

    fn value(&self, node: BodyNode) -> u32 {
        self.values[node as usize]
    }

    fn next_node(&self, node: BodyNode) -> BodyNode {
        self.next[node as usize]
    }

    fn previous_node(&self, node: BodyNode) -> BodyNode {
        self.previous[node as usize]
    }

    fn is_guard(&self, node: BodyNode) -> bool {
        self.value(node) & (GUARD_NODE_BIT | RULE_BIT) == GUARD_NODE_BIT
    }

    /// Returns the key of the digram that begins at a node, or `None` at the end of a body.
    fn digram_key(&self, node: BodyNode) -> Option<u64> {
        let next = self.next_node(node);
        let is_digram = !self.is_guard(node) && !self.is_guard(next);
        is_digram.then(|| u64::from(self.value(node)) << 32 | u64::from(self.value(next)))
    }

    /// Removes the digram at a node from the index, if it is the recorded occurrence.
    fn remove_digram(&mut self, node: BodyNode) {
        if let Some(key) = self.digram_key(node)
            && self.digrams.get(&key) == Some(&node)
        {
            self.digrams.remove(&key);
        }
    }

    /// Records the digram at a node, unless another occurrence is recorded.
    fn record_digram(&mut self, node: BodyNode) {
        if let Some(key) = self.digram_key(node) {
            self.digrams.entry(key).or_insert(node);
        }
    }

    fn body(&self, rule: u32) -> Vec<u32> {
        let guard = self.rules[rule as usize].guard;
        std::iter::successors(Some(self.next_node(guard)), |node| Some(self.next_node(*node)))
            .take_while(|node| *node != guard)
            .map(|node| self.value(node))
            .collect()
    }
}
