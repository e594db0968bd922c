//! Attributes of functions and calls.

use crate::llvm::{Value, llvm};
use llvm_sys::LLVMAttributeFunctionIndex;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMAttributeRef;

/// Attributes of a function (its result: 0, its parameters: from 1 on).
pub fn of_function(function: Value, index: u32) -> Vec<LLVMAttributeRef> {
    let count = llvm!(LLVMGetAttributeCountAtIndex(function.0, index)) as usize;
    let mut attributes: Vec<LLVMAttributeRef> = vec![std::ptr::null_mut(); count];
    llvm!(LLVMGetAttributesAtIndex(function.0, index, attributes.as_mut_ptr()));
    attributes
}

/// Attributes of a call.
pub fn of_call(call: Value, index: u32) -> Vec<LLVMAttributeRef> {
    let count = llvm!(LLVMGetCallSiteAttributeCount(call.0, index)) as usize;
    let mut attributes: Vec<LLVMAttributeRef> = vec![std::ptr::null_mut(); count];
    llvm!(LLVMGetCallSiteAttributes(call.0, index, attributes.as_mut_ptr()));
    attributes
}

/// Takes an attribute from a call itself.
pub fn remove_from_call(call: Value, name: &str) {
    let kind = llvm!(LLVMGetEnumAttributeKindForName(name.as_ptr().cast(), name.len()));
    llvm!(LLVMRemoveCallSiteEnumAttribute(call.0, LLVMAttributeFunctionIndex, kind));
}
