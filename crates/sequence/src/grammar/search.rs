//! Search for a string of symbols without expanding the sequence.
//!
//! The automaton of Knuth, Morris and Pratt (1977) processes whole rules instead of symbols. For each rule and each state before it, the
//! state after the rule and the number of matches that end within the rule are precomputed. Positions of matches are enumerated by
//! descending only into rules with matches. A pattern of m symbols takes O(items x m) time and O(rules x m) memory, and each listed match
//! takes O(depth) time.

use super::{Grammar, GrammarItem};

/// A search string, prepared for one grammar.
#[derive(Clone, Debug)]
pub struct SearchPattern<'a> {
    grammar: &'a Grammar,
    /// For each terminal, the next state for each current state. `None` for terminals that the pattern does not contain, which lead to
    /// state 0.
    steps: Vec<Option<Box<[u32]>>>,
    /// Length of the pattern, which is also the number of the accepting state.
    length: usize,
    /// For each rule and each state before it, the state after the rule and the number of matches that end within it.
    rules: Vec<(u32, u64)>,
}

/// Iterator over the positions of matches, in ascending order.
#[derive(Clone, Debug)]
pub struct Occurrences<'a> {
    pattern: &'a SearchPattern<'a>,
    /// For each rule that is being searched, the rest of its body.
    open: Vec<std::ops::Range<usize>>,
    state: u32,
    position: u64,
}

impl<'a> SearchPattern<'a> {
    /// Prepares a search for `symbols`. Returns `None` if there cannot be a match, because `symbols` is empty or has a symbol that the
    /// sequence does not contain.
    pub fn new(grammar: &'a Grammar, symbols: &[u64]) -> Option<SearchPattern<'a>> {
        let string: Vec<u32> = symbols.iter().map(|symbol| grammar.terminal(*symbol).map(|t| t.0)).collect::<Option<_>>()?;
        if string.is_empty() {
            return None;
        }
        let steps = build_automaton(&string, grammar.terminals.len());
        let mut pattern = SearchPattern { grammar, steps, length: string.len(), rules: Vec::new() };
        for rule in grammar.rules() {
            for state in 0..=pattern.length as u32 {
                let (mut state_after, mut matches) = (state, 0);
                for item in grammar.body(rule) {
                    let (next, more) = pattern.state_and_matches_after(item, state_after);
                    state_after = next;
                    matches += more;
                }
                pattern.rules.push((state_after, matches));
            }
        }
        Some(pattern)
    }

    /// Returns the number of occurrences, including overlapping ones.
    pub fn count(&self) -> u64 {
        self.state_and_matches_after(GrammarItem::Rule(self.grammar.root()), 0).1
    }

    /// Iterates over the start positions of occurrences.
    pub fn positions(&self) -> Occurrences<'_> {
        Occurrences { pattern: self, open: vec![self.grammar.body_range(self.grammar.root())], state: 0, position: 0 }
    }

    /// Returns the state after an item, and the number of matches that end within the item.
    fn state_and_matches_after(&self, item: GrammarItem, state: u32) -> (u32, u64) {
        match item {
            GrammarItem::Terminal(terminal) => {
                let next = self.steps[terminal.0 as usize].as_ref().map_or(0, |steps| steps[state as usize]);
                (next, u64::from(next as usize == self.length))
            }
            GrammarItem::Rule(rule) => self.rules[rule.0 as usize * (self.length + 1) + state as usize],
        }
    }
}

/// Builds the automaton. It is in state n if the last n symbols read are the first n symbols of the string.
fn build_automaton(string: &[u32], terminals: usize) -> Vec<Option<Box<[u32]>>> {
    let mut steps: Vec<Option<Box<[u32]>>> = vec![None; terminals];
    for terminal in string {
        steps[*terminal as usize].get_or_insert_with(|| vec![0; string.len() + 1].into_boxed_slice());
    }
    let mut fallback = 0;
    for (state, terminal) in string.iter().enumerate() {
        for row in steps.iter_mut().flatten() {
            row[state] = row[fallback];
        }
        let next_fallback = steps[*terminal as usize].as_ref().map_or(0, |row| row[fallback]) as usize;
        if let Some(row) = &mut steps[*terminal as usize] {
            row[state] = state as u32 + 1;
        }
        fallback = if state == 0 { 0 } else { next_fallback };
    }
    for row in steps.iter_mut().flatten() {
        row[string.len()] = row[fallback];
    }
    steps
}

impl Iterator for Occurrences<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let grammar = self.pattern.grammar;
        while let Some(rest) = self.open.last_mut() {
            let Some(place) = rest.next() else {
                self.open.pop();
                continue;
            };
            let item = grammar.decode_item(grammar.items[place]);
            let (state_after, matches) = self.pattern.state_and_matches_after(item, self.state);
            match item {
                GrammarItem::Rule(rule) if matches > 0 => self.open.push(grammar.body_range(rule)),
                _ => {
                    self.state = state_after;
                    self.position += grammar.item_length(item);
                    if matches > 0 {
                        return Some(self.position - self.pattern.length as u64);
                    }
                }
            }
        }
        None
    }
}
