//! Summary statistics, and the rank test.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MedianAndRange {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl MedianAndRange {
    /// Summarises measurements. All fields are 0 if there are none.
    pub fn from_values(values: &[f64]) -> MedianAndRange {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return MedianAndRange { median: 0.0, min: 0.0, max: 0.0 };
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        MedianAndRange { median, min, max }
    }

    /// Returns the range relative to the median.
    pub fn relative_width(self) -> f64 {
        if self.median > 0.0 { (self.max - self.min) / self.median } else { 0.0 }
    }
}

/// Returns the geometric mean; `None` if there are no ratios.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    if ratios.is_empty() {
        return None;
    }
    let logarithms: f64 = ratios.iter().map(|r| r.ln()).sum();
    Some((logarithms / ratios.len() as f64).exp())
}

/// Returns the p-value of the exact two-sided rank-sum test (Wilcoxon 1945; Mann and Whitney 1947), with mid-ranks for ties. The p-value is
/// 1 if a sample is empty.
pub fn rank_sum_p_value(a: &[f64], b: &[f64]) -> f64 {
    let ranks = doubled_ranks(&[a, b].concat());
    let total: usize = ranks.iter().sum();
    // `ways[k][s]` is the number of ways to choose k ranks with the sum s.
    let mut ways = vec![vec![0.0_f64; total + 1]; a.len() + 1];
    ways[0][0] = 1.0;
    for rank in &ranks {
        for chosen in (1..=a.len()).rev() {
            for sum in (*rank..=total).rev() {
                ways[chosen][sum] += ways[chosen - 1][sum - rank];
            }
        }
    }
    // Both sums are multiplied by the number of values, so that the mean is an integer.
    let distance = |sum: usize| (sum * ranks.len()).abs_diff(total * a.len());
    let own = distance(ranks[..a.len()].iter().sum());
    let (all, far) = ways[a.len()]
        .iter()
        .enumerate()
        .fold((0.0, 0.0), |(all, far), (sum, ways)| (all + ways, if distance(sum) >= own { far + ways } else { far }));
    far / all
}

/// Returns twice the rank of each value. Doubling makes the ranks of ties integers.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|v| *v < value).count();
        let equal = values.iter().filter(|v| *v == value).count();
        2 * below + equal + 1
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separated_samples_have_the_smallest_p_value() {
        // Of the 252 ways to choose 5 of 10 values, 2 are as extreme as these samples; of the 20 ways to choose 3 of 6, also 2.
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((rank_sum_p_value(&low, &high) - 2.0 / 252.0).abs() < 1e-12);
        assert!((rank_sum_p_value(&high, &low) - 2.0 / 252.0).abs() < 1e-12);
        assert!((rank_sum_p_value(&low[..3], &high[..3]) - 0.1).abs() < 1e-12);
        assert_eq!(rank_sum_p_value(&low, &low), 1.0);
        assert_eq!(rank_sum_p_value(&[], &low), 1.0);
    }

    #[test]
    fn p_value_equals_enumeration() {
        let values = [3.0, 1.0, 2.0, 2.0, 5.0, 2.0, 7.0];
        let sum = |chosen: u32| -> i64 { (0..7).filter(|i| chosen >> i & 1 == 1).map(|i| doubled_ranks(&values)[i] as i64).sum() };
        let far = |chosen: u32| (7 * sum(chosen) - 3 * sum(127)).abs();
        let all: Vec<u32> = (0..128).filter(|c: &u32| c.count_ones() == 3).collect();
        let expected = all.iter().filter(|c| far(**c) >= far(0b111)).count() as f64 / all.len() as f64;
        assert!((rank_sum_p_value(&values[..3], &values[3..]) - expected).abs() < 1e-12);
    }

    #[test]
    fn spread_is_the_median_with_the_range() {
        assert_eq!(MedianAndRange::from_values(&[3.0, 1.0, 2.0]), MedianAndRange { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(MedianAndRange::from_values(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(MedianAndRange::from_values(&[3.0, 1.0, 2.0]).relative_width(), 1.0);
    }

    #[test]
    fn geometric_mean_of_2_and_one_half_is_1() {
        let mean = geometric_mean(&[2.0, 0.5]).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }
}
