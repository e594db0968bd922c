//! Approximate separation: numbers of one register under which few other paths are taken for interesting ones.
//!
//! The thesis names the aim (section 6.2.1) and no method. From the values of preferential numbering on, the value of one edge at a time is
//! changed, by what leaves the fewest other paths with the number of an interesting one, and then the least span, as long as that makes
//! less of either. Other paths inside of the span but with a number of their own are recognised, since they count in words of no path.
//! Numbers may spread over a few words for each path. Time is bounded: on large functions the values stay as they are.

use trodden_flow::{Dag, DagEdgeId, Numbering};

/// Words for each interesting path over which numbers may spread.
const SPREAD: i64 = 4;
/// Graphs of more paths keep the values that they have.
const MOST_PATHS: u64 = 4096;
/// Numbers of paths that are computed at most: a tenth of a second or less.
const EFFORT: u64 = 1 << 22;

/// All paths of a graph with their numbers.
struct Numbers {
    interesting: Vec<bool>,
    sums: Vec<i64>,
    /// For each edge whether a path takes it.
    takes: Vec<Vec<bool>>,
}

/// What a change comes to: other paths with an interesting number, and the span. Less is better.
type Outcome = (usize, i64);

/// Values with fewer aliases, from values under which interesting paths have different numbers; at most so many numbers are tried.
pub fn fewer_aliases(dag: &Dag, all: &Numbering, paths: &[Vec<DagEdgeId>], values: Vec<i64>, steps: u64) -> Vec<i64> {
    if all.paths() > MOST_PATHS {
        return values;
    }
    let mut values = values;
    let mut numbers = Numbers::new(dag, all, paths, &values);
    let Some(mut best) = numbers.outcome(&[], 0, i64::MAX) else { return values };
    let most = best.1.max(SPREAD.saturating_mul(paths.len() as i64));
    let mut effort = EFFORT.min(steps);
    loop {
        let mut better = None;
        for edge in dag.edge_ids() {
            let takes = &numbers.takes[edge.index()];
            for change in (-most..=most).filter(|change| *change != 0) {
                let Some(left) = effort.checked_sub(numbers.sums.len() as u64) else { return values };
                effort = left;
                let Some(outcome) = numbers.outcome(takes, change, most) else { continue };
                if outcome < best {
                    (best, better) = (outcome, Some((edge, change)));
                }
            }
        }
        let Some((edge, change)) = better else { return values };
        values[edge.index()] += change;
        numbers.change(edge, change);
    }
}

impl Numbers {
    fn new(dag: &Dag, all: &Numbering, paths: &[Vec<DagEdgeId>], values: &[i64]) -> Numbers {
        let mut numbers = Numbers { interesting: Vec::new(), sums: Vec::new(), takes: vec![Vec::new(); dag.edges().len()] };
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

    fn change(&mut self, edge: DagEdgeId, by: i64) {
        self.sums.iter_mut().zip(&self.takes[edge.index()]).filter(|(_, takes)| **takes).for_each(|(sum, _)| *sum += by);
    }

    /// What a change of some paths' numbers comes to; `None` if interesting ones are equal then, or spread over more than `most`.
    fn outcome(&self, takes: &[bool], change: i64, most: i64) -> Option<Outcome> {
        let number = |at: usize| self.sums[at] + if takes.get(at).copied().unwrap_or(false) { change } else { 0 };
        let mut own: Vec<i64> = (0..self.sums.len()).filter(|at| self.interesting[*at]).map(number).collect();
        own.sort_unstable();
        let span = own.last()? - own.first()? + 1;
        if span > most || own.windows(2).any(|pair| pair[0] == pair[1]) {
            return None;
        }
        let others = (0..self.sums.len()).filter(|at| !self.interesting[*at]);
        let aliases = others.filter(|at| own.binary_search(&number(*at)).is_ok()).count();
        Some((aliases, span))
    }
}
