//! Locally consistent parsing: equal ranges of the sequence become equal rules, whatever surrounds them, except near the ranges' ends.
//!
//! On each level, a run of equal items becomes one item. Then a block begins at each item whose hash is smaller than its neighbours'
//! hashes, and each block becomes one item of the next level, which has at most half the items. Equal blocks and runs share a rule. Hashes
//! depend on symbols only, so equal parts of different windows and of different executions are parsed alike. After K. Mehlhorn, R. Sundar
//! and C. Uhrig, "Maintaining dynamic sequences under equality tests in polylogarithmic time" (Algorithmica 1997); with runs: A. Jeż,
//! "Recompression" (J. ACM 2016).

use super::Compressor;
use super::hashing::{BuildSymbolHasher, mix_bits};
use crate::grammar::{RULE_BIT, RawRules, TerminalNumbering};
use crate::{Grammar, SequenceError};
use std::collections::HashMap;

/// Compresses a sequence by locally consistent parsing.
#[derive(Default)]
pub struct LocallyConsistent {
    rules: RuleTable,
    levels: Vec<PendingParseLevel>,
}

/// One level of the parse, with the items that were not yet passed to the level above.
#[derive(Default)]
struct PendingParseLevel {
    /// The latest item, and how often it has been repeated so far.
    run: Option<(u32, u64)>,
    /// Items of the block that is not yet complete. The last one may turn out to begin the next block.
    block: Vec<u32>,
    last_hash: u64,
    /// True if `last_hash` is smaller than the hash before it.
    is_falling: bool,
    pushed: u64,
}

#[derive(Default)]
struct RuleTable {
    terminals: TerminalNumbering,
    starts: Vec<u32>,
    items: Vec<u32>,
    /// For each rule, a hash of the symbols that the rule generates.
    hashes: Vec<u64>,
    numbers: HashMap<u64, u32, BuildSymbolHasher>,
}

impl LocallyConsistent {
    /// Pushes an item to a level, and completed blocks to the levels above.
    fn push_item(&mut self, level: usize, item: u32) {
        if self.levels.len() == level {
            self.levels.push(PendingParseLevel::default());
        }
        let here = &mut self.levels[level];
        here.pushed += 1;
        match &mut here.run {
            Some((repeated, times)) if *repeated == item => *times += 1,
            run => {
                if let Some((repeated, times)) = run.replace((item, 1)) {
                    let item = self.rules.find_or_add_run_rule(repeated, times);
                    self.extend_block(level, item);
                }
            }
        }
    }

    /// Appends an item that differs from its predecessor to the current block of a level.
    fn extend_block(&mut self, level: usize, item: u32) {
        let hash = mix_bits(self.rules.hash(item) ^ (level as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let here = &mut self.levels[level];
        let mut done = None;
        if here.is_falling && here.last_hash < hash {
            let begins = here.block.split_off(here.block.len() - 1);
            done = Some(std::mem::replace(&mut here.block, begins));
        }
        here.is_falling = !here.block.is_empty() && hash < here.last_hash;
        here.last_hash = hash;
        here.block.push(item);
        if let Some(done) = done {
            let item = self.rules.find_or_add_block_rule(&done);
            self.push_item(level + 1, item);
        }
    }

    /// Passes the remaining items of a level to the level above.
    fn flush_level(&mut self, level: usize) {
        if let Some((item, times)) = self.levels[level].run.take() {
            let item = self.rules.find_or_add_run_rule(item, times);
            self.extend_block(level, item);
        }
        let block = std::mem::take(&mut self.levels[level].block);
        if !block.is_empty() {
            let item = self.rules.find_or_add_block_rule(&block);
            self.push_item(level + 1, item);
        }
    }
}

impl Compressor for LocallyConsistent {
    fn push(&mut self, symbol: u64) {
        let item = self.rules.terminals.number(symbol);
        self.push_item(0, item);
    }

    fn item_count_in_memory(&self) -> usize {
        self.rules.items.len() + self.rules.starts.len() + self.rules.terminals.list.len()
    }

    fn close(mut self: Box<Self>) -> Result<Grammar, SequenceError> {
        let mut level = 0;
        // The lowest level that received only one item is the top.
        while level < self.levels.len() && (self.levels[level].pushed > 1 || level + 1 < self.levels.len()) {
            self.flush_level(level);
            level += 1;
        }
        let root: Vec<u32> = self.levels.get(level).and_then(|top| top.run).map(|run| run.0).into_iter().collect();
        let rules = self.rules;
        let ends = rules.starts.iter().skip(1).copied().chain([rules.items.len() as u32]);
        let mut bodies: Vec<Vec<u32>> =
            rules.starts.iter().zip(ends).map(|(start, end)| rules.items[*start as usize..end as usize].to_vec()).collect();
        let root_rule = bodies.len();
        bodies.push(root);
        RawRules { terminals: rules.terminals.list, bodies, root: root_rule }.inline_single_uses().grammar()
    }
}

impl RuleTable {
    fn hash(&self, item: u32) -> u64 {
        if item & RULE_BIT == 0 { mix_bits(self.terminals.list[item as usize] ^ 1) } else { self.hashes[(item & !RULE_BIT) as usize] }
    }

    fn find_or_add_block_rule(&mut self, block: &[u32]) -> u32 {
        if let [item] = block {
            return *item;
        }
        let hash = block.iter().fold(block.len() as u64, |sum, item| mix_bits(sum.rotate_left(17) ^ self.hash(*item)));
        // Hash collisions are resolved by linear probing.
        let mut place = hash;
        while let Some(&rule) = self.numbers.get(&place) {
            if self.body(rule) == block {
                return RULE_BIT | rule;
            }
            place = place.wrapping_add(1);
        }
        let rule = self.starts.len() as u32;
        self.numbers.insert(place, rule);
        self.starts.push(self.items.len() as u32);
        self.items.extend_from_slice(block);
        self.hashes.push(hash);
        RULE_BIT | rule
    }

    /// Returns the item for a run of equal items. Each rule doubles an item, and the binary digits of `times` select the doubled items.
    fn find_or_add_run_rule(&mut self, item: u32, times: u64) -> u32 {
        let mut powers = Vec::new();
        let (mut power, mut rest) = (item, times);
        loop {
            if rest & 1 == 1 {
                powers.push(power);
            }
            rest >>= 1;
            if rest == 0 {
                powers.reverse();
                return self.find_or_add_block_rule(&powers);
            }
            power = self.find_or_add_block_rule(&[power, power]);
        }
    }

    fn body(&self, rule: u32) -> &[u32] {
        let start = self.starts[rule as usize] as usize;
        let end = self.starts.get(rule as usize + 1).map_or(self.items.len(), |end| *end as usize);
        &self.items[start..end]
    }
}
