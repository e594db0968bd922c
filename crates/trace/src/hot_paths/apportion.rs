//! Apportions integers in proportion to weights.

/// Splits a number in proportion to weights by the method of largest remainders: each part is the exact share rounded up or down, and the
/// parts add up to the number. All parts are 0 if all weights are 0.
pub fn apportion(number: u64, weights: &[f64]) -> Vec<u64> {
    apportion_within_limits(number, weights, &vec![u64::MAX; weights.len()])
}

/// Like [`apportion`], but no part exceeds its limit. If all limits are reached, the rest goes to the part with the largest weight.
pub fn apportion_within_limits(number: u64, weights: &[f64], limits: &[u64]) -> Vec<u64> {
    let total: f64 = weights.iter().sum();
    if total <= 0.0 {
        return vec![0; weights.len()];
    }
    let exact = |at: usize| number as f64 * weights[at] / total;
    let mut parts: Vec<u64> = (0..weights.len()).map(|at| ((exact(at) + 1e-9) as u64).min(limits[at])).collect();
    // Shares above 2^53 are inexact, and the parts must not add up to more than the number.
    let mut sum = 0_u64;
    parts.iter_mut().for_each(|part| {
        *part = (*part).min(number - sum);
        sum += *part;
    });
    let mut left = number - sum;
    let mut order: Vec<usize> = (0..weights.len()).filter(|at| weights[*at] > 0.0).collect();
    let missing = |parts: &[u64], at: usize| exact(at) - parts[at] as f64;
    order.sort_by(|a, b| missing(&parts, *b).total_cmp(&missing(&parts, *a)));
    for at in &order {
        let more = (missing(&parts, *at).ceil().max(0.0) as u64).min(limits[*at] - parts[*at]).min(left);
        parts[*at] += more;
        left -= more;
    }
    for at in &order {
        let more = (limits[*at] - parts[*at]).min(left);
        parts[*at] += more;
        left -= more;
    }
    if let Some(largest) = order.iter().copied().max_by(|a, b| weights[*a].total_cmp(&weights[*b])) {
        parts[largest] += left;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_are_near_their_shares() {
        assert_eq!(apportion(10, &[1.0, 1.0, 1.0]), [4, 3, 3]);
        assert_eq!(apportion(7, &[0.0, 2.0, 5.0]), [0, 2, 5]);
        assert_eq!(apportion(1, &[0.3, 0.4, 0.3]), [0, 1, 0]);
        assert_eq!(apportion(5, &[0.0, 0.0]), [0, 0]);
        assert_eq!(apportion(3, &[]), [0; 0]);
        assert_eq!(apportion_within_limits(10, &[1.0, 1.0, 1.0], &[1, 9, 9]), [1, 5, 4]);
        assert_eq!(apportion_within_limits(10, &[1.0, 3.0], &[2, 2]), [2, 8]);
    }

    #[test]
    fn parts_of_large_numbers_add_up() {
        let weights: Vec<f64> = (1..60).map(|n| 1.0 / f64::from(n)).collect();
        for number in [1, 59, 12_345, 1 << 40, (1 << 60) + 1] {
            assert_eq!(apportion(number, &weights).iter().sum::<u64>(), number);
        }
    }
}
