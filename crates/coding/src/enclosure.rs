//! Base-2 logarithms and powers as intervals with rational bounds.
//!
//! `log2` scales its argument into [1, 2) and obtains one bit per squaring, in fixed-point arithmetic that rounds the lower bound down and
//! the upper bound up (Knuth, TAOCP 1, section 1.2.2, exercises 25 ff.). `exp2` multiplies the iterated square roots of 2 that belong to
//! the set bits of its argument, rounded in the same way. Both compute [`ROUNDING_GUARD_BITS`] extra bits. At the first bit on which the
//! bounds disagree, `log2` stops and returns a wider interval.

use num_bigint::{BigInt, BigUint};
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

const ROUNDING_GUARD_BITS: u32 = 32;

/// An interval with rational ends that contains a real number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosure {
    /// Lower bound, inclusive.
    pub low: BigRational,
    /// Upper bound, inclusive.
    pub high: BigRational,
}

impl Enclosure {
    /// Returns the interval that contains only this number.
    pub fn exact(value: BigRational) -> Enclosure {
        Enclosure { low: value.clone(), high: value }
    }

    /// Returns an interval that contains the sum of the two enclosed numbers.
    pub fn plus(&self, other: &Enclosure) -> Enclosure {
        Enclosure { low: &self.low + &other.low, high: &self.high + &other.high }
    }

    /// Returns the interval scaled by `factor`, which must not be negative.
    pub fn times(&self, factor: &BigRational) -> Enclosure {
        Enclosure { low: &self.low * factor, high: &self.high * factor }
    }

    /// Returns true if `value` is between the bounds, inclusive.
    pub fn contains(&self, value: &BigRational) -> bool {
        &self.low <= value && value <= &self.high
    }

    /// Rounds the bounds outwards to `bits` fractional bits, to keep the numbers short.
    pub fn rounded(&self, bits: u32) -> Enclosure {
        let unit = BigRational::from_integer(BigInt::one() << bits);
        Enclosure { low: (&self.low * &unit).floor() / &unit, high: (&self.high * &unit).ceil() / &unit }
    }
}

/// Encloses the base-2 logarithm of a positive number, to about `bits` fractional bits.
pub fn log2(value: &BigRational, bits: u32) -> Enclosure {
    let mut whole = value.numer().bits() as i64 - value.denom().bits() as i64;
    let power = |n: i64| BigRational::from_integer(BigInt::one() << n.unsigned_abs());
    let scaled = |n: i64| if n >= 0 { value / power(n) } else { value * power(n) };
    if scaled(whole) < BigRational::one() {
        whole -= 1;
    }
    let mantissa = scaled(whole);
    let places = bits + ROUNDING_GUARD_BITS;
    let unit = BigInt::one() << places;
    let scaled = mantissa * BigRational::from_integer(unit.clone());
    let (mut low, mut high) = (scaled.floor().to_integer(), scaled.ceil().to_integer());
    let two: BigInt = &unit << 1;
    let mut digits = BigInt::zero();
    let mut known = 0;
    // Squaring doubles the logarithm, so its next bit is 1 if the square is at least 2.
    while known < bits && (low != unit || high != unit) {
        (low, high) = ((&low * &low) >> places, ((&high * &high) >> places) + 1);
        if low >= two {
            digits = (digits << 1) + 1;
            (low, high) = (low >> 1, (high >> 1) + 1);
        } else if high < two {
            digits <<= 1;
        } else {
            break;
        }
        known += 1;
    }
    let last = BigRational::from_integer(BigInt::one() << known);
    let fraction = BigRational::from_integer(digits) / &last;
    let begin = BigRational::from_integer(whole.into()) + fraction;
    // The rest is the logarithm of a number in [1, 2], divided by 2^known. It is 0 if that number is exactly 1.
    let exact = low == unit && high == unit;
    let high = if exact { begin.clone() } else { &begin + last.recip() };
    Enclosure { low: begin, high }
}

/// Encloses 2^x for all x in a non-negative interval, to about `bits` fractional bits.
pub fn exp2(exponent: &Enclosure, bits: u32) -> Enclosure {
    let exponent = exponent.rounded(bits);
    Enclosure { low: exp2_rounded(&exponent.low, bits, false), high: exp2_rounded(&exponent.high, bits, true) }
}

/// Returns 2^exponent for a non-negative exponent with at most `bits` fractional bits. The result is rounded up or down, as `up` says.
fn exp2_rounded(exponent: &BigRational, bits: u32, up: bool) -> BigRational {
    debug_assert!(!exponent.is_negative());
    let whole = exponent.floor();
    let mut fraction = (exponent - &whole) * BigRational::from_integer(BigInt::one() << bits);
    let places = bits + ROUNDING_GUARD_BITS;
    let unit = BigUint::one() << places;
    let mut product = unit.clone();
    let mut root = &unit << 1;
    let half = BigRational::from_integer(BigInt::one() << bits.saturating_sub(1));
    for _ in 0..bits {
        // sqrt(r / 2^p) = sqrt(r * 2^p) / 2^p
        let square: BigUint = &root << places;
        let below = square.sqrt();
        root = if up && &below * &below != square { below + 1u32 } else { below };
        if fraction >= half {
            fraction -= &half;
            product = (&product * &root + if up { &unit - 1u32 } else { BigUint::zero() }) >> places;
        }
        fraction *= BigRational::from_integer(2.into());
    }
    let whole = whole.to_integer().to_u64().expect("the exponent is an entropy in bits, which fits in 64 bits");
    BigRational::new(BigInt::from(product) << whole, BigInt::from(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(a: i64, b: i64) -> BigRational {
        BigRational::new(a.into(), b.into())
    }

    #[test]
    fn powers_of_two_are_exact() {
        for n in [-5i64, -1, 0, 1, 7, 40] {
            let value = if n >= 0 { ratio(1 << n, 1) } else { ratio(1, 1 << -n) };
            assert_eq!(log2(&value, 40), Enclosure::exact(ratio(n, 1)));
        }
    }

    #[test]
    fn logarithms_are_enclosed_closely() {
        for (a, b) in [(3, 1), (5, 1), (6, 1), (1, 3), (2, 3), (255, 256), (1_000_003, 7)] {
            let found = log2(&ratio(a, b), 40);
            let float = (a as f64 / b as f64).log2();
            assert!(found.low.to_f64().unwrap() <= float + 1e-12 && found.high.to_f64().unwrap() >= float - 1e-12, "{a}/{b}: {found:?}");
            assert!(found.high - found.low <= ratio(1, 1 << 40), "{a}/{b}");
        }
    }

    #[test]
    fn power_of_a_logarithm_is_the_number() {
        for (a, b) in [(3, 1), (6, 1), (7, 2), (1_000_003, 7), (8, 1)] {
            let value = ratio(a, b);
            let back = exp2(&log2(&value, 60), 60);
            assert!(back.contains(&value), "{a}/{b}: {back:?}");
            assert!((back.high - back.low) / value < ratio(1, 1 << 50));
        }
    }
}
