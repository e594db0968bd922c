//! Partitions by measured frequencies: distributes the [ends](trodden_flow::part::PathEnds) of paths over copies.
//!
//! If a procedure is divided, each copy that has a part of it needs labels, so procedures are divided only if this is profitable. First,
//! complete procedures go to the copy with the least load. Then sets of ends move away from the slowest copy while this makes it faster.
//! The search is repeated with several weights for the executions of probes that a move adds. [Annealing](super::anneal) improves the
//! result. If there are few ends, an [exact](super::exact) search is used instead. Each move lowers the larger load of two copies, one of
//! which is the slowest, so the search ends.

use super::anneal::refine_by_annealing;
use super::exact;
use super::weighing::{EndPartition, EndSet, EndSetWeigher};
use super::{CopyPlan, PartitionOptions, PartitionPlan, Procedure};
use std::collections::{BTreeSet, HashMap};
use trodden_flow::dag::DagEdgeId;
use trodden_flow::part::Part;

/// A procedure is cheap if it costs at most a copy's equal share of the total cost, divided by this number.
const CHEAP_PROCEDURE_DIVISOR: u64 = 200;
/// For each trial, the weight of the executions that a move adds to all copies together, relative to the greater load of the two copies.
const TRIED_SUM_PRICES: [f64; 3] = [0.3, 1.0, 0.0];
/// A trial makes no further move after this much work, in the units of `EndSetWeigher::work`.
const MAX_EXAMINED_EDGES_PER_TRIAL: u64 = 120_000_000;
/// Maximum number of procedures that may be divided: the most expensive procedures of the slowest copy.
const MAX_DIVIDED_PROCEDURES: usize = 24;
/// Maximum number of single ends that are considered as moves.
const MAX_SINGLE_ENDS: usize = 32;

/// Distributes the ends of the procedures' paths over copies.
pub fn plan(procedures: &[Procedure], options: &PartitionOptions) -> PartitionPlan {
    let copies = options.copies.max(1);
    let mut weighers: Vec<EndSetWeigher> = procedures.iter().map(|p| EndSetWeigher::new(p, options.measure)).collect();
    let partition = exact::find_optimal_partition(&mut weighers, copies).unwrap_or_else(|| {
        let trials = TRIED_SUM_PRICES.map(|sum_price| PartitionSearch::new(&mut weighers, procedures, copies, sum_price).search());
        let best = trials.into_iter().min_by_key(|(_, slowest)| *slowest);
        refine_by_annealing(&mut weighers, best.map(|(partition, _)| partition).unwrap_or_default())
    });
    let mut plan = PartitionPlan { copies: vec![CopyPlan { parts: vec![None; procedures.len()] }; copies], profitable: 0 };
    for (at, (sets, weigher)) in partition.iter().zip(&weighers).enumerate() {
        plan.profitable += usize::from(sets.iter().filter(|s| !s.is_empty()).count() > 1);
        for (copy, set) in plan.copies.iter_mut().zip(sets).filter(|(_, set)| !set.is_empty()) {
            let ends: Vec<DagEdgeId> = set.iter().map(|e| weigher.ends[e]).collect();
            copy.parts[at] = Some(Part::counting_paths_with_ends(&procedures[at].dag, &ends, &procedures[at].frequencies, options.measure));
        }
    }
    plan
}

/// Distributes whole procedures over copies, the most expensive first.
pub fn plan_whole_procedures(procedures: &[Procedure], options: &PartitionOptions) -> PartitionPlan {
    let copies = options.copies.max(1);
    let mut weighers: Vec<EndSetWeigher> = procedures.iter().map(|p| EndSetWeigher::new(p, options.measure)).collect();
    let mut search = PartitionSearch::new(&mut weighers, procedures, copies, 0.0);
    search.assign_whole_procedures();
    let mut plan = PartitionPlan { copies: vec![CopyPlan { parts: vec![None; procedures.len()] }; copies], profitable: 0 };
    for (at, (procedure, sets)) in procedures.iter().zip(&search.partition).enumerate() {
        for (copy, _) in plan.copies.iter_mut().zip(sets).filter(|(_, set)| !set.is_empty()) {
            copy.parts[at] = Part::whole(&procedure.dag, &procedure.frequencies, options.measure);
        }
    }
    plan
}

struct PartitionSearch<'a> {
    weighers: &'a mut [EndSetWeigher],
    procedures: &'a [Procedure],
    partition: EndPartition,
    costs: Vec<Vec<u64>>,
    loads: Vec<u64>,
    sum_price: f64,
    work_before: u64,
}

/// A possible move of a set of ends from the slowest copy to a different one.
struct EndMove {
    procedure: usize,
    set: EndSet,
    to: usize,
    left: u64,
    joined: u64,
    price: f64,
}

impl<'a> PartitionSearch<'a> {
    fn new(weighers: &'a mut [EndSetWeigher], procedures: &'a [Procedure], copies: usize, sum_price: f64) -> PartitionSearch<'a> {
        let partition = weighers.iter().map(|w| vec![EndSet::none(w.ends.len()); copies]).collect();
        let costs = vec![vec![0; copies]; weighers.len()];
        let work_before = weighers.iter().map(|w| w.work).sum();
        PartitionSearch { weighers, procedures, partition, costs, loads: vec![0; copies], sum_price, work_before }
    }

    fn search(mut self) -> (EndPartition, u64) {
        self.assign_whole_procedures();
        while self.work() < MAX_EXAMINED_EDGES_PER_TRIAL {
            match self.best_move() {
                Some(chosen) => self.apply_move(chosen),
                None => break,
            }
        }
        let slowest = self.loads.iter().copied().max().unwrap_or(0);
        (self.partition, slowest)
    }

    fn work(&self) -> u64 {
        self.weighers.iter().map(|w| w.work).sum::<u64>() - self.work_before
    }

    /// Distributes complete procedures, the most expensive first. A cheap procedure goes to a copy that already has procedures of the same
    /// unit, unless this makes the copy the slowest, so that few units are compiled for each copy.
    fn assign_whole_procedures(&mut self) {
        let all: Vec<EndSet> = self.weighers.iter().map(|w| EndSet::all(w.ends.len())).collect();
        let mut order: Vec<(u64, usize)> = (0..all.len()).map(|at| (self.weighers[at].cost(&all[at]), at)).collect();
        order.sort_by_key(|(cost, at)| (std::cmp::Reverse(*cost), *at));
        let copies = self.loads.len();
        let is_scarce = self.procedures.iter().map(|p| p.unit).collect::<BTreeSet<_>>().len() < copies;
        let cheap = order.iter().map(|(cost, _)| *cost).sum::<u64>() / copies as u64 / CHEAP_PROCEDURE_DIVISOR;
        let negligible = cheap / order.len().max(1) as u64;
        // For each copy, the total cost of its negligible procedures, each counted as at least 1. Negligible procedures are distributed
        // evenly.
        let mut idle = vec![0u64; copies];
        let mut homes = HashMap::<usize, BTreeSet<usize>>::new();
        for (cost, at) in order {
            let known = homes.entry(self.procedures[at].unit).or_default();
            let copy = if cost <= negligible {
                let near = (0..copies).filter(|c| is_scarce || known.is_empty() || known.contains(c));
                near.min_by_key(|c| idle[*c]).unwrap_or(0)
            } else {
                let most = self.loads.iter().copied().max().unwrap_or(0);
                let near = (0..copies).filter(|c| cost <= cheap && known.contains(c) && self.loads[*c] + cost <= most);
                near.min_by_key(|c| self.loads[*c]).or_else(|| (0..copies).min_by_key(|c| self.loads[*c])).unwrap_or(0)
            };
            known.insert(copy);
            idle[copy] += if cost <= negligible { cost.max(1) } else { 0 };
            self.partition[at][copy] = all[at].clone();
            self.costs[at][copy] = cost;
            self.loads[copy] += cost;
        }
    }

    fn slowest_copy(&self) -> usize {
        (0..self.loads.len()).max_by_key(|c| (self.loads[*c], std::cmp::Reverse(*c))).unwrap_or(0)
    }

    /// Returns the best move away from the slowest copy. Returns `None` if no move makes this copy faster without making a different copy
    /// as slow as it was.
    fn best_move(&mut self) -> Option<EndMove> {
        let from = self.slowest_copy();
        let mut order: Vec<usize> = (0..self.partition.len()).filter(|at| self.costs[*at][from] > 0).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.costs[*at][from]));
        let mut best: Option<EndMove> = None;
        for (rank, procedure) in order.into_iter().enumerate() {
            let sets = if rank < MAX_DIVIDED_PROCEDURES {
                self.candidate_sets(procedure, from)
            } else {
                vec![self.partition[procedure][from].clone()]
            };
            for set in sets {
                for to in self.target_copies(procedure, from) {
                    let found = self.evaluate_move(procedure, &set, from, to);
                    if let Some(found) = found.filter(|f| best.as_ref().is_none_or(|b| f.price < b.price)) {
                        best = Some(found);
                    }
                }
            }
        }
        best
    }

    /// Returns the copies to which ends may move: the one with the least load, and those that already have a part of the procedure.
    fn target_copies(&self, procedure: usize, from: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.loads.len()).filter(|c| *c != from).collect();
        order.sort_by_key(|c| self.loads[*c]);
        let known = |(rank, copy): &(usize, usize)| *rank == 0 || !self.partition[procedure][*copy].is_empty();
        order.into_iter().enumerate().filter(known).map(|(_, copy)| copy).collect()
    }

    fn evaluate_move(&mut self, procedure: usize, set: &EndSet, from: usize, to: usize) -> Option<EndMove> {
        let own = &self.partition[procedure];
        let (rest, grown) = (own[from].difference(set), own[to].union(set));
        let weigher = &mut self.weighers[procedure];
        let left = weigher.cost(&rest);
        let new_from = self.loads[from] - self.costs[procedure][from] + left;
        // A move never lowers the load of the target copy, so it is useless if that copy already has at least the same load.
        if new_from >= self.loads[from] || self.loads[to] >= self.loads[from] {
            return None;
        }
        let joined = weigher.cost(&grown);
        let new_to = self.loads[to] - self.costs[procedure][to] + joined;
        let greater = new_from.max(new_to);
        if greater >= self.loads[from] {
            return None;
        }
        let added = (new_from + new_to).saturating_sub(self.loads[from] + self.loads[to]);
        let price = greater as f64 + self.sum_price * added as f64;
        Some(EndMove { procedure, set: set.clone(), to, left, joined, price })
    }

    fn apply_move(&mut self, chosen: EndMove) {
        let from = self.slowest_copy();
        let EndMove { procedure, set, to, left, joined, .. } = chosen;
        let (partition, costs) = (&mut self.partition[procedure], &mut self.costs[procedure]);
        partition[from] = partition[from].difference(&set);
        partition[to] = partition[to].union(&set);
        self.loads[from] = self.loads[from] - costs[from] + left;
        self.loads[to] = self.loads[to] - costs[to] + joined;
        (costs[from], costs[to]) = (left, joined);
    }

    /// Returns the sets of a procedure's ends that are considered for a move away from a copy.
    fn candidate_sets(&self, procedure: usize, from: usize) -> Vec<EndSet> {
        let (weigher, own) = (&self.weighers[procedure], &self.partition[procedure][from]);
        let mut sets = vec![own.clone()];
        sets.extend(
            weigher.by_weight.iter().filter(|at| own.contains(**at)).take(MAX_SINGLE_ENDS).map(|at| weigher.set_of([*at].into_iter())),
        );
        sets.extend(weigher.clusters.iter().map(|c| c.intersection(own)));
        let least = self.loads.iter().copied().min().unwrap_or(0);
        for part in [2, 3, 5] {
            let room = (self.loads[from] - least) / part;
            for order in [&weigher.by_weight, &weigher.by_place] {
                sets.push(ends_that_fit(weigher, own, order.iter().copied(), room));
                sets.push(ends_that_fit(weigher, own, order.iter().rev().copied(), room));
            }
        }
        sets.sort();
        sets.dedup();
        sets.retain(|s| !s.is_empty());
        sets
    }
}

/// Selects ends in the given order, and skips those that would raise the number of executions above `room`.
fn ends_that_fit(weigher: &EndSetWeigher, own: &EndSet, order: impl Iterator<Item = usize>, mut room: u64) -> EndSet {
    let mut set = EndSet::none(weigher.ends.len());
    for at in order.filter(|at| own.contains(*at) && weigher.weights[*at] > 0) {
        if weigher.weights[at] <= room {
            room -= weigher.weights[at];
            set.insert(at);
        }
    }
    set
}
