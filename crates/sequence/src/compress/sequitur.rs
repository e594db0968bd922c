//! Sequitur: a grammar in which no digram occurs twice and each rule is used at least twice.
//!
//! After C. G. Nevill-Manning and I. H. Witten, "Identifying hierarchical structure in sequences: a linear-time algorithm" (JAIR 1997), and
//! for whole program paths after J. R. Larus, "Whole program paths" (PLDI 1999). Two invariants hold after each symbol. *Digram
//! uniqueness*: two adjacent items occur at only one position, except for overlapping occurrences in a run of three equal items. *Rule
//! utility*: each rule except the root is used at least twice. Time is amortised O(1) per symbol, and memory is proportional to the number
//! of items in the grammar. The depth is not bounded.

use super::Compressor;
use super::hashing::BuildMixer;
use crate::grammar::{RULE, RawRules, Terminals};
use crate::{Grammar, SequenceError};
use std::collections::HashMap;

/// Index of a body item in the arena of nodes.
type BodyNode = u32;

/// Marks the value of a guard node, which closes the ring of nodes that forms a rule's body.
const GUARD: u32 = 1 << 30;
/// Value of an unused node. It is in the range of guards, so that no digram includes it.
const FREE: u32 = GUARD | (GUARD - 1);

/// Compressor that maintains a Sequitur grammar after every symbol.
pub struct Sequitur {
    terminals: Terminals,
    /// Terminal, `RULE | rule` or `GUARD | rule`.
    values: Vec<u32>,
    next: Vec<BodyNode>,
    previous: Vec<BodyNode>,
    free_nodes: Vec<BodyNode>,
    rules: Vec<SequiturRule>,
    free_rules: Vec<u32>,
    /// The first node of each digram.
    digrams: HashMap<u64, BodyNode, BuildMixer>,
    /// Rules that lost uses, and may now have only one use.
    suspects: Vec<u32>,
}

#[derive(Clone, Copy)]
struct SequiturRule {
    guard: BodyNode,
    uses: u32,
    /// Exclusive or of the nodes that use the rule. If only one node uses it, this is that node.
    users: BodyNode,
}

impl Default for Sequitur {
    fn default() -> Sequitur {
        let mut sequitur = Sequitur {
            terminals: Terminals::default(),
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
        let last = self.before(self.rules[0].guard);
        self.insert(last, value);
        self.check_digram(last);
        while let Some(rule) = self.suspects.pop() {
            let SequiturRule { uses, users, .. } = self.rules[rule as usize];
            if uses == 1 {
                self.expand(users);
            }
        }
    }

    fn items_in_memory(&self) -> usize {
        self.values.len() - self.free_nodes.len() + self.terminals.list.len()
    }

    fn close(self: Box<Self>) -> Result<Grammar, SequenceError> {
        let mut bodies: Vec<Vec<u32>> = (0..self.rules.len() as u32).map(|_| Vec::new()).collect();
        let mut open = vec![0];
        while let Some(rule) = open.pop() {
            let body = self.body(rule);
            let fresh = |item: &&u32| **item & RULE != 0 && bodies[(**item & !RULE) as usize].is_empty();
            open.extend(body.iter().filter(fresh).map(|item| item & !RULE));
            bodies[rule as usize] = body;
        }
        RawRules { terminals: self.terminals.list, bodies, root: 0 }.grammar()
    }
}

impl Sequitur {
    /// Looks for a second occurrence of the digram at a node. If there is one, replaces both by a rule and returns true.
    fn check_digram(&mut self, node: BodyNode) -> bool {
        let Some(key) = self.digram(node) else { return false };
        let Some(&known) = self.digrams.get(&key) else {
            self.digrams.insert(key, node);
            return false;
        };
        if known == node || self.after(known) == node {
            return false;
        }
        let mut known = known;
        if self.after(node) == known {
            // A run of equal items grew at its front. Its first digram is recorded, so that it is found when the run grows at its end.
            self.digrams.insert(key, node);
            known = self.after(known);
            if self.digram(known) != Some(key) {
                return false;
            }
        }
        match (self.rule_with_body(known), self.rule_with_body(node)) {
            (Some(rule), None) => self.substitute(node, rule),
            (None, Some(rule)) => {
                self.digrams.insert(key, node);
                self.substitute(known, rule);
            }
            (None, None) => self.make_rule(key, known, node),
            // Impossible, because two rules with the same body would already have shared a digram.
            (Some(_), Some(_)) => return false,
        }
        true
    }

    /// Returns the rule whose body is exactly the digram at a node.
    fn rule_with_body(&self, node: BodyNode) -> Option<u32> {
        let (left, right) = (self.before(node), self.after(self.after(node)));
        (left == right && self.is_guard(left) && left != self.rules[0].guard).then(|| self.value(left) & !GUARD)
    }

    fn make_rule(&mut self, key: u64, known: BodyNode, node: BodyNode) {
        let rule = self.new_rule();
        let (first, second) = (self.value(node), self.value(self.after(node)));
        let guard = self.rules[rule as usize].guard;
        let first = self.insert(guard, first);
        self.insert(first, second);
        self.digrams.insert(key, first);
        // The rule is new, so the digrams that the substitutions create are also new.
        self.substitute(known, rule);
        self.substitute(node, rule);
    }

    /// Replaces the digram at a node by a rule.
    fn substitute(&mut self, node: BodyNode, rule: u32) {
        let (left, second) = (self.before(node), self.after(node));
        let right = self.after(second);
        let in_run = (self.value(left) == self.value(node), self.value(second) == self.value(right));
        for gone in [left, node, second] {
            self.remove_digram(gone);
        }
        self.remove(node);
        self.remove(second);
        self.link(left, right);
        // In a run of equal items only one of the overlapping digrams is recorded. If that one is removed, the other is recorded.
        if in_run.0 && self.value(self.before(left)) == self.value(left) {
            self.record_digram(self.before(left));
        }
        if in_run.1 && self.value(right) == self.value(self.after(right)) {
            self.record_digram(right);
        }
        let inserted = self.insert(left, RULE | rule);
        if !self.check_digram(left) {
            self.check_digram(inserted);
        }
    }

    /// Inlines the body of a rule at its only use.
    fn expand(&mut self, node: BodyNode) {
        let rule = self.value(node) & !RULE;
        let guard = self.rules[rule as usize].guard;
        let (left, right) = (self.before(node), self.after(node));
        let (first, last) = (self.after(guard), self.before(guard));
        self.remove_digram(left);
        self.remove_digram(node);
        self.remove(node);
        self.link(left, first);
        self.link(last, right);
        self.values[guard as usize] = FREE;
        self.free_nodes.push(guard);
        self.free_rules.push(rule);
        self.check_digram(left);
        // If the first check removed the last node, that node is free and has no digram.
        self.check_digram(last);
    }

    fn new_node(&mut self, value: u32) -> BodyNode {
        let node = self.free_nodes.pop().unwrap_or_else(|| {
            self.values.push(0);
            self.next.push(0);
            self.previous.push(0);
            self.values.len() as u32 - 1
        });
        self.values[node as usize] = value;
        if value & RULE != 0 {
            let rule = &mut self.rules[(value & !RULE) as usize];
            rule.uses += 1;
            rule.users ^= node;
        }
        node
    }

    fn new_rule(&mut self) -> u32 {
        let rule = self.free_rules.pop().unwrap_or(self.rules.len() as u32);
        let guard = self.new_node(GUARD | rule);
        self.link(guard, guard);
        let entry = SequiturRule { guard, uses: 0, users: 0 };
        match self.rules.get_mut(rule as usize) {
            Some(old) => *old = entry,
            None => self.rules.push(entry),
        }
        rule
    }

    fn insert(&mut self, left: BodyNode, value: u32) -> BodyNode {
        let (node, right) = (self.new_node(value), self.after(left));
        self.link(left, node);
        self.link(node, right);
        node
    }

    /// Frees a node. The caller links its neighbours.
    fn remove(&mut self, node: BodyNode) {
        let value = self.value(node);
        if value & RULE != 0 {
            let number = value & !RULE;
            let rule = &mut self.rules[number as usize];
            rule.uses -= 1;
            rule.users ^= node;
            if rule.uses == 1 {
                self.suspects.push(number);
            }
        }
        self.values[node as usize] = FREE;
        self.free_nodes.push(node);
    }

    fn link(&mut self, left: BodyNode, right: BodyNode) {
        self.next[left as usize] = right;
        self.previous[right as usize] = left;
    }

    fn value(&self, node: BodyNode) -> u32 {
        self.values[node as usize]
    }

    fn after(&self, node: BodyNode) -> BodyNode {
        self.next[node as usize]
    }

    fn before(&self, node: BodyNode) -> BodyNode {
        self.previous[node as usize]
    }

    fn is_guard(&self, node: BodyNode) -> bool {
        self.value(node) & (GUARD | RULE) == GUARD
    }

    /// Returns the key of the digram that begins at a node, or `None` at the end of a body.
    fn digram(&self, node: BodyNode) -> Option<u64> {
        let next = self.after(node);
        let is_digram = !self.is_guard(node) && !self.is_guard(next);
        is_digram.then(|| u64::from(self.value(node)) << 32 | u64::from(self.value(next)))
    }

    /// Removes the digram at a node from the index, if it is the recorded occurrence.
    fn remove_digram(&mut self, node: BodyNode) {
        if let Some(key) = self.digram(node)
            && self.digrams.get(&key) == Some(&node)
        {
            self.digrams.remove(&key);
        }
    }

    /// Records the digram at a node, unless another occurrence is recorded.
    fn record_digram(&mut self, node: BodyNode) {
        if let Some(key) = self.digram(node) {
            self.digrams.entry(key).or_insert(node);
        }
    }

    fn body(&self, rule: u32) -> Vec<u32> {
        let guard = self.rules[rule as usize].guard;
        std::iter::successors(Some(self.after(guard)), |node| Some(self.after(*node)))
            .take_while(|node| *node != guard)
            .map(|node| self.value(node))
            .collect()
    }
}
