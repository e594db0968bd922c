//! Improves, by simulated annealing, how the ends of paths are distributed over the copies of a program.
//!
//! The local search of [`super::weighted`] stops when no single move reduces the cost. The usual reason is that several ends of a procedure
//! need the same labels: after the first of these ends has moved, both copies need the labels, and only after the last move does one copy
//! need them. The objective is a norm of the loads that is close to the maximum, but also falls if another heavily loaded copy gets less
//! load. The result is the best distribution found, so it is never worse than the initial one. The random numbers are a fixed sequence, so
//! the result is deterministic.

use super::weighing::{EndPartition, EndSet, EndSetWeigher};
use trodden_flow::numbering::sequence::ShuffleRng;

// docs/benchmarks/constants.md reports the effect of other values for the constants below, except for the two that limit the time.

/// Maximum number of graph edges examined. Like [`MAX_ANNEALING_STEPS`], it limits the time.
const MAX_EXAMINED_EDGES: u64 = 60_000_000;
const ANNEALING_STEPS_PER_END: usize = 200;
const MAX_ANNEALING_STEPS: usize = 60_000;
/// Initial temperature: a move that worsens the norm by this share of the mean load is accepted with probability 1/e.
const INITIAL_TEMPERATURE: f64 = 0.02;
const FINAL_TEMPERATURE: f64 = 0.000_5;
const LOAD_NORM_EXPONENT: i32 = 24;
/// Procedures whose total cost is below this share of a copy's mean load are not redistributed.
const MIN_PROCEDURE_COST_SHARE: f64 = 0.002;

pub fn refine_by_annealing(weighers: &mut [EndSetWeigher], partition: EndPartition) -> EndPartition {
    let copies = partition.first().map_or(0, Vec::len);
    let mut state = AnnealingState::new(weighers, partition);
    if copies < 2 || state.movable.is_empty() {
        return state.partition;
    }
    let before: u64 = state.examined_edge_count();
    let ends: usize = state.movable.iter().map(|at| state.weighers[*at].ends.len()).sum();
    let steps = (ANNEALING_STEPS_PER_END * ends).min(MAX_ANNEALING_STEPS);
    let (mut best, mut least) = (state.partition.clone(), state.greatest_load());
    for step in 0..steps {
        if state.examined_edge_count() - before > MAX_EXAMINED_EDGES {
            break;
        }
        let temperature = INITIAL_TEMPERATURE * (FINAL_TEMPERATURE / INITIAL_TEMPERATURE).powf(step as f64 / steps as f64);
        if state.try_random_move(temperature) && state.greatest_load() < least {
            (best, least) = (state.partition.clone(), state.greatest_load());
        }
    }
    best
}

struct AnnealingState<'a> {
    weighers: &'a mut [EndSetWeigher],
    partition: EndPartition,
    costs: Vec<Vec<u64>>,
    loads: Vec<u64>,
    /// Indices of the procedures whose ends may move to another copy.
    movable: Vec<usize>,
    mean: f64,
    random: ShuffleRng,
}

impl AnnealingState<'_> {
    fn new(weighers: &mut [EndSetWeigher], partition: EndPartition) -> AnnealingState<'_> {
        let copies = partition.first().map_or(0, Vec::len);
        let costs: Vec<Vec<u64>> =
            partition.iter().zip(weighers.iter_mut()).map(|(sets, weigher)| sets.iter().map(|s| weigher.cost(s)).collect()).collect();
        let loads: Vec<u64> = (0..copies).map(|copy| costs.iter().map(|c| c[copy]).sum()).collect();
        let mean = (loads.iter().sum::<u64>() as f64 / copies.max(1) as f64).max(1.0);
        let expensive = |at: &usize| costs[*at].iter().sum::<u64>() as f64 >= MIN_PROCEDURE_COST_SHARE * mean;
        let movable = (0..costs.len()).filter(expensive).collect();
        AnnealingState { weighers, partition, costs, loads, movable, mean, random: ShuffleRng::from_seed(1) }
    }

    fn examined_edge_count(&self) -> u64 {
        self.weighers.iter().map(|w| w.work).sum()
    }

    fn greatest_load(&self) -> u64 {
        self.loads.iter().copied().max().unwrap_or(0)
    }

    fn load_norm(&self, changed: [(usize, u64); 2]) -> f64 {
        let load = |copy: usize| changed.iter().find(|c| c.0 == copy).map_or(self.loads[copy], |c| c.1);
        let sum: f64 = (0..self.loads.len()).map(|copy| (load(copy) as f64 / self.mean).powi(LOAD_NORM_EXPONENT)).sum();
        sum.powf(1.0 / f64::from(LOAD_NORM_EXPONENT))
    }

    fn try_random_move(&mut self, temperature: f64) -> bool {
        let procedure = self.movable[self.random.below(self.movable.len())];
        let from = self.random.below(self.loads.len());
        let to = self.random.below(self.loads.len());
        if from == to || self.partition[procedure][from].is_empty() {
            return false;
        }
        let set = self.random_subset(procedure, from);
        if set.is_empty() {
            return false;
        }
        let (rest, grown) = (self.partition[procedure][from].difference(&set), self.partition[procedure][to].union(&set));
        let (left, joined) = (self.weighers[procedure].cost(&rest), self.weighers[procedure].cost(&grown));
        let costs = &self.costs[procedure];
        let loads = [(from, self.loads[from] - costs[from] + left), (to, self.loads[to] - costs[to] + joined)];
        let now = [(from, self.loads[from]), (to, self.loads[to])];
        let worse = self.load_norm(loads) - self.load_norm(now);
        if worse > 0.0 && self.random.random_fraction() >= (-worse / temperature).exp() {
            return false;
        }
        loads.iter().for_each(|(copy, load)| self.loads[*copy] = *load);
        (self.costs[procedure][from], self.costs[procedure][to]) = (left, joined);
        (self.partition[procedure][from], self.partition[procedure][to]) = (rest, grown);
        true
    }

    /// Returns a random subset of the ends that a copy counts: one end, those reachable from one node, those that were never executed, or
    /// all.
    fn random_subset(&mut self, procedure: usize, from: usize) -> EndSet {
        let (weigher, own) = (&self.weighers[procedure], &self.partition[procedure][from]);
        match self.random.below(8) {
            0 => own.clone(),
            1 | 2 if !weigher.clusters.is_empty() => own.intersection(&weigher.clusters[self.random.below(weigher.clusters.len())]),
            3 => weigher.set_of(own.iter().filter(|at| weigher.weights[*at] == 0)),
            _ => {
                let count = own.iter().count();
                let at = own.iter().nth(self.random.below(count));
                weigher.set_of(at.into_iter())
            }
        }
    }
}
