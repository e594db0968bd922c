//! Transforms code according to a plan that was derived from path profiles ([`trodden_unit::transformations`]). The resulting program
//! contains no counters.
//!
//! The unit is the same as when its paths were counted, after optimisation, so blocks and edges have the numbers in the plan once the
//! function is [prepared](crate::shape) in the same way. Transformations only copy blocks and split loops. LLVM passes then remove
//! redundant code from the changed functions. The passes prove that this is correct: paths only show where it pays off. Functions with a
//! different shape are not changed.

mod copy;
mod iterations;

use crate::debug::SourcePositionCollector;
use crate::describe::FunctionCfg;
use crate::error::InstrumentError;
use crate::identical_phis;
use crate::llvm::{Block, Module, TargetMachine, Value};
use crate::no_return::NoReturnAnalysis;
use crate::passes::{run_on_function, verify};
use crate::shape::prepare_function_blocks;
use crate::weights::{set_entry_count, set_target_weights};
use indexmap::IndexMap;
use trodden_unit::transformations::BranchWeights;
use trodden_unit::{EdgeKind, Transformation, TransformationPlan, graph_hash};

/// Passes that remove what has become redundant in copies: tests whose outcome follows from the edge that leads to the copy, and repeated
/// loads.
const CONSTANT_FOLDING_PASSES: &str =
    "instsimplify,correlated-propagation,constraint-elimination,gvn,instcombine<no-verify-fixpoint>,correlated-propagation,simplifycfg";

pub fn apply_transformations(
    module: Module,
    machine: TargetMachine,
    chosen: &[Value],
    plan: &TransformationPlan,
    reach_all: bool,
) -> Result<(), InstrumentError> {
    let source = module.source();
    let known: Vec<Value> = chosen.iter().copied().filter(|f| plan.has_function(&source, &f.name())).collect();
    if known.is_empty() {
        return Ok(());
    }
    let no_return = NoReturnAnalysis::new(module, reach_all);
    let mut positions = SourcePositionCollector::new(module);
    for function in known {
        let prepared = prepare_function_blocks(module, function);
        let cfg = FunctionCfg::new(function, &prepared, &no_return, &mut positions);
        let found = plan.get(&source, &function.name(), graph_hash(&cfg.blocks, &cfg.graph));
        apply_to_function(TransformTarget { module, machine, function, cfg: &cfg }, found)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct TransformTarget<'a> {
    module: Module,
    machine: TargetMachine,
    function: Value,
    cfg: &'a FunctionCfg,
}

fn apply_to_function(place: TransformTarget, plan: &[Transformation]) -> Result<(), InstrumentError> {
    // Weights are set before blocks are copied, because copies get weights of their own.
    plan.iter()
        .filter_map(|d| if let Transformation::Weights(weights) = d { Some(weights) } else { None })
        .for_each(|w| set_measured_weights(place, w));
    let mut copied = false;
    for direction in plan {
        if let Transformation::Copy(copy) = direction {
            copied |= copy::copy_blocks(place, copy);
        }
    }
    let loops: Vec<_> =
        plan.iter().filter_map(|d| if let Transformation::LastIterations(iterations) = d { Some(iterations) } else { None }).collect();
    let marked = iterations::mark_loops_to_split(place, &loops);
    if copied {
        verify(place.function)?;
        // SAFETY: the code below looks up blocks and instructions again, and finds the marked latches by their marks.
        unsafe { run_on_function(place.function, place.machine, CONSTANT_FOLDING_PASSES)? };
    }
    if marked {
        iterations::split_marked_loops(place)?;
    }
    if copied || marked {
        identical_phis::split_edges_with_identical_phis(place.module, place.function);
        verify(place.function)?;
    }
    Ok(())
}

/// Sets branch weights to the counts of the run. From them, LLVM lays out blocks and allocates registers. After optimisation, the weights
/// from an earlier profile are only estimates wherever code was inlined, copied or threaded, but these counts were measured in the
/// optimised code.
fn set_measured_weights(place: TransformTarget, weights: &BranchWeights) {
    let mut successors: IndexMap<Block, IndexMap<Block, u64>> = IndexMap::new();
    for (edge, count) in place.cfg.graph.flow_edges().zip(&weights.edges).filter(|(edge, _)| edge.kind != EdgeKind::Reach) {
        if let (Some(from), Some(to)) = (place.cfg.block(edge.from), place.cfg.block(edge.to)) {
            successors.entry(from).or_default().insert(to, *count);
        }
    }
    successors
        .iter()
        .for_each(|(block, successors)| set_target_weights(place.module, block.terminator(), |to| successors.get(&to).copied()));
    set_entry_count(place.module, place.function, weights.entries);
}
