//! What a collector watches in the traced program: breakpoints with slots, copies of blocks that record themselves, debug registers,
//! uprobes, every instruction, or nothing.
//!
//! The loop that follows the program asks here what a trap means and how a thread resumes. Everything else in that loop is the same for
//! all collectors.
// Length: for each event of the program, one match over the kinds of watching.

use crate::CollectError;
use crate::breakpoints::{BreakpointSite, Breakpoints, SlotProgress};
use crate::hardware::HardwareBreakpoints;
use crate::images::{Image, Images, Library, sites_of};
use crate::memory::{Memory, MemoryEffect, do_ranges_overlap, intersect_ranges, parts_outside_range, round_to_whole_pages};
use crate::ptrace::{self, ResumeMode, Tid};
use crate::run::{ParkedReceiver, TraceRun};
use crate::session::Session;
use crate::signal_state::{SignalAction, process_of};
use crate::single_step::SingleStepping;
use crate::sink::{NO_ADDRESS, Sink, SinkFlow, ThreadNumber, TrapOutcome};
use crate::stack::StackUnwinder;
use crate::subject::{Executable, FREE_SLOT_OFFSET, TracedProcess};
use crate::trampolines::Trampolines;
use crate::uprobes::Uprobes;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use trodden_binary::Binary;
use trodden_binary::linked::split_address;

/// The watched images of the traced program, and the means by which they are watched.
#[derive(Debug)]
pub struct Watch<'a> {
    run: &'a TraceRun<'a>,
    images: Images,
    means: WatchMeans,
    session: Rc<Session>,
    /// Ranges in memory that the program has changed or was about to change. They are no longer watched.
    released: Vec<Range<u64>>,
    /// The same ranges as file addresses.
    released_code: Vec<Range<u64>>,
    unwinding: StackUnwinder,
}

#[derive(Debug)]
pub enum WatchMeans {
    /// Nothing is watched: the run serves to record system calls.
    Nothing,
    /// `int3` at each site, with a slot for the displaced instruction.
    Breakpoints(Breakpoints),
    /// Copies of blocks that record themselves.
    Trampolines(Box<Trampolines>),
    Hardware(HardwareBreakpoints),
    /// Uprobes, with breakpoints at the sites where no uprobe can be placed.
    Uprobes(Uprobes, Breakpoints),
    Steps(SingleStepping),
}
/// `si_code` of a trap caused by `int3` (SI_KERNEL).
const SI_KERNEL: i32 = 0x80;

impl<'a> Watch<'a> {
    /// Starts watching the program's own image; libraries follow by [`Watch::map`].
    pub fn new(run: &'a TraceRun<'a>, subject: &TracedProcess, means: WatchMeans) -> Self {
        Self {
            run,
            images: Images::new(subject, run.executable),
            means,
            session: subject.session.clone(),
            released: Vec::new(),
            released_code: Vec::new(),
            unwinding: StackUnwinder::default(),
        }
    }

    /// Returns the receiver of processes that other runs are to trace.
    pub fn children(&self) -> Option<ParkedReceiver<'a>> {
        self.run.children
    }

    pub fn is_code(&self, address: u64) -> bool {
        self.images.image_at(address).is_some()
    }

    pub fn in_file(&self, address: u64) -> u64 {
        self.images.in_file(address)
    }

    /// Starts watching a library that `thread` has just mapped, before any of its code has run. The thread is stopped after its system
    /// call. Returns the image, or `None` if the library is not watched.
    pub fn map(&mut self, subject: &TracedProcess, thread: Tid, library: &Library, start: u64) -> Result<Option<Image>, CollectError> {
        let Some(view) = self.images.add(subject, thread, library, start, self.run.sites)? else { return Ok(None) };
        let image = self.images.last().clone();
        let (run, executable) = (self.run, &library.executable);
        match &mut self.means {
            WatchMeans::Breakpoints(breakpoints) => breakpoints.add(&view, executable, &sites_of(image.number, run.sites), run.jumps)?,
            WatchMeans::Trampolines(trampolines) => trampolines.add(&view, run, executable, image.number)?,
            WatchMeans::Steps(steps) => steps.add(subject, thread, &image)?,
            WatchMeans::Nothing | WatchMeans::Hardware(_) | WatchMeans::Uprobes(..) => {}
        }
        Ok(Some(image))
    }

    /// Stops watching the libraries whose code overlaps unmapped memory, and returns them.
    pub fn unmap(&mut self, unmapped: &Range<u64>, memory: &Memory) -> Vec<Image> {
        let gone = self.images.forget(unmapped);
        for image in &gone {
            match &mut self.means {
                WatchMeans::Breakpoints(breakpoints) => breakpoints.forget(&image.area),
                WatchMeans::Trampolines(trampolines) => trampolines.forget(image, memory),
                WatchMeans::Steps(steps) => steps.forget(image),
                WatchMeans::Nothing | WatchMeans::Hardware(_) | WatchMeans::Uprobes(..) => {}
            }
        }
        gone
    }

    /// Returns the watched code in these pages that has not been released yet, image by image. If part of a library is being unmapped,
    /// all of the library's code is returned.
    pub fn watched_ranges_in(&self, changed: &Range<u64>, is_unmapped: bool) -> Vec<Range<u64>> {
        let mut watched = Vec::new();
        for image in self.images.all() {
            let is_touched = image.code.iter().any(|code| do_ranges_overlap(code, changed));
            let is_gone = image.code.iter().all(|code| intersect_ranges(code, changed) == *code);
            match image.number > 0 && is_unmapped {
                // A library that is unmapped as a whole needs no patches removed.
                true if !is_touched || is_gone => {}
                true => watched.extend(image.code.iter().cloned()),
                false => watched.extend(image.code.iter().map(|code| intersect_ranges(code, changed)).filter(|range| !range.is_empty())),
            }
        }
        for released in &self.released {
            watched = watched.iter().flat_map(|range| parts_outside_range(range, released)).collect();
        }
        watched
    }

    /// Returns the pages of a file's code whose contents in memory differ from the file, apart from changes made by this session.
    pub fn changed_pages(&self, memory: &Memory, executable: &Executable) -> Result<Vec<Range<u64>>, CollectError> {
        let path = executable.path.clone();
        let binary = Binary::read(&path).map_err(|e| CollectError::Executable { path, fault: e.to_string() })?;
        let mut changed = Vec::new();
        for code in &executable.code {
            // `binary` was read by itself, so its addresses have no library number.
            let Some(image) = self.images.all().iter().find(|image| image.number == split_address(code.start).0) else { continue };
            let mut at = code.start;
            while let Some(expected) = binary.code_at(split_address(at).1).filter(|expected| at < code.end && !expected.is_empty()) {
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

    /// Hides what the collector has written into code from the program's own reads, as far as the processor allows. `thread` is stopped
    /// outside a system call.
    pub fn guard(&self, thread: Tid) -> Result<(), CollectError> {
        // The journal does not contain what the kernel writes for uprobes, so that cannot be hidden.
        if !matches!(&self.means, WatchMeans::Breakpoints(_) | WatchMeans::Trampolines(_)) {
            return Ok(());
        }
        let file = |number: usize| match number.checked_sub(1) {
            None => Some(self.run.executable),
            Some(library) => self.run.libraries.get(library).map(|library| &library.executable),
        };
        // The kernel reads the code of restartable sequences with the rights of the thread, so such code must not be guarded.
        let can_be = |image: &&Image| file(image.number).is_some_and(|file| !file.has_restartable_sequences);
        let images = self.images.all().iter().filter(can_be);
        self.session
            .guard_patched_code(thread, &images.map(|image| (image.code.clone(), image.area.start + FREE_SLOT_OFFSET)).collect::<Vec<_>>())
    }

    /// Returns true if the collector writes into the watched code.
    pub fn patches_code(&self) -> bool {
        matches!(&self.means, WatchMeans::Breakpoints(_) | WatchMeans::Trampolines(_) | WatchMeans::Uprobes(..))
    }

    /// Stops watching code that the program is about to change, and removes what was written there. All threads must be stopped;
    /// [`Watch::move_out_of_released_code`] then corrects their positions.
    pub fn release(&mut self, subject: &TracedProcess, range: &Range<u64>, sink: &mut dyn Sink) -> io::Result<()> {
        self.released_code.push(self.images.in_file(range.start)..self.images.in_file(range.end - 1) + 1);
        self.released.push(range.clone());
        match &mut self.means {
            WatchMeans::Breakpoints(breakpoints) => breakpoints.release(range, &subject.memory),
            WatchMeans::Trampolines(trampolines) => trampolines.release(range, subject),
            WatchMeans::Hardware(hardware) => {
                hardware.release(range);
                Ok(())
            }
            WatchMeans::Uprobes(probes, rest) => {
                record_probe_hits(probes, sink)?;
                // The kernel removes either all uprobes or none.
                probes.detach();
                rest.release(range, &subject.memory)
            }
            // These means of watching learn of the change in [`Watch::handle_memory_change`].
            WatchMeans::Steps(_) | WatchMeans::Nothing => Ok(()),
        }
    }

    /// Moves a stopped thread out of a slot or copy of released code: see [`Trampolines::move_out_of_released_code`].
    pub fn move_out_of_released_code(&self, thread: Tid, step: &dyn Fn() -> Result<bool, CollectError>) -> Result<(), CollectError> {
        match &self.means {
            WatchMeans::Breakpoints(breakpoints) | WatchMeans::Uprobes(_, breakpoints) => {
                breakpoints.move_out_of_released_code(thread, step)
            }
            WatchMeans::Trampolines(trampolines) => trampolines.move_out_of_released_code(thread, step),
            _ => Ok(()),
        }
    }

    pub fn handle_memory_change(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        changed: &Range<u64>,
        effect: MemoryEffect,
    ) -> Result<(), CollectError> {
        match &mut self.means {
            WatchMeans::Steps(steps) => steps.handle_memory_change(subject, thread, &round_to_whole_pages(changed), effect),
            _ => Ok(()),
        }
    }

    /// Returns the released ranges that `is_meant` selects, as file addresses, ascending. Adjacent ranges are joined.
    pub fn released_code(&self, is_meant: impl Fn(&Range<u64>) -> bool) -> Vec<Range<u64>> {
        let mut all: Vec<Range<u64>> = self.released_code.iter().filter(|range| is_meant(range)).cloned().collect();
        all.sort_unstable_by_key(|range| range.start);
        all.dedup_by(|next, range| {
            range.end == next.start && {
                range.end = next.end;
                true
            }
        });
        all
    }

    /// Returns the file addresses of code in which the program can see the collector's changes, because it reads data there, and true if
    /// it may have seen any of the changes at times.
    pub fn visible_code(&self) -> (Vec<Range<u64>>, bool) {
        let guard = self.session.guard();
        let in_file = |range: &Range<u64>| self.images.in_file(range.start)..self.images.in_file(range.end - 1) + 1;
        (guard.readable.iter().map(in_file).collect(), guard.ends_early)
    }

    pub fn libraries(&self) -> &'a [Library] {
        self.run.libraries
    }

    /// Starts recording a thread, which is stopped.
    pub fn begin_thread(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        number: ThreadNumber,
        sink: &mut dyn Sink,
    ) -> Result<(), CollectError> {
        match &mut self.means {
            WatchMeans::Trampolines(trampolines) => trampolines.begin_thread(thread, number, sink),
            WatchMeans::Hardware(hardware) => hardware.begin_thread(&self.session, thread),
            WatchMeans::Uprobes(probes, _) => {
                probes.begin_thread(thread, number.0);
                Ok(())
            }
            WatchMeans::Steps(steps) => steps.begin_thread(subject, thread, number, &self.images, sink).map(drop),
            _ => Ok(()),
        }
    }

    /// Records what is left of a thread that has ended.
    pub fn end_thread(&mut self, thread: Tid, sink: &mut dyn Sink) -> io::Result<()> {
        match &mut self.means {
            WatchMeans::Steps(steps) => steps.end_thread(thread),
            WatchMeans::Trampolines(trampolines) => trampolines.end_thread(thread, sink)?,
            WatchMeans::Uprobes(probes, _) => {
                record_probe_hits(probes, sink)?;
                probes.end_thread(thread);
            }
            _ => {}
        }
        Ok(())
    }

    /// Records what is left of all threads. No watched code runs any longer.
    pub fn end_all(&mut self, sink: &mut dyn Sink) -> io::Result<()> {
        match &mut self.means {
            WatchMeans::Trampolines(trampolines) => trampolines.end_all(sink),
            WatchMeans::Uprobes(probes, _) => record_probe_hits(probes, sink).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Returns the ranges that were mapped into the process for watching, apart from the slots of the program's own image.
    pub fn mapped(&self) -> Vec<Range<u64>> {
        let own = match &self.means {
            WatchMeans::Trampolines(trampolines) => Some(trampolines.span()),
            WatchMeans::Uprobes(probes, _) => probes.mapped(),
            _ => None,
        };
        own.into_iter().chain(self.images.areas()).collect()
    }

    pub fn is_copy(&self, address: u64) -> bool {
        matches!(&self.means, WatchMeans::Trampolines(trampolines) if trampolines.is_copy(address))
    }

    /// Moves a stopped thread from a copy to the image: see [`Trampolines::move_out_of_copy`].
    pub fn move_out_of_copy(&mut self, subject: &TracedProcess, thread: Tid, is_final: bool, is_fault: bool) -> Result<bool, CollectError> {
        match &mut self.means {
            WatchMeans::Trampolines(trampolines) => trampolines.move_out_of_copy(subject, thread, is_final, is_fault),
            _ => Ok(false),
        }
    }

    /// Returns true if a stopped thread is at an instruction that single-stepping has recorded already.
    pub fn is_recorded_step(&self, thread: Tid, at: u64) -> bool {
        matches!(&self.means, WatchMeans::Steps(steps) if steps.is_recorded(thread, at))
    }

    /// Prepares a stopped thread for the handler of a signal that it is about to run.
    pub fn prepare_for_handler(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        match &mut self.means {
            WatchMeans::Steps(steps) => steps.prepare_for_handler(subject, thread),
            _ => Ok(()),
        }
    }

    /// Prepares a stopped thread for running without being watched.
    pub fn prepare_for_end(&self, subject: &TracedProcess, thread: Tid) -> io::Result<()> {
        if let WatchMeans::Steps(steps) = &self.means { steps.prepare_for_end(subject, thread) } else { Ok(()) }
    }

    pub fn resume(&self, thread: Tid) -> ResumeMode {
        match &self.means {
            WatchMeans::Steps(steps) => steps.resume(thread),
            _ => ResumeMode::ToSystemCall,
        }
    }

    /// Decides what a signal stop means. A hit is recorded, and the thread is made ready to resume.
    pub fn handle_trap(
        &mut self,
        subject: &TracedProcess,
        thread: Tid,
        number: ThreadNumber,
        signal: i32,
        sink: &mut dyn Sink,
    ) -> Result<TrapOutcome, CollectError> {
        let is_merged = self.session.is_merged(thread, signal)?;
        let trap = match &mut self.means {
            WatchMeans::Nothing => TrapOutcome::Foreign,
            WatchMeans::Hardware(hardware) => hardware.handle_trap(thread, number, signal, sink)?,
            WatchMeans::Steps(steps) => steps.handle_trap(subject, thread, number, signal, &self.images, sink)?,
            WatchMeans::Uprobes(probes, _) if Uprobes::is_uprobe_signal(thread, signal)? => {
                TrapOutcome::Recorded(record_probe_hits(probes, sink)?)
            }
            WatchMeans::Uprobes(..) if signal != libc::SIGTRAP => TrapOutcome::Foreign,
            WatchMeans::Uprobes(probes, rest) => match breakpoint_hit(rest, thread, is_merged)? {
                Some(site) => {
                    // Hits of probes that came before this one must precede it.
                    record_probe_hits(probes, sink)?;
                    TrapOutcome::Recorded(record_hit((rest, &self.images), subject, (thread, number), site, sink)?)
                }
                None => TrapOutcome::Foreign,
            },
            WatchMeans::Breakpoints(_) if signal != libc::SIGTRAP => TrapOutcome::Foreign,
            WatchMeans::Trampolines(trampolines) if signal != libc::SIGTRAP => match trampolines.handle_stamp_fault(thread, signal)? {
                true => TrapOutcome::Recorded(SinkFlow::Continue),
                false => TrapOutcome::Foreign,
            },
            WatchMeans::Trampolines(trampolines) => {
                trampolines.handle_trap(subject, thread, is_merged, &self.images, sink)?.map_or(TrapOutcome::Foreign, TrapOutcome::Recorded)
            }
            WatchMeans::Breakpoints(breakpoints) => match breakpoint_hit(breakpoints, thread, is_merged)? {
                Some(site) => TrapOutcome::Recorded(record_hit((breakpoints, &self.images), subject, (thread, number), site, sink)?),
                None => TrapOutcome::Foreign,
            },
        };
        if let TrapOutcome::Recorded(_) = trap {
            // If the signal was blocked or ignored, the kernel has unblocked it and reset the action.
            self.session.restore_merged_signal(thread, signal)?;
            if !self.session.is_filtered() {
                self.session.restore_injected_trap(thread)?;
            }
            if is_merged {
                ptrace::send_signal_to_thread(thread, signal);
            }
        }
        Ok(trap)
    }

    /// Undoes a hit that has not been recorded yet when the collection ends, so that the original instruction is executed instead. Returns
    /// the signal to deliver, or 0.
    pub fn undo_recorded_hit(&mut self, thread: Tid, signal: i32) -> Result<i32, CollectError> {
        let is_merged = self.session.is_merged(thread, signal)?;
        let left = match &mut self.means {
            WatchMeans::Breakpoints(breakpoints) | WatchMeans::Uprobes(_, breakpoints) if signal == libc::SIGTRAP => {
                match breakpoint_hit(breakpoints, thread, is_merged)? {
                    Some(site) => {
                        ptrace::set_instruction_pointer(thread, breakpoints.address(site))?;
                        0
                    }
                    None => signal,
                }
            }
            WatchMeans::Trampolines(trampolines) if signal == libc::SIGTRAP => {
                if trampolines.undo_trap_of_copy(thread, is_merged)? {
                    0
                } else {
                    signal
                }
            }
            WatchMeans::Steps(steps) => {
                if steps.is_own(thread, signal)? {
                    0
                } else {
                    signal
                }
            }
            _ if self.session.is_code_fault(thread, signal) => 0,
            WatchMeans::Hardware(_) if signal == libc::SIGTRAP => 0,
            WatchMeans::Uprobes(..) if Uprobes::is_uprobe_signal(thread, signal)? => 0,
            _ => signal,
        };
        if is_merged {
            // The program's own signal is pending again, or still.
            ptrace::send_signal_to_thread(thread, signal);
        }
        let left = if is_merged { 0 } else { left };
        if left == 0 {
            self.session.restore_signal_masks(thread, 0)?;
        }
        Ok(left)
    }

    /// Returns how far a thread in a slot has executed the slot's instruction; `None` if it is not in a slot.
    pub fn slot_progress(&self, instruction_pointer: u64) -> Option<SlotProgress> {
        match &self.means {
            WatchMeans::Breakpoints(breakpoints) | WatchMeans::Uprobes(_, breakpoints) => breakpoints.slot_progress(instruction_pointer),
            _ => None,
        }
    }

    /// Removes breakpoints and jumps from a child's copy of the memory.
    pub fn restore_child_code(&self, memory: &Memory) -> io::Result<()> {
        match &self.means {
            WatchMeans::Trampolines(trampolines) => trampolines.remove_patches(memory),
            _ => self.session.restore_code(memory),
        }
    }

    /// Undoes all other changes to the image in a child's copy of the memory. The child is stopped, and will not be followed.
    pub fn restore_child_protection(&self, subject: &TracedProcess, child: Tid) -> Result<(), CollectError> {
        match &self.means {
            WatchMeans::Steps(steps) => steps.make_executable_in_child(subject, child),
            _ => self.session.unguard_child(child),
        }
    }

    /// Removes the uprobes: from now on the process executes a different program, or is no longer followed.
    pub fn detach_probes(&mut self) {
        if let WatchMeans::Uprobes(probes, _) = &mut self.means {
            probes.detach();
        }
    }

    /// Prepares for a program that is about to filter its system calls. Its thread is stopped, and this is the last chance to make a
    /// system call in its name.
    pub fn prepare_for_filter(&mut self, subject: &TracedProcess, thread: Tid) -> Result<(), CollectError> {
        match &mut self.means {
            WatchMeans::Steps(steps) => steps.start_stepping_libraries(subject, thread),
            _ => self.session.end_guard(thread),
        }
    }

    /// Handles the start of a system call.
    ///
    /// # Errors
    /// The program changes something that the collector itself depends on.
    pub fn handle_call_start(&mut self, thread: Tid, number: u64, arguments: &[u64; 6], memory: &Memory) -> Result<(), CollectError> {
        const ARCH_SET_GS: u64 = 0x1001;
        if number as i64 == libc::SYS_arch_prctl && arguments[0] == ARCH_SET_GS && matches!(self.means, WatchMeans::Trampolines(_)) {
            return Err(CollectError::Unexpected { what: "it uses the gs register itself. Use `--collector ptrace`".to_owned() });
        }
        let [signal, action, _, set_size, ..] = *arguments;
        if number as i64 == libc::SYS_rt_sigaction && matches!(signal as i32, libc::SIGTRAP | libc::SIGSEGV) && set_size == 8 {
            let mut new = SignalAction::default();
            if memory.read(action, &mut new).is_ok() {
                self.session.note_action(process_of(thread), signal as i32, Some(new));
            }
        }
        Ok(())
    }

    /// Handles the end of a system call. `again` means that the call has returned the thread from a signal handler to an instruction that
    /// is recorded already.
    pub fn after_system_call(
        &mut self,
        subject: &TracedProcess,
        (thread, number): (Tid, ThreadNumber),
        again: bool,
        sink: &mut dyn Sink,
    ) -> Result<SinkFlow, CollectError> {
        match &mut self.means {
            WatchMeans::Steps(steps) => return steps.after_system_call(subject, (thread, number), again, &self.images, sink),
            WatchMeans::Breakpoints(breakpoints) | WatchMeans::Uprobes(_, breakpoints) if again => {
                if let Some(site) = breakpoints.site_at(ptrace::instruction_pointer(thread)?) {
                    ptrace::set_instruction_pointer(thread, breakpoints.slot(site))?;
                }
            }
            WatchMeans::Trampolines(trampolines) => trampolines.after_system_call(thread, again)?,
            _ => {}
        }
        Ok(SinkFlow::Continue)
    }

    /// Returns the code addresses on a stopped thread's stack that are in watched images, innermost first. If the thread's own position is
    /// in such an image, that address comes first. Returns `None` if the stack cannot be walked.
    pub fn stack(&mut self, subject: &TracedProcess, thread: Tid) -> Option<Vec<u64>> {
        let original = |address| match &self.means {
            WatchMeans::Trampolines(trampolines) => trampolines.image_address_of_copy(address),
            _ => address,
        };
        self.unwinding.walk(&self.images, subject, thread, original).ok()
    }
}

fn record_probe_hits(probes: &Uprobes, sink: &mut dyn Sink) -> io::Result<SinkFlow> {
    let mut flow = SinkFlow::Continue;
    probes.read_hits(|thread, site| {
        if sink.record(ThreadNumber(thread), site)? == SinkFlow::Stop {
            flow = SinkFlow::Stop;
        }
        Ok(())
    })?;
    Ok(flow)
}

/// Records a hit, and moves the thread to the slot. At a jump, also steps the thread to the jump's target, and records the target.
fn record_hit(
    (breakpoints, images): (&Breakpoints, &Images),
    subject: &TracedProcess,
    (thread, number): (Tid, ThreadNumber),
    site: BreakpointSite,
    sink: &mut dyn Sink,
) -> Result<SinkFlow, CollectError> {
    ptrace::set_instruction_pointer(thread, breakpoints.slot(site))?;
    if let Some(block) = breakpoints.block_number(site) {
        sink.record(number, u64::from(block))?;
    }
    let flow = sink.record(number, u64::from(breakpoints.number(site)))?;
    if breakpoints.is_jump(site) {
        let to = subject.step_to_target(thread, |at| breakpoints.slot_progress(at).is_some())?;
        return Ok(sink.record(number, to.map_or(NO_ADDRESS, |to| images.in_file(to)))?);
    }
    Ok(flow)
}

/// Returns the site whose breakpoint a thread has hit, or `None` if the trap is the program's own. `is_merged` means that the trap may also
/// stand for a signal of the program that was pending.
fn breakpoint_hit(breakpoints: &Breakpoints, thread: Tid, is_merged: bool) -> Result<Option<BreakpointSite>, CollectError> {
    let Some(site) = breakpoints.site_hit(ptrace::instruction_pointer(thread)?) else { return Ok(None) };
    let is_ours = is_merged || !breakpoints.is_ambiguous(site) || ptrace::signal_code(thread)? == SI_KERNEL;
    Ok(is_ours.then_some(site))
}
