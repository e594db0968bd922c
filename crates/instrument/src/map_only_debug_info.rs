//! Removes debug information that the driver requested only for the unit's map of paths, before LLVM generates code.
//!
//! Emitting line tables would make unoptimised code generation up to 50 % slower.

use crate::llvm::{Module, Value};
use trodden_unit::MAP_ONLY_DEBUG_INFO_FLAG;

/// Index of the flags among the operands of LLVM's `DICompileUnit` (file, producer, flags, ...).
const FLAGS_OPERAND_INDEX: usize = 2;

/// Strips the module's debug information, unless the user requested it for one of the compile units that were merged into the module.
pub fn strip_map_only_debug_info(module: Module) {
    let units = module.named_metadata("llvm.dbg.cu");
    if !units.is_empty() && units.into_iter().all(has_debug_info_only_for_maps) {
        // SAFETY: no code is inserted after this, so no handle to a debug intrinsic is used. What is still emitted is the map, which
        // contains no handles.
        unsafe { module.strip_debug_info() };
    }
}

fn has_debug_info_only_for_maps(unit: Value) -> bool {
    unit.metadata_operands()
        .get(FLAGS_OPERAND_INDEX)
        .copied()
        .flatten()
        .and_then(Value::metadata_bytes)
        .is_some_and(|flags| flags == MAP_ONLY_DEBUG_INFO_FLAG.as_bytes())
}
