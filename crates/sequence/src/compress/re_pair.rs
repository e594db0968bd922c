//! Re-Pair: the most frequent pair of adjacent items becomes a rule, until no pair occurs twice.
//!
//! After N. J. Larsson and A. Moffat, "Off-line dictionary-based compression" (DCC 1999), but with a heap instead of their buckets. The
//! heap may contain outdated entries. Rules with only one use are inlined at the end. The algorithm needs the complete sequence, so it
//! works window by window, in O(n log n) time and with about 50 bytes of memory per symbol.

use super::Compressor;
use super::hashing::BuildSymbolHasher;
use crate::grammar::{RULE_BIT, RawRules, TerminalNumbering};
use crate::{Grammar, SequenceError};
use std::collections::{BinaryHeap, HashMap};

/// Represents a position, pair or item that does not exist.
const NO_POSITION: u32 = u32::MAX;

/// Re-Pair compressor. It only collects the symbols, and compresses them when the window is closed.
#[derive(Default)]
pub struct RePair {
    terminals: TerminalNumbering,
    symbols: Vec<u32>,
}

impl Compressor for RePair {
    fn push(&mut self, symbol: u64) {
        let number = self.terminals.number(symbol);
        self.symbols.push(number);
    }

    fn item_count_in_memory(&self) -> usize {
        self.symbols.len() + self.terminals.list.len()
    }

    fn close(self: Box<Self>) -> Result<Grammar, SequenceError> {
        let mut pairs = PairedSequence::new(self.symbols);
        let mut bodies = Vec::new();
        while let Some((pair, occurrences)) = pairs.pop_most_frequent_pair() {
            let rule = RULE_BIT | bodies.len() as u32;
            bodies.push(vec![pair.0, pair.1]);
            for place in occurrences {
                pairs.replace_pair(place, pair, rule);
            }
        }
        let root = bodies.len();
        bodies.push(pairs.items.into_iter().filter(|item| *item != NO_POSITION).collect());
        RawRules { terminals: self.terminals.list, bodies, root }.inline_single_uses().grammar()
    }
}

/// A sequence during the replacement of pairs. Each pair has a linked list of its positions.
struct PairedSequence {
    items: Vec<u32>,
    /// For each position, the next and the previous position that still contain an item.
    next: Vec<u32>,
    previous: Vec<u32>,
    /// For each position, the pair in whose list it is, and its neighbours in that list.
    listed_at: Vec<u32>,
    next_listed: Vec<u32>,
    previous_listed: Vec<u32>,
    known: Vec<ItemPair>,
    numbers: HashMap<u64, u32, BuildSymbolHasher>,
    /// Pairs, ordered by their number of positions. An entry is outdated if its number differs from the pair's current number.
    queue: BinaryHeap<(u32, std::cmp::Reverse<u32>)>,
}

struct ItemPair {
    items: (u32, u32),
    count: u32,
    first: u32,
}

impl PairedSequence {
    fn new(items: Vec<u32>) -> PairedSequence {
        let size = items.len();
        let mut pairs = PairedSequence {
            next: (1..=size as u32).map(|place| if place as usize == size { NO_POSITION } else { place }).collect(),
            previous: (0..size as u32).map(|place| place.wrapping_sub(1)).collect(),
            items,
            listed_at: vec![NO_POSITION; size],
            next_listed: vec![NO_POSITION; size],
            previous_listed: vec![NO_POSITION; size],
            known: Vec::new(),
            numbers: HashMap::default(),
            queue: BinaryHeap::new(),
        };
        (0..size as u32).for_each(|place| pairs.add_to_pair_list(place));
        pairs
    }

    /// Removes the most frequent pair from the queue. Returns the pair and its positions that do not overlap, of which there are at least
    /// two.
    fn pop_most_frequent_pair(&mut self) -> Option<((u32, u32), Vec<u32>)> {
        while let Some((count, std::cmp::Reverse(number))) = self.queue.pop() {
            let pair = &self.known[number as usize];
            if pair.count != count || count < 2 {
                continue;
            }
            let mut places = Vec::with_capacity(count as usize);
            let mut place = pair.first;
            while place != NO_POSITION {
                places.push(place);
                place = self.next_listed[place as usize];
            }
            places.sort_unstable();
            // In a run of equal items, occurrences of the pair overlap, so every second one is dropped.
            let mut overlapped = NO_POSITION;
            places.retain(|place| {
                let free = *place != overlapped;
                if free {
                    overlapped = self.next[*place as usize];
                }
                free
            });
            if places.len() >= 2 {
                return Some((pair.items, places));
            }
        }
        None
    }

    fn replace_pair(&mut self, place: u32, pair: (u32, u32), rule: u32) {
        let second = self.next[place as usize];
        debug_assert!(self.items[place as usize] == pair.0 && self.items[second as usize] == pair.1, "the place has another pair");
        let (left, right) = (self.previous[place as usize], self.next[second as usize]);
        for gone in [left, place, second] {
            self.remove_from_pair_list(gone);
        }
        self.items[place as usize] = rule;
        self.items[second as usize] = NO_POSITION;
        self.next[place as usize] = right;
        if right != NO_POSITION {
            self.previous[right as usize] = place;
        }
        self.add_to_pair_list(left);
        self.add_to_pair_list(place);
    }

    /// Adds a position to the list of the pair that begins at the position.
    fn add_to_pair_list(&mut self, place: u32) {
        if place == NO_POSITION || self.next[place as usize] == NO_POSITION {
            return;
        }
        let items = (self.items[place as usize], self.items[self.next[place as usize] as usize]);
        let next = self.known.len() as u32;
        let number = *self.numbers.entry(u64::from(items.0) << 32 | u64::from(items.1)).or_insert(next);
        if number == next {
            self.known.push(ItemPair { items, count: 0, first: NO_POSITION });
        }
        let pair = &mut self.known[number as usize];
        if pair.first != NO_POSITION {
            self.previous_listed[pair.first as usize] = place;
        }
        self.listed_at[place as usize] = number;
        self.next_listed[place as usize] = pair.first;
        self.previous_listed[place as usize] = NO_POSITION;
        pair.first = place;
        pair.count += 1;
        if pair.count >= 2 {
            self.queue.push((pair.count, std::cmp::Reverse(number)));
        }
    }

    fn remove_from_pair_list(&mut self, place: u32) {
        if place == NO_POSITION || self.listed_at[place as usize] == NO_POSITION {
            return;
        }
        let number = std::mem::replace(&mut self.listed_at[place as usize], NO_POSITION);
        let (before, after) = (self.previous_listed[place as usize], self.next_listed[place as usize]);
        let pair = &mut self.known[number as usize];
        if before == NO_POSITION {
            pair.first = after
        } else {
            self.next_listed[before as usize] = after
        }
        if after != NO_POSITION {
            self.previous_listed[after as usize] = before;
        }
        pair.count -= 1;
        if pair.count >= 2 {
            self.queue.push((pair.count, std::cmp::Reverse(number)));
        }
    }
}
