//! Builds the blocks, edges and calls of functions from the explored instructions.
//!
//! A block starts at an entry, at a branch target, at a landing pad, or after a branch or return. It ends where another block starts or
//! where control does not continue. If code jumps into the middle of an instruction, two blocks overlap and have the same end.

use super::explore::{Exploration, JumpResolution, LOCK_PREFIX_BYTE};
use super::padding;
use super::reached::{CodeFlow, ReachedInstruction};
use super::regions::{FunctionFamilies, is_cold, is_in_ranges};
use super::split::{find_covered_ranges, split_at_entries};
use crate::graph::*;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

pub fn assemble(explored: &Exploration, families: &FunctionFamilies) -> ProgramGraph {
    let mut doubts: HashMap<u64, Vec<Uncertainty>> = HashMap::new();
    for uncertain in &explored.uncertain {
        let region = explored.region_of(uncertain.address);
        doubts.entry(families.family_of(region).unwrap_or(region)).or_default().push(uncertain.clone());
    }
    let tail_call_targets = find_tail_call_targets(explored, families);
    let mut functions: Vec<FunctionGraph> = Vec::new();
    for (family, regions) in families.families() {
        let ranges: Vec<Range<u64>> = regions.iter().map(|&start| explored.region_range(start)).collect();
        let doubts = doubts.remove(&family).unwrap_or_default();
        let function = AssembledFunction { explored, tail_call_targets: &tail_call_targets, regions, ranges, doubts };
        functions.extend(split_at_entries(function.build_graph(), explored));
    }
    functions.sort_by_key(|f| f.entry);
    let stubs = explored.code.stubs.values().cloned().collect();
    let stub_ranges = explored.code.stub_ranges.clone();
    let sections = explored.code.sections.iter().map(|s| s.range.clone());
    let code_ranges: Vec<Range<u64>> = sections.filter(|range| !stub_ranges.contains(range)).collect();
    let unknown_ranges = find_unknown_ranges(explored, &functions, &code_ranges);
    ProgramGraph { functions, stubs, stub_ranges, code_ranges, unknown_ranges, observations: explored.known.observations.clone() }
}

/// Returns the targets of direct jumps that lead from one family of regions to another.
fn find_tail_call_targets(explored: &Exploration, families: &FunctionFamilies) -> BTreeSet<u64> {
    let family_of = |at: u64| families.family_of(explored.region_of(at));
    let mut targets = BTreeSet::new();
    for (from, reached) in explored.instructions.transfers() {
        let (CodeFlow::Jump(to) | CodeFlow::Conditional(to)) = reached.flow else { continue };
        if explored.instructions.contains(to) && !targets.contains(&to) && family_of(from) != family_of(to) {
            targets.insert(to);
        }
    }
    targets
}

/// Returns the ranges of code that belong to no function, are described by no unwind entry, and are not padding.
fn find_unknown_ranges(explored: &Exploration, functions: &[FunctionGraph], code: &[Range<u64>]) -> Vec<Range<u64>> {
    let described = explored.frames.frames.iter().map(|f| f.start..f.end);
    let mut known: Vec<Range<u64>> = functions.iter().flat_map(|f| f.ranges.clone()).chain(described).collect();
    known.sort_by_key(|range| (range.start, range.end));
    let mut unknown = Vec::new();
    for section in code {
        let mut at = section.start;
        let inside = known.iter().filter(|k| k.start < section.end && k.end > section.start);
        for part in inside.cloned().chain(std::iter::once(section.end..section.end)) {
            if at < part.start {
                let size = (part.start - at) as usize;
                let padded = explored.code.binary.bytes_at(at).and_then(|b| b.get(..size)).map_or(size, |b| padding::padding_length(b, at));
                unknown.extend((padded < size).then_some(at + padded as u64..part.start));
            }
            at = at.max(part.end);
        }
    }
    unknown
}

struct AssembledFunction<'e, 'k, 'a> {
    explored: &'e Exploration<'k, 'a>,
    /// The result of [`find_tail_call_targets`].
    tail_call_targets: &'e BTreeSet<u64>,
    regions: Vec<u64>,
    ranges: Vec<Range<u64>>,
    doubts: Vec<Uncertainty>,
}

/// A way in which control can leave an instruction, other than to the next one in the same block.
enum ControlTransfer {
    Edge(u64, CodeEdgeKind),
    Call(CallKind, CodeCallee),
}

impl AssembledFunction<'_, '_, '_> {
    fn build_graph(mut self) -> FunctionGraph {
        let entries = self.find_entries();
        let (entry, other_entries) = (entries[0], entries[1..].to_vec());
        let landing_pads = self.find_landing_pads();
        let starts = self.find_block_starts(&entries, &landing_pads);
        let blocks: Vec<CodeBlock> = starts.iter().filter_map(|&start| self.build_block(start, &starts)).collect();
        let (mut edges, mut calls) = (Vec::new(), Vec::new());
        for (index, block) in blocks.iter().enumerate() {
            let from = BlockIndex(index as u32);
            self.add_edges_and_calls(&blocks, from, block, &mut edges, &mut calls);
        }
        edges.sort_unstable();
        edges.dedup();
        calls.sort_by_key(|c| (c.address, c.block));
        self.add_overlap_doubts();
        let seen = self.explored.known.observations.iter().filter(|o| blocks.iter().any(|b| b.contains(o.from)));
        let added: Vec<Uncertainty> =
            seen.map(|o| Uncertainty { address: o.from, doubt: GraphDoubt::AddedEdge { target: o.to } }).collect();
        self.doubts.extend(added);
        let mut ranges = find_covered_ranges(&blocks);
        self.add_unreached_doubts(&ranges);
        ranges.dedup();
        let name = self.explored.known.names.get(&entry);
        let explored = self.explored;
        let is_exit = |c: &CallSite| c.kind != CallKind::Call && c.returns != CallReturns::Never;
        let unresolved = self.doubts.iter().any(|d| d.doubt == GraphDoubt::UnresolvedJump);
        let returns = blocks.iter().any(|b| b.end == BlockEnd::Return) || calls.iter().any(is_exit) || unresolved;
        self.doubts.sort_by_key(|d| d.address);
        self.doubts.dedup();
        FunctionGraph {
            name: name.cloned().unwrap_or_else(|| format!("sub_{entry:x}")),
            has_symbol: self.explored.known.symbols.contains_key(&entry),
            entry,
            other_entries,
            ranges,
            edges,
            calls,
            landing_pads,
            source: GraphSource::Recovered,
            uncertain: self.doubts,
            is_address_taken: entries.iter().any(|e| explored.address_taken.contains(e)),
            returns: returns && !explored.known.never_returning.contains(&entry),
            frequencies: None,
            blocks,
        }
    }

    fn reached_instructions(&self) -> impl Iterator<Item = (u64, ReachedInstruction)> + '_ {
        self.ranges.iter().flat_map(|r| self.explored.instructions.range(r.clone()))
    }

    fn is_inside_function(&self, address: u64) -> bool {
        is_in_ranges(&self.ranges, address)
    }

    /// Returns the entry addresses of the function. The first one is the main entry.
    fn find_entries(&self) -> Vec<u64> {
        let is_cold_part = |at: &u64| self.explored.known.symbols.get(at).is_some_and(|name| is_cold(name));
        let mut entries: BTreeSet<u64> = self.regions.iter().copied().filter(|at| self.explored.is_function_start(*at)).collect();
        entries.extend(self.ranges.iter().flat_map(|r| self.explored.call_targets.range(r.clone())));
        entries.retain(|at| self.explored.instructions.contains(*at) && !is_cold_part(at));
        // Drops cold parts of functions. Without symbols, a cold part that starts with the stack depth of an entry looks like a function,
        // but nothing calls it or takes its address.
        if entries.iter().any(|at| self.explored.is_used_as_function(*at)) {
            entries.retain(|at| self.explored.is_used_as_function(*at));
        }
        // A jump table in data looks like pointers to functions if its targets are starts of cold parts.
        let targets = self.find_jump_targets();
        let is_called = |at: &u64| self.explored.call_targets.contains(at) || self.explored.known.symbols.contains_key(at);
        if entries.iter().any(|at| is_called(at) || !targets.contains(at)) {
            entries.retain(|at| is_called(at) || !targets.contains(at));
        }
        entries.extend(self.ranges.iter().flat_map(|r| self.tail_call_targets.range(r.clone())));
        if entries.is_empty() {
            let first = self.regions.iter().copied().find(|at| !is_cold_part(at) && self.explored.instructions.contains(*at));
            let first = first.or_else(|| self.reached_instructions().next().map(|(at, _)| at));
            entries.insert(first.unwrap_or(self.regions[0]));
        }
        // Makes the first entry that has a name the main entry.
        let mut entries: Vec<u64> = entries.into_iter().collect();
        if let Some(named) = entries.iter().position(|at| self.explored.known.names.contains_key(at)) {
            entries[..=named].rotate_right(1);
        }
        entries
    }

    /// Returns the targets of the function's indirect jumps in the function itself.
    fn find_jump_targets(&self) -> HashSet<u64> {
        let jumps = self.ranges.iter().flat_map(|range| self.explored.jumps.range(range.clone()));
        let targets =
            jumps.filter_map(|(_, resolution)| if let JumpResolution::Within(targets) = resolution { Some(targets) } else { None });
        targets.flatten().copied().collect()
    }

    fn find_landing_pads(&self) -> Vec<u64> {
        let frames = self.regions.iter().filter_map(|at| self.explored.frames.index_at(*at));
        let pads = frames.flat_map(|f| self.explored.frames.frames[f].protected.iter().map(|p| p.landing_pad));
        let pads: BTreeSet<u64> = pads.filter(|pad| self.is_inside_function(*pad) && self.explored.instructions.contains(*pad)).collect();
        pads.into_iter().collect()
    }

    fn find_block_starts(&self, entries: &[u64], landing_pads: &[u64]) -> BTreeSet<u64> {
        let mut starts: BTreeSet<u64> = entries.iter().chain(landing_pads).copied().collect();
        for (at, reached) in self.reached_instructions() {
            let next = at + u64::from(reached.size);
            match reached.flow {
                CodeFlow::Next | CodeFlow::Call(_) | CodeFlow::CallIndirect => continue,
                CodeFlow::Conditional(to) | CodeFlow::Jump(to) => starts.extend([to, next]),
                CodeFlow::JumpIndirect => {
                    starts.insert(next);
                    if let Some(JumpResolution::Within(targets)) = self.explored.jumps.get(&at) {
                        starts.extend(targets);
                    }
                }
                CodeFlow::Return | CodeFlow::Stop => _ = starts.insert(next),
            }
        }
        for (at, _) in self.reached_instructions().filter(|(at, _)| self.explored.speculative.contains(at)) {
            let before = self.explored.instructions.last_before(at);
            if before.is_none_or(|(before, reached)| {
                before + u64::from(reached.size) != at || self.explored.call_returns(before) == CallReturns::Never
            }) {
                starts.insert(at);
            }
        }
        starts.extend(self.explored.known.observations.iter().filter(|o| !self.is_return(o)).map(|o| o.to));
        starts.retain(|at| self.is_inside_function(*at) && self.explored.instructions.contains(*at));
        starts
    }

    /// Returns true if an observed transfer is the return of a call.
    fn is_return(&self, seen: &GraphObservation) -> bool {
        let reached = self.explored.instructions.get(seen.from);
        reached.is_some_and(|r| matches!(r.flow, CodeFlow::Call(_) | CodeFlow::CallIndirect) && seen.from + u64::from(r.size) == seen.to)
    }

    fn build_block(&self, start: u64, starts: &BTreeSet<u64>) -> Option<CodeBlock> {
        let mut at = start;
        loop {
            let reached = self.explored.instructions.get(at)?;
            let next = at + u64::from(reached.size);
            let end = match reached.flow {
                CodeFlow::Conditional(_) => Some(BlockEnd::Conditional),
                CodeFlow::Jump(_) => Some(BlockEnd::Jump),
                CodeFlow::JumpIndirect => Some(BlockEnd::IndirectJump),
                CodeFlow::Return => Some(BlockEnd::Return),
                CodeFlow::Stop => Some(BlockEnd::Stop),
                CodeFlow::Call(_) | CodeFlow::CallIndirect if self.explored.call_returns(at) == CallReturns::Never => {
                    Some(BlockEnd::CallWithoutReturn)
                }
                _ if starts.contains(&next) => Some(BlockEnd::FallThrough),
                _ if !self.is_inside_function(next) && self.explored.instructions.contains(next) => Some(BlockEnd::FallThrough),
                _ if !self.explored.instructions.contains(next) => Some(BlockEnd::Unknown),
                _ => None,
            };
            if let Some(end) = end {
                return Some(CodeBlock { start, size: next - start, last: at, end });
            }
            at = next;
        }
    }

    fn add_edges_and_calls(
        &self,
        blocks: &[CodeBlock],
        from: BlockIndex,
        block: &CodeBlock,
        edges: &mut Vec<CodeEdge>,
        calls: &mut Vec<CallSite>,
    ) {
        let mut at = block.start;
        while let Some(reached) = self.explored.instructions.get(at) {
            let next = at + u64::from(reached.size);
            for transfer in self.find_transfers(at, reached, block) {
                match transfer {
                    ControlTransfer::Edge(to, kind) => {
                        if let Ok(to) = blocks.binary_search_by_key(&to, |b| b.start) {
                            edges.push(CodeEdge { from, to: BlockIndex(to as u32), kind });
                        }
                    }
                    ControlTransfer::Call(kind, callee) => {
                        let call = self.build_call_site(from, at, next, kind, callee);
                        if let Some(pad) = call.landing_pad.and_then(|pad| blocks.binary_search_by_key(&pad, |b| b.start).ok()) {
                            edges.push(CodeEdge { from, to: BlockIndex(pad as u32), kind: CodeEdgeKind::Unwind });
                        }
                        calls.push(call);
                    }
                }
            }
            if at == block.last {
                break;
            }
            at = next;
        }
        for seen in self.explored.known.observations.iter().filter(|o| block.contains(o.from) && !self.is_return(o)) {
            let Ok(to) = blocks.binary_search_by_key(&seen.to, |b| b.start) else { continue };
            let to = BlockIndex(to as u32);
            if !edges.iter().any(|e| (e.from, e.to) == (from, to)) {
                edges.push(CodeEdge { from, to, kind: CodeEdgeKind::Observed });
            }
        }
    }

    fn find_transfers(&self, at: u64, reached: ReachedInstruction, block: &CodeBlock) -> Vec<ControlTransfer> {
        let next = at + u64::from(reached.size);
        let is_last = at == block.last;
        match reached.flow {
            CodeFlow::Next if is_last => vec![self.edge_or_call_to(next, CodeEdgeKind::FallThrough, CallKind::TailCall)],
            CodeFlow::Stop if self.explored.resume_points.contains(&next) => {
                vec![self.edge_or_call_to(next, CodeEdgeKind::FallThrough, CallKind::TailCall)]
            }
            CodeFlow::Next | CodeFlow::Return | CodeFlow::Stop => Vec::new(),
            CodeFlow::Call(_) | CodeFlow::CallIndirect => {
                let callee = match (self.explored.called_import(at), reached.flow) {
                    (Some(name), _) => CodeCallee::Import(name.to_owned()),
                    (None, CodeFlow::Call(to)) => self.callee_at(to),
                    (None, _) => CodeCallee::Indirect,
                };
                let falls_through = is_last && block.end == BlockEnd::FallThrough;
                let mut transfers = vec![ControlTransfer::Call(CallKind::Call, callee)];
                transfers.extend(falls_through.then(|| self.edge_or_call_to(next, CodeEdgeKind::FallThrough, CallKind::TailCall)));
                transfers
            }
            CodeFlow::Conditional(to) => {
                vec![
                    self.edge_or_call_to(to, CodeEdgeKind::Taken, CallKind::ConditionalTailCall),
                    self.edge_or_call_to(next, CodeEdgeKind::NotTaken, CallKind::ConditionalTailCall),
                ]
            }
            CodeFlow::Jump(to) => vec![self.edge_or_call_to(to, CodeEdgeKind::Jump, CallKind::TailCall)],
            CodeFlow::JumpIndirect => match &self.explored.jumps[&at] {
                JumpResolution::Within(targets) => {
                    let leaves = self.explored.may_leave.contains(&at);
                    let kind = if leaves || targets.len() > 1 { CallKind::ConditionalTailCall } else { CallKind::TailCall };
                    let leaves = leaves.then_some(ControlTransfer::Call(kind, CodeCallee::Indirect));
                    let inside = targets.iter().map(|&to| self.edge_or_call_to(to, CodeEdgeKind::Indirect, kind));
                    inside.chain(leaves).collect()
                }
                JumpResolution::Functions(targets) => vec![ControlTransfer::Call(CallKind::TailCall, CodeCallee::OneOf(targets.clone()))],
                JumpResolution::Import(name) => vec![ControlTransfer::Call(CallKind::TailCall, CodeCallee::Import(name.clone()))],
                JumpResolution::TailCall => vec![ControlTransfer::Call(CallKind::TailCall, CodeCallee::Indirect)],
                JumpResolution::Unknown => Vec::new(),
            },
        }
    }

    /// Returns the transfer of control to an address: an edge if the address is in this function, otherwise a call.
    fn edge_or_call_to(&self, to: u64, kind: CodeEdgeKind, call: CallKind) -> ControlTransfer {
        if self.is_inside_function(to) && self.explored.instructions.contains(to) {
            return ControlTransfer::Edge(to, kind);
        }
        ControlTransfer::Call(call, self.callee_at(to))
    }

    fn callee_at(&self, to: u64) -> CodeCallee {
        match self.explored.code.stubs.get(&to) {
            Some(ImportStub { import: Some(name), .. }) => CodeCallee::Import(name.clone()),
            Some(_) => CodeCallee::Indirect,
            None => CodeCallee::Function(to),
        }
    }

    fn build_call_site(&self, block: BlockIndex, address: u64, next: u64, kind: CallKind, callee: CodeCallee) -> CallSite {
        let returns = match (&callee, kind) {
            (_, CallKind::Call) => self.explored.call_returns(address),
            (CodeCallee::Import(name), _) if super::imports::never_returns(name) => CallReturns::Never,
            (CodeCallee::Function(to), _) if self.explored.known.never_returning.contains(to) => CallReturns::Never,
            _ => CallReturns::Maybe,
        };
        let frame = self.explored.frames.index_at(address).map(|f| &self.explored.frames.frames[f]);
        let protected = frame.and_then(|f| f.protected.iter().find(|p| p.start <= address && address < p.end));
        let return_address = (kind == CallKind::Call).then_some(next);
        let (landing_pad, always_lands) = (protected.map(|p| p.landing_pad), protected.is_some_and(|p| p.always_lands));
        CallSite { block, address, return_address, callee, kind, returns, landing_pad, always_lands }
    }

    fn add_overlap_doubts(&mut self) {
        let mut overlaps = Vec::new();
        let mut end = 0;
        for (at, reached) in self.reached_instructions() {
            if at < end {
                overlaps.push(Uncertainty { address: at, doubt: GraphDoubt::Overlap });
            }
            end = end.max(at + u64::from(reached.size));
        }
        let explored = self.explored;
        overlaps.retain(|o| explored.code.binary.bytes_at(o.address - 1).is_none_or(|bytes| bytes[0] != LOCK_PREFIX_BYTE));
        self.doubts.extend(overlaps);
    }

    /// Adds a doubt for bytes that were not reached and are not padding, in code that an unwind entry describes.
    fn add_unreached_doubts(&mut self, covered_ranges: &[Range<u64>]) {
        let mut gaps = Vec::new();
        for range in self.ranges.iter().filter(|r| self.explored.frames.index_at(r.start).is_some()) {
            let mut at = range.start;
            for part in covered_ranges.iter().filter(|c| c.start < range.end && c.end > range.start) {
                gaps.push(at..part.start.max(at));
                at = at.max(part.end);
            }
            gaps.push(at..range.end.max(at));
        }
        for gap in gaps.into_iter().filter(|g| !g.is_empty()) {
            let size = (gap.end - gap.start) as usize;
            let Some(bytes) = self.explored.code.binary.bytes_at(gap.start).and_then(|b| b.get(..size)) else { continue };
            let filling = padding::padding_length(bytes, gap.start);
            if filling < size {
                self.doubts.push(Uncertainty {
                    address: gap.start + filling as u64,
                    doubt: GraphDoubt::Unreached { size: (size - filling) as u64 },
                });
            }
        }
    }
}
