//! Loops of what a function executed, each without the loops inside it.
//!
//! A loop is a strongly connected part of the executed graph. Taking away the edges into its header (where it is
//! entered) leaves the loops inside. This finds the natural loops of reducible graphs, and something sensible in
//! others.

use std::collections::BTreeSet;
use trodden_profile::FunctionPaths;
use trodden_unit::{BlockKind, FunctionMap};

/// A loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Block where it is entered; its first one, where indirect branches enter.
    pub header: u32,
    /// How often it was entered or iterated.
    pub iterations: u64,
    /// Instructions of the intermediate code that were executed in its own blocks.
    pub weight: u128,
    /// Its blocks.
    pub part: LoopPart,
}

/// The blocks of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopPart {
    header: u32,
    all: BTreeSet<u32>,
    /// Those that no loop inside has.
    own: BTreeSet<u32>,
}

impl LoopPart {
    /// A loop with none inside.
    #[cfg(test)]
    pub fn new(header: u32, blocks: &[u32]) -> LoopPart {
        let all: BTreeSet<u32> = blocks.iter().copied().collect();
        LoopPart { header, own: all.clone(), all }
    }

    /// Whether a block is the loop's own.
    pub fn has(&self, block: u32) -> bool {
        self.own.contains(&block)
    }

    /// Whether an edge is the loop's own: it leads around in it, and not within a loop inside.
    pub fn has_edge(&self, from: u32, to: u32) -> bool {
        self.all.contains(&from) && self.all.contains(&to) && (self.has(from) || self.has(to))
    }
}

/// The loops among the blocks and edges that were executed.
pub fn loops(function: &FunctionMap, paths: &FunctionPaths) -> Vec<Loop> {
    let executed = function.edges.iter().zip(&paths.edges).filter(|(e, count)| **count > 0 && e.to != function.exit());
    let edges: Vec<(u32, u32)> = executed.map(|(e, _)| (e.from.0, e.to.0)).collect();
    let is_code = |b: &u32| function.blocks[*b as usize].kind == BlockKind::Code;
    let make = |part: LoopPart| {
        let weigh = |b: &u32| u128::from(paths.blocks[*b as usize]) * u128::from(function.blocks[*b as usize].instructions);
        let header = [part.header].into_iter().chain(part.own.iter().copied()).find(is_code)?;
        Some(Loop { header, iterations: paths.blocks[part.header as usize], weight: part.own.iter().map(weigh).sum(), part })
    };
    parts(function.blocks.len(), &edges).into_iter().filter_map(make).collect()
}

fn parts(nodes: usize, edges: &[(u32, u32)]) -> Vec<LoopPart> {
    let mut found: Vec<LoopPart> = Vec::new();
    // What is still to be looked into: the edges of a part, and the loop around it.
    let mut work = vec![(edges.to_vec(), None::<usize>)];
    while let Some((inside, around)) = work.pop() {
        for blocks in cyclic_parts(nodes, &inside) {
            let all: BTreeSet<u32> = blocks.into_iter().collect();
            if let Some(around) = around {
                found[around].own = &found[around].own - &all;
            }
            let entered = edges.iter().find(|(from, to)| !all.contains(from) && all.contains(to)).map(|(_, to)| *to);
            let header = entered.or_else(|| all.first().copied()).unwrap_or_default();
            let rest = inside.iter().copied().filter(|(from, to)| all.contains(from) && all.contains(to) && *to != header).collect();
            work.push((rest, Some(found.len())));
            found.push(LoopPart { header, own: all.clone(), all });
        }
    }
    found.sort_by_key(|part| part.header);
    found
}

/// Strongly connected parts with at least one edge, each ascending (Tarjan 1972, without recursion).
fn cyclic_parts(nodes: usize, edges: &[(u32, u32)]) -> Vec<Vec<u32>> {
    let mut out: Vec<Vec<u32>> = vec![Vec::new(); nodes];
    edges.iter().for_each(|(from, to)| out[*from as usize].push(*to));
    let (mut order, mut low) = (vec![usize::MAX; nodes], vec![usize::MAX; nodes]);
    let (mut open, mut is_open, mut parts, mut next) = (Vec::new(), vec![false; nodes], Vec::new(), 0);
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
                    parts.push(part);
                }
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_and_own(nodes: usize, edges: &[(u32, u32)]) -> Vec<(u32, Vec<u32>)> {
        parts(nodes, edges).into_iter().map(|p| (p.header, p.own.into_iter().collect())).collect()
    }

    #[test]
    fn each_loop_is_found_without_those_inside() {
        // 0 -> outer loop 1..5 with two inner ones: 2 alone, and 3, 4.
        let edges = [(0, 1), (1, 2), (2, 2), (2, 3), (3, 4), (4, 3), (4, 5), (5, 1), (5, 6)];
        assert_eq!(headers_and_own(7, &edges), [(1, vec![1, 5]), (2, vec![2]), (3, vec![3, 4])]);
        assert_eq!(headers_and_own(3, &[(0, 1), (1, 2)]), []);
        let outer = &parts(7, &edges)[0];
        assert!(outer.has_edge(5, 1) && outer.has_edge(4, 5) && !outer.has_edge(3, 4) && !outer.has_edge(5, 6));
    }

    #[test]
    fn a_loop_entered_in_two_places_is_one() {
        assert_eq!(headers_and_own(4, &[(0, 1), (0, 2), (1, 2), (2, 1), (2, 3)]), [(1, vec![1, 2])]);
    }

    #[test]
    fn parts_are_those_in_which_every_node_reaches_every_other() {
        // All graphs of 4 nodes with 6 of some 16 edges each, against reachability by brute force.
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
            let mut parts = cyclic_parts(4, &edges);
            parts.sort();
            assert_eq!(parts, expected, "{edges:?}");
        }
    }
}
