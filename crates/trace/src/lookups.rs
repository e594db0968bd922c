//! Lookups: the code that takes the place of an indirect jump in an instrumented copy of a block, and the table that this code reads. A
//! lookup finds the copy of the block that the jump leads to, so that a program with computed jumps stays in copies and does not stop.
//!
//! ```text
//!        save rax, rcx, rdx           in the thread's ring
//!        mov rcx, TARGET              the operand of the jump
//!        mov gs:[TARGET], rcx
//!        movzx edx, cx                the low 16 bits select an entry
//!        lea rax, [table + 16 * rdx]
//!        mov rdx, [rax]               the negative target of the entry
//!        lea rcx, [rcx + rdx]
//!        jrcxz hit                    the second probe, of the entry after that, is the same
//!        int3                         unknown target: the tracer writes gs:[DESTINATION], and usually an entry
//! missed: jmp go
//! hit:   mov rcx, [rax + 8]
//!        mov gs:[DESTINATION], rcx
//! go:    restore rax, rcx, rdx
//!        push RETURN                  only for a call
//!        jmp gs:[DESTINATION]
//! ```
//!
//! No flags are changed, and nothing but a call's return address is written to the stack. Until the push, or the last jump if there is no
//! push, a thread can be moved back to the jump in the image, since the lookup has had no effect.

use crate::copied_place::CopiedPlace;
use crate::displaced::convert_call_to_jump;
use crate::memory::Memory;
use crate::ring_layout::{LOOKUP_DESTINATION_OFFSET, LOOKUP_TARGET_OFFSET, SAVED_RAX_OFFSET, SAVED_RCX_OFFSET, SAVED_RDX_OFFSET};
use iced_x86::{Code, FlowControl, IcedError, Instruction, MemoryOperand, OpKind, Register};
use std::collections::HashMap;
use std::io;
use std::ops::Range;

/// Size of a table entry in bytes. An entry consists of the negated address of a target and the address at which the target is executed.
const LOOKUP_ENTRY_SIZE: u64 = 16;
/// Number of table entries that a lookup tries.
const MAX_PROBED_TABLE_ENTRIES: u64 = 2;
/// Size of a table in bytes. The pages of entries that are never used take no memory.
pub const TABLE_SIZE: u64 = (1 << 16) * LOOKUP_ENTRY_SIZE + 4096;
/// A key that differs from the negated address of every target in the program. It marks entries that a lookup must not match: those where
/// target 0 would be, because the zeros of an unused entry would match it, and those whose target was removed or is being replaced.
const NO_TARGET_ADDRESS: u64 = 1;

/// Tag bit of labels: addresses by which branches of a sequence refer to other instructions of it. Addresses in programs never have this
/// bit.
pub const LABEL_TAG: u64 = 1 << 63;

/// Returns true if a lookup can take the place of an instruction, which must be a near indirect jump or call.
pub fn is_replaceable(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Jmp_rm64 => true,
        Code::Call_rm64 => convert_call_to_jump(instruction).is_some(),
        _ => false,
    }
}

/// Returns the instructions of a lookup, each with its purpose. `jump` is the jump or call with its address; `first` is the purpose of the
/// first instruction.
pub fn build_lookup(jump: &Instruction, table: u64, first: CopiedPlace) -> Result<Vec<(Instruction, Option<CopiedPlace>)>, IcedError> {
    // Length: one sequence of instructions.
    use Register::{RAX, RCX, RDX, RSP};
    let ring = |offset: u64| MemoryOperand::new(Register::None, Register::None, 1, offset as i64, 8, false, Register::GS);
    let save = |offset: u64, register: Register| Instruction::with2(Code::Mov_rm64_r64, ring(offset), register);
    let load = |register: Register, from: MemoryOperand| Instruction::with2(Code::Mov_r64_rm64, register, from);
    let add = |register: Register, from: MemoryOperand| Instruction::with2(Code::Lea_r64_m, register, from);
    let (hit, go) = (LABEL_TAG, LABEL_TAG | 1);
    let (address, is_recorded) = (jump.ip(), matches!(first, CopiedPlace::Recorded { .. }));
    let place = |saved: bool| Some(CopiedPlace::Lookup { jump: address, saved, is_recorded });
    let mut all = vec![
        (save(SAVED_RAX_OFFSET, RAX)?, Some(first)),
        (save(SAVED_RCX_OFFSET, RCX)?, place(false)),
        (save(SAVED_RDX_OFFSET, RDX)?, place(false)),
        (build_operand_load(jump), place(false)),
        (save(LOOKUP_TARGET_OFFSET, RCX)?, place(true)),
        (Instruction::with2(Code::Movzx_r32_rm16, Register::EDX, Register::CX)?, place(true)),
        (add(RAX, MemoryOperand::with_base_displ(Register::RIP, table as i64))?, place(true)),
        (add(RDX, MemoryOperand::with_base_index(RDX, RDX))?, place(true)),
        (add(RAX, MemoryOperand::with_base_index_scale(RAX, RDX, 8))?, place(true)),
    ];
    for probe in 0..MAX_PROBED_TABLE_ENTRIES {
        if probe > 0 {
            all.push((load(RCX, ring(LOOKUP_TARGET_OFFSET))?, place(true)));
            all.push((add(RAX, MemoryOperand::with_base_displ(RAX, LOOKUP_ENTRY_SIZE as i64))?, place(true)));
        }
        all.push((load(RDX, MemoryOperand::with_base(RAX))?, place(true)));
        all.push((add(RCX, MemoryOperand::with_base_index(RCX, RDX))?, place(true)));
        all.push((Instruction::with_branch(Code::Jrcxz_rel8_64, hit)?, place(true)));
    }
    let at = |label: u64, instruction: Instruction| {
        let mut placed = instruction;
        placed.set_ip(label);
        placed
    };
    all.extend([
        (Instruction::with(Code::Int3), place(true)),
        (Instruction::with_branch(Code::Jmp_rel32_64, go)?, Some(CopiedPlace::Missed { jump: address, is_recorded })),
        (at(hit, load(RCX, MemoryOperand::with_base_displ(RAX, 8))?), place(true)),
        (save(LOOKUP_DESTINATION_OFFSET, RCX)?, place(true)),
        (at(go, load(RAX, ring(SAVED_RAX_OFFSET))?), place(true)),
        (load(RCX, ring(SAVED_RCX_OFFSET))?, place(true)),
        (load(RDX, ring(SAVED_RDX_OFFSET))?, place(true)),
    ]);
    let mut end = place(false);
    if jump.flow_control() == FlowControl::IndirectCall {
        let [push, upper] = build_constant_push(jump.next_ip(), RSP)?;
        all.extend([(push, end.take()), (upper, None)]);
    }
    all.push((Instruction::with1(Code::Jmp_rm64, ring(LOOKUP_DESTINATION_OFFSET))?, end));
    Ok(all)
}

/// Returns two instructions that push a constant of eight bytes.
pub fn build_constant_push(value: u64, stack_pointer: Register) -> Result<[Instruction; 2], IcedError> {
    let upper = MemoryOperand::with_base_displ(stack_pointer, 4);
    Ok([
        Instruction::with1(Code::Pushq_imm32, value as u32 as i32)?,
        Instruction::with2(Code::Mov_rm32_imm32, upper, (value >> 32) as u32)?,
    ])
}

/// Returns the instruction `mov rcx, OPERAND` for the operand of a jump or call.
fn build_operand_load(jump: &Instruction) -> Instruction {
    let mut load = *jump;
    load.set_ip(0);
    load.set_code(Code::Mov_r64_rm64);
    match jump.op0_kind() {
        OpKind::Register => {
            load.set_op1_kind(OpKind::Register);
            load.set_op1_register(jump.op0_register());
        }
        _ => load.set_op1_kind(OpKind::Memory),
    }
    load.set_op0_kind(OpKind::Register);
    load.set_op0_register(Register::RCX);
    load
}

/// The table that the lookups of one area of copies read.
#[derive(Debug)]
pub struct JumpTargetTable {
    start: u64,
    /// The used entries by number: each target, and the address at which it is executed.
    entries: HashMap<u64, (u64, u64)>,
}

impl JumpTargetTable {
    /// Creates a table at address `start`, in memory that is not used yet.
    pub fn new(start: u64, memory: &Memory) -> io::Result<Self> {
        (0..MAX_PROBED_TABLE_ENTRIES)
            .try_for_each(|number| memory.write(start + number * LOOKUP_ENTRY_SIZE, &NO_TARGET_ADDRESS.to_le_bytes()))?;
        Ok(Self { start, entries: HashMap::new() })
    }

    /// Adds an entry. If there is no room for it, it replaces another entry (`may_replace`), or the target stays unknown. With
    /// `may_replace`, no thread may be in a lookup that has found the other entry.
    pub fn add(&mut self, target: u64, destination: u64, may_replace: bool, memory: &Memory) -> io::Result<()> {
        let first = target & 0xffff;
        let is_free = |number: &u64| self.entries.get(number).is_none_or(|entry| entry.0 == target);
        let number = match (first..first + MAX_PROBED_TABLE_ENTRIES).find(is_free) {
            Some(number) => number,
            None if may_replace => first,
            None => return Ok(()),
        };
        let at = self.start + number * LOOKUP_ENTRY_SIZE;
        if self.entries.insert(number, (target, destination)).is_some() {
            memory.write(at, &NO_TARGET_ADDRESS.to_le_bytes())?;
        }
        // A lookup reads the target first, so the target is written last. A partly written negated address differs from that of every other
        // target in the program.
        memory.write(at + 8, &destination.to_le_bytes())?;
        memory.write(at, &target.wrapping_neg().to_le_bytes())
    }

    /// Removes the entries whose target or destination is in one of these ranges. A thread whose lookup has already found such an entry
    /// continues at the target in the image.
    pub fn remove(&mut self, ranges: &[Range<u64>], memory: &Memory) -> io::Result<()> {
        let is_meant = |address: u64| ranges.iter().any(|range| range.contains(&address));
        let gone: Vec<u64> = self.entries.iter().filter(|(_, entry)| is_meant(entry.0) || is_meant(entry.1)).map(|(n, _)| *n).collect();
        for number in gone {
            let Some((target, _)) = self.entries.remove(&number) else { continue };
            memory.write(self.start + number * LOOKUP_ENTRY_SIZE, &NO_TARGET_ADDRESS.to_le_bytes())?;
            memory.write(self.start + number * LOOKUP_ENTRY_SIZE + 8, &target.to_le_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{BlockEncoder, BlockEncoderOptions, Decoder, DecoderOptions, InstructionBlock, InstructionInfoFactory, RflagsBits};

    fn decoded(code: &[u8]) -> Instruction {
        Decoder::with_ip(64, code, 0x40_0000, DecoderOptions::NONE).decode()
    }

    fn lookup(code: &[u8]) -> Vec<Instruction> {
        let place = CopiedPlace::Body { original: 0x40_0000, intact: true };
        let all: Vec<Instruction> = build_lookup(&decoded(code), 0x50_0000, place).unwrap().into_iter().map(|(i, _)| i).collect();
        let block = InstructionBlock::new(&all, 0x48_0000);
        let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).unwrap().code_buffer;
        Decoder::with_ip(64, &encoded, 0x48_0000, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn lookups_change_neither_flags_nor_the_stack() {
        let mut factory = InstructionInfoFactory::new();
        for code in [&[0xff, 0xe0][..], &[0x3e, 0xff, 0x24, 0xc8], &[0xff, 0xd1]] {
            for instruction in lookup(code) {
                assert_eq!(instruction.rflags_modified(), RflagsBits::NONE, "{instruction:?}");
                let used = factory.info(&instruction);
                let uses_stack = used.used_memory().iter().any(|m| m.base() == Register::RSP || m.segment() == Register::SS);
                let is_call = code == [0xff, 0xd1];
                assert!(!uses_stack || is_call, "{instruction:?}");
            }
        }
    }

    #[test]
    fn the_operand_is_loaded_from_the_program_s_registers() {
        // jmp [rax + 8 * rcx + 0x10], jmp rdx, jmp [rip + 0x20]
        let operand = |code: &[u8]| lookup(code)[3];
        let memory = operand(&[0xff, 0x64, 0xc8, 0x10]);
        assert_eq!((memory.op0_register(), memory.memory_base(), memory.memory_index()), (Register::RCX, Register::RAX, Register::RCX));
        assert_eq!((memory.memory_index_scale(), memory.memory_displacement64()), (8, 0x10));
        assert_eq!(operand(&[0xff, 0xe2]).op1_register(), Register::RDX);
        assert_eq!(operand(&[0xff, 0x25, 0x20, 0, 0, 0]).ip_rel_memory_address(), 0x40_0026);
    }

    #[test]
    fn entries_are_written_found_and_removed() {
        let own = Memory::open(std::process::id() as i32).unwrap();
        let space = vec![0_u8; TABLE_SIZE as usize];
        let start = space.as_ptr() as u64;
        let mut table = JumpTargetTable::new(start, &own).unwrap();
        // Searches the table as the instructions of a lookup do.
        let find = |target: u64| {
            let word = |at: u64| own.word(at).unwrap();
            let entry = |probe: u64| start + (target & 0xffff) * LOOKUP_ENTRY_SIZE + probe * LOOKUP_ENTRY_SIZE;
            (0..MAX_PROBED_TABLE_ENTRIES).map(entry).find(|entry| word(*entry).wrapping_add(target) == 0).map(|entry| word(entry + 8))
        };
        assert_eq!(find(0), None);
        for (number, target) in [0x1_0010, 0x2_0010, 0x3_0010].into_iter().enumerate() {
            table.add(target, number as u64 + 100, false, &own).unwrap();
        }
        assert_eq!([0x1_0010, 0x2_0010, 0x3_0010].map(find), [Some(100), Some(101), None]);
        table.add(0x3_0010, 102, true, &own).unwrap();
        assert_eq!([0x1_0010, 0x2_0010, 0x3_0010].map(find), [None, Some(101), Some(102)]);
        table.remove(&[0x2_0000..0x3_0000, 102..103], &own).unwrap();
        assert_eq!([0x1_0010, 0x2_0010, 0x3_0010].map(find), [None; 3]);
        // A lookup that had found an entry reads the destination afterwards.
        assert_eq!([0, 1].map(|probe| own.word(start + (0x10 + probe) * LOOKUP_ENTRY_SIZE + 8).unwrap()), [0x3_0010, 0x2_0010]);
        drop(space);
    }
}
