//! Compression of symbols by prediction. Programs repeat themselves, so the last three symbols usually determine the next one.
//!
//! A table predicts, from a hash of the last three symbols, the symbol that followed them the last time. Stored are one bit per symbol,
//! which is 1 if the prediction was wrong, and then the symbols with wrong predictions as LEB128 numbers. This leaves little for a general
//! compressor to do. Encoding has no branches that depend on the symbols, because the processor would often mispredict them.

use crate::numbers::{Cursor, push_number};

/// Number of bits of an index into the table, which fits into the first-level cache.
const INDEX_BITS: u32 = 12;

/// Number of entries of the table.
const TABLE_SIZE: usize = 1 << INDEX_BITS;

const WORD_BITS: u32 = u64::BITS;

/// The bits of a symbol that are part of later contexts. The upper bits, in which a trace stores the calls and returns before a block, are
/// determined by the symbols themselves.
pub const CONTEXT_MASK: u32 = (1 << 29) - 1;

/// A hash of the last three symbols, from which the next one is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PredictionContext(u32);

impl PredictionContext {
    /// Returns the index of this context's entry in the table.
    #[inline]
    fn slot(self) -> usize {
        (self.0 >> (u32::BITS - INDEX_BITS)) as usize
    }

    /// Returns the context after another symbol. The earliest symbol is shifted out.
    #[inline]
    fn after(self, symbol: u32) -> Self {
        // The multiplier is 2^32 / φ, which mixes the lower bits into the upper ones.
        Self(self.0 << 11 ^ (symbol & CONTEXT_MASK).wrapping_mul(0x9e37_79b1))
    }
}

/// Encodes symbols one by one.
#[derive(Debug, Default)]
pub struct PredictionEncoder {
    table: Vec<u32>,
    context: PredictionContext,
    count: u32,
    /// For each 64 symbols, a word whose lowest bit belongs to the first of them.
    is_wrong: Vec<u64>,
    /// The bits of the last up to 63 symbols, which are not in `is_wrong` yet.
    last_bits: u64,
    /// The symbols with wrong predictions, followed by unused elements.
    literals: Vec<u32>,
    literal_count: usize,
    bytes: Vec<u8>,
}

impl PredictionEncoder {
    /// Discards what was encoded, and starts again without knowledge of earlier symbols.
    pub fn begin(&mut self) {
        self.table.clear();
        self.table.resize(TABLE_SIZE, 0);
        self.is_wrong.clear();
        (self.context, self.count, self.last_bits, self.literal_count) = (PredictionContext::default(), 0, 0, 0);
    }

    /// Returns the number of symbols encoded so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Encodes a symbol.
    pub fn push(&mut self, symbol: u32) {
        let mut next = Some(symbol);
        self.push_while(1, || next.take());
    }

    /// Encodes the symbols that `next` returns until it returns `None`, but at most `limit`.
    #[inline]
    pub fn push_while(&mut self, limit: u32, mut next: impl FnMut() -> Option<u32>) {
        let table: &mut [u32; TABLE_SIZE] = self.table.as_mut_slice().try_into().expect("`begin` was called");
        let mut left = limit;
        while left > 0 {
            // All symbols are written to `literals`, but only those with wrong predictions advance the position.
            if self.literals.len() < self.literal_count + WORD_BITS as usize {
                self.literals.resize(2 * self.literals.len() + WORD_BITS as usize, 0);
            }
            let literals = self.literals[self.literal_count..].first_chunk_mut::<{ WORD_BITS as usize }>().expect("it was resized");
            let mut literal_count = 0;
            // Local variables stay in registers.
            let (mut context, mut bits) = (self.context, self.last_bits);
            let first = self.count % WORD_BITS;
            let end = WORD_BITS.min(first.saturating_add(left));
            let mut bit = first;
            while bit < end {
                let Some(symbol) = next() else { break };
                let predicted = &mut table[context.slot()];
                let is_wrong = *predicted != symbol;
                *predicted = symbol;
                literals[literal_count % literals.len()] = symbol;
                literal_count += usize::from(is_wrong);
                bits |= u64::from(is_wrong) << bit;
                context = context.after(symbol);
                bit += 1;
            }
            self.literal_count += literal_count;
            self.context = context;
            self.count += bit - first;
            left -= bit - first;
            if bit == WORD_BITS {
                self.is_wrong.push(bits);
                bits = 0;
            }
            self.last_bits = bits;
            if bit < end {
                break;
            }
        }
    }

    /// Returns the encoded symbols. After this, only [`Self::begin`] may follow.
    pub fn finish(&mut self) -> &[u8] {
        self.bytes.clear();
        self.is_wrong.push(self.last_bits);
        self.bytes.extend(self.is_wrong.iter().flat_map(|word| word.to_le_bytes()));
        self.bytes.truncate(self.count.div_ceil(u8::BITS) as usize);
        self.literals[..self.literal_count].iter().for_each(|symbol| push_number(rotated_symbol(*symbol).into(), &mut self.bytes));
        &self.bytes
    }
}

/// Moves the upper bits of a symbol, which [`CONTEXT_MASK`] excludes, to the other end, so that small numbers remain small.
fn rotated_symbol(symbol: u32) -> u32 {
    symbol.rotate_left(CONTEXT_MASK.leading_zeros())
}

/// Decodes `count` symbols; `None` if the bytes are malformed.
pub fn decode_by_prediction(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let (is_wrong, rest) = bytes.split_at_checked(count.div_ceil(u8::BITS as usize))?;
    let mut rest = Cursor(rest);
    let mut table = [0_u32; TABLE_SIZE];
    let mut context = PredictionContext::default();
    let mut symbols: Vec<u64> = Vec::with_capacity(count);
    for (number, bits) in (0..).step_by(u8::BITS as usize).zip(is_wrong) {
        for bit in 0..u8::BITS {
            let is_wrong = bits >> bit & 1 == 1;
            if number + bit as usize >= count {
                if is_wrong {
                    return None;
                }
                continue;
            }
            let predicted = &mut table[context.slot()];
            if is_wrong {
                *predicted = u32::try_from(rest.number()?).ok()?.rotate_right(CONTEXT_MASK.leading_zeros());
            }
            let symbol = *predicted;
            context = context.after(symbol);
            symbols.push(symbol.into());
        }
    }
    rest.0.is_empty().then_some(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(symbols: &[u32]) -> Vec<u8> {
        let mut encoder = PredictionEncoder::default();
        encoder.begin();
        let mut rest = symbols.iter().copied();
        // In two parts, as if the encoder had been interrupted.
        encoder.push_while(symbols.len() as u32 / 2, || rest.next());
        encoder.push_while(u32::MAX, || rest.next());
        assert_eq!(encoder.count() as usize, symbols.len());
        encoder.finish().to_vec()
    }

    #[test]
    fn symbols_are_decoded_and_repetitions_take_no_room() {
        let mut state = 7_u32;
        let mut random = |limit: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % limit
        };
        let loops: Vec<u32> = (0..20_000).map(|n| n % 97 * 1000).collect();
        let mut mixed: Vec<u32> = (0..5000).map(|_| random(30)).collect();
        mixed.extend([u32::MAX, 0, 0, 0, u32::MAX - 1, 1 << 29, 7 << 29]);
        for symbols in [&[][..], &[0], &[0; 10], &[5, 6, 7], &loops, &mixed, &loops[..loops.len() - 1]] {
            let bytes = encoded(symbols);
            let expected: Vec<u64> = symbols.iter().map(|symbol| u64::from(*symbol)).collect();
            assert_eq!(decode_by_prediction(&bytes, symbols.len()), Some(expected));
        }
        // Some predictions are wrong, because a few of the 97 contexts may share a table entry.
        assert!(encoded(&loops).len() < loops.len() / 4, "{}", encoded(&loops).len());
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        let symbols: Vec<u32> = (0..300).map(|n| n % 7).collect();
        let bytes = encoded(&symbols);
        assert!((0..bytes.len()).all(|length| decode_by_prediction(&bytes[..length], symbols.len()).is_none()));
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(decode_by_prediction(&longer, symbols.len()).is_none());
        // A bit after the last symbol, and a symbol that is too large.
        assert_eq!(decode_by_prediction(&[2, 0], 1), None);
        assert_eq!(decode_by_prediction(&[1, 0xff, 0xff, 0xff, 0xff, 0x7f], 1), None);
    }
}
