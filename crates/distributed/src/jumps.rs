//! Finds indirect jumps whose targets are uncertain, and the code that a trampoline may still replace.

use crate::code::TracedCode;
use crate::files::TracedFiles;
use crate::imports::{ImportingImage, UntracedCodeAssumption, assumed_behaviour, import_switches_stacks, strip_symbol_version};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use trodden_binary::graph::{BlockEnd, CallKind, CodeCallee, GraphDoubt, GraphObservation, ProgramGraph};
use trodden_binary::instruction::{Instruction, decode_instruction, switches_stack};
use trodden_binary::linked::split_address;
use trodden_trace::TraceBlock;

/// Returns true if the doubt is about the targets of an indirect jump.
pub fn is_uncertain_jump(doubt: &GraphDoubt) -> bool {
    matches!(
        doubt,
        GraphDoubt::UnresolvedJump
            | GraphDoubt::MoreTargets
            | GraphDoubt::AnyLabel
            | GraphDoubt::JumpTableWithoutBound { .. }
            | GraphDoubt::AssumedTailCall
            | GraphDoubt::AddedEdge { .. }
    )
}

/// Returns the addresses of indirect jumps with uncertain targets in ascending order. In files with code that seems unreachable, the result
/// includes indirect calls, because they may lead there.
pub fn uncertain_jumps(graphs: &ProgramGraph) -> Vec<u64> {
    let calls = graphs.functions.iter().flat_map(|f| &f.calls).filter(|c| c.kind == CallKind::Call && c.callee == CodeCallee::Indirect);
    let unknown: HashSet<usize> = graphs.unknown_ranges.iter().map(|range| split_address(range.start).0).collect();
    let mut jumps: BTreeSet<u64> = calls.map(|c| c.address).filter(|call| unknown.contains(&split_address(*call).0)).collect();
    for function in &graphs.functions {
        let ends: HashSet<u64> = function.blocks.iter().filter(|b| b.end == BlockEnd::IndirectJump).map(|b| b.last).collect();
        jumps.extend(function.uncertain.iter().filter(|u| is_uncertain_jump(&u.doubt) && ends.contains(&u.address)).map(|u| u.address));
    }
    jumps.into_iter().collect()
}

/// Returns two sets of blocks: all blocks, in ascending order, as ranges of code that a trampoline may replace; and the starts of those in
/// which only one byte may be replaced, because a jump might lead into their middle.
///
/// A range includes the `pieces` (parts of a block after a call) that continue a block. Blocks are in the second set if their function
/// contains a jump for which `leads_elsewhere` returns true, or bytes that no known path reaches and that could contain such a jump.
pub fn replaceable_blocks(
    graphs: &ProgramGraph,
    pieces: &HashSet<u64>,
    leads_elsewhere: &dyn Fn(u64, &GraphDoubt) -> bool,
) -> (Vec<Range<u64>>, HashSet<u64>) {
    let (mut blocks, mut guarded) = (Vec::new(), HashSet::new());
    for function in &graphs.functions {
        let mut own: Vec<Range<u64>> = Vec::with_capacity(function.blocks.len());
        for block in &function.blocks {
            // Blocks may overlap, so the block that a piece continues is not always the last one.
            let before = own.iter_mut().rev().take(4).find(|b| b.end == block.start && pieces.contains(&block.start));
            match before {
                Some(before) => before.end = block.end_address(),
                None => own.push(block.start..block.end_address()),
            }
        }
        blocks.extend(own);
        if function.uncertain.iter().any(|u| leads_elsewhere(u.address, &u.doubt) || matches!(u.doubt, GraphDoubt::Unreached { .. })) {
            guarded.extend(function.blocks.iter().map(|b| b.start));
        }
    }
    blocks.sort_by_key(|b: &Range<u64>| (b.start, b.end));
    blocks.dedup_by_key(|b| b.start);
    (blocks, guarded)
}

/// Returns the blocks that switch to another stack, as coroutines, goroutines and `longjmp` do. They load the stack pointer from memory or
/// from an argument.
pub fn stack_switching_blocks(code: &TracedCode, files: &TracedFiles) -> HashSet<TraceBlock> {
    code.blocks().filter(|block| has_stack_switch(code, files, *block)).collect()
}

fn has_stack_switch(code: &TracedCode, files: &TracedFiles, block: TraceBlock) -> bool {
    let (graph, index) = code.graph_of(block);
    let block = graph.block(index);
    let leaves = matches!(block.end, BlockEnd::IndirectJump | BlockEnd::Return);
    let (binary, start) = files.locate(block.start);
    let next = |at: &Instruction| Some(at.next_ip()).filter(|next| *next < start + block.size);
    let at = |at: u64| binary.code_at(at).and_then(|bytes| decode_instruction(bytes, at));
    switches_stack(std::iter::successors(at(start), |last| at(next(last)?)), leaves)
}

/// Returns the functions, as indices in the graphs, that may call code that switches stacks, directly or through other functions. Later
/// blocks do not show whether a call of such a function has returned, because the callers on the new stack are unknown. `switching`
/// contains the blocks that load the stack pointer.
pub fn functions_that_may_switch_stacks(
    graphs: &ProgramGraph,
    image: &ImportingImage,
    code: &TracedCode,
    switching: &HashSet<TraceBlock>,
) -> HashSet<usize> {
    let mut callers: HashMap<u64, Vec<usize>> = HashMap::new();
    // Functions whose address is taken, and functions that may call any of these.
    let (mut of_any, mut callers_of_any) = (HashSet::new(), Vec::new());
    let mut found: HashSet<usize> = switching.iter().map(|block| code.function_of(*block)).collect();
    for (number, function) in graphs.functions.iter().enumerate() {
        of_any.extend(function.is_address_taken.then_some(number));
        for call in &function.calls {
            match &call.callee {
                CodeCallee::Function(entry) => callers.entry(*entry).or_default().push(number),
                CodeCallee::OneOf(entries) => entries.iter().for_each(|entry| callers.entry(*entry).or_default().push(number)),
                CodeCallee::Indirect => callers_of_any.push(number),
                CodeCallee::Import(name) => {
                    if let Some(entry) = image.exports.get(strip_symbol_version(name)) {
                        callers.entry(*entry).or_default().push(number);
                    }
                    found.extend(import_switches_stacks(name).then_some(number));
                    if assumed_behaviour(name, UntracedCodeAssumption::Usual).calls_back {
                        callers_of_any.push(number);
                    }
                }
            }
        }
    }
    let mut new: Vec<usize> = found.iter().copied().collect();
    while let Some(number) = new.pop() {
        let by_name = callers.get(&graphs.functions[number].entry).into_iter().flatten().copied();
        let by_address = if of_any.contains(&number) { std::mem::take(&mut callers_of_any) } else { Vec::new() };
        new.extend(by_name.chain(by_address).filter(|caller| found.insert(*caller)));
    }
    found
}

/// Returns the addresses of [`uncertain_jumps`] and of indirect tail calls. The target of a tail call must be known, because it determines
/// where the call returns.
pub fn observed_jumps(graphs: &ProgramGraph) -> Vec<u64> {
    let calls = graphs.functions.iter().flat_map(|f| &f.calls);
    let tails = calls.filter(|c| c.kind != CallKind::Call && c.callee == CodeCallee::Indirect).map(|c| c.address);
    let all: BTreeSet<u64> = uncertain_jumps(graphs).into_iter().chain(tails).collect();
    all.into_iter().collect()
}

/// Returns true if the graphs contain a step from the jump to the target: an edge within the function, a tail call, or an observed landing
/// in another function, as `longjmp` causes it.
pub fn has_edge(graphs: &ProgramGraph, (jump, target): (u64, u64)) -> bool {
    let Some(function) = graphs.function_containing(jump).map(|f| graphs.function(f)) else { return false };
    let to_block = function.edges.iter().any(|e| function.block(e.from).last == jump && function.block(e.to).start == target);
    let is_observed = graphs.observations.contains(&GraphObservation { from: jump, to: target });
    let is_elsewhere = || graphs.function_containing(target).is_none() && (is_observed || !is_code(graphs, target));
    let leaves = graphs.function_entered_at(target).is_some() || is_elsewhere();
    let is_landing = || {
        let other = graphs.function_containing(target).map(|f| graphs.function(f)).filter(|other| other.entry != function.entry);
        is_observed && other.is_some_and(|other| other.blocks.iter().any(|block| block.start == target))
    };
    to_block || (leaves && function.calls.iter().any(|c| c.address == jump)) || is_landing()
}

/// Returns true if an address is in a code section other than the procedure linkage table.
fn is_code(graphs: &ProgramGraph, address: u64) -> bool {
    graphs.code_ranges.iter().any(|range| range.contains(&address))
}
