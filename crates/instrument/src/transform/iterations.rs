//! Loops whose last iterations take another path than all others: these get a copy of the loop, so that the others are
//! without the tests that distinguish them.
//!
//! LLVM has what does it, its elimination of inductive range checks (Bodík, Gupta and Sarkar, "ABCD: eliminating array
//! bounds checks on demand", PLDI 2000, is the idea behind such checks; the splitting of the iterations is LLVM's). It
//! computes from where on the test can fail, and makes loops before and behind that point. It is not among the passes
//! of `-O2`, because it doubles loops. Here it gets exactly the loops of which paths say that one branch decides the last
//! iteration. A loop that has become one path is then open to what branches were in the way of: it is distributed over its
//! independent parts, and those that can be are vectorised.
//!
//! What is not chosen is marked, with the mark by which LLVM knows loops that it has split already.

use super::Place;
use crate::error::Error;
use crate::llvm::{Value, llvm};
use crate::passes::run_on_function;
use indexmap::IndexSet;
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use llvm_sys::debuginfo::{LLVMMetadataReplaceAllUsesWith, LLVMTemporaryMDNode};
use llvm_sys::prelude::LLVMMetadataRef;
use trodden_unit::transformations::LastIterations;

/// LLVM's mark of loops that it split, or made by that.
const SPLIT: &str = "loop_constrainer.loop.clone";
/// Our mark of the chosen loops' ends.
const TO_SPLIT: &str = "trodden.iterations";
const PART: &str = "loop-simplify,lcssa,irce";
/// What a loop of one path is open to.
const BEHIND: &str = "instcombine<no-verify-fixpoint>,simplifycfg,loop-simplify,lcssa,loop-distribute,loop-vectorize,\
    instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),instcombine<no-verify-fixpoint>,simplifycfg";
/// The same where nothing was split.
const CLEAN: &str = "instcombine<no-verify-fixpoint>,simplifycfg";

/// Marks the ends of the chosen loops; says whether there are any.
pub fn mark(place: Place, loops: &[&LastIterations]) -> bool {
    let latches: IndexSet<_> = loops.iter().flat_map(|l| &l.latches).filter_map(|n| place.cfg.block(*n)).collect();
    let latches: Vec<Value> = latches.into_iter().map(|b| b.terminator()).filter(|t| t.is(LLVMOpcode::LLVMBr)).collect();
    latches.iter().for_each(|t| attach(place, *t, TO_SPLIT, Some(empty(place))));
    !latches.is_empty()
}

/// Parts the marked loops' last iterations from them.
pub fn split(place: Place) -> Result<(), Error> {
    let ends = |place: Place| place.function.blocks().map(|b| b.terminator()).collect::<Vec<_>>();
    let others = ends(place).into_iter().filter(|t| t.metadata(TO_SPLIT).is_none());
    others.for_each(|t| attach(place, t, SPLIT, Some(empty(place))));
    run_on_function(place.function, place.machine, PART)?;
    // Only copies have both marks: what was not chosen has only LLVM's, and what could not be split only ours.
    let was_split = ends(place).iter().any(|t| t.metadata(TO_SPLIT).is_some() && t.metadata(SPLIT).is_some());
    for end in ends(place) {
        if was_split && end.metadata(TO_SPLIT).is_some() && end.metadata(SPLIT).is_none() {
            distribute(place, end);
        }
        [TO_SPLIT, SPLIT].into_iter().for_each(|kind| attach(place, end, kind, None));
    }
    run_on_function(place.function, place.machine, if was_split { BEHIND } else { CLEAN })
}

/// Asks for the distribution of the loop that ends here, beside what its metadata says.
fn distribute(place: Place, end: Value) {
    let context = place.module.context();
    let yes = llvm!(LLVMConstInt(llvm!(LLVMInt1TypeInContext(context)), 1, 0));
    let name = "llvm.loop.distribute.enable";
    let mut request = [llvm!(LLVMMDStringInContext2(context, name.as_ptr().cast(), name.len())), llvm!(LLVMValueAsMetadata(yes))];
    let request = llvm!(LLVMMDNodeInContext2(context, request.as_mut_ptr(), request.len()));
    let known = end.metadata("llvm.loop").map(Value::metadata_operands).unwrap_or_default();
    // The first operand of a loop's metadata is the node itself, which makes loops distinct.
    let own = llvm!(LLVMTemporaryMDNode(context, std::ptr::null_mut(), 0));
    let known = known.into_iter().skip(1).flatten().map(|v| llvm!(LLVMValueAsMetadata(v.0)));
    let mut operands: Vec<LLVMMetadataRef> = [own].into_iter().chain(known).chain([request]).collect();
    let node = llvm!(LLVMMDNodeInContext2(context, operands.as_mut_ptr(), operands.len()));
    llvm!(LLVMMetadataReplaceAllUsesWith(own, node));
    attach(place, end, "llvm.loop", Some(node));
}

fn empty(place: Place) -> LLVMMetadataRef {
    llvm!(LLVMMDNodeInContext2(place.module.context(), std::ptr::null_mut(), 0))
}

/// Attaches metadata to an instruction, or takes it away.
fn attach(place: Place, instruction: Value, kind: &str, node: Option<LLVMMetadataRef>) {
    instruction.set_metadata(place.module.context(), kind, node);
}
