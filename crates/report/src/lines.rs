//! Execution counts of source lines and branches, from counts of blocks and edges.
//!
//! A line's count is that of its most executed block, taken for each *instance* of the line (its function, or one inlining of it) and summed over
//! instances: a line of several blocks is not counted twice, and code inlined in many places counts everywhere it ran. Branches are those that are
//! left in the optimised code; the counts of one source branch's copies are summed by line, column and direction.

use crate::view::{Function, file_of};
use std::collections::BTreeMap;
use trodden_unit::{EdgeKind, Position};

/// Counts by source file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineCounts {
    /// Files in the order of their names.
    pub files: BTreeMap<String, FileCounts>,
}

/// Counts of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileCounts {
    /// Executions of each line that has code.
    pub lines: BTreeMap<u32, u64>,
    /// Calls of each function declared here, by line and linkage name.
    pub functions: BTreeMap<(u32, String), u64>,
    /// Branches by line and column.
    pub branches: BTreeMap<(u32, u32), BTreeMap<Direction, Taken>>,
}

/// A way out of a branch, in the order in which reports list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The condition is true.
    True,
    /// The condition is false.
    False,
    /// A case of a switch.
    Case(i64),
    /// None of the cases.
    Default,
    /// A target of a computed jump.
    Indirect(u32),
}

/// How often a branch came to be decided, and was decided this way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Executions of the branch.
    pub reached: u64,
    /// Those that went this way.
    pub taken: u64,
}

impl LineCounts {
    /// Counts of the given functions.
    pub fn of<'v, 'a: 'v>(functions: impl IntoIterator<Item = &'v Function<'a>>) -> LineCounts {
        let mut counts = LineCounts::default();
        for function in functions {
            counts.add_lines(function);
            counts.add_branches(function);
            counts.add_function(function);
        }
        counts
    }

    /// Count of a line; `None` if there is no code on it.
    pub fn line(&self, file: &str, line: u32) -> Option<u64> {
        self.files.get(file)?.lines.get(&line).copied()
    }

    fn file(&mut self, function: &Function, position: Position) -> Option<&mut FileCounts> {
        let file = file_of(function.units_map(), position)?;
        if !self.files.contains_key(file) {
            self.files.insert(file.to_string(), FileCounts::default());
        }
        self.files.get_mut(file)
    }

    fn add_lines(&mut self, function: &Function) {
        let mut instances: BTreeMap<(u32, u32, u32), (Position, u64)> = BTreeMap::new();
        for (block, &count) in function.map.blocks.iter().zip(&function.paths.blocks) {
            for position in block.positions.iter().copied().chain(block.branch).filter(|p| p.line > 0) {
                let instance = instances.entry((position.scope, position.file, position.line)).or_insert((position, 0));
                instance.1 = instance.1.max(count);
            }
        }
        for (position, count) in instances.into_values() {
            if let Some(file) = self.file(function, position) {
                let line = file.lines.entry(position.line).or_default();
                *line = line.saturating_add(count);
            }
        }
    }

    fn add_branches(&mut self, function: &Function) {
        for (edge, &taken) in function.map.edges.iter().zip(&function.paths.edges) {
            let Some(direction) = direction(edge.kind) else { continue };
            let branch = function.map.blocks.get(edge.from.index()).and_then(|b| b.branch).filter(|p| p.line > 0);
            let Some(position) = branch else { continue };
            let reached = function.paths.blocks.get(edge.from.index()).copied().unwrap_or(0);
            if let Some(file) = self.file(function, position) {
                let known = file.branches.entry((position.line, position.column)).or_default().entry(direction).or_default();
                known.reached = known.reached.saturating_add(reached);
                known.taken = known.taken.saturating_add(taken);
            }
        }
    }

    fn add_function(&mut self, function: &Function) {
        let (Some(position), Some(line)) = (function.map.position, function.line()) else { return };
        let entries = function.paths.entries();
        if let Some(file) = self.file(function, position) {
            let calls = file.functions.entry((line, function.name.linkage.clone())).or_default();
            *calls = calls.saturating_add(entries);
        }
    }
}

fn direction(kind: EdgeKind) -> Option<Direction> {
    match kind {
        EdgeKind::True => Some(Direction::True),
        EdgeKind::False => Some(Direction::False),
        EdgeKind::Case(value) => Some(Direction::Case(value)),
        EdgeKind::Default => Some(Direction::Default),
        EdgeKind::Indirect(place) => Some(Direction::Indirect(place)),
        _ => None,
    }
}
