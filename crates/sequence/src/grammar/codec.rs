//! Serialisation of windows. Each window can be read alone, and a file consists of concatenated windows.
//!
//! | part | bytes |
//! |---|---|
//! | magic `TSEQ`, version, method | 6 |
//! | length of the payload, little-endian | 4 |
//! | payload | the length |
//! | XXH3 of everything before, little-endian | 8 |
//!
//! The payload consists of LEB128 numbers: the position of the window's first symbol in the sequence; the number of terminals; each
//! terminal, ordered by descending frequency in bodies; the number of rules; and for each rule the number of items, and each item. An item
//! is `2 t` for terminal `t`, and `2 (d - 1) + 1` for the rule that is `d` before this one. Each rule follows the rules it uses, so most
//! distances are small. The reader checks all bytes, including the invariants of [`Grammar`].

use super::{Grammar, GrammarItem, MAX_ITEMS, RuleId};
use crate::{CompressionMethod, SequenceError};
use std::collections::HashSet;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 4] = b"TSEQ";
const FORMAT_VERSION: u8 = 1;
/// Size in bytes of everything before the payload: magic, version, method and length.
const HEADER_SIZE: usize = 10;
const CHECKSUM_SIZE: usize = 8;

/// The grammar of a window, which is a range of a longer sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Position of the window's first symbol in the sequence.
    pub first: u64,
    /// The algorithm that created the grammar.
    pub method: CompressionMethod,
    /// The grammar of the window's symbols.
    pub grammar: Grammar,
}

impl Window {
    /// Appends the encoded window to `out`. Fails if the payload is 4 GiB or larger.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), SequenceError> {
        let begin = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[FORMAT_VERSION, self.method.code(), 0, 0, 0, 0]);
        self.write_payload(out);
        let payload = out.len() - begin - HEADER_SIZE;
        let size = u32::try_from(payload).map_err(|_| SequenceError::TooLarge { items: self.grammar.items.len(), max: MAX_ITEMS })?;
        out[begin + HEADER_SIZE - 4..begin + HEADER_SIZE].copy_from_slice(&size.to_le_bytes());
        let checksum = xxh3_64(&out[begin..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        Ok(())
    }

    fn write_payload(&self, out: &mut Vec<u8>) {
        let grammar = &self.grammar;
        let mut uses = vec![0_u64; grammar.terminals.len()];
        for item in &grammar.items {
            if let Some(uses) = uses.get_mut(*item as usize) {
                *uses += 1;
            }
        }
        let mut order: Vec<u32> = (0..uses.len() as u32).collect();
        order.sort_by_key(|t| std::cmp::Reverse(uses[*t as usize]));
        let mut numbers = vec![0; uses.len()];
        write_leb128(out, self.first);
        write_leb128(out, order.len() as u64);
        for (number, terminal) in (0..).zip(&order) {
            numbers[*terminal as usize] = number;
            write_leb128(out, grammar.terminals[*terminal as usize]);
        }
        write_leb128(out, grammar.rule_count() as u64);
        for rule in grammar.rules() {
            write_leb128(out, grammar.body(rule).len() as u64);
            for item in grammar.body(rule) {
                match item {
                    GrammarItem::Terminal(terminal) => write_leb128(out, numbers[terminal.0 as usize] << 1),
                    GrammarItem::Rule(child) => write_leb128(out, u64::from(rule.0 - child.0 - 1) << 1 | 1),
                }
            }
        }
    }
}

/// Decodes the window at the start of `bytes`. Returns the window and its encoded size. Returns [`SequenceError::Truncated`] if the bytes
/// end within the window, for example because the writer was killed.
pub fn read_window(bytes: &[u8]) -> Result<(Window, usize), SequenceError> {
    let truncated = |needed| SequenceError::Truncated { needed, available: bytes.len() };
    let header = bytes.get(..HEADER_SIZE).ok_or_else(|| truncated(HEADER_SIZE))?;
    if &header[..4] != MAGIC {
        return Err(SequenceError::Malformed { offset: 0, what: "not a window" });
    }
    if header[4] != FORMAT_VERSION {
        return Err(SequenceError::Version { found: header[4], newest: FORMAT_VERSION });
    }
    let method =
        CompressionMethod::from_code(header[5]).ok_or(SequenceError::Malformed { offset: 5, what: "unknown compression method" })?;
    let payload = u32::from_le_bytes([header[6], header[7], header[8], header[9]]) as usize;
    let end = HEADER_SIZE + payload;
    let checksum = bytes.get(end..end + CHECKSUM_SIZE).ok_or_else(|| truncated(end + CHECKSUM_SIZE))?;
    if xxh3_64(&bytes[..end]).to_le_bytes() != checksum {
        return Err(SequenceError::Malformed { offset: end, what: "wrong checksum" });
    }
    let mut reader = GrammarReader { bytes: &bytes[..end], offset: HEADER_SIZE };
    let first = reader.read_number()?;
    let grammar = reader.read_grammar()?;
    Ok((Window { first, method, grammar }, end + CHECKSUM_SIZE))
}

fn write_leb128(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

struct GrammarReader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl GrammarReader<'_> {
    fn fail_as_corrupt<T>(&self, what: &'static str) -> Result<T, SequenceError> {
        Err(SequenceError::Malformed { offset: self.offset, what })
    }

    fn read_number(&mut self) -> Result<u64, SequenceError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.offset) else { return self.fail_as_corrupt("truncated number") };
            if shift == 63 && byte > 1 {
                return self.fail_as_corrupt("a number has more than 64 bits");
            }
            self.offset += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        self.fail_as_corrupt("a number has more than 64 bits")
    }

    /// Reads a number of elements, and checks that the remaining bytes suffice for them. Each element takes at least one byte.
    fn read_count(&mut self) -> Result<usize, SequenceError> {
        let count = self.read_number()?;
        let rest = self.bytes.len() - self.offset;
        if count > rest as u64 { self.fail_as_corrupt("more elements are announced than there are bytes") } else { Ok(count as usize) }
    }

    fn read_grammar(&mut self) -> Result<Grammar, SequenceError> {
        let terminals: Vec<u64> = (0..self.read_count()?).map(|_| self.read_number()).collect::<Result<_, _>>()?;
        if terminals.iter().collect::<HashSet<_>>().len() != terminals.len() {
            return self.fail_as_corrupt("duplicate terminal");
        }
        let rules = self.read_count()?;
        let (mut starts, mut items, mut lengths) = (vec![0], Vec::new(), Vec::<u64>::with_capacity(rules));
        let mut used = vec![false; rules];
        for rule in 0..rules {
            let size = self.read_count()?;
            if size == 0 && rule + 1 < rules {
                return self.fail_as_corrupt("a rule other than the root is empty");
            }
            let mut length = 0_u64;
            for _ in 0..size {
                let (item, symbols) = self.read_item(&terminals, rule, &lengths, &mut used)?;
                items.push(item);
                let Some(sum) = length.checked_add(symbols) else { return self.fail_as_corrupt("the sequence has more than 2^64 symbols") };
                length = sum;
            }
            lengths.push(length);
            starts.push(items.len() as u32);
        }
        if rules == 0 || used.iter().take(rules - 1).any(|used| !used) {
            return self.fail_as_corrupt("the root is missing, or a rule is unused");
        }
        if self.offset != self.bytes.len() {
            return self.fail_as_corrupt("unexpected bytes after the last rule");
        }
        Ok(Grammar::from_parts(terminals, starts, items))
    }

    /// Reads an item. Returns the item and the number of symbols that it generates.
    fn read_item(&mut self, terminals: &[u64], rule: usize, lengths: &[u64], used: &mut [bool]) -> Result<(u32, u64), SequenceError> {
        let code = self.read_number()?;
        let number = code >> 1;
        if code & 1 == 0 {
            return if number < terminals.len() as u64 { Ok((number as u32, 1)) } else { self.fail_as_corrupt("no such terminal") };
        }
        if number >= rule as u64 {
            return self.fail_as_corrupt("a rule refers to a later rule");
        }
        let child = RuleId((rule as u64 - 1 - number) as u32);
        used[child.0 as usize] = true;
        Ok((terminals.len() as u32 + child.0, lengths[child.0 as usize]))
    }
}
