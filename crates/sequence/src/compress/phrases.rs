//! Compression by phrases: the sequence is cut into phrases at positions that depend on its content, equal phrases become one symbol, and
//! Sequitur compresses the sequence of phrases. Most symbols cost one multiplication and one comparison; Sequitur processes about one
//! symbol in twenty.
//!
//! A phrase ends where a hash of the last four symbols has a certain form. Equal ranges are therefore cut alike, whatever surrounds them,
//! except near their start. Content-defined cuts are due to A. Muthitacharoen, B. Chen and D. Mazières, "A low-bandwidth network file
//! system" (SOSP 2001); the hash of shifts and additions is due to W. Xia and others, "Ddelta" (2014). Equal phrases share a number. They
//! are found by hash and then compared, because hashes may collide.

use super::hashing::BuildSymbolHasher;
use super::{Compressor, Sequitur};
use crate::grammar::{GrammarItem, RULE_BIT, RawRules, TerminalNumbering};
use crate::{Grammar, SequenceError};
use std::collections::HashMap;

/// Minimum number of symbols in a phrase, except for the last phrase.
const MIN_PHRASE_LENGTH: usize = 4;
/// Maximum number of symbols in a phrase. Without it, a run of equal symbols could form a phrase of any length.
const MAX_PHRASE_LENGTH: usize = 256;
/// Number of upper bits of the hash that are 0 where a phrase ends. With four bits, this happens at one symbol in sixteen.
const ZERO_HASH_BITS_AT_PHRASE_END: u32 = 4;
/// Arbitrary odd multipliers for the hashes.
const HASH_SPREAD_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const HASH_FOLD_MULTIPLIER: u64 = 0xff51_afd7_ed55_8ccd;

/// Compresses a sequence by phrases whose ends depend on the content.
#[derive(Default)]
pub struct Phrases {
    upper: Sequitur,
    open_phrase: Vec<u64>,
    /// Hash of the last four symbols.
    window_hash: u64,
    open_hash: u64,
    symbols: Vec<u64>,
    /// For each phrase, the index in `symbols` of its end.
    ends: Vec<u32>,
    numbers: HashMap<u64, u32, BuildSymbolHasher>,
}

impl Phrases {
    fn phrase(&self, number: usize) -> &[u64] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.symbols[start..self.ends[number] as usize]
    }

    fn close_phrase(&mut self) {
        // Hash collisions are resolved by linear probing.
        let mut place = self.open_hash;
        let number = loop {
            match self.numbers.get(&place) {
                Some(&number) if self.phrase(number as usize) == self.open_phrase => break number,
                Some(_) => place = place.wrapping_add(1),
                None => {
                    let number = self.ends.len() as u32;
                    self.numbers.insert(place, number);
                    self.symbols.extend_from_slice(&self.open_phrase);
                    self.ends.push(self.symbols.len() as u32);
                    break number;
                }
            }
        };
        self.upper.push(u64::from(number));
        self.open_phrase.clear();
        self.open_hash = 0;
    }
}

impl Compressor for Phrases {
    #[inline]
    fn push(&mut self, symbol: u64) {
        self.open_phrase.push(symbol);
        let spread = symbol.wrapping_mul(HASH_SPREAD_MULTIPLIER);
        self.window_hash = (self.window_hash << 16).wrapping_add(spread);
        self.open_hash = (self.open_hash.rotate_left(23) ^ spread).wrapping_mul(HASH_FOLD_MULTIPLIER);
        let length = self.open_phrase.len();
        if (self.window_hash >> (64 - ZERO_HASH_BITS_AT_PHRASE_END) == 0 && length >= MIN_PHRASE_LENGTH) || length >= MAX_PHRASE_LENGTH {
            self.close_phrase();
        }
    }

    fn item_count_in_memory(&self) -> usize {
        // A symbol takes at most half as much memory here as an item in Sequitur.
        self.upper.item_count_in_memory() + self.symbols.len() / 2 + self.ends.len()
    }

    fn close(mut self: Box<Self>) -> Result<Grammar, SequenceError> {
        if !self.open_phrase.is_empty() {
            self.close_phrase();
        }
        let upper = Box::new(std::mem::take(&mut self.upper)).close()?;
        let mut terminals = TerminalNumbering::default();
        let mut bodies: Vec<Vec<u32>> = Vec::with_capacity(self.ends.len() + upper.rule_count());
        for number in 0..self.ends.len() {
            bodies.push(self.phrase(number).iter().map(|symbol| terminals.number(*symbol)).collect());
        }
        let phrases = bodies.len() as u32;
        for rule in upper.rules() {
            let mut body = Vec::with_capacity(upper.body(rule).len());
            for item in upper.body(rule) {
                body.push(match item {
                    GrammarItem::Rule(child) => RULE_BIT | (phrases + child.0),
                    GrammarItem::Terminal(terminal) => match bodies[upper.terminals()[terminal.0 as usize] as usize][..] {
                        [single] => single,
                        _ => RULE_BIT | upper.terminals()[terminal.0 as usize] as u32,
                    },
                });
            }
            bodies.push(body);
        }
        let root = bodies.len() - 1;
        RawRules { terminals: terminals.list, bodies, root }.inline_single_uses().grammar()
    }
}
