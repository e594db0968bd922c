//! Which functions a module calls by name, and from how many places: which procedures partitioned path profiling may divide depends on it.
//!
//! Source: Afraz, Saha and Kanade, "P3: partitioned path profiling" (ESEC/FSE 2015), section 4.1. An indirect call names nobody, as there.

use crate::llvm::Module;
use std::collections::BTreeMap;
use trodden_unit::Callee;

/// Callees of the module's code, as it is before anything is inserted.
pub fn of(module: Module) -> Vec<Callee> {
    let mut sites = BTreeMap::<String, u32>::new();
    let instructions = module.functions().flat_map(|f| f.blocks()).flat_map(|b| b.instructions());
    let callees = instructions.filter(|i| i.is_call()).map(|call| call.callee());
    for callee in callees.filter(|callee| callee.is_function() && callee.intrinsic() == 0) {
        *sites.entry(callee.name()).or_default() += 1;
    }
    sites.into_iter().map(|(name, sites)| Callee { name, sites }).collect()
}
