//! An image's code as a trace describes it: functions and blocks by address, with source lines.

use crate::files::TracedFiles;
use anyhow::Result;
use std::collections::{HashMap, HashSet};
use trodden_binary::graph::{FunctionGraph, ProgramGraph};
use trodden_binary::linked::split_address;
use trodden_binary::{Binary, SourceLocations, demangle};
use trodden_trace::{BlockInfo, FunctionInfo, TraceBlock, TraceFunction};

/// The functions and the traced blocks of an image.
pub struct TracedCode {
    graphs: ProgramGraph,
    names: Vec<String>,
    /// For each block in order of address: its address, its function, and its index in that function.
    blocks: Vec<(u64, usize, u32)>,
}

impl TracedCode {
    /// Collects the blocks of all functions for which `is_traced`, given the function's index in the graphs, returns true.
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

    /// Keeps only the blocks for whose start address `is_kept` returns true.
    pub fn retain_blocks(mut self, is_kept: impl Fn(u64) -> bool) -> Self {
        self.blocks.retain(|(address, ..)| is_kept(*address));
        self
    }

    /// A function's demangled name, given its index in the graphs.
    pub fn name(&self, function: usize) -> &str {
        &self.names[function]
    }

    /// The entry address of a traced function, given its demangled or linkage name; `None` if no traced function has this name.
    pub fn entry_of(&self, name: &str) -> Option<u64> {
        let named = |number: usize| self.names[number] == name || self.graphs.functions[number].name == name;
        let entry = |number: usize| self.graphs.functions[number].entry;
        (0..self.names.len()).filter(|n| named(*n)).map(entry).find(|entry| self.block_at(*entry).is_some())
    }

    /// The name of the function that contains an address.
    pub fn function_containing(&self, address: u64) -> Option<&str> {
        self.graphs.function_containing(address).map(|function| self.name(function.0 as usize))
    }

    /// The block that starts at exactly this address.
    pub fn block_at(&self, address: u64) -> Option<TraceBlock> {
        self.blocks.binary_search_by_key(&address, |b| b.0).ok().map(|at| TraceBlock(at as u32))
    }

    /// All blocks, in the order of their addresses.
    pub fn blocks(&self) -> impl Iterator<Item = TraceBlock> {
        (0..self.blocks.len()).map(|number| TraceBlock(number as u32))
    }

    /// The addresses of all blocks, in ascending order.
    pub fn addresses(&self) -> Vec<u64> {
        self.blocks.iter().map(|b| b.0).collect()
    }

    /// The graph of the function that contains a block, and the block's index in that graph.
    pub fn graph_of(&self, block: TraceBlock) -> (&FunctionGraph, trodden_binary::graph::BlockIndex) {
        let (_, function, place) = self.blocks[block.0 as usize];
        (&self.graphs.functions[function], trodden_binary::graph::BlockIndex(place))
    }

    /// The function that a block belongs to.
    pub fn function_of(&self, block: TraceBlock) -> usize {
        self.blocks[block.0 as usize].1
    }

    /// Descriptions of all functions, for the trace. If several traced files use the same name, the file's name is appended: `NAME@FILE`.
    pub fn functions_about(&self, traced: &TracedFiles) -> Vec<FunctionInfo> {
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
        functions().map(|(f, name)| FunctionInfo { name: shown(f, name), address: f.entry }).collect()
    }

    /// Descriptions of all blocks, for the trace, and the source files that their lines refer to.
    pub fn blocks_about(&self, traced: &TracedFiles) -> Result<(Vec<BlockInfo>, Vec<String>)> {
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
            blocks.push(BlockInfo { address: *address, size: size as u32, function: TraceFunction(*function as u32), lines });
        }
        Ok((blocks, names))
    }

    /// The edges within functions, for the trace.
    pub fn edges_about(&self) -> Vec<(TraceBlock, TraceBlock)> {
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
        let instruction = binary.code_at(at).and_then(|code| trodden_binary::instruction::decode(code, at));
        lines.extend(source.line(at));
        at += instruction.map_or(size, |i| i.len() as u64);
    }
    lines
}
