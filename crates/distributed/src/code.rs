//! The functions and basic blocks of the traced code, with the source lines that the trace stores for them.

use crate::files::TracedFiles;
use anyhow::Result;
use std::collections::{HashMap, HashSet};
use trodden_binary::graph::{FunctionGraph, ProgramGraph};
use trodden_binary::linked::split_address;
use trodden_binary::{Binary, SourceLocations, demangle};
use trodden_trace::{TraceBlock, TraceFunction, TracedBlockInfo, TracedFunctionInfo};

/// The functions of the traced files, and those of their blocks that are traced.
pub struct TracedCode {
    graphs: ProgramGraph,
    names: Vec<String>,
    /// The traced blocks in order of address: each block's address, its function, and its index in that function.
    blocks: Vec<(u64, usize, u32)>,
}

impl TracedCode {
    /// Collects the blocks of all functions for which `is_traced` returns true. Its argument is the function's index in `graphs`.
    pub fn new(graphs: ProgramGraph, is_traced: impl Fn(usize) -> bool) -> Self {
        let names = graphs.functions.iter().map(|f| demangle(&f.name)).collect();
        let mut blocks = Vec::new();
        for (number, function) in graphs.functions.iter().enumerate().filter(|(n, _)| is_traced(*n)) {
            blocks.extend((0..).zip(&function.blocks).map(|(place, b)| (b.start, number, place)));
        }
        blocks.sort_unstable();
        blocks.dedup_by_key(|b| b.0);
        Self { graphs, names, blocks }
    }

    /// Removes all blocks for whose start address `is_kept` returns false.
    pub fn retain_blocks(mut self, is_kept: impl Fn(u64) -> bool) -> Self {
        self.blocks.retain(|(address, ..)| is_kept(*address));
        self
    }

    /// Returns the demangled name of the function with this index in the graphs.
    pub fn name(&self, function: usize) -> &str {
        &self.names[function]
    }

    /// Returns the entry address of a traced function. `name` is demangled or a linkage name. Returns `None` if no traced function has this
    /// name.
    pub fn entry_of(&self, name: &str) -> Option<u64> {
        let named = |number: usize| self.names[number] == name || self.graphs.functions[number].name == name;
        let entry = |number: usize| self.graphs.functions[number].entry;
        (0..self.names.len()).filter(|n| named(*n)).map(entry).find(|entry| self.block_at(*entry).is_some())
    }

    /// Returns the demangled name of the function that contains an address; `None` if no function contains it.
    pub fn function_containing(&self, address: u64) -> Option<&str> {
        self.graphs.function_containing(address).map(|function| self.name(function.0 as usize))
    }

    /// Returns the traced block that starts at this address.
    pub fn block_at(&self, address: u64) -> Option<TraceBlock> {
        self.blocks.binary_search_by_key(&address, |b| b.0).ok().map(|at| TraceBlock(at as u32))
    }

    /// Returns all traced blocks in order of address.
    pub fn blocks(&self) -> impl Iterator<Item = TraceBlock> {
        (0..self.blocks.len()).map(|number| TraceBlock(number as u32))
    }

    /// Returns the start addresses of all traced blocks in ascending order.
    pub fn addresses(&self) -> Vec<u64> {
        self.blocks.iter().map(|b| b.0).collect()
    }

    /// Returns the graph of the function that contains a block, and the block's index in that graph.
    pub fn graph_of(&self, block: TraceBlock) -> (&FunctionGraph, trodden_binary::graph::BlockIndex) {
        let (_, function, place) = self.blocks[block.0 as usize];
        (&self.graphs.functions[function], trodden_binary::graph::BlockIndex(place))
    }

    /// Returns the index in the graphs of the function that contains a block.
    pub fn function_of(&self, block: TraceBlock) -> usize {
        self.blocks[block.0 as usize].1
    }

    /// Returns descriptions of all functions, as the trace stores them. If several traced files have a function with the same name, the
    /// name is followed by that of the file: `NAME@FILE`.
    pub fn describe_functions(&self, traced: &TracedFiles) -> Vec<TracedFunctionInfo> {
        let functions = || self.graphs.functions.iter().zip(&self.names);
        let mut file_of: HashMap<&str, usize> = HashMap::new();
        let mut ambiguous: HashSet<&str> = HashSet::new();
        for (function, name) in functions() {
            let file = split_address(function.entry).0;
            if *file_of.entry(name).or_insert(file) != file {
                ambiguous.insert(name);
            }
        }
        let shown = |f: &FunctionGraph, name: &String| match ambiguous.contains(name.as_str()) {
            true => format!("{name}@{}", traced.locate(f.entry).0.path().file_name().unwrap_or_default().display()),
            false => name.clone(),
        };
        functions().map(|(f, name)| TracedFunctionInfo { name: shown(f, name), address: f.entry }).collect()
    }

    /// Returns descriptions of all traced blocks, as the trace stores them, and the source files to which their lines refer.
    pub fn describe_blocks(&self, traced: &TracedFiles) -> Result<(Vec<TracedBlockInfo>, Vec<String>)> {
        let sources = traced.sources()?;
        let mut files: HashMap<String, u32> = HashMap::new();
        let mut names = Vec::new();
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for (address, function, place) in &self.blocks {
            let size = self.graphs.functions[*function].blocks[*place as usize].size;
            let mut lines: Vec<(u32, u32)> = Vec::new();
            let (binary, at) = traced.locate(*address);
            for (file, line) in sources[split_address(*address).0].iter().flat_map(|s| lines_of(s, binary, at, size)) {
                let next = names.len() as u32;
                let number = *files.entry(file.clone()).or_insert(next);
                if number == next {
                    names.push(file);
                }
                if !lines.contains(&(number, line)) {
                    lines.push((number, line));
                }
            }
            blocks.push(TracedBlockInfo { address: *address, size: size as u32, function: TraceFunction(*function as u32), lines });
        }
        Ok((blocks, names))
    }

    /// Returns the edges between traced blocks of the same function, as the trace stores them.
    pub fn collect_edges(&self) -> Vec<(TraceBlock, TraceBlock)> {
        let mut edges = Vec::new();
        for (at, (_, function, place)) in (0u32..).zip(&self.blocks) {
            let graph = &self.graphs.functions[*function];
            for edge in graph.successors(trodden_binary::graph::BlockIndex(*place)) {
                edges.extend(self.block_at(graph.block(edge.to).start).map(|to| (TraceBlock(at), to)));
            }
        }
        edges.sort_unstable();
        edges.dedup();
        edges
    }
}

fn lines_of(source: &SourceLocations, binary: &Binary, address: u64, size: u64) -> Vec<(String, u32)> {
    let mut lines = Vec::new();
    let mut at = address;
    while at < address + size {
        let instruction = binary.code_at(at).and_then(|code| trodden_binary::instruction::decode_instruction(code, at));
        lines.extend(source.line(at));
        at += instruction.map_or(size, |i| i.len() as u64);
    }
    lines
}
