//! Marks blocks so that their addresses can be found later. The code itself does not change, and nothing is counted.
//!
//! Each block gets an `llvm.pseudoprobe`. It emits no instruction, stays in its block, is duplicated with the block, and becomes an entry
//! (function, number, address) in the section `.pseudo_probe`, which is not loaded. The entry identifies the function by
//! [`probe_function_id`], which no other producer of pseudo probes uses; its number says which block starts, or which call is about to
//! happen ([`PseudoProbe`]). A function is described on a clone of the module, because describing splits blocks ([`crate::shape`]). Probes
//! are transferred to the module by the indices of instructions within blocks.

use super::{Observer, plan_function};
use crate::describe::{EdgeInsertionSite, FunctionCfg};
use crate::error::InstrumentError;
use crate::flags::set_option;
use crate::llvm::{Block, Builder, Module, Value};
use crate::shape::predecessors;
use crate::unit::Unit;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use trodden_unit::probes::{PseudoProbe, probe_function_id};
use trodden_unit::{EdgeKind, Identity};

/// Named metadata without which LLVM emits no pseudo probes for a module.
const PSEUDO_PROBES_METADATA: &str = "llvm.pseudo_probe_desc";

/// Observer that collects each function's probes, to be inserted later.
#[derive(Default)]
pub struct BlockAddresses {
    probes: Vec<FunctionPseudoProbes>,
}

impl Observer for BlockAddresses {
    fn observe_function(&mut self, unit: &mut Unit, function: Value) -> Result<(), InstrumentError> {
        let positions = InstructionPositions::from_function(function);
        let planned = plan_function(unit, self, function)?;
        self.probes.push(positions.find_probes(function, &planned.cfg));
        unit.protect_instrumented_code(&[function]);
        unit.add_function(planned);
        Ok(())
    }

    fn as_dyn_observer(&mut self) -> &mut dyn Observer {
        self
    }
}

impl BlockAddresses {
    pub fn insert_pseudo_probes_into(&self, module: Module, unit: Identity) {
        insert_pseudo_probes(module, unit, &self.probes);
    }
}

/// The position of each instruction of a function: the index of its block, and its index within that block.
struct InstructionPositions(IndexMap<Value, (usize, usize)>);

struct FunctionPseudoProbes {
    function: String,
    /// The probes, each with the position of the instruction before which it will be inserted.
    at: Vec<((usize, usize), PseudoProbe)>,
}

impl InstructionPositions {
    /// Records the positions in a function whose blocks have not been split yet.
    fn from_function(function: Value) -> InstructionPositions {
        let mut places = IndexMap::new();
        for (number, block) in function.blocks().enumerate() {
            places.extend(block.instructions().enumerate().map(|(place, i)| (i, (number, place))));
        }
        InstructionPositions(places)
    }

    fn find_probes(&self, function: Value, cfg: &FunctionCfg) -> FunctionPseudoProbes {
        let mut at = Vec::new();
        for (number, block) in cfg.nodes.iter().enumerate() {
            let Some(block) = block else { continue };
            let first = block.first_instruction_after_allocas();
            if number > 0 && is_redundant_jump(*block) {
                continue;
            }
            // The only instruction without a position is the jump that ends a landing block, which was inserted later. It needs no probe.
            at.extend(self.0.get(&first).map(|place| (*place, PseudoProbe::block(number as u32))));
        }
        for (edge, site) in cfg.graph.flow_edges().zip(&cfg.sites) {
            let probe = match edge.kind {
                EdgeKind::Reach => PseudoProbe::reach(edge.from.0),
                EdgeKind::TailCall | EdgeKind::Resume | EdgeKind::NoReturn if edge.to.index() == cfg.nodes.len() => {
                    PseudoProbe::end(edge.from.0)
                }
                _ => continue,
            };
            if let EdgeInsertionSite::Before(instruction) = site
                && has_call_before(*instruction)
            {
                at.extend(self.0.get(instruction).map(|place| (*place, probe)));
            }
        }
        at.sort_by_key(|(place, probe)| (*place, probe.number()));
        FunctionPseudoProbes { function: function.name(), at }
    }
}

/// Returns true if a block only jumps and is not needed to tell paths apart, because each predecessor reaches the successor by no other
/// edge. Code generation removes such blocks, unless they contain a probe.
fn is_redundant_jump(block: Block) -> bool {
    let Some(to) = jump_target(block) else { return false };
    jump_target(to).is_none() && predecessors(block).into_iter().all(|from| count_edges_between(from, to) == 1)
}

/// Returns the number of edges from one block to another, counting ways through a block that only jumps.
fn count_edges_between(from: Block, to: Block) -> usize {
    let next: IndexSet<Block> = from.terminator().successors().into_iter().collect();
    next.into_iter().filter(|n| *n == to || jump_target(*n) == Some(to)).count()
}

/// Returns the target of a block that consists of a jump; `None` for other blocks.
fn jump_target(block: Block) -> Option<Block> {
    let first = block.instructions().find(|i| !i.is(LLVMOpcode::LLVMPHI))?;
    let to = first.is(LLVMOpcode::LLVMBr).then(|| first.successors())?;
    (to.len() == 1).then(|| to[0])
}

/// Returns true if a real call precedes an instruction in its block. If none does, the instruction is reached whenever its block is, and
/// needs no probe of its own.
fn has_call_before(instruction: Value) -> bool {
    let before = instruction.block().instructions().take_while(|i| *i != instruction);
    before.filter(|i| i.is_call()).any(|call| !call.calls_intrinsic())
}

/// Disables tail merging, which deletes probes from the merged ends of blocks.
pub fn disable_tail_merging() {
    set_option(c"-enable-tail-merge=0");
}

/// Inserts the pseudo probes into the module. Functions are numbered in the order of `probes`.
fn insert_pseudo_probes(module: Module, unit: Identity, probes: &[FunctionPseudoProbes]) {
    module.declare_named_metadata(PSEUDO_PROBES_METADATA);
    let probe = module.intrinsic("llvm.pseudoprobe", &[]);
    let whole = module.i32().unsigned(0);
    let functions: IndexMap<String, Value> = module.functions().map(|f| (f.name(), f)).collect();
    for (number, probes) in probes.iter().enumerate() {
        let function = functions[&probes.function];
        let blocks: Vec<Vec<Value>> = function.blocks().map(|b| b.instructions().collect()).collect();
        let location = crate::debug::location_without_line(module, function);
        for &((block, place), at) in &probes.at {
            let builder = Builder::before(module, blocks[block][place], location);
            let [function, number] = [probe_function_id(unit, number as u32), at.number()].map(|word| builder.constant(word));
            // The last two arguments mark a probe that stands for a block and all of its executions.
            builder.call(probe, &[function, number, whole, module.constant(-1)]);
        }
    }
}
