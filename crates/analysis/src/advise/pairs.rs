//! Counts, for each pair of branches, how often each combination of their outcomes occurred on the same path.

use super::walks::ExecutedPaths;
use std::collections::{BTreeMap, HashMap};
use trodden_flow::{Edge, Node};

pub struct BranchPairs {
    /// The joint outcomes of two branches, by the block of the later branch and then by the block of the earlier branch.
    pub tables: BTreeMap<Node, BTreeMap<Node, ContingencyTable>>,
}

/// Joint outcomes of two branches on the same path.
#[derive(Debug, Default)]
pub struct ContingencyTable {
    /// Number of executions for each pair of edges: the edge taken at the earlier branch, and the edge taken at the later branch.
    pub cells: BTreeMap<(Edge, Edge), u64>,
    /// The number of blocks from the earlier to the later branch, summed over all executions.
    pub distance: u128,
}

impl BranchPairs {
    pub fn from_walks(walks: &ExecutedPaths) -> BranchPairs {
        let mut cells: HashMap<(Edge, Edge), (u64, u128)> = HashMap::new();
        for walk in &walks.walks {
            let decisions: Vec<(usize, Edge)> = walks.taken_decisions(walk).collect();
            for (i, &(to, later)) in decisions.iter().enumerate() {
                for &(from, earlier) in &decisions[..i] {
                    let cell = cells.entry((earlier, later)).or_default();
                    cell.0 = cell.0.saturating_add(walk.count);
                    cell.1 += u128::from(walk.count) * (to - from) as u128;
                }
            }
        }
        let mut tables: BTreeMap<Node, BTreeMap<Node, ContingencyTable>> = BTreeMap::new();
        for ((earlier, later), (count, distance)) in cells {
            let table = tables.entry(walks.source_block(later)).or_default().entry(walks.source_block(earlier)).or_default();
            table.cells.insert((earlier, later), count);
            table.distance += distance;
        }
        BranchPairs { tables }
    }
}

impl ContingencyTable {
    pub fn total(&self) -> u64 {
        self.cells.values().sum()
    }

    pub fn by_earlier(&self) -> BTreeMap<Edge, u64> {
        self.sum_by(|(earlier, _)| earlier)
    }

    pub fn by_later(&self) -> BTreeMap<Edge, u64> {
        self.sum_by(|(_, later)| later)
    }

    fn sum_by(&self, which: impl Fn((Edge, Edge)) -> Edge) -> BTreeMap<Edge, u64> {
        let mut sums = BTreeMap::new();
        self.cells.iter().for_each(|(pair, count)| *sums.entry(which(*pair)).or_default() += count);
        sums
    }
}
