//! Sums of counters, as lists of (index, count) that are sorted by index and contain no zeros. Sums saturate on overflow.

use std::collections::BTreeMap;

/// The sums, and the excess over `u64::MAX` of each sum that saturated.
pub type SparseSums = (Vec<(u64, u64)>, Vec<(u64, u128)>);

/// Sums counts that are added in any order. Each time the list of counts has doubled, it is summed up, so it takes at most about twice the
/// memory of the result.
#[derive(Debug, Default)]
pub struct CountSums {
    list: Vec<(u64, u64)>,
    /// Length of the beginning of `list` that is already sorted and summed.
    summed_length: usize,
    /// Excess over `u64::MAX` of each sum that saturated, by index.
    overflow: BTreeMap<u64, u128>,
}

impl CountSums {
    pub fn add(&mut self, index: u64, count: u64) {
        self.list.push((index, count));
        if self.list.len() >= 4096 && self.list.len() >= 2 * self.summed_length {
            self.sort_and_sum();
        }
    }

    /// Adds a count that may be greater than `u64::MAX`.
    pub fn add_wide(&mut self, index: u64, count: u128) {
        let low = u64::try_from(count).unwrap_or(u64::MAX);
        self.add(index, low);
        if count > u128::from(low) {
            *self.overflow.entry(index).or_default() += count - u128::from(low);
        }
    }

    /// Returns the sums, and the excess over `u64::MAX` of each sum that saturated.
    pub fn into_sparse_sums(mut self) -> SparseSums {
        self.sort_and_sum();
        self.list.retain(|c| c.1 != 0);
        (self.list, self.overflow.into_iter().collect())
    }

    fn sort_and_sum(&mut self) {
        // The list consists of a few ascending runs, which the stable sort merges in linear time.
        self.list.sort_by_key(|c| c.0);
        self.list.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                let before = kept.1;
                kept.1 = before.saturating_add(next.1);
                if let Some(excess) = excess_over_u64(before, next.1) {
                    *self.overflow.entry(kept.0).or_default() += excess;
                }
            }
            same
        });
        self.summed_length = self.list.len();
    }
}

/// Returns the excess of a sum over `u64::MAX`; `None` if it does not overflow.
fn excess_over_u64(one: u64, other: u64) -> Option<u128> {
    (u128::from(one) + u128::from(other)).checked_sub(u128::from(u64::MAX)).filter(|e| *e > 0)
}

/// Merges two lists that are sorted by index. Values with the same index are combined by `add`.
pub fn merge<T: Copy>(one: &[(u64, T)], other: &[(u64, T)], add: impl Fn(T, T) -> T) -> Vec<(u64, T)> {
    let mut out = Vec::with_capacity(one.len().max(other.len()));
    let (mut a, mut b) = (one.iter().peekable(), other.iter().peekable());
    loop {
        match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x.0 == y.0 => {
                out.push((x.0, add(x.1, y.1)));
                a.next();
                b.next();
            }
            (Some(x), Some(y)) if x.0 < y.0 => out.extend(a.next()),
            (Some(_), None) => out.extend(a.by_ref()),
            (_, Some(_)) => out.extend(b.next()),
            (None, None) => return out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_sorted_and_saturate() {
        let mut sums = CountSums::default();
        for round in 0..3000 {
            sums.add(7, 1);
            sums.add(round % 5, 2);
        }
        sums.add(9, u64::MAX);
        sums.add(9, 3);
        sums.add(1 << 60, 1);
        let expected = [(0, 1200), (1, 1200), (2, 1200), (3, 1200), (4, 1200), (7, 3000), (9, u64::MAX), (1 << 60, 1)];
        assert_eq!(sums.into_sparse_sums(), (expected.to_vec(), vec![(9, 3)]));
    }

    #[test]
    fn counts_above_64_bits_are_returned_as_excess() {
        let mut sums = CountSums::default();
        sums.add_wide(3, u128::from(u64::MAX) + 5);
        sums.add_wide(3, 2);
        sums.add_wide(4, 7);
        assert_eq!(sums.into_sparse_sums(), (vec![(3, u64::MAX), (4, 7)], vec![(3, 7)]));
    }

    #[test]
    fn merging_times_keeps_the_earlier_ones() {
        assert_eq!(merge(&[(1, 9), (4, 2)], &[(0, 5), (1, 3), (4, 7)], u64::min), [(0, 5), (1, 3), (4, 2)]);
    }

    #[test]
    fn merging_adds_counts_of_equal_indices() {
        let merge = |one: &[(u64, u64)], other: &[(u64, u64)]| merge(one, other, u64::saturating_add);
        assert_eq!(merge(&[(1, 1), (3, u64::MAX), (9, 2)], &[(0, 5), (3, 1), (4, 4)]), [(0, 5), (1, 1), (3, u64::MAX), (4, 4), (9, 2)]);
        assert_eq!(merge(&[], &[(2, 1)]), [(2, 1)]);
        assert_eq!(merge(&[(2, 1)], &[]), [(2, 1)]);
    }
}
