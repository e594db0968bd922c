//! Attributes of functions and calls.

use crate::llvm::{Module, Value, attribute_kind, llvm};
use llvm_sys::core::*;
use llvm_sys::prelude::{LLVMAttributeRef, LLVMTypeRef};
use llvm_sys::{LLVMAttributeFunctionIndex, LLVMLinkage};

/// Returns a function's attributes at `index`: 0 is the return value, parameters start at 1.
pub fn of_function(function: Value, index: u32) -> Vec<LLVMAttributeRef> {
    let count = llvm!(LLVMGetAttributeCountAtIndex(function.0, index)) as usize;
    let mut attributes: Vec<LLVMAttributeRef> = vec![std::ptr::null_mut(); count];
    llvm!(LLVMGetAttributesAtIndex(function.0, index, attributes.as_mut_ptr()));
    attributes
}

pub fn of_call(call: Value, index: u32) -> Vec<LLVMAttributeRef> {
    let count = llvm!(LLVMGetCallSiteAttributeCount(call.0, index)) as usize;
    let mut attributes: Vec<LLVMAttributeRef> = vec![std::ptr::null_mut(); count];
    llvm!(LLVMGetCallSiteAttributes(call.0, index, attributes.as_mut_ptr()));
    attributes
}

pub fn remove_from_call(call: Value, name: &str) {
    llvm!(LLVMRemoveCallSiteEnumAttribute(call.0, LLVMAttributeFunctionIndex, attribute_kind(name)));
}

/// Declares an internal function of type `kind` with the attributes, calling convention, personality and GC of `function`.
pub fn declare_like(module: Module, function: Value, name: &str, kind: LLVMTypeRef) -> Value {
    let new = module.add_function(name, kind);
    llvm!(LLVMSetLinkage(new.0, LLVMLinkage::LLVMInternalLinkage));
    llvm!(LLVMSetFunctionCallConv(new.0, llvm!(LLVMGetFunctionCallConv(function.0))));
    for index in (0..=llvm!(LLVMCountParams(function.0))).chain([LLVMAttributeFunctionIndex]) {
        of_function(function, index).into_iter().for_each(|a| llvm!(LLVMAddAttributeAtIndex(new.0, index, a)));
    }
    if llvm!(LLVMHasPersonalityFn(function.0)) != 0 {
        llvm!(LLVMSetPersonalityFn(new.0, llvm!(LLVMGetPersonalityFn(function.0))));
    }
    llvm!(LLVMSetGC(new.0, llvm!(LLVMGetGC(function.0))));
    new
}
