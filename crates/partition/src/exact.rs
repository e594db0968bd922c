//! The best distribution of ends over copies, where there are few.
//!
//! Branch and bound over ends, the most frequent first: an end goes to a copy that has something, or to the first one
//! that has nothing (copies are alike). The cost of a set of ends never falls as ends are added, so a branch whose
//! slowest copy is as slow as the best known result is left.

use super::weighing::{EndPartition, EndSet, Weigher};

/// Ends, executed ones, up to which they are distributed exactly. With 4 and 24, four programs' plans are the same: it serves small ones,
/// and bounds the time with [`MOST_BRANCHES`].
const MOST_ENDS: usize = 12;
/// Branches of the search that are looked at before it is given up.
const MOST_BRANCHES: u64 = 300_000;

/// The distribution whose slowest copy is fastest; `None` if there are too many ends, or the search would take too long.
pub fn best(weighers: &mut [Weigher], copies: usize) -> Option<EndPartition> {
    let ends: usize = weighers.iter().map(|w| w.ends.len()).sum();
    if ends > MOST_ENDS {
        return None;
    }
    let mut order: Vec<(usize, usize)> = weighers.iter().enumerate().flat_map(|(p, w)| (0..w.ends.len()).map(move |e| (p, e))).collect();
    order.sort_by_key(|(p, e)| std::cmp::Reverse(weighers[*p].weights[*e]));
    let partition: EndPartition = weighers.iter().map(|w| vec![EndSet::none(w.ends.len()); copies]).collect();
    let mut search = Exact { weighers, order, partition, loads: vec![0; copies], best: None, branches: 0 };
    search.branch(0);
    (search.branches < MOST_BRANCHES).then_some(search.best).flatten().map(|(_, partition)| partition)
}

struct Exact<'a> {
    weighers: &'a mut [Weigher],
    order: Vec<(usize, usize)>,
    partition: EndPartition,
    loads: Vec<u64>,
    /// The slowest copy's load, then the sum of all: of equal plans that which does less work.
    best: Option<((u64, u64), EndPartition)>,
    branches: u64,
}

impl Exact<'_> {
    fn value(&self) -> (u64, u64) {
        (self.loads.iter().copied().max().unwrap_or(0), self.loads.iter().sum())
    }

    fn branch(&mut self, depth: usize) {
        self.branches += 1;
        if self.branches >= MOST_BRANCHES || self.best.as_ref().is_some_and(|(value, _)| self.value() >= *value) {
            return;
        }
        let Some(&(procedure, end)) = self.order.get(depth) else {
            self.best = Some((self.value(), self.partition.clone()));
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
            self.branch(depth + 1);
            self.partition[procedure][copy] = before;
            self.loads[copy] = load;
        }
    }
}
