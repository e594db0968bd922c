//! Loops whose last iterations take a different path. The last iterations get a copy of the loop, so that the other iterations need no
//! test.
//!
//! This is done by LLVM's inductive range check elimination (the idea is from Bodík, Gupta and Sarkar, "ABCD: eliminating array bounds
//! checks on demand", PLDI 2000). It computes the first iteration in which the test can fail, and creates loops before and after that
//! point. Because it duplicates loops, it is not part of `-O2`. Here it is only applied to loops where paths show that one branch decides
//! the last iterations; all other loops are marked as already split. A loop that is reduced to one path can then be distributed and
//! vectorised.

use super::TransformTarget;
use crate::error::InstrumentError;
use crate::llvm::{Metadata, Value};
use crate::passes::run_on_function;
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;
use trodden_unit::transformations::LastIterations;

/// LLVM's mark of loops that it split, or created by splitting.
const SPLIT_MARK: &str = "loop_constrainer.loop.clone";
/// trodden's mark of the latches of chosen loops.
const TO_SPLIT_MARK: &str = "trodden.iterations";
const SPLIT_PASSES: &str = "loop-simplify,lcssa,irce";
/// Passes that may improve a loop with only one path.
const AFTER_SPLIT_PASSES: &str = "instcombine<no-verify-fixpoint>,simplifycfg,loop-simplify,lcssa,loop-distribute,loop-vectorize,\
    instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),instcombine<no-verify-fixpoint>,simplifycfg";
/// Passes to run if no loop was split.
const CLEANUP_PASSES: &str = "instcombine<no-verify-fixpoint>,simplifycfg";

/// Marks the latches of the chosen loops. Returns false if no latch can be marked.
pub fn mark(place: TransformTarget, loops: &[&LastIterations]) -> bool {
    let latches: IndexSet<_> = loops.iter().flat_map(|l| &l.latches).filter_map(|n| place.cfg.block(*n)).collect();
    let latches: Vec<Value> = latches.into_iter().map(|b| b.terminator()).filter(|t| t.is(LLVMOpcode::LLVMBr)).collect();
    latches.iter().for_each(|t| attach(place, *t, TO_SPLIT_MARK, Some(empty(place))));
    !latches.is_empty()
}

/// Splits off the last iterations of the marked loops.
pub fn split(place: TransformTarget) -> Result<(), InstrumentError> {
    let ends = |place: TransformTarget| place.function.blocks().map(|b| b.terminator()).collect::<Vec<_>>();
    let others = ends(place).into_iter().filter(|t| t.metadata(TO_SPLIT_MARK).is_none());
    others.for_each(|t| attach(place, t, SPLIT_MARK, Some(empty(place))));
    // SAFETY: blocks and terminators are looked up again after each run.
    unsafe { run_on_function(place.function, place.machine, SPLIT_PASSES)? };
    // Only copies have both marks: loops that were not chosen have only LLVM's mark, and loops that could not be split have only trodden's.
    let was_split = ends(place).iter().any(|t| t.metadata(TO_SPLIT_MARK).is_some() && t.metadata(SPLIT_MARK).is_some());
    for end in ends(place) {
        if was_split && end.metadata(TO_SPLIT_MARK).is_some() && end.metadata(SPLIT_MARK).is_none() {
            distribute(place, end);
        }
        [TO_SPLIT_MARK, SPLIT_MARK].into_iter().for_each(|kind| attach(place, end, kind, None));
    }
    let passes = if was_split { AFTER_SPLIT_PASSES } else { CLEANUP_PASSES };
    // SAFETY: this is the end of the work on the function.
    unsafe { run_on_function(place.function, place.machine, passes) }
}

/// Requests distribution of the loop with this latch, keeping its other metadata.
fn distribute(place: TransformTarget, end: Value) {
    let context = place.module.context();
    let yes = place.module.i1().unsigned(1).as_metadata();
    let request = context.metadata_node(&[context.metadata_string(b"llvm.loop.distribute.enable"), yes]);
    let known = end.metadata("llvm.loop").map(Value::metadata_operands).unwrap_or_default();
    // The first operand of loop metadata is the node itself, which makes it distinct.
    let known = known.into_iter().skip(1).flatten().map(Value::as_metadata);
    let node = context.distinct_node(&known.chain([request]).collect::<Vec<Metadata>>());
    attach(place, end, "llvm.loop", Some(node));
}

fn empty(place: TransformTarget) -> Metadata {
    place.module.context().metadata_node(&[])
}

/// Attaches metadata to an instruction; `None` removes it.
fn attach(place: TransformTarget, instruction: Value, kind: &str, node: Option<Metadata>) {
    instruction.set_metadata(place.module, kind, node);
}
