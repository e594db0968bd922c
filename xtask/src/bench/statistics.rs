//! The few numbers that stand for many.

use serde::Serialize;

/// The middle and the ends of a set of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the measurements are below.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Spread {
    /// Of measurements; zeros where there are none.
    pub fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(&least), Some(&greatest)) = (sorted.first(), sorted.last()) else {
            return Spread { median: 0.0, least: 0.0, greatest: 0.0 };
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Spread { median, least, greatest }
    }

    /// How far the ends are apart, in parts of the median.
    pub fn width(self) -> f64 {
        if self.median > 0.0 { (self.greatest - self.least) / self.median } else { 0.0 }
    }
}

/// The geometric mean of ratios.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    if ratios.is_empty() {
        return None;
    }
    let logarithms: f64 = ratios.iter().map(|r| r.ln()).sum();
    Some((logarithms / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ends() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, greatest: 3.0 });
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).width(), 1.0);
    }

    #[test]
    fn twice_and_half_is_no_change() {
        let mean = geometric_mean(&[2.0, 0.5]).unwrap();
        assert!((mean - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }
}
