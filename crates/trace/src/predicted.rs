//! Compression of symbols by prediction. Programs repeat themselves, so the last three symbols usually determine the next one.
//!
//! A table predicts, from a hash of the last three symbols, the symbol that followed them the last time. Runs of correct predictions are
//! encoded by their lengths, each followed by the symbol that ended the run, as LEB128 numbers. This costs about 3 ns per symbol and
//! leaves little for a general compressor to do.

use crate::numbers::{Cursor, push_number};

/// Number of bits of an index into the table, which fits into the first-level cache.
const INDEX_BITS: u32 = 12;

/// The prediction of the next symbol.
struct SymbolPredictor {
    table: Vec<u32>,
    /// A hash of the last three symbols. Earlier symbols are shifted out.
    context: u32,
}

impl SymbolPredictor {
    fn new() -> Self {
        Self { table: vec![0; 1 << INDEX_BITS], context: 0 }
    }

    /// Returns the table entry with the predicted symbol.
    #[inline]
    fn prediction(&mut self) -> &mut u32 {
        &mut self.table[(self.context >> (u32::BITS - INDEX_BITS)) as usize]
    }

    /// Adds a symbol to the context of the next prediction.
    #[inline]
    fn advance(&mut self, symbol: u32) {
        // The multiplier is 2^32 / φ, which mixes the lower bits into the upper ones.
        self.context = self.context << 11 ^ symbol.wrapping_mul(0x9e37_79b1);
    }
}

/// Appends the encoded symbols.
pub fn encode_by_prediction(symbols: &[u32], into: &mut Vec<u8>) {
    let mut predictor = SymbolPredictor::new();
    let mut run = 0;
    for &symbol in symbols {
        let predicted = predictor.prediction();
        if *predicted == symbol {
            run += 1;
        } else {
            *predicted = symbol;
            push_number(run, into);
            push_number(symbol.into(), into);
            run = 0;
        }
        predictor.advance(symbol);
    }
    if run > 0 {
        push_number(run, into);
    }
}

/// Decodes `count` symbols; `None` if the bytes are malformed.
pub fn decode_by_prediction(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let mut rest = Cursor(bytes);
    let mut predictor = SymbolPredictor::new();
    let mut symbols: Vec<u64> = Vec::with_capacity(count);
    while symbols.len() < count {
        let run = usize::try_from(rest.number()?).ok().filter(|run| *run <= count - symbols.len())?;
        for _ in 0..run {
            let symbol = *predictor.prediction();
            predictor.advance(symbol);
            symbols.push(symbol.into());
        }
        if symbols.len() < count {
            let symbol = u32::try_from(rest.number()?).ok()?;
            *predictor.prediction() = symbol;
            predictor.advance(symbol);
            symbols.push(symbol.into());
        }
    }
    rest.0.is_empty().then_some(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(symbols: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_by_prediction(symbols, &mut bytes);
        bytes
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
        mixed.extend([u32::MAX, 0, 0, 0, u32::MAX - 1]);
        for symbols in [&[][..], &[0], &[0; 10], &[5, 6, 7], &loops, &mixed, &loops[..loops.len() - 1]] {
            let bytes = encoded(symbols);
            let expected: Vec<u64> = symbols.iter().map(|symbol| u64::from(*symbol)).collect();
            assert_eq!(decode_by_prediction(&bytes, symbols.len()), Some(expected));
        }
        // Some predictions are wrong, because a few of the 97 contexts may share a table entry.
        assert!(encoded(&loops).len() < loops.len() / 5, "{}", encoded(&loops).len());
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        let symbols: Vec<u32> = (0..300).map(|n| n % 7).collect();
        let bytes = encoded(&symbols);
        assert!(decode_by_prediction(&bytes, symbols.len() - 1).is_none() && decode_by_prediction(&bytes, symbols.len() + 1).is_none());
        assert!((0..bytes.len()).all(|length| decode_by_prediction(&bytes[..length], symbols.len()).is_none()));
        // A run that is too long, and a symbol that is too large.
        assert_eq!(decode_by_prediction(&[4], 3), None);
        assert_eq!(decode_by_prediction(&[0, 0xff, 0xff, 0xff, 0xff, 0x7f], 1), None);
    }
}
