//! Control-flow graphs of functions before optimisation, with the source lines of each block.
//!
//! Optimised code may not show that a line was not executed: if the optimiser knows the outcome of a condition on some paths, only the
//! other paths still contain the code of the line. These graphs show which lines must have been executed before other lines.

use serde::{Deserialize, Serialize};

/// Line graphs of all functions of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineGraphs {
    /// Source files, with absolute paths if the compiler knew the folder.
    pub files: Vec<String>,
    /// Graphs of all functions with bodies, including inline functions.
    pub functions: Vec<LineGraph>,
}

/// The graph of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineGraph {
    /// Linkage name.
    pub name: String,
    /// Index of the function's file in [`LineGraphs::files`].
    pub file: u32,
    /// Line of its declaration.
    pub line: u32,
    /// Basic blocks. Block 0 is the entry.
    pub blocks: Vec<LineBlock>,
    /// Direct calls: index of the calling block, and index of the callee in [`LineGraphs::functions`].
    pub calls: Vec<(u32, u32)>,
}

/// A basic block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineBlock {
    /// Lines of the block's instructions that are in the function's file, without duplicates.
    pub lines: Vec<u32>,
    /// Line of the jump at the end of the block, if no other instruction of the block is on this line. Such a line is a closing brace, or a
    /// `break` after a statement.
    pub jump: Option<u32>,
    /// Indices of the successors; empty if the function returns.
    pub next: Vec<u32>,
    /// Whether the block contains a call that may not return.
    pub may_end: bool,
    /// Whether the block ends with a call that never returns.
    pub stops: bool,
}

impl LineBlock {
    /// Returns all of the block's lines, including the jump's line.
    pub fn block_and_jump_lines(&self) -> impl Iterator<Item = &u32> {
        self.lines.iter().chain(&self.jump)
    }
}

impl LineGraphs {
    /// Adds the graphs of another unit that is linked into this unit.
    pub fn append(&mut self, other: LineGraphs) {
        let (first_file, first) = (self.files.len() as u32, self.functions.len() as u32);
        self.files.extend(other.files);
        for mut function in other.functions {
            function.file += first_file;
            function.calls.iter_mut().for_each(|(_, called)| *called += first);
            self.functions.push(function);
        }
    }

    /// Encodes the graphs.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("graphs are plain data")
    }

    /// Decodes the result of [`LineGraphs::to_bytes`]; `None` if the bytes are invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<LineGraphs> {
        postcard::from_bytes(bytes).ok().filter(LineGraphs::is_sound)
    }

    /// Returns whether all indices refer to existing files, functions and blocks.
    pub fn is_sound(&self) -> bool {
        self.functions.iter().all(|f| {
            let ends = f.blocks.iter().flat_map(|b| &b.next).all(|n| (*n as usize) < f.blocks.len());
            let calls =
                f.calls.iter().all(|(block, called)| (*block as usize) < f.blocks.len() && (*called as usize) < self.functions.len());
            ends && calls && !f.blocks.is_empty() && (f.file as usize) < self.files.len()
        })
    }
}
