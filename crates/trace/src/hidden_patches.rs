//! Hides patches from a program that reads its own code, by memory protection keys (pkeys(7)). Patched pages are tagged with a key that no
//! thread may use for data accesses, so that a read reports SIGSEGV. The page is then switched to its data view, until the program executes
//! code there: see [`code_guard`](crate::code_guard).
//!
//! Switching does not stop other threads. During a switch, a page can be neither read nor executed, and a thread that tries to do so
//! reports a fault, which is handled in its turn. The reading instruction is executed before any other event is handled, so that threads
//! which read and execute the same page make progress. All changes are entered in the journal.
//!
//! If patches cannot be hidden exactly, the guard ends, and the program sees the patches from then on.
//!
//! Invariant: guarded pages are never merged with others into one mapping of the kernel's. A process with the maximum number of mappings
//! could not split such a mapping, and so not restore its code. They differ from other pages in their advice (madvise(2)).

use crate::CollectError;
use crate::code_guard::{CodeGuard, GuardedCode, PAGE_SIZE, PageView, page_of};
use crate::displaced::{SLOT_SIZE, displace};
use crate::journal::JournalEntry;
use crate::mappings::mappings;
use crate::memory::{intersect_ranges, parts_outside_range, round_to_whole_pages};
use crate::ptrace::{self, Registers, Tid, ignore_ended_thread};
use crate::session::Session;
use iced_x86::{Instruction, Mnemonic};
use std::io;
use std::ops::Range;
use trodden_binary::instruction::{MAX_INSTRUCTION_LENGTH, decode_instruction};

/// `si_code` of a fault by a protection key.
const SEGV_PKUERR: i32 = 4;
/// `si_code` of a fault by the protection of a page.
const SEGV_ACCERR: i32 = 2;
/// `si_code` of a fault for which the kernel gives no reason.
const SI_KERNEL: i32 = 0x80;
/// Access right of a protection key: no data access (PKEY_DISABLE_ACCESS).
const PKRU_NO_ACCESS_BIT: u32 = 1;
/// The rights with which the kernel starts every program: no access, except with key 0.
const INITIAL_PKRU_RIGHTS: u32 = 0x5555_5554;
/// Maximum number of page switches for one instruction. After that, the thread resumes and reports its next fault as usual.
const MAX_FAULTS_PER_INSTRUCTION: usize = 16;
/// Number of bytes that an instruction is assumed to access if its access size is unknown.
const MAX_ACCESS_SIZE: u64 = 64;

/// The meaning of a fault for the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardedCodeFault {
    /// The fault has nothing to do with guarded code.
    Foreign,
    /// The access is allowed now. The thread resumes at the same instruction.
    Allowed,
    Executed,
    /// The instruction causes a different signal, which the thread is about to receive.
    Faults,
}

/// Returns true if the processor and the kernel have memory protection keys.
pub fn has_protection_keys() -> bool {
    // SAFETY: the system calls take no pointers, and the key is not used for any page.
    unsafe {
        let key = libc::syscall(libc::SYS_pkey_alloc, 0, 0);
        key >= 0 && libc::syscall(libc::SYS_pkey_free, key) == 0
    }
}

impl Session {
    /// Hides the patches in images, each given by its code ranges and the address of a slot near them. Ranges that are guarded already stay
    /// as they are. `thread` is stopped outside a system call. Without protection keys, patches stay visible.
    pub fn guard_patched_code(&self, thread: Tid, images: &[(Vec<Range<u64>>, u64)]) -> Result<(), CollectError> {
        if self.is_filtered() || self.guard.borrow().is_disabled {
            return Ok(());
        }
        let mut all = Vec::new();
        let is_code = |protection: i32| protection == libc::PROT_READ | libc::PROT_EXEC;
        for mapping in mappings(self.process())?.iter().filter(|mapping| is_code(mapping.protection)) {
            for (code, slot) in images {
                for code in code {
                    let Some(patched) =
                        self.find_patched_pages(&intersect_ranges(&round_to_whole_pages(code), &(mapping.start..mapping.end)))
                    else {
                        continue;
                    };
                    let parts = self.guard.borrow().unguarded_parts(patched);
                    all.extend(parts.into_iter().map(|range| GuardedCode { range, protection: mapping.protection, slot: *slot }));
                }
            }
        }
        if all.is_empty() {
            return Ok(());
        }
        let Some(key) = self.protection_key(thread)? else { return Ok(()) };
        for code in all {
            self.enter(code.entry());
            match self.protect(thread, &code.range, code.protection, key)? {
                0 => {
                    self.advise_pages(thread, &code.range, libc::MADV_RANDOM)?;
                    self.guard.borrow_mut().add(code);
                }
                // The program may have sealed the memory, or the process may have too many mappings.
                _ => {
                    self.remove(|entry| code.matches_entry(entry));
                    self.guard.borrow_mut().exclude(code.range);
                }
            }
        }
        Ok(())
    }

    /// Returns the pages from the first to the last patched page of a range, or `None` if the range has no patches.
    fn find_patched_pages(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let code = self.code_changes();
        let mut pages = code.changed_spans_in(range);
        let first = page_of(pages.next()?.start);
        Some(first..page_of(pages.last().map_or(first, |span| span.start)) + PAGE_SIZE)
    }

    /// Returns the key of code views, which is allocated at the first call; `None` if the process cannot be guarded.
    fn protection_key(&self, thread: Tid) -> Result<Option<u32>, CollectError> {
        if let Some(key) = self.guard.borrow().key {
            return Ok(Some(key));
        }
        let key = self.allocate_protection_key(thread)?;
        let mut guard = self.guard.borrow_mut();
        (guard.key, guard.is_disabled) = (key, key.is_none());
        Ok(key)
    }

    fn allocate_protection_key(&self, thread: Tid) -> Result<Option<u32>, CollectError> {
        const GET_EXECUTABILITY: u64 = 66;
        let call = |number, arguments| self.inject_system_call(self.own_memory()?, thread, Some(self.stub()), number, arguments);
        // If the program may not make memory executable (PR_SET_MDWE), its pages cannot be switched back.
        if call(libc::SYS_prctl, [GET_EXECUTABILITY, 0, 0, 0, 0, 0])? > 0 || has_asynchronous_calls(self.process())? {
            return Ok(None);
        }
        // A program with other rights uses keys itself. The rights of running threads cannot be read, but threads inherit them.
        let has_own_rights = |thread| ptrace::protection_key_rights(thread).is_ok_and(|rights| rights != INITIAL_PKRU_RIGHTS);
        if ptrace::protection_key_rights(thread).is_err() || self.threads().into_iter().any(has_own_rights) {
            return Ok(None);
        }
        let key = u32::try_from(call(libc::SYS_pkey_alloc, [0, u64::from(PKRU_NO_ACCESS_BIT), 0, 0, 0, 0])?).ok();
        key.into_iter().for_each(|key| self.enter(JournalEntry::ProtectionKey(key)));
        Ok(key)
    }

    /// Sets protection and key of whole pages. Returns the result of the system call.
    fn protect(&self, thread: Tid, range: &Range<u64>, protection: i32, key: u32) -> Result<i64, CollectError> {
        let arguments = [range.start, range.end - range.start, protection as u64, key.into(), 0, 0];
        self.inject_system_call(self.own_memory()?, thread, Some(self.stub()), libc::SYS_pkey_mprotect, arguments)
    }

    /// Sets the advice for whole pages. The kernel may refuse it.
    fn advise_pages(&self, thread: Tid, range: &Range<u64>, advice: i32) -> Result<(), CollectError> {
        let arguments = [range.start, range.end - range.start, advice as u64, 0, 0, 0];
        self.inject_system_call(self.own_memory()?, thread, Some(self.stub()), libc::SYS_madvise, arguments).map(drop)
    }

    fn protect_or_fail(&self, thread: Tid, range: &Range<u64>, protection: i32, key: u32) -> Result<(), CollectError> {
        match self.protect(thread, range, protection, key)? {
            0 => Ok(()),
            result => Err(CollectError::Unexpected { what: format!("pkey_mprotect of its code returned {result}") }),
        }
    }

    fn show_data_view(&self, thread: Tid, page: u64) -> Result<(), CollectError> {
        // If the switch is interrupted, the next execution of the page switches it back to the code view.
        self.guard.borrow_mut().set_data_view(page);
        self.switch_page_view(thread, page, |session, bytes| session.hide_changes(page, bytes), libc::PROT_READ, 0)
    }

    fn show_code_view(&self, thread: Tid, page: u64) -> Result<(), CollectError> {
        let Some(protection) = self.guard.borrow().code_at(page).map(|code| code.protection) else { return Ok(()) };
        let key = self.guard.borrow().key.unwrap_or(0);
        self.switch_page_view(thread, page, |session, bytes| session.code_changes().redo(page, bytes), protection, key)?;
        self.guard.borrow_mut().set_code_view(page);
        Ok(())
    }

    fn switch_page_view(
        &self,
        thread: Tid,
        page: u64,
        change: impl Fn(&Self, &mut [u8]),
        protection: i32,
        key: u32,
    ) -> Result<(), CollectError> {
        let range = page..page + PAGE_SIZE;
        if self.has_several_threads() {
            let no_access = self.guard.borrow().key.unwrap_or(0);
            self.protect_or_fail(thread, &range, libc::PROT_READ, no_access)?;
        }
        self.rewrite_page(page, change)?;
        self.protect_or_fail(thread, &range, protection, key)
    }

    fn rewrite_page(&self, page: u64, change: impl Fn(&Self, &mut [u8])) -> io::Result<()> {
        let (mut bytes, memory) = (vec![0; PAGE_SIZE as usize], self.own_memory()?);
        memory.read(page, &mut bytes)?;
        change(self, &mut bytes);
        memory.write(page, &bytes)
    }

    /// Ends the guard of whole pages that are mapped, and shows their code view.
    pub fn unguard(&self, thread: Tid, range: &Range<u64>) -> Result<(), CollectError> {
        let data_pages = self.guard.borrow().data_pages();
        for page in data_pages.into_iter().filter(|page| range.contains(page)) {
            // No thread can execute the page meanwhile, because it still has the protection of a data view.
            self.rewrite_page(page, |session, bytes| session.code_changes().redo(page, bytes))?;
        }
        let touched: Vec<GuardedCode> =
            self.guard.borrow().ranges().filter(|code| !intersect_ranges(&code.range, range).is_empty()).cloned().collect();
        for code in touched {
            let part = intersect_ranges(&code.range, range);
            self.protect_or_fail(thread, &part, code.protection, 0)?;
            self.advise_pages(thread, &part, libc::MADV_NORMAL)?;
            self.guard.borrow_mut().remove(&part);
            self.remove(|entry| code.matches_entry(entry));
            for rest in parts_outside_range(&code.range, &part) {
                self.enter(GuardedCode { range: rest, ..code.clone() }.entry());
            }
        }
        Ok(())
    }

    /// Ends the guard of all code for good, because it cannot be hidden exactly. The caller has handled the new tasks of other threads.
    pub fn end_guard(&self, thread: Tid) -> Result<(), CollectError> {
        self.unguard(thread, &(0..u64::MAX))?;
        self.guard.borrow_mut().end();
        let key = self.guard.borrow_mut().key.take();
        if let Some(key) = key {
            self.inject_system_call(self.own_memory()?, thread, Some(self.stub()), libc::SYS_pkey_free, [key.into(), 0, 0, 0, 0, 0])?;
            self.remove(|entry| matches!(entry, JournalEntry::ProtectionKey(_)));
        }
        Ok(())
    }

    /// Ends the guard in a stopped child process that has its own copy of the memory and will not be followed.
    pub fn unguard_child(&self, child: Tid) -> Result<(), CollectError> {
        let (ranges, key): (Vec<GuardedCode>, _) = (self.guard.borrow().ranges().cloned().collect(), self.guard.borrow().key);
        let Some(key) = key.filter(|_| !self.is_filtered()) else { return Ok(()) };
        for code in &ranges {
            self.protect_or_fail(child, &code.range, code.protection, 0)?;
            self.advise_pages(child, &code.range, libc::MADV_NORMAL)?;
        }
        self.inject_system_call(self.own_memory()?, child, Some(self.stub()), libc::SYS_pkey_free, [key.into(), 0, 0, 0, 0, 0])?;
        Ok(())
    }

    pub fn show_all_code(&self, thread: Tid) -> Result<(), CollectError> {
        let data_pages = self.guard.borrow().data_pages();
        data_pages.into_iter().try_for_each(|page| self.show_code_view(thread, page))
    }

    pub fn guard(&self) -> std::cell::Ref<'_, CodeGuard> {
        self.guard.borrow()
    }

    pub fn guard_mut(&self) -> std::cell::RefMut<'_, CodeGuard> {
        self.guard.borrow_mut()
    }

    /// Returns true if the signal that a stopped thread is about to receive is a fault that the guard may have caused.
    pub fn is_code_fault(&self, thread: Tid, signal: i32) -> bool {
        let fault = || io::Result::Ok(self.guarded_fault(thread, signal)?.is_some());
        fault().unwrap_or(false)
    }

    /// Returns the address of a fault that the guard may have caused, and true if an instruction fetch has faulted.
    fn guarded_fault(&self, thread: Tid, signal: i32) -> io::Result<Option<(u64, bool)>> {
        if signal != libc::SIGSEGV || !self.guard.borrow().is_active() {
            return Ok(None);
        }
        let information = ptrace::signal_information(thread)?;
        // SAFETY: the signal is a SIGSEGV, whose information has an address.
        let address = unsafe { information.si_addr() } as u64;
        if self.guard.borrow().view(address).is_none() {
            return Ok(None);
        }
        let at = ptrace::instruction_pointer(thread)?;
        Ok(match information.si_code {
            SEGV_PKUERR => Some((address, false)),
            SEGV_ACCERR if (at..at + MAX_INSTRUCTION_LENGTH).contains(&address) => Some((address, true)),
            _ => None,
        })
    }

    /// Handles the signal that a stopped thread is about to receive, if the guard has caused it. The caller restores the thread's signal
    /// state.
    ///
    /// # Errors
    /// The thread is gone, or its access cannot be made possible: the guard must end, and the thread must repeat its instruction. Until
    /// then, the thread is about to receive the same signal.
    pub fn handle_code_fault(&self, thread: Tid, signal: i32) -> Result<GuardedCodeFault, CollectError> {
        let Some((address, is_execution)) = self.guarded_fault(thread, signal)? else { return Ok(GuardedCodeFault::Foreign) };
        let information = ptrace::signal_information(thread)?;
        let fault = self.allow_faulting_access(thread, address, is_execution);
        if fault.is_err() {
            ignore_ended_thread(ptrace::set_signal_information(thread, &information))?;
        }
        fault
    }

    fn allow_faulting_access(&self, thread: Tid, address: u64, is_execution: bool) -> Result<GuardedCodeFault, CollectError> {
        let view = self.guard.borrow().view(address);
        let fault = match (view, is_execution) {
            (Some(PageView::Code), false) => self.emulate_code_read(thread, address)?,
            (Some(PageView::Data), true) => {
                self.show_code_view(thread, page_of(address))?;
                GuardedCodeFault::Allowed
            }
            // Another thread has switched the page meanwhile, or the program itself may not access it.
            _ => {
                let r = ptrace::read_registers(thread)?;
                let pointers = [address, r.rip, r.rsp, r.rbp, r.rsi, r.rdi, r.eflags];
                let state = [&pointers[..], &[r.rax, r.rbx, r.rcx, r.rdx, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15]].concat();
                let is_tried = self.guard.borrow_mut().note_access_retry(thread, &state);
                return match is_tried {
                    true => Ok(GuardedCodeFault::Allowed),
                    false if self.guard.borrow().is_disabled => Ok(GuardedCodeFault::Foreign),
                    false => Err(CollectError::Unexpected { what: format!("an access to its code at {address:#x} fails") }),
                };
            }
        };
        self.guard.borrow_mut().forget_access_retries(thread);
        Ok(fault)
    }

    /// Executes an instruction that has faulted because it reads guarded code at `address`.
    fn emulate_code_read(&self, thread: Tid, address: u64) -> Result<GuardedCodeFault, CollectError> {
        let mut address = address;
        for _ in 0..MAX_FAULTS_PER_INSTRUCTION {
            let executed = match self.execute_read_of_unpatched_code(thread, address)? {
                Some(executed) => executed,
                None => {
                    self.show_data_view(thread, page_of(address))?;
                    self.step_in_data_view(thread)?
                }
            };
            if executed.is_some() {
                return Ok(GuardedCodeFault::Executed);
            }
            let signal = ptrace::signal_information(thread)?.si_signo;
            address = match self.guarded_fault(thread, signal)? {
                Some((address, false)) if self.guard.borrow().view(address) == Some(PageView::Code) => address,
                // The guard has not caused this fault: the instruction is a store, for example.
                _ => return Ok(GuardedCodeFault::Faults),
            };
        }
        Ok(GuardedCodeFault::Allowed)
    }

    /// Returns true if a stopped thread's instruction is guarded and the kernel reads the instruction to emulate it. The kernel reads it
    /// with the thread's key rights.
    pub fn is_emulated(&self, thread: Tid) -> io::Result<bool> {
        use Mnemonic::{Cli, Cpuid, Sgdt, Sidt, Sldt, Smsw, Sti, Str};
        let at = ptrace::instruction_pointer(thread)?;
        if self.guard.borrow().code_at(at).is_none() || ptrace::signal_code(thread)? != SI_KERNEL {
            return Ok(false);
        }
        let instruction = self.instruction_at(at)?.map(|instruction| instruction.mnemonic());
        Ok(instruction.is_some_and(|mnemonic| [Cli, Cpuid, Sgdt, Sidt, Sldt, Smsw, Sti, Str].contains(&mnemonic)))
    }

    /// If an instruction reads bytes without patches, executes it with access to the page's code view. Returns the new instruction pointer,
    /// or `Some(None)` if the instruction faults. Returns `None` if the bytes have patches or access cannot be granted.
    fn execute_read_of_unpatched_code(&self, thread: Tid, address: u64) -> Result<Option<Option<u64>>, CollectError> {
        let page = page_of(address);
        let end = (address + self.max_access_size(thread)?).min(page + PAGE_SIZE);
        let Some(key) = self.guard.borrow().key else { return Ok(None) };
        if self.guard.borrow().lacks_access || self.code_changes().changed_spans_in(&(address..end)).next().is_some() {
            return Ok(None);
        }
        let has_patches = self.find_patched_pages(&(page..page + PAGE_SIZE)).is_some();
        self.guard.borrow_mut().note_data_read(&(address..end), has_patches);
        let Ok(rights) = ptrace::protection_key_rights(thread) else { return Ok(None) };
        self.enter(JournalEntry::KeyRights(thread, rights));
        let is_set = ptrace::set_protection_key_rights(thread, rights & !(3 << (2 * key))).is_ok();
        // Another thread may have switched the page of the instruction itself.
        let executed = if is_set { self.step_in_data_view(thread) } else { Ok(None) };
        ignore_ended_thread(if is_set { ptrace::set_protection_key_rights(thread, rights) } else { Ok(()) })?;
        self.remove(|entry| matches!(entry, JournalEntry::KeyRights(other, _) if *other == thread));
        let executed = executed?;
        let signal = ptrace::signal_information(thread)?.si_signo;
        if executed.is_none() && self.guarded_fault(thread, signal)? == Some((address, false)) {
            // The kernel does not let tracers change the register with the key rights (PKRU).
            self.guard.borrow_mut().lacks_access = true;
            return Ok(None);
        }
        Ok(Some(executed))
    }

    /// Stops guarding a page on which the program reads data.
    pub fn stop_guarding_page(&self, thread: Tid, page: u64) -> Result<(), CollectError> {
        self.unguard(thread, &(page..page + PAGE_SIZE))?;
        let mut guard = self.guard.borrow_mut();
        guard.exclude(page..page + PAGE_SIZE);
        if self.code_changes().changed_spans_in(&(page..page + PAGE_SIZE)).next().is_some() {
            guard.readable.push(page..page + PAGE_SIZE);
        }
        Ok(())
    }

    fn instruction_at(&self, address: u64) -> io::Result<Option<Instruction>> {
        let mut code = self.own_memory()?.read_some(address, MAX_INSTRUCTION_LENGTH as usize);
        self.hide_changes(address, &mut code);
        Ok(decode_instruction(&code, address))
    }

    /// Returns the maximum number of bytes that a thread's instruction reads at one address.
    fn max_access_size(&self, thread: Tid) -> io::Result<u64> {
        let instruction = self.instruction_at(ptrace::instruction_pointer(thread)?)?;
        let size = instruction.map_or(0, |instruction| instruction.memory_size().size() as u64);
        Ok(if size == 0 { MAX_ACCESS_SIZE } else { size })
    }

    /// Single-steps a thread like [`Session::single_step_once`]. If its instruction is in a page with the data view, a copy of the
    /// instruction is executed.
    fn step_in_data_view(&self, thread: Tid) -> Result<Option<u64>, CollectError> {
        let at = ptrace::instruction_pointer(thread)?;
        let has_data_view = |address: u64| self.guard.borrow().view(address) == Some(PageView::Data);
        let length = self.instruction_at(at)?.map_or(1, |instruction| instruction.len() as u64);
        if !has_data_view(at) && !has_data_view(at + length - 1) {
            return self.single_step_once(thread);
        }
        let code_at = |address: u64| self.guard.borrow().code_at(address).map(|code| code.slot);
        let Some(slot) = code_at(at).or_else(|| code_at(at + length - 1)) else { return self.single_step_once(thread) };
        let memory = self.own_memory()?;
        let mut code = memory.read_some(at, MAX_INSTRUCTION_LENGTH as usize);
        self.hide_changes(at, &mut code);
        memory.write(slot, &displace(&code, at, slot)?.code)?;
        let saved = ptrace::read_registers(thread)?;
        self.enter(JournalEntry::Registers(thread, Box::new(saved)));
        ptrace::write_registers(thread, &Registers { rip: slot, orig_rax: u64::MAX, ..saved })?;
        let stepped = loop {
            match self.single_step_once(thread)? {
                Some(at) if (slot..slot + SLOT_SIZE).contains(&at) => {}
                Some(at) => break Some(at),
                None => {
                    // A repeated string instruction keeps the progress that it has made.
                    match ptrace::instruction_pointer(thread)? == slot {
                        true => ptrace::set_instruction_pointer(thread, at)?,
                        false => ptrace::write_registers(thread, &saved)?,
                    }
                    break None;
                }
            }
        };
        self.remove(|entry| matches!(entry, JournalEntry::Registers(other, _) if *other == thread));
        Ok(stepped)
    }
}

/// Returns true if the kernel may read the memory of a process at any time, without a system call that says so: by io_uring or asynchronous
/// input and output.
fn has_asynchronous_calls(process: Tid) -> io::Result<bool> {
    let files = std::fs::read_dir(format!("/proc/{process}/fd"))?.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let has_rings = files.into_iter().any(|file| file.to_string_lossy().starts_with("anon_inode:[io_uring]"));
    Ok(has_rings || mappings(process)?.iter().any(|mapping| mapping.name.starts_with("/[aio]")))
}

impl GuardedCode {
    /// Returns the journal entry by which the guard is undone.
    fn entry(&self) -> JournalEntry {
        JournalEntry::KeyedProtection(self.range.clone(), self.protection)
    }

    fn matches_entry(&self, entry: &JournalEntry) -> bool {
        matches!(entry, JournalEntry::KeyedProtection(range, _) if *range == self.range)
    }
}
