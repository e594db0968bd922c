//! Lines that must have been executed although no code of them was.
//!
//! Where the optimiser knows a condition, merges branches or moves a load, what is left of a line may be code that was not executed, while
//! the line was. The function's graph before the optimiser decides: counts of its other lines bound those of each block
//! ([`trodden_flow::bounds`]). If a line without executions lies in a block that has at least one, the line gets the count of the
//! block's other lines, and none if it has no others: of optimised code, counts are exact, but may be of a copy among several. A line
//! gets none either if executions must have gone through it, should no other line without executions have been executed.
//!
//! Lines count as a block's only if no other block has them. Where copies of a function differ (templates), or some of their paths were not
//! counted, nothing is concluded.

use super::LineCounts;
use crate::view::{Function, chain};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use trodden_flow::bounds::{Bounds, contradicted, node_bounds};
use trodden_flow::{Graph, Node};
use trodden_unit::{LineBlock, UnitMap};

/// A function by its file and the line of its declaration.
type Place<'a> = (&'a str, u32);

/// Graphs of the functions at hand.
struct Graphs<'a> {
    /// The graph of each; `None` where copies of it differ.
    by_place: BTreeMap<Place<'a>, Option<&'a [LineBlock]>>,
    /// Functions in which an execution may end in a call.
    unfinished: BTreeSet<Place<'a>>,
    /// Blocks that have a line.
    blocks_of: BTreeMap<Place<'a>, u32>,
}

/// Corrects lines that have 0 and were executed.
pub fn apply(counts: &mut LineCounts, functions: &[&Function]) {
    let graphs = Graphs::of(functions);
    let mut corrected: BTreeMap<(&str, u32), Option<u64>> = BTreeMap::new();
    for (&(file, line), blocks) in &graphs.by_place {
        let Some(flow) = blocks.and_then(|blocks| graphs.flow(counts, (file, line), blocks)) else { continue };
        for (block, count) in flow.executed() {
            for &line in flow.blocks[block].lines.iter().filter(|l| counts.line(file, **l) == Some(0)) {
                // Blocks of one line are not added up: the most executed one counts.
                let so_far = corrected.entry((file, line)).or_insert(count);
                *so_far = so_far.zip(count).map(|(a, b)| a.max(b));
            }
        }
    }
    for ((file, line), count) in corrected {
        let Some(file) = counts.files.get_mut(file) else { continue };
        match count {
            Some(count) => _ = file.lines.insert(line, count),
            None => _ = file.lines.remove(&line),
        }
    }
}

/// A function's graph with what is known of its blocks.
struct Flow<'a> {
    graph: Graph,
    blocks: &'a [LineBlock],
    /// Counts of blocks, as lines have them that no other block has.
    known: Vec<Option<u64>>,
    /// Blocks with a line that has no executions.
    zero: Vec<bool>,
    may_end: Vec<bool>,
}

impl Flow<'_> {
    /// Blocks that were executed for certain, with the counts of those that have one.
    fn executed(&self) -> Vec<(usize, Option<u64>)> {
        // A block that several lead to may have been copied for some of them: its lines have the count of the most executed copy.
        let given = |(count, block): (Option<u64>, u32)| match count {
            Some(count) if block > 0 && self.graph.incoming(Node(block)).len() > 1 => Bounds::at_least(count),
            Some(count) => Bounds::exactly(count),
            None => Bounds::ANY,
        };
        let mut given: Vec<Bounds> = self.known.iter().copied().zip(0..).map(given).collect();
        let bounds = node_bounds(&self.graph, given.clone(), &self.may_end);
        let is_executed = |block: usize| bounds[block].low > 0;
        let doubted = |block: &usize| self.known[*block].is_none() && self.zero[*block] && !is_executed(*block);
        (0..self.blocks.len()).filter(doubted).for_each(|block| given[block] = Bounds::exactly(0));
        let needed = contradicted(&self.graph, given, &self.may_end).into_iter().map(Node::index).filter(doubted);
        (0..self.blocks.len()).filter(|b| is_executed(*b)).map(|b| (b, self.known[b])).chain(needed.map(|b| (b, None))).collect()
    }
}

/// The functions that a function is made of: itself, and those that were inlined into it.
fn places<'a>(function: &Function<'a>) -> BTreeSet<Place<'a>> {
    let map = function.units_map();
    let positions = function.map.blocks.iter().flat_map(|b| b.positions.iter().copied().chain(b.branch));
    let scopes: BTreeSet<u32> = positions.chain(function.map.position).flat_map(|p| chain(map, p)).map(|p| p.scope).collect();
    let scopes = scopes.into_iter().filter_map(|scope| map.scopes.get(scope as usize));
    scopes.filter_map(|scope| Some((map.files.get(scope.file as usize)?.as_str(), scope.line))).collect()
}

impl<'a> Graphs<'a> {
    fn of(functions: &[&Function<'a>]) -> Graphs<'a> {
        let mut graphs = Graphs { by_place: BTreeMap::new(), unfinished: BTreeSet::new(), blocks_of: BTreeMap::new() };
        // Only what the functions are made of: reports ask for one function after the other.
        let places: Vec<(&Function<'a>, BTreeSet<Place<'a>>)> = functions.iter().map(|f| (*f, places(f))).collect();
        let wanted: BTreeSet<Place> = places.iter().flat_map(|(_, places)| places).copied().collect();
        let lines: BTreeSet<u32> = wanted.iter().map(|(_, line)| *line).collect();
        let mut units: HashSet<*const UnitMap> = HashSet::new();
        let maps = functions.iter().map(|f| f.units_map()).filter(|map| units.insert(std::ptr::from_ref(*map)));
        for map in maps.filter(|map| !map.experiment.is_sampled() && !map.has_times()) {
            for graph in map.line_graphs.functions.iter().filter(|graph| lines.contains(&graph.line)) {
                let Some(file) = map.line_graphs.files.get(graph.file as usize) else { continue };
                if wanted.contains(&(file.as_str(), graph.line)) {
                    let known = graphs.by_place.entry((file, graph.line)).or_insert(Some(&graph.blocks));
                    *known = known.filter(|known| **known == graph.blocks[..]);
                }
            }
        }
        for (&(file, _), blocks) in &graphs.by_place {
            for &line in blocks.iter().flat_map(|blocks| blocks.iter()).flat_map(|block| &block.lines) {
                *graphs.blocks_of.entry((file, line)).or_default() += 1;
            }
        }
        places.iter().for_each(|(function, places)| graphs.take(function, places));
        graphs
    }

    /// Notes what one function says of those that it is made of.
    fn take(&mut self, function: &Function, places: &BTreeSet<Place<'a>>) {
        let is_whole = !function.map.is_partial() && (!function.is_executed() || function.paths.edges.iter().any(|n| *n > 0));
        if is_whole && function.paths.all_finished() {
            return;
        }
        self.unfinished.extend(places);
        for place in places.iter().filter(|_| !is_whole) {
            if let Some(graph) = self.by_place.get_mut(place) {
                *graph = None;
            }
        }
    }

    /// What is known of a function; `None` if it was not entered, or no line of it has 0.
    fn flow(&self, counts: &LineCounts, (file, line): Place<'a>, blocks: &'a [LineBlock]) -> Option<Flow<'a>> {
        let of_file = counts.files.get(file)?;
        let names = of_file.functions.range((line, String::new())..(line + 1, String::new()));
        let entries = names.map(|(_, n)| *n).fold(0, u64::saturating_add);
        let zero: Vec<bool> = blocks.iter().map(|b| b.lines.iter().any(|l| of_file.lines.get(l) == Some(&0))).collect();
        if entries == 0 || !zero.contains(&true) {
            return None;
        }
        let exit = blocks.len() as u32;
        let edges = blocks.iter().zip(0..).flat_map(|(block, from)| {
            let next = if block.next.is_empty() { std::slice::from_ref(&exit) } else { &block.next[..] };
            next.iter().map(move |to| (Node(from), Node(*to))).collect::<Vec<_>>()
        });
        let graph = Graph::new(exit + 1, Node(0), Node(exit), edges.collect()).ok()?;
        let is_own = |l: &&u32| self.blocks_of.get(&(file, **l)) == Some(&1);
        let count = |b: &LineBlock| b.lines.iter().filter(is_own).filter_map(|l| of_file.lines.get(l).copied()).max().filter(|n| *n > 0);
        let mut known: Vec<Option<u64>> = blocks.iter().map(count).collect();
        known[0] = Some(entries).filter(|_| graph.incoming(Node(0)).is_empty()).or(known[0]);
        let may_end = blocks.iter().map(|b| b.may_end && self.unfinished.contains(&(file, line))).collect();
        Some(Flow { graph, blocks, known, zero, may_end })
    }
}
