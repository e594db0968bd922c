//! Indirect branches by way of constant tables: a table of its own for each version.
//!
//! The dispatch of an interpreter loads a block's address from a constant table and jumps there. The instrumented code
//! gets a copy of the table with the addresses of its own blocks, and so neither version needs to check
//! where such jumps arrive: each stays by itself. It is checked only where what follows is long
//! ([`super::checks::long_landings`]).
//!
//! That works if all addresses that a function's indirect branches use come from tables that hold addresses of its own
//! blocks and nothing else, and are used for nothing else. Other functions have one landing for both versions.
//!
//! Code generation copies the code in front of an indirect branch to each place that leads there, so that each instruction
//! of the interpreter has a jump of its own; but not where there are many such places, many targets, and values merged
//! in them, as there are where versions meet. That bound is [raised](crate::bounds::COPIED_JUMPS).
//!
//! Invariant: no address is live where versions change, else one version would jump into the other.

use super::copies::Copies;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::shape::predecessors;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::core::*;
use llvm_sys::{LLVMLinkage, LLVMOpcode};

/// How many landings an interpreter may have for its jump to be copied; also the value of
/// [`COPIED_JUMPS`](crate::bounds::COPIED_JUMPS). Interpreters with 77 and 83 landings execute
/// 0.3 and 7 % less by it; those with 182 and some 250 would execute 2 and 15 % more, by values moved about at each.
pub const COPIED: usize = 128;

/// The tables of a function's indirect branches.
pub struct DispatchTables {
    /// An instruction's operand that is a table, and that table.
    uses: Vec<(Value, u32, Value)>,
    /// The instructions that give addresses, and places of addresses.
    addresses: IndexSet<Value>,
}

impl DispatchTables {
    /// Finds the tables; `None` if there are no indirect branches, or if not all of them go by way of tables.
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
        if llvm!(LLVMGetVolatile(load.0)) != 0 {
            return None;
        }
        let place = load.operand(0);
        let is_step = place.is_instruction() && place.is(LLVMOpcode::LLVMGetElementPtr);
        let (user, table) = if is_step { (place, place.operand(0)) } else { (load, place) };
        if is_step && !self.addresses.insert(place) {
            return Some(());
        }
        is_table(function, table).then(|| self.uses.push((user, 0, table)))
    }

    /// The blocks at whose beginning an address is live, or merged: versions must not change there.
    pub fn live(&self) -> IndexSet<Block> {
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

    /// Lets copies of a function's blocks jump by way of tables of their own.
    pub fn part(&self, module: Module, function: Value, copies: &Copies) {
        let mut made = IndexMap::<Value, Value>::new();
        for (user, operand, table) in &self.uses {
            let table = *made.entry(*table).or_insert_with(|| copy_of_table(module, function, *table, copies));
            llvm!(LLVMSetOperand(copies.value(*user).0, *operand, table.0));
        }
    }

    /// Lets the checking code have its tables' addresses from the function's entry on. In a function of one version the
    /// first jump comes before all others, and they use its address of the table; here control may come from the other
    /// version, and each jump would make the address again (3 % of an interpreter's instructions). Code
    /// generation keeps what it cannot know to be a constant.
    pub fn keep_addresses(&self, module: Module, function: Value) {
        let mut kept = IndexMap::<Value, Value>::new();
        for (user, operand, table) in &self.uses {
            let at_entry = || Builder::before(module, function.entry().terminator(), None);
            let address = *kept.entry(*table).or_insert_with(|| at_entry().opaque(*table));
            llvm!(LLVMSetOperand(user.0, *operand, address.0));
        }
    }
}

/// Whether a value is a constant array of addresses of a function's blocks.
fn is_table(function: Value, value: Value) -> bool {
    if !value.is_global_variable() || llvm!(LLVMIsGlobalConstant(value.0)) == 0 {
        return false;
    }
    // What another unit may replace is not known.
    let linkage = llvm!(LLVMGetLinkage(value.0));
    if !matches!(linkage, LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage) {
        return false;
    }
    let Some(content) = value.initializer() else { return false };
    let is_own = |entry: Value| !llvm!(LLVMIsABlockAddress(entry.0)).is_null() && llvm!(LLVMGetBlockAddressFunction(entry.0)) == function.0;
    !llvm!(LLVMIsAConstantArray(content.0)).is_null() && content.operands().all(is_own)
}

fn copy_of_table(module: Module, function: Value, table: Value, copies: &Copies) -> Value {
    let copy_of = |entry: Value| {
        let block = Block(llvm!(LLVMGetBlockAddressBasicBlock(entry.0)));
        llvm!(LLVMBlockAddress(function.0, copies.block(block).0))
    };
    let mut copied: Vec<_> = table.initializer().into_iter().flat_map(Value::operands).map(copy_of).collect();
    let kind = llvm!(LLVMGlobalGetValueType(table.0));
    let content = llvm!(LLVMConstArray2(llvm!(LLVMGetElementType(kind)), copied.as_mut_ptr(), copied.len() as u64));
    let copy = module.add_global(&format!("{}.counted", table.name()), kind);
    llvm!(LLVMSetInitializer(copy.0, content));
    llvm!(LLVMSetGlobalConstant(copy.0, 1));
    llvm!(LLVMSetLinkage(copy.0, LLVMLinkage::LLVMInternalLinkage));
    llvm!(LLVMSetAlignment(copy.0, llvm!(LLVMGetAlignment(table.0))));
    copy
}
