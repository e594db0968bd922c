//! What a collection watches in a subject: breakpoints in slots, hardware breakpoints, every instruction, or nothing.
//!
//! The loop that follows a subject asks here what a trap means and how a thread goes on; everything else is the same for all collectors.
// Length: one match over the kinds of watching for each thing that happens to a subject.

use crate::CollectError;
use crate::breakpoints::{BreakpointSite, Breakpoints, InSlot};
use crate::hardware::HardwareBreakpoints;
use crate::images::{Image, Images, Library, sites_of};
use crate::journal::TrapAction;
use crate::memory::{Memory, MemoryEffect, common, outside, overlap, pages};
use crate::ptrace::{self, Resume, Tid};
use crate::run::TraceRun;
use crate::session::Session;
use crate::single_step::Stepping;
use crate::sink::{NOWHERE, Sink, SinkFlow, ThreadNumber, Trap};
use crate::stack::Unwinding;
use crate::subject::{AREA, Executable, TracedProcess};
use crate::trampolines::Trampolines;
use crate::uprobes::Uprobes;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use trodden_binary::Binary;
use trodden_binary::linked::in_file;

/// What is watched.
#[derive(Debug)]
pub struct Watch<'a> {
    run: &'a TraceRun<'a>,
    /// The files that are in memory.
    images: Images,
    what: Watched,
    session: Rc<Session>,
    /// Code that the program has changed, or was about to, in memory: it is not watched any more.
    released: Vec<Range<u64>>,
    /// The same as addresses of the files.
    changed_code: Vec<Range<u64>>,
    unwinding: Unwinding,
}

/// Kinds of watching.
#[derive(Debug)]
pub enum Watched {
    /// Nothing: a run for its system calls.
    Nothing,
    /// `int3` at sites, and slots.
    Breakpoints(Breakpoints),
    /// Copies of blocks that record themselves.
    Trampolines(Box<Trampolines>),
    /// Debug registers.
    Hardware(HardwareBreakpoints),
    /// Probes of the kernel, and breakpoints where they cannot be.
    Uprobes(Uprobes, Breakpoints),
    /// Every instruction of the image.
    Steps(Stepping),
}
/// `si_code` of a trap by `int3`: SI_KERNEL.
const BY_BREAKPOINT: i32 = 0x80;

impl<'a> Watch<'a> {
    /// Watches something in a program.
    pub fn new(run: &'a TraceRun<'a>, subject: &TracedProcess, what: Watched) -> Self {
        Self {
            run,
            images: Images::new(subject, run.executable),
            what,
            session: subject.session.clone(),
            released: Vec::new(),
            changed_code: Vec::new(),
            unwinding: Unwinding::default(),
        }
    }

    /// Whether an address in memory is code that is watched.
    pub fn is_code(&self, address: u64) -> bool {
        self.images.at(address).is_some()
    }

    /// The address of the file for one in memory.
    pub fn in_file(&self, address: u64) -> u64 {
        self.images.in_file(address)
    }

    /// A library has been mapped, before anything of it has run, by a thread that is stopped behind its system call. Gives what was mapped
    /// for it.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn map(&mut self, subject: &TracedProcess, thread: Tid, library: &Library, start: u64) -> Result<Option<Image>, CollectError> {
        let Some(view) = self.images.add(subject, thread, library, start)? else { return Ok(None) };
        let image = self.images.last().clone();
        let (run, executable) = (self.run, &library.executable);
        match &mut self.what {
            Watched::Breakpoints(breakpoints) => breakpoints.add(&view, executable, &sites_of(image.number, run.sites), run.jumps)?,
            Watched::Trampolines(trampolines) => trampolines.add(&view, run, executable, image.number)?,
            Watched::Steps(steps) => steps.add(subject, thread, &image)?,
            Watched::Nothing | Watched::Hardware(_) | Watched::Uprobes(..) => {}
        }
        Ok(Some(image))
    }

    /// Memory has been unmapped; gives the libraries that are gone with it.
    pub fn unmap(&mut self, unmapped: &Range<u64>) -> Vec<Image> {
        let gone = self.images.forget(unmapped);
        for image in &gone {
            match &mut self.what {
                Watched::Breakpoints(breakpoints) => breakpoints.forget(&(image.area..image.area + AREA)),
                Watched::Trampolines(trampolines) => trampolines.forget(image),
                Watched::Steps(steps) => steps.forget(image),
                Watched::Nothing | Watched::Hardware(_) | Watched::Uprobes(..) => {}
            }
        }
        gone
    }

    /// Code in these pages that is watched, as far as it has not been released before, library by library. Of a library of which a
    /// part is unmapped it is all code.
    pub fn watched_in(&self, changed: &Range<u64>, is_unmapped: bool) -> Vec<Range<u64>> {
        let mut watched = Vec::new();
        for image in self.images.all() {
            let is_touched = image.code.iter().any(|code| overlap(code, changed));
            let is_gone = image.code.iter().all(|code| common(code, changed) == *code);
            match image.number > 0 && is_unmapped {
                // The memory of a library that is unmapped needs nothing taken out.
                true if !is_touched || is_gone => {}
                true => watched.extend(image.code.iter().cloned()),
                false => watched.extend(image.code.iter().map(|code| common(code, changed)).filter(|range| !range.is_empty())),
            }
        }
        for released in &self.released {
            watched = watched.iter().flat_map(|range| outside(range, released)).collect();
        }
        watched
    }

    /// Pages of a file's code in memory that differ from the file, changes of this session aside.
    ///
    /// # Errors
    /// The file or the memory cannot be read.
    pub fn changed_pages(&self, memory: &Memory, executable: &Executable) -> Result<Vec<Range<u64>>, CollectError> {
        let path = executable.path.clone();
        let binary = Binary::read(&path).map_err(|e| CollectError::Executable { path, fault: e.to_string() })?;
        let mut changed = Vec::new();
        for code in &executable.code {
            // The file is at number 0 for itself.
            let Some(image) = self.images.all().iter().find(|image| image.number == in_file(code.start).0) else { continue };
            let mut at = code.start;
            while let Some(expected) = binary.code_at(in_file(at).1).filter(|expected| at < code.end && !expected.is_empty()) {
                let start = at.wrapping_add(image.bias);
                let length = expected.len().min((0x1000 - start % 0x1000) as usize);
                let mut found = memory.read_some(start, length);
                self.session.hide_changes(start, &mut found);
                if found != expected[..length] {
                    changed.push(start..start + length as u64);
                }
                at += length as u64;
            }
        }
        Ok(changed)
    }

    /// Whether something is written into the code that is watched.
    pub fn changes_code(&self) -> bool {
        matches!(&self.what, Watched::Breakpoints(_) | Watched::Trampolines(_) | Watched::Uprobes(..))
    }

    /// Watches code no more that the program is about to change, and takes out what was written there. All threads are stopped; where they
    /// stand is put right by [`Watch::leave_released`].
    ///
    /// # Errors
    /// The process is gone, or what was seen cannot be stored.
    pub fn release(&mut self, subject: &TracedProcess, range: &Range<u64>, sink: &mut dyn Sink) -> io::Result<()> {
        self.changed_code.push(self.images.in_file(range.start)..self.images.in_file(range.end - 1) + 1);
        self.released.push(range.clone());
        match &mut self.what {
            Watched::Breakpoints(breakpoints) => breakpoints.release(range, &subject.memory),
            Watched::Trampolines(trampolines) => trampolines.release(range, subject),
            Watched::Hardware(hardware) => {
                hardware.release(range);
                Ok(())
            }
            Watched::Uprobes(probes, rest) => {
                drain(probes, sink)?;
                // The kernel takes out all or none.
                probes.end();
                rest.release(range, &subject.memory)
            }
            // These know it from what the system call has done.
            Watched::Steps(_) | Watched::Nothing => Ok(()),
        }
    }

    /// Lets a stopped thread that stands in a slot or copy of released code stand in the image: see [`Trampolines::leave_released`].
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn leave_released(&self, thread: Tid, step: &dyn Fn() -> Result<bool, CollectError>) -> Result<(), CollectError> {
        match &self.what {
            Watched::Breakpoints(breakpoints) | Watched::Uprobes(_, breakpoints) => breakpoints.leave_released(thread, step),
            Watched::Trampolines(trampolines) => trampolines.leave_released(thread, step),
            _ => Ok(()),
        }
    }

    /// A system call of a stopped thread has changed memory.
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
        match &mut self.what {
            Watched::Steps(steps) => steps.note_change(subject, thread, &pages(changed), effect),
            _ => Ok(()),
        }
    }

    /// The code that was released, as addresses of the files, ascending.
    pub fn changed_code(&self) -> Vec<Range<u64>> {
        let mut all = self.changed_code.clone();
        all.sort_unstable_by_key(|range| range.start);
        all.dedup_by(|next, range| {
            range.end == next.start && {
                range.end = next.end;
                true
            }
        });
        all
    }

    /// Libraries that are watched.
    pub fn libraries(&self) -> &'a [Library] {
        self.run.libraries
    }

    /// A thread begins to be recorded; it is stopped.
    ///
    /// # Errors
    /// It cannot be prepared.
    pub fn begin_thread(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        number: ThreadNumber,
        sink: &mut dyn Sink,
    ) -> Result<(), CollectError> {
        match &mut self.what {
            Watched::Trampolines(trampolines) => trampolines.begin_thread(thread, number),
            Watched::Hardware(hardware) => hardware.begin_thread(&self.session, thread),
            Watched::Uprobes(probes, _) => {
                probes.begin_thread(thread, number.0);
                Ok(())
            }
            Watched::Steps(steps) => steps.begin_thread(subject, thread, number, &self.images, sink).map(drop),
            _ => Ok(()),
        }
    }

    /// A thread is gone.
    ///
    /// # Errors
    /// What it has seen cannot be stored.
    pub fn end_thread(&mut self, thread: Tid, sink: &mut dyn Sink) -> io::Result<()> {
        match &mut self.what {
            Watched::Steps(steps) => steps.end_thread(thread),
            Watched::Trampolines(trampolines) => trampolines.end_thread(thread, sink)?,
            Watched::Uprobes(probes, _) => {
                drain(probes, sink)?;
                probes.end_thread(thread);
            }
            _ => {}
        }
        Ok(())
    }

    /// The collection is over, and nothing runs that is watched.
    ///
    /// # Errors
    /// What was seen cannot be stored.
    pub fn end_all(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        match &mut self.what {
            Watched::Trampolines(trampolines) => trampolines.end_all(sink),
            Watched::Uprobes(probes, _) => drain(probes, sink).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// What is mapped into the subject, besides the area of slots.
    pub fn mapped(&self) -> Vec<Range<u64>> {
        let own = match &self.what {
            Watched::Trampolines(trampolines) => Some(trampolines.span()),
            Watched::Uprobes(probes, _) => probes.mapped(),
            _ => None,
        };
        own.into_iter().chain(self.images.areas()).collect()
    }

    /// Whether an address in memory is in a copy of the image's code.
    pub fn is_copy(&self, address: u64) -> bool {
        matches!(&self.what, Watched::Trampolines(trampolines) if trampolines.is_copy(address))
    }

    /// Lets a stopped thread stand in the image and not in a copy: see [`Trampolines::leave_copy`].
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn leave_copy(&mut self, subject: &TracedProcess, thread: Tid, all: bool, caused: bool) -> Result<bool, CollectError> {
        match &mut self.what {
            Watched::Trampolines(trampolines) => trampolines.leave_copy(subject, thread, all, caused),
            _ => Ok(false),
        }
    }

    /// Whether a stopped thread stands at an instruction that is recorded because each one is.
    pub fn is_stepped(&self, thread: Tid, at: u64) -> bool {
        matches!(&self.what, Watched::Steps(steps) if steps.is_recorded(thread, at))
    }

    /// A stopped thread is about to begin a handler of a signal.
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn before_handler(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        match &mut self.what {
            Watched::Steps(steps) => steps.before_handler(subject, thread),
            _ => Ok(()),
        }
    }

    /// How a recorded thread goes on.
    pub fn resume(&self, thread: Tid) -> Resume {
        match &self.what {
            Watched::Steps(steps) => steps.resume(thread),
            _ => Resume::ToSystemCall,
        }
    }

    /// What a signal stop is; a hit is recorded, and the thread made ready to go on.
    ///
    /// # Errors
    /// The thread cannot be followed, or the hit not be stored.
    pub fn trap(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        number: ThreadNumber,
        signal: i32,
        sink: &mut dyn Sink,
    ) -> Result<Trap, CollectError> {
        let trap = match &mut self.what {
            Watched::Nothing => Trap::Foreign,
            Watched::Hardware(hardware) => hardware.trap(thread, number, signal, sink)?,
            Watched::Steps(steps) => steps.trap(subject, thread, number, signal, &self.images, sink)?,
            Watched::Uprobes(probes, _) if Uprobes::is_own(thread, signal)? => Trap::Recorded(drain(probes, sink)?),
            Watched::Uprobes(..) if signal != libc::SIGTRAP => Trap::Foreign,
            Watched::Uprobes(probes, rest) => match breakpoint_hit(rest, thread)? {
                Some(site) => {
                    // What came before it comes before it.
                    drain(probes, sink)?;
                    Trap::Recorded(record_hit((rest, &self.images), subject, (thread, number), site, sink)?)
                }
                None => Trap::Foreign,
            },
            Watched::Breakpoints(_) | Watched::Trampolines(_) if signal != libc::SIGTRAP => Trap::Foreign,
            Watched::Trampolines(trampolines) => {
                trampolines.trap(subject, thread, &self.images, sink)?.map_or(Trap::Foreign, Trap::Recorded)
            }
            Watched::Breakpoints(breakpoints) => match breakpoint_hit(breakpoints, thread)? {
                Some(site) => Trap::Recorded(record_hit((breakpoints, &self.images), subject, (thread, number), site, sink)?),
                None => Trap::Foreign,
            },
        };
        if let Trap::Recorded(_) = trap {
            // A trap while the signal is blocked or ignored makes the kernel forget what the program wants on it.
            if !self.session.is_filtered() {
                self.session.restore_trap_action(thread)?;
            }
        }
        Ok(trap)
    }

    /// A stop that was waiting when the collection ended: a hit is undone, and happens again without a breakpoint.
    /// Gives the signal to deliver.
    ///
    /// # Errors
    /// The thread cannot be followed.
    pub fn undo_hit(&mut self, thread: Tid, signal: i32) -> Result<i32, CollectError> {
        match &mut self.what {
            Watched::Breakpoints(breakpoints) | Watched::Uprobes(_, breakpoints) if signal == libc::SIGTRAP => {
                match breakpoint_hit(breakpoints, thread)? {
                    Some(site) => {
                        ptrace::set_instruction_pointer(thread, breakpoints.address(site))?;
                        Ok(0)
                    }
                    None => Ok(signal),
                }
            }
            Watched::Trampolines(trampolines) if signal == libc::SIGTRAP => Ok(if trampolines.undo_trap(thread)? { 0 } else { signal }),
            Watched::Steps(steps) => Ok(if steps.is_own(thread, signal)? { 0 } else { signal }),
            Watched::Hardware(_) if signal == libc::SIGTRAP => Ok(0),
            Watched::Uprobes(..) if Uprobes::is_own(thread, signal)? => Ok(0),
            _ => Ok(signal),
        }
    }

    /// What of its instruction a thread in a slot has done.
    pub fn in_slot(&self, instruction_pointer: u64) -> Option<InSlot> {
        match &self.what {
            Watched::Breakpoints(breakpoints) | Watched::Uprobes(_, breakpoints) => breakpoints.in_slot(instruction_pointer),
            _ => None,
        }
    }

    /// Takes breakpoints and jumps out of a child's copy of the memory.
    ///
    /// # Errors
    /// The child is gone.
    pub fn clean(&self, memory: &Memory) -> io::Result<()> {
        match &self.what {
            Watched::Trampolines(trampolines) => trampolines.remove(memory),
            _ => self.session.restore_code(memory),
        }
    }

    /// Undoes in a child's copy of the memory what else was done to the image; the child is stopped, and is not followed.
    ///
    /// # Errors
    /// The child is gone.
    pub fn leave_child(&self, subject: &TracedProcess, child: Tid) -> Result<(), CollectError> {
        match &self.what {
            Watched::Steps(steps) => steps.allow_in_child(subject, child),
            _ => Ok(()),
        }
    }

    /// Takes the kernel's probes out: the subject is another program from now on, or goes on by itself.
    pub fn end_probes(&mut self) {
        if let Watched::Uprobes(probes, _) = &mut self.what {
            probes.end();
        }
    }

    /// The program is about to filter its system calls; its thread is stopped where one can be made in its name for the last time.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn before_filter(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        match &mut self.what {
            Watched::Steps(steps) => steps.step_everywhere(subject, thread),
            _ => Ok(()),
        }
    }

    /// A system call begins.
    ///
    /// # Errors
    /// The program takes for itself what the watch needs.
    pub fn note_system_call(&mut self, number: u64, arguments: &[u64; 6], memory: &Memory) -> Result<(), CollectError> {
        const SET_GS: u64 = 0x1001;
        if number as i64 == libc::SYS_arch_prctl && arguments[0] == SET_GS && matches!(self.what, Watched::Trampolines(_)) {
            return Err(CollectError::Unexpected { what: "it uses the register gs itself: take `--collector ptrace`".to_owned() });
        }
        let [signal, action, ..] = *arguments;
        if number as i64 == libc::SYS_rt_sigaction && signal == libc::SIGTRAP as u64 && action != 0 {
            self.session.set_trap_action(memory.read_some(action, size_of::<TrapAction>()).try_into().ok());
        }
        Ok(())
    }

    /// A system call has ended. `again`: it has brought the thread back from a handler, to an instruction that is recorded already.
    ///
    /// # Errors
    /// The thread is gone, or what is seen cannot be stored.
    pub fn after_system_call(
        &mut self,
        subject: &TracedProcess,
        (thread, number): (Tid, ThreadNumber),
        again: bool,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        match &mut self.what {
            Watched::Steps(steps) => return steps.after_system_call(subject, (thread, number), again, &self.images, sink),
            Watched::Breakpoints(breakpoints) | Watched::Uprobes(_, breakpoints) if again => {
                if let Some(site) = breakpoints.at(ptrace::instruction_pointer(thread)?) {
                    ptrace::set_instruction_pointer(thread, breakpoints.slot(site))?;
                }
            }
            Watched::Trampolines(trampolines) => trampolines.after_system_call(thread, again)?,
            _ => {}
        }
        Ok(SinkFlow::GoOn)
    }

    /// Return addresses on a stopped thread's stack that lead to the image, innermost first; where it stands itself comes first.
    pub fn stack(&mut self, subject: &TracedProcess, thread: Tid) -> Vec<u64> {
        let original = |address| match &self.what {
            Watched::Trampolines(trampolines) => trampolines.original(address),
            _ => address,
        };
        self.unwinding.walk(&self.images, subject, thread, original).unwrap_or_default()
    }
}

/// Records what probes have seen.
fn drain(probes: &Uprobes, sink: &mut dyn Sink) -> io::Result<SinkFlow> {
    let mut flow = SinkFlow::GoOn;
    probes.take(|thread, site| {
        if sink.record(ThreadNumber(thread), site)? == SinkFlow::Enough {
            flow = SinkFlow::Enough;
        }
        Ok(())
    })?;
    Ok(flow)
}

/// Records a hit, and sends the thread to the slot.
fn record_hit(
    (breakpoints, images): (&Breakpoints, &Images),
    subject: &TracedProcess,
    (thread, number): (Tid, ThreadNumber),
    site: BreakpointSite,
    sink: &mut dyn Sink,
) -> Result<SinkFlow, CollectError> {
    ptrace::set_instruction_pointer(thread, breakpoints.slot(site))?;
    let flow = sink.record(number, u64::from(breakpoints.number(site)))?;
    if breakpoints.is_jump(site) {
        let to = subject.step_out(thread, |at| breakpoints.in_slot(at).is_some())?;
        return Ok(sink.record(number, to.map_or(NOWHERE, |to| images.in_file(to)))?);
    }
    Ok(flow)
}

/// The site that a thread has trapped at.
fn breakpoint_hit(breakpoints: &Breakpoints, thread: Tid) -> Result<Option<BreakpointSite>, CollectError> {
    let Some(site) = breakpoints.hit(ptrace::instruction_pointer(thread)?) else { return Ok(None) };
    let own = !breakpoints.is_ambiguous(site) || ptrace::signal_code(thread)? == BY_BREAKPOINT;
    Ok(own.then_some(site))
}
