//! Logarithms and powers to base two, between rational bounds.
//!
//! log2: halve or double into [1, 2), then one bit by each squaring, in fixed point with the lower bound rounded down
//! and the upper up (Knuth, TAOCP 1, section 1.2.2, exercise 25 ff.). 2^x: the product of square roots of square roots
//! of two for the bits of x, again rounded both ways. Fixed point carries [`GUARD`] more bits than are needed; where
//! both bounds no longer agree on a bit, the enclosure ends there and is wider.

use num_bigint::{BigInt, BigUint};
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// Bits that are carried beyond the precision.
const GUARD: u32 = 32;

/// A real number that lies between two rationals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosure {
    /// It is not below.
    pub low: BigRational,
    /// It is not above.
    pub high: BigRational,
}

impl Enclosure {
    /// A rational number.
    pub fn exactly(value: BigRational) -> Enclosure {
        Enclosure { low: value.clone(), high: value }
    }

    /// The sum.
    pub fn plus(&self, other: &Enclosure) -> Enclosure {
        Enclosure { low: &self.low + &other.low, high: &self.high + &other.high }
    }

    /// The product with a number that is not negative.
    pub fn times(&self, factor: &BigRational) -> Enclosure {
        Enclosure { low: &self.low * factor, high: &self.high * factor }
    }

    /// Whether a number lies in it.
    pub fn contains(&self, value: &BigRational) -> bool {
        &self.low <= value && value <= &self.high
    }

    /// Rounded outwards to `bits` after the point, so that numbers stay short.
    pub fn rounded(&self, bits: u32) -> Enclosure {
        let unit = BigRational::from_integer(BigInt::one() << bits);
        Enclosure { low: (&self.low * &unit).floor() / &unit, high: (&self.high * &unit).ceil() / &unit }
    }
}

/// The logarithm of a positive number, to about `bits` after the point.
pub fn log2(value: &BigRational, bits: u32) -> Enclosure {
    let mut whole = value.numer().bits() as i64 - value.denom().bits() as i64;
    let power = |n: i64| BigRational::from_integer(BigInt::one() << n.unsigned_abs());
    let scaled = |n: i64| if n >= 0 { value / power(n) } else { value * power(n) };
    if scaled(whole) < BigRational::one() {
        whole -= 1;
    }
    let mantissa = scaled(whole);
    let places = bits + GUARD;
    let unit = BigInt::one() << places;
    let scaled = mantissa * BigRational::from_integer(unit.clone());
    let (mut low, mut high) = (scaled.floor().to_integer(), scaled.ceil().to_integer());
    let two: BigInt = &unit << 1;
    let mut digits = BigInt::zero();
    let mut known = 0;
    // Each squaring doubles the logarithm: its next bit is whether the square has reached two.
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
    // The rest is the logarithm of what is left, in [0, 1], halved as often; of one it is nothing.
    let exact = low == unit && high == unit;
    let high = if exact { begin.clone() } else { &begin + last.recip() };
    Enclosure { low: begin, high }
}

/// Two to the power of what lies in an enclosure that is not negative, to about `bits` after the point.
pub fn exp2(exponent: &Enclosure, bits: u32) -> Enclosure {
    let exponent = exponent.rounded(bits);
    Enclosure { low: power(&exponent.low, bits, false), high: power(&exponent.high, bits, true) }
}

/// Two to the power of a number with at most `bits` after the point, rounded up or down.
fn power(exponent: &BigRational, bits: u32, up: bool) -> BigRational {
    debug_assert!(!exponent.is_negative());
    let whole = exponent.floor();
    let mut fraction = (exponent - &whole) * BigRational::from_integer(BigInt::one() << bits);
    let places = bits + GUARD;
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
    let whole = whole.to_integer().to_u64().expect("an entropy is no astronomical number");
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
            assert_eq!(log2(&value, 40), Enclosure::exactly(ratio(n, 1)));
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
    fn powers_undo_logarithms() {
        for (a, b) in [(3, 1), (6, 1), (7, 2), (1_000_003, 7), (8, 1)] {
            let value = ratio(a, b);
            let back = exp2(&log2(&value, 60), 60);
            assert!(back.contains(&value), "{a}/{b}: {back:?}");
            assert!((back.high - back.low) / value < ratio(1, 1 << 50));
        }
    }
}
