//! Approximate separation: numbers in one register with few *aliases*, which are other paths that have the number of an interesting path.
//!
//! The thesis states the aim (section 6.2.1) but no method. This implementation improves the values of preferential numbering greedily. It
//! changes the value of one edge at a time, always by the change that leaves the fewest aliases and, among equals, the smallest span. It
//! stops when no change is an improvement, or after a fixed number of steps. Other paths may have other numbers inside the span, because
//! the counters of these numbers belong to no path. The values of large functions are not changed.

use trodden_flow::{Dag, DagEdgeId, Numbering};

/// Maximum number of counters per interesting path, unless the initial values need more.
const MAX_COUNTERS_PER_INTERESTING_PATH: i64 = 4;
/// Maximum number of paths. Graphs with more paths keep the values of preferential numbering.
const MAX_PATHS_FOR_ALIAS_REDUCTION: u64 = 4096;
/// Maximum number of path numbers to compute, so that the search takes at most a tenth of a second.
const MAX_COMPUTED_PATH_NUMBERS: u64 = 1 << 22;

struct PathNumbers {
    interesting: Vec<bool>,
    sums: Vec<i64>,
    /// For each edge, whether each path takes it.
    takes: Vec<Vec<bool>>,
}

/// The number of aliases, and the span of the interesting paths' numbers, after a change. Smaller values are better.
type ChangeOutcome = (usize, i64);

/// Returns values of the edges with which fewer other paths have the number of an interesting path. With the given `values`, interesting
/// paths must have different numbers. Computes at most `steps` numbers.
pub fn reduce_aliases(dag: &Dag, all: &Numbering, paths: &[Vec<DagEdgeId>], values: Vec<i64>, steps: u64) -> Vec<i64> {
    if all.paths() > MAX_PATHS_FOR_ALIAS_REDUCTION {
        return values;
    }
    let mut values = values;
    let mut numbers = PathNumbers::new(dag, all, paths, &values);
    let Some(mut best) = numbers.evaluate_edge_value_change(&[], 0, i64::MAX) else { return values };
    let max_span = best.1.max(MAX_COUNTERS_PER_INTERESTING_PATH.saturating_mul(paths.len() as i64));
    let mut steps_left = MAX_COMPUTED_PATH_NUMBERS.min(steps);
    loop {
        let mut better = None;
        for edge in dag.edge_ids() {
            let takes = &numbers.takes[edge.index()];
            for change in (-max_span..=max_span).filter(|change| *change != 0) {
                let Some(left) = steps_left.checked_sub(numbers.sums.len() as u64) else { return values };
                steps_left = left;
                let Some(outcome) = numbers.evaluate_edge_value_change(takes, change, max_span) else { continue };
                if outcome < best {
                    (best, better) = (outcome, Some((edge, change)));
                }
            }
        }
        let Some((edge, change)) = better else { return values };
        values[edge.index()] += change;
        numbers.apply_edge_value_change(edge, change);
    }
}

impl PathNumbers {
    fn new(dag: &Dag, all: &Numbering, paths: &[Vec<DagEdgeId>], values: &[i64]) -> PathNumbers {
        let mut numbers = PathNumbers { interesting: Vec::new(), sums: Vec::new(), takes: vec![Vec::new(); dag.edges().len()] };
        for path in (0..all.paths()).filter_map(|id| all.path(dag, id)) {
            numbers.sums.push(path.iter().map(|e| values[e.index()]).sum());
            numbers.interesting.push(false);
            numbers.takes.iter_mut().for_each(|takes| takes.push(false));
            let at = numbers.sums.len() - 1;
            path.iter().for_each(|e| numbers.takes[e.index()][at] = true);
        }
        paths.iter().for_each(|path| numbers.interesting[all.id(path) as usize] = true);
        numbers
    }

    fn apply_edge_value_change(&mut self, edge: DagEdgeId, by: i64) {
        self.sums.iter_mut().zip(&self.takes[edge.index()]).filter(|(_, takes)| **takes).for_each(|(sum, _)| *sum += by);
    }

    /// Evaluates the addition of `change` to the numbers of the paths in `takes`. Returns `None` if two interesting paths would have the
    /// same number, or if the span would exceed `max_span`.
    fn evaluate_edge_value_change(&self, takes: &[bool], change: i64, max_span: i64) -> Option<ChangeOutcome> {
        let number = |at: usize| self.sums[at] + if takes.get(at).copied().unwrap_or(false) { change } else { 0 };
        let mut own: Vec<i64> = (0..self.sums.len()).filter(|at| self.interesting[*at]).map(number).collect();
        own.sort_unstable();
        let span = own.last()? - own.first()? + 1;
        if span > max_span || own.windows(2).any(|pair| pair[0] == pair[1]) {
            return None;
        }
        let others = (0..self.sums.len()).filter(|at| !self.interesting[*at]);
        let aliases = others.filter(|at| own.binary_search(&number(*at)).is_ok()).count();
        Some((aliases, span))
    }
}
