//! Declarations with the attributes of an existing function.

use crate::llvm::{Module, Type, Value};
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMLinkage};

/// Declares an internal function of type `kind` with the attributes, calling convention, personality and GC of `function`.
pub fn declare_with_attributes_of(module: Module, function: Value, name: &str, kind: Type) -> Value {
    let new = module.add_function(name, kind);
    new.set_linkage(LLVMLinkage::LLVMInternalLinkage);
    new.set_convention(function.convention());
    for index in (0..=function.parameters().len() as u32).chain([LLVMAttributeFunctionIndex]) {
        function.attributes_at(index).into_iter().for_each(|attribute| new.add_attribute_at(index, attribute));
    }
    new.copy_personality_and_gc(function);
    new
}
