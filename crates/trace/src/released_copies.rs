//! Releases instrumented copies of code that the program is about to change: nothing leads to these copies any more, and threads in them
//! continue in the image.

use crate::CollectError;
use crate::copied_place::CopiedPlace;
use crate::memory::{Memory, do_ranges_overlap};
use crate::patches::{InstalledPatch, Relay, encode_jump};
use crate::ptrace::{self, Registers, Tid};
use crate::ring_layout::{LOOKUP_DESTINATION_OFFSET, LOOKUP_TARGET_OFFSET};
use crate::subject::TracedProcess;
use crate::trampolines::{CodePlace, INT3, Trampolines};
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use trodden_binary::instruction::{MAX_INSTRUCTION_LENGTH, decode_instruction};

impl Trampolines {
    /// Removes from the image what was written for code in `range`, which the program is about to change. The heads of that code's copies
    /// are made to jump back to the image, since other copies branch to them. All threads must be stopped;
    /// [`Trampolines::move_out_of_released_code`] moves those in such a copy.
    pub fn release(&mut self, range: &Range<u64>, subject: &TracedProcess) -> io::Result<()> {
        self.release_copied_pieces(range, &subject.memory)?;
        let known = self.released.iter().map(|copy| copy.start).chain(self.areas.iter().map(|area| area.range.end));
        let known = known.chain(self.pieces.values().map(|piece| piece.start));
        let mut ends: Vec<u64> = self.patches.iter().map(|patch| patch.target).chain(known).collect();
        ends.sort_unstable();
        let copy = |patch: &InstalledPatch| patch.target..ends[ends.partition_point(|end| *end <= patch.target)];
        let is_touched = |patch: &InstalledPatch| {
            let written = patch.address..patch.address + u64::from(patch.length);
            let mut originals = self.places_in(copy(patch)).filter_map(|(_, place)| self.image_address(&place));
            do_ranges_overlap(&written, range) || originals.any(|at| is_instruction_in(at, range, subject))
        };
        let touched: HashSet<u64> = self.patches.iter().filter(|patch| is_touched(patch)).map(|patch| patch.address).collect();
        // A site that loses its relay gets a breakpoint instead.
        let is_broken = |relay: &Relay| [relay.site, relay.address, relay.host].iter().any(|address| touched.contains(address));
        let is_gone = |patch: &InstalledPatch| {
            touched.contains(&patch.address) || (patch.is_relay() && patch.relay.as_deref().is_some_and(is_broken))
        };
        let loses_relay = |patch: &InstalledPatch| !is_gone(patch) && patch.relay.as_deref().is_some_and(is_broken);
        let is_head = |patch: &InstalledPatch| matches!(self.places_in(copy(patch)).next(), Some((_, CopiedPlace::Head { .. })));
        let (mut original, mut heads, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for patch in &self.patches {
            if loses_relay(patch) {
                original.push((patch.address, [INT3, patch.original_bytes[1]].to_vec()));
            } else if is_gone(patch) {
                original.push((patch.address, patch.original_bytes[..usize::from(patch.length)].to_vec()));
                if !patch.is_relay() {
                    heads.extend(is_head(patch).then(|| (patch.target, encode_jump(patch.target, patch.address))));
                    copies.push(copy(patch));
                }
            }
        }
        heads.sort_unstable();
        let original: Vec<(u64, &[u8])> = original.iter().map(|(address, bytes)| (*address, bytes.as_slice())).collect();
        subject.memory.patch(&original)?;
        // Copies are in memory that the collector has mapped, so the journal need not record changes to them.
        let heads: Vec<(u64, &[u8])> = heads.iter().map(|(address, bytes)| (*address, bytes.as_slice())).collect();
        Memory::open(subject.process)?.patch(&heads)?;
        let addresses_of = |is_one: &dyn Fn(&InstalledPatch) -> bool| -> HashSet<u64> {
            self.patches.iter().filter(|patch| is_one(patch)).map(|patch| patch.address).collect()
        };
        let (gone, without_relay) = (addresses_of(&is_gone), addresses_of(&loses_relay));
        self.released.extend(copies);
        self.remove_released(&gone, &without_relay)
    }

    /// Forgets the patches at the addresses `gone`, and notes the breakpoints at those of sites that have lost their relays.
    fn remove_released(&mut self, gone: &HashSet<u64>, without_relay: &HashSet<u64>) -> io::Result<()> {
        let (gone, left): (Vec<InstalledPatch>, Vec<InstalledPatch>) =
            std::mem::take(&mut self.patches).into_iter().partition(|patch| gone.contains(&patch.address));
        self.patches = left;
        for patch in self.patches.iter_mut().filter(|patch| without_relay.contains(&patch.address)) {
            patch.new_bytes[..2].copy_from_slice(&[INT3, patch.original_bytes[1]]);
            (patch.length, patch.relay) = (1, None);
            self.traps.insert(patch.address, patch.target);
        }
        for patch in &gone {
            self.traps.remove(&patch.address);
            self.relays.remove(&patch.address);
            if let Some(relay) = patch.relay.as_deref().filter(|_| patch.is_relay()) {
                relay.move_threads_to_site(self.threads.keys())?;
            }
        }
        Ok(())
    }

    /// Moves a stopped thread from a copy of released code to the image. `step` single-steps the thread, and returns false if it cannot.
    pub fn move_out_of_released_code(&self, thread: Tid, step: &dyn Fn() -> Result<bool, CollectError>) -> Result<(), CollectError> {
        self.redirect_lookup(thread)?;
        loop {
            let registers = ptrace::read_registers(thread)?;
            if !self.is_released(registers.rip) {
                return Ok(());
            }
            return match self.place_at(registers.rip) {
                CodePlace::At(place) => Ok(ptrace::write_registers(thread, &self.registers_in_image(thread, &place, &registers)?)?),
                CodePlace::Inside if step()? => continue,
                CodePlace::Inside | CodePlace::Outside => Ok(()),
            };
        }
    }

    /// If a stopped thread's lookup has found a copy of released code, lets it continue at the target in the image instead.
    fn redirect_lookup(&self, thread: Tid) -> Result<(), CollectError> {
        let Some(ring) = self.threads.get(&thread).map(|recorded| recorded.ring) else { return Ok(()) };
        let target = self.rings.word(ring, LOOKUP_TARGET_OFFSET)?;
        if self.is_released(self.rings.word(ring, LOOKUP_DESTINATION_OFFSET)?) {
            self.rings.set_word(ring, LOOKUP_DESTINATION_OFFSET, target)?;
        }
        // The destination is in `rcx` before it is in the ring.
        let registers = ptrace::read_registers(thread)?;
        let is_in_lookup = matches!(self.place_at(registers.rip), CodePlace::At(CopiedPlace::Lookup { saved: true, .. }));
        if is_in_lookup && self.is_released(registers.rcx) {
            ptrace::write_registers(thread, &Registers { rcx: target, ..registers })?;
        }
        Ok(())
    }

    pub fn is_released(&self, address: u64) -> bool {
        self.released.iter().any(|copy| copy.contains(&address))
    }

    /// Returns address and purpose of each instruction in one copy.
    fn places_in(&self, copy: Range<u64>) -> impl Iterator<Item = (u64, CopiedPlace)> {
        self.places_around(copy.start).into_iter().flat_map(move |places| places.within(&copy))
    }

    /// Returns the image address of the instruction that is executed at a place; `None` in a head, which has no counterpart in the image.
    fn image_address(&self, place: &CopiedPlace) -> Option<u64> {
        match place {
            CopiedPlace::Head { .. } => None,
            _ => Some(self.original_address(place)),
        }
    }
}

/// Returns true if the instruction at an image address has bytes in `range`.
fn is_instruction_in(at: u64, range: &Range<u64>, subject: &TracedProcess) -> bool {
    if at >= range.start || at + MAX_INSTRUCTION_LENGTH <= range.start {
        return range.contains(&at);
    }
    let mut code = subject.memory.read_some(at, MAX_INSTRUCTION_LENGTH as usize);
    subject.session.hide_changes(at, &mut code);
    decode_instruction(&code, at).is_some_and(|instruction| instruction.next_ip() > range.start)
}
