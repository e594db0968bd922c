//! Branches of an unmodified program under QEMU's user mode, from the stream of executed blocks that the plugin writes.
//! `trodden_wire::blocks` defines the stream's layout.
//!
//! A branch is known once the block after it is executed ([`TranslatedBlock::transition`]). If a signal handler interrupts a thread, the
//! pending transition is kept until the handler has returned, unless the handler looks like the target of an indirect jump or call. Then
//! there is a gap where the handler returns.

use super::qemu_blocks::{BlockTransition, TranslatedBlock};
use super::{BranchSource, EventBatch, SourceBytes, SourceDetail, SourceError, SourceNotes, parse_maps};
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;
use trodden_binary::MappedFile;
use trodden_binary::instruction::BranchInstruction;
use trodden_container::{FILE_HEADER_BYTES, FileError, FileKind, expect_header};
use trodden_hardware::{Address, BranchKind, Instruction, RetiredBranch, StreamEvent, ThreadId};
use trodden_wire::blocks::{BlockHeader, FrameHeader, FrameKind, MemoryAccess, SIGNAL_HANDLER_RETURN_WORD, VERSION, decode_memory_access};
use trodden_wire::layout::Layout;

/// Maximum size of a frame in bytes.
const MAX_FRAME_SIZE: u64 = 1 << 28;

/// Reads the stream of a program under QEMU as a source of branches.
pub struct QemuSource<R> {
    level: SourceDetail,
    bytes: SourceBytes<R>,
    blocks: Vec<TranslatedBlock>,
    threads: QemuThreads,
    mappings: Vec<MappedFile>,
    is_ended: bool,
    is_replaced: bool,
    forks: u64,
    unrecorded: u64,
    frame: Vec<u8>,
}

impl<R: Read> QemuSource<R> {
    /// Reads the start of the stream. `path` identifies it in messages. For the level of instructions, the plugin must record memory
    /// accesses.
    ///
    /// # Errors
    /// The stream is not the plugin's, or has a different version.
    pub fn new(reader: R, path: &Path, level: SourceDetail) -> Result<QemuSource<R>, SourceError> {
        let mut bytes = SourceBytes::new(reader, path);
        let mut header = [0; FILE_HEADER_BYTES];
        bytes.read_exact(&mut header, "the start of the plugin's stream")?;
        expect_header(&header, FileKind::BLOCKS, VERSION).map_err(|error| match error {
            FileError::Version { found, .. } => bytes
                .foreign_format_error(format!("the plugin writes version {found}, but this program reads version {VERSION}. Rebuild both")),
            other => {
                bytes.foreign_format_error(format!("not a stream of this version of trodden's plugin for QEMU ({other}). Rebuild both"))
            }
        })?;
        Ok(QemuSource {
            level,
            bytes,
            blocks: Vec::new(),
            threads: QemuThreads::default(),
            mappings: Vec::new(),
            is_ended: false,
            is_replaced: false,
            forks: 0,
            unrecorded: 0,
            frame: Vec::new(),
        })
    }

    /// Reads a frame. Returns false at the end.
    fn read_frame(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        let offset = self.bytes.offset();
        let mut header = [0; FrameHeader::BYTES];
        if self.is_ended || !self.bytes.fill(&mut header, "a frame's header")? {
            return Ok(false);
        }
        let FrameHeader { kind, thread, bytes: size } = FrameHeader::read(&header).expect("as many bytes as a header has");
        let Some(kind) = FrameKind::from_number(kind).filter(|_| size <= MAX_FRAME_SIZE) else {
            return Err(self.bytes.corrupt(offset, format!("a frame has the unknown kind {kind} or is too large ({size} bytes)")));
        };
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(size as usize, 0);
        self.bytes.read_exact(&mut frame, "a frame's content")?;
        let taken = self.handle_frame(kind, thread, &frame, batch);
        self.frame = frame;
        taken.map_err(|what| self.bytes.corrupt(offset, what))?;
        Ok(true)
    }

    fn handle_frame(&mut self, kind: FrameKind, thread: u32, content: &[u8], batch: &mut EventBatch) -> Result<(), String> {
        match kind {
            FrameKind::Block => {
                let (number, block) = parse_block(content, self.level).ok_or("the description of a block is too short")?;
                if number != self.blocks.len() {
                    return Err(format!("found the description of block {number} instead of block {}", self.blocks.len()));
                }
                self.blocks.push(block);
            }
            FrameKind::Executed => self.threads.execute(thread, content, &self.blocks, batch)?,
            FrameKind::Mappings => {
                let base = word(content, 0).ok_or("the base address of the mappings is missing")?;
                self.mappings.extend(parse_maps(&String::from_utf8_lossy(&content[8..]), base));
            }
            FrameKind::ThreadBegins | FrameKind::ThreadEnds => self.threads.end(thread, &self.blocks, batch),
            FrameKind::Handler => {
                self.threads.handlers.insert(word(content, 0).ok_or("the address of a handler is missing")?);
            }
            FrameKind::Fork => self.forks += 1,
            FrameKind::Exec => self.is_replaced = true,
            FrameKind::End => {
                self.unrecorded = word(content, 0).unwrap_or(0);
                self.is_ended = true;
            }
        }
        Ok(())
    }
}

impl<R: Read> BranchSource for QemuSource<R> {
    fn level(&self) -> SourceDetail {
        self.level
    }

    fn knows_frames(&self) -> bool {
        true
    }

    fn read(&mut self, batch: &mut EventBatch) -> Result<bool, SourceError> {
        while batch.events.len() < EventBatch::EVENTS_PER_BATCH {
            if !self.read_frame(batch)? {
                self.threads.end_all(&self.blocks, batch);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn notes(&self) -> SourceNotes {
        let mut notes = Vec::new();
        if self.forks > 0 {
            notes.push(format!("child processes are not recorded; the program created {}", self.forks));
        }
        if self.is_replaced && !self.is_ended {
            notes.push("the program executed another program, which is not recorded".into());
        } else if !self.is_ended {
            notes.push("the program was killed, so up to 8192 blocks at the end of each thread may be missing".into());
        }
        if self.unrecorded > 0 {
            notes.push(format!("threads not recorded because there were too many at a time: {}", self.unrecorded));
        }
        if self.threads.unexplained > 0 {
            notes.push(format!("places where execution continued elsewhere than the code allows: {}", self.threads.unexplained));
        }
        let (instructions, iterations) = (self.threads.instructions, Some(self.threads.iterations));
        SourceNotes { notes, mappings: self.mappings.clone(), instructions, iterations }
    }
}

#[derive(Debug, Default)]
struct QemuThreads {
    /// The running threads, by the number that QEMU gives each. It reuses the numbers of ended threads.
    by_number: HashMap<u32, QemuThread>,
    begun: u32,
    handlers: HashSet<u64>,
    unexplained: u64,
    instructions: u64,
    iterations: u64,
}

#[derive(Debug, Default)]
struct QemuThread {
    id: ThreadId,
    /// The index of the most recent block, and the number of its first instructions that are not counted: 1 if the block is only a further
    /// iteration of a string instruction.
    last: Option<(usize, u32)>,
    /// Number of instructions since the last branch.
    instructions: u32,
    /// The pending transitions of interrupted blocks.
    interrupted: Vec<InterruptedTransition>,
    leaves_handler: bool,
    /// Memory accesses of the most recent block.
    accesses: Vec<MemoryAccess>,
    /// The instructions since the last branch, if they are recorded.
    details: Vec<Instruction>,
}

/// A pending transition that a signal handler has interrupted.
#[derive(Debug)]
struct InterruptedTransition {
    last: Option<(usize, u32)>,
    accesses: Vec<MemoryAccess>,
}

impl QemuThreads {
    fn execute(&mut self, number: u32, words: &[u8], blocks: &[TranslatedBlock], batch: &mut EventBatch) -> Result<(), String> {
        let thread = self.by_number.entry(number).or_insert_with(|| {
            self.begun += 1;
            QemuThread { id: ThreadId(self.begun - 1), ..QemuThread::default() }
        });
        let mut context = ReadContext { handlers: &self.handlers, unexplained: 0, instructions: 0, iterations: 0, blocks, batch };
        for word in words.chunks_exact(8) {
            let word = u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]);
            if let Some(access) = decode_memory_access(word) {
                thread.accesses.push(access);
                continue;
            }
            if word == SIGNAL_HANDLER_RETURN_WORD {
                thread.leaves_handler = true;
                continue;
            }
            let block = usize::try_from(word).ok().filter(|b| *b < blocks.len());
            thread.enter_block(block.ok_or_else(|| format!("block {word} is executed but was not described"))?, &mut context);
        }
        self.unexplained += context.unexplained;
        self.instructions += context.instructions;
        self.iterations += context.iterations;
        Ok(())
    }

    fn end(&mut self, number: u32, blocks: &[TranslatedBlock], batch: &mut EventBatch) {
        let Some(mut thread) = self.by_number.remove(&number) else { return };
        if let Some((last, skipped)) = thread.last {
            self.instructions += thread.count_instructions(&blocks[last], blocks[last].instructions(), skipped);
        }
        batch.instructions.append(&mut thread.details);
        batch.events.push((thread.id, StreamEvent::End(thread.instructions)));
    }

    fn end_all(&mut self, blocks: &[TranslatedBlock], batch: &mut EventBatch) {
        let mut numbers: Vec<u32> = self.by_number.keys().copied().collect();
        numbers.sort_unstable();
        numbers.into_iter().for_each(|number| self.end(number, blocks, batch));
    }
}

/// State shared by threads while words are read.
struct ReadContext<'a> {
    handlers: &'a HashSet<u64>,
    unexplained: u64,
    instructions: u64,
    iterations: u64,
    blocks: &'a [TranslatedBlock],
    batch: &'a mut EventBatch,
}

impl QemuThread {
    /// Enters a block, which determines what the previous block's last instruction did.
    fn enter_block(&mut self, next: usize, context: &mut ReadContext) {
        let start = context.blocks[next].start;
        let skipped = match std::mem::take(&mut self.leaves_handler) {
            true => self.resume_interrupted(start, context),
            false => self.complete_transition(start, context),
        };
        self.last = Some((next, skipped));
        self.accesses.clear();
    }

    /// Handles the transition from the most recent block to the block at `next`. Returns the number of that block's first instructions that
    /// are not counted.
    fn complete_transition(&mut self, next: u64, context: &mut ReadContext) -> u32 {
        let Some((last, skipped)) = self.last else {
            context.batch.events.push((self.id, StreamEvent::Begin(Address(next))));
            return 0;
        };
        let blocks = context.blocks;
        let block = &blocks[last];
        let enters_handler = context.handlers.contains(&next);
        match block.transition(next) {
            BlockTransition::Branch(..) if enters_handler && block.branch == Some(BranchInstruction::Return) => {
                self.interrupt(next, context)
            }
            BlockTransition::Unexplained if enters_handler => self.interrupt(next, context),
            BlockTransition::Straight => context.instructions += self.count_instructions(block, block.instructions(), skipped),
            BlockTransition::Iteration => {
                context.instructions += self.count_instructions(block, block.instructions(), skipped);
                context.iterations += 1;
                return 1;
            }
            BlockTransition::Restart(executed) => context.instructions += self.count_instructions(block, executed, skipped),
            BlockTransition::Branch(kind, target, is_taken) => {
                context.instructions += self.count_instructions(block, block.instructions(), skipped);
                let (address, fall_through) = (Address(block.last()), Address(block.end));
                let instructions = std::mem::take(&mut self.instructions);
                let stack = self.return_address_slot(kind, block);
                let branch = RetiredBranch { address, target, fall_through, kind, is_taken, instructions, stack };
                context.batch.instructions.append(&mut self.details);
                context.batch.events.push((self.id, StreamEvent::Branch(branch)));
            }
            BlockTransition::Unexplained => {
                context.instructions += self.count_instructions(block, block.instructions(), skipped);
                context.unexplained += 1;
                context.batch.events.push((self.id, StreamEvent::Gap(Address(next))));
            }
        }
        0
    }

    /// Returns the stack address at which the call or return at the end of a block accessed its return address.
    fn return_address_slot(&self, kind: BranchKind, block: &TranslatedBlock) -> Option<Address> {
        let last = block.instructions() as u64 - 1;
        let is_it = |access: &&MemoryAccess| access.instruction == last && access.is_store == kind.is_call();
        let access = self.accesses.iter().find(is_it).filter(|_| kind.is_call() || kind == BranchKind::Return)?;
        Some(Address(access.address))
    }

    fn interrupt(&mut self, handler: u64, context: &mut ReadContext) {
        self.interrupted.push(InterruptedTransition { last: self.last, accesses: std::mem::take(&mut self.accesses) });
        context.batch.events.push((self.id, StreamEvent::Interrupt(Address(handler))));
    }

    /// Completes the transition that a signal handler had interrupted.
    fn resume_interrupted(&mut self, next: u64, context: &mut ReadContext) -> u32 {
        if let Some((last, skipped)) = self.last {
            let block = &context.blocks[last];
            context.instructions += self.count_instructions(block, block.instructions(), skipped);
        }
        match self.interrupted.pop() {
            Some(interrupted) => {
                context.batch.events.push((self.id, StreamEvent::Resume(Address(next))));
                (self.last, self.accesses) = (interrupted.last, interrupted.accesses);
                self.complete_transition(next, context)
            }
            // No transition is pending, because the start of the handler looked like an ordinary branch.
            None => {
                context.unexplained += 1;
                context.batch.events.push((self.id, StreamEvent::Gap(Address(next))));
                0
            }
        }
    }

    /// Counts the first `executed` instructions of a block, except for the `skipped` ones at its start.
    fn count_instructions(&mut self, block: &TranslatedBlock, executed: usize, skipped: u32) -> u64 {
        let more = (executed as u32).saturating_sub(skipped);
        self.instructions = self.instructions.saturating_add(more);
        if !block.details.is_empty() {
            let first = self.details.len();
            let from = (skipped as usize).min(executed);
            self.details.extend_from_slice(&block.details[from..executed]);
            for access in &self.accesses {
                let at = (access.instruction as usize).checked_sub(from).map(|at| first + at);
                let Some(instruction) = at.and_then(|at| self.details.get_mut(at)) else { continue };
                let place = if access.is_store { &mut instruction.store } else { &mut instruction.load };
                place.get_or_insert(Address(access.address));
            }
        }
        u64::from(more)
    }
}

fn word(content: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(content.get(at..at + 8)?.try_into().ok()?))
}

fn parse_block(content: &[u8], level: SourceDetail) -> Option<(usize, TranslatedBlock)> {
    let BlockHeader { number, address, instructions } = BlockHeader::read(content)?;
    let (sizes, code) = content[BlockHeader::BYTES..].split_at_checked(usize::try_from(instructions).ok()?)?;
    // A block without a valid instruction faults when it is executed.
    let block = TranslatedBlock::new(address, sizes, code, level == SourceDetail::Instructions).unwrap_or(TranslatedBlock {
        start: address,
        end: address,
        ..TranslatedBlock::default()
    });
    Some((usize::try_from(number).ok()?, block))
}

#[cfg(test)]
#[path = "qemu_tests.rs"]
mod tests;
