//! A transformation plan carried out: code changed as paths say ([`trodden_unit::transformations`]), and nothing counted.
//!
//! The unit comes as it was when its paths were counted: behind the optimiser. So blocks and edges have the numbers
//! that the plan names, once the function is [prepared](crate::shape) as it was then. Transformations only copy blocks and
//! part loops; what that makes redundant is removed by passes of LLVM, run on the functions that were changed, which
//! also prove what may be removed: paths say where to look, not what is true.
//!
//! Functions of another shape are left alone.

mod copy;
mod iterations;

use crate::debug::Positions;
use crate::describe::FunctionCfg;
use crate::error::Error;
use crate::identical_phis;
use crate::llvm::{Block, Module, Value};
use crate::no_return::NoReturnAnalysis;
use crate::passes::{run_on_function, verify};
use crate::shape::prepare;
use crate::weights::{weigh_function, weigh_targets};
use indexmap::IndexMap;
use llvm_sys::target_machine::LLVMTargetMachineRef;
use trodden_unit::transformations::Weighed;
use trodden_unit::{EdgeKind, Transformation, TransformationPlan, shape};

/// What copies make redundant: tests whose outcome the edge to the copy implies, loads that the only path there has made.
const FOLD: &str =
    "instsimplify,correlated-propagation,constraint-elimination,gvn,instcombine<no-verify-fixpoint>,correlated-propagation,simplifycfg";

/// Carries out the transformation plan for a module's functions.
///
/// # Errors
/// LLVM refuses passes, or what was made.
pub fn apply(
    module: Module,
    machine: LLVMTargetMachineRef,
    chosen: &[Value],
    plan: &TransformationPlan,
    reach_all: bool,
) -> Result<(), Error> {
    let source = module.source();
    let known: Vec<Value> = chosen.iter().copied().filter(|f| plan.knows(&source, &f.name())).collect();
    if known.is_empty() {
        return Ok(());
    }
    let no_return = NoReturnAnalysis::new(module, reach_all);
    let mut positions = Positions::new(module);
    for function in known {
        let prepared = prepare(module, function);
        let cfg = FunctionCfg::new(function, &prepared, &no_return, &mut positions);
        let found = plan.of(&source, &function.name(), shape(&cfg.blocks, &cfg.edges));
        carry_out(Place { module, machine, function, cfg: &cfg }, found)?;
    }
    Ok(())
}

/// A function that is to be changed.
#[derive(Clone, Copy)]
struct Place<'a> {
    module: Module,
    machine: LLVMTargetMachineRef,
    function: Value,
    cfg: &'a FunctionCfg,
}

fn carry_out(place: Place, plan: &[Transformation]) -> Result<(), Error> {
    // First, since copies have weights of their own.
    plan.iter().filter_map(|d| if let Transformation::Weights(weights) = d { Some(weights) } else { None }).for_each(|w| weigh(place, w));
    let mut copied = false;
    for direction in plan {
        if let Transformation::Copy(copy) = direction {
            copied |= copy::carry_out(place, copy);
        }
    }
    let loops: Vec<_> =
        plan.iter().filter_map(|d| if let Transformation::LastIterations(iterations) = d { Some(iterations) } else { None }).collect();
    let marked = iterations::mark(place, &loops);
    if copied {
        verify(place.function)?;
        run_on_function(place.function, place.machine, FOLD)?;
    }
    if marked {
        iterations::split(place)?;
    }
    if copied || marked {
        identical_phis::split(place.module, place.function);
        verify(place.function)?;
    }
    Ok(())
}

/// Says to code generation how often each edge of a branch was taken in the run: it lays blocks out by that, and decides what
/// stays in registers. What the optimiser made of an earlier profile is an estimate wherever it inlined, copied or
/// threaded code; these counts are of the code as it is.
fn weigh(place: Place, weights: &Weighed) {
    let mut successors: IndexMap<Block, IndexMap<Block, u64>> = IndexMap::new();
    for (edge, count) in place.cfg.edges.iter().zip(&weights.edges).filter(|(edge, _)| edge.kind != EdgeKind::Reach) {
        if let (Some(from), Some(to)) = (place.cfg.block(edge.from), place.cfg.block(edge.to)) {
            successors.entry(from).or_default().insert(to, *count);
        }
    }
    successors.iter().for_each(|(block, successors)| weigh_targets(place.module, block.terminator(), |to| successors.get(&to).copied()));
    weigh_function(place.module, place.function, weights.entries);
}
