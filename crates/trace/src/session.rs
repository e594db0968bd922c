//! The session of a traced process: its threads and their stops, system calls injected into it, and the journal of all changes to it.
//! Closing a session undoes the changes and lets the process continue untraced, also after errors. As a last resort, dropping the session
//! closes it.
//!
//! Invariant: no wait is for one thread alone. The end of a killed process's first thread is reported only after all other threads have
//! ended, and these end only once they are resumed. So events of other threads are accepted and queued.
// Length: all changes are entered and undone in one place.

use crate::CollectError;
use crate::code_guard::CodeGuard;
use crate::journal::{AddressLimit, CodeChanges, JournalEntry, SharedCodeChanges};
use crate::memory::{Memory, parts_outside_range};
use crate::ptrace::{self, PtraceStop, ResumeMode, Tid, ignore_ended_thread, restart_interrupted_call};
use crate::signal_state::SignalState;
use crate::system::unpin_thread;
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::rc::Rc;

/// A traced process and everything that was changed in it.
#[derive(Debug)]
pub struct Session {
    process: Tid,
    /// Opened once the threads are stopped: before that, the process may still execute a different program, which replaces its memory.
    memory: OnceCell<Memory>,
    code: SharedCodeChanges,
    pub(crate) guard: RefCell<CodeGuard>,
    /// The signal state as the program knows it.
    pub(crate) signals: RefCell<SignalState>,
    /// Address of the permanent stub for system calls; 0 if there is none yet.
    stub: Cell<u64>,
    state: RefCell<SessionState>,
}

#[derive(Debug, Default)]
struct SessionState {
    entries: Vec<JournalEntry>,
    /// The traced threads, and whether each is stopped.
    threads: BTreeMap<Tid, bool>,
    /// Events that arrived while another thread was waited for, in order.
    events: VecDeque<(Tid, PtraceStop)>,
    is_closed: bool,
    /// True once the program has installed a filter for its system calls.
    is_filtered: bool,
}

impl Session {
    /// Begins the session of a process, none of whose threads is traced yet.
    pub fn new(process: Tid) -> Self {
        let code = Rc::new(RefCell::new(CodeChanges::default()));
        let (guard, signals, state) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { process, memory: OnceCell::new(), code, guard, signals, stub: Cell::new(0), state }
    }

    pub fn process(&self) -> Tid {
        self.process
    }

    /// Opens the process's memory once more. Changes to code are entered in the same journal.
    pub fn memory(&self) -> io::Result<Memory> {
        Memory::open_journaled(self.process, self.code.clone())
    }

    /// Replaces, in bytes that were read at `address`, this session's changes by the program's own code.
    pub fn hide_changes(&self, address: u64, bytes: &mut [u8]) {
        self.code.borrow().undo(address, bytes);
    }

    pub fn code_changes(&self) -> Ref<'_, CodeChanges> {
        self.code.borrow()
    }

    /// Returns true if other threads or processes may be running in the same memory.
    pub fn has_several_threads(&self) -> bool {
        self.state.borrow().threads.len() > 1
    }

    pub fn threads(&self) -> Vec<Tid> {
        self.state.borrow().threads.keys().copied().collect()
    }

    /// Notes that the program filters its system calls. No call is injected from now on, since the filter could kill the program for it.
    pub fn set_filtered(&self) {
        self.state.borrow_mut().is_filtered = true;
    }

    pub fn is_filtered(&self) -> bool {
        self.state.borrow().is_filtered
    }

    pub fn mapped_bytes(&self) -> u64 {
        let bytes = |entry: &JournalEntry| if let JournalEntry::Mapping(range) = entry { range.end - range.start } else { 0 };
        self.state.borrow().entries.iter().map(bytes).sum()
    }

    /// Returns the program's own limit on its address space, if it has one.
    pub fn address_limit(&self) -> Option<AddressLimit> {
        let limit = |entry: &JournalEntry| if let JournalEntry::AddressLimit(own) = entry { Some(*own) } else { None };
        self.state.borrow().entries.iter().find_map(limit)
    }

    /// Notes the limit that the program has set. The limit in force is higher, to make room for what is mapped.
    pub fn set_address_limit(&self, own: AddressLimit) {
        self.remove(|entry| matches!(entry, JournalEntry::AddressLimit(_)));
        self.enter(JournalEntry::AddressLimit(own));
    }

    /// Raises the limit on the address space by the size of what is mapped for the recording, including what is about to be mapped.
    pub fn apply_address_limit(&self) {
        let own = self.address_limit().or_else(|| AddressLimit::of(self.process).filter(|limit| limit.is_limited()));
        if let Some(own) = own {
            self.set_address_limit(own);
            // Without permission to raise it, the mapping may fail; its error is reported then.
            own.raised(self.mapped_bytes()).set(self.process);
        }
    }

    /// Queues an event that was reported, so that it is reported again.
    pub fn requeue_event(&self, event: (Tid, PtraceStop)) {
        self.state.borrow_mut().events.push_back(event);
    }

    pub fn first_queued_event(&self) -> Option<(Tid, PtraceStop)> {
        self.state.borrow().events.front().copied()
    }

    /// Returns the memory of the process, whose threads must be stopped.
    pub fn own_memory(&self) -> io::Result<&Memory> {
        match self.memory.get() {
            Some(memory) => Ok(memory),
            None => {
                let memory = self.memory()?;
                Ok(self.memory.get_or_init(|| memory))
            }
        }
    }

    /// Returns the address of the permanent copy of [`SYSCALL_STUB`](crate::injection::SYSCALL_STUB); 0 if there is none yet.
    pub fn stub(&self) -> u64 {
        self.stub.get()
    }

    pub fn set_stub(&self, address: u64) {
        self.stub.set(address);
    }

    /// Enters a change in the journal, which must be done before the change is made.
    pub fn enter(&self, entry: JournalEntry) {
        self.state.borrow_mut().entries.push(entry);
    }

    /// Removes the newest matching entry, whose change has been undone.
    pub fn remove(&self, is_meant: impl Fn(&JournalEntry) -> bool) {
        let entries = &mut self.state.borrow_mut().entries;
        if let Some(at) = entries.iter().rposition(is_meant) {
            entries.remove(at);
        }
    }

    /// Forgets changes to memory that the program has unmapped or replaced.
    pub fn forget_memory(&self, gone: &Range<u64>) {
        self.code.borrow_mut().forget(gone);
        self.guard.borrow_mut().forget(gone);
        let is_gone = |range: &Range<u64>| gone.start <= range.start && range.end <= gone.end;
        let entries = &mut self.state.borrow_mut().entries;
        entries.retain(|entry| !matches!(entry, JournalEntry::Protection(range, _) if is_gone(range)));
        let all = std::mem::take(entries);
        entries.extend(all.into_iter().flat_map(|entry| match entry {
            JournalEntry::KeyedProtection(range, protection) => {
                parts_outside_range(&range, gone).map(|rest| JournalEntry::KeyedProtection(rest, protection)).collect()
            }
            other => vec![other],
        }));
    }

    /// Forgets changes to the memory of a program that the process has replaced by `execve`.
    pub fn forget_program(&self) {
        self.code.borrow_mut().clear();
        self.guard.borrow_mut().clear();
        *self.signals.borrow_mut() = SignalState::default();
        self.stub.set(0);
        self.state.borrow_mut().entries.retain(|entry| matches!(entry, JournalEntry::TimeStampCounter | JournalEntry::Affinity));
    }

    /// Lets a thread that executes a different program run on all cores.
    pub fn release_thread_from_session(&self, thread: Tid) {
        if self.state.borrow().entries.iter().any(|entry| matches!(entry, JournalEntry::Affinity)) {
            unpin_thread(thread);
        }
    }

    pub fn add_thread(&self, thread: Tid, is_stopped: bool) {
        self.state.borrow_mut().threads.insert(thread, is_stopped);
    }

    /// Forgets a thread that is ending; it is no longer waited for.
    pub fn drop_thread(&self, thread: Tid) {
        self.state.borrow_mut().threads.remove(&thread);
    }

    /// Returns true if a thread is stopped and its stop has been reported.
    pub fn is_stopped(&self, thread: Tid) -> bool {
        let state = self.state.borrow();
        state.threads.get(&thread) == Some(&true) && !state.events.iter().any(|event| event.0 == thread)
    }

    /// Resumes a stopped thread and delivers `signal`, unless that is 0. A thread that is gone is not an error.
    pub fn resume(&self, thread: Tid, how: ResumeMode, signal: i32) -> io::Result<()> {
        self.add_thread(thread, false);
        ignore_ended_thread(ptrace::resume_thread(thread, how, signal))
    }

    /// Leaves a thread in its group stop; its next stop is reported.
    pub fn listen(&self, thread: Tid) -> io::Result<()> {
        self.add_thread(thread, false);
        ignore_ended_thread(ptrace::keep_thread_stopped(thread))
    }

    /// Detaches from a stopped thread and delivers `signal`, unless that is 0. Returns false if the thread was gone.
    pub fn detach(&self, thread: Tid, signal: i32) -> io::Result<bool> {
        match ptrace::detach_thread(thread, signal) {
            Ok(()) => {
                self.drop_thread(thread);
                Ok(true)
            }
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                self.add_thread(thread, false);
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Returns the next event of any thread, or `None` if no thread is traced any more.
    ///
    /// # Errors
    /// `EINTR` if a signal interrupted the wait, or a different system error.
    pub fn next_event(&self) -> io::Result<Option<(Tid, PtraceStop)>> {
        let kept = self.state.borrow_mut().events.pop_front();
        match kept {
            Some(event) => Ok(Some(event)),
            None => Ok(ptrace::wait_interruptibly()?.inspect(|event| self.note_thread_stop(*event))),
        }
    }

    /// Like [`Session::next_event`], but signals do not interrupt the wait.
    pub fn next_event_uninterrupted(&self) -> io::Result<Option<(Tid, PtraceStop)>> {
        loop {
            match self.next_event() {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                other => return other,
            }
        }
    }

    /// Waits until a thread stops. Events of other threads are queued.
    ///
    /// # Errors
    /// `ESRCH` if the thread has ended or is about to. The exit event is queued as well.
    pub fn wait_for(&self, thread: Tid) -> io::Result<PtraceStop> {
        let kept = {
            let events = &mut self.state.borrow_mut().events;
            events.iter().position(|event| event.0 == thread).and_then(|at| events.remove(at))
        };
        if thread == self.process {
            // The first thread's end is reported only after these threads have ended.
            let is_ending = |event: &(Tid, PtraceStop)| event.0 != thread && event.1 == PtraceStop::Ending;
            let ending: Vec<Tid> = self.state.borrow().events.iter().filter(|event| is_ending(event)).map(|event| event.0).collect();
            self.state.borrow_mut().events.retain(|event| !is_ending(event));
            ending.into_iter().try_for_each(|other| self.resume(other, ResumeMode::Continue, 0))?;
        }
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let event = match kept {
            Some(event) => event,
            None => loop {
                let event = ptrace::wait_for_thread(-1)?.ok_or_else(gone)?;
                self.note_thread_stop(event);
                match event {
                    (found, _) if found == thread => break event,
                    // The first thread's end is reported only after this one has ended.
                    (other, PtraceStop::Ending) if thread == self.process => self.resume(other, ResumeMode::Continue, 0)?,
                    other => self.state.borrow_mut().events.push_back(other),
                }
            },
        };
        match event.1 {
            PtraceStop::Ended(_) | PtraceStop::Ending => {
                self.state.borrow_mut().events.push_front(event);
                Err(gone())
            }
            stop => Ok(stop),
        }
    }

    fn note_thread_stop(&self, (thread, what): (Tid, PtraceStop)) {
        match what {
            PtraceStop::Ended(_) => self.drop_thread(thread),
            _ => self.add_thread(thread, true),
        }
    }

    /// Undoes the changes to code in `memory`, which belongs to this process or to a child with a copy of it. Memory that is no longer
    /// mapped is skipped.
    pub fn restore_code(&self, memory: &Memory) -> io::Result<()> {
        let code = self.code.borrow();
        for span in code.spans() {
            let mut bytes = vec![0; (span.end - span.start) as usize];
            if memory.read(span.start, &mut bytes).is_ok() && code.undo(span.start, &mut bytes) {
                memory.write(span.start, &bytes)?;
            }
        }
        Ok(())
    }

    /// Undoes the changes in the journal by system calls of `threads`, which are stopped outside system calls. `quiet` are those that
    /// receive no signal when they resume. `others` are threads that execute other programs; they only lose the binding to a core, which
    /// they have inherited. Returns descriptions of the changes that could not be undone.
    pub fn undo(&self, threads: &[Tid], others: &[Tid], quiet: &[Tid]) -> Vec<String> {
        // Length: one list of changes, undone in one order.
        let entries = std::mem::take(&mut self.state.borrow_mut().entries);
        let mut unrestored = Vec::new();
        let mut note = |what: &dyn std::fmt::Display, result: Result<(), CollectError>| match result {
            Ok(()) => {}
            // In a thread that is gone there is nothing to undo.
            Err(CollectError::System(e)) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => unrestored.push(format!("{what} ({error})")),
        };
        let stub = Some(self.stub.get()).filter(|stub| *stub != 0);
        for entry in entries.iter().rev() {
            match entry {
                JournalEntry::Registers(thread, registers) => note(entry, ptrace::write_registers(*thread, registers).map_err(Into::into)),
                JournalEntry::SignalMask(thread, mask) => note(entry, ptrace::set_signal_mask(*thread, *mask).map_err(Into::into)),
                JournalEntry::KeyRights(thread, rights) => {
                    note(entry, ptrace::set_protection_key_rights(*thread, *rights).map_err(Into::into))
                }
                _ => {}
            }
        }
        if self.code.borrow().spans().next().is_some() {
            note(&"the code", self.own_memory().and_then(|memory| self.restore_code(memory)).map_err(Into::into));
        }
        if !threads.is_empty() {
            self.code.borrow_mut().clear();
            self.guard.borrow_mut().clear();
        }
        for entry in entries.iter().rev() {
            match entry {
                JournalEntry::Protection(code, protection) => note(entry, self.restore_protection(threads, code, *protection)),
                JournalEntry::KeyedProtection(code, protection) => {
                    let arguments = [code.start, code.end - code.start, *protection as u64, 0, 0, 0];
                    note(entry, self.inject_call_in_any_thread(threads, stub, libc::SYS_pkey_mprotect, arguments));
                    let arguments = [code.start, code.end - code.start, libc::MADV_NORMAL as u64, 0, 0, 0];
                    note(entry, self.inject_call_in_any_thread(threads, stub, libc::SYS_madvise, arguments));
                }
                JournalEntry::ProtectionKey(key) => {
                    note(entry, self.inject_call_in_any_thread(threads, stub, libc::SYS_pkey_free, [u64::from(*key), 0, 0, 0, 0, 0]));
                }
                JournalEntry::DebugRegisters(thread) => note(entry, ptrace::clear_debug_registers(*thread).map_err(Into::into)),
                JournalEntry::TimeStampCounter => {
                    let free = |thread: Tid| self.enable_rdtsc(self.own_memory()?, thread, stub);
                    threads.iter().for_each(|thread| note(entry, free(*thread)));
                }
                JournalEntry::Affinity => threads.iter().chain(others).for_each(|thread| unpin_thread(*thread)),
                _ => {}
            }
        }
        let unrestored_actions = if stub.is_some() && !threads.is_empty() { self.restore_actions(quiet) } else { Vec::new() };
        for entry in entries.iter().rev() {
            if let JournalEntry::Mapping(range) = entry {
                note(entry, self.unmap(threads, quiet, range));
            }
        }
        for entry in &entries {
            if let JournalEntry::AddressLimit(own) = entry
                && !own.set(self.process)
            {
                note(entry, Err(io::Error::last_os_error().into()));
            }
        }
        self.state.borrow_mut().entries.clear();
        unrestored.extend(unrestored_actions);
        unrestored
    }

    fn restore_protection(&self, threads: &[Tid], code: &Range<u64>, protection: i32) -> Result<(), CollectError> {
        let arguments = [code.start, code.end - code.start, protection as u64, 0, 0, 0];
        self.inject_call_in_any_thread(threads, Some(self.stub.get()), libc::SYS_mprotect, arguments)
    }

    /// Unmaps a range, unless a thread is executing there.
    fn unmap(&self, threads: &[Tid], quiet: &[Tid], range: &Range<u64>) -> Result<(), CollectError> {
        if threads.iter().any(|thread| ptrace::instruction_pointer(*thread).is_ok_and(|at| range.contains(&at))) {
            return Err(CollectError::Unexpected { what: "a thread is executing there".to_owned() });
        }
        let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
        match quiet.first() {
            // The trap after an ordinary injected call would reset the program's action for SIGTRAP. The stub still exists, because the
            // area with it is unmapped last.
            Some(thread) if self.may_be_ignored(libc::SIGTRAP) && self.stub() != 0 => {
                self.inject_call_without_signal(*thread, libc::SYS_munmap, arguments).map(drop)
            }
            _ => self.inject_call_in_any_thread(threads, None, libc::SYS_munmap, arguments),
        }
    }

    /// Makes a system call in the first of `threads` that still exists.
    fn inject_call_in_any_thread(
        &self,
        threads: &[Tid],
        at: Option<u64>,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> Result<(), CollectError> {
        for thread in threads {
            match self.inject_system_call(self.own_memory()?, *thread, at, number, arguments) {
                Ok(0) => return Ok(()),
                Ok(result) => return Err(io::Error::from_raw_os_error(-result as i32).into()),
                Err(CollectError::System(e)) if e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Unmaps, in a stopped child with a copy of the memory, what the trace has mapped. The child receives no signal when it resumes.
    pub fn unmap_in_child(&self, child: Tid) -> Result<(), CollectError> {
        let memory = Memory::open(child)?;
        let own = self.state.borrow().entries.clone();
        let ranges = own.iter().filter_map(|entry| if let JournalEntry::Mapping(range) = entry { Some(range.clone()) } else { None });
        let unmapped = ranges.rev().try_for_each(|range| {
            let arguments = [range.start, range.end - range.start, 0, 0, 0, 0];
            // A trap would reset an ignored signal's action. The area with the stub is unmapped last.
            match self.may_be_ignored(libc::SIGTRAP) && self.stub() != 0 {
                true => self.inject_call_without_signal(child, libc::SYS_munmap, arguments).map(drop),
                false => self.inject_system_call(&memory, child, None, libc::SYS_munmap, arguments).map(drop),
            }
        });
        // The injected calls have removed the parent's entries.
        self.state.borrow_mut().entries = own;
        if self.address_limit().is_some() {
            self.apply_address_limit();
        }
        unmapped
    }

    /// Marks the session as closed: its threads have been detached.
    pub fn set_closed(&self) {
        self.state.borrow_mut().is_closed = true;
    }

    /// Closes the session after an error or a panic, when only the journal tells what was changed. Stops the threads, undoes all changes
    /// and detaches. Returns descriptions of the changes that could not be undone.
    pub fn close(&self) -> Vec<String> {
        if std::mem::replace(&mut self.state.borrow_mut().is_closed, true) {
            return Vec::new();
        }
        let signals = match self.stop_threads() {
            Ok(signals) => signals,
            Err(error) => return vec![format!("all changes ({error})")],
        };
        let threads = self.threads();
        let signal = |thread: &Tid| signals.get(thread).copied().unwrap_or(0);
        let quiet: Vec<Tid> = threads.iter().copied().filter(|thread| signal(thread) == 0).collect();
        let mut unrestored = self.undo(&threads, &[], &quiet);
        for thread in &threads {
            if let Err(error) = self.detach(*thread, signal(thread)) {
                unrestored.push(format!("the tracing of thread {thread} ({error})"));
            }
        }
        self.reap();
        unrestored
    }

    /// Closes the session because of an error, and adds to the error the changes that could not be undone. `ESRCH` is replaced by an error
    /// that says that the process has ended.
    pub fn close_after_error(&self, error: CollectError) -> CollectError {
        let unrestored = self.close();
        match error {
            CollectError::System(e) if e.raw_os_error() == Some(libc::ESRCH) => {
                CollectError::Untraceable { process: self.process, why: "it ended before tracing began".to_owned() }
            }
            error => error.with_unrestored(self.process, unrestored),
        }
    }

    fn stop_threads(&self) -> io::Result<BTreeMap<Tid, i32>> {
        let mut signals = BTreeMap::new();
        let running =
            |state: &SessionState| -> Vec<Tid> { state.threads.iter().filter(|thread| !thread.1).map(|thread| *thread.0).collect() };
        for thread in running(&self.state.borrow()) {
            ignore_ended_thread(ptrace::interrupt_thread(thread))?;
        }
        while !self.state.borrow().events.is_empty() || !running(&self.state.borrow()).is_empty() {
            let Some((thread, what)) = self.next_event_uninterrupted()? else {
                self.state.borrow_mut().threads.clear();
                break;
            };
            match what {
                PtraceStop::Ended(_) => {}
                PtraceStop::Ending => {
                    self.resume(thread, ResumeMode::Continue, 0)?;
                    self.drop_thread(thread);
                }
                PtraceStop::Signal(signal) if self.is_code_fault(thread, signal) || self.undo_breakpoint(thread, signal) => {}
                PtraceStop::Signal(signal) => drop(signals.insert(thread, signal)),
                PtraceStop::Interrupted | PtraceStop::GroupStopped => ignore_ended_thread(restart_interrupted_call(thread))?,
                _ => {
                    ignore_ended_thread(ptrace::interrupt_thread(thread))?;
                    self.resume(thread, ResumeMode::Continue, 0)?;
                }
            }
        }
        Ok(signals)
    }

    /// Moves a thread that has hit a breakpoint of this session back to the instruction that the breakpoint replaces.
    fn undo_breakpoint(&self, thread: Tid, signal: i32) -> bool {
        let at = ptrace::instruction_pointer(thread).unwrap_or(0).wrapping_sub(1);
        signal == libc::SIGTRAP && self.code.borrow().is_changed(at) && ptrace::set_instruction_pointer(thread, at).is_ok()
    }

    /// Waits for threads that were killed before they could be detached.
    fn reap(&self) {
        while !self.state.borrow().threads.is_empty() {
            match self.next_event_uninterrupted() {
                Ok(Some((_, PtraceStop::Ended(_)))) => {}
                Ok(Some((thread, _))) => {
                    // A thread that cannot be detached is ending, and reports that.
                    let _ = self.detach(thread, 0);
                }
                Ok(None) | Err(_) => return,
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Only a panic drops a session that is still open.
        if !self.state.get_mut().is_closed && !self.state.get_mut().threads.is_empty() {
            self.close();
        }
    }
}
