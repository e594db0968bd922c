//! Control-flow graphs of functions as the front end made them, before the optimiser, with the lines of each block.
//!
//! The optimised code of a line may not prove that the line was not executed: where a condition is known, only the other
//! paths keep code of it. These graphs say which lines must have been executed for others to be.

use serde::{Deserialize, Serialize};

/// Graphs of a unit's functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineGraphs {
    /// Source files; absolute where the compiler knew the folder.
    pub files: Vec<String>,
    /// Graphs of the functions that have a body, inline functions among them.
    pub functions: Vec<LineGraph>,
}

/// The graph of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineGraph {
    /// Linkage name.
    pub name: String,
    /// Place of its file in [`LineGraphs::files`].
    pub file: u32,
    /// Line of its declaration.
    pub line: u32,
    /// Basic blocks; block 0 is the entry.
    pub blocks: Vec<LineBlock>,
    /// Calls by name: the block, and the function by its place in [`LineGraphs::functions`].
    pub calls: Vec<(u32, u32)>,
}

/// A basic block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineBlock {
    /// Lines of the function's file that its instructions have, each once.
    pub lines: Vec<u32>,
    /// Line of the jump that the block ends in, if no other instruction of it has that line but another line: a closing brace, or a
    /// `break` after a statement.
    pub jump: Option<u32>,
    /// Blocks that may follow; none if the function ends.
    pub next: Vec<u32>,
    /// Whether it has a call, which may not return.
    pub may_end: bool,
    /// Whether it ends in a call that does not return.
    pub stops: bool,
}

impl LineBlock {
    /// Its lines, that of its jump among them.
    pub fn all_lines(&self) -> impl Iterator<Item = &u32> {
        self.lines.iter().chain(&self.jump)
    }
}

impl LineGraphs {
    /// Adds the graphs of another unit that is part of this one.
    pub fn append(&mut self, other: LineGraphs) {
        let (first_file, first) = (self.files.len() as u32, self.functions.len() as u32);
        self.files.extend(other.files);
        for mut function in other.functions {
            function.file += first_file;
            function.calls.iter_mut().for_each(|(_, called)| *called += first);
            self.functions.push(function);
        }
    }

    /// As bytes that [`LineGraphs::from_bytes`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("graphs are plain data")
    }

    /// Reads what [`LineGraphs::to_bytes`] made; `None` if it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<LineGraphs> {
        postcard::from_bytes(bytes).ok().filter(LineGraphs::is_sound)
    }

    /// Whether all places that it names exist.
    pub fn is_sound(&self) -> bool {
        self.functions.iter().all(|f| {
            let ends = f.blocks.iter().flat_map(|b| &b.next).all(|n| (*n as usize) < f.blocks.len());
            let calls =
                f.calls.iter().all(|(block, called)| (*block as usize) < f.blocks.len() && (*called as usize) < self.functions.len());
            ends && calls && !f.blocks.is_empty() && (f.file as usize) < self.files.len()
        })
    }
}
