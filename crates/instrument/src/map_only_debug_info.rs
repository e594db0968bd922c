//! Removes debug information that the driver requested only for the unit's map, before code is generated.
//!
//! Emitting line tables would make unoptimised code generation up to 50 % slower.

use crate::llvm::{Module, Value, c_string, llvm};
use llvm_sys::core::*;
use llvm_sys::debuginfo::LLVMStripModuleDebugInfo;
use trodden_unit::MAP_ONLY_FLAG;

/// Index of the flags among the operands of LLVM's `DICompileUnit` (file, producer, flags, ...).
const FLAGS: usize = 2;

/// Strips the module's debug information, unless the user requested it for one of the compile units that were merged into the module.
pub fn strip(module: Module) {
    let units = units(module);
    if !units.is_empty() && units.into_iter().all(is_only_for_maps) {
        llvm!(LLVMStripModuleDebugInfo(module.raw));
    }
}

fn units(module: Module) -> Vec<Value> {
    let name = c_string("llvm.dbg.cu");
    let mut units = vec![std::ptr::null_mut(); llvm!(LLVMGetNamedMetadataNumOperands(module.raw, name.as_ptr())) as usize];
    llvm!(LLVMGetNamedMetadataOperands(module.raw, name.as_ptr(), units.as_mut_ptr()));
    units.into_iter().filter_map(Value::some).collect()
}

fn is_only_for_maps(unit: Value) -> bool {
    unit.metadata_operands()
        .get(FLAGS)
        .copied()
        .flatten()
        .and_then(Value::metadata_bytes)
        .is_some_and(|flags| flags == MAP_ONLY_FLAG.as_bytes())
}
