//! Quantiles of Student's t-distribution, for confidence intervals computed from few slices of a run. Source: Abramowitz and Stegun,
//! "Handbook of Mathematical Functions", 26.7.5.

use super::bursts::NORMAL_QUANTILE_95;

/// Returns the quantile for a two-sided 95% confidence interval. Exact for one and two degrees of freedom, interpolated in between, and
/// approximated by an expansion around the normal quantile for more.
pub(super) fn student_t_quantile_95(freedom: f64) -> f64 {
    const ONE_DEGREE: f64 = 12.706;
    const TWO_DEGREES: f64 = 4.303;
    let (z, n) = (NORMAL_QUANTILE_95, freedom.max(1.0));
    if n < 2.0 {
        return ONE_DEGREE + (TWO_DEGREES - ONE_DEGREE) * (n - 1.0);
    }
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1482.0 * z.powi(5) - 1920.0 * z.powi(3) - 945.0 * z) / 92_160.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| (sum + term) / n) + z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_agree_with_published_tables() {
        for (freedom, quantile) in [(1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1e6, 1.96)] {
            assert!((student_t_quantile_95(freedom) / quantile - 1.0).abs() < 0.03, "{freedom}: {}", student_t_quantile_95(freedom));
        }
    }
}
