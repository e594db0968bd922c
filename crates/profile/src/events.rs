//! Events of paths: sums and sums of squares beside the counts, from which mean and standard deviation follow.
//!
//! In a raw file, a unit that sums events has several cells for each counter ([`trodden_unit::events`]). Sums may be negative, because the
//! estimated cost of reading the event counter is subtracted. Sums of squares are never negative.
//!
//! Invariant: events belong to counters in ascending order, and none is listed whose sum and squares are both zero.

use crate::sum;
use serde::{Deserialize, Serialize};
use trodden_unit::events::CELLS;

/// Events of all executions of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEvents {
    /// Sum of its own events: without those of paths of callees, and of reading the counter.
    pub sum: i128,
    /// Sum of the squares of each execution's.
    pub squares: u128,
}

impl PathEvents {
    /// Events of one execution, on average. `count` is the number of executions.
    pub fn mean(&self, count: u64) -> f64 {
        if count == 0 { 0.0 } else { self.sum as f64 / count as f64 }
    }

    /// Standard deviation of one execution's events.
    pub fn deviation(&self, count: u64) -> f64 {
        if count == 0 {
            return 0.0;
        }
        // Computed over a common denominator where that is exact: the difference of two large and nearly equal
        // floating-point numbers is not.
        let count = u128::from(count);
        let exact = || self.squares.checked_mul(count)?.checked_sub(self.sum.unsigned_abs().checked_mul(self.sum.unsigned_abs())?);
        let mean = self.sum as f64 / count as f64;
        let variance = match exact() {
            Some(difference) => difference as f64 / (count as f64 * count as f64),
            None => (self.squares as f64 / count as f64 - mean * mean).max(0.0),
        };
        variance.sqrt()
    }

    fn add(self, other: PathEvents) -> PathEvents {
        PathEvents { sum: self.sum.saturating_add(other.sum), squares: self.squares.saturating_add(other.squares) }
    }
}

/// Counts, and events, by counter.
pub type CountsAndEvents = (Vec<(u64, u64)>, Vec<(u64, PathEvents)>);

/// Splits the cells of a unit that sums up events into counts and events. `overflow` has by how much cells are above the largest word.
pub fn split_cells(cells: &[(u64, u64)], overflow: &[(u64, u128)]) -> CountsAndEvents {
    let excess = |at: u64| overflow.binary_search_by_key(&at, |o| o.0).map_or(0, |place| overflow[place].1);
    let wide = cells.iter().map(|&(at, value)| (at, u128::from(value) + excess(at)));
    let (mut counts, mut events) = (Vec::new(), Vec::new());
    let mut cells = wide.peekable();
    while let Some(&(first, _)) = cells.peek() {
        let counter = first / CELLS;
        let mut path = [0u128; CELLS as usize];
        while let Some((at, value)) = cells.next_if(|(at, _)| at / CELLS == counter) {
            path[(at % CELLS) as usize] = value;
        }
        let [count, sum, low, high] = path;
        if count > 0 {
            counts.push((counter, u64::try_from(count).unwrap_or(u64::MAX)));
        }
        // Each thread's sum is modulo 2^64, and so is the sum over all threads.
        let sum = i128::from(sum as u64 as i64);
        let squares = u64::try_from(high).ok().and_then(|high| (u128::from(high) << 64).checked_add(low)).unwrap_or(u128::MAX);
        if sum != 0 || squares != 0 {
            events.push((counter, PathEvents { sum, squares }));
        }
    }
    (counts, events)
}

/// The sum of two lists.
pub fn merge(one: &[(u64, PathEvents)], other: &[(u64, PathEvents)]) -> Vec<(u64, PathEvents)> {
    let mut all = sum::merge(one, other, PathEvents::add);
    all.retain(|(_, events)| *events != PathEvents::default());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_those_of_the_definition() {
        let values = [3i64, -1, 900, 17, 17, 0];
        let events = PathEvents {
            sum: values.iter().map(|v| i128::from(*v)).sum(),
            squares: values.iter().map(|v| (i128::from(*v) * i128::from(*v)) as u128).sum(),
        };
        let n = values.len() as f64;
        let mean = values.iter().sum::<i64>() as f64 / n;
        let deviation = (values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
        assert!((events.mean(6) - mean).abs() < 1e-9 && (events.deviation(6) - deviation).abs() < 1e-9);
        assert_eq!((PathEvents::default().mean(0), PathEvents::default().deviation(0)), (0.0, 0.0));
        // A large mean does not drown a small deviation.
        let near = PathEvents { sum: 2 * 1_000_000_000_000 + 1, squares: 1_000_000_000_000u128.pow(2) + 1_000_000_000_001u128.pow(2) };
        assert_eq!(near.deviation(2), 0.5);
    }

    #[test]
    fn cells_come_apart_with_their_carries() {
        // Of two threads: -5 and 2; squares whose low halves overflow together.
        let mut sums = crate::sum::Sums::default();
        for (at, value) in [(4, 1), (5, -5i64 as u64), (6, u64::MAX), (7, 3), (8, 9), (4, 2), (5, 2), (6, 5), (7, 4)] {
            sums.add(at, value);
        }
        let (counts, overflow) = sums.finish();
        let (counts, events) = split_cells(&counts, &overflow);
        assert_eq!(counts, [(1, 3), (2, 9)]);
        assert_eq!(events, [(1, PathEvents { sum: -3, squares: (8 << 64) + 4 })]);
        let back = PathEvents { sum: 3, squares: 0 };
        assert_eq!(merge(&events, &[(0, back), (1, back)]), [(0, back), (1, PathEvents { sum: 0, squares: (8 << 64) + 4 })]);
        assert_eq!(merge(&[(0, back)], &[(0, PathEvents { sum: -3, squares: 0 })]), []);
    }
}
