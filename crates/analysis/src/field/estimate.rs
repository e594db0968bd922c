//! Estimates for all users, based on the users whose copies count a path.
//!
//! If copies are distributed independently of what users do, the users who count a path are a simple random sample of all users, drawn
//! without replacement. Sums and their errors follow W. G. Cochran, "Sampling techniques" (third edition, 1977), sections 2.2 to 2.6.
//! Shares follow E. B. Wilson, "Probable inference, the law of succession, and statistical inference" (1927), with the sample size
//! corrected for drawing without replacement.

/// Half-width of a 95 % confidence interval, in standard deviations.
const NORMAL_QUANTILE_97_5: f64 = 1.96;

/// The users whose copy counts a path, as a sample of all users.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UserSample {
    /// Number of all users.
    pub all: u64,
    /// Number of users whose copy counts the path, from 1 to `all`.
    pub sampled: u64,
}

/// An estimate of the number of users who take a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsersEstimate {
    /// The estimated number.
    pub value: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end of the 95 % confidence interval.
    pub high: f64,
}

/// An estimate of the number of times that all users together executed a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CountEstimate {
    /// The estimated number.
    pub value: f64,
    /// Standard error, or `None` if only one of several users was sampled.
    pub error: Option<f64>,
}

impl UserSample {
    /// Estimates the number of users who take a path that `saw` users of the sample take.
    pub fn estimate_users(&self, saw: u64) -> UsersEstimate {
        let (all, watching, saw) = (self.all as f64, self.sampled as f64, saw as f64);
        let value = all * saw / watching;
        if self.sampled >= self.all {
            return UsersEstimate { value, low: value, high: value };
        }
        let (share, size) = (saw / watching, watching * (all - 1.0) / (all - watching));
        let square = NORMAL_QUANTILE_97_5 * NORMAL_QUANTILE_97_5;
        let centre = (share + square / (2.0 * size)) / (1.0 + square / size);
        let half = NORMAL_QUANTILE_97_5 / (1.0 + square / size) * (share * (1.0 - share) / size + square / (4.0 * size * size)).sqrt();
        // How many users of the sample take the path, and how many do not, is certain. These numbers bound the interval.
        let (min, max) = (saw, all - (watching - saw));
        UsersEstimate { value, low: (all * (centre - half)).clamp(min, value), high: (all * (centre + half)).clamp(value, max) }
    }

    /// Estimates the executions by all users from the sample's sum of executions and sum of squares.
    pub fn count(&self, sum: u64, squares: f64) -> CountEstimate {
        let (all, watching) = (self.all as f64, self.sampled as f64);
        let mean = sum as f64 / watching;
        let value = all * mean;
        let error = match self.sampled {
            n if n >= self.all => Some(0.0),
            1 => None,
            _ => {
                let variance = ((squares - watching * mean * mean) / (watching - 1.0)).max(0.0);
                Some(all * (variance / watching * (1.0 - watching / all)).sqrt())
            }
        };
        CountEstimate { value, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executions by twelve users, the population.
    const EXECUTIONS_BY_USER: [u64; 12] = [0, 0, 0, 5, 1, 0, 90, 7, 7, 0, 0, 31];

    fn samples(size: u32) -> impl Iterator<Item = Vec<u64>> {
        let chosen = (0u32..1 << EXECUTIONS_BY_USER.len()).filter(move |set| set.count_ones() == size);
        chosen.map(|set| (0..EXECUTIONS_BY_USER.len()).filter(|at| set >> at & 1 == 1).map(|at| EXECUTIONS_BY_USER[at]).collect())
    }

    #[test]
    fn estimates_are_unbiased_over_all_samples() {
        let total: u64 = EXECUTIONS_BY_USER.iter().sum();
        let takers = EXECUTIONS_BY_USER.iter().filter(|n| **n > 0).count() as f64;
        let mut coverage = 0.0;
        for size in 2..=12 {
            let (mut number, mut sums, mut squares, mut errors, mut users, mut covered) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
            for counts in samples(size) {
                let sample = UserSample { all: 12, sampled: u64::from(size) };
                let of_count = sample.count(counts.iter().sum(), counts.iter().map(|c| (c * c) as f64).sum());
                let of_users = sample.estimate_users(counts.iter().filter(|c| **c > 0).count() as u64);
                number += 1.0;
                sums += of_count.value;
                squares += (of_count.value - total as f64).powi(2);
                errors += of_count.error.unwrap().powi(2);
                users += of_users.value;
                covered += f64::from(u8::from(of_users.low <= takers + 1e-9 && takers <= of_users.high + 1e-9));
            }
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
            assert!(close(sums / number, total as f64) && close(users / number, takers), "{size}");
            assert!(close(errors / number, squares / number), "{size}: {} {}", errors / number, squares / number);
            // With so few users, no interval has a coverage of exactly 95 %.
            assert!(covered / number >= 0.9, "{size}: {}", covered / number);
            coverage += covered / number / 11.0;
        }
        assert!(coverage >= 0.95, "{coverage}");
    }

    #[test]
    fn sample_of_one_user_has_no_standard_error() {
        let one = UserSample { all: 10, sampled: 1 };
        assert_eq!(one.count(3, 9.0), CountEstimate { value: 30.0, error: None });
        let UsersEstimate { low, high, .. } = one.estimate_users(1);
        assert!((1.0..3.0).contains(&low) && high == 10.0, "{low} {high}");
        assert_eq!(UserSample { all: 1, sampled: 1 }.count(3, 9.0), CountEstimate { value: 3.0, error: Some(0.0) });
    }
}
