//! Single-stepping: the address of every instruction of the image, by PTRACE_SINGLESTEP, whatever any graph has: the oracle of the other
//! collectors. The trap flag that stepping sets is hidden from the program, whose own one works as without tracing.
//!
//! Libraries run at full speed while there is one thread: when it leaves the image, the image's code is made
//! unexecutable; the fault at which it comes back, by return or by a callback, is where stepping goes on. No assumption
//! about the way back is made. A thread that blocks that fault's signal is stepped in libraries, too. With a second thread
//! all are stepped everywhere.

use crate::CollectError;
use crate::images::{Image, Images};
use crate::journal::JournalEntry;
use crate::memory::{MemoryEffect, common, mappings, outside, overlap, pages};
use crate::ptrace::{self, Registers, Resume, TRAP_FLAG, Tid};
use crate::sink::{RESUMED, Sink, SinkFlow, TRANSFER, ThreadNumber, Trap};
use crate::subject::TracedProcess;
use iced_x86::{Instruction, Mnemonic};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use trodden_binary::instruction::{BranchInstruction, LONGEST_INSTRUCTION, branch, decode};

/// `si_code` of a trap by an `int3` of the program itself: SI_KERNEL.
const BY_BREAKPOINT: i32 = 0x80;
/// `si_code` of a trap by the trap flag: TRAP_TRACE.
const BY_TRAP_FLAG: i32 = 2;

/// `si_code` of the stop before the first instruction of a signal's handler.
const AT_HANDLER: i32 = libc::SIGTRAP;
/// Where in the frame that the kernel makes for a handler the flags are: behind the return address, in the context's registers.
const SAVED_FLAGS: u64 = 8 + 40 + 17 * 8;

/// Stepping a program.
#[derive(Debug)]
pub struct Stepping {
    /// Code of the files in memory.
    code: Vec<SteppedCode>,
    threads: HashMap<Tid, Stepped>,
    /// Whether libraries are stepped, too.
    everywhere: bool,
    /// Whether the image's code can run.
    allowed: bool,
}

/// Code that can run, within one mapping.
#[derive(Clone, Debug)]
struct SteppedCode {
    range: Range<u64>,
    /// The protection that the program knows.
    protection: i32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stepped {
    /// Whether it is stepped: in the image, and in libraries where they cannot run at full speed.
    stepping: bool,
    /// Where it was last.
    last: u64,
    /// Whether a system call comes next.
    call: bool,
    /// Whether the program itself has set the trap flag: it gets a signal when the instruction has run.
    traps_itself: bool,
    /// The instruction pushes the flags; what follows it in memory.
    pushes_flags: Option<u64>,
    /// What the instruction makes of the program's own trap flag.
    makes: OwnFlag,
}

/// What an instruction makes of the program's own trap flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OwnFlag {
    /// The kernel knows.
    #[default]
    Unknown,
    /// It stays as it is.
    Kept,
    /// It is popped.
    Popped(bool),
}

/// How a thread has come to an instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// By the instruction before.
    Next,
    /// By a system call.
    Resumed,
    /// By a handler that comes back to where it began: the instruction is recorded.
    Recorded,
}

impl Stepping {
    /// Steps code in a process that is stopped.
    ///
    /// # Errors
    /// The process is gone.
    pub fn new(process: Tid, code: &[Range<u64>]) -> io::Result<Self> {
        Ok(Self { code: mapped_code(process, code)?, threads: HashMap::new(), everywhere: false, allowed: true })
    }

    /// A library has been mapped by a thread, which is stopped.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn add(&mut self, subject: &TracedProcess, thread: Tid, image: &Image) -> Result<(), CollectError> {
        let code = mapped_code(subject.process, &image.code)?;
        if !self.allowed {
            code.iter().try_for_each(|code| Self::forbid_code(subject, thread, code))?;
        }
        self.code.extend(code);
        Ok(())
    }

    /// A library is not in memory any more.
    pub fn forget(&mut self, image: &Image) {
        self.code.retain(|code| !image.code.iter().any(|of_image| overlap(of_image, &code.range)));
    }

    /// A system call of a stopped thread has changed whole pages: what is not code of the files any more, or can be written now, is not
    /// stepped any more.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn note_change(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        changed: &Range<u64>,
        effect: MemoryEffect,
    ) -> Result<(), CollectError> {
        let (touched, mut code): (Vec<_>, Vec<_>) = std::mem::take(&mut self.code).into_iter().partition(|c| overlap(&c.range, changed));
        for SteppedCode { range, protection } in touched {
            let pages = pages(&range);
            let is_own = |entry: &JournalEntry| matches!(entry, JournalEntry::Protection(own, _) if *own == pages);
            subject.session.remove(is_own);
            let rest = outside(&range, changed).map(|range| SteppedCode { range, protection });
            for rest in rest {
                if !self.allowed {
                    subject.session.enter(rest.entry());
                }
                code.push(rest);
            }
            let inside = match effect {
                MemoryEffect::Protected => mapped_code(subject.process, &[common(&range, changed)])?,
                MemoryEffect::Written if !self.allowed => {
                    Self::protect(subject, thread, &common(&range, changed), protection)?;
                    Vec::new()
                }
                MemoryEffect::Written | MemoryEffect::Replaced => Vec::new(),
            };
            // Code that could be written from the start is stepped as it is.
            for inside in inside.into_iter().filter(|inside| (inside.protection & !protection) & libc::PROT_WRITE == 0) {
                if !self.allowed {
                    Self::forbid_code(subject, thread, &inside)?;
                }
                code.push(inside);
            }
        }
        self.code = code;
        Ok(())
    }

    /// A thread begins; it and all others are stopped. In a static program it stands before its first instruction already.
    ///
    /// # Errors
    /// It is gone, or the step cannot be stored.
    pub fn begin_thread(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        number: ThreadNumber,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        self.threads.insert(thread, Stepped::default());
        if self.threads.len() > 1 {
            self.step_everywhere(subject, thread)?;
        }
        self.step(subject, (thread, number), Arrival::Next, images, sink)
    }

    /// Steps libraries, too, from now on: no system call is made for that any more.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn step_everywhere(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        self.everywhere = true;
        self.allow(subject, thread)
    }

    /// A thread is gone.
    pub fn end_thread(&mut self, thread: Tid) {
        self.threads.remove(&thread);
    }

    /// How a thread goes on.
    pub fn resume(&self, thread: Tid) -> Resume {
        match self.threads.get(&thread) {
            Some(stepped) if (stepped.stepping || self.everywhere) && !stepped.call => Resume::Step,
            _ => Resume::ToSystemCall,
        }
    }

    /// Whether a stopped thread stands at an instruction that is recorded already.
    pub fn is_recorded(&self, thread: Tid, at: u64) -> bool {
        self.is_inside(at) && self.threads.get(&thread).is_some_and(|stepped| stepped.stepping && stepped.last == at)
    }

    /// A stopped thread is about to begin a handler of a signal: it is stepped, wherever it stands. The handler may be code of the image,
    /// and block the signal by which unexecutable code is noticed.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn before_handler(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        if let Some(stepped) = self.threads.get_mut(&thread) {
            let own = ptrace::registers(thread)?.eflags & TRAP_FLAG != 0;
            *stepped = Stepped { stepping: true, call: false, traps_itself: own, pushes_flags: None, makes: OwnFlag::Unknown, ..*stepped };
            self.allow(subject, thread)?;
        }
        Ok(())
    }

    /// Whether a signal that a thread is about to get comes from stepping alone: a trap of a step, or the fault at unexecutable code of the
    /// image.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn is_own(&self, thread: Tid, signal: i32) -> io::Result<bool> {
        match signal {
            libc::SIGTRAP => {
                let code = ptrace::signal_code(thread)?;
                Ok(code > 0 && code != BY_BREAKPOINT && !(code == BY_TRAP_FLAG && self.traps_itself(thread)?))
            }
            libc::SIGSEGV => Ok(!self.allowed && self.is_inside(ptrace::instruction_pointer(thread)?)),
            _ => Ok(false),
        }
    }

    /// What a signal stop is.
    ///
    /// # Errors
    /// The thread is gone, or the step cannot be stored.
    pub fn trap(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        number: ThreadNumber,
        signal: i32,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<Trap, CollectError> {
        let Some(stepped) = self.threads.get(&thread).copied() else { return Ok(Trap::Foreign) };
        let stepping = stepped.stepping || self.everywhere;
        match signal {
            libc::SIGTRAP if stepping => {
                let code = ptrace::signal_code(thread)?;
                if code == AT_HANDLER && !stepped.traps_itself {
                    hide_trap_flag(subject, ptrace::stack_pointer(thread)? + SAVED_FLAGS)?;
                }
                if code == BY_BREAKPOINT || code <= 0 || (code == BY_TRAP_FLAG && stepped.traps_itself) {
                    return Ok(Trap::Foreign);
                }
                Ok(Trap::Recorded(self.step(subject, (thread, number), Arrival::Next, images, sink)?))
            }
            libc::SIGSEGV if !stepping && self.is_inside(ptrace::instruction_pointer(thread)?) => {
                self.allow(subject, thread)?;
                Ok(Trap::Recorded(self.step(subject, (thread, number), Arrival::Next, images, sink)?))
            }
            _ => Ok(Trap::Foreign),
        }
    }

    /// A system call has ended. `again`: it has brought the thread back from a handler, to an instruction that is recorded already.
    ///
    /// # Errors
    /// The thread is gone, or the step cannot be stored.
    pub fn after_system_call(
        &mut self,
        subject: &TracedProcess,
        (thread, number): (Tid, ThreadNumber),
        again: bool,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        let Some(stepped) = self.threads.get(&thread) else { return Ok(SinkFlow::GoOn) };
        let stepping = stepped.stepping || self.everywhere;
        let came_back = !stepping && self.is_inside(ptrace::instruction_pointer(thread)?);
        match stepping || came_back || ptrace::is_blocked(thread, libc::SIGSEGV) {
            true => self.step(subject, (thread, number), if again { Arrival::Recorded } else { Arrival::Resumed }, images, sink),
            false => Ok(SinkFlow::GoOn),
        }
    }

    /// A thread stands before an instruction.
    fn step(
        &mut self,
        subject: &TracedProcess,
        (thread, number): (Tid, ThreadNumber),
        arrival: Arrival,
        images: &Images,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        let registers = ptrace::registers(thread)?;
        let at = registers.rip;
        let inside = self.is_inside(at);
        let last = self.threads.get(&thread).copied().unwrap_or_default();
        let traps_itself = own_trap_flag(thread, &registers, last, arrival)?;
        if last.pushes_flags == Some(at) && !last.traps_itself {
            hide_trap_flag(subject, registers.rsp)?;
        }
        // A fault for which a program blocks the signal takes its handler away.
        if !inside && !self.everywhere && !ptrace::is_blocked(thread, libc::SIGSEGV) {
            self.threads.insert(thread, Stepped::default());
            self.forbid(subject, thread)?;
            return Ok(SinkFlow::GoOn);
        }
        self.allow(subject, thread)?;
        let code = subject.memory.read_some(at, LONGEST_INSTRUCTION as usize);
        let instruction = decode(&code, at);
        let pushes = instruction.filter(|i| matches!(i.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq));
        let stepped = Stepped {
            stepping: true,
            last: at,
            call: code.starts_with(&[0x0f, 0x05]),
            traps_itself,
            pushes_flags: pushes.map(|i| i.next_ip()),
            makes: makes_own_flag(subject, instruction.as_ref(), registers.rsp),
        };
        self.threads.insert(thread, stepped);
        // A repeated string instruction stops at each repetition.
        let repetition = at == last.last && matches!(code.first(), Some(0xf2 | 0xf3));
        if !inside || repetition || arrival == Arrival::Recorded {
            return Ok(SinkFlow::GoOn);
        }
        let leads = instruction.and_then(|i| branch(&i)).is_some_and(|b| !matches!(b, BranchInstruction::System | BranchInstruction::Stop));
        let (leads, resumed) = (if leads { TRANSFER } else { 0 }, if arrival == Arrival::Resumed { RESUMED } else { 0 });
        Ok(sink.record(number, images.in_file(at) | leads | resumed)?)
    }

    /// Whether the program itself has the trap of a stopped thread's last instruction, stepped or not.
    fn traps_itself(&self, thread: Tid) -> io::Result<bool> {
        match self.threads.get(&thread) {
            Some(stepped) if stepped.stepping || self.everywhere => Ok(stepped.traps_itself),
            _ => Ok(true),
        }
    }

    fn is_inside(&self, address: u64) -> bool {
        self.code.iter().any(|c| c.range.contains(&address))
    }

    /// Makes the image's code run again.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn allow(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        if self.allowed {
            return Ok(());
        }
        for code in &self.code {
            Self::protect(subject, thread, &code.range, code.protection)?;
            let pages = pages(&code.range);
            subject.session.remove(|entry| matches!(entry, JournalEntry::Protection(range, _) if *range == pages));
        }
        self.allowed = true;
        Ok(())
    }

    /// Makes the image's code run in a child's copy of the memory, which is not followed.
    ///
    /// # Errors
    /// The child is gone.
    pub fn allow_in_child(&self, subject: &TracedProcess, child: Tid) -> Result<(), CollectError> {
        match self.allowed {
            true => Ok(()),
            false => self.code.iter().try_for_each(|code| Self::protect(subject, child, &code.range, code.protection)),
        }
    }

    fn forbid(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        if !self.allowed {
            return Ok(());
        }
        self.allowed = false;
        self.code.iter().try_for_each(|code| Self::forbid_code(subject, thread, code))
    }

    fn forbid_code(subject: &TracedProcess, thread: Tid, code: &SteppedCode) -> Result<(), CollectError> {
        subject.session.enter(code.entry());
        Self::protect(subject, thread, &code.range, code.protection & !libc::PROT_EXEC)
    }

    fn protect(subject: &TracedProcess, thread: Tid, code: &Range<u64>, protection: i32) -> Result<(), CollectError> {
        let Range { start, end } = pages(code);
        let result = subject.inject(thread, Some(subject.area), libc::SYS_mprotect, [start, end - start, protection as u64, 0, 0, 0])?;
        match result {
            0 => Ok(()),
            _ => Err(CollectError::Unexpected { what: format!("mprotect of the image's code gave {result}") }),
        }
    }
}

impl SteppedCode {
    /// What undoes that it cannot run.
    fn entry(&self) -> JournalEntry {
        JournalEntry::Protection(pages(&self.range), self.protection)
    }
}

/// What of some code can run, mapping by mapping.
fn mapped_code(process: Tid, code: &[Range<u64>]) -> io::Result<Vec<SteppedCode>> {
    let mappings = mappings(process)?;
    let of = |code: &Range<u64>| {
        let parts = mappings.iter().filter(|mapping| mapping.executable).map(|m| (common(code, &(m.start..m.end)), m.protection));
        parts.filter(|(range, _)| !range.is_empty()).map(|(range, protection)| SteppedCode { range, protection }).collect::<Vec<_>>()
    };
    Ok(code.iter().flat_map(of).collect())
}

/// Whether the program itself has set the trap flag, of a thread that has come to an instruction. The kernel hides the flag that it sets
/// for a step, and only that, except around `popf`, which it takes for an instruction that sets the flag: there it is corrected.
fn own_trap_flag(thread: Tid, registers: &Registers, last: Stepped, arrival: Arrival) -> io::Result<bool> {
    let shown = registers.eflags & TRAP_FLAG != 0;
    let own = match last.makes {
        OwnFlag::Popped(own) if arrival == Arrival::Next && last.stepping => own,
        OwnFlag::Kept if arrival == Arrival::Next && last.stepping => last.traps_itself,
        _ => shown,
    };
    if own != shown {
        let flag = if own { TRAP_FLAG } else { 0 };
        ptrace::set_registers(thread, &Registers { eflags: registers.eflags & !TRAP_FLAG | flag, ..*registers })?;
    }
    Ok(own)
}

/// What an instruction makes of the program's own trap flag.
fn makes_own_flag(subject: &TracedProcess, instruction: Option<&Instruction>, stack_pointer: u64) -> OwnFlag {
    let popped = || match subject.memory.read_some(stack_pointer + 1, 1).as_slice() {
        [flags] => OwnFlag::Popped(flags & (TRAP_FLAG >> 8) as u8 != 0),
        _ => OwnFlag::Unknown,
    };
    match instruction.map(Instruction::mnemonic) {
        Some(Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq) => popped(),
        None | Some(Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq | Mnemonic::Syscall | Mnemonic::Int) => OwnFlag::Unknown,
        Some(_) => OwnFlag::Kept,
    }
}

/// Clears the trap flag in flags that have been pushed.
fn hide_trap_flag(subject: &TracedProcess, stack_pointer: u64) -> io::Result<()> {
    let place = stack_pointer + 1;
    match subject.memory.read_some(place, 1).as_slice() {
        [byte] => subject.memory.write(place, &[byte & !((TRAP_FLAG >> 8) as u8)]),
        _ => Ok(()),
    }
}
