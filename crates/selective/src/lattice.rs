//! The vectors of numbers that interesting paths can have: an integer lattice in echelon form.
//!
//! Path sums depend on the values of chords, and on a constant that is added to all paths (on the out-edges of the entry). So the numbers
//! are `A w`, where `w` has these values and the constant. The matrix `A` has a row per path, a column per chord that some but not all of
//! the paths contain, and a column of ones. Integer column operations give the echelon form `H = A U`, `U` unimodular, so numbers are `H y`
//! for any integers `y`. A row either has a *pivot*, and its number can be chosen in steps of the pivot, or its number follows from the
//! previous ones. If all pivots exist and are 1, any numbers are possible (closed form). Rows are ordered so that numbers follow as early
//! as possible. Overflows are detected.

use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::dag::{Dag, DagEdgeId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NumberSearchResult {
    /// Numbers exist, and these lattice coefficients give them.
    Numbers(Vec<i64>),
    NoNumbers,
    Unfinished,
}

/// Maximum number of rows whose pairwise differences are computed, which takes quadratic time. With limits of 8 and 2,048, the functions of
/// three benchmark programs get the same numbers (docs/benchmarks/constants.md).
const MAX_PAIRWISE_COMPARED_ROWS: usize = 128;

/// The echelon form for a list of paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lattice {
    /// For each step of the numbering, the path whose number is determined.
    pub order: Vec<usize>,
    /// For each step, its row of `H` up to the last nonzero column.
    pub rows: Vec<Vec<i64>>,
    /// For each step, the pivot; `None` if the number follows from previous ones.
    pub pivots: Vec<Option<i64>>,
    /// For each pivot, the row differences whose values are known once the pivot's coefficient is chosen, even if neither row's number is
    /// known yet. Two paths' numbers differ by less than the span and not by zero, so any other difference prunes the search.
    pub differences: Vec<Vec<Vec<i64>>>,
    /// The columns of `U`. Each says how much one `y` adds to the value of every edge in `value_edges` and, last, to the constant.
    transform: Vec<Vec<i64>>,
    /// The edge that each column except the last belongs to. The last column is the constant.
    value_edges: Vec<DagEdgeId>,
}

impl Lattice {
    /// Returns the lattice of these paths. `None` if coefficients overflow.
    pub fn new(dag: &Dag, paths: &[Vec<DagEdgeId>]) -> Option<Lattice> {
        let (value_edges, rows) = incidence_matrix(dag, paths);
        let width = value_edges.len() + 1;
        let order = order_rows(&rows);
        let mut columns: Vec<Vec<i64>> = (0..width).map(|c| order.iter().map(|r| rows[*r][c]).collect()).collect();
        let mut transform: Vec<Vec<i64>> = (0..width).map(|c| (0..width).map(|r| i64::from(r == c)).collect()).collect();
        let mut rank = 0;
        let mut pivots = Vec::new();
        for row in 0..order.len() {
            eliminate_row(&mut columns, &mut transform, row, rank)?;
            let pivot = columns.get(rank).map(|c| c[row]).filter(|p| *p != 0);
            pivots.push(pivot);
            rank += usize::from(pivot.is_some());
        }
        let mut known = 0;
        let row = |(r, pivot): (usize, &Option<i64>)| {
            known += usize::from(pivot.is_some());
            (0..known).map(|c| columns[c][r]).collect()
        };
        let rows: Vec<Vec<i64>> = pivots.iter().enumerate().map(row).collect();
        transform.truncate(rank);
        let differences = group_differences(&rows, rank);
        Some(Lattice { order, rows, pivots, differences, transform, value_edges })
    }

    /// Returns the number of paths that can be numbered independently.
    pub fn rank(&self) -> usize {
        self.transform.len()
    }

    /// Returns true if the paths can have any numbers.
    pub fn has_all_numbers(&self) -> bool {
        self.pivots.iter().all(|p| *p == Some(1))
    }

    /// Returns the coefficients `y` that give these numbers, in the order of the paths, or `None` if no integer coefficients do.
    #[cfg(test)]
    fn solve(&self, numbers: &[i64]) -> Option<Vec<i64>> {
        let mut coefficients: Vec<i64> = Vec::new();
        for (step, row) in self.rows.iter().enumerate() {
            let known = dot_product(row, &coefficients)?;
            let left = numbers[self.order[step]].checked_sub(known)?;
            match self.pivots[step] {
                Some(pivot) if left % pivot == 0 => coefficients.push(left / pivot),
                None if left == 0 => {}
                _ => return None,
            }
        }
        Some(coefficients)
    }

    /// Returns the edge values for these coefficients, or `None` if one overflows.
    pub fn values(&self, dag: &Dag, coefficients: &[i64]) -> Option<Vec<i64>> {
        let of = |column: usize| -> Option<i64> {
            let terms = self.transform.iter().zip(coefficients).map(|(t, y)| t[column].checked_mul(*y));
            terms.into_iter().try_fold(0i64, |sum, term| sum.checked_add(term?))
        };
        let mut values = vec![0i64; dag.edges().len()];
        for (column, edge) in self.value_edges.iter().enumerate() {
            values[edge.index()] = of(column)?;
        }
        let constant = of(self.value_edges.len())?;
        for edge in dag.out(dag.entry()) {
            values[edge.index()] = values[edge.index()].checked_add(constant)?;
        }
        Some(values)
    }
}

/// Groups the differences between rows by the last pivot on which they depend. Of opposite differences, only one is listed.
fn group_differences(rows: &[Vec<i64>], rank: usize) -> Vec<Vec<Vec<i64>>> {
    let mut differences = vec![BTreeSet::new(); rank];
    if rows.len() > MAX_PAIRWISE_COMPARED_ROWS {
        return vec![Vec::new(); rank];
    }
    let at = |row: &[i64], column: usize| row.get(column).copied().unwrap_or(0);
    for (i, a) in rows.iter().enumerate() {
        for b in &rows[..i] {
            let mut difference: Vec<i64> = (0..rank).map(|c| at(a, c) - at(b, c)).collect();
            let Some(last) = difference.iter().rposition(|d| *d != 0) else { continue };
            let beyond = |row: &[i64]| (last + 1..rank).any(|c| at(row, c) != 0);
            if beyond(a) && beyond(b) {
                let sign = difference[last].signum();
                difference.truncate(last + 1);
                differences[last].insert(difference.iter().map(|d| d * sign).collect::<Vec<i64>>());
            }
        }
    }
    differences.into_iter().map(|d| d.into_iter().collect()).collect()
}

#[cfg(test)]
fn dot_product(row: &[i64], coefficients: &[i64]) -> Option<i64> {
    row.iter().zip(coefficients).try_fold(0i64, |sum, (a, b)| sum.checked_add(a.checked_mul(*b)?))
}

/// Returns the matrix `A`, with equal columns merged. The spanning tree consists of the first out-edge of each node.
fn incidence_matrix(dag: &Dag, paths: &[Vec<DagEdgeId>]) -> (Vec<DagEdgeId>, Vec<Vec<i64>>) {
    let mut paths_with: BTreeMap<DagEdgeId, Vec<usize>> = BTreeMap::new();
    for (number, path) in paths.iter().enumerate() {
        for &edge in path.iter().filter(|e| dag.out(dag.edge(**e).from)[0] != **e) {
            paths_with.entry(edge).or_default().push(number);
        }
    }
    let mut value_edges: BTreeMap<Vec<usize>, DagEdgeId> = BTreeMap::new();
    for (edge, by) in paths_with.into_iter().filter(|(_, by)| by.len() < paths.len()) {
        value_edges.entry(by).or_insert(edge);
    }
    let mut rows = vec![vec![0; value_edges.len() + 1]; paths.len()];
    for (column, by) in value_edges.keys().enumerate() {
        by.iter().for_each(|r| rows[*r][column] = 1);
    }
    rows.iter_mut().for_each(|r| r[value_edges.len()] = 1);
    (value_edges.into_values().collect(), rows)
}

/// Makes `row` zero in every column after `rank`, by Euclid's algorithm. Returns `None` if a number overflows.
fn eliminate_row(columns: &mut [Vec<i64>], transform: &mut [Vec<i64>], row: usize, rank: usize) -> Option<()> {
    loop {
        let nonzero: Vec<usize> = (rank..columns.len()).filter(|c| columns[*c][row] != 0).collect();
        let Some(&least) = nonzero.iter().min_by_key(|c| columns[**c][row].unsigned_abs()) else { return Some(()) };
        for &other in nonzero.iter().filter(|c| **c != least) {
            let times = columns[other][row].div_euclid(columns[least][row]);
            subtract_multiple(columns, other, least, times)?;
            subtract_multiple(transform, other, least, times)?;
        }
        if nonzero.len() == 1 {
            columns.swap(rank, least);
            transform.swap(rank, least);
            if columns[rank][row] < 0 {
                columns[rank].iter_mut().chain(transform[rank].iter_mut()).for_each(|v| *v = -*v);
            }
            return Some(());
        }
    }
}

fn subtract_multiple(columns: &mut [Vec<i64>], from: usize, what: usize, times: i64) -> Option<()> {
    for at in 0..columns[from].len() {
        columns[from][at] = columns[from][at].checked_sub(columns[what][at].checked_mul(times)?)?;
    }
    Some(())
}

/// Returns the order of the rows. Rows that follow from the previous ones come first, then the row after which most other rows follow.
fn order_rows(rows: &[Vec<i64>]) -> Vec<usize> {
    let mut basis = ModularBasis::default();
    let mut left: Vec<usize> = (0..rows.len()).collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let reduced: Vec<Vec<u64>> = left.iter().map(|r| basis.reduce_row(&rows[*r])).collect();
        let follows: Vec<bool> = reduced.iter().map(|r| r.iter().all(|v| *v == 0)).collect();
        if follows.contains(&true) {
            order.extend(left.iter().zip(&follows).filter(|(_, f)| **f).map(|(r, _)| *r));
            left = left.iter().zip(&follows).filter(|(_, f)| !**f).map(|(r, _)| *r).collect();
            continue;
        }
        // Of rows that are multiples of each other modulo the basis, choosing one makes the others follow.
        let normal: Vec<Vec<u64>> = reduced.iter().map(|r| scale_first_entry_to_one(r)).collect();
        let gain = |i: usize| normal.iter().filter(|n| **n == normal[i]).count();
        // Of rows with equal gain, the one with the fewest nonzero entries is chosen, so that other rows soon are linear combinations.
        let weight = |i: usize| reduced[i].iter().filter(|v| **v != 0).count();
        let best = (0..left.len()).max_by_key(|i| (gain(*i), std::cmp::Reverse(weight(*i)), std::cmp::Reverse(*i))).expect("some are left");
        basis.add_row(&rows[left[best]]);
        order.push(left.remove(best));
    }
    order
}

/// A basis modulo a prime. It only affects the order of the rows, and any order is correct, so calculating modulo a prime suffices.
#[derive(Default)]
struct ModularBasis {
    vectors: Vec<(usize, Vec<u64>)>,
}

const BASIS_PRIME: u64 = (1 << 31) - 1;

impl ModularBasis {
    fn reduce_row(&self, row: &[i64]) -> Vec<u64> {
        let mut row: Vec<u64> = row.iter().map(|v| v.rem_euclid(BASIS_PRIME as i64) as u64).collect();
        for (lead, vector) in &self.vectors {
            let times = row[*lead];
            if times != 0 {
                row.iter_mut().zip(vector).for_each(|(r, v)| *r = (*r + (BASIS_PRIME - times) * v) % BASIS_PRIME);
            }
        }
        row
    }

    fn add_row(&mut self, row: &[i64]) {
        let vector = scale_first_entry_to_one(&self.reduce_row(row));
        let lead = vector.iter().position(|v| *v != 0).expect("the row does not follow");
        for (_, other) in &mut self.vectors {
            let times = other[lead];
            other.iter_mut().zip(&vector).for_each(|(o, v)| *o = (*o + (BASIS_PRIME - times) * v) % BASIS_PRIME);
        }
        self.vectors.push((lead, vector));
    }
}

/// Returns the multiple of `row` whose first nonzero entry is 1.
fn scale_first_entry_to_one(row: &[u64]) -> Vec<u64> {
    let lead = row.iter().copied().find(|v| *v != 0).unwrap_or(1);
    let inverse = power_mod_prime(lead, BASIS_PRIME - 2);
    row.iter().map(|v| v * inverse % BASIS_PRIME).collect()
}

fn power_mod_prime(base: u64, mut exponent: u64) -> u64 {
    let (mut result, mut square) = (1, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result * square % BASIS_PRIME;
        }
        square = square * square % BASIS_PRIME;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_flow::dag::Entries;
    use trodden_flow::graph::{Graph, Node};

    /// Returns three pairs of parallel edges in series, and the three paths that take the second edge of exactly two pairs.
    fn diamonds() -> (Dag, Vec<Vec<DagEdgeId>>) {
        let edges = (0..3).flat_map(|d| [(Node(d), Node(d + 1)); 2]).collect();
        let dag = Dag::new(&Graph::new(4, Node(0), Node(3), edges).unwrap(), &[], Entries::PerEdge);
        let path = |branches: [u32; 3]| (0..3).map(|d| DagEdgeId(2 * d + branches[d as usize])).collect();
        (dag, vec![path([1, 1, 0]), path([0, 1, 1]), path([1, 0, 1])])
    }

    #[test]
    fn independent_paths_can_have_any_numbers_because_of_the_constant() {
        // Rows 110, 011 and 101 have determinant 2: the sum of their numbers is even, unless a constant is added to all.
        let (dag, paths) = diamonds();
        let lattice = Lattice::new(&dag, &paths).unwrap();
        assert!(lattice.rank() == 3 && lattice.has_all_numbers());
        let values = lattice.values(&dag, &lattice.solve(&[0, 1, 2]).unwrap()).unwrap();
        let numbers: Vec<i64> = paths.iter().map(|p| p.iter().map(|e| values[e.index()]).sum()).collect();
        assert_eq!(numbers, [0, 1, 2]);
        // The fourth path takes the first edge of every pair, so its row of zeros determines the constant.
        let all = [paths.clone(), vec![vec![DagEdgeId(0), DagEdgeId(2), DagEdgeId(4)]]].concat();
        let lattice = Lattice::new(&dag, &all).unwrap();
        assert!(lattice.rank() == 4 && !lattice.has_all_numbers());
        assert_eq!(lattice.solve(&[1, 2, 3, 0]).map(|_| ()), Some(()));
        assert_eq!(lattice.solve(&[1, 2, 4, 0]), None);
    }
}
