//! Line graphs: functions as the front end emitted them ([`trodden_unit::line_graphs`]).
//!
//! The plugin only sees a module after optimisation. `clang -fembed-bitcode` embeds the front end's module as a constant, which is removed
//! here. The line graphs of that module are stored in a metadata node, which remains in the bitcode that variants are built from.

use crate::debug::{path_of, subprogram};
use crate::error::InstrumentError;
use crate::llvm::{Block, Module, Value, c_string, llvm};
use crate::no_return::is_definition;
use crate::placeholders::llvm_profile::delete_globals;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use llvm_sys::bit_reader::LLVMParseBitcodeInContext2;
use llvm_sys::core::*;
use llvm_sys::debuginfo::*;
use llvm_sys::prelude::LLVMMetadataRef;
use trodden_unit::line_graphs::{LineBlock, LineGraph, LineGraphs};

/// The constant that clang adds.
const EMBEDDED: &str = "llvm.embedded.module";
/// The metadata node with the graphs.
const NODE: &str = "trodden.line.graphs";

/// Removes the embedded front-end module, and stores its line graphs in a metadata node.
pub fn extract(module: Module) -> Result<(), InstrumentError> {
    let Some(embedded) = module.global(EMBEDDED) else { return Ok(()) };
    let bytes = embedded.initializer().and_then(Value::bytes).unwrap_or_default();
    // With `-fembed-bitcode=marker`, clang embeds an empty constant.
    if bytes.is_empty() {
        return Ok(());
    }
    let graphs = graphs(module, &bytes).ok_or(InstrumentError::UnreadableEmbeddedModule)?;
    delete_globals(module, &IndexSet::from([embedded]));
    let bytes = graphs.to_bytes();
    let mut text = llvm!(LLVMMDStringInContext2(module.context(), bytes.as_ptr().cast(), bytes.len()));
    let node = llvm!(LLVMMDNodeInContext2(module.context(), &mut text, 1));
    let node = llvm!(LLVMMetadataAsValue(module.context(), node));
    llvm!(LLVMAddNamedMetadataOperand(module.raw, c_string(NODE).as_ptr(), node));
    Ok(())
}

pub fn read(module: Module) -> LineGraphs {
    let mut all = LineGraphs::default();
    let count = llvm!(LLVMGetNamedMetadataNumOperands(module.raw, c_string(NODE).as_ptr()));
    let mut nodes = vec![std::ptr::null_mut(); count as usize];
    llvm!(LLVMGetNamedMetadataOperands(module.raw, c_string(NODE).as_ptr(), nodes.as_mut_ptr()));
    let texts = nodes.into_iter().filter_map(Value::some).flat_map(Value::metadata_operands).flatten();
    texts.filter_map(Value::metadata_bytes).filter_map(|bytes| LineGraphs::from_bytes(&bytes)).for_each(|graphs| all.append(graphs));
    all
}

fn graphs(module: Module, bytes: &[u8]) -> Option<LineGraphs> {
    let buffer = llvm!(LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes.as_ptr().cast(), bytes.len(), c"source".as_ptr()));
    let mut raw = std::ptr::null_mut();
    let failed = llvm!(LLVMParseBitcodeInContext2(module.context(), buffer, &mut raw)) != 0;
    llvm!(LLVMDisposeMemoryBuffer(buffer));
    if failed {
        return None;
    }
    let source = Module::new(raw);
    let (mut files, mut functions) = (IndexMap::<String, u32>::new(), Vec::new());
    let defined = source.functions().filter(|f| is_definition(*f));
    let known: IndexMap<Value, LLVMMetadataRef> = defined.filter_map(|f| Some((f, subprogram(f)?))).collect();
    let numbers: IndexMap<Value, u32> = known.keys().copied().zip(0..).collect();
    for (function, subprogram) in known {
        let path = path_of(llvm!(LLVMDIScopeGetFile(subprogram)));
        let blocks = blocks(function, &path);
        let next = files.len() as u32;
        let file = *files.entry(path).or_insert(next);
        let line = llvm!(LLVMDISubprogramGetLine(subprogram));
        let name = function.name().trim_start_matches('\u{1}').to_owned();
        functions.push(LineGraph { name, file, line, blocks, calls: calls(function, &numbers) });
    }
    llvm!(LLVMDisposeModule(raw));
    Some(LineGraphs { files: files.into_keys().collect(), functions })
}

fn calls(function: Value, functions: &IndexMap<Value, u32>) -> Vec<(u32, u32)> {
    let of = |(block, number): (Block, u32)| {
        let called = block.instructions().filter(|i| i.is_call()).filter_map(|call| functions.get(&call.callee()));
        called.map(|called| (number, *called)).collect::<IndexSet<_>>()
    };
    function.blocks().zip(0..).flat_map(of).collect()
}

fn blocks(function: Value, path: &str) -> Vec<LineBlock> {
    let numbers: IndexMap<Block, u32> = function.blocks().zip(0..).collect();
    let next = |block: Block| -> IndexSet<u32> { block.terminator().successors().iter().filter_map(|b| numbers.get(b).copied()).collect() };
    let mut own_files = IndexMap::new();
    let mut is_own = |file| *own_files.entry(file).or_insert_with(|| path_of(file) == path);
    let block = |block: Block| {
        let mut described = LineBlock { next: next(block).into_iter().collect(), ..LineBlock::default() };
        described.stops = block.terminator().is(LLVMOpcode::LLVMUnreachable);
        for instruction in block.instructions() {
            described.may_end |= instruction.is_call() && !instruction.calls_intrinsic();
            let Some(location) = instruction.location() else { continue };
            let line = llvm!(LLVMDILocationGetLine(location));
            if line > 0 && is_own(llvm!(LLVMDIScopeGetFile(llvm!(LLVMDILocationGetScope(location))))) {
                add_line(&mut described, instruction, line);
            }
        }
        described
    };
    function.blocks().map(block).collect()
}

fn add_line(block: &mut LineBlock, instruction: Value, line: u32) {
    if !block.lines.contains(&line) {
        let is_jump = instruction.is(LLVMOpcode::LLVMBr) && instruction.successors().len() == 1;
        match is_jump && !block.lines.is_empty() {
            true => block.jump = Some(line),
            false => block.lines.push(line),
        }
    }
}
