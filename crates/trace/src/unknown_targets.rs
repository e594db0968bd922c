//! Indirect jumps of a program under trampolines whose targets no lookup has found, or that no lookup can replace.
//!
//! Each target is entered in the table of the jump's image, so that it stops the program only once. The exceptions are blocks that do not
//! record themselves: only the jump shows that they were entered, so each jump to one is recorded. A target may lie in the middle of a
//! patch, where the image's code is gone: that code gets a copy.

use crate::CollectError;
use crate::block_copies::copy_range;
use crate::copied_place::CopiedPlace;
use crate::copy_encoder::BlockCopies;
use crate::images::Images;
use crate::memory::{Memory, do_ranges_overlap};
use crate::ptrace::{self, Tid};
use crate::ring_layout::{LOOKUP_DESTINATION_OFFSET, LOOKUP_TARGET_OFFSET};
use crate::sink::{NO_ADDRESS, Sink, SinkFlow};
use crate::subject::TracedProcess;
use crate::trampolines::{CodePlace, RecordedThread, Trampolines};
use std::io;
use std::ops::Range;
use trodden_binary::instruction::MAX_INSTRUCTION_LENGTH;

/// Number of bytes that are read at a jump's target within a patch, to copy the code there.
const MAX_COPIED_PIECE_BYTES: usize = 64;

/// Returns false if a jump to an address faults.
fn is_canonical(address: u64) -> bool {
    (address as i64) << 16 >> 16 == address as i64
}

impl Trampolines {
    /// Handles the stop of a thread in a lookup that has not found its target.
    pub fn handle_missed_target(
        &mut self,
        subject: &TracedProcess,
        (thread, recorded): (Tid, RecordedThread),
        jump: u64,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        let at = ptrace::instruction_pointer(thread)?;
        let target = self.rings.word(recorded.ring, LOOKUP_TARGET_OFFSET)?;
        let destination = self.find_destination(target, subject, images)?;
        self.rings.set_word(recorded.ring, LOOKUP_DESTINATION_OFFSET, destination)?;
        let always = self.unwatched.contains(&target);
        if !always && let Some(area) = self.areas.iter_mut().find(|area| area.range.contains(&at)) {
            area.targets.add(target, destination, !subject.session.has_several_threads(), &subject.memory)?;
        }
        if self.is_head(destination) {
            return Ok(SinkFlow::Continue);
        }
        let known = if is_canonical(target) { images.in_file(target) } else { NO_ADDRESS };
        let flow = self.record_jump_target((thread, recorded), jump, known, sink)?;
        if always {
            // Step the thread to the target now. Otherwise a signal would move the thread back to the jump, which would be recorded a
            // second time.
            let is_before = |at| matches!(self.place_at(at), CodePlace::Inside | CodePlace::At(CopiedPlace::Lookup { .. }));
            subject.step_to_target(thread, is_before)?;
        }
        Ok(flow)
    }

    /// Handles the stop of a thread before a jump that no lookup can replace: single-steps it.
    pub fn step_jump_to_target(
        &mut self,
        subject: &TracedProcess,
        (thread, recorded): (Tid, RecordedThread),
        jump: u64,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        let to = subject.step_to_target(thread, |at| self.is_copy(at))?;
        let flow = self.record_jump_target((thread, recorded), jump, to.map_or(NO_ADDRESS, |to| images.in_file(to)), sink)?;
        if let Some(to) = to {
            let destination = self.find_destination(to, subject, images)?;
            ptrace::set_instruction_pointer(thread, destination)?;
        }
        Ok(flow)
    }

    /// Records a jump and its target, if the target is uncertain.
    fn record_jump_target(
        &mut self,
        (thread, recorded): (Tid, RecordedThread),
        jump: u64,
        target: u64,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        let Some(number) = self.jumps.get(&jump).copied() else { return Ok(SinkFlow::Continue) };
        self.drain(thread, sink)?;
        sink.record(recorded.number, u64::from(number))?;
        Ok(sink.record(recorded.number, target)?)
    }

    /// Returns the address at which the code at `target` is executed: the head of its copy, if it is a site; a copy made for it, if patches
    /// have overwritten it; or else `target` itself.
    fn find_destination(&mut self, target: u64, subject: &TracedProcess, images: &Images) -> Result<u64, CollectError> {
        let before = self.patches.partition_point(|patch| patch.address <= target);
        let Some(patch) = self.patches[..before].last() else { return Ok(target) };
        let end = patch.address + u64::from(patch.length);
        if patch.address == target {
            return Ok(if !patch.is_relay() && self.is_head(patch.target) { patch.target } else { target });
        }
        if target >= end {
            return Ok(target);
        }
        if let Some(piece) = self.pieces.get(&target) {
            return Ok(piece.start);
        }
        let mut code = subject.memory.read_some(target, MAX_COPIED_PIECE_BYTES);
        subject.session.hide_changes(target, &mut code);
        let areas = images.image_at(target).map(|image| image.area.clone());
        let area = self.areas.iter_mut().find(|area| areas.as_ref().is_some_and(|areas| areas.contains(&area.range.start)));
        let Some(area) = area else { return Ok(target) };
        let BlockCopies { code, places, .. } = copy_range(&[(target, code)], target..end, area.range.end)?;
        if area.range.end + code.len() as u64 > area.end {
            return Err(CollectError::Unexpected { what: "it jumps to too many places that trampolines have replaced".to_owned() });
        }
        subject.memory.write(area.range.end, &code)?;
        let piece = area.range.end..area.range.end + code.len() as u64;
        area.range.end = piece.end;
        places.iter().for_each(|(address, place)| area.places.push(address, place));
        self.pieces.insert(target, piece.clone());
        Ok(piece.start)
    }

    fn is_head(&self, address: u64) -> bool {
        self.is_copy(address) && matches!(self.place_at(address), CodePlace::At(CopiedPlace::Head { saved: false, .. }))
    }

    /// Forgets the copies made for code that the program is about to change.
    pub fn release_copied_pieces(&mut self, range: &Range<u64>, memory: &Memory) -> io::Result<()> {
        // The code that was copied lies within this range.
        let copied = |target: u64| target..target + MAX_COPIED_PIECE_BYTES as u64 + MAX_INSTRUCTION_LENGTH;
        let gone: Vec<(u64, Range<u64>)> =
            self.pieces.iter().filter(|(target, _)| do_ranges_overlap(&copied(**target), range)).map(|(t, p)| (*t, p.clone())).collect();
        if gone.is_empty() {
            return Ok(());
        }
        gone.iter().for_each(|(target, _)| _ = self.pieces.remove(target));
        let pieces: Vec<Range<u64>> = gone.into_iter().map(|(_, piece)| piece).collect();
        self.areas.iter_mut().try_for_each(|area| area.targets.remove(&pieces, memory))?;
        self.released.extend(pieces);
        Ok(())
    }
}
