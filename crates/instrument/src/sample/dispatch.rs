//! Gives the instrumented version of a function its own tables for indirect branches. An interpreter dispatches by loading a block's
//! address from a constant table and jumping there. The instrumented code gets a copy of the table with the addresses of its own blocks, so
//! such jumps stay in their version, and the switch is only checked at targets that precede much work
//! ([`super::checks::choose_landings_with_check`]). This requires that all addresses come from tables that contain only block addresses of
//! the function and have no other use. In other functions, both versions share one landing block per target. LLVM duplicates the dispatch
//! code for each instruction of the interpreter, but would not do so where values of both versions are merged, so a limit is
//! [raised](crate::bounds::BRANCH_DUPLICATION_LIMIT). Invariant: no block address is live where control changes versions; otherwise one
//! version would jump into the other.

use crate::llvm::{Block, Builder, Module, Value};
use crate::shape::predecessors;
use crate::versions::copies::CopyMapping;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::{LLVMLinkage, LLVMOpcode};

/// Maximum number of targets of indirect branches for which LLVM is made to duplicate the branch;
/// [`BRANCH_DUPLICATION_LIMIT`](crate::bounds::BRANCH_DUPLICATION_LIMIT) has the same value. Interpreters with 77 and 83 targets execute
/// 0.3 and 7 % fewer instructions thanks to it; those with 182 and about 250 would execute 2 and 15 % more, to move values.
pub const MAX_COPIED_LANDINGS: usize = 128;

pub struct DispatchTables {
    /// Uses of tables: the instruction, the index of the operand, and the table.
    uses: Vec<(Value, u32, Value)>,
    /// Instructions that load or select block addresses, or compute addresses of table entries.
    addresses: IndexSet<Value>,
}

impl DispatchTables {
    /// Finds the tables of a function. `None` if there are no indirect branches, or if one does not get its target from a table.
    pub fn from_function(function: Value) -> Option<DispatchTables> {
        let jumps: Vec<Value> = function.blocks().map(Block::terminator).filter(|t| t.is(LLVMOpcode::LLVMIndirectBr)).collect();
        let mut tables = DispatchTables { uses: Vec::new(), addresses: IndexSet::new() };
        let mut stack: Vec<Value> = jumps.iter().map(|j| j.operand(0)).collect();
        while let Some(address) = stack.pop() {
            if !address.is_instruction() {
                return None;
            }
            if !tables.addresses.insert(address) {
                continue;
            }
            match address.opcode() {
                LLVMOpcode::LLVMPHI => stack.extend(address.incoming().into_iter().map(|(v, _)| v)),
                LLVMOpcode::LLVMSelect => stack.extend([address.operand(1), address.operand(2)]),
                LLVMOpcode::LLVMLoad => tables.add_load(function, address)?,
                _ => return None,
            }
        }
        let used_for_jumps = |address: &Value| address.users().all(|u| tables.addresses.contains(&u) || jumps.contains(&u));
        (!jumps.is_empty() && tables.addresses.iter().all(used_for_jumps)).then_some(tables)
    }

    fn add_load(&mut self, function: Value, load: Value) -> Option<()> {
        if load.is_volatile() {
            return None;
        }
        let place = load.operand(0);
        let is_step = place.is_instruction() && place.is(LLVMOpcode::LLVMGetElementPtr);
        let (user, table) = if is_step { (place, place.operand(0)) } else { (load, place) };
        if is_step && !self.addresses.insert(place) {
            return Some(());
        }
        is_block_address_table(function, table).then(|| self.uses.push((user, 0, table)))
    }

    /// Returns the blocks at whose start a block address is live or merged by a phi node. Control must not change versions there.
    pub fn blocks_with_live_address(&self) -> IndexSet<Block> {
        let mut live = IndexSet::new();
        for address in &self.addresses {
            let home = address.block();
            let mut stack = Vec::new();
            for user in address.users() {
                if user.is(LLVMOpcode::LLVMPHI) {
                    live.insert(user.block());
                    stack.extend(user.incoming().into_iter().filter(|(v, _)| v == address).map(|(_, b)| b));
                } else {
                    stack.push(user.block());
                }
            }
            let mut seen = IndexSet::new();
            while let Some(block) = stack.pop() {
                if block != home && seen.insert(block) {
                    stack.extend(predecessors(block));
                }
            }
            live.extend(seen);
        }
        live
    }

    /// Gives the copied blocks tables of their own, with the addresses of copied blocks.
    pub fn retarget_copies(&self, module: Module, function: Value, copies: &CopyMapping) {
        let mut copied_tables = IndexMap::<Value, Value>::new();
        for (user, operand, table) in &self.uses {
            let table = *copied_tables.entry(*table).or_insert_with(|| copy_of_table(module, function, *table, copies));
            copies.value(*user).set_operand(*operand, table);
        }
    }

    /// Computes the addresses of the checking code's tables at function entry and keeps them in values. In a function with one version, the
    /// first dispatch dominates all others, so they share the address that it computes. Here, control may come from the other version, so
    /// each dispatch would recompute the address (3 % of an interpreter's instructions). LLVM can infer nothing about the values, so that
    /// it does not rematerialise them as constants.
    pub fn keep_table_addresses(&self, module: Module, function: Value) {
        let mut kept = IndexMap::<Value, Value>::new();
        for (user, operand, table) in &self.uses {
            let at_entry = || Builder::before(module, function.entry().terminator(), None);
            let address = *kept.entry(*table).or_insert_with(|| at_entry().build_opaque_copy(*table));
            user.set_operand(*operand, address);
        }
    }
}

/// Returns true if a value is a constant array of addresses of the function's blocks.
fn is_block_address_table(function: Value, value: Value) -> bool {
    if !value.is_global_variable() || !value.is_global_constant() {
        return false;
    }
    // With any other linkage, another unit might replace the table.
    let linkage = value.linkage();
    if !matches!(linkage, LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage) {
        return false;
    }
    let Some(content) = value.initializer() else { return false };
    let is_own = |entry: Value| entry.block_address().is_some_and(|(owner, _)| owner == function);
    content.is_constant_array() && content.operands().all(is_own)
}

fn copy_of_table(module: Module, function: Value, table: Value, copies: &CopyMapping) -> Value {
    let copy_of = |entry: Value| {
        let (_, block) = entry.block_address().expect("the table consists of block addresses");
        function.address_of_block(copies.block(block))
    };
    let copied: Vec<_> = table.initializer().into_iter().flat_map(Value::operands).map(copy_of).collect();
    let kind = table.value_type();
    let (_, element) = kind.array_elements();
    let copy = module.add_global(&format!("{}.counted", table.name()), kind);
    copy.set_initializer(element.constant_array(&copied));
    copy.set_global_constant();
    copy.set_linkage(LLVMLinkage::LLVMInternalLinkage);
    copy.set_alignment(table.alignment());
    copy
}
