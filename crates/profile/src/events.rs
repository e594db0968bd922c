//! Hardware or software events (such as cache misses) on each path. For each path and event, the number of events per execution is stored
//! as a sum and a sum of squares, which give the mean and the standard deviation.
//!
//! Sums may be negative, because the estimated cost of reading the hardware counter is subtracted. Lists are sorted by counter and have no
//! entries in which both sums are zero.

use crate::sum;
use serde::{Deserialize, Serialize};

/// Events during all executions of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEvents {
    /// Sum over all executions. Events in callees and the estimated cost of reading the hardware counter are excluded.
    pub sum: i128,
    /// Sum of squares over all executions.
    pub squares: u128,
}

impl PathEvents {
    /// Returns the mean number of events per execution. `count` is the path's number of executions.
    pub fn mean(&self, count: u64) -> f64 {
        if count == 0 { 0.0 } else { self.sum as f64 / count as f64 }
    }

    /// Returns the standard deviation of the number of events per execution. `count` is the path's number of executions.
    pub fn deviation(&self, count: u64) -> f64 {
        if count == 0 {
            return 0.0;
        }
        // Computes the variance with integers if they do not overflow, because the difference of two large, nearly equal floats is
        // inaccurate.
        let count = u128::from(count);
        let exact = || self.squares.checked_mul(count)?.checked_sub(self.sum.unsigned_abs().checked_mul(self.sum.unsigned_abs())?);
        let mean = self.sum as f64 / count as f64;
        let variance = match exact() {
            Some(difference) => difference as f64 / (count as f64 * count as f64),
            None => (self.squares as f64 / count as f64 - mean * mean).max(0.0),
        };
        variance.sqrt()
    }

    pub(crate) fn add(self, other: PathEvents) -> PathEvents {
        PathEvents { sum: self.sum.saturating_add(other.sum), squares: self.squares.saturating_add(other.squares) }
    }
}

/// Adds two lists of events, which are sorted by counter.
pub fn merge(one: &[(u64, PathEvents)], other: &[(u64, PathEvents)]) -> Vec<(u64, PathEvents)> {
    let mut all = sum::merge(one, other, PathEvents::add);
    all.retain(|(_, events)| *events != PathEvents::default());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_match_their_definitions() {
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
        // Two executions whose event counts differ by 1, a small fraction of their mean.
        let near = PathEvents { sum: 2 * 1_000_000_000_000 + 1, squares: 1_000_000_000_000u128.pow(2) + 1_000_000_000_001u128.pow(2) };
        assert_eq!(near.deviation(2), 0.5);
    }

    #[test]
    fn merging_drops_events_that_cancel_out() {
        let (back, events) = (PathEvents { sum: 3, squares: 0 }, [(1, PathEvents { sum: -3, squares: (8 << 64) + 4 })]);
        assert_eq!(merge(&events, &[(0, back), (1, back)]), [(0, back), (1, PathEvents { sum: 0, squares: (8 << 64) + 4 })]);
        assert_eq!(merge(&[(0, back)], &[(0, PathEvents { sum: -3, squares: 0 })]), []);
    }
}
