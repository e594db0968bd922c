//! Adds the data of the compiler's address map to recovered graphs: function entries, targets of indirect jumps, and frequencies.
//!
//! The map describes LLVM's machine blocks, while graphs consist of blocks as defined in [`crate::graph`]. A block gets the frequency of
//! the machine block that contains its start.

use super::code::FileCode;
use super::explore::flow_of;
use super::reached::CodeFlow;
use crate::address_map::{AddressMap, MapBlock, MapFunction};
use crate::graph::{CodeBlock, CodeEdge, CodeEdgeKind, CompilerFrequencies, FunctionGraph, GraphSource, ProgramGraph};
use crate::instruction::decode_instruction;
use std::collections::HashMap;

const PROBABILITY_PER_UNIT: f64 = 1.0 / (1_u64 << 31) as f64;

/// Returns the targets of indirect jumps according to the map, by address of the jump. Only functions whose map entry contains successors
/// are included.
pub fn map_jump_targets(code: &FileCode, map: &AddressMap) -> HashMap<u64, Vec<u64>> {
    let mut targets = HashMap::new();
    for function in &map.functions {
        for block in function.blocks.iter().filter(|b| b.properties.has_indirect_jump && !b.properties.has_tail_call) {
            let (Some(jump), Some(successors)) = (find_indirect_jump(code, block), &block.successors) else { continue };
            let mut to: Vec<u64> =
                successors.iter().filter_map(|s| function.blocks.iter().find(|b| b.id == s.id)).map(|b| b.address).collect();
            to.sort_unstable();
            to.dedup();
            if !to.is_empty() {
                targets.insert(jump, to);
            }
        }
    }
    targets
}

/// Returns the address of the indirect jump at the end of a machine block. Returns `None` if the block does not end with an indirect
/// jump.
fn find_indirect_jump(code: &FileCode, block: &MapBlock) -> Option<u64> {
    let end = block.address.checked_add(block.size)?;
    let mut at = block.address;
    while at < end && code.is_code(at) {
        let instruction = decode_instruction(code.binary.code_at(at)?, at)?;
        if instruction.next_ip() == end {
            return (flow_of(&instruction) == CodeFlow::JumpIndirect).then_some(at);
        }
        at = instruction.next_ip();
    }
    None
}

/// Marks the functions that the map describes, and adds the frequencies in the map to them.
pub fn add_map_data(graph: &mut ProgramGraph, map: &AddressMap) {
    for function in &mut graph.functions {
        let Some(mapped) = map.function_at(function.entry) else { continue };
        function.source = GraphSource::AddressMap { version: mapped.version };
        function.frequencies = convert_frequencies(function, mapped);
    }
}

fn convert_frequencies(function: &FunctionGraph, mapped: &MapFunction) -> Option<CompilerFrequencies> {
    let has_blocks = mapped.blocks.iter().any(|b| b.frequency.is_some());
    let has_edges = mapped.blocks.iter().any(|b| b.successors.is_some());
    if mapped.entry_count.is_none() && !has_blocks && !has_edges {
        return None;
    }
    let containing = |address: u64| mapped.blocks.iter().find(|b| address.checked_sub(b.address).is_some_and(|at| at < b.size));
    let frequency = |block: &CodeBlock| containing(block.start).and_then(|b| b.frequency).unwrap_or(0);
    let probability = |edge: &CodeEdge| {
        let from = function.block(edge.from);
        let (Some(block), to) = (containing(from.last), function.block(edge.to).start) else { return 0.0 };
        let ends_inside = from.end_address() < block.address + block.size;
        match (&block.successors, ends_inside || edge.kind == CodeEdgeKind::Unwind) {
            (Some(successors), false) => {
                let leads = |id: u32| mapped.blocks.iter().any(|b| b.id == id && b.address == to);
                successors.iter().filter(|s| leads(s.id)).map(|s| f64::from(s.probability) * PROBABILITY_PER_UNIT).sum()
            }
            (_, true) if edge.kind == CodeEdgeKind::FallThrough => 1.0,
            _ => 0.0,
        }
    };
    Some(CompilerFrequencies {
        entry_count: mapped.entry_count,
        blocks: if has_blocks { function.blocks.iter().map(frequency).collect() } else { Vec::new() },
        edges: if has_edges { function.edges.iter().map(probability).collect() } else { Vec::new() },
    })
}
