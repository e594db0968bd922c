//! Finds code to which no known instruction leads, inside the unwind range of a function. Such code follows a trap, which a signal handler
//! may skip, or a call that seems never to return but may do so, or is at a label whose address is taken.
//!
//! These gaps are followed last, and only if everything reachable from them looks like code, because there may be tables between
//! instructions.

use super::{CodeFlow, Exploration, flow_of};
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
        self.new_jumps.clear();
        self.follow_code_after_traps();
        self.is_speculative = true;
        let mut starts = self.take_new_gap_starts();
        // Labels, and starts that did not look like code before, may do so now that more code is known.
        starts.extend(&self.gap_starts);
        starts.extend(&self.labels);
        while !starts.is_empty() {
            for at in starts {
                if self.is_gap(at) && self.looks_like_code(at) {
                    self.work.push(at);
                    self.follow_all_code();
                }
            }
            // The code in one gap often leads to the next. The exception is code to which an indirect jump may lead: that jump is resolved
            // first.
            starts = self.take_new_gap_starts();
            starts.retain(|at| !self.is_beside_new_jump(*at));
        }
        self.is_speculative = false;
        self.instructions.len() > before
    }

    /// Follows the code after traps, where execution may resume because a signal handler skips the trap.
    fn follow_code_after_traps(&mut self) {
        let stops: Vec<u64> = self.stops.iter().copied().collect();
        for stop in stops {
            let region = self.region_range(self.region_of(stop));
            let Some(reached) = self.instructions.get(stop) else { continue };
            let next = stop + u64::from(reached.size);
            if region.contains(&next) && self.is_gap(next) && !self.is_only_padding(&(next..region.end)) && self.looks_like_code(next) {
                self.resume_points.insert(next);
                self.work.push(next);
                self.follow_all_code();
            }
        }
    }

    /// Returns the addresses after instructions that were reached since the last call, and after which control does not continue, if these
    /// addresses are in gaps of functions with unwind information. Skips padding. Adds the addresses to [`Exploration::gap_starts`].
    fn take_new_gap_starts(&mut self) -> BTreeSet<u64> {
        let ends = std::mem::take(&mut self.ends);
        let starts: BTreeSet<u64> = ends.into_iter().filter_map(|end| self.find_gap_start(end)).collect();
        self.gap_starts.retain(|at| !self.instructions.contains(*at));
        self.gap_starts.extend(&starts);
        starts
    }

    /// Returns true if the function at an address contains one of [`Exploration::new_jumps`].
    fn is_beside_new_jump(&self, at: u64) -> bool {
        let frame = self.frames.index_at(at).map(|frame| &self.frames.frames[frame]);
        frame.is_some_and(|frame| self.new_jumps.range(frame.start..frame.end).next().is_some())
    }

    fn find_gap_start(&self, end: u64) -> Option<u64> {
        let next = end + u64::from(self.instructions.get(end)?.size);
        let frame = self.frames.index_at(end).filter(|_| self.is_gap(next))?;
        let frame_end = self.frames.frames[frame].end;
        let start = next + padding::padding_length(self.bytes(&(next..frame_end))?, next) as u64;
        (start < frame_end).then_some(start)
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
