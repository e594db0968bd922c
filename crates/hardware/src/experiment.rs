//! Experimental designs: which combinations of factor levels to run, and how to compute each factor's effect (section 5.5.2, table 5.4).
//!
//! Two-level designs with few runs follow R. L. Plackett and J. P. Burman, *The design of optimum multifactorial experiments*, Biometrika
//! 33, 1946: the rows are all cyclic shifts of a published row, followed by a row of low levels. For each pair of factors, all pairs of
//! levels occur equally often.

use crate::error::HardwareError;

/// Published first rows of the designs with 8, 12, 16, 20 and 24 runs; `+` is the high level.
const PLACKETT_BURMAN_FIRST_ROWS: [&str; 5] =
    ["+++-+--", "++-+++---+-", "++++-+-++--+---", "++--++++-+-+----++-", "+++++-+-++--++--+-+----"];

/// An experimental design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExperimentalDesign {
    /// All combinations of levels.
    FullFactorial,
    /// A small subset of the combinations of two-level factors.
    PlackettBurman {
        /// True if each combination is run a second time with all levels swapped. The effects are then free of two-factor interactions.
        foldover: bool,
    },
}

/// The effect of a factor on the response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FactorEffect {
    /// Index of the factor.
    pub factor: usize,
    /// Mean response at the factor's last level minus mean response at its first level.
    pub effect: f64,
    /// Rank among all factors by absolute effect; the strongest factor has rank 1.
    pub rank: usize,
}

/// Returns the combinations that a design runs. Each has a level, counted from 0, for every factor; `levels` contains each factor's number
/// of levels.
///
/// # Errors
/// Fails if a full factorial design has no combinations or more than 65536. Also fails if a Plackett-Burman design has more than
/// 23 factors, or a factor that does not have exactly two levels.
pub fn level_combinations(design: ExperimentalDesign, levels: &[usize]) -> Result<Vec<Vec<usize>>, HardwareError> {
    match design {
        ExperimentalDesign::FullFactorial => full_factorial(levels),
        ExperimentalDesign::PlackettBurman { foldover } => plackett_burman(levels, foldover),
    }
}

fn full_factorial(levels: &[usize]) -> Result<Vec<Vec<usize>>, HardwareError> {
    const MAX_COMBINATIONS: usize = 1 << 16;
    let number = levels.iter().try_fold(1usize, |all, level| all.checked_mul(*level)).unwrap_or(usize::MAX);
    if !(1..=MAX_COMBINATIONS).contains(&number) {
        return Err(HardwareError::parameter("combinations", number, "between 1 and 65536, so reduce factors or levels"));
    }
    let combination = |mut number: usize| {
        let digit = |level: &usize| {
            let digit = number % level;
            number /= level;
            digit
        };
        levels.iter().map(digit).collect()
    };
    Ok((0..number).map(combination).collect())
}

fn plackett_burman(levels: &[usize], foldover: bool) -> Result<Vec<Vec<usize>>, HardwareError> {
    if let Some(other) = levels.iter().find(|l| **l != 2) {
        return Err(HardwareError::parameter("levels of a factor", other, "two, low and high, in a Plackett-Burman design"));
    }
    let Some(first) = PLACKETT_BURMAN_FIRST_ROWS.into_iter().find(|row| row.len() >= levels.len()) else {
        return Err(HardwareError::parameter("factors", levels.len(), "at most 23 in a Plackett-Burman design"));
    };
    let first: Vec<usize> = first.bytes().map(|b| usize::from(b == b'+')).collect();
    let shifted = |shift: usize| (0..levels.len()).map(|at| first[(at + first.len() - shift) % first.len()]).collect();
    let mut rows: Vec<Vec<usize>> = (0..first.len()).map(shifted).collect();
    rows.push(vec![0; levels.len()]);
    if foldover {
        let exchanged: Vec<Vec<usize>> = rows.iter().map(|row| row.iter().map(|l| 1 - l).collect()).collect();
        rows.extend(exchanged);
    }
    Ok(rows)
}

/// Computes the effect of each factor on the responses to the combinations.
pub fn compute_effects(combinations: &[Vec<usize>], levels: &[usize], responses: &[f64]) -> Vec<FactorEffect> {
    let mean = |factor: usize, level: usize| {
        let of_level = combinations.iter().zip(responses).filter(|(c, _)| c[factor] == level);
        let (number, sum) = of_level.fold((0u32, 0.0), |(number, sum), (_, response)| (number + 1, sum + response));
        sum / f64::from(number.max(1))
    };
    let effect = |factor: usize| mean(factor, levels[factor].saturating_sub(1)) - mean(factor, 0);
    let mut effects: Vec<FactorEffect> = (0..levels.len()).map(|factor| FactorEffect { factor, effect: effect(factor), rank: 0 }).collect();
    let mut order: Vec<usize> = (0..effects.len()).collect();
    order.sort_by(|a, b| effects[*b].effect.abs().total_cmp(&effects[*a].effect.abs()));
    order.into_iter().enumerate().for_each(|(rank, factor)| effects[factor].rank = rank + 1);
    effects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plackett_burman_designs_are_orthogonal() {
        for factors in 1..=23 {
            for foldover in [false, true] {
                let rows = level_combinations(ExperimentalDesign::PlackettBurman { foldover }, &vec![2; factors]).unwrap();
                assert!(rows.len().is_multiple_of(4));
                for one in 0..factors {
                    let high = rows.iter().filter(|r| r[one] == 1).count();
                    assert_eq!(2 * high, rows.len(), "{factors} factors");
                    for other in 0..one {
                        let both = rows.iter().filter(|r| r[one] == 1 && r[other] == 1).count();
                        assert_eq!(4 * both, rows.len(), "{factors} factors, {one} and {other}");
                    }
                }
            }
        }
    }

    #[test]
    fn effects_of_a_linear_response_are_found() {
        let levels = [2; 6];
        let weights = [1.0, -8.0, 0.0, 3.0, 0.5, -2.0];
        for design in [
            ExperimentalDesign::FullFactorial,
            ExperimentalDesign::PlackettBurman { foldover: false },
            ExperimentalDesign::PlackettBurman { foldover: true },
        ] {
            let rows = level_combinations(design, &levels).unwrap();
            let response = |row: &Vec<usize>| 10.0 + row.iter().zip(weights).map(|(l, w)| *l as f64 * w).sum::<f64>();
            let responses: Vec<f64> = rows.iter().map(response).collect();
            let found = compute_effects(&rows, &levels, &responses);
            assert!(found.iter().zip(weights).all(|(e, w)| (e.effect - w).abs() < 1e-9), "{found:?}");
            assert_eq!(found.iter().map(|e| e.rank).collect::<Vec<_>>(), [4, 1, 6, 2, 5, 3]);
        }
    }

    #[test]
    fn every_combination_occurs_once() {
        let rows = level_combinations(ExperimentalDesign::FullFactorial, &[3, 1, 2]).unwrap();
        let all: std::collections::BTreeSet<&Vec<usize>> = rows.iter().collect();
        assert_eq!((rows.len(), all.len()), (6, 6));
        assert!(level_combinations(ExperimentalDesign::FullFactorial, &[3, 0]).is_err());
        assert!(
            level_combinations(ExperimentalDesign::PlackettBurman { foldover: false }, &[2, 3])
                .unwrap_err()
                .to_string()
                .contains("low and high")
        );
        assert!(level_combinations(ExperimentalDesign::PlackettBurman { foldover: false }, &[2; 24]).is_err());
    }
}
