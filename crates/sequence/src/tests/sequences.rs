//! Random sequences that repeat as those of programs do: earlier ranges, runs of a symbol, and single symbols.

use trodden_testkit::Random;

pub fn random_sequence(seed: u64, max_symbols: usize) -> Vec<u64> {
    let mut random = Random::new(seed);
    let alphabet = [1, 2, 3, 8, 40][random.index(5)];
    let mut symbols = Vec::new();
    let length = random.index(max_symbols + 1);
    while symbols.len() < length {
        match random.below(5) {
            // Repeat an earlier range.
            0 | 1 if !symbols.is_empty() => {
                let start = random.index(symbols.len());
                let end = start + 1 + random.index(20.min(symbols.len() - start));
                let stretch = symbols[start..end].to_vec();
                (0..=random.index(4)).for_each(|_| symbols.extend_from_slice(&stretch));
            }
            // A run.
            2 => {
                let symbol = random.below(alphabet);
                symbols.extend(std::iter::repeat_n(symbol, random.index(9)));
            }
            _ => symbols.push(random.below(alphabet) * 1_000_003),
        }
    }
    symbols.truncate(length);
    symbols
}
