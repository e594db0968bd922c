//! Finds code to which no known instruction leads, inside the unwind range of a function. Such code follows a trap, which a signal handler
//! may skip, or a call that seems never to return but may do so, or is at a label whose address is taken.
//!
//! These gaps are followed last, and only if everything reachable from them looks like code, because there may be tables between
//! instructions.

use super::{CodeFlow, Exploration, flow_of};
use crate::graph::CallReturns;
use crate::instruction::decode_instruction;
use crate::recover::padding;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

/// Maximum number of instructions that are decoded to decide whether bytes are code.
const MAX_TRIAL_INSTRUCTIONS: usize = 20_000;

impl Exploration<'_, '_> {
    /// Follows the code in gaps. Returns true if this reached new instructions.
    pub fn follow_gaps(&mut self) -> bool {
        let before = self.instructions.len();
        self.follow_code_after_traps();
        self.is_speculative = true;
        for at in self.find_possible_starts() {
            if self.is_gap(at) && self.looks_like_code(at) {
                self.work.push(at);
                self.follow_all_code();
            }
        }
        self.is_speculative = false;
        self.instructions.len() > before
    }

    /// Follows the code after traps, where execution may resume because a signal handler skips the trap.
    fn follow_code_after_traps(&mut self) {
        let stops = self.instructions.transfers().filter(|(_, reached)| reached.flow == CodeFlow::Stop);
        let after: Vec<(u64, u64)> = stops.map(|(at, reached)| (at, at + u64::from(reached.size))).collect();
        for (stop, next) in after {
            let region = self.region_range(self.region_of(stop));
            if region.contains(&next) && self.is_gap(next) && !self.is_only_padding(&(next..region.end)) && self.looks_like_code(next) {
                self.resume_points.insert(next);
                self.work.push(next);
                self.follow_all_code();
            }
        }
    }

    /// Returns the addresses at which code may begin that is not reached: labels whose address is taken and, in functions with unwind
    /// information, the end of padding after an instruction that does not continue with the next one.
    fn find_possible_starts(&self) -> BTreeSet<u64> {
        let mut possible_starts: BTreeSet<u64> = self.labels.iter().copied().collect();
        for (at, reached) in self.instructions.transfers() {
            let next = at + u64::from(reached.size);
            let ends = match reached.flow {
                CodeFlow::Call(_) | CodeFlow::CallIndirect => self.call_returns(at) == CallReturns::Never,
                CodeFlow::Jump(_) | CodeFlow::JumpIndirect | CodeFlow::Return | CodeFlow::Stop => true,
                CodeFlow::Next | CodeFlow::Conditional(_) => false,
            };
            let Some(frame) = self.frames.index_at(at).filter(|_| ends && self.is_gap(next)) else { continue };
            let end = self.frames.frames[frame].end;
            let Some(bytes) = self.bytes(&(next..end)) else { continue };
            let padded = padding::padding_length(bytes, next) as u64;
            if next + padded < end {
                possible_starts.insert(next + padded);
            }
        }
        possible_starts
    }

    fn is_gap(&self, at: u64) -> bool {
        self.code.is_code(at)
            && !self.code.is_stub(at)
            && !self.instructions.contains(at)
            && !self.is_within_instruction(at)
            && !self.data.contains(&at)
    }

    fn bytes(&self, range: &Range<u64>) -> Option<&[u8]> {
        self.code.binary.bytes_at(range.start)?.get(..range.end.checked_sub(range.start)? as usize)
    }

    /// Returns true if a range consists of padding. In code without unwind information, it suffices that the padding at its beginning ends
    /// at an aligned address, where a function may start.
    fn is_only_padding(&self, range: &Range<u64>) -> bool {
        let Some(bytes) = self.bytes(range) else { return true };
        let padded = padding::padding_length(bytes, range.start);
        let end = range.start + padded as u64;
        padded == bytes.len()
            || (padded > 0 && self.frames.index_at(range.start).is_none() && end.is_multiple_of(super::FUNCTION_ALIGNMENT))
    }

    /// Returns true if the bytes at an address decode to plausible code, which must stay in its region until it ends or reaches known
    /// instructions.
    fn looks_like_code(&self, start: u64) -> bool {
        let region = self.region_range(self.region_of(start));
        let mut seen: HashSet<u64> = HashSet::new();
        let mut work = vec![start];
        while let Some(mut at) = work.pop() {
            loop {
                if self.instructions.contains(at) || !seen.insert(at) {
                    break;
                }
                let decoded = self.code.binary.code_at(at).filter(|_| region.contains(&at)).and_then(|bytes| decode_instruction(bytes, at));
                let Some(instruction) = decoded.filter(|i| !super::candidates::is_unlikely(i)) else { return false };
                if seen.len() > MAX_TRIAL_INSTRUCTIONS || self.is_within_instruction(at) || self.data.contains(&at) {
                    return false;
                }
                at = instruction.next_ip();
                match flow_of(&instruction) {
                    CodeFlow::Next | CodeFlow::CallIndirect => {}
                    // A call that never returns may be the last instruction of a region.
                    CodeFlow::Call(to) if self.may_be_called(to) && at == region.end => break,
                    CodeFlow::Call(to) if self.may_be_called(to) => {}
                    CodeFlow::Conditional(to) if region.contains(&to) => work.push(to),
                    CodeFlow::Jump(to) if region.contains(&to) => {
                        work.push(to);
                        break;
                    }
                    CodeFlow::Jump(to) | CodeFlow::Conditional(to) if !self.may_be_called(to) && !self.instructions.contains(to) => {
                        return false;
                    }
                    CodeFlow::Conditional(_) => {}
                    CodeFlow::Call(_) => return false,
                    CodeFlow::Jump(_) | CodeFlow::JumpIndirect | CodeFlow::Return | CodeFlow::Stop => break,
                }
            }
        }
        true
    }

    fn may_be_called(&self, to: u64) -> bool {
        let is_start = || self.frames.index_at(to).is_none_or(|f| self.frames.frames[f].start == to) || self.call_targets.contains(&to);
        self.code.is_stub(to) || (self.code.is_code(to) && is_start() && !self.is_within_instruction(to))
    }
}
