//! Single-stepping with PTRACE_SINGLESTEP: records the address of every executed instruction of the image. It needs no graph, so it is the
//! oracle for the other collectors. The trap flag that stepping sets is hidden from the program, which can use it as usual.
//!
//! While there is one thread, libraries run at full speed: when the thread leaves the image, the image's code is made unexecutable, and
//! the fault when it comes back, by return or callback, resumes stepping. Libraries are stepped as well once there is a second thread or a
//! system call filter, and while the thread blocks the signal of that fault.

use crate::CollectError;
use crate::images::{Image, Images};
use crate::journal::JournalEntry;
use crate::mappings::mappings;
use crate::memory::{MemoryEffect, do_ranges_overlap, intersect_ranges, parts_outside_range, round_to_whole_pages};
use crate::ptrace::{self, Registers, ResumeMode, TRAP_FLAG, Tid};
use crate::sink::{RESUMED_FLAG, Sink, SinkFlow, TRANSFER_FLAG, ThreadNumber, TrapOutcome};
use crate::subject::TracedProcess;
use iced_x86::{Instruction, Mnemonic};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use trodden_binary::instruction::{BranchInstruction, MAX_INSTRUCTION_LENGTH, classify_branch, decode_instruction};

/// `si_code` of a trap caused by the program's own `int3` (SI_KERNEL).
const SI_KERNEL: i32 = 0x80;
/// `si_code` of a trap caused by the trap flag (TRAP_TRACE).
const TRAP_TRACE: i32 = 2;

/// `si_code` of the stop before the first instruction of a signal handler.
pub const HANDLER_ENTRY_TRAP_CODE: i32 = libc::SIGTRAP;
/// Offset of the flags in the signal frame that the kernel pushes: after the return address, among the registers of the context.
pub const SIGNAL_FRAME_FLAGS_OFFSET: u64 = 8 + 40 + 17 * 8;

#[derive(Debug)]
pub struct SingleStepping {
    code: Vec<SteppedCode>,
    threads: HashMap<Tid, SteppedThread>,
    steps_libraries: bool,
    is_executable: bool,
}

/// Executable code within one mapping.
#[derive(Clone, Debug)]
struct SteppedCode {
    range: Range<u64>,
    /// The protection that the program has requested.
    protection: i32,
}

#[derive(Clone, Copy, Debug, Default)]
struct SteppedThread {
    /// True if the thread is being single-stepped: in the image, and in libraries unless these can run at full speed.
    is_stepped: bool,
    /// Address of the last stop.
    address: u64,
    is_at_system_call: bool,
    /// True if the program itself has set the trap flag, and receives a signal after the instruction.
    program_traps: bool,
    /// If the current instruction pushes the flags, the address after it.
    pushes_flags: Option<u64>,
    flag_effect: TrapFlagEffect,
}

/// The effect of an instruction on the program's own trap flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TrapFlagEffect {
    /// The program's flag is the one that the kernel shows.
    #[default]
    AsShown,
    /// The instruction does not change the flag.
    Unchanged,
    /// The instruction pops this value of the flag.
    Popped(bool),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StepArrival {
    /// The thread has executed the previous instruction.
    Next,
    /// The thread has returned from a system call.
    Resumed,
    /// A signal handler has returned to the interrupted instruction, which is recorded already.
    Recorded,
}

impl SingleStepping {
    pub fn new(process: Tid, code: &[Range<u64>]) -> io::Result<Self> {
        Ok(Self { code: mapped_code(process, code)?, threads: HashMap::new(), steps_libraries: false, is_executable: true })
    }

    pub fn add(&mut self, subject: &TracedProcess, thread: Tid, image: &Image) -> Result<(), CollectError> {
        let code = mapped_code(subject.process, &image.code)?;
        if !self.is_executable {
            code.iter().try_for_each(|code| Self::make_code_unexecutable(subject, thread, code))?;
        }
        self.code.extend(code);
        Ok(())
    }

    pub fn forget(&mut self, image: &Image) {
        self.code.retain(|code| !image.code.iter().any(|of_image| do_ranges_overlap(of_image, &code.range)));
    }

    /// Handles a change to whole pages by a system call of a stopped thread. Code that was replaced or written, or that has become writable
    /// or unexecutable, is no longer stepped.
    pub fn handle_memory_change(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        changed: &Range<u64>,
        effect: MemoryEffect,
    ) -> Result<(), CollectError> {
        let (touched, mut code): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.code).into_iter().partition(|c| do_ranges_overlap(&c.range, changed));
        for SteppedCode { range, protection } in touched {
            let pages = round_to_whole_pages(&range);
            let is_own = |entry: &JournalEntry| matches!(entry, JournalEntry::Protection(own, _) if *own == pages);
            subject.session.remove(is_own);
            let rest = parts_outside_range(&range, changed).map(|range| SteppedCode { range, protection });
            for rest in rest {
                if !self.is_executable {
                    subject.session.enter(rest.entry());
                }
                code.push(rest);
            }
            let inside = match effect {
                MemoryEffect::Protected => mapped_code(subject.process, &[intersect_ranges(&range, changed)])?,
                MemoryEffect::Written if !self.is_executable => {
                    Self::protect(subject, thread, &intersect_ranges(&range, changed), protection)?;
                    Vec::new()
                }
                MemoryEffect::Written | MemoryEffect::Replaced => Vec::new(),
            };
            // Code that was writable from the start is still stepped.
            for inside in inside.into_iter().filter(|inside| (inside.protection & !protection) & libc::PROT_WRITE == 0) {
                if !self.is_executable {
                    Self::make_code_unexecutable(subject, thread, &inside)?;
                }
                code.push(inside);
            }
        }
        self.code = code;
        Ok(())
    }

    /// Starts stepping a stopped thread. From the second thread on, libraries are stepped as well. The first thread of a static program is
    /// at its first instruction already, which is recorded.
    pub fn begin_thread(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        number: ThreadNumber,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        self.threads.insert(thread, SteppedThread::default());
        if self.threads.len() > 1 {
            self.start_stepping_libraries(subject, thread)?;
        }
        self.handle_step(subject, (thread, number), StepArrival::Next, images, sink)
    }

    /// Steps libraries as well from now on, so that no more system calls have to be injected.
    pub fn start_stepping_libraries(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        self.steps_libraries = true;
        self.make_executable(subject, thread)
    }

    pub fn end_thread(&mut self, thread: Tid) {
        self.threads.remove(&thread);
    }

    pub fn resume(&self, thread: Tid) -> ResumeMode {
        match self.threads.get(&thread) {
            Some(stepped) if (stepped.is_stepped || self.steps_libraries) && !stepped.is_at_system_call => ResumeMode::Step,
            _ => ResumeMode::ToSystemCall,
        }
    }

    /// Returns true if a stopped thread is at an instruction that is recorded already.
    pub fn is_recorded(&self, thread: Tid, at: u64) -> bool {
        self.is_in_image(at) && self.threads.get(&thread).is_some_and(|stepped| stepped.is_stepped && stepped.address == at)
    }

    /// Prepares a stopped thread for running a signal handler: it is stepped from now on, wherever it is. The handler may be code of the
    /// image, and may block the signal that reports unexecutable code.
    pub fn prepare_for_handler(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        if let Some(stepped) = self.threads.get_mut(&thread) {
            let own = show_own_trap_flag(thread, *stepped)?;
            *stepped = SteppedThread {
                is_stepped: true,
                is_at_system_call: false,
                program_traps: own,
                pushes_flags: None,
                flag_effect: TrapFlagEffect::AsShown,
                ..*stepped
            };
            self.make_executable(subject, thread)?;
        }
        Ok(())
    }

    /// Prepares a stopped thread for running without steps. Its last stop may not have been handled.
    pub fn prepare_for_end(&self, subject: &TracedProcess, thread: Tid) -> io::Result<()> {
        let Some(stepped) = self.threads.get(&thread).copied() else { return Ok(()) };
        let registers = ptrace::read_registers(thread)?;
        if !stepped.program_traps && stepped.pushes_flags == Some(registers.rip) {
            hide_trap_flag(subject, registers.rsp)?;
        }
        if !stepped.program_traps && ptrace::signal_code(thread).is_ok_and(|code| code == HANDLER_ENTRY_TRAP_CODE) {
            hide_trap_flag(subject, registers.rsp + SIGNAL_FRAME_FLAGS_OFFSET)?;
        }
        show_own_trap_flag(thread, stepped).map(drop)
    }

    /// Returns true if a pending signal of a thread is caused by stepping alone: a trap after a step, or the fault at unexecutable code
    /// of the image.
    pub fn is_own(&self, thread: Tid, signal: i32) -> io::Result<bool> {
        match signal {
            libc::SIGTRAP => {
                let code = ptrace::signal_code(thread)?;
                Ok(code > 0 && code != SI_KERNEL && !(code == TRAP_TRACE && self.has_program_set_trap_flag(thread)?))
            }
            libc::SIGSEGV => Ok(!self.is_executable && self.is_in_image(ptrace::instruction_pointer(thread)?)),
            _ => Ok(false),
        }
    }

    pub fn handle_trap(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        number: ThreadNumber,
        signal: i32,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<TrapOutcome, CollectError> {
        let Some(stepped) = self.threads.get(&thread).copied() else { return Ok(TrapOutcome::Foreign) };
        let stepping = stepped.is_stepped || self.steps_libraries;
        match signal {
            libc::SIGTRAP if stepping => {
                let code = ptrace::signal_code(thread)?;
                if code == HANDLER_ENTRY_TRAP_CODE {
                    subject.session.note_signal_mask(thread)?;
                }
                if code == HANDLER_ENTRY_TRAP_CODE && !stepped.program_traps {
                    hide_trap_flag(subject, ptrace::stack_pointer(thread)? + SIGNAL_FRAME_FLAGS_OFFSET)?;
                }
                let is_sent = code <= 0 && !subject.session.is_merged(thread, signal)?;
                if code == SI_KERNEL || is_sent || (code == TRAP_TRACE && stepped.program_traps) {
                    return Ok(TrapOutcome::Foreign);
                }
                Ok(TrapOutcome::Recorded(self.handle_step(subject, (thread, number), StepArrival::Next, images, sink)?))
            }
            libc::SIGSEGV if !stepping && self.is_in_image(ptrace::instruction_pointer(thread)?) => {
                self.make_executable(subject, thread)?;
                Ok(TrapOutcome::Recorded(self.handle_step(subject, (thread, number), StepArrival::Next, images, sink)?))
            }
            _ => Ok(TrapOutcome::Foreign),
        }
    }

    /// Handles the end of a system call. `again` means that it has returned the thread from a signal handler to an instruction that is
    /// recorded already.
    pub fn after_system_call(
        &mut self,
        subject: &TracedProcess,
        (thread, number): (Tid, ThreadNumber),
        again: bool,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        let Some(stepped) = self.threads.get(&thread) else { return Ok(SinkFlow::Continue) };
        let stepping = stepped.is_stepped || self.steps_libraries;
        let came_back = !stepping && self.is_in_image(ptrace::instruction_pointer(thread)?);
        match stepping || came_back || ptrace::is_signal_blocked(thread, libc::SIGSEGV) {
            true => {
                self.handle_step(subject, (thread, number), if again { StepArrival::Recorded } else { StepArrival::Resumed }, images, sink)
            }
            false => Ok(SinkFlow::Continue),
        }
    }

    /// Handles a thread's stop before an instruction, and records the instruction.
    fn handle_step(
        &mut self,
        subject: &TracedProcess,
        (thread, number): (Tid, ThreadNumber),
        arrival: StepArrival,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        let registers = ptrace::read_registers(thread)?;
        let at = registers.rip;
        let inside = self.is_in_image(at);
        let last = self.threads.get(&thread).copied().unwrap_or_default();
        let program_traps = program_trap_flag(thread, &registers, last, arrival)?;
        if last.pushes_flags == Some(at) && !last.program_traps {
            hide_trap_flag(subject, registers.rsp)?;
        }
        // If a program blocks SIGSEGV, the kernel resets its handler on a fault.
        if !inside && !self.steps_libraries && !ptrace::is_signal_blocked(thread, libc::SIGSEGV) {
            self.threads.insert(thread, SteppedThread::default());
            self.make_unexecutable(subject, thread)?;
            return Ok(SinkFlow::Continue);
        }
        self.make_executable(subject, thread)?;
        let code = subject.memory.read_some(at, MAX_INSTRUCTION_LENGTH as usize);
        let instruction = decode_instruction(&code, at);
        let pushes = instruction.filter(|i| matches!(i.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq));
        let stepped = SteppedThread {
            is_stepped: true,
            address: at,
            is_at_system_call: code.starts_with(&[0x0f, 0x05]),
            program_traps,
            pushes_flags: pushes.map(|i| i.next_ip()),
            flag_effect: trap_flag_effect(subject, instruction.as_ref(), registers.rsp),
        };
        self.threads.insert(thread, stepped);
        // A repeated string instruction traps after each repetition.
        let repetition = at == last.address && matches!(code.first(), Some(0xf2 | 0xf3));
        if !inside || repetition || arrival == StepArrival::Recorded {
            return Ok(SinkFlow::Continue);
        }
        let transfer = instruction
            .and_then(|i| classify_branch(&i))
            .is_some_and(|b| !matches!(b, BranchInstruction::System | BranchInstruction::Stop));
        let (transfer, resumed) =
            (if transfer { TRANSFER_FLAG } else { 0 }, if arrival == StepArrival::Resumed { RESUMED_FLAG } else { 0 });
        Ok(sink.record(number, images.in_file(at) | transfer | resumed)?)
    }

    /// Returns true if a trap after a stopped thread's last instruction is the program's own: the program has set the trap flag, or the
    /// thread was not being stepped.
    fn has_program_set_trap_flag(&self, thread: Tid) -> io::Result<bool> {
        match self.threads.get(&thread) {
            Some(stepped) if stepped.is_stepped || self.steps_libraries => Ok(stepped.program_traps),
            _ => Ok(true),
        }
    }

    fn is_in_image(&self, address: u64) -> bool {
        self.code.iter().any(|c| c.range.contains(&address))
    }

    pub fn make_executable(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        if self.is_executable {
            return Ok(());
        }
        for code in &self.code {
            Self::protect(subject, thread, &code.range, code.protection)?;
            let pages = round_to_whole_pages(&code.range);
            subject.session.remove(|entry| matches!(entry, JournalEntry::Protection(range, _) if *range == pages));
        }
        self.is_executable = true;
        Ok(())
    }

    /// Makes the image's code executable in a child's copy of the memory. The child will not be followed.
    pub fn make_executable_in_child(&self, subject: &TracedProcess, child: Tid) -> Result<(), CollectError> {
        match self.is_executable {
            true => Ok(()),
            false => self.code.iter().try_for_each(|code| Self::protect(subject, child, &code.range, code.protection)),
        }
    }

    fn make_unexecutable(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        if !self.is_executable {
            return Ok(());
        }
        self.is_executable = false;
        self.code.iter().try_for_each(|code| Self::make_code_unexecutable(subject, thread, code))
    }

    fn make_code_unexecutable(subject: &TracedProcess, thread: Tid, code: &SteppedCode) -> Result<(), CollectError> {
        subject.session.enter(code.entry());
        Self::protect(subject, thread, &code.range, code.protection & !libc::PROT_EXEC)
    }

    fn protect(subject: &TracedProcess, thread: Tid, code: &Range<u64>, protection: i32) -> Result<(), CollectError> {
        let Range { start, end } = round_to_whole_pages(code);
        let result =
            subject.inject_system_call(thread, Some(subject.area), libc::SYS_mprotect, [start, end - start, protection as u64, 0, 0, 0])?;
        match result {
            0 => Ok(()),
            _ => Err(CollectError::Unexpected { what: format!("mprotect of the program's code returned {result}") }),
        }
    }
}

impl SteppedCode {
    fn entry(&self) -> JournalEntry {
        JournalEntry::Protection(round_to_whole_pages(&self.range), self.protection)
    }
}

/// Returns the executable parts of code, mapping by mapping.
fn mapped_code(process: Tid, code: &[Range<u64>]) -> io::Result<Vec<SteppedCode>> {
    let mappings = mappings(process)?;
    let of = |code: &Range<u64>| {
        let parts = mappings.iter().filter(|mapping| mapping.executable).map(|m| (intersect_ranges(code, &(m.start..m.end)), m.protection));
        parts.filter(|(range, _)| !range.is_empty()).map(|(range, protection)| SteppedCode { range, protection }).collect::<Vec<_>>()
    };
    Ok(code.iter().flat_map(of).collect())
}

/// Returns true if the program itself has set the trap flag of a thread that has arrived at an instruction. The kernel hides the flag
/// that it sets for a step. It fails to do so after `popf`, which it takes for an instruction that sets the flag; there the flag is
/// corrected.
fn program_trap_flag(thread: Tid, registers: &Registers, last: SteppedThread, arrival: StepArrival) -> io::Result<bool> {
    let shown = registers.eflags & TRAP_FLAG != 0;
    let own = match last.flag_effect {
        TrapFlagEffect::Popped(own) if arrival == StepArrival::Next && last.is_stepped => own,
        TrapFlagEffect::Unchanged if arrival == StepArrival::Next && last.is_stepped => last.program_traps,
        _ => shown,
    };
    if own != shown {
        let flag = if own { TRAP_FLAG } else { 0 };
        ptrace::write_registers(thread, &Registers { eflags: registers.eflags & !TRAP_FLAG | flag, ..*registers })?;
    }
    Ok(own)
}

/// Returns the program's own trap flag of a thread that is stopped for a different reason than a step, and corrects the flag that the
/// kernel shows. After `popf`, the kernel shows the flag that it sets for steps as the program's, until the thread runs without steps.
fn show_own_trap_flag(thread: Tid, stepped: SteppedThread) -> io::Result<bool> {
    let registers = ptrace::read_registers(thread)?;
    let shown = registers.eflags & TRAP_FLAG != 0;
    let is_executed = stepped.address != registers.rip;
    let own = match stepped.flag_effect {
        _ if !shown || !stepped.is_stepped || stepped.is_at_system_call => shown,
        TrapFlagEffect::Popped(own) if is_executed => own,
        TrapFlagEffect::AsShown if is_executed => shown,
        _ => stepped.program_traps,
    };
    if own == shown {
        return Ok(own);
    }
    ptrace::write_registers(thread, &Registers { eflags: registers.eflags & !TRAP_FLAG, ..registers })?;
    Ok(false)
}

fn trap_flag_effect(subject: &TracedProcess, instruction: Option<&Instruction>, stack_pointer: u64) -> TrapFlagEffect {
    let popped = || match subject.memory.read_some(stack_pointer + 1, 1).as_slice() {
        [flags] => TrapFlagEffect::Popped(flags & (TRAP_FLAG >> 8) as u8 != 0),
        _ => TrapFlagEffect::AsShown,
    };
    match instruction.map(Instruction::mnemonic) {
        Some(Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq) => popped(),
        None | Some(Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq | Mnemonic::Syscall | Mnemonic::Int) => TrapFlagEffect::AsShown,
        Some(_) => TrapFlagEffect::Unchanged,
    }
}

/// Clears the trap flag in the flags that are stored at `stack_pointer`.
pub fn hide_trap_flag(subject: &TracedProcess, stack_pointer: u64) -> io::Result<()> {
    let place = stack_pointer + 1;
    match subject.memory.read_some(place, 1).as_slice() {
        [byte] => subject.memory.write(place, &[byte & !((TRAP_FLAG >> 8) as u8)]),
        _ => Ok(()),
    }
}
