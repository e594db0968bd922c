//! Finds the optimal distribution of a few ends of paths over the copies of a program.
//!
//! Branch and bound over ends, the most frequent first. Since copies are interchangeable, an end goes to a copy that already has an end, or
//! to the first empty copy. Adding an end never lowers the cost of a set, so a branch is pruned when its slowest copy is as slow as the
//! slowest copy of the best solution.

use super::weighing::{EndPartition, EndSet, EndSetWeigher};

/// Maximum number of ends for which the search is tried. With 4 and with 24, the plans of four programs are the same, because this search
/// is for small programs.
const MAX_EXACTLY_SEARCHED_ENDS: usize = 12;
const MAX_SEARCH_BRANCHES: u64 = 300_000;

/// Returns the distribution whose slowest copy has the least load. Returns `None` if there are too many ends, or if the search takes too
/// long.
pub fn find_optimal_partition(weighers: &mut [EndSetWeigher], copies: usize) -> Option<EndPartition> {
    let ends: usize = weighers.iter().map(|w| w.ends.len()).sum();
    if ends > MAX_EXACTLY_SEARCHED_ENDS {
        return None;
    }
    let mut order: Vec<(usize, usize)> = weighers.iter().enumerate().flat_map(|(p, w)| (0..w.ends.len()).map(move |e| (p, e))).collect();
    order.sort_by_key(|(p, e)| std::cmp::Reverse(weighers[*p].weights[*e]));
    let partition: EndPartition = weighers.iter().map(|w| vec![EndSet::none(w.ends.len()); copies]).collect();
    let mut search = ExactPartitionSearch { weighers, order, partition, loads: vec![0; copies], best: None, branches: 0 };
    search.search_branch(0);
    (search.branches < MAX_SEARCH_BRANCHES).then_some(search.best).flatten().map(|(_, partition)| partition)
}

struct ExactPartitionSearch<'a> {
    weighers: &'a mut [EndSetWeigher],
    order: Vec<(usize, usize)>,
    partition: EndPartition,
    loads: Vec<u64>,
    /// The best distribution, with the load of its slowest copy and, to break ties, the sum of all loads.
    best: Option<((u64, u64), EndPartition)>,
    branches: u64,
}

impl ExactPartitionSearch<'_> {
    fn objective(&self) -> (u64, u64) {
        (self.loads.iter().copied().max().unwrap_or(0), self.loads.iter().sum())
    }

    fn search_branch(&mut self, depth: usize) {
        self.branches += 1;
        if self.branches >= MAX_SEARCH_BRANCHES || self.best.as_ref().is_some_and(|(value, _)| self.objective() >= *value) {
            return;
        }
        let Some(&(procedure, end)) = self.order.get(depth) else {
            self.best = Some((self.objective(), self.partition.clone()));
            return;
        };
        let used = |copy: usize| self.partition.iter().any(|s| !s[copy].is_empty());
        let open = (0..self.loads.len()).find(|c| !used(*c)).map_or(self.loads.len(), |c| c + 1);
        for copy in 0..open {
            let before = self.partition[procedure][copy].clone();
            let mut after = before.clone();
            after.insert(end);
            let load = self.loads[copy];
            self.loads[copy] = load - self.weighers[procedure].cost(&before) + self.weighers[procedure].cost(&after);
            self.partition[procedure][copy] = after;
            self.search_branch(depth + 1);
            self.partition[procedure][copy] = before;
            self.loads[copy] = load;
        }
    }
}
