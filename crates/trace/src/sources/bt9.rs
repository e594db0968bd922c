//! Traces in the text format BT9 of the fifth championship in branch prediction (CBP-5, 2016).
//!
//! ```text
//! BT9_SPA_TRACE_FORMAT
//! key: value ...
//! BT9_NODES
//! NODE id virtual_address physical_address opcode size class: JMP+DIR+CND behavior: ... taken_cnt: ... # comment
//! BT9_EDGES
//! EDGE id src_id dest_id T|N virtual_target physical_target inst_cnt traverse_cnt: ...
//! BT9_EDGE_SEQUENCE
//! edge ids, one a line
//! EOF
//! ```
//! A node is a branch instruction; node 0 is the start of the trace. An edge is an outcome of a branch and the next branch, with `inst_cnt`
//! non-branch instructions between them. Memory grows with the numbers of nodes and edges, not with the sequence.

use super::bt9_opcode::{Bt9Node, find_untaken_targets};
use super::lines::SourceLines;
use super::{BranchSource, EventBatch, SourceDetail, SourceError, SourceNotes};
use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;
use trodden_hardware::{Address, BranchKind, RetiredBranch, StreamEvent, ThreadId};

#[derive(Clone, Copy, Debug)]
struct Bt9Edge {
    from: u64,
    is_taken: bool,
    target: u64,
    instructions: u32,
}

/// Reads a BT9 trace as a source of branches.
pub struct Bt9Source<R> {
    lines: SourceLines<R>,
    nodes: HashMap<u64, Bt9Node>,
    edges: HashMap<u64, Bt9Edge>,
    /// Number of instructions since the last branch.
    pending: u32,
    has_begun: bool,
    is_ended: bool,
    instructions: u64,
    /// Number of conditional branches that may be forward or backward, because their target is unknown.
    unknown: usize,
}

impl<R: BufRead> Bt9Source<R> {
    /// Opens a trace, and reads its nodes and edges. `path` identifies the trace in messages.
    ///
    /// # Errors
    /// The text is not a BT9 trace, or is corrupt.
    pub fn new(reader: R, path: &Path) -> Result<Bt9Source<R>, SourceError> {
        let mut lines = SourceLines::new(reader, path);
        if lines.next()?.is_none_or(|l| l.trim() != "BT9_SPA_TRACE_FORMAT") {
            return Err(lines.foreign_format_error("not a BT9 trace: its first line is not BT9_SPA_TRACE_FORMAT"));
        }
        let (nodes, edges) = (HashMap::new(), HashMap::new());
        let mut source = Bt9Source { lines, nodes, edges, pending: 0, has_begun: false, is_ended: false, instructions: 0, unknown: 0 };
        source.read_tables()?;
        Ok(source)
    }

    fn read_tables(&mut self) -> Result<(), SourceError> {
        loop {
            let Some(line) = self.lines.next()? else { return Err(self.lines.truncated_file_error("BT9_EDGE_SEQUENCE is missing")) };
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let taken = match words.first() {
                Some(&"NODE") => self.add_node(&words),
                Some(&"EDGE") => self.add_edge(&words),
                Some(&"BT9_EDGE_SEQUENCE") => {
                    self.unknown = find_untaken_targets(&mut self.nodes);
                    return Ok(());
                }
                _ => Some(()),
            };
            taken.ok_or_else(|| self.lines.corrupt(format!("`{}` is malformed", line.trim())))?;
        }
    }

    fn add_node(&mut self, words: &[&str]) -> Option<()> {
        let [_, id, address, _physical, opcode, size, ..] = words else { return None };
        let class = words.iter().position(|w| *w == "class:").and_then(|at| words.get(at + 1));
        let kind = class.map_or(Some(BranchKind::Jump), |class| kind_of(class))?;
        self.nodes
            .insert(number(id)?, Bt9Node { address: number(address)?, size: number(size)?, opcode: number(opcode), kind, target: None });
        Some(())
    }

    fn add_edge(&mut self, words: &[&str]) -> Option<()> {
        let [_, id, from, _to, taken, target, _physical, instructions, ..] = words else { return None };
        let edge = Bt9Edge {
            from: number(from)?,
            is_taken: *taken == "T",
            target: number(target)?,
            instructions: u32::try_from(number(instructions)?).ok()?,
        };
        let node = self.nodes.get_mut(&edge.from)?;
        // The edge of an untaken branch should lead to the next instruction, but some writers give the branch's static target.
        if edge.is_taken || ![0, node.address + node.size].contains(&edge.target) {
            node.target = Some(edge.target);
        }
        self.edges.insert(number(id)?, edge);
        Some(())
    }

    fn follow_edge(&mut self, edge: Bt9Edge, batch: &mut EventBatch) -> Option<()> {
        const THREAD: ThreadId = ThreadId(0);
        let node = *self.nodes.get(&edge.from)?;
        if !self.has_begun {
            self.has_begun = true;
            // Of the instructions before the first branch, only the number is known.
            let start = if edge.from == 0 { edge.target } else { node.address };
            batch.events.push((THREAD, StreamEvent::Begin(Address(start))));
        }
        // Node 0 is not an instruction.
        if edge.from != 0 {
            let fall_through = node.address + node.size;
            let target = if edge.is_taken { edge.target } else { node.target.unwrap_or(fall_through) };
            let branch = RetiredBranch {
                address: Address(node.address),
                target: Address(target),
                fall_through: Address(fall_through),
                kind: node.kind,
                is_taken: edge.is_taken,
                instructions: self.pending + 1,
                stack: None,
            };
            self.instructions += u64::from(branch.instructions);
            self.pending = 0;
            batch.events.push((THREAD, StreamEvent::Branch(branch)));
        }
        self.pending += edge.instructions;
        Some(())
    }
}

impl<R: BufRead> BranchSource for Bt9Source<R> {
    fn level(&self) -> SourceDetail {
        SourceDetail::Branches
    }

    fn read(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        while batch.events.len() < EventBatch::EVENTS_PER_BATCH && !self.is_ended {
            let Some(line) = self.lines.next()? else { return Err(self.lines.truncated_file_error("the line EOF is missing")) };
            let word = line.split('#').next().unwrap_or_default().trim();
            match word {
                "" => {}
                "EOF" => {
                    self.is_ended = true;
                    self.instructions += u64::from(self.pending);
                    batch.events.push((ThreadId(0), StreamEvent::End(self.pending)));
                }
                id => {
                    let step = number(id).and_then(|id| self.edges.get(&id).copied()).and_then(|edge| self.follow_edge(edge, batch));
                    step.ok_or_else(|| self.lines.corrupt(format!("edge `{id}` is not defined")))?;
                }
            }
        }
        Ok(!self.is_ended)
    }

    fn notes(&self) -> SourceNotes {
        let note = || {
            format!(
                "conditional branches that were never taken and whose targets are unknown, counted as forward branches: {}",
                self.unknown
            )
        };
        SourceNotes {
            instructions: self.instructions,
            notes: (self.unknown > 0).then(note).into_iter().collect(),
            ..SourceNotes::default()
        }
    }
}

fn kind_of(class: &str) -> Option<BranchKind> {
    let mut parts = class.split('+');
    let (what, how, when) = (parts.next()?, parts.next()?, parts.next()?);
    Some(match (what, how, when) {
        ("RET", ..) => BranchKind::Return,
        ("CALL", "DIR", _) => BranchKind::Call,
        ("CALL", "IND", _) => BranchKind::IndirectCall,
        ("JMP", "DIR", "CND") => BranchKind::Conditional,
        ("JMP", "DIR", _) => BranchKind::Jump,
        ("JMP", "IND", _) => BranchKind::IndirectJump,
        _ => return None,
    })
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
#[path = "bt9_tests.rs"]
mod tests;
