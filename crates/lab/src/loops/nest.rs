//! Finds the loop nest of the executed part of a function.
//!
//! A loop is a strongly connected component of the executed graph. Removing the edges into its header (where the loop is entered) leaves
//! the inner loops. In reducible graphs, these are the natural loops; in irreducible graphs, they are a reasonable approximation.

use std::collections::BTreeSet;
use trodden_profile::FunctionPaths;
use trodden_unit::{BlockKind, FunctionMap};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedLoop {
    /// Block at which the loop is entered; its first block if indirect branches enter the loop.
    pub header: u32,
    /// Number of executions of the header.
    pub iterations: u64,
    /// Number of IR instructions executed in the loop's own blocks, outside inner loops.
    pub weight: u128,
    pub part: LoopBlocks,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopBlocks {
    header: u32,
    all: BTreeSet<u32>,
    /// Blocks of the loop that are in no inner loop.
    own: BTreeSet<u32>,
}

impl LoopBlocks {
    #[cfg(test)]
    pub fn new(header: u32, blocks: &[u32]) -> LoopBlocks {
        let all: BTreeSet<u32> = blocks.iter().copied().collect();
        LoopBlocks { header, own: all.clone(), all }
    }

    pub fn is_own_block(&self, block: u32) -> bool {
        self.own.contains(&block)
    }

    /// Returns true if an edge is in this loop, and at least one of its ends is in no inner loop.
    pub fn is_own_edge(&self, from: u32, to: u32) -> bool {
        self.all.contains(&from) && self.all.contains(&to) && (self.is_own_block(from) || self.is_own_block(to))
    }
}

pub fn find_weighted_loops(function: &FunctionMap, paths: &FunctionPaths) -> Vec<WeightedLoop> {
    let executed = function.graph.flow_edges().zip(&paths.edges).filter(|(e, count)| **count > 0 && e.to != function.exit());
    let edges: Vec<(u32, u32)> = executed.map(|(e, _)| (e.from.0, e.to.0)).collect();
    let is_code = |b: &u32| function.blocks[*b as usize].kind == BlockKind::Code;
    let to_loop = |part: LoopBlocks| {
        let weigh = |b: &u32| u128::from(paths.blocks[*b as usize]) * u128::from(function.blocks[*b as usize].instructions);
        let header = [part.header].into_iter().chain(part.own.iter().copied()).find(is_code)?;
        Some(WeightedLoop { header, iterations: paths.blocks[part.header as usize], weight: part.own.iter().map(weigh).sum(), part })
    };
    find_loops(function.blocks.len(), &edges).into_iter().filter_map(to_loop).collect()
}

fn find_loops(nodes: usize, edges: &[(u32, u32)]) -> Vec<LoopBlocks> {
    let mut found: Vec<LoopBlocks> = Vec::new();
    // Subgraphs in which loops still have to be found, each with the index of the enclosing loop.
    let mut work = vec![(edges.to_vec(), None::<usize>)];
    while let Some((inside, around)) = work.pop() {
        for blocks in cyclic_components(nodes, &inside) {
            let all: BTreeSet<u32> = blocks.into_iter().collect();
            if let Some(around) = around {
                found[around].own = &found[around].own - &all;
            }
            let entered = edges.iter().find(|(from, to)| !all.contains(from) && all.contains(to)).map(|(_, to)| *to);
            let header = entered.or_else(|| all.first().copied()).unwrap_or_default();
            let rest = inside.iter().copied().filter(|(from, to)| all.contains(from) && all.contains(to) && *to != header).collect();
            work.push((rest, Some(found.len())));
            found.push(LoopBlocks { header, own: all.clone(), all });
        }
    }
    found.sort_by_key(|part| part.header);
    found
}

/// Returns the strongly connected components with at least one edge, each sorted (Tarjan 1972, iterative).
fn cyclic_components(nodes: usize, edges: &[(u32, u32)]) -> Vec<Vec<u32>> {
    let mut out: Vec<Vec<u32>> = vec![Vec::new(); nodes];
    edges.iter().for_each(|(from, to)| out[*from as usize].push(*to));
    let (mut order, mut low) = (vec![usize::MAX; nodes], vec![usize::MAX; nodes]);
    let (mut open, mut is_open, mut components, mut next) = (Vec::new(), vec![false; nodes], Vec::new(), 0);
    for root in edges.iter().map(|(from, _)| *from as usize) {
        if order[root] != usize::MAX {
            continue;
        }
        let mut path = vec![(root, 0)];
        while let Some((node, at)) = path.last_mut() {
            let node = *node;
            if *at == 0 {
                (order[node], low[node], is_open[node]) = (next, next, true);
                open.push(node);
                next += 1;
            }
            if let Some(to) = out[node].get(*at).map(|t| *t as usize) {
                *at += 1;
                if order[to] == usize::MAX {
                    path.push((to, 0));
                } else if is_open[to] {
                    low[node] = low[node].min(order[to]);
                }
                continue;
            }
            path.pop();
            if let Some((above, _)) = path.last() {
                low[*above] = low[*above].min(low[node]);
            }
            if low[node] == order[node] {
                let from = open.iter().rposition(|n| *n == node).unwrap_or(0);
                let mut part: Vec<u32> = open.split_off(from).into_iter().map(|n| n as u32).collect();
                part.iter().for_each(|n| is_open[*n as usize] = false);
                part.sort_unstable();
                if part.len() > 1 || out[node].contains(&(node as u32)) {
                    components.push(part);
                }
            }
        }
    }
    components
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_and_own_blocks(nodes: usize, edges: &[(u32, u32)]) -> Vec<(u32, Vec<u32>)> {
        find_loops(nodes, edges).into_iter().map(|p| (p.header, p.own.into_iter().collect())).collect()
    }

    #[test]
    fn own_blocks_exclude_inner_loops() {
        // Block 0 leads to an outer loop 1..5 with two inner ones: 2 alone, and 3 with 4.
        let edges = [(0, 1), (1, 2), (2, 2), (2, 3), (3, 4), (4, 3), (4, 5), (5, 1), (5, 6)];
        assert_eq!(headers_and_own_blocks(7, &edges), [(1, vec![1, 5]), (2, vec![2]), (3, vec![3, 4])]);
        assert_eq!(headers_and_own_blocks(3, &[(0, 1), (1, 2)]), []);
        let outer = &find_loops(7, &edges)[0];
        assert!(outer.is_own_edge(5, 1) && outer.is_own_edge(4, 5) && !outer.is_own_edge(3, 4) && !outer.is_own_edge(5, 6));
    }

    #[test]
    fn loop_with_two_entries_is_one_loop() {
        assert_eq!(headers_and_own_blocks(4, &[(0, 1), (0, 2), (1, 2), (2, 1), (2, 3)]), [(1, vec![1, 2])]);
    }

    #[test]
    fn components_equal_mutual_reachability() {
        // Random graphs of 4 nodes and 6 edges, compared with brute-force reachability.
        for seed in 0u64..400 {
            let pick = |i: u64| {
                (seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i.wrapping_mul(1_442_695_040_888_963_407)) >> 33) as u32
            };
            let edges: Vec<(u32, u32)> = (1..7).map(|i| (pick(i) % 4, pick(i + 50) % 4)).collect();
            let mut reach = [[false; 4]; 4];
            edges.iter().for_each(|(a, b)| reach[*a as usize][*b as usize] = true);
            for k in 0..4 {
                for i in 0..4 {
                    for j in 0..4 {
                        reach[i][j] |= reach[i][k] && reach[k][j];
                    }
                }
            }
            let mut expected: Vec<Vec<u32>> = (0..4usize)
                .filter(|i| reach[*i][*i])
                .map(|i| (0..4u32).filter(|j| reach[i][*j as usize] && reach[*j as usize][i]).collect())
                .collect();
            expected.sort();
            expected.dedup();
            let mut components = cyclic_components(4, &edges);
            components.sort();
            assert_eq!(components, expected, "{edges:?}");
        }
    }
}
