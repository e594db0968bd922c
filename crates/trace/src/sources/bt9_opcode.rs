//! Decodes the targets of never-taken conditional branches in a BT9 trace.
//!
//! The target decides whether a branch is forward or backward, but no edge contains the target of such a branch. The trace does not specify
//! the architecture or the byte order of its opcodes either. So each encoding is tried on the branches with known targets; an encoding that
//! yields all of these targets is used for the other branches.

use std::collections::HashMap;
use trodden_binary::instruction::{BranchInstruction, classify_branch, decode_instruction};
use trodden_hardware::BranchKind;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bt9Node {
    pub address: u64,
    pub size: u64,
    /// The instruction as a number, if the trace has it.
    pub opcode: Option<u64>,
    pub kind: BranchKind,
    /// The target if taken. For a conditional branch that is never taken, it is unknown unless its opcode can be decoded.
    pub target: Option<u64>,
}

/// Finds the missing targets. Returns the number of branches whose target remains unknown.
pub(super) fn find_untaken_targets(nodes: &mut HashMap<u64, Bt9Node>) -> usize {
    let encodings: [fn(&Bt9Node) -> Option<u64>; 3] = [aarch64, |node| x86(node, false), |node| x86(node, true)];
    let is_conditional = |node: &&Bt9Node| node.kind == BranchKind::Conditional;
    let known: Vec<&Bt9Node> = nodes.values().filter(is_conditional).filter(|node| node.target.is_some()).collect();
    let fits = |encoding: &&fn(&Bt9Node) -> Option<u64>| !known.is_empty() && known.iter().all(|node| encoding(node) == node.target);
    let encoding = encodings.iter().find(fits).copied();
    let mut unknown = 0;
    for node in nodes.values_mut().filter(|node| node.kind == BranchKind::Conditional && node.target.is_none()) {
        node.target = encoding.and_then(|target| target(node));
        unknown += usize::from(node.target.is_none());
    }
    unknown
}

/// Decodes the target of `b.cond`, `cbz`, `cbnz`, `tbz` or `tbnz`. Source: Arm Architecture Reference Manual, branches.
fn aarch64(node: &Bt9Node) -> Option<u64> {
    let word = u32::try_from(node.opcode?).ok().filter(|_| node.size == 4)?;
    let bits = match word >> 24 {
        0x54 | 0x34 | 0x35 | 0xb4 | 0xb5 => 19,
        0x36 | 0x37 | 0xb6 | 0xb7 => 14,
        _ => return None,
    };
    // The signed displacement, in instructions, is above the lowest five bits.
    let displacement = (word << (27 - bits)) as i32 >> (32 - bits);
    Some(node.address.wrapping_add_signed(4 * i64::from(displacement)))
}

/// Decodes the target of a conditional jump of x86-64. The instruction's first byte is the highest or the lowest byte of the opcode number.
fn x86(node: &Bt9Node, is_lowest_first: bool) -> Option<u64> {
    let size = usize::try_from(node.size).ok().filter(|size| (1..=8).contains(size))?;
    let bytes = node.opcode?.to_le_bytes();
    let mut code = bytes[..size].to_vec();
    if bytes[size..].iter().any(|byte| *byte != 0) {
        return None;
    }
    if !is_lowest_first {
        code.reverse();
    }
    match classify_branch(&decode_instruction(&code, node.address).filter(|instruction| instruction.len() == size)?)? {
        BranchInstruction::Conditional(target) => Some(target),
        _ => None,
    }
}
