//! The most compact numbers for a list of interesting paths (thesis, problem A), with a lower bound on their span.
//!
//! A span equal to the number of paths is optimal, and is possible for independent paths unless the lattice lacks some numbers
//! ([`super::lattice`]). Otherwise spans are searched in turn by two methods: path by path, which is fast if there are many solutions, and
//! bit by bit ([`super::lifting`]), which finds rare solutions and can exhaust a span of paths with many common edges. An exhausted span
//! raises the bound, and a solution becomes the best so far. Each round allows more steps. If the budget runs out first, the bound is the
//! one proven so far. All arithmetic is exact.

use super::NumberingError;
use super::lattice::{Lattice, NumberSearchResult};
use super::lifting;
use super::preferential::PreferentialIds;
use std::collections::BTreeSet;
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::numbering::sequence::ShuffleRng;

/// Limits of a search.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    /// Maximum number of steps, each of which tries a number.
    pub steps: u64,
    /// Called repeatedly. If it returns true, the search ends; a caller can thereby limit the time.
    pub stop: &'a dyn Fn() -> bool,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget { steps: 20_000_000, stop: &|| false }
    }
}

/// What is proven about the least span, which is the range from the least to the greatest number of an interesting path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanProof {
    /// No labelling of these paths has a smaller span.
    pub bound: u64,
    /// How the search ended.
    pub end: SpanSearchEnd,
    /// Number of paths that can be numbered independently, or 0 if this was not computed.
    pub rank: usize,
    /// Number of steps taken.
    pub steps: u64,
}

/// The end of a search for the least span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanSearchEnd {
    /// Any assignment of numbers is possible, so the least span is the number of paths.
    ClosedForm,
    /// The span is proven to be the least.
    Optimal,
    /// The least span is not known, because the budget was spent, or because there are too many paths to search. A smaller span may exist.
    BudgetSpent,
}

/// Edge values, and proven facts about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeValueAssignment {
    /// The value of each edge.
    pub values: Vec<i64>,
    /// Greatest number of any interesting path, minus the least such number, plus one.
    pub span: u64,
    /// Proven facts about the span.
    pub proof: SpanProof,
}

// These constants divide the steps among the searches. docs/benchmarks/constants.md shows the effect of other values.

/// Number of steps of the first search, doubled in each round. If this is 100 times as much, the search takes five times as long for two of
/// three benchmark programs.
const MAX_STEPS_OF_FIRST_SEARCH: u64 = 20_000;
/// Factor by which the steps of the search bit by bit exceed those of the search path by path.
const LIFTING_STEPS_FACTOR: u64 = 16;
/// Maximum span to search, because a search allocates memory for every number in the span.
const MAX_SEARCHED_SPAN: usize = 1 << 24;
/// Maximum number of paths for a search. Without any search, the spans in three benchmark programs are 1.3 to 1.4 times as wide.
const MAX_SEARCHED_PATHS: usize = 200;
const STEPS_PER_STOP_CHECK: u64 = 1 << 16;

/// Finds compact numbers for `paths`, which must differ. The search starts with the numbers in `first`.
pub(super) fn find_compact_numbers(
    dag: &Dag,
    paths: &[Vec<DagEdgeId>],
    first: PreferentialIds,
    budget: Budget,
) -> Result<EdgeValueAssignment, NumberingError> {
    let count = paths.len() as u64;
    // The lattice takes time cubic in the number of paths, and cannot be interrupted.
    let lattice = if paths.len() <= MAX_SEARCHED_PATHS { Lattice::new(dag, paths) } else { None };
    let Some(lattice) = lattice else {
        let end = if first.span == count { SpanSearchEnd::Optimal } else { SpanSearchEnd::BudgetSpent };
        let proof = SpanProof { bound: count, end, rank: 0, steps: 0 };
        return Ok(EdgeValueAssignment { values: first.values, span: first.span, proof });
    };
    let mut search = OptimalSearch { lattice: &lattice, budget, steps: 0, stopped: false };
    let mut best = (first.span, first.values);
    let mut bound = count;
    let mut shuffle = ShuffleRng::default();
    let mut max_steps = MAX_STEPS_OF_FIRST_SEARCH;
    while bound < best.0 && !search.stopped {
        // Try the least span that may be possible, the middle, and the span below the best, with more steps in each round.
        let spans = BTreeSet::from([bound, bound.midpoint(best.0 - 1), best.0 - 1]);
        for span in spans {
            let found = match search.search_path_by_path(span, max_steps, Some(&mut shuffle)) {
                NumberSearchResult::Unfinished if lattice.rows.len() <= lifting::MAX_LIFTED_PATHS => {
                    search.search_bit_by_bit(span, max_steps.saturating_mul(LIFTING_STEPS_FACTOR), &mut shuffle)
                }
                NumberSearchResult::Unfinished => search.search_path_by_path(span, max_steps, None),
                found => found,
            };
            match found {
                NumberSearchResult::Numbers(coefficients) => {
                    if let Some(values) = lattice.values(dag, &coefficients) {
                        best = (span, values);
                    }
                }
                NumberSearchResult::NoNumbers => bound = bound.max(span + 1),
                NumberSearchResult::Unfinished => {}
            }
            // Start a new round, because the result changes which spans are worth searching.
            if bound > span || best.0 <= span || search.stopped {
                break;
            }
        }
        max_steps = max_steps.saturating_mul(2);
    }
    Ok(build_assignment(&lattice, best, bound, search.steps))
}

fn build_assignment(lattice: &Lattice, (span, values): (u64, Vec<i64>), bound: u64, steps: u64) -> EdgeValueAssignment {
    let end = match span == bound {
        true if lattice.has_all_numbers() => SpanSearchEnd::ClosedForm,
        true => SpanSearchEnd::Optimal,
        false => SpanSearchEnd::BudgetSpent,
    };
    EdgeValueAssignment { values, span, proof: SpanProof { bound, end, rank: lattice.rank(), steps } }
}

struct OptimalSearch<'a> {
    lattice: &'a Lattice,
    budget: Budget<'a>,
    steps: u64,
    stopped: bool,
}

impl OptimalSearch<'_> {
    /// Searches bit by bit. The lattice must have at most [`lifting::MAX_LIFTED_PATHS`] paths.
    fn search_bit_by_bit(&mut self, span: u64, max_steps: u64, shuffle: &mut ShuffleRng) -> NumberSearchResult {
        let (lattice, last) = (self.lattice, self.last_step_of_search(max_steps));
        lifting::find_numbers(lattice, span, &mut || self.count_step(last), shuffle)
    }

    fn last_step_of_search(&self, max_steps: u64) -> u64 {
        self.steps.saturating_add(max_steps).min(self.budget.steps)
    }

    /// Counts a step. Returns false if it was the last step of this search or of the budget, or if the caller stops the search.
    fn count_step(&mut self, last: u64) -> bool {
        self.steps += 1;
        let ends = self.steps >= last || (self.steps.is_multiple_of(STEPS_PER_STOP_CHECK) && (self.budget.stop)());
        if ends {
            self.stopped |= self.steps >= self.budget.steps || (self.budget.stop)();
        }
        !ends
    }

    /// Finds different numbers from 0 to `span - 1` for all paths, path by path. With a shuffle, numbers are tried in random order.
    fn search_path_by_path(&mut self, span: u64, max_steps: u64, mut shuffle: Option<&mut ShuffleRng>) -> NumberSearchResult {
        let last = self.last_step_of_search(max_steps);
        let Some(width) = usize::try_from(span).ok().filter(|width| *width <= MAX_SEARCHED_SPAN) else {
            return NumberSearchResult::Unfinished;
        };
        let mut candidates: Vec<i64> = (0..width as i64).collect();
        if let Some(shuffle) = shuffle.as_mut() {
            shuffle.shuffle(&mut candidates);
        }
        let mut state = SearchState { used: vec![false; width], numbers: Vec::new(), coefficients: Vec::new() };
        // The step of each choice so far, and the index of the next candidate to try at that step.
        let mut choices: Vec<(usize, usize)> = Vec::new();
        let mut next = match state.assign_implied_numbers(self.lattice) {
            SearchAdvance::Done => return NumberSearchResult::Numbers(state.coefficients),
            SearchAdvance::Choice => 0,
            SearchAdvance::Conflict => return NumberSearchResult::NoNumbers,
        };
        loop {
            if !self.count_step(last) {
                return NumberSearchResult::Unfinished;
            }
            let step = state.numbers.len();
            match (next..width).find(|at| state.can_take_number(self.lattice, candidates[*at])) {
                Some(at) => {
                    choices.push((step, at + 1));
                    state.choose_path_number(self.lattice, candidates[at]);
                    next = match state.assign_implied_numbers(self.lattice) {
                        SearchAdvance::Done => return NumberSearchResult::Numbers(state.coefficients),
                        SearchAdvance::Choice if state.has_valid_differences(self.lattice) => 0,
                        SearchAdvance::Choice | SearchAdvance::Conflict => state.backtrack(&mut choices),
                    };
                }
                None if choices.is_empty() => return NumberSearchResult::NoNumbers,
                None => next = state.backtrack(&mut choices),
            }
        }
    }
}

/// The numbers given to paths so far, in the lattice's order.
struct SearchState {
    used: Vec<bool>,
    numbers: Vec<usize>,
    coefficients: Vec<i64>,
}

enum SearchAdvance {
    Done,
    /// The next path's number can be chosen.
    Choice,
    /// The next path's number follows from previous choices, and is impossible.
    Conflict,
}

impl SearchState {
    /// Returns the contribution of the coefficients so far to the next path's number.
    fn known_contribution(&self, lattice: &Lattice) -> i64 {
        lattice.rows[self.numbers.len()].iter().zip(&self.coefficients).fold(0i64, |s, (a, b)| s.wrapping_add(a.wrapping_mul(*b)))
    }

    /// Assigns the numbers that follow from previous choices, up to the next path whose number can be chosen.
    fn assign_implied_numbers(&mut self, lattice: &Lattice) -> SearchAdvance {
        loop {
            match lattice.pivots.get(self.numbers.len()) {
                None => return SearchAdvance::Done,
                Some(Some(_)) => return SearchAdvance::Choice,
                Some(None) => match usize::try_from(self.known_contribution(lattice)) {
                    Ok(number) if number < self.used.len() && !self.used[number] => self.mark_number_as_taken(number),
                    _ => return SearchAdvance::Conflict,
                },
            }
        }
    }

    fn mark_number_as_taken(&mut self, number: usize) {
        self.used[number] = true;
        self.numbers.push(number);
    }

    fn can_take_number(&self, lattice: &Lattice, number: i64) -> bool {
        let pivot = lattice.pivots[self.numbers.len()].expect("it can be chosen");
        !self.used[number as usize] && (pivot == 1 || (number - self.known_contribution(lattice)) % pivot == 0)
    }

    fn choose_path_number(&mut self, lattice: &Lattice, number: i64) {
        let pivot = lattice.pivots[self.numbers.len()].expect("it can be chosen");
        self.coefficients.push((number - self.known_contribution(lattice)) / pivot);
        self.mark_number_as_taken(number as usize);
    }

    /// Returns true if all differences that the last choice determines are nonzero and less than the span.
    fn has_valid_differences(&self, lattice: &Lattice) -> bool {
        let span = self.used.len() as i64;
        let value = |d: &Vec<i64>| d.iter().zip(&self.coefficients).fold(0i64, |s, (a, b)| s.wrapping_add(a.wrapping_mul(*b)));
        lattice.differences[self.coefficients.len() - 1].iter().map(value).all(|v| v != 0 && v > -span && v < span)
    }

    /// Undoes the last choice and the numbers that followed from it. Returns the next candidate to try.
    fn backtrack(&mut self, choices: &mut Vec<(usize, usize)>) -> usize {
        let (step, next) = choices.pop().expect("a conflict follows from a choice");
        self.numbers.drain(step..).for_each(|n| self.used[n] = false);
        self.coefficients.pop();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trodden_flow::dag::Entries;
    use trodden_flow::graph::{Graph, Node};

    /// Returns the lattice of nearly all paths through four consecutive branches and up to two additional edges.
    fn random_lattice(shuffle: &mut ShuffleRng) -> Lattice {
        let mut edges: Vec<(Node, Node)> = (0..4).flat_map(|n| [(Node(n), Node(n + 1)); 2]).collect();
        for _ in 0..shuffle.below(3) {
            let from = shuffle.below(4) as u32;
            edges.push((Node(from), Node((from + 1 + shuffle.below(2) as u32).min(4))));
        }
        let dag = Dag::new(&Graph::new(5, Node(0), Node(4), edges).unwrap(), &[], Entries::PerEdge);
        let all = trodden_flow::Numbering::ball_larus(&dag).unwrap();
        let mut ids: Vec<u64> = (0..all.paths()).collect();
        shuffle.shuffle(&mut ids);
        ids.truncate((ids.len() - shuffle.below(5)).min(18));
        Lattice::new(&dag, &ids.into_iter().map(|id| all.path(&dag, id).unwrap()).collect::<Vec<_>>()).unwrap()
    }

    fn gives_distinct_numbers_below_span(lattice: &Lattice, coefficients: &[i64], span: u64) -> bool {
        let number = |row: &Vec<i64>| -> Option<u64> {
            let terms = row.iter().zip(coefficients).map(|(a, y)| a.checked_mul(*y));
            u64::try_from(terms.into_iter().try_fold(0i64, |sum, term| sum.checked_add(term?))?).ok()
        };
        let numbers: Option<BTreeSet<u64>> = lattice.rows.iter().map(number).collect();
        coefficients.len() == lattice.rank()
            && numbers.is_some_and(|n| n.len() == lattice.rows.len() && n.last().is_none_or(|last| *last < span))
    }

    #[test]
    fn bit_by_bit_and_path_by_path_agree_on_every_span() {
        let mut shuffle = ShuffleRng::default();
        let (mut impossible, mut wide) = (0, 0);
        for graph in 0..250 {
            let lattice = random_lattice(&mut shuffle);
            let count = lattice.rows.len() as u64;
            for span in count..count + 6 {
                let mut search =
                    OptimalSearch { lattice: &lattice, budget: Budget { steps: u64::MAX, ..Budget::default() }, steps: 0, stopped: false };
                let (lifted, found) =
                    (search.search_bit_by_bit(span, u64::MAX, &mut shuffle), search.search_path_by_path(span, u64::MAX, None));
                for found in [&lifted, &found] {
                    if let NumberSearchResult::Numbers(coefficients) = found {
                        assert!(gives_distinct_numbers_below_span(&lattice, coefficients, span), "graph {graph}, span {span}");
                    }
                }
                assert_eq!(
                    matches!(lifted, NumberSearchResult::NoNumbers),
                    matches!(found, NumberSearchResult::NoNumbers),
                    "graph {graph}, span {span}: {lifted:?}, {found:?}"
                );
                impossible += u32::from(found == NumberSearchResult::NoNumbers);
                wide += u32::from(found == NumberSearchResult::NoNumbers && span > count);
                if found != NumberSearchResult::NoNumbers {
                    break;
                }
            }
        }
        assert!(impossible > 30 && wide > 3, "{impossible}, {wide}");
    }
}
