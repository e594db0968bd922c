//! Lines that must have been executed although no code of them was.
//!
//! Where the optimiser knows a condition, merges branches or moves a load, what is left of a line may be code that was not executed, while
//! the line was. The function's graph before the optimiser decides: counts of its other lines bound those of each block
//! ([`trodden_flow::bounds`]). If a line without executions lies in a block that has at least one, the line gets the count of the
//! block's other lines, and none if it has no others: of optimised code, counts are exact, but may be of a copy among several.
//!
//! Other lines without executions get no count, because the code that is left of them proves nothing:
//!
//! 1. a condition, or a line of several blocks, if one of its blocks may have been executed for all that is known of other lines;
//! 2. a line of a block that must have been executed, should no block of which no code is left have been executed;
//! 3. the last line of an arm of `? :`, if the expression around it may have been executed;
//! 4. a jump at the end of other lines, such as that of a closing brace.
//!
//! Lines count as a block's only if no other block has them. Where copies of a function differ (templates), or some of their paths were not
//! counted, nothing is concluded.

use super::LineCounts;
use crate::view::{Function, chain};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use trodden_flow::bounds::{Bounds, contradicted, inevitable, node_bounds, reachable};
use trodden_flow::{Graph, Node};
use trodden_unit::{LineBlock, LineGraph, UnitMap};

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
    /// Calls by name, with the block that makes each.
    calls: Vec<(Place<'a>, u32, Place<'a>)>,
}

/// Corrects lines that have 0 and were executed.
pub fn apply(counts: &mut LineCounts, functions: &[&Function]) {
    let graphs = Graphs::from_functions(functions);
    let mut corrected: BTreeMap<(&str, u32), Option<u64>> = BTreeMap::new();
    for &(file, line) in &graphs.traceless(counts) {
        let lines = graphs.by_place[&(file, line)].iter().flat_map(|blocks| blocks.iter()).flat_map(LineBlock::all_lines);
        corrected.extend(lines.chain([&line]).filter(|l| counts.line(file, **l) == Some(0)).map(|l| ((file, *l), None)));
        if let Some(of_file) = counts.files.get_mut(file) {
            of_file.functions.retain(|(at, _), _| *at != line);
        }
    }
    for (&(file, line), blocks) in &graphs.by_place {
        let flow = blocks.and_then(|blocks| graphs.flow(counts, (file, line), blocks));
        let Some(flow) = flow.filter(|flow| !flow.zero.is_empty() || !flow.jumps.is_empty()) else { continue };
        for (block, count) in flow.executed() {
            // A block may end in a call before its end: what is behind it was not executed.
            let is_behind = |line: &u32| flow.may_end[block] && counts.files.get(file).is_some_and(|f| f.stopped.contains(line));
            let zero = flow.blocks[block].lines.iter().filter(|l| counts.line(file, **l) == Some(0) && !is_behind(l));
            for &line in zero {
                // Blocks of one line are not added up: the most executed one counts.
                let so_far = corrected.entry((file, line)).or_insert(count);
                *so_far = so_far.zip(count).map(|(a, b)| a.max(b));
            }
        }
        flow.uncertain().into_iter().for_each(|line| _ = corrected.entry((file, line)).or_insert(None));
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
    /// Lines without executions, each with its blocks.
    zero: BTreeMap<u32, Vec<usize>>,
    /// Lines without executions that are only jumps.
    jumps: Vec<u32>,
    may_end: Vec<bool>,
    /// What is known of each block, and bounds that follow.
    given: Vec<Bounds>,
    bounds: Vec<Bounds>,
}

impl Flow<'_> {
    /// Blocks that were executed for certain, with the counts of those that have one.
    fn executed(&self) -> Vec<(usize, Option<u64>)> {
        let executed = inevitable(&self.graph, &self.bounds, &self.may_end);
        (0..self.blocks.len()).filter(|block| executed[*block]).map(|block| (block, self.known[block])).collect()
    }

    /// Lines without executions whose code does not prove that.
    fn uncertain(&self) -> BTreeSet<u32> {
        let (unproven, needed) = (self.unproven(), self.needed());
        let lines = self.zero.iter().filter(|(line, blocks)| unproven.contains(line) || blocks.iter().any(|b| needed.contains(b)));
        lines.map(|(line, _)| *line).chain(self.jumps.iter().copied()).collect()
    }

    /// Lines that may have been executed for all that is known of the others: the code that is left may be of another part of the line, or
    /// of one path on which its condition was not known.
    fn unproven(&self) -> BTreeSet<u32> {
        let copied = self.copied();
        let given = |(bounds, copied): (Bounds, bool)| if copied { Bounds::at_least(bounds.low) } else { bounds };
        let mut given: Vec<Bounds> = self.given.iter().copied().zip(copied).map(given).collect();
        let (proofs, others): (Vec<_>, Vec<_>) = self.zero.iter().partition(|(line, blocks)| self.is_statement(**line, blocks));
        proofs.iter().for_each(|(_, blocks)| given[blocks[0]] = Bounds::exactly(0));
        let reachable = reachable(&self.graph, given, &self.may_end);
        let conditions = others.into_iter().filter(|(_, blocks)| blocks.iter().any(|block| reachable[*block]));
        let arms = proofs.into_iter().filter(|(line, blocks)| self.rest(**line, blocks[0]).is_some_and(|rest| reachable[rest]));
        conditions.chain(arms).map(|(line, _)| *line).collect()
    }

    /// Whether a line is in one block only, and not its condition. Code of such a line is not dropped where it is executed.
    fn is_statement(&self, line: u32, blocks: &[usize]) -> bool {
        let block = &self.blocks[blocks[0]];
        blocks.len() == 1 && (block.next.len() < 2 || block.lines.last() != Some(&line))
    }

    /// The block in which an expression goes on, if the line is the last of an arm of it: `? x` and `: y` jump forward to an earlier line.
    fn rest(&self, line: u32, block: usize) -> Option<usize> {
        let block_of = |number: &u32| *number as usize;
        let rest = self.blocks[block].next.first().map(block_of).filter(|next| *next > block);
        rest.filter(|_| self.blocks[block].jump.is_some_and(|to| to < line))
    }

    /// Blocks that must have been executed if those of which no code is left were not: the optimiser merges code of several blocks, and
    /// the rest has the line of one of them.
    fn needed(&self) -> BTreeSet<usize> {
        let mut given = self.given.clone();
        let mut open = vec![false; self.graph.node_count()];
        for block in (0..self.blocks.len()).filter(|b| self.known[*b].is_none() && self.bounds[*b].low == 0) {
            (open[block], given[block]) = (true, Bounds::exactly(0));
        }
        contradicted(&self.graph, given, &self.may_end).into_iter().map(Node::index).filter(|b| open[*b]).collect()
    }

    /// Blocks that the optimiser may have copied: all but those that one edge leads to from block to block since the entry.
    fn copied(&self) -> Vec<bool> {
        let mut copied = vec![true; self.graph.node_count()];
        let mut left = vec![self.graph.entry()];
        while let Some(node) = left.pop() {
            if self.graph.incoming(node).len() <= usize::from(node != self.graph.entry()) {
                copied[node.index()] = false;
                left.extend(self.graph.out(node).iter().map(|e| self.graph.to(*e)));
            }
        }
        copied
    }
}

/// What is known of a block by its count. What stops executions was not executed, if all ended otherwise.
fn given(graph: &Graph, block: usize, count: Option<u64>, stops: bool) -> Bounds {
    // A block that several lead to may have been copied for some of them: its lines have the count of the most executed copy.
    match count {
        Some(count) if block > 0 && graph.incoming(Node(block as u32)).len() > 1 => Bounds::at_least(count),
        Some(count) => Bounds::exactly(count),
        None if stops => Bounds::exactly(0),
        None => Bounds::ANY,
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
    fn from_functions(functions: &[&Function<'a>]) -> Graphs<'a> {
        let mut graphs = Graphs { by_place: BTreeMap::new(), unfinished: BTreeSet::new(), blocks_of: BTreeMap::new(), calls: Vec::new() };
        // Only what the functions are made of: reports ask for one function after the other.
        let places: Vec<(&Function<'a>, BTreeSet<Place<'a>>)> = functions.iter().map(|f| (*f, places(f))).collect();
        let wanted: BTreeSet<Place> = places.iter().flat_map(|(_, places)| places).copied().collect();
        let lines: BTreeSet<u32> = wanted.iter().map(|(_, line)| *line).collect();
        let mut units: HashSet<*const UnitMap> = HashSet::new();
        let maps = functions.iter().map(|f| f.units_map()).filter(|map| units.insert(std::ptr::from_ref(*map)));
        for map in maps.filter(|map| !map.experiment.is_sampled() && !map.has_times()) {
            let place = |graph: &LineGraph| Some((map.line_graphs.files.get(graph.file as usize)?.as_str(), graph.line));
            for graph in map.line_graphs.functions.iter().filter(|graph| lines.contains(&graph.line)) {
                let Some(caller) = place(graph).filter(|place| wanted.contains(place)) else { continue };
                let known = graphs.by_place.entry(caller).or_insert(Some(&graph.blocks));
                *known = known.filter(|known| **known == graph.blocks[..]);
                let called =
                    |number: u32| map.line_graphs.functions.get(number as usize).and_then(place).filter(|place| wanted.contains(place));
                let calls = graph.calls.iter().filter_map(|(block, number)| Some((caller, *block, called(*number)?)));
                graphs.calls.extend(calls);
            }
        }
        for (&(file, _), blocks) in &graphs.by_place {
            for &line in blocks.iter().flat_map(|blocks| blocks.iter()).flat_map(LineBlock::all_lines) {
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

    /// Functions that were called for certain, but without entries: the optimiser left no code of them where they were inlined.
    fn traceless(&self, counts: &LineCounts) -> BTreeSet<Place<'a>> {
        let has_none = |called: &Place| self.by_place.contains_key(called) && counts.calls(*called) == Some(0);
        let mut callers: BTreeMap<Place, Vec<(u32, Place)>> = BTreeMap::new();
        for (caller, block, called) in self.calls.iter().filter(|(_, _, called)| has_none(called)) {
            callers.entry(*caller).or_default().push((*block, *called));
        }
        let mut found = BTreeSet::new();
        for (caller, calls) in callers {
            let flow = self.by_place[&caller].and_then(|blocks| self.flow(counts, caller, blocks));
            let executed: BTreeSet<usize> = flow.iter().flat_map(Flow::executed).map(|(block, _)| block).collect();
            // An execution may end before the call, unless it went on behind the block.
            let ends = |block: usize| flow.as_ref().is_some_and(|flow| flow.may_end[block]);
            let goes_on =
                |block: usize| self.by_place[&caller].is_some_and(|b| b[block].next.iter().any(|n| executed.contains(&(*n as usize))));
            let made = calls.into_iter().map(|(block, called)| (block as usize, called));
            found.extend(made.filter(|(b, _)| executed.contains(b) && (!ends(*b) || goes_on(*b))).map(|(_, called)| called));
        }
        found
    }

    /// What is known of a function; `None` if it was not entered.
    fn flow(&self, counts: &LineCounts, (file, line): Place<'a>, blocks: &'a [LineBlock]) -> Option<Flow<'a>> {
        let of_file = counts.files.get(file)?;
        let entries = counts.calls((file, line)).unwrap_or(0);
        let has_zero = |line: &&u32| of_file.lines.get(line) == Some(&0);
        let mut zero: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, block) in blocks.iter().enumerate() {
            block.lines.iter().filter(has_zero).for_each(|line| zero.entry(*line).or_default().push(number));
        }
        let jumps: Vec<u32> = blocks.iter().filter_map(|b| b.jump).filter(|l| has_zero(&l) && !zero.contains_key(l)).collect();
        if entries == 0 {
            return None;
        }
        let exit = blocks.len() as u32;
        let edges = blocks.iter().zip(0..).flat_map(|(block, from)| {
            let next = if block.next.is_empty() && !block.stops { std::slice::from_ref(&exit) } else { &block.next[..] };
            next.iter().map(move |to| (Node(from), Node(*to))).collect::<Vec<_>>()
        });
        let graph = Graph::new(exit + 1, Node(0), Node(exit), edges.collect()).ok()?;
        let is_own = |l: &&u32| self.blocks_of.get(&(file, **l)) == Some(&1);
        let count = |b: &LineBlock| b.all_lines().filter(is_own).filter_map(|l| of_file.lines.get(l).copied()).max().filter(|n| *n > 0);
        let mut known: Vec<Option<u64>> = blocks.iter().map(count).collect();
        known[0] = Some(entries).filter(|_| graph.incoming(Node(0)).is_empty()).or(known[0]);
        let may_end: Vec<bool> = blocks.iter().map(|b| b.may_end && self.unfinished.contains(&(file, line))).collect();
        let given = (0..blocks.len()).map(|block| given(&graph, block, known[block], blocks[block].stops && !may_end[block])).collect();
        let mut flow = Flow { graph, blocks, known, zero, jumps, may_end, given, bounds: Vec::new() };
        flow.bounds = node_bounds(&flow.graph, flow.given.clone(), &flow.may_end);
        Some(flow)
    }
}
