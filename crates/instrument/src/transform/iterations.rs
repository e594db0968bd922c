//! Splits loops whose last iterations take a different path: the last iterations get a copy of the loop, so that the other iterations need
//! no test.
//!
//! This is done by LLVM's inductive range check elimination (the idea is from Bodík, Gupta and Sarkar, "ABCD: eliminating array bounds
//! checks on demand", PLDI 2000). It computes the first iteration in which the test can fail, and creates loops before and after that
//! point. Because it duplicates loops, it is not part of `-O2`. Here it is only applied to loops in whose profile one branch takes the
//! other direction in the last iterations; all other loops are marked as already split. A loop that is reduced to one path can then be
//! distributed and vectorised.

use super::TransformTarget;
use crate::error::InstrumentError;
use crate::llvm::{Metadata, Value};
use crate::passes::run_on_function;
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;
use trodden_unit::transformations::LastIterations;

/// Metadata by which LLVM marks the latches of loops that it has split or created by splitting.
const SPLIT_LOOP_METADATA: &str = "loop_constrainer.loop.clone";
/// Metadata by which trodden marks the latches of the loops to split.
const LOOP_TO_SPLIT_METADATA: &str = "trodden.iterations";
const LOOP_SPLIT_PASSES: &str = "loop-simplify,lcssa,irce";
/// Passes that may improve a loop once it has only one path.
const PASSES_AFTER_LOOP_SPLIT: &str = "instcombine<no-verify-fixpoint>,simplifycfg,loop-simplify,lcssa,loop-distribute,loop-vectorize,\
    instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),instcombine<no-verify-fixpoint>,simplifycfg";
/// Passes that tidy up if no loop could be split.
const PASSES_WITHOUT_LOOP_SPLIT: &str = "instcombine<no-verify-fixpoint>,simplifycfg";

/// Marks the latches of the loops to split. Returns false if there are none that can be marked.
pub fn mark_loops_to_split(place: TransformTarget, loops: &[&LastIterations]) -> bool {
    let latches: IndexSet<_> = loops.iter().flat_map(|l| &l.latches).filter_map(|n| place.cfg.block(*n)).collect();
    let latches: Vec<Value> = latches.into_iter().map(|b| b.terminator()).filter(|t| t.is(LLVMOpcode::LLVMBr)).collect();
    latches.iter().for_each(|t| attach_metadata(place, *t, LOOP_TO_SPLIT_METADATA, Some(empty_node(place))));
    !latches.is_empty()
}

/// Splits off the last iterations of the marked loops.
pub fn split_marked_loops(place: TransformTarget) -> Result<(), InstrumentError> {
    let ends = |place: TransformTarget| place.function.blocks().map(|b| b.terminator()).collect::<Vec<_>>();
    let others = ends(place).into_iter().filter(|t| t.metadata(LOOP_TO_SPLIT_METADATA).is_none());
    others.for_each(|t| attach_metadata(place, t, SPLIT_LOOP_METADATA, Some(empty_node(place))));
    // SAFETY: blocks and terminators are looked up again after each run of passes.
    unsafe { run_on_function(place.function, place.machine, LOOP_SPLIT_PASSES)? };
    // A latch with both marks is a copy, since other loops have only one mark: LLVM's if they were not chosen, and trodden's if they could
    // not be split.
    let was_split = ends(place).iter().any(|t| t.metadata(LOOP_TO_SPLIT_METADATA).is_some() && t.metadata(SPLIT_LOOP_METADATA).is_some());
    for end in ends(place) {
        if was_split && end.metadata(LOOP_TO_SPLIT_METADATA).is_some() && end.metadata(SPLIT_LOOP_METADATA).is_none() {
            request_distribution(place, end);
        }
        [LOOP_TO_SPLIT_METADATA, SPLIT_LOOP_METADATA].into_iter().for_each(|kind| attach_metadata(place, end, kind, None));
    }
    let passes = if was_split { PASSES_AFTER_LOOP_SPLIT } else { PASSES_WITHOUT_LOOP_SPLIT };
    // SAFETY: no handle to the function's code is used after this.
    unsafe { run_on_function(place.function, place.machine, passes) }
}

/// Requests that LLVM distribute the loop with this latch, that is, split it into several loops. Other loop metadata is kept.
fn request_distribution(place: TransformTarget, end: Value) {
    let context = place.module.context();
    let yes = place.module.i1().unsigned(1).as_metadata();
    let request = context.metadata_node(&[context.metadata_string(b"llvm.loop.distribute.enable"), yes]);
    let known = end.metadata("llvm.loop").map(Value::metadata_operands).unwrap_or_default();
    // The first operand is the old node itself, which the new node does not need.
    let known = known.into_iter().skip(1).flatten().map(Value::as_metadata);
    let node = context.distinct_node(&known.chain([request]).collect::<Vec<Metadata>>());
    attach_metadata(place, end, "llvm.loop", Some(node));
}

fn empty_node(place: TransformTarget) -> Metadata {
    place.module.context().metadata_node(&[])
}

/// Attaches metadata to an instruction; `None` removes it.
fn attach_metadata(place: TransformTarget, instruction: Value, kind: &str, node: Option<Metadata>) {
    instruction.set_metadata(place.module, kind, node);
}
