//! Cuts blocks after calls. A block of machine code usually continues after a call, but the call may not return: `longjmp`, an
//! exception or the end of the program may leave the block there. Traces therefore treat the parts of a block as separate blocks, so that
//! they contain only executed code.
//!
//! The part after a call is watched only if later blocks do not show whether it was executed. They usually do, because calls of traced
//! functions are recorded, and functions of the C library return unless the stack is unwound.

use crate::imports::{ImportingImage, UntracedCodeAssumption, abandons_frames, strip_symbol_version};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use trodden_binary::graph::{
    BlockEnd, BlockIndex, CallKind, CallReturns, CallSite, CodeBlock, CodeCallee, CodeEdge, CodeEdgeKind, CompilerFrequencies,
    FunctionGraph, GraphObservation, ProgramGraph,
};
use trodden_witness::Opaque;

/// Cuts the blocks of all functions after their calls and at the addresses in `further`. Returns the start addresses of the new
/// blocks.
/// `next` returns the address of the instruction after the one at an address.
pub fn cut_blocks_after_calls(graphs: &mut ProgramGraph, further: &BTreeSet<u64>, next: &dyn Fn(u64) -> Option<u64>) -> HashSet<u64> {
    let mut pieces = HashSet::new();
    for function in &mut graphs.functions {
        let cuts: Vec<BlockCuts> =
            (0..).zip(&function.blocks).map(|(n, block)| find_block_cuts(function, BlockIndex(n), block, further, next)).collect();
        if cuts.iter().any(|c| !c.is_empty()) {
            cut_function(function, &cuts, &graphs.observations);
            pieces.extend(cuts.into_iter().flat_map(BTreeMap::into_keys));
        }
    }
    pieces
}

/// The cuts of a block: for each part but the first, its start address and the address of the instruction before it.
type BlockCuts = BTreeMap<u64, u64>;

fn find_block_cuts(
    function: &FunctionGraph,
    index: BlockIndex,
    block: &CodeBlock,
    further: &BTreeSet<u64>,
    next: &dyn Fn(u64) -> Option<u64>,
) -> BlockCuts {
    let is_inside = |at: u64| block.start < at && at < block.end_address();
    let calls = function.calls_in(index).filter(|c| c.kind == CallKind::Call);
    let mut cuts: BlockCuts = calls.filter_map(|c| Some((c.return_address.filter(|r| is_inside(*r))?, c.address))).collect();
    if further.range(block.start + 1..block.end_address()).next().is_some() {
        let mut at = block.start;
        while let Some(after) = next(at).filter(|after| is_inside(*after)) {
            if further.contains(&after) {
                cuts.insert(after, at);
            }
            at = after;
        }
    }
    cuts
}

fn piece_containing(block: &CodeBlock, cuts: &BlockCuts, address: u64) -> u64 {
    cuts.range(..=address).next_back().map_or(block.start, |(start, _)| *start)
}

struct BlockPieces<'f> {
    old: Vec<CodeBlock>,
    cuts: &'f [BlockCuts],
    /// The new blocks in order of address, each with the index of the block of which it is a part.
    all: Vec<(CodeBlock, usize)>,
}

impl<'f> BlockPieces<'f> {
    fn from_cuts(old: Vec<CodeBlock>, cuts: &'f [BlockCuts]) -> Self {
        let mut all: Vec<(CodeBlock, usize)> = Vec::new();
        for (number, (block, cuts)) in old.iter().zip(cuts).enumerate() {
            let mut start = block.start;
            for (&after, &last) in cuts {
                all.push((CodeBlock { start, size: after - start, last, end: BlockEnd::FallThrough }, number));
                start = after;
            }
            all.push((CodeBlock { start, size: block.end_address() - start, ..*block }, number));
        }
        // Blocks may overlap, and then some of their parts are the same.
        all.sort_by_key(|(block, number)| (block.start, *number));
        all.dedup_by_key(|(block, _)| block.start);
        BlockPieces { old, cuts, all }
    }

    fn index(&self, start: u64) -> BlockIndex {
        BlockIndex(self.all.binary_search_by_key(&start, |(block, _)| block.start).expect("each piece starts somewhere") as u32)
    }

    /// Returns the index of the part of an old block that contains an address.
    fn piece_index(&self, of: BlockIndex, address: u64) -> BlockIndex {
        self.index(piece_containing(&self.old[of.0 as usize], &self.cuts[of.0 as usize], address))
    }

    fn edges(&self, function: &FunctionGraph, observations: &[GraphObservation]) -> Vec<(CodeEdge, f64)> {
        let probability = |edge: usize| function.frequencies.as_ref().and_then(|f| f.edges.get(edge)).copied().unwrap_or(1.0);
        let mut edges: Vec<(CodeEdge, f64)> = Vec::new();
        for (number, edge) in function.edges.iter().enumerate() {
            let (block, target) = (self.old[edge.from.0 as usize], self.old[edge.to.0 as usize].start);
            let thrown = || function.calls.iter().filter(|c| c.block == edge.from && c.landing_pad == Some(target)).map(|c| c.address);
            let seen = || observations.iter().filter(|o| block.contains(o.from) && o.to == target).map(|o| o.from);
            let mut from: Vec<u64> = match edge.kind {
                CodeEdgeKind::Unwind => thrown().collect(),
                CodeEdgeKind::Observed => seen().collect(),
                _ => Vec::new(),
            };
            if from.is_empty() {
                from.push(block.last);
            }
            edges.extend(from.into_iter().map(|from| {
                let edge = CodeEdge { from: self.piece_index(edge.from, from), to: self.index(target), kind: edge.kind };
                (edge, probability(number))
            }));
        }
        for (block, cuts) in self.old.iter().zip(self.cuts) {
            let mut start = block.start;
            for &after in cuts.keys() {
                edges.push((CodeEdge { from: self.index(start), to: self.index(after), kind: CodeEdgeKind::FallThrough }, 1.0));
                start = after;
            }
        }
        edges.sort_by_key(|(edge, _)| *edge);
        edges.dedup_by_key(|(edge, _)| *edge);
        edges
    }
}

fn cut_function(function: &mut FunctionGraph, cuts: &[BlockCuts], observations: &[GraphObservation]) {
    let pieces = BlockPieces::from_cuts(std::mem::take(&mut function.blocks), cuts);
    let edges = pieces.edges(function, observations);
    function.calls.iter_mut().for_each(|call| call.block = pieces.piece_index(call.block, call.address));
    if let Some(CompilerFrequencies { blocks, edges: probabilities, .. }) = &mut function.frequencies {
        if blocks.len() == pieces.old.len() {
            *blocks = pieces.all.iter().map(|(_, number)| blocks[*number]).collect();
        }
        if !probabilities.is_empty() {
            *probabilities = edges.iter().map(|(_, probability)| *probability).collect();
        }
    }
    function.edges = edges.into_iter().map(|(edge, _)| edge).collect();
    function.blocks = pieces.all.into_iter().map(|(block, _)| block).collect();
}

/// Returns the parts of blocks that need not be watched, because later blocks show whether they were executed. The argument of `returns` is
/// the entry of a function; the result is true if the function is traced and cannot switch stacks.
pub fn find_unwatched_pieces(
    graphs: &ProgramGraph,
    image: &ImportingImage,
    pieces: &HashSet<u64>,
    returns: &dyn Fn(u64) -> bool,
) -> HashSet<u64> {
    let unwinds = image.raises || image.jumps || graphs.functions.iter().any(|f| !f.landing_pads.is_empty());
    let mut unwatched = pieces.clone();
    for (function, call) in graphs.functions.iter().flat_map(|f| f.calls.iter().map(move |call| (f, call))) {
        if !is_return_visible(call, image, unwinds, returns) {
            call.return_address.into_iter().for_each(|after| _ = unwatched.remove(&after));
        }
        if unwinds && may_leave_unseen(call, image, returns) {
            unwatched.remove(&function.block(call.block).start);
        }
    }
    unwatched
}

fn is_return_visible(call: &CallSite, image: &ImportingImage, unwinds: bool, returns: &dyn Fn(u64) -> bool) -> bool {
    // A call whose target is its own return address never returns, so it is a jump.
    let returns = |entry: &u64| call.return_address != Some(*entry) && returns(*entry);
    let is_return_visible = match &call.callee {
        CodeCallee::Function(entry) => returns(entry),
        CodeCallee::OneOf(entries) => entries.iter().all(returns),
        CodeCallee::Import(name) => {
            is_libc_import(name, image) && !unwinds && image.behaviour_of_import(name, UntracedCodeAssumption::Usual) == Opaque::RETURNS
        }
        CodeCallee::Indirect => false,
    };
    is_return_visible && call.returns == CallReturns::Maybe
}

/// Returns true if a call may abandon the calling function, by `longjmp`, an exception or a stack switch, before a watched block of the
/// callee is executed. In that case, no later block shows that the call was reached.
fn may_leave_unseen(call: &CallSite, image: &ImportingImage, is_seen: &dyn Fn(u64) -> bool) -> bool {
    match &call.callee {
        CodeCallee::Function(entry) => !is_seen(*entry),
        CodeCallee::OneOf(entries) => !entries.iter().all(|entry| is_seen(*entry)),
        CodeCallee::Import(name) => !is_libc_import(name, image) || abandons_frames(name),
        CodeCallee::Indirect => true,
    }
}

fn is_libc_import(name: &str, image: &ImportingImage) -> bool {
    name.contains("@GLIBC_") && !image.exports.contains_key(strip_symbol_version(name))
}
