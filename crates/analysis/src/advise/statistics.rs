//! Entropy of a distribution, and the probability that a random draw contains no marked item.

/// Returns the entropy in bits of a distribution that is given by counts.
pub fn entropy(counts: impl IntoIterator<Item = u64>) -> f64 {
    let counts: Vec<f64> = counts.into_iter().filter(|c| *c > 0).map(|c| c as f64).collect();
    let total: f64 = counts.iter().sum();
    let bits: f64 = counts.iter().map(|c| -(c / total) * (c / total).log2()).sum();
    bits.max(0.0)
}

/// Returns the negated decimal logarithm of the probability that `drawn` random items of `all` contain no `marked` item.
pub fn surprise_of_empty_draw(all: u64, marked: u64, drawn: u64) -> f64 {
    if marked.checked_add(drawn).is_none_or(|sum| sum > all) {
        return f64::INFINITY;
    }
    // The hypergeometric distribution at 0: (all - marked)! (all - drawn)! / (all! (all - marked - drawn)!)
    let ln = log_factorial(all - marked) + log_factorial(all - drawn) - log_factorial(all) - log_factorial(all - marked - drawn);
    (-ln / std::f64::consts::LN_10).max(0.0)
}

/// Returns the natural logarithm of `n!`, which is summed for small `n` and computed by Stirling's series otherwise.
fn log_factorial(n: u64) -> f64 {
    if n < 32 {
        return (2..=n).map(|i| (i as f64).ln()).sum();
    }
    let x = n as f64;
    x * x.ln() - x + 0.5 * (std::f64::consts::TAU * x).ln() + 1.0 / (12.0 * x) - 1.0 / (360.0 * x * x * x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_in_bits() {
        assert_eq!([entropy([5, 5]), entropy([1, 1, 1, 1]), entropy([7, 0]), entropy([])], [1.0, 2.0, 0.0, 0.0]);
    }

    #[test]
    fn surprise_equals_that_of_drawing_one_by_one() {
        for (all, marked, drawn) in [(10u64, 3, 4), (100, 40, 9), (1000, 17, 300), (50, 0, 20)] {
            let one_by_one: f64 = (0..drawn).map(|i| (((all - marked - i) as f64) / ((all - i) as f64)).log10()).sum();
            assert!((surprise_of_empty_draw(all, marked, drawn) + one_by_one).abs() < 1e-9, "{all} {marked} {drawn}");
        }
        assert_eq!(surprise_of_empty_draw(10, 6, 5), f64::INFINITY);
    }
}
