//! Finds functions that nothing calls directly, at code addresses that occur in data.

use super::{CodeFlow, Exploration, flow_of};
use crate::instruction::decode_instruction;
use crate::recover::code::FileCode;
use crate::recover::imports;
use iced_x86::{Instruction, Mnemonic, Register};
use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;

impl Exploration<'_, '_> {
    /// Follows words in data that look like addresses of functions in code without unwind information. Returns true if new code was
    /// reached. Jump tables must be resolved before, because their entries look the same.
    ///
    /// This is needed only for files that are loaded at a fixed address. In other files, relocations mark the addresses.
    pub fn follow_data_words(&mut self) -> bool {
        let words = self.data_words.take().unwrap_or_else(|| self.find_data_words());
        let before = self.instructions.len();
        for &at in &words {
            let is_new = !self.instructions.contains(at) && !self.is_within_instruction(at);
            if is_new && self.may_start_function(at) && self.looks_like_function(at) {
                self.address_taken.insert(at);
                self.schedule_function(at);
                self.follow_all_code();
            }
        }
        self.add_slow_entries(words.iter().copied());
        self.follow_all_code();
        self.data_words = Some(words);
        self.instructions.len() > before
    }

    /// Returns the words in data that are addresses of code without unwind information. They are empty for files whose addresses are marked
    /// by relocations.
    fn find_data_words(&self) -> BTreeSet<u64> {
        if self.code.binary.is_position_independent() {
            return BTreeSet::new();
        }
        let is_candidate = |to: &u64| self.frames.index_at(*to).is_none() && self.code.is_code(*to) && !self.code.is_stub(*to);
        data_words(self.code).filter(is_candidate).collect()
    }

    /// Adds the slow entries of those of these functions that were reached to the candidates.
    pub(super) fn add_slow_entries(&mut self, functions: impl IntoIterator<Item = u64>) {
        for at in functions.into_iter().filter(|at| self.instructions.contains(*at)).collect::<Vec<_>>() {
            let new = self.find_slow_entry(at).filter(|entry| !self.instructions.contains(*entry));
            self.candidates.extend(new);
        }
    }

    /// Returns the slow entry of a function, if GHC has compiled it and it has one. Only GHC's runtime jumps to slow entries, when it calls
    /// a function with arguments in an unusual combination of registers. The words before the function's code contain the distance to it.
    ///
    /// Source: GHC's `rts/include/rts/storage/InfoTables.h` (`StgFunInfoTable` with tables next to code) and `FunTypes.h`.
    fn find_slow_entry(&self, function: u64) -> Option<u64> {
        const SLOW_ENTRY_OFFSET: u64 = 40;
        const FUNCTION_TYPE_OFFSET: u64 = 24;
        const CLOSURE_TYPE_OFFSET: u64 = 8;
        /// FUN to FUN_STATIC.
        const CLOSURE_TYPES: RangeInclusive<i32> = 8..=14;
        /// ARG_GEN and ARG_GEN_BIG.
        const FUNCTION_TYPES: RangeInclusive<i32> = 0..=1;
        let word = |offset: u64| self.code.i32_at(function.checked_sub(offset)?);
        let is_function =
            CLOSURE_TYPES.contains(&word(CLOSURE_TYPE_OFFSET)?) && FUNCTION_TYPES.contains(&(word(FUNCTION_TYPE_OFFSET)? & 0xffff));
        let entry = function.checked_add_signed(word(SLOW_ENTRY_OFFSET)?.into())?;
        (is_function && self.frames.index_at(entry).is_none() && self.code.is_code(entry)).then_some(entry)
    }

    /// Returns true if a function may start at an address. The address must be a multiple of 8, as in GHC's code, or follow a return, a
    /// jump, padding or the start of the section.
    fn may_start_function(&self, at: u64) -> bool {
        const BYTES_BEFORE_FUNCTION: [u8; 4] = [0xc3, 0x90, 0xcc, 0];
        let byte = |back: u64| self.code.binary.bytes_at(at.wrapping_sub(back)).and_then(|bytes| bytes.first().copied());
        let is_after_jump = || byte(5) == Some(0xe9) || byte(2) == Some(0xeb);
        at.is_multiple_of(8)
            || !self.code.is_code(at.wrapping_sub(1))
            || byte(1).is_some_and(|b| BYTES_BEFORE_FUNCTION.contains(&b))
            || is_after_jump()
    }

    /// Returns true if the bytes at an address decode to plausible code. All its paths must end at returns, traps, or jumps to reached
    /// code.
    pub(super) fn looks_like_function(&self, start: u64) -> bool {
        const MAX_TRIAL_INSTRUCTIONS: usize = 20_000;
        let mut seen: HashSet<u64> = HashSet::new();
        let mut work = vec![start];
        while let Some(mut at) = work.pop() {
            loop {
                if self.instructions.contains(at) || !seen.insert(at) {
                    break;
                }
                let overlaps = self.is_within_instruction(at);
                let decoded =
                    self.code.binary.code_at(at).filter(|_| self.code.is_code(at)).and_then(|bytes| decode_instruction(bytes, at));
                let Some(instruction) = decoded.filter(|i| !overlaps && !is_unlikely(i)) else { return false };
                if seen.len() > MAX_TRIAL_INSTRUCTIONS {
                    return false;
                }
                at = instruction.next_ip();
                match flow_of(&instruction) {
                    CodeFlow::Next | CodeFlow::CallIndirect => {}
                    CodeFlow::Call(to)
                        if self.code.is_stub(to) || self.frames.index_at(to).is_none_or(|f| self.frames.frames[f].start == to) =>
                    {
                        if !self.code.is_code(to) {
                            return false;
                        }
                        let never = self.code.stubs.get(&to).and_then(|s| s.import.as_deref()).is_some_and(imports::never_returns);
                        if never || self.known.never_returning.contains(&to) {
                            break;
                        }
                    }
                    CodeFlow::Call(_) => return false,
                    CodeFlow::Conditional(to) => work.push(to),
                    CodeFlow::Jump(to) => {
                        if !self.code.is_stub(to) {
                            work.push(to);
                        }
                        break;
                    }
                    CodeFlow::JumpIndirect | CodeFlow::Return | CodeFlow::Stop => break,
                }
            }
        }
        true
    }
}

/// Returns the aligned eight-byte words in the data of a file. Older linkers put read-only data into the segment with the code.
pub fn data_words<'a>(code: &FileCode<'a>) -> impl Iterator<Item = u64> {
    code.binary.segments().iter().flat_map(|segment| {
        let bytes = code.binary.bytes_at(segment.address).unwrap_or_default();
        let skip = segment.address.wrapping_neg() & 7;
        let words = bytes.get(skip as usize..).unwrap_or_default().chunks_exact(8);
        let words = (segment.address + skip..).step_by(8).zip(words);
        let is_data = |at: &u64| !segment.is_executable || !code.is_code(*at);
        words.filter(move |(at, _)| is_data(at)).map(|(_, w)| u64::from_le_bytes(w.try_into().unwrap_or_default()))
    })
}

/// Returns true if an instruction hardly occurs in programs, but often results from decoding data.
pub(super) fn is_unlikely(instruction: &Instruction) -> bool {
    use Mnemonic::{Arpl, Cli, In, Insb, Insd, Insw, Iret, Iretd, Iretq, Les, Out, Outsb, Outsd, Outsw, Retf, Sti};
    let zeros = instruction.len() == 2 && instruction.mnemonic() == Mnemonic::Add && instruction.memory_base() == Register::RAX;
    zeros
        || matches!(
            instruction.mnemonic(),
            Arpl | Cli | In | Insb | Insd | Insw | Iret | Iretd | Iretq | Les | Out | Outsb | Outsd | Outsw | Retf | Sti
        )
}
