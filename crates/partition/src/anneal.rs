//! Refinement of a distribution of ends by simulated annealing: moves that make it worse for a while are taken at first, and ever less.
//!
//! The search by steps ([`super::weighted`]) ends where no single move helps. What holds it there is mostly labels that
//! several ends of one procedure share: the first of them that moves pays for them in both copies, and only the last
//! one saves them. What is to be small is a norm of the copies' loads that is close to the greatest load, so that
//! relieving any heavy copy counts for something. The best distribution that was seen is kept, so the result is never
//! worse.
//!
//! The numbers that decide are those of a fixed sequence: the same input has the same result.

use super::weighing::{EndPartition, EndSet, Weigher};
use trodden_flow::numbering::sequence::Shuffle;

/// Edges that may be looked at: bounds the time. What other values of the rest change is in docs/benchmarks/constants.md.
const MOST_WORK: u64 = 60_000_000;
/// Steps for each end that may move.
const STEPS_FOR_EACH: usize = 200;
/// Steps in all: bounds the time.
const MOST_STEPS: usize = 60_000;
/// Worsening of the norm, in mean loads, that is taken with probability 1/e at first.
const HOT: f64 = 0.02;
/// The same at last.
const COLD: f64 = 0.000_5;
/// The exponent of the norm.
const EXPONENT: i32 = 24;
/// Procedures take part that cost as much as this fraction of a mean load, if whole.
const LEAST_FRACTION: f64 = 0.002;

/// Looks for a better distribution, from one that is complete.
pub fn refine(weighers: &mut [Weigher], partition: EndPartition) -> EndPartition {
    let copies = partition.first().map_or(0, Vec::len);
    let mut state = State::new(weighers, partition);
    if copies < 2 || state.movable.is_empty() {
        return state.partition;
    }
    let before: u64 = state.work();
    let ends: usize = state.movable.iter().map(|at| state.weighers[*at].ends.len()).sum();
    let steps = (STEPS_FOR_EACH * ends).min(MOST_STEPS);
    let (mut best, mut least) = (state.partition.clone(), state.slowest());
    for step in 0..steps {
        if state.work() - before > MOST_WORK {
            break;
        }
        let heat = HOT * (COLD / HOT).powf(step as f64 / steps as f64);
        if state.step(heat) && state.slowest() < least {
            (best, least) = (state.partition.clone(), state.slowest());
        }
    }
    best
}

struct State<'a> {
    weighers: &'a mut [Weigher],
    partition: EndPartition,
    costs: Vec<Vec<u64>>,
    loads: Vec<u64>,
    /// Procedures whose ends move.
    movable: Vec<usize>,
    mean: f64,
    random: Shuffle,
}

impl State<'_> {
    fn new(weighers: &mut [Weigher], partition: EndPartition) -> State<'_> {
        let copies = partition.first().map_or(0, Vec::len);
        let costs: Vec<Vec<u64>> =
            partition.iter().zip(weighers.iter_mut()).map(|(sets, weigher)| sets.iter().map(|s| weigher.cost(s)).collect()).collect();
        let loads: Vec<u64> = (0..copies).map(|copy| costs.iter().map(|c| c[copy]).sum()).collect();
        let mean = (loads.iter().sum::<u64>() as f64 / copies.max(1) as f64).max(1.0);
        let expensive = |at: &usize| costs[*at].iter().sum::<u64>() as f64 >= LEAST_FRACTION * mean;
        let movable = (0..costs.len()).filter(expensive).collect();
        State { weighers, partition, costs, loads, movable, mean, random: Shuffle::from_seed(1) }
    }

    fn work(&self) -> u64 {
        self.weighers.iter().map(|w| w.work).sum()
    }

    fn slowest(&self) -> u64 {
        self.loads.iter().copied().max().unwrap_or(0)
    }

    fn norm(&self, changed: [(usize, u64); 2]) -> f64 {
        let load = |copy: usize| changed.iter().find(|c| c.0 == copy).map_or(self.loads[copy], |c| c.1);
        let sum: f64 = (0..self.loads.len()).map(|copy| (load(copy) as f64 / self.mean).powi(EXPONENT)).sum();
        sum.powf(1.0 / f64::from(EXPONENT))
    }

    /// Tries a move; whether it was made.
    fn step(&mut self, heat: f64) -> bool {
        let procedure = self.movable[self.random.below(self.movable.len())];
        let from = self.random.below(self.loads.len());
        let to = self.random.below(self.loads.len());
        if from == to || self.partition[procedure][from].is_empty() {
            return false;
        }
        let set = self.chosen(procedure, from);
        if set.is_empty() {
            return false;
        }
        let (rest, with) = (self.partition[procedure][from].without(&set), self.partition[procedure][to].with(&set));
        let (left, joined) = (self.weighers[procedure].cost(&rest), self.weighers[procedure].cost(&with));
        let costs = &self.costs[procedure];
        let loads = [(from, self.loads[from] - costs[from] + left), (to, self.loads[to] - costs[to] + joined)];
        let now = [(from, self.loads[from]), (to, self.loads[to])];
        let worse = self.norm(loads) - self.norm(now);
        if worse > 0.0 && self.random.fraction() >= (-worse / heat).exp() {
            return false;
        }
        loads.iter().for_each(|(copy, load)| self.loads[*copy] = *load);
        (self.costs[procedure][from], self.costs[procedure][to]) = (left, joined);
        (self.partition[procedure][from], self.partition[procedure][to]) = (rest, with);
        true
    }

    /// A set of a copy's ends: one, those behind a node, those that are never taken, or all.
    fn chosen(&mut self, procedure: usize, from: usize) -> EndSet {
        let (weigher, own) = (&self.weighers[procedure], &self.partition[procedure][from]);
        match self.random.below(8) {
            0 => own.clone(),
            1 | 2 if !weigher.clusters.is_empty() => own.within(&weigher.clusters[self.random.below(weigher.clusters.len())]),
            3 => weigher.of_these(own.iter().filter(|at| weigher.weights[*at] == 0)),
            _ => {
                let count = own.iter().count();
                let at = own.iter().nth(self.random.below(count));
                weigher.of_these(at.into_iter())
            }
        }
    }
}
