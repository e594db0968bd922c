//! Line graphs: functions as the front end emitted them ([`trodden_unit::line_graphs`]).
//!
//! The plugin only sees a module after optimisation. `clang -fembed-bitcode` embeds the front end's module as a constant, which is removed
//! here. The line graphs of that module are stored in a metadata node, which remains in the bitcode that variants are built from.

use crate::debug::path_of_file;
use crate::error::InstrumentError;
use crate::llvm::{Block, Module, OwnedModule, Subprogram, Value};
use crate::no_return::is_definition;
use crate::placeholders::llvm_profile::remove_used_global;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use trodden_unit::line_graphs::{LineBlock, LineGraph, LineGraphs};

/// The global constant in which clang embeds the front end's module.
const EMBEDDED_MODULE_VARIABLE_NAME: &str = "llvm.embedded.module";
/// Name of the metadata node that stores the line graphs.
const LINE_GRAPHS_METADATA_NAME: &str = "trodden.line.graphs";

/// Removes the embedded front-end module, and stores its line graphs in a metadata node.
pub fn extract_line_graphs(module: Module) -> Result<(), InstrumentError> {
    let Some(embedded) = module.global(EMBEDDED_MODULE_VARIABLE_NAME) else { return Ok(()) };
    let bytes = embedded.initializer().and_then(Value::bytes).unwrap_or_default();
    // With `-fembed-bitcode=marker`, clang embeds an empty constant.
    if bytes.is_empty() {
        return Ok(());
    }
    let graphs = parse_line_graphs(module, &bytes).ok_or(InstrumentError::UnreadableEmbeddedModule)?;
    // SAFETY: no other code of the plugin has run, so there are no other handles.
    unsafe { remove_used_global(module, embedded) };
    let context = module.context();
    module.add_named_metadata(LINE_GRAPHS_METADATA_NAME, context.metadata_node(&[context.metadata_string(&graphs.to_bytes())]));
    Ok(())
}

pub fn read_line_graphs(module: Module) -> LineGraphs {
    let mut all = LineGraphs::default();
    let texts = module.named_metadata(LINE_GRAPHS_METADATA_NAME).into_iter().flat_map(Value::metadata_operands).flatten();
    texts.filter_map(Value::metadata_bytes).filter_map(|bytes| LineGraphs::from_bytes(&bytes)).for_each(|graphs| all.append(graphs));
    all
}

fn parse_line_graphs(module: Module, bytes: &[u8]) -> Option<LineGraphs> {
    // SAFETY: the returned graphs contain no handles to the parsed module, which is freed at the end.
    let source = unsafe { OwnedModule::parse_in_context_of(module, bytes) }?;
    let (mut files, mut functions) = (IndexMap::<String, u32>::new(), Vec::new());
    let defined = source.module.functions().filter(|f| is_definition(*f));
    let known: IndexMap<Value, Subprogram> = defined.filter_map(|f| Some((f, f.subprogram()?))).collect();
    let numbers: IndexMap<Value, u32> = known.keys().copied().zip(0..).collect();
    for (function, subprogram) in known {
        let path = path_of_file(subprogram.file());
        let blocks = line_blocks(function, &path);
        let next = files.len() as u32;
        let file = *files.entry(path).or_insert(next);
        let name = function.name().trim_start_matches('\u{1}').to_owned();
        functions.push(LineGraph { name, file, line: subprogram.line(), blocks, calls: calls_by_block(function, &numbers) });
    }
    Some(LineGraphs { files: files.into_keys().collect(), functions })
}

fn calls_by_block(function: Value, functions: &IndexMap<Value, u32>) -> Vec<(u32, u32)> {
    let of = |(block, number): (Block, u32)| {
        let called = block.instructions().filter(|i| i.is_call()).filter_map(|call| functions.get(&call.callee()));
        called.map(|called| (number, *called)).collect::<IndexSet<_>>()
    };
    function.blocks().zip(0..).flat_map(of).collect()
}

fn line_blocks(function: Value, path: &str) -> Vec<LineBlock> {
    let numbers: IndexMap<Block, u32> = function.blocks().zip(0..).collect();
    let next = |block: Block| -> IndexSet<u32> { block.terminator().successors().iter().filter_map(|b| numbers.get(b).copied()).collect() };
    let mut own_files = IndexMap::new();
    let mut is_own = |file| *own_files.entry(file).or_insert_with(|| path_of_file(file) == path);
    let block = |block: Block| {
        let mut described = LineBlock { next: next(block).into_iter().collect(), ..LineBlock::default() };
        described.stops = block.terminator().is(LLVMOpcode::LLVMUnreachable);
        for instruction in block.instructions() {
            described.may_end |= instruction.is_call() && !instruction.calls_intrinsic();
            let Some(location) = instruction.location() else { continue };
            let line = location.line();
            if line > 0 && is_own(location.scope().file()) {
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
