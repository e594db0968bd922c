//! Decides whether one register and one comparison can separate interesting paths from all others (thesis, lemma 3.3.1).
//!
//! A path's number is linear in its edges. So separating values exist if and only if no weighted set of interesting paths contains every
//! edge as often as a set of other paths with the same weight (Farkas). For example, `sacet` and `sbcdt` in figure 3.5 have the same edges
//! as `sacdt` and `sbcet`. The simplex method (Bland's rule; integers with a common denominator, after Edmonds) finds either the values or
//! the sets. It lists all paths, so the graph must be small.

use super::{InterestingSet, NumberingError};
use trodden_flow::{Dag, DagEdgeId, Numbering};

/// Maximum number of paths of a graph for which separation is decided.
pub const MAX_SEPARATED_PATHS: u64 = 4096;

/// Paths, each with a weight.
pub type WeightedPaths = Vec<(Vec<DagEdgeId>, i64)>;

/// The answer, with a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThresholdSeparation {
    /// With these values of the edges, interesting paths have negative numbers, others do not, and no two are equal.
    Separated(Vec<i64>),
    /// No values exist, because these interesting paths contain each edge as often as these other paths.
    Inseparable {
        /// Interesting paths with weights.
        interesting: WeightedPaths,
        /// Other paths with the same total weight.
        others: WeightedPaths,
    },
    /// Undecided, because there are too many paths, or a number overflows.
    Unknown,
}

/// Decides whether the paths of a set can be separated from all others. Fails if the set is too long to list.
pub fn decide_separation(dag: &Dag, all: &Numbering, set: &InterestingSet) -> Result<ThresholdSeparation, NumberingError> {
    if all.paths() > MAX_SEPARATED_PATHS {
        return Ok(ThresholdSeparation::Unknown);
    }
    let known = set.paths(dag)?;
    let paths: Vec<Vec<DagEdgeId>> = (0..all.paths()).filter_map(|id| all.path(dag, id)).collect();
    let mut interesting = vec![false; paths.len()];
    known.iter().for_each(|path| interesting[all.id(path) as usize] = true);
    Ok(find_threshold_or_proof(dag, &paths, &interesting).unwrap_or(ThresholdSeparation::Unknown))
}

/// Returns `None` if a number overflows.
fn find_threshold_or_proof(dag: &Dag, paths: &[Vec<DagEdgeId>], interesting: &[bool]) -> Option<ThresholdSeparation> {
    let edges = dag.edges().len();
    // A path's column is 1 at its edges, or -1 for other paths. The last row makes the interesting paths' weights sum to 1.
    let column = |(path, interesting): (&Vec<DagEdgeId>, &bool)| {
        let mut column = vec![0; edges + 1];
        path.iter().for_each(|e| column[e.index()] = if *interesting { 1 } else { -1 });
        column[edges] = i128::from(*interesting);
        column
    };
    let mut tableau = SimplexTableau::new(paths.iter().zip(interesting).map(column).collect(), edges + 1);
    while tableau.pivot()? {}
    if tableau.objective() == 0 {
        let weights = tableau.solution();
        let of = |side: bool| -> Option<WeightedPaths> {
            let own = weights.iter().filter(|(path, _)| interesting[*path] == side);
            own.map(|(path, weight)| Some((paths[*path].clone(), i64::try_from(*weight).ok()?))).collect()
        };
        return Some(ThresholdSeparation::Inseparable { interesting: of(true)?, others: of(false)? });
    }
    // The dual prices separate. Scaling them and adding Ball-Larus numbers makes all numbers different.
    let prices = tableau.dual_prices();
    let count = paths.len() as i128;
    let all = Numbering::ball_larus(dag).ok()?;
    let value = |e: usize| i64::try_from(prices[e].checked_mul(count)?.checked_add(all.values()[e].into())?).ok();
    Some(ThresholdSeparation::Separated((0..edges).map(value).collect::<Option<_>>()?))
}

/// The first phase of the simplex method, which minimises the sum of artificial variables.
struct SimplexTableau {
    /// Each row has the columns of the paths, the artificial variables, and the right side. The last row has the reduced costs.
    rows: Vec<Vec<i128>>,
    basis: Vec<usize>,
    paths: usize,
    denominator: i128,
}

impl SimplexTableau {
    fn new(columns: Vec<Vec<i128>>, height: usize) -> SimplexTableau {
        let paths = columns.len();
        let right = paths + height;
        let mut rows = vec![vec![0; right + 1]; height + 1];
        for (at, column) in columns.iter().enumerate() {
            for (row, value) in column.iter().enumerate() {
                rows[row][at] = *value;
                rows[height][at] -= value;
            }
        }
        (0..height).for_each(|row| rows[row][paths + row] = 1);
        rows[height - 1][right] = 1;
        rows[height][right] = -1;
        SimplexTableau { rows, basis: (paths..right).collect(), paths, denominator: 1 }
    }

    /// Makes one pivot step. Returns `Some(false)` at the optimum, and `None` if a number overflows.
    fn pivot(&mut self) -> Option<bool> {
        let (height, right) = (self.basis.len(), self.paths + self.basis.len());
        let Some(enters) = (0..self.paths).find(|at| self.rows[height][*at] < 0) else { return Some(false) };
        let mut leaves: Option<usize> = None;
        for row in (0..height).filter(|row| self.rows[*row][enters] > 0) {
            let less = match leaves {
                None => true,
                Some(other) => {
                    let own = self.rows[row][right].checked_mul(self.rows[other][enters])?;
                    let known = self.rows[other][right].checked_mul(self.rows[row][enters])?;
                    (own, self.basis[row]) < (known, self.basis[other])
                }
            };
            leaves = if less { Some(row) } else { leaves };
        }
        let leaves = leaves?;
        let pivot = self.rows[leaves][enters];
        let by = self.rows[leaves].clone();
        for (_, row) in self.rows.iter_mut().enumerate().filter(|(at, _)| *at != leaves) {
            let factor = row[enters];
            for (value, other) in row.iter_mut().zip(&by) {
                *value = value.checked_mul(pivot)?.checked_sub(factor.checked_mul(*other)?)? / self.denominator;
            }
        }
        self.denominator = pivot;
        self.basis[leaves] = enters;
        Some(true)
    }

    fn objective(&self) -> i128 {
        self.rows[self.basis.len()][self.paths + self.basis.len()]
    }

    /// Returns the paths with nonzero weights. The weights are reduced to integers without a common divisor.
    fn solution(&self) -> Vec<(usize, i128)> {
        let right = self.paths + self.basis.len();
        let own = self.basis.iter().zip(&self.rows).map(|(path, row)| (*path, row[right]));
        let mut found: Vec<(usize, i128)> = own.filter(|(path, weight)| *path < self.paths && *weight != 0).collect();
        found.sort_unstable();
        let divisor = found.iter().fold(0, |divisor, (_, weight)| greatest_common_divisor(divisor, *weight));
        found.iter_mut().for_each(|(_, weight)| *weight /= divisor.max(1));
        found
    }

    /// Returns the dual price of each row, times the denominator.
    fn dual_prices(&self) -> Vec<i128> {
        let last = &self.rows[self.basis.len()];
        (0..self.basis.len()).map(|row| self.denominator - last[self.paths + row]).collect()
    }
}

fn greatest_common_divisor(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
