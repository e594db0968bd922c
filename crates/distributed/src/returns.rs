//! Blocks that end at calls. The blocks of a graph run on behind calls, which need not return: `longjmp`, an exception or the end of the
//! program leaves them there. The blocks of a trace are cut at calls, and where a fault left one, so that only what ran is shown.
//!
//! The piece behind a call is watched only where the blocks that follow cannot say whether it was executed: a call of what is traced is
//! seen, and functions of the C library return unless something unwinds the stack.

use crate::imports::{Assumption, ImportingImage, leaves_frames, plain};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use trodden_binary::graph::{
    BlockEnd, BlockIndex, CallKind, CallSite, CodeBlock, CodeCallee, CodeEdge, CodeEdgeKind, Frequencies, FunctionGraph, GraphObservation,
    ProgramGraph, Returns,
};
use trodden_witness::Opaque;

/// Cuts the blocks of all functions behind their calls, and at further addresses. Gives where the pieces start that were no blocks before.
/// `next` is the address behind the instruction at an address.
pub fn cut(graphs: &mut ProgramGraph, further: &BTreeSet<u64>, next: &dyn Fn(u64) -> Option<u64>) -> HashSet<u64> {
    let mut pieces = HashSet::new();
    for function in &mut graphs.functions {
        let cuts: Vec<Cuts> = (0..).zip(&function.blocks).map(|(n, block)| cuts(function, BlockIndex(n), block, further, next)).collect();
        if cuts.iter().any(|c| !c.is_empty()) {
            cut_function(function, &cuts, &graphs.observations);
            pieces.extend(cuts.into_iter().flat_map(BTreeMap::into_keys));
        }
    }
    pieces
}

/// Where the pieces of a block start but for its first, each with the last instruction before.
type Cuts = BTreeMap<u64, u64>;

fn cuts(
    function: &FunctionGraph,
    index: BlockIndex,
    block: &CodeBlock,
    further: &BTreeSet<u64>,
    next: &dyn Fn(u64) -> Option<u64>,
) -> Cuts {
    let is_inside = |at: u64| block.start < at && at < block.end_address();
    let calls = function.calls_in(index).filter(|c| c.kind == CallKind::Call);
    let mut cuts: Cuts = calls.filter_map(|c| Some((c.return_address.filter(|r| is_inside(*r))?, c.address))).collect();
    if further.range(block.start + 1..block.end_address()).next().is_some() {
        let mut at = block.start;
        while let Some(behind) = next(at).filter(|behind| is_inside(*behind)) {
            if further.contains(&behind) {
                cuts.insert(behind, at);
            }
            at = behind;
        }
    }
    cuts
}

/// The start of the piece of a block that an address lies in.
fn piece_of(block: &CodeBlock, cuts: &Cuts, address: u64) -> u64 {
    cuts.range(..=address).next_back().map_or(block.start, |(start, _)| *start)
}

/// What a function's blocks become, and how old blocks are found again.
struct Pieces<'f> {
    old: Vec<CodeBlock>,
    cuts: &'f [Cuts],
    /// The new blocks by their addresses, each with the number of the old one that it is of.
    all: Vec<(CodeBlock, usize)>,
}

impl<'f> Pieces<'f> {
    fn from_cuts(old: Vec<CodeBlock>, cuts: &'f [Cuts]) -> Self {
        let mut all: Vec<(CodeBlock, usize)> = Vec::new();
        for (number, (block, cuts)) in old.iter().zip(cuts).enumerate() {
            let mut start = block.start;
            for (&behind, &last) in cuts {
                all.push((CodeBlock { start, size: behind - start, last, end: BlockEnd::FallThrough }, number));
                start = behind;
            }
            all.push((CodeBlock { start, size: block.end_address() - start, ..*block }, number));
        }
        // Old blocks that overlap have pieces in common.
        all.sort_by_key(|(block, number)| (block.start, *number));
        all.dedup_by_key(|(block, _)| block.start);
        Pieces { old, cuts, all }
    }

    /// The block that starts at an address where one starts.
    fn index(&self, start: u64) -> BlockIndex {
        BlockIndex(self.all.binary_search_by_key(&start, |(block, _)| block.start).expect("each piece starts somewhere") as u32)
    }

    /// The piece of an old block that an address lies in.
    fn piece(&self, of: BlockIndex, address: u64) -> BlockIndex {
        self.index(piece_of(&self.old[of.0 as usize], &self.cuts[of.0 as usize], address))
    }

    /// Edges between the new blocks, each with its probability.
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
                let edge = CodeEdge { from: self.piece(edge.from, from), to: self.index(target), kind: edge.kind };
                (edge, probability(number))
            }));
        }
        for (block, cuts) in self.old.iter().zip(self.cuts) {
            let mut start = block.start;
            for &behind in cuts.keys() {
                edges.push((CodeEdge { from: self.index(start), to: self.index(behind), kind: CodeEdgeKind::FallThrough }, 1.0));
                start = behind;
            }
        }
        edges.sort_by_key(|(edge, _)| *edge);
        edges.dedup_by_key(|(edge, _)| *edge);
        edges
    }
}

fn cut_function(function: &mut FunctionGraph, cuts: &[Cuts], observations: &[GraphObservation]) {
    let pieces = Pieces::from_cuts(std::mem::take(&mut function.blocks), cuts);
    let edges = pieces.edges(function, observations);
    function.calls.iter_mut().for_each(|call| call.block = pieces.piece(call.block, call.address));
    if let Some(Frequencies { blocks, edges: probabilities, .. }) = &mut function.frequencies {
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

/// Of the pieces behind cuts, those that need not be watched: what follows says whether they were executed. `returns`: whether a function
/// is traced, and does not go on with another stack.
pub fn unwatched(graphs: &ProgramGraph, image: &ImportingImage, pieces: &HashSet<u64>, returns: &dyn Fn(u64) -> bool) -> HashSet<u64> {
    let unwinds = image.raises || image.jumps || graphs.functions.iter().any(|f| !f.landing_pads.is_empty());
    let mut unwatched = pieces.clone();
    for (function, call) in graphs.functions.iter().flat_map(|f| f.calls.iter().map(move |call| (f, call))) {
        if !comes_back(call, image, unwinds, returns) {
            call.return_address.into_iter().for_each(|behind| _ = unwatched.remove(&behind));
        }
        if unwinds && may_leave_unseen(call, image, returns) {
            unwatched.remove(&function.block(call.block).start);
        }
    }
    unwatched
}

/// Whether what follows a call says that it has returned.
fn comes_back(call: &CallSite, image: &ImportingImage, unwinds: bool, returns: &dyn Fn(u64) -> bool) -> bool {
    // A call of what is behind it is a jump.
    let returns = |entry: &u64| call.return_address != Some(*entry) && returns(*entry);
    let comes_back = match &call.callee {
        CodeCallee::Function(entry) => returns(entry),
        CodeCallee::OneOf(entries) => entries.iter().all(returns),
        CodeCallee::Import(name) => is_of_c(name, image) && !unwinds && image.import(name, Assumption::Usual) == Opaque::RETURNS,
        CodeCallee::Indirect => false,
    };
    comes_back && call.returns == Returns::Maybe
}

/// Whether a call may leave its frame for good (by `longjmp`, an exception or a switch of stacks) before any watched block of the callee is
/// executed. Then no later block shows that the call was reached.
fn may_leave_unseen(call: &CallSite, image: &ImportingImage, is_seen: &dyn Fn(u64) -> bool) -> bool {
    match &call.callee {
        CodeCallee::Function(entry) => !is_seen(*entry),
        CodeCallee::OneOf(entries) => !entries.iter().all(|entry| is_seen(*entry)),
        CodeCallee::Import(name) => !is_of_c(name, image) || leaves_frames(name),
        CodeCallee::Indirect => true,
    }
}

/// Whether a call of this name is one of the C library's.
fn is_of_c(name: &str, image: &ImportingImage) -> bool {
    name.contains("@GLIBC_") && !image.exports.contains_key(plain(name))
}
