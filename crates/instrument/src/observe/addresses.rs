//! The tier `addresses`: no counter, no changed code; blocks are only marked, so that their addresses can be found afterwards.
//!
//! Each block gets an `llvm.pseudoprobe`: it makes no instruction, stays in its block, is copied when code generation
//! copies the block, and ends as an entry (function, number, address) of the section `.pseudo_probe`, which is not
//! loaded. Functions are named there by [`probe_function`], which no other user of pseudo probes has; and a probe's
//! number says which block begins, or which call of it is about to be made ([`PseudoProbe`]).
//!
//! A function is described on a copy of the module, because its blocks have to be split for that ([`crate::shape`]),
//! and its code must stay as it is. Probes are carried over by the places of instructions in their blocks.

use super::{Observer, plan_function};
use crate::describe::{EdgeSite, FunctionCfg};
use crate::error::Error;
use crate::flags::set_option;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::shape::predecessors;
use crate::unit::Unit;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use trodden_unit::probes::{PseudoProbe, probe_function};
use trodden_unit::{EdgeKind, Identity};

/// Named metadata without which LLVM emits no pseudo probes.
const PROBES_METADATA: &str = "llvm.pseudo_probe_desc";

/// The observer of addresses: notes the probes of each function, which are put in later.
#[derive(Default)]
pub struct BlockAddresses {
    probes: Vec<FunctionProbes>,
}

impl Observer for BlockAddresses {
    fn observe(&mut self, unit: &mut Unit, function: Value) -> Result<(), Error> {
        let pseudo_probes = PseudoProbes::from_function(function);
        let planned = plan_function(unit, self, function)?;
        self.probes.push(pseudo_probes.probes(function, &planned.cfg));
        unit.finish_code(&[function]);
        unit.enter(planned);
        Ok(())
    }

    fn as_dyn(&mut self) -> &mut dyn Observer {
        self
    }
}

impl BlockAddresses {
    /// Puts the probes into the module that is to become code.
    pub fn insert_into(&self, module: Module, unit: Identity) {
        insert(module, unit, &self.probes);
    }
}

/// Where the instructions of a function stand: block and place in it.
struct PseudoProbes(IndexMap<Value, (usize, usize)>);

/// The probes of a function: in front of which instruction each goes.
struct FunctionProbes {
    /// Name of the function.
    function: String,
    /// Places with their probes.
    at: Vec<((usize, usize), PseudoProbe)>,
}

/// A copy of a module, which lives as long as this.
pub struct ModuleCopy {
    /// The copy.
    pub module: Module,
}

impl ModuleCopy {
    /// Copies a module.
    pub fn from_module(module: Module) -> ModuleCopy {
        ModuleCopy { module: Module::new(llvm!(LLVMCloneModule(module.raw))) }
    }
}

impl Drop for ModuleCopy {
    fn drop(&mut self) {
        llvm!(LLVMDisposeModule(self.module.raw));
    }
}

impl PseudoProbes {
    /// Of a function whose blocks are as the compiler made them.
    fn from_function(function: Value) -> PseudoProbes {
        let mut places = IndexMap::new();
        for (number, block) in function.blocks().enumerate() {
            places.extend(block.instructions().enumerate().map(|(place, i)| (i, (number, place))));
        }
        PseudoProbes(places)
    }

    /// The probes that a described function needs.
    fn probes(&self, function: Value, cfg: &FunctionCfg) -> FunctionProbes {
        let mut at = Vec::new();
        for (number, block) in cfg.nodes.iter().enumerate() {
            let Some(block) = block else { continue };
            let first = block.behind_head();
            if number > 0 && is_between_two(*block) {
                continue;
            }
            // What was not there before is the jump out of a block that only receives indirect branches.
            at.extend(self.0.get(&first).map(|place| (*place, PseudoProbe::block(number as u32))));
        }
        for (edge, site) in cfg.edges.iter().zip(&cfg.sites) {
            let probe = match edge.kind {
                EdgeKind::Reach => PseudoProbe::reach(edge.from.0),
                EdgeKind::TailCall | EdgeKind::Resume | EdgeKind::NoReturn if edge.to.index() == cfg.nodes.len() => {
                    PseudoProbe::end(edge.from.0)
                }
                _ => continue,
            };
            if let EdgeSite::Before(instruction) = site
                && has_call_before(*instruction)
            {
                at.extend(self.0.get(instruction).map(|place| (*place, probe)));
            }
        }
        at.sort_by_key(|(place, probe)| (*place, probe.number()));
        FunctionProbes { function: function.name(), at }
    }
}

/// Whether a block is empty and not needed to separate paths: code generation removes such blocks, and a probe would
/// keep them. Who comes from one of its predecessors to its successor must have come by it.
fn is_between_two(block: Block) -> bool {
    let Some(to) = only_jumps(block) else { return false };
    only_jumps(to).is_none() && predecessors(block).into_iter().all(|from| successors(from, to) == 1)
}

/// How many edges lead from a block to another, directly or through a block that only jumps.
fn successors(from: Block, to: Block) -> usize {
    let next: IndexSet<Block> = from.terminator().successors().into_iter().collect();
    next.into_iter().filter(|n| *n == to || only_jumps(*n) == Some(to)).count()
}

/// If a block does nothing but jump: where to.
fn only_jumps(block: Block) -> Option<Block> {
    let first = block.instructions().find(|i| !i.is(LLVMOpcode::LLVMPHI))?;
    let to = first.is(LLVMOpcode::LLVMBr).then(|| first.successors())?;
    (to.len() == 1).then(|| to[0])
}

/// Whether another call of the same block comes before: only then is an instruction not sure to be reached with its block.
fn has_call_before(instruction: Value) -> bool {
    let before = instruction.block().instructions().take_while(|i| *i != instruction);
    before.filter(|i| i.is_call()).any(|call| !call.calls_intrinsic())
}

/// Has code generation leave equal ends of blocks where they are. Where it merges them, they lose their probes.
pub fn forbid_tail_merging() {
    set_option(c"-enable-tail-merge=0");
}

/// Puts the probes into the module that is to become code. They stand in the order of the unit's functions.
fn insert(module: Module, unit: Identity, probes: &[FunctionProbes]) {
    llvm!(LLVMGetOrInsertNamedMetadata(module.raw, PROBES_METADATA.as_ptr().cast(), PROBES_METADATA.len()));
    let probe = module.intrinsic("llvm.pseudoprobe", &mut []);
    let whole = Value(llvm!(LLVMConstInt(llvm!(LLVMInt32TypeInContext(module.context())), 0, 0)));
    let functions: IndexMap<String, Value> = module.functions().map(|f| (f.name(), f)).collect();
    for (number, probes) in probes.iter().enumerate() {
        let function = functions[&probes.function];
        let blocks: Vec<Vec<Value>> = function.blocks().map(|b| b.instructions().collect()).collect();
        let location = crate::debug::no_line(module, function);
        for &((block, place), at) in &probes.at {
            let builder = Builder::before(module, blocks[block][place], location);
            let [function, number] = [probe_function(unit, number as u32), at.number()].map(|word| builder.constant(word));
            // The last two: a probe of a block; its share of the block's executions, all of them.
            builder.call(probe, &[function, number, whole, module.constant(-1)]);
        }
    }
}
