//! Order stamps: readings of the processor's time-stamp counter, which put the calls that threads make to code outside the trace, and
//! their returns, into a common order.
//!
//! Copies of blocks take a stamp before a system call or a call that leaves the traced code, and after such a call has returned to a copy.
//! A stamp takes three symbols of the thread's ring: a marker and the two halves of the counter.
//!
//! ```text
//!        save rax, rcx, rdx           in the thread's ring
//!        mov rcx, gs:[TAKES_STAMPS]   zero while the program has one thread
//!        jrcxz end
//!        jmp retry
//! full:  int3                         no room: the tracer drains the ring
//! retry: mov rcx, gs:[CURSOR]
//!        jrcxz full
//!        lea rcx, [rcx + 4]
//!        jrcxz full
//!        lea rcx, [rcx + 4]
//!        jrcxz full
//!        mov dword gs:[rcx + END - 8], MARKER
//!        rdtsc
//!        mov gs:[rcx + END - 4], eax
//!        mov gs:[rcx + END], edx
//!        lea rcx, [rcx + 4]
//!        mov gs:[CURSOR], rcx
//! end:   restore rax, rcx, rdx
//! ```
//!
//! No flags are changed, and nothing is written to the stack. A thread that stops in this code can go on after it: the stamp is then
//! missing, which makes the order less precise but not wrong.

use crate::copied_place::CopiedPlace;
use crate::lookups::LABEL_TAG;
use crate::ring_layout::{
    RING_CURSOR_OFFSET, RING_SIZE, RING_SYMBOLS_OFFSET, SAVED_RAX_OFFSET, SAVED_RCX_OFFSET, SAVED_RDX_OFFSET, TAKES_STAMPS_OFFSET,
};
use crate::sink::{OrderStamp, Sink, SinkFlow, StampPosition, ThreadNumber};
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};
use std::io;

/// Whether the threads of a program take stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampState {
    /// The program has had only one thread so far, which needs no order.
    NotYet,
    /// All threads take stamps.
    Taken,
    /// They did until the program forbade itself to read the time-stamp counter.
    Ended,
    /// The copies of blocks cannot take stamps.
    Unsupported,
}

/// The symbols that mark stamps. No site has such a number.
const BLOCK_START_MARKER: u32 = u32::MAX;
const IN_BLOCK_MARKER: u32 = u32::MAX - 1;
/// Number of symbols that a stamp takes.
const STAMP_SYMBOLS: usize = 3;

/// Length in bytes of the last instruction of a stamp.
pub const LAST_INSTRUCTION_LENGTH: u64 = 9;

const FULL_LABEL: u64 = LABEL_TAG;
const RETRY_LABEL: u64 = LABEL_TAG | 1;
const END_LABEL: u64 = LABEL_TAG | 2;

/// Returns the instructions that take a stamp, each with its purpose. `original` is the image address of the instruction that follows.
pub fn build_order_stamp(position: StampPosition, original: u64) -> Result<Vec<(Instruction, Option<CopiedPlace>)>, IcedError> {
    use Register::{RAX, RCX, RDX};
    let marker = match position {
        StampPosition::BlockStart => BLOCK_START_MARKER,
        StampPosition::InBlock => IN_BLOCK_MARKER,
    };
    let mut all = vec![
        store(SAVED_RAX_OFFSET, RAX)?,
        store(SAVED_RCX_OFFSET, RCX)?,
        store(SAVED_RDX_OFFSET, RDX)?,
        load(RCX, TAKES_STAMPS_OFFSET)?,
        Instruction::with_branch(Code::Jrcxz_rel8_64, END_LABEL)?,
    ];
    let first_saved = 3;
    all.extend(build_reading(marker)?);
    all.extend([with_label(END_LABEL, load(RAX, SAVED_RAX_OFFSET)?), load(RDX, SAVED_RDX_OFFSET)?, load(RCX, SAVED_RCX_OFFSET)?]);
    let place = |number: usize| Some(CopiedPlace::Stamp { original, saved: number >= first_saved });
    Ok(all.into_iter().enumerate().map(|(number, instruction)| (instruction, place(number))).collect())
}

/// Returns the instructions that read the counter and append the symbols of a stamp to the ring. They overwrite three registers.
fn build_reading(marker: u32) -> Result<Vec<Instruction>, IcedError> {
    use Register::{EAX, EDX, RCX};
    // `rcx` is the cursor of the stamp's last symbol.
    let symbol = |before_last: i64| {
        let end = (RING_SYMBOLS_OFFSET + RING_SIZE) as i64 - 4 * before_last;
        MemoryOperand::new(RCX, Register::None, 1, end, 8, false, Register::GS)
    };
    let advance = || Instruction::with2(Code::Lea_r64_m, RCX, MemoryOperand::with_base_displ(RCX, 4));
    let jump_if_full = || Instruction::with_branch(Code::Jrcxz_rel8_64, FULL_LABEL);
    Ok(vec![
        Instruction::with_branch(Code::Jmp_rel8_64, RETRY_LABEL)?,
        with_label(FULL_LABEL, Instruction::with(Code::Int3)),
        with_label(RETRY_LABEL, load(RCX, RING_CURSOR_OFFSET)?),
        jump_if_full()?,
        advance()?,
        jump_if_full()?,
        advance()?,
        jump_if_full()?,
        Instruction::with2(Code::Mov_rm32_imm32, symbol(2), marker)?,
        Instruction::with(Code::Rdtsc),
        Instruction::with2(Code::Mov_rm32_r32, symbol(1), EAX)?,
        Instruction::with2(Code::Mov_rm32_r32, symbol(0), EDX)?,
        advance()?,
        store(RING_CURSOR_OFFSET, RCX)?,
    ])
}

/// Returns the operand for a word at the start of the ring.
fn ring_word(offset: u64) -> MemoryOperand {
    MemoryOperand::new(Register::None, Register::None, 1, offset as i64, 8, false, Register::GS)
}

fn store(offset: u64, register: Register) -> Result<Instruction, IcedError> {
    Instruction::with2(Code::Mov_rm64_r64, ring_word(offset), register)
}

fn load(register: Register, offset: u64) -> Result<Instruction, IcedError> {
    Instruction::with2(Code::Mov_r64_rm64, register, ring_word(offset))
}

fn with_label(label: u64, instruction: Instruction) -> Instruction {
    let mut labelled = instruction;
    labelled.set_ip(label);
    labelled
}

/// Reads the time-stamp counter.
pub fn read_time_stamp_counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and the tracer never disables it for itself.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Records the symbols of a ring, in which stamps are among the sites.
pub fn record_sites_and_stamps(thread: ThreadNumber, symbols: &[u32], sink: &mut dyn Sink) -> io::Result<SinkFlow> {
    let mut rest = symbols;
    while let Some(index) = rest.iter().position(|symbol| *symbol >= IN_BLOCK_MARKER) {
        let [marker, low, high, ..] = rest[index..] else { break };
        if sink.record_sites(thread, &rest[..index])? == SinkFlow::Stop {
            return Ok(SinkFlow::Stop);
        }
        let position = if marker == BLOCK_START_MARKER { StampPosition::BlockStart } else { StampPosition::InBlock };
        sink.record_stamp(thread, OrderStamp { ticks: u64::from(high) << 32 | u64::from(low), position });
        rest = &rest[index + STAMP_SYMBOLS..];
    }
    sink.record_sites(thread, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Encoder, InstructionInfoFactory, RflagsBits};

    #[derive(Default)]
    struct RecordedSymbols(Vec<Result<u64, OrderStamp>>);

    impl Sink for RecordedSymbols {
        fn record(&mut self, _: ThreadNumber, what: u64) -> io::Result<SinkFlow> {
            self.0.push(Ok(what));
            Ok(SinkFlow::Continue)
        }

        fn record_stamp(&mut self, _: ThreadNumber, stamp: OrderStamp) {
            self.0.push(Err(stamp));
        }
    }

    #[test]
    fn stamps_are_found_among_sites() {
        let symbols = [7, IN_BLOCK_MARKER, u32::MAX, 2, BLOCK_START_MARKER, 0, 1, 8, 9];
        let mut sink = RecordedSymbols::default();
        record_sites_and_stamps(ThreadNumber(0), &symbols, &mut sink).unwrap();
        let first = OrderStamp { ticks: (2 << 32) + u64::from(u32::MAX), position: StampPosition::InBlock };
        let second = OrderStamp { ticks: 1 << 32, position: StampPosition::BlockStart };
        assert_eq!(sink.0, [Ok(7), Err(first), Err(second), Ok(8), Ok(9)]);
    }

    #[test]
    fn length_of_last_instruction_is_known() {
        let stamp = build_order_stamp(StampPosition::InBlock, 0x1000).unwrap();
        let length = Encoder::new(64).encode(&stamp.last().unwrap().0, 0).unwrap();
        assert_eq!(length as u64, LAST_INSTRUCTION_LENGTH);
    }

    #[test]
    fn stamps_change_no_flags_and_not_the_stack() {
        let mut factory = InstructionInfoFactory::new();
        for (instruction, _) in build_order_stamp(StampPosition::InBlock, 0x1000).unwrap() {
            assert_eq!(instruction.rflags_modified(), RflagsBits::NONE, "{instruction}");
            let uses_stack = factory.info(&instruction).used_registers().iter().any(|used| used.register() == Register::RSP);
            assert!(!uses_stack || instruction.code() == Code::Int3, "{instruction}");
        }
    }
}
