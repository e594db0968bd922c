//! Properties of a unit's blocks ([`UnitProperties`]), which describe what the blocks compute, for analyses along paths. A module whose
//! properties are collected is not compiled.
//!
//! Blocks are prepared and described as for instrumentation, so that the numbers of blocks, files and scopes are those in the unit's map.
//! An unsupported instruction is described conservatively: as a value that equals no other, or as a write to arbitrary memory.

use crate::debug::SourcePositionCollector;
use crate::describe::{FunctionCfg, emits_no_code};
use crate::llvm::{Block, CodeAttribute, Module, Type, Value};
use crate::no_return::NoReturnAnalysis;
use crate::shape::prepare_function_blocks;
use indexmap::IndexMap;
use llvm_sys::LLVMAtomicOrdering::LLVMAtomicOrderingNotAtomic;
use llvm_sys::LLVMAttributeFunctionIndex;
use llvm_sys::LLVMOpcode;
use trodden_flow::Node;
use trodden_unit::properties::*;

/// Returns the properties of the functions that would be instrumented.
pub fn collect_unit_properties(
    module: Module,
    chosen: &[Value],
    no_return: &NoReturnAnalysis,
    mut positions: SourcePositionCollector,
) -> UnitProperties {
    let mut names = PropertyNames { module, numbers: IndexMap::new(), types: IndexMap::new(), classes: MemoryClasses::default() };
    let mut functions = Vec::new();
    for &function in chosen {
        positions.position_of_function(function);
        let prepared = prepare_function_blocks(module, function);
        let cfg = FunctionCfg::new(function, &prepared, no_return, &mut positions);
        functions.push(PropertyCollector::describe_function(function, &cfg, &mut names, &mut positions));
    }
    UnitProperties {
        version: PROPERTIES_VERSION,
        files: positions.files,
        scopes: positions.scopes,
        operations: names.numbers.into_keys().collect(),
        classes: names.classes.parents,
        functions,
    }
}

struct PropertyCollector<'a> {
    values: Vec<ValueProperties>,
    numbers: IndexMap<Value, ValueId>,
    names: &'a mut PropertyNames,
}

impl PropertyCollector<'_> {
    fn describe_function(
        function: Value,
        cfg: &FunctionCfg,
        names: &mut PropertyNames,
        positions: &mut SourcePositionCollector,
    ) -> FunctionProperties {
        let mut collector = PropertyCollector { values: Vec::new(), numbers: IndexMap::new(), names };
        let node: IndexMap<Block, Node> = cfg.nodes.iter().enumerate().filter_map(|(i, b)| Some(((*b)?, Node(i as u32)))).collect();
        let blocks = cfg.nodes.iter().map(|block| match block {
            Some(block) => collector.describe_block(*block, &node, positions),
            None => InstructionProperties::default(),
        });
        let blocks = blocks.collect();
        FunctionProperties { name: function.name(), values: collector.values, blocks }
    }

    fn describe_block(
        &mut self,
        block: Block,
        node: &IndexMap<Block, Node>,
        positions: &mut SourcePositionCollector,
    ) -> InstructionProperties {
        let mut phis = Vec::new();
        for phi in block.phis() {
            let incoming: Vec<(Node, ValueId)> = phi.incoming().into_iter().map(|(v, b)| (node[&b], self.value_id(v))).collect();
            phis.push(Phi { result: self.value_id(phi), incoming });
        }
        let rest = block.instructions().filter(|i| !i.is(LLVMOpcode::LLVMPHI));
        let steps = rest.filter_map(|i| Some(BlockStep { what: self.describe_action(i)?, position: positions.position_of(i) }));
        InstructionProperties { phis, steps: steps.collect() }
    }

    /// Returns an instruction's effect, or `None` if the instruction only produces a value about which nothing is known.
    fn describe_action(&mut self, instruction: Value) -> Option<BlockAction> {
        use LLVMOpcode::*;
        match instruction.opcode() {
            LLVMLoad | LLVMStore if !is_simple_access(instruction) => Some(BlockAction::Clobber),
            LLVMLoad => Some(self.describe_load(instruction)),
            LLVMStore => Some(self.describe_store(instruction)),
            LLVMFence | LLVMAtomicCmpXchg | LLVMAtomicRMW | LLVMVAArg => Some(BlockAction::Clobber),
            LLVMCall | LLVMInvoke | LLVMCallBr => self.describe_call(instruction),
            LLVMGetElementPtr => Some(self.describe_address(instruction)),
            _ => {
                let operation = self.names.pure_operation(instruction)?;
                Some(BlockAction::Compute { result: self.value_id(instruction), operation, operands: self.operand_ids(instruction) })
            }
        }
    }

    fn operand_ids(&mut self, instruction: Value) -> Vec<ValueId> {
        instruction.operands().map(|operand| self.value_id(operand)).collect()
    }

    fn describe_load(&mut self, load: Value) -> BlockAction {
        let address = load.operand(0);
        let root = linked_object(address).map_or(address, |(object, _)| object);
        let constant = root.is_global_variable() && root.is_global_constant();
        let constant = constant || load.metadata("invariant.load").is_some();
        let operation = self.names.load_operation(load.kind());
        BlockAction::Load { result: self.value_id(load), operation, access: self.describe_access(load, address, load.kind()), constant }
    }

    fn describe_store(&mut self, store: Value) -> BlockAction {
        let [value, address] = [0, 1].map(|i| store.operand(i));
        let operation = self.names.load_operation(value.kind());
        BlockAction::Store { value: self.value_id(value), operation, access: self.describe_access(store, address, value.kind()) }
    }

    fn describe_access(&mut self, instruction: Value, address: Value, kind: Type) -> AccessedMemory {
        let class = instruction.metadata("tbaa").and_then(|tag| self.names.classes.class_of_tag(tag));
        AccessedMemory { address: self.value_id(address), size: kind.store_size(self.names.module), class }
    }

    fn describe_call(&mut self, call: Value) -> Option<BlockAction> {
        if call.is(LLVMOpcode::LLVMCall) && emits_no_code(call) {
            return None;
        }
        let effects = memory_effects(call);
        if effects & WRITE_EFFECT_BITS != 0 {
            return Some(BlockAction::Clobber);
        }
        let comes_back = call.call_has_attribute("willreturn") && call.call_has_attribute("nounwind");
        if effects != 0 || !comes_back || !call.callee().is_function() || !call.is(LLVMOpcode::LLVMCall) {
            return None;
        }
        let operation = self.names.operation_id(format!("call {}", call.callee().name()));
        Some(BlockAction::Compute { result: self.value_id(call), operation, operands: self.operand_ids(call) })
    }

    fn describe_address(&mut self, address: Value) -> BlockAction {
        let base = address.operand(0);
        if let Some(bytes) = constant_byte_offset(address) {
            return BlockAction::Offset { result: self.value_id(address), base: self.value_id(base), bytes };
        }
        let name = format!("getelementptr {}", self.names.type_name(address.element_type()));
        let operation = self.names.operation_id(name);
        BlockAction::Compute { result: self.value_id(address), operation, operands: self.operand_ids(address) }
    }

    fn value_id(&mut self, value: Value) -> ValueId {
        if let Some(&known) = self.numbers.get(&value) {
            return known;
        }
        let object = linked_object(value).map(|(object, bytes)| (self.value_id(object), bytes));
        let number = ValueId(self.values.len() as u32);
        self.values.push(ValueProperties { kind: value_kind_of(value), object });
        self.numbers.insert(value, number);
        number
    }
}

fn is_simple_access(access: Value) -> bool {
    !access.is_volatile() && access.ordering() == LLVMAtomicOrderingNotAtomic
}

fn value_kind_of(value: Value) -> ValueKind {
    let has = |index: u32, place: Value| place.attribute_at(index, "noalias").is_some();
    if value.is_global_variable() || value.is(LLVMOpcode::LLVMAlloca) {
        return ValueKind::Object;
    }
    if let Some(function) = value.function_of_parameter() {
        let place = (1..).zip(function.parameters()).find(|(_, parameter)| *parameter == value);
        return if place.is_some_and(|(i, _)| has(i, function)) { ValueKind::Object } else { ValueKind::Other };
    }
    if value.is(LLVMOpcode::LLVMCall) && value.callee().is_function() && has(0, value.callee()) {
        return ValueKind::Object;
    }
    match (value.as_integer(), value.is_constant()) {
        (Some(number), _) => ValueKind::Integer(number),
        // Undefined values are excluded, because they are not fixed.
        (None, true) if !value.is_undefined() => ValueKind::Constant,
        _ => ValueKind::Other,
    }
}

/// If a value is a constant address inside a global object, returns the object, and the offset if it is known in bytes.
fn linked_object(value: Value) -> Option<(Value, Option<i64>)> {
    let (mut at, mut bytes) = (value, Some(0));
    while let Some(opcode) = at.constant_opcode() {
        if opcode != LLVMOpcode::LLVMGetElementPtr {
            return None;
        }
        bytes = bytes.zip(constant_byte_offset(at)).map(|(a, b): (i64, i64)| a.wrapping_add(b));
        at = at.operand(0);
    }
    (at != value && at.is_global_variable()).then_some((at, bytes))
}

/// Returns the offset of an address computation if it is constant and in bytes.
fn constant_byte_offset(address: Value) -> Option<i64> {
    if address.element_type().width() != Some(8) || address.operand_count() != 2 {
        return None;
    }
    address.operand(1).as_integer()
}

/// The bits of [`memory_effects`] that represent writes. LLVM has two bits per kind of memory, of which the lower represents reads.
const WRITE_EFFECT_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// The bits of [`memory_effects`] for memory that the module's code cannot access.
const INACCESSIBLE_MEMORY_BITS: u64 = 0b11 << 2;

/// Returns the effects of a call on memory that this module can access, as bits of LLVM's attribute `memory`.
fn memory_effects(call: Value) -> u64 {
    let (kind, callee) = ("memory", call.callee());
    let here = call.call_attribute_at(LLVMAttributeFunctionIndex, kind);
    let there = callee.is_function().then(|| callee.attribute_at(LLVMAttributeFunctionIndex, kind)).flatten();
    let bits = |attribute: Option<CodeAttribute>| attribute.and_then(CodeAttribute::number).unwrap_or(u64::MAX);
    bits(here) & bits(there) & !INACCESSIBLE_MEMORY_BITS
}

/// Numbers of operations and memory classes, and names of types, shared by the functions of a unit.
struct PropertyNames {
    module: Module,
    numbers: IndexMap<String, OperationId>,
    types: IndexMap<Type, String>,
    classes: MemoryClasses,
}

impl PropertyNames {
    fn operation_id(&mut self, name: String) -> OperationId {
        let next = OperationId(self.numbers.len() as u32);
        *self.numbers.entry(name).or_insert(next)
    }

    fn type_name(&mut self, kind: Type) -> &str {
        self.types.entry(kind).or_insert_with(|| kind.printed())
    }

    fn load_operation(&mut self, kind: Type) -> OperationId {
        let name = format!("load {}", self.type_name(kind));
        self.operation_id(name)
    }

    /// Returns the operation of an instruction whose result depends on its operands only; `None` for other instructions.
    fn pure_operation(&mut self, instruction: Value) -> Option<OperationId> {
        use LLVMOpcode::*;
        let word = match instruction.opcode() {
            LLVMICmp => format!("icmp {}", shorten_predicate_name(&format!("{:?}", instruction.integer_predicate()?))),
            LLVMFCmp => format!("fcmp {}", shorten_predicate_name(&format!("{:?}", instruction.float_predicate()?))),
            LLVMExtractValue => format!("extractvalue {:?}", instruction.extracted_indices()),
            LLVMAdd | LLVMFAdd | LLVMSub | LLVMFSub | LLVMMul | LLVMFMul | LLVMUDiv | LLVMSDiv | LLVMFDiv | LLVMURem | LLVMSRem
            | LLVMFRem | LLVMShl | LLVMLShr | LLVMAShr | LLVMAnd | LLVMOr | LLVMXor | LLVMFNeg | LLVMSelect | LLVMTrunc | LLVMZExt
            | LLVMSExt | LLVMFPToUI | LLVMFPToSI | LLVMUIToFP | LLVMSIToFP | LLVMFPTrunc | LLVMFPExt | LLVMPtrToInt | LLVMIntToPtr
            | LLVMBitCast | LLVMAddrSpaceCast | LLVMExtractElement | LLVMInsertElement => {
                format!("{:?}", instruction.opcode())[4..].to_lowercase()
            }
            _ => return None,
        };
        let name = format!("{word} {}", self.type_name(instruction.kind()));
        Some(self.operation_id(name))
    }
}

/// Converts `LLVMIntULT` to `ult`, `LLVMRealOEQ` to `oeq`.
fn shorten_predicate_name(name: &str) -> String {
    let name = name.strip_prefix("LLVMInt").or(name.strip_prefix("LLVMReal")).unwrap_or(name);
    name.to_lowercase()
}

/// Memory classes by source type, from LLVM's metadata `!tbaa`, in which the node of a scalar type has the type's name and its parent.
#[derive(Default)]
struct MemoryClasses {
    parents: Vec<Option<MemoryClassId>>,
    numbers: IndexMap<Value, MemoryClassId>,
}

impl MemoryClasses {
    /// Returns the memory class of the type in a `!tbaa` access tag. The tag's operands are the base type, the accessed type and the
    /// offset; the class is that of the accessed type.
    fn class_of_tag(&mut self, tag: Value) -> Option<MemoryClassId> {
        let accessed = tag.metadata_operands().get(1).copied().flatten()?;
        self.class_of_type(accessed)
    }

    /// Returns the class of a scalar type; `None` for other types.
    fn class_of_type(&mut self, node: Value) -> Option<MemoryClassId> {
        if let Some(&known) = self.numbers.get(&node) {
            return Some(known);
        }
        let operands = node.metadata_operands();
        operands.first().copied().flatten()?.metadata_text()?;
        let parent = match operands.get(1..) {
            Some([]) => None,
            Some([Some(parent), ..]) if operands.len() <= 3 => Some(self.class_of_type(*parent)?),
            _ => return None,
        };
        let number = MemoryClassId(self.parents.len() as u32);
        self.parents.push(parent);
        self.numbers.insert(node, number);
        Some(number)
    }
}
