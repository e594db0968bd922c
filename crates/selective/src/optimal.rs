//! The most compact numbers for a list of interesting paths (thesis, problem A), with a bound on how compact they could be.
//!
//! Fewer numbers than paths are impossible. So a labelling whose span is the number of paths is optimal; linearly
//! independent paths have one unless the lattice of their numbers is too coarse ([`super::lattice`]). Otherwise spans
//! are searched in turn, twice: over the numbers of the paths that have a pivot, the others following, which
//! mostly finds at once what there is plenty of; and bit by bit ([`super::lifting`]), which finds what is rare, and
//! exhausts spans where paths have much in common. A span that a search exhausts is impossible, which raises the bound;
//! one that it fills is the best so far. Searches have more patience each time. Where the budget ends first, the bound
//! says how far the proof came, and nothing more is claimed. Everything is exact: no floating point takes part.

use super::NumberingError;
use super::lattice::{Lattice, NumberSearch};
use super::lifting;
use super::preferential::PreferentialIds;
use std::collections::BTreeSet;
use trodden_flow::dag::{Dag, DagEdgeId};
use trodden_flow::numbering::sequence::Shuffle;

/// How long to search.
#[derive(Clone, Copy)]
pub struct Budget<'a> {
    /// Numbers that may be tried.
    pub steps: u64,
    /// Asked now and then: true ends the search. A caller with a clock makes a time limit of it.
    pub stop: &'a dyn Fn() -> bool,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget { steps: 20_000_000, stop: &|| false }
    }
}

/// What is known of the least span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// No labelling of these paths has a smaller span.
    pub bound: u64,
    /// How the search ended.
    pub end: SearchEnd,
    /// Paths that can be numbered independently of each other.
    pub rank: usize,
    /// Numbers that were tried.
    pub steps: u64,
}

/// How a search for the least span ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// The paths are independent, and any numbers can be had: solved for directly.
    ClosedForm,
    /// The span is the least.
    Optimal,
    /// The budget was spent; the span may not be the least.
    BudgetSpent,
}

/// Values and what is proven of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The value of each edge.
    pub values: Vec<i64>,
    /// Greatest minus least number of an interesting path, plus one.
    pub span: u64,
    /// How good that is.
    pub proof: Proof,
}

// They divide the time among searches, and bound it. What other values change is in docs/benchmarks/constants.md.

/// Steps of a short search: doubled with each further one. With 100 times as many, two of three programs take five times as long.
const SHORT: u64 = 20_000;
/// Numbers are tried bit by bit for so many times as many steps.
const LIFTING: u64 = 16;
/// Wider spans are not searched: a search has a list of all their numbers.
const MOST_NUMBERS: usize = 1 << 24;
/// The numbers of more paths are not searched for. Without a search, spans of three programs' functions are 1.3 to 1.4 times as wide.
const MOST_SEARCHED: usize = 200;
/// Steps between two questions whether to stop.
const PATIENCE: u64 = 1 << 16;

/// Finds compact numbers for `paths`, no two equal, beginning with those in `first`.
pub(super) fn optimal(dag: &Dag, paths: &[Vec<DagEdgeId>], first: PreferentialIds, budget: Budget) -> Result<Assignment, NumberingError> {
    let count = paths.len() as u64;
    // The lattice alone takes time that grows with the cube of the paths, and cannot be interrupted.
    let lattice = if paths.len() <= MOST_SEARCHED { Lattice::new(dag, paths) } else { None };
    let Some(lattice) = lattice else {
        let end = if first.span == count { SearchEnd::Optimal } else { SearchEnd::BudgetSpent };
        let proof = Proof { bound: count, end, rank: 0, steps: 0 };
        return Ok(Assignment { values: first.values, span: first.span, proof });
    };
    let mut search = Search { lattice: &lattice, budget, steps: 0, stopped: false };
    let mut best = (first.span, first.values);
    let mut bound = count;
    let mut shuffle = Shuffle::default();
    let mut short = SHORT;
    while bound < best.0 && !search.stopped {
        // In turn the least span that may be possible, one in the middle, and the next below the best, with more patience each time.
        let spans = BTreeSet::from([bound, bound.midpoint(best.0 - 1), best.0 - 1]);
        for span in spans {
            let found = match search.find(span, short, Some(&mut shuffle)) {
                NumberSearch::Unfinished if lattice.rows.len() <= lifting::MOST_PATHS => {
                    search.lift(span, short.saturating_mul(LIFTING), &mut shuffle)
                }
                NumberSearch::Unfinished => search.find(span, short, None),
                found => found,
            };
            match found {
                NumberSearch::Numbers(coefficients) => {
                    if let Some(values) = lattice.values(dag, &coefficients) {
                        best = (span, values);
                    }
                }
                NumberSearch::Nothing => bound = bound.max(span + 1),
                NumberSearch::Unfinished => {}
            }
            // What was found or excluded changes what is worth a search.
            if bound > span || best.0 <= span || search.stopped {
                break;
            }
        }
        short = short.saturating_mul(2);
    }
    Ok(assignment(&lattice, best, bound, search.steps))
}

fn assignment(lattice: &Lattice, (span, values): (u64, Vec<i64>), bound: u64, steps: u64) -> Assignment {
    let end = match span == bound {
        true if lattice.is_everything() => SearchEnd::ClosedForm,
        true => SearchEnd::Optimal,
        false => SearchEnd::BudgetSpent,
    };
    Assignment { values, span, proof: Proof { bound, end, rank: lattice.rank(), steps } }
}

struct Search<'a> {
    lattice: &'a Lattice,
    budget: Budget<'a>,
    steps: u64,
    stopped: bool,
}

impl Search<'_> {
    /// The same bit by bit, for as many paths as that can be done for.
    fn lift(&mut self, span: u64, patience: u64, shuffle: &mut Shuffle) -> NumberSearch {
        let (lattice, last) = (self.lattice, self.last(patience));
        lifting::find(lattice, span, &mut || self.go_on(last), shuffle)
    }

    /// The last step of a search of so many.
    fn last(&self, patience: u64) -> u64 {
        self.steps.saturating_add(patience).min(self.budget.steps)
    }

    /// One step more; false if it is the last one, or the whole search is stopped.
    fn go_on(&mut self, last: u64) -> bool {
        self.steps += 1;
        let ends = self.steps >= last || (self.steps.is_multiple_of(PATIENCE) && (self.budget.stop)());
        if ends {
            self.stopped |= self.steps >= self.budget.steps || (self.budget.stop)();
        }
        !ends
    }

    /// Numbers from 0 to `span - 1` for all paths, all different; with a shuffle, numbers are tried in another order.
    fn find(&mut self, span: u64, patience: u64, mut shuffle: Option<&mut Shuffle>) -> NumberSearch {
        let last = self.last(patience);
        let Some(width) = usize::try_from(span).ok().filter(|width| *width <= MOST_NUMBERS) else { return NumberSearch::Unfinished };
        let mut candidates: Vec<i64> = (0..width as i64).collect();
        if let Some(shuffle) = shuffle.as_mut() {
            shuffle.shuffle(&mut candidates);
        }
        let mut state = State { used: vec![false; width], numbers: Vec::new(), coefficients: Vec::new() };
        // For each choice that was made: its step, and the next candidate there.
        let mut choices: Vec<(usize, usize)> = Vec::new();
        let mut next = match state.advance(self.lattice) {
            Advance::Done => return NumberSearch::Numbers(state.coefficients),
            Advance::Choice => 0,
            Advance::Conflict => return NumberSearch::Nothing,
        };
        loop {
            if !self.go_on(last) {
                return NumberSearch::Unfinished;
            }
            let step = state.numbers.len();
            match (next..width).find(|at| state.can(self.lattice, candidates[*at])) {
                Some(at) => {
                    choices.push((step, at + 1));
                    state.choose(self.lattice, candidates[at]);
                    next = match state.advance(self.lattice) {
                        Advance::Done => return NumberSearch::Numbers(state.coefficients),
                        Advance::Choice if state.can_differ(self.lattice) => 0,
                        Advance::Choice | Advance::Conflict => state.back(&mut choices),
                    };
                }
                None if choices.is_empty() => return NumberSearch::Nothing,
                None => next = state.back(&mut choices),
            }
        }
    }
}

/// Numbers given to the paths so far, in the lattice's order.
struct State {
    used: Vec<bool>,
    numbers: Vec<usize>,
    coefficients: Vec<i64>,
}

enum Advance {
    /// Every path has a number.
    Done,
    /// The next path's number can be chosen.
    Choice,
    /// The next path's number follows, and cannot be.
    Conflict,
}

impl State {
    /// What the coefficients so far give the next path.
    fn known(&self, lattice: &Lattice) -> i64 {
        lattice.rows[self.numbers.len()].iter().zip(&self.coefficients).fold(0i64, |s, (a, b)| s.wrapping_add(a.wrapping_mul(*b)))
    }

    /// Gives numbers to all paths whose number follows.
    fn advance(&mut self, lattice: &Lattice) -> Advance {
        loop {
            match lattice.pivots.get(self.numbers.len()) {
                None => return Advance::Done,
                Some(Some(_)) => return Advance::Choice,
                Some(None) => match usize::try_from(self.known(lattice)) {
                    Ok(number) if number < self.used.len() && !self.used[number] => self.take(number),
                    _ => return Advance::Conflict,
                },
            }
        }
    }

    fn take(&mut self, number: usize) {
        self.used[number] = true;
        self.numbers.push(number);
    }

    /// Whether the next path, which has a pivot, can have this number.
    fn can(&self, lattice: &Lattice, number: i64) -> bool {
        let pivot = lattice.pivots[self.numbers.len()].expect("it can be chosen");
        !self.used[number as usize] && (pivot == 1 || (number - self.known(lattice)) % pivot == 0)
    }

    fn choose(&mut self, lattice: &Lattice, number: i64) {
        let pivot = lattice.pivots[self.numbers.len()].expect("it can be chosen");
        self.coefficients.push((number - self.known(lattice)) / pivot);
        self.take(number as usize);
    }

    /// Whether no two paths are bound to have one number, or numbers too far apart, by the last choice.
    fn can_differ(&self, lattice: &Lattice) -> bool {
        let span = self.used.len() as i64;
        let value = |d: &Vec<i64>| d.iter().zip(&self.coefficients).fold(0i64, |s, (a, b)| s.wrapping_add(a.wrapping_mul(*b)));
        lattice.differences[self.coefficients.len() - 1].iter().map(value).all(|v| v != 0 && v > -span && v < span)
    }

    /// Takes back the last choice and what followed; returns the candidate to try next.
    fn back(&mut self, choices: &mut Vec<(usize, usize)>) -> usize {
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

    /// Nearly all paths through four branches in a row, some of which may be longer: they have much in common.
    fn lattice(shuffle: &mut Shuffle) -> Lattice {
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

    /// Whether coefficients give all paths different numbers from 0 to `span - 1`.
    fn are_numbers(lattice: &Lattice, coefficients: &[i64], span: u64) -> bool {
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
        let mut shuffle = Shuffle::default();
        let (mut impossible, mut wide) = (0, 0);
        for graph in 0..250 {
            let lattice = lattice(&mut shuffle);
            let count = lattice.rows.len() as u64;
            for span in count..count + 6 {
                let mut search =
                    Search { lattice: &lattice, budget: Budget { steps: u64::MAX, ..Budget::default() }, steps: 0, stopped: false };
                let (lifted, found) = (search.lift(span, u64::MAX, &mut shuffle), search.find(span, u64::MAX, None));
                for found in [&lifted, &found] {
                    assert!(
                        !matches!(found, NumberSearch::Numbers(coefficients) if !are_numbers(&lattice, coefficients, span)),
                        "graph {graph}, span {span}"
                    );
                }
                assert_eq!(
                    matches!(lifted, NumberSearch::Nothing),
                    matches!(found, NumberSearch::Nothing),
                    "graph {graph}, span {span}: {lifted:?}, {found:?}"
                );
                impossible += u32::from(found == NumberSearch::Nothing);
                wide += u32::from(found == NumberSearch::Nothing && span > count);
                if found != NumberSearch::Nothing {
                    break;
                }
            }
        }
        assert!(impossible > 30 && wide > 3, "{impossible}, {wide}");
    }
}
