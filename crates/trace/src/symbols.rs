//! Sequences of recorded numbers. Nearly all of these are small: sites, and occasionally an address.

/// Marks the position of a number that does not fit into a word.
const WIDE_MARK: u32 = u32::MAX;

/// Recorded numbers in order, four bytes each if they are small.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    words: Vec<u32>,
    /// The numbers at the places marked by [`WIDE_MARK`], in order.
    wide: Vec<u64>,
}

impl Symbols {
    /// Appends a number.
    pub fn push(&mut self, symbol: u64) {
        match u32::try_from(symbol) {
            Ok(word) if word != WIDE_MARK => self.words.push(word),
            _ => {
                self.words.push(WIDE_MARK);
                self.wide.push(symbol);
            }
        }
    }

    /// Appends site numbers.
    pub fn extend(&mut self, sites: &[u32]) {
        debug_assert!(!sites.contains(&WIDE_MARK), "there are fewer sites");
        self.words.extend_from_slice(sites);
    }

    /// Returns the length of the sequence.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns true if the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Removes all numbers. The memory remains allocated.
    pub fn clear(&mut self) {
        self.words.clear();
        self.wide.clear();
    }

    /// Returns the numbers as 32-bit words, or `None` if one of them does not fit.
    pub fn as_words(&self) -> Option<&[u32]> {
        self.wide.is_empty().then_some(&self.words)
    }

    /// Returns the numbers in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut wide = self.wide.iter();
        self.words.iter().map(move |word| match *word {
            WIDE_MARK => *wide.next().expect("each mark has its number"),
            word => u64::from(word),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_kept_in_order() {
        let mut symbols = Symbols::default();
        symbols.extend(&[1, 2]);
        assert_eq!(symbols.as_words(), Some(&[1, 2][..]));
        for symbol in [u64::MAX, 7, u64::from(u32::MAX), u64::from(u32::MAX) - 1, 1 << 32] {
            symbols.push(symbol);
        }
        symbols.extend(&[3]);
        let expected = [1, 2, u64::MAX, 7, u64::from(u32::MAX), u64::from(u32::MAX) - 1, 1 << 32, 3];
        assert_eq!((symbols.iter().collect::<Vec<_>>(), symbols.len(), symbols.as_words()), (expected.to_vec(), 8, None));
        symbols.clear();
        assert!(symbols.is_empty() && symbols.iter().next().is_none());
    }
}
