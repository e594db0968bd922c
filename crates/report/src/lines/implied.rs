//! Corrects wrong counts of 0. A line that was executed may get a count of 0 if the optimiser left only code of it that was not executed.
//!
//! The optimiser may fold a condition, merge branches or move a load. The graph before optimisation reveals lines that this affects: the
//! counts of other lines bound the count of each block ([`trodden_flow::bounds`]). If a line with count 0 is in a block that must have been
//! executed, it gets the count of the block's other lines, or no count if there are none. Nothing is corrected if copies of a function
//! differ (templates), or if not all of their paths were counted.

// Other lines with count 0 lose their count if the remaining code proves nothing:
//
// 1. a condition, or a line in several blocks, if the other lines' counts do not rule out that one of its blocks was executed;
// 2. a line of a block that must have been executed, assuming that no block without remaining code was executed;
// 3. the last line of an arm of `? :`, if the rest of the expression may have been executed;
// 4. a jump after the code of other lines, such as that of a closing brace.
//
// A line determines a block's count only if no other block contains the line.

use super::LineCounts;
use crate::view::{Function, inline_chain};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use trodden_flow::bounds::{CountInterval, compute_node_bounds, find_contradicted_nodes, find_inevitable_nodes, find_reachable_nodes};
use trodden_flow::{Graph, Node};
use trodden_unit::{LineBlock, LineGraph, UnitMap};

/// File and line of a function's declaration.
type DeclarationLine<'a> = (&'a str, u32);

/// Control-flow graphs before optimisation, for the functions in a report and the functions inlined into them.
struct UnoptimisedGraphs<'a> {
    /// The graph of each function, by its declaration; `None` if copies of the function differ or are not counted completely.
    by_place: BTreeMap<DeclarationLine<'a>, Option<&'a [LineBlock]>>,
    /// Functions in which an execution may have ended in a call.
    unfinished: BTreeSet<DeclarationLine<'a>>,
    /// Number of blocks that contain each line.
    blocks_of: BTreeMap<DeclarationLine<'a>, u32>,
    /// Direct calls, each as (caller, calling block, callee).
    calls: Vec<(DeclarationLine<'a>, u32, DeclarationLine<'a>)>,
}

/// Replaces counts of 0 that are wrong, and removes those that are not proven.
pub fn correct_zero_counts(counts: &mut LineCounts, functions: &[&Function]) {
    let graphs = UnoptimisedGraphs::from_functions(functions);
    let mut corrected: BTreeMap<(&str, u32), Option<u64>> = BTreeMap::new();
    for &(file, line) in &graphs.find_functions_called_without_code(counts) {
        let lines = graphs.by_place[&(file, line)].iter().flat_map(|blocks| blocks.iter()).flat_map(LineBlock::block_and_jump_lines);
        corrected.extend(lines.chain([&line]).filter(|l| counts.line(file, **l) == Some(0)).map(|l| ((file, *l), None)));
        if let Some(of_file) = counts.files.get_mut(file) {
            of_file.functions.retain(|(at, _), _| *at != line);
        }
    }
    for (&(file, line), blocks) in &graphs.by_place {
        let flow = blocks.and_then(|blocks| graphs.build_block_flow(counts, (file, line), blocks));
        let Some(flow) = flow.filter(|flow| !flow.zero.is_empty() || !flow.jumps.is_empty()) else { continue };
        for (block, count) in flow.find_executed_blocks() {
            // Executions may have stopped in a call within the block. Then the lines after the call were not executed.
            let is_after_stop = |line: &u32| flow.may_end[block] && counts.files.get(file).is_some_and(|f| f.stopped.contains(line));
            let zero = flow.blocks[block].lines.iter().filter(|l| counts.line(file, **l) == Some(0) && !is_after_stop(l));
            for &line in zero {
                // A line's count is the maximum over its blocks, not the sum.
                let so_far = corrected.entry((file, line)).or_insert(count);
                *so_far = so_far.zip(count).map(|(a, b)| a.max(b));
            }
        }
        flow.find_uncertain_lines().into_iter().for_each(|line| _ = corrected.entry((file, line)).or_insert(None));
    }
    for ((file, line), count) in corrected {
        let Some(file) = counts.files.get_mut(file) else { continue };
        match count {
            Some(count) => _ = file.lines.insert(line, count),
            None => _ = file.lines.remove(&line),
        }
    }
}

struct BlockFlow<'a> {
    graph: Graph,
    blocks: &'a [LineBlock],
    /// For each block, the count of a line that only this block contains; `None` if there is no such line, or if its count is 0.
    known: Vec<Option<u64>>,
    /// Lines with count 0, each with its blocks.
    zero: BTreeMap<u32, Vec<usize>>,
    /// Lines with count 0 whose only code is a jump.
    jumps: Vec<u32>,
    /// For each block, true if an execution may have ended in it.
    may_end: Vec<bool>,
    /// Bounds on each block's count that follow from the block's own lines.
    given: Vec<CountInterval>,
    /// Bounds on each block's count that follow from `given` and the structure of the graph.
    bounds: Vec<CountInterval>,
}

impl BlockFlow<'_> {
    /// Returns the blocks that must have been executed, with their counts where known.
    fn find_executed_blocks(&self) -> Vec<(usize, Option<u64>)> {
        let executed = find_inevitable_nodes(&self.graph, &self.bounds, &self.may_end);
        (0..self.blocks.len()).filter(|block| executed[*block]).map(|block| (block, self.known[block])).collect()
    }

    /// Returns the lines with count 0 whose remaining code does not prove that they were not executed.
    fn find_uncertain_lines(&self) -> BTreeSet<u32> {
        let (unproven, needed) = (self.find_unproven_lines(), self.find_contradicted_blocks());
        let lines = self.zero.iter().filter(|(line, blocks)| unproven.contains(line) || blocks.iter().any(|b| needed.contains(b)));
        lines.map(|(line, _)| *line).chain(self.jumps.iter().copied()).collect()
    }

    /// Returns the lines with count 0 that may have been executed according to the other lines' counts. Their remaining code may belong to
    /// a different part of the line, or to a path on which the optimiser did not know the condition.
    fn find_unproven_lines(&self) -> BTreeSet<u32> {
        let copied = self.blocks_that_may_be_copied();
        let given = |(bounds, copied): (CountInterval, bool)| if copied { CountInterval::at_least(bounds.low) } else { bounds };
        let mut given: Vec<CountInterval> = self.given.iter().copied().zip(copied).map(given).collect();
        let (proofs, others): (Vec<_>, Vec<_>) = self.zero.iter().partition(|(line, blocks)| self.is_statement(**line, blocks));
        proofs.iter().for_each(|(_, blocks)| given[blocks[0]] = CountInterval::exactly(0));
        let reachable = find_reachable_nodes(&self.graph, given, &self.may_end);
        let conditions = others.into_iter().filter(|(_, blocks)| blocks.iter().any(|block| reachable[*block]));
        let arms =
            proofs.into_iter().filter(|(line, blocks)| self.block_after_arm(**line, blocks[0]).is_some_and(|after| reachable[after]));
        conditions.chain(arms).map(|(line, _)| *line).collect()
    }

    /// Returns true if a line is in only one block and is not the block's condition. The optimiser does not remove such a line's code from
    /// the paths that execute the line.
    fn is_statement(&self, line: u32, blocks: &[usize]) -> bool {
        let block = &self.blocks[blocks[0]];
        blocks.len() == 1 && (block.next.len() < 2 || block.lines.last() != Some(&line))
    }

    /// Returns the block after a `? :` expression if `line` is the last line of one of its arms; otherwise `None`. An arm jumps to a later
    /// block on an earlier line.
    fn block_after_arm(&self, line: u32, block: usize) -> Option<usize> {
        let block_of = |number: &u32| *number as usize;
        let after = self.blocks[block].next.first().map(block_of).filter(|next| *next > block);
        after.filter(|_| self.blocks[block].jump.is_some_and(|to| to < line))
    }

    /// Returns blocks without remaining code that must have been executed, because a count of 0 would contradict the other counts. They
    /// arise when the optimiser merges several blocks and keeps the line of only one.
    fn find_contradicted_blocks(&self) -> BTreeSet<usize> {
        let mut given = self.given.clone();
        let mut open = vec![false; self.graph.node_count()];
        for block in (0..self.blocks.len()).filter(|b| self.known[*b].is_none() && self.bounds[*b].low == 0) {
            (open[block], given[block]) = (true, CountInterval::exactly(0));
        }
        find_contradicted_nodes(&self.graph, given, &self.may_end).into_iter().map(Node::index).filter(|b| open[*b]).collect()
    }

    /// Determines for each block whether the optimiser may have duplicated it. It cannot have duplicated a block that is reached from the
    /// entry through blocks with a single incoming edge.
    fn blocks_that_may_be_copied(&self) -> Vec<bool> {
        let mut copied = vec![true; self.graph.node_count()];
        let mut worklist = vec![self.graph.entry()];
        while let Some(node) = worklist.pop() {
            if self.graph.incoming(node).len() <= usize::from(node != self.graph.entry()) {
                copied[node.index()] = false;
                worklist.extend(self.graph.out(node).iter().map(|e| self.graph.to(*e)));
            }
        }
        copied
    }
}

/// Returns bounds for a block's count. `stops` means that the block ends the program; it cannot have been executed if all executions left
/// the function.
fn block_count_bounds(graph: &Graph, block: usize, count: Option<u64>, stops: bool) -> CountInterval {
    // The optimiser may have duplicated a block with several predecessors for some of them. The block's lines then have the count of the
    // hottest copy.
    match count {
        Some(count) if block > 0 && graph.incoming(Node(block as u32)).len() > 1 => CountInterval::at_least(count),
        Some(count) => CountInterval::exactly(count),
        None if stops => CountInterval::exactly(0),
        None => CountInterval::ANY,
    }
}

/// Returns the declarations of a function and of all functions inlined into it.
fn collect_declarations<'a>(function: &Function<'a>) -> BTreeSet<DeclarationLine<'a>> {
    let map = function.unit_map();
    let positions = function.map.blocks.iter().flat_map(|b| b.positions.iter().copied().chain(b.branch));
    let scopes: BTreeSet<u32> = positions.chain(function.map.position).flat_map(|p| inline_chain(map, p)).map(|p| p.scope).collect();
    let scopes = scopes.into_iter().filter_map(|scope| map.scopes.get(scope as usize));
    scopes.filter_map(|scope| Some((map.files.get(scope.file as usize)?.as_str(), scope.line))).collect()
}

impl<'a> UnoptimisedGraphs<'a> {
    fn from_functions(functions: &[&Function<'a>]) -> UnoptimisedGraphs<'a> {
        let mut graphs =
            UnoptimisedGraphs { by_place: BTreeMap::new(), unfinished: BTreeSet::new(), blocks_of: BTreeMap::new(), calls: Vec::new() };
        // Reports often show a single function, so only the graphs of these functions and of functions inlined into them are read.
        let places: Vec<(&Function<'a>, BTreeSet<DeclarationLine<'a>>)> = functions.iter().map(|f| (*f, collect_declarations(f))).collect();
        let wanted: BTreeSet<DeclarationLine> = places.iter().flat_map(|(_, places)| places).copied().collect();
        let lines: BTreeSet<u32> = wanted.iter().map(|(_, line)| *line).collect();
        let mut units: HashSet<*const UnitMap> = HashSet::new();
        let maps = functions.iter().map(|f| f.unit_map()).filter(|map| units.insert(std::ptr::from_ref(*map)));
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
            for &line in blocks.iter().flat_map(|blocks| blocks.iter()).flat_map(LineBlock::block_and_jump_lines) {
                *graphs.blocks_of.entry((file, line)).or_default() += 1;
            }
        }
        places.iter().for_each(|(function, places)| graphs.mark_incomplete(function, places));
        graphs
    }

    /// If `function` is unfinished or incompletely counted, records that for all functions whose code it contains (`places`).
    fn mark_incomplete(&mut self, function: &Function, places: &BTreeSet<DeclarationLine<'a>>) {
        let is_whole = !function.map.is_partial() && (!function.is_executed() || function.paths.edges.iter().any(|n| *n > 0));
        if is_whole && function.paths.are_all_paths_finished() {
            return;
        }
        self.unfinished.extend(places);
        for place in places.iter().filter(|_| !is_whole) {
            if let Some(graph) = self.by_place.get_mut(place) {
                *graph = None;
            }
        }
    }

    /// Returns functions that must have been called although no entries were counted, because the optimiser left no code where it inlined
    /// them.
    fn find_functions_called_without_code(&self, counts: &LineCounts) -> BTreeSet<DeclarationLine<'a>> {
        let has_none =
            |called: &DeclarationLine| self.by_place.contains_key(called) && counts.calls_of_functions_declared_at(*called) == Some(0);
        let mut callers: BTreeMap<DeclarationLine, Vec<(u32, DeclarationLine)>> = BTreeMap::new();
        for (caller, block, called) in self.calls.iter().filter(|(_, _, called)| has_none(called)) {
            callers.entry(*caller).or_default().push((*block, *called));
        }
        let mut found = BTreeSet::new();
        for (caller, calls) in callers {
            let flow = self.by_place[&caller].and_then(|blocks| self.build_block_flow(counts, caller, blocks));
            let executed: BTreeSet<usize> = flow.iter().flat_map(BlockFlow::find_executed_blocks).map(|(block, _)| block).collect();
            // An execution may have ended before the call, unless it continued after the block.
            let ends = |block: usize| flow.as_ref().is_some_and(|flow| flow.may_end[block]);
            let continues =
                |block: usize| self.by_place[&caller].is_some_and(|b| b[block].next.iter().any(|n| executed.contains(&(*n as usize))));
            let made = calls.into_iter().map(|(block, called)| (block as usize, called));
            found.extend(made.filter(|(b, _)| executed.contains(b) && (!ends(*b) || continues(*b))).map(|(_, called)| called));
        }
        found
    }

    /// Returns a function's graph with bounds; `None` if the function was not entered or its graph is invalid.
    fn build_block_flow(&self, counts: &LineCounts, (file, line): DeclarationLine<'a>, blocks: &'a [LineBlock]) -> Option<BlockFlow<'a>> {
        let of_file = counts.files.get(file)?;
        let entries = counts.calls_of_functions_declared_at((file, line)).unwrap_or(0);
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
        let count =
            |b: &LineBlock| b.block_and_jump_lines().filter(is_own).filter_map(|l| of_file.lines.get(l).copied()).max().filter(|n| *n > 0);
        let mut known: Vec<Option<u64>> = blocks.iter().map(count).collect();
        known[0] = Some(entries).filter(|_| graph.incoming(Node(0)).is_empty()).or(known[0]);
        let may_end: Vec<bool> = blocks.iter().map(|b| b.may_end && self.unfinished.contains(&(file, line))).collect();
        let given = (0..blocks.len())
            .map(|block| block_count_bounds(&graph, block, known[block], blocks[block].stops && !may_end[block]))
            .collect();
        let mut flow = BlockFlow { graph, blocks, known, zero, jumps, may_end, given, bounds: Vec::new() };
        flow.bounds = compute_node_bounds(&flow.graph, flow.given.clone(), &flow.may_end);
        Some(flow)
    }
}
