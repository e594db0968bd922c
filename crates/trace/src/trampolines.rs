//! Trampolines: jumps in the image (an executable or library in memory) that lead to instrumented copies of its blocks, which record
//! themselves in a ring buffer. A hit does not enter the kernel; a thread stops only when its ring is full, at sites that cannot be
//! replaced by a jump, and when an indirect jump leads to a target for the first time.
//!
//! [`block_copies`](crate::block_copies) creates the copies, [`rings`](crate::rings) are what they write to, and
//! [`unknown_targets`](crate::unknown_targets) handles jumps to unknown targets; [`released_copies`](crate::released_copies) is about code
//! that the program changes. This file installs the copies, and knows at any stop where in the image a thread is, so that a program's
//! signal handlers see addresses of the image.
//!
//! Invariants: a block is recorded once each time its first instruction starts to execute; the stream of a thread has its hits in order,
//! whether a copy or the tracer recorded them; a `fork` child leaves the copies and writes to no ring.

use crate::CollectError;
use crate::block_copies::{CopyRequest, copy_blocks};
use crate::copied_place::{CopiedPlace, CopiedPlaces};
use crate::copy_encoder::{BlockCopies, SitePatch};
use crate::images::{Image, Images, sites_of};
use crate::lookups::{JumpTargetTable, TABLE_SIZE};
use crate::memory::Memory;
use crate::order_stamps::{StampState, record_sites_and_stamps};
use crate::patches::{InstalledPatch, Relay, encode_jump, encode_short_jump, write_patches};
use crate::ptrace::{self, Registers, Tid};
use crate::ring_layout::{SAVED_RAX_OFFSET, SAVED_RCX_OFFSET, SAVED_RDX_OFFSET};
use crate::rings::{RingBufferIndex, RingBuffers, code_bytes, thread_positions};
use crate::run::TraceRun;
use crate::sink::{Sink, SinkFlow, ThreadNumber};
use crate::sleds;
use crate::subject::{Executable, TracedProcess};
use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;
use trodden_binary::linked::split_address;

/// Offset of the first copy in the area. The system call stub and its arguments precede it.
const FIRST_COPY_OFFSET: u64 = 4096;
/// Offset, in the area, of the buffer for the path of the rings' file.
const PATH_BUFFER_OFFSET: u64 = 256;
const TRAP_FLAG: u64 = 0x100;
/// `si_code` of a trap caused by the trap flag (TRAP_TRACE).
const TRAP_TRACE: i32 = 2;
/// `si_code` of a trap caused by `int3` (SI_KERNEL).
const SI_KERNEL: i32 = 0x80;
/// Maximum number of single steps that take a thread out of a copy. At most 25 bytes of a block are replaced.
const MAX_STEPS_OUT_OF_COPY: usize = 32;
/// A head and the order stamps between it and its block have fewer bytes.
const MAX_BYTES_BEFORE_BLOCK: u64 = 1024;
pub const INT3: u8 = 0xcc;

/// The copies of one image.
#[derive(Debug)]
pub struct TrampolineCopyArea {
    /// The address range of the copies.
    pub range: Range<u64>,
    /// The end of the memory that is available for copies.
    pub end: u64,
    pub places: CopiedPlaces,
    /// The known targets of the image's indirect jumps.
    pub targets: JumpTargetTable,
}

#[derive(Debug)]
pub struct Trampolines {
    pub areas: Vec<TrampolineCopyArea>,
    /// Site addresses by site number. If the site's sled is used, the address is the sled's; 0 if its library is not mapped.
    pub sites: Vec<u64>,
    /// The installed patches, sorted by address.
    pub patches: Vec<InstalledPatch>,
    /// For each breakpoint in an image, the address at which threads resume.
    pub traps: HashMap<u64, u64>,
    /// For each address of a relay, the number of its site.
    pub relays: HashMap<u64, u32>,
    /// Site numbers of the indirect jumps and calls whose targets are recorded, by address.
    pub jumps: HashMap<u64, u32>,
    /// Starts of blocks that do not record themselves.
    pub unwatched: HashSet<u64>,
    /// Copies of code that a patch has overwritten and to which a jump has led, by the jump's target.
    pub pieces: HashMap<u64, Range<u64>>,
    pub rings: RingBuffers,
    pub threads: HashMap<Tid, RecordedThread>,
    pub stamps: StampState,
    /// True if sleds are used where blocks have them.
    uses_sleds: bool,
    /// Copies of code that the program has changed. Nothing leads to them any more.
    pub released: Vec<Range<u64>>,
}

#[derive(Clone, Copy, Debug)]
pub struct RecordedThread {
    pub ring: RingBufferIndex,
    pub number: ThreadNumber,
    /// If the program itself has set the thread's trap flag: the address of the instruction before which it last trapped.
    last_step: Option<u64>,
}

/// Where a stopped thread is, relative to the copies.
pub enum CodePlace {
    /// Not in a copy.
    Outside,
    /// At an instruction of a copy.
    At(CopiedPlace),
    /// In the middle of the code that replaces one instruction.
    Inside,
}

impl Trampolines {
    /// Installs the rings, and the copies and patches of the program's own image.
    ///
    /// # Errors
    /// An address is not code of the image, its instruction cannot be moved, or there are too many sites.
    pub fn install(subject: &TracedProcess, run: &TraceRun, uses_sleds: bool) -> Result<Self, CollectError> {
        let rings = RingBuffers::map(subject, subject.area + PATH_BUFFER_OFFSET, subject.area)?;
        let mut set = Self {
            areas: Vec::new(),
            sites: vec![0; run.sites.len()],
            patches: Vec::new(),
            traps: HashMap::new(),
            relays: HashMap::new(),
            jumps: HashMap::new(),
            unwatched: HashSet::new(),
            pieces: HashMap::new(),
            rings,
            threads: HashMap::new(),
            // Blocks with sleds are not copied, so their calls take no stamps.
            stamps: if uses_sleds { StampState::Unsupported } else { StampState::NotYet },
            uses_sleds,
            released: Vec::new(),
        };
        set.add(subject, run, run.executable, 0)?;
        Ok(set)
    }

    /// Installs the copies and patches of one file.
    pub fn add(&mut self, subject: &TracedProcess, run: &TraceRun, executable: &Executable, file: usize) -> Result<(), CollectError> {
        let in_memory = |address: u64| address.wrapping_add(subject.bias);
        let sites = sites_of(file, run.sites);
        if let Some((_, address)) = sites.iter().find(|(_, site)| !executable.is_code(*site)) {
            return Err(CollectError::NoCode { address: *address, path: executable.path.clone() });
        }
        let range_in_memory = |range: &Range<u64>| in_memory(range.start)..in_memory(range.end);
        let of_file = |all: &mut dyn Iterator<Item = &u64>| all.filter(|a| split_address(**a).0 == file).map(|a| in_memory(*a)).collect();
        let (jumps, guarded): (HashSet<u64>, HashSet<u64>) = (of_file(&mut run.jumps.iter()), of_file(&mut run.guarded.iter()));
        self.unwatched.extend(of_file(&mut run.unwatched.iter()));
        let code = code_bytes(&subject.memory, &executable.code.iter().map(range_in_memory).collect::<Vec<_>>())?;
        let blocks: Vec<_> = run.blocks.iter().filter(|block| split_address(block.start).0 == file).map(range_in_memory).collect();
        let sleds = if self.uses_sleds { sleds::find_sleds_in_blocks(&code, &blocks) } else { HashMap::new() };
        let site_count = sites.len();
        let sites = sites.into_iter().map(|(number, site)| (number, in_memory(site)));
        let by_address = self.number_recorded_sites(sites, &jumps, &sleds);
        let (sleds, thread_positions) = (sleds.values().copied().collect(), thread_positions(subject.process));
        let table = subject.injected_area().end - TABLE_SIZE;
        let request = CopyRequest {
            code: &code,
            blocks: &blocks,
            sites: &by_address,
            jumps: &jumps,
            guarded: &guarded,
            sleds: &sleds,
            thread_positions: &thread_positions,
            table,
        };
        let first = subject.area + FIRST_COPY_OFFSET;
        let BlockCopies { code: copies, places, patches } = copy_blocks(&request, first)?;
        let range = first..first + copies.len() as u64;
        if range.end > table {
            let max = site_count * (table - first) as usize / copies.len();
            return Err(CollectError::TooManySites { sites: site_count, max });
        }
        subject.memory.write(first, &copies)?;
        drop(copies);
        by_address.iter().for_each(|(address, number)| self.sites[*number as usize] = *address);
        let patches = self.prepare_patches(&patches, &by_address, &code, subject);
        let targets = JumpTargetTable::new(table, &subject.memory)?;
        self.areas.push(TrampolineCopyArea { range, end: table, places, targets });
        self.write_new_patches(patches, &subject.memory)
    }

    /// Returns the numbers of the sites that record themselves, by address, and notes those of `jumps`. `sites` are numbers and addresses.
    fn number_recorded_sites(
        &mut self,
        sites: impl Iterator<Item = (u32, u64)>,
        jumps: &HashSet<u64>,
        sleds: &HashMap<u64, u64>,
    ) -> HashMap<u64, u32> {
        let mut by_address: HashMap<u64, u32> = HashMap::with_capacity(sites.size_hint().0);
        for (number, at) in sites {
            // If the site is both a jump and the start of a block, its first number is that of the block.
            let block = if jumps.contains(&at) { self.jumps.insert(at, number) } else { Some(number) };
            block.into_iter().for_each(|block| _ = by_address.insert(sleds.get(&at).copied().unwrap_or(at), block));
        }
        by_address
    }

    fn write_new_patches(&mut self, patches: Vec<InstalledPatch>, memory: &Memory) -> Result<(), CollectError> {
        write_patches(&patches, memory, |patch| &patch.new_bytes)?;
        match self.patches.is_empty() {
            true => self.patches = patches,
            false => self.patches.extend(patches),
        }
        self.patches.sort_unstable_by_key(|patch| patch.address);
        Ok(())
    }

    /// Forgets the copies and patches of a library that is no longer mapped.
    pub fn forget(&mut self, image: &Image, memory: &Memory) {
        let is_gone = |address: u64| image.code.iter().any(|code| code.contains(&address));
        let copies = &image.area;
        self.areas.retain(|area| !copies.contains(&area.range.start));
        self.released.retain(|copy| !copies.contains(&copy.start));
        // Ignore an error: the process is gone.
        let _ = self.areas.iter_mut().try_for_each(|area| area.targets.remove(&image.code, memory));
        self.patches.retain(|patch| !is_gone(patch.address));
        self.traps.retain(|address, _| !is_gone(*address));
        self.relays.retain(|address, _| !is_gone(*address));
        self.jumps.retain(|address, _| !is_gone(*address));
        self.unwatched.retain(|address| !is_gone(*address));
        self.pieces.retain(|address, _| !is_gone(*address));
    }

    /// Prepares patches for writing, and notes the breakpoints and relays among them. `code` is the image's code, ascending.
    fn prepare_patches(
        &mut self,
        patches: &[(u64, SitePatch)],
        numbers: &HashMap<u64, u32>,
        code: &[(u64, Vec<u8>)],
        subject: &TracedProcess,
    ) -> Vec<InstalledPatch> {
        let mut all = Vec::with_capacity(patches.len());
        let mut add = |address: u64, target: u64, new: &[u8], relay: Option<Relay>| {
            let original_bytes = original_bytes_at(address, code).unwrap_or_else(|| {
                let mut original_bytes = [0; 5];
                let read = subject.memory.read_some(address, 5);
                original_bytes[..read.len()].copy_from_slice(&read);
                original_bytes
            });
            let mut new_bytes = original_bytes;
            new_bytes[..new.len()].copy_from_slice(new);
            all.push(InstalledPatch { address, original_bytes, new_bytes, length: new.len() as u8, target, relay: relay.map(Box::new) });
        };
        for (address, patch) in patches {
            let address = *address;
            match *patch {
                SitePatch::Jump(to) => add(address, to, &encode_jump(address, to), None),
                SitePatch::ShortJump { to, relay, host } => {
                    let found = Some(Relay { site: address, address: relay, host });
                    add(address, to, &encode_short_jump(address, relay), found);
                    add(relay, to, &encode_jump(relay, to), found);
                    self.relays.insert(relay, numbers[&address]);
                }
                SitePatch::Breakpoint(to) => {
                    add(address, to, &[INT3], None);
                    self.traps.insert(address, to);
                }
            }
        }
        all.sort_unstable_by_key(|patch| patch.address);
        all
    }

    /// Returns the address range of the rings.
    pub fn span(&self) -> Range<u64> {
        self.rings.span()
    }

    /// Assigns a ring to a stopped thread.
    ///
    /// # Errors
    /// The thread is gone, or all rings are in use.
    pub fn begin_thread(&mut self, thread: Tid, number: ThreadNumber, sink: &mut dyn Sink) -> Result<(), CollectError> {
        let ring = self.rings.acquire()?;
        let registers = ptrace::read_registers(thread)?;
        ptrace::write_registers(thread, &Registers { gs_base: self.rings.address(ring), ..registers })?;
        self.threads.insert(thread, RecordedThread { ring, number, last_step: None });
        Ok(self.begin_stamps_of_thread(ring, number, sink)?)
    }

    /// Records what is left in the ring of a thread that is gone.
    pub fn end_thread(&mut self, thread: Tid, sink: &mut dyn Sink) -> io::Result<()> {
        self.drain(thread, sink)?;
        if let Some(ended) = self.threads.remove(&thread) {
            self.rings.release(ended.ring);
        }
        Ok(())
    }

    pub fn end_all(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        let threads: Vec<Tid> = self.threads.keys().copied().collect();
        threads.into_iter().try_for_each(|thread| self.end_thread(thread, sink))
    }

    /// Records the contents of a stopped thread's ring.
    pub fn drain(&mut self, thread: Tid, sink: &mut dyn Sink) -> io::Result<SinkFlow> {
        let Some(recorded) = self.threads.get(&thread) else { return Ok(SinkFlow::Continue) };
        let (number, symbols) = (recorded.number, self.rings.take_symbols(recorded.ring)?);
        match self.stamps {
            StampState::NotYet | StampState::Unsupported => sink.record_sites(number, symbols),
            StampState::Taken | StampState::Ended => record_sites_and_stamps(number, symbols, sink),
        }
    }

    /// Handles a SIGTRAP of a thread. Returns `None` if the trap is the program's own. `is_merged` means that the trap may also stand for a
    /// signal of the program that was pending.
    pub fn handle_trap(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        is_merged: bool,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<Option<SinkFlow>, CollectError> {
        let at = ptrace::instruction_pointer(thread)?;
        let Some(recorded) = self.threads.get(&thread).copied() else { return Ok(None) };
        match ptrace::signal_code(thread)? {
            SI_KERNEL => {}
            _ if is_merged => {}
            TRAP_TRACE if !self.is_single_step_of_program(thread, at) => return Ok(Some(SinkFlow::Continue)),
            _ => return Ok(None),
        }
        match self.place_at(at) {
            CodePlace::At(CopiedPlace::Head { saved: false, .. }) => {
                let registers = ptrace::read_registers(thread)?;
                ptrace::write_registers(thread, &Registers { rcx: self.rings.read_saved_rcx(recorded.ring)?, ..registers })?;
                return Ok(Some(self.drain(thread, sink)?));
            }
            CodePlace::At(CopiedPlace::Missed { jump, .. }) => {
                return Ok(Some(self.handle_missed_target(subject, (thread, recorded), jump, images, sink)?));
            }
            CodePlace::At(CopiedPlace::Stamp { .. }) if self.is_stamp_breakpoint(at.wrapping_sub(1)) => {
                return Ok(Some(self.drain(thread, sink)?));
            }
            CodePlace::At(CopiedPlace::Stepped { jump, .. }) => {
                return Ok(Some(self.step_jump_to_target(subject, (thread, recorded), jump, images, sink)?));
            }
            _ => {}
        }
        let Some(to) = self.traps.get(&at.wrapping_sub(1)).copied() else { return Ok(None) };
        ptrace::set_instruction_pointer(thread, to)?;
        Ok(Some(SinkFlow::Continue))
    }

    /// Returns true if a trap that occurs because the program has set the trap flag would also occur without copies. It would before each
    /// instruction of the image or its copy, but not inside the code that records a site, and not a second time after the jump from one to
    /// the other.
    fn is_single_step_of_program(&mut self, thread: Tid, at: u64) -> bool {
        let is_next = match self.place_at(at) {
            CodePlace::Outside | CodePlace::At(CopiedPlace::Head { saved: false, .. } | CopiedPlace::Body { .. }) => true,
            CodePlace::At(_) | CodePlace::Inside => false,
        };
        let original = self.image_address_of_copy(at);
        let last = self.threads.get_mut(&thread).filter(|_| is_next).map(|recorded| recorded.last_step.replace(original));
        last.is_some_and(|last| last != Some(original))
    }

    /// Undoes a trap that was pending when the collection ended, so that it happens again without trampolines. Returns false if the trap
    /// is the program's own.
    pub fn undo_trap_of_copy(&mut self, thread: Tid, is_merged: bool) -> Result<bool, CollectError> {
        let at = ptrace::instruction_pointer(thread)?;
        if ptrace::signal_code(thread)? != SI_KERNEL && !is_merged {
            return Ok(false);
        }
        if let (CodePlace::At(CopiedPlace::Head { site, saved: false }), Some(recorded)) = (self.place_at(at), self.threads.get(&thread)) {
            let registers = ptrace::read_registers(thread)?;
            let (rcx, rip) = (self.rings.read_saved_rcx(recorded.ring)?, self.sites[site as usize]);
            ptrace::write_registers(thread, &Registers { rcx, rip, ..registers })?;
            return Ok(true);
        }
        if self.is_stamp_breakpoint(at.wrapping_sub(1)) {
            return Ok(true);
        }
        let is_lookup = matches!(self.place_at(at), CodePlace::At(CopiedPlace::Missed { .. } | CopiedPlace::Stepped { .. }));
        let is_trap = is_lookup || self.traps.contains_key(&at.wrapping_sub(1));
        if is_trap {
            ptrace::set_instruction_pointer(thread, at - 1)?;
        }
        Ok(is_trap)
    }

    /// Moves a stopped thread from a copy to the image. Returns true if it is now at a site that is recorded already.
    ///
    /// `is_final` means that the thread is not recorded any more and that patches are removed, so that every instruction of the image is
    /// intact. `is_fault` means that the current instruction caused the pending signal, and must not be stepped over.
    pub fn move_out_of_copy(&self, subject: &TracedProcess, thread: Tid, is_final: bool, is_fault: bool) -> Result<bool, CollectError> {
        if is_final {
            let registers = ptrace::read_registers(thread)?;
            // If the program has set the register itself meanwhile, its value stays; that ends the collection.
            let is_ring = self.rings.span().contains(&registers.gs_base);
            ptrace::write_registers(thread, &Registers { gs_base: if is_ring { 0 } else { registers.gs_base }, ..registers })?;
        }
        for _ in 0..MAX_STEPS_OUT_OF_COPY {
            self.leave_stamp(thread)?;
            let registers = ptrace::read_registers(thread)?;
            match self.place_at(registers.rip) {
                CodePlace::Outside => return Ok(false),
                CodePlace::At(CopiedPlace::Body { intact: false, .. }) | CodePlace::Inside if !is_final && is_fault => return Ok(false),
                CodePlace::At(CopiedPlace::Body { intact: false, .. }) if !is_final => {}
                CodePlace::Inside if is_fault => return Ok(false),
                CodePlace::Inside => {}
                CodePlace::At(place) => {
                    ptrace::write_registers(thread, &self.registers_in_image(thread, &place, &registers)?)?;
                    return Ok(place.is_recorded());
                }
            }
            if subject.step(thread)?.is_none() {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Handles the end of a system call. `again` means that a signal handler has returned to a site that is recorded already.
    pub fn after_system_call(&mut self, thread: Tid, again: bool) -> io::Result<()> {
        if let Some(recorded) = self.threads.get_mut(&thread).filter(|recorded| recorded.last_step.is_some())
            && ptrace::read_registers(thread)?.eflags & TRAP_FLAG == 0
        {
            recorded.last_step = None;
        }
        if again { self.resume_after_recorded_site(thread) } else { Ok(()) }
    }

    /// Moves a stopped thread from a site that is recorded already into the copy, after the code that records the site.
    fn resume_after_recorded_site(&self, thread: Tid) -> io::Result<()> {
        let at = ptrace::instruction_pointer(thread)?;
        // The patch of a site leads to the code that records it.
        let first = self.patches.partition_point(|patch| patch.address < at);
        let patches = self.patches[first..].iter().take_while(|patch| patch.address == at);
        let is_there =
            |place: &CopiedPlace| matches!(place, CopiedPlace::Recorded { site, saved: false } if self.sites[*site as usize] == at);
        let places = patches.filter_map(|patch| Some((self.places_around(patch.target)?, patch.target)));
        let mut places = places.flat_map(|(places, head)| places.within(&(head..head + MAX_BYTES_BEFORE_BLOCK)));
        match places.find(|(copied, place)| is_there(place) && !self.is_released(*copied)) {
            Some((copied, _)) => ptrace::set_instruction_pointer(thread, copied),
            None => Ok(()),
        }
    }

    /// Returns the image address of the instruction that a place in a copy stands for.
    pub fn original_address(&self, place: &CopiedPlace) -> u64 {
        match *place {
            CopiedPlace::Head { site, .. } | CopiedPlace::Recorded { site, .. } => self.sites[site as usize],
            CopiedPlace::Body { original, .. } | CopiedPlace::Stamp { original, .. } => original,
            CopiedPlace::Lookup { jump, .. } | CopiedPlace::Missed { jump, .. } | CopiedPlace::Stepped { jump, .. } => jump,
        }
    }

    /// Translates an address in a copy to the image; returns other addresses unchanged.
    pub fn image_address_of_copy(&self, address: u64) -> u64 {
        match self.place_at(address) {
            CodePlace::At(place) => self.original_address(&place),
            CodePlace::Outside | CodePlace::Inside => address,
        }
    }

    /// Returns true if an address lies in a copy.
    pub fn is_copy(&self, address: u64) -> bool {
        self.places_around(address).is_some()
    }

    /// Returns the places in the copy area that contains an address.
    pub fn places_around(&self, address: u64) -> Option<&CopiedPlaces> {
        self.areas.iter().find(|area| area.range.contains(&address)).map(|area| &area.places)
    }

    /// Removes the patches from a memory: this process's, or that of a child with a copy of it.
    pub fn remove_patches(&self, memory: &Memory) -> io::Result<()> {
        write_patches(&self.patches, memory, |patch| &patch.original_bytes)
    }

    /// Returns the registers that the program would have without copies, given a place in a copy: its own values, and the place's address
    /// in the image.
    pub fn registers_in_image(&self, thread: Tid, place: &CopiedPlace, registers: &Registers) -> io::Result<Registers> {
        let found = Registers { rip: self.original_address(place), ..*registers };
        let Some(ring) = self.threads.get(&thread).map(|recorded| recorded.ring) else { return Ok(found) };
        match *place {
            CopiedPlace::Head { saved: true, .. } | CopiedPlace::Recorded { saved: true, .. } => {
                Ok(Registers { rcx: self.rings.read_saved_rcx(ring)?, ..found })
            }
            CopiedPlace::Lookup { saved: true, .. } | CopiedPlace::Missed { .. } | CopiedPlace::Stamp { saved: true, .. } => {
                let word = |offset| self.rings.word(ring, offset);
                Ok(Registers { rax: word(SAVED_RAX_OFFSET)?, rcx: word(SAVED_RCX_OFFSET)?, rdx: word(SAVED_RDX_OFFSET)?, ..found })
            }
            _ => Ok(found),
        }
    }

    pub fn place_at(&self, address: u64) -> CodePlace {
        let Some(places) = self.places_around(address) else {
            let site = self.relays.get(&address);
            return site.map_or(CodePlace::Outside, |site| CodePlace::At(CopiedPlace::Head { site: *site, saved: false }));
        };
        places.get(address).map_or(CodePlace::Inside, CodePlace::At)
    }
}

/// Returns the bytes at an address, if all of them are in `code`.
fn original_bytes_at(address: u64, code: &[(u64, Vec<u8>)]) -> Option<[u8; 5]> {
    let (start, bytes) = code.iter().rfind(|(start, _)| *start <= address)?;
    let bytes = bytes.get((address - start) as usize..)?;
    bytes.first_chunk().copied()
}
