//! Programs that restrict themselves: by a system call filter (seccomp), which may kill them for injected calls, or by a limit on
//! their address space, which must also hold the trace's own mappings.
//!
//! - Everything that would later need an injected call is done before a filter takes effect. The call that installs the filter is deferred
//!   until then.
//! - The limit in force is the program's own plus the size of the trace's mappings. The program reads back its own limit.

use super::Following;
use crate::CollectError;
use crate::journal::{AddressLimit, JournalEntry};
use crate::ptrace::{self, Registers, Tid};
use crate::session::Session;

impl Following<'_, '_> {
    /// Returns true if a system call installs the program's first filter, so that it must be deferred.
    pub(super) fn installs_filter(&self, call: u64, arguments: &[u64; 6]) -> bool {
        let sets = match call as i64 {
            libc::SYS_prctl => arguments[0] == libc::PR_SET_SECCOMP as u64,
            libc::SYS_seccomp => arguments[0] <= u64::from(libc::SECCOMP_SET_MODE_FILTER),
            _ => false,
        };
        sets && !self.subject.session.is_filtered()
    }

    /// Makes a deferred system call that installs a filter, and returns its result.
    pub(super) fn install_deferred_filter(&mut self, thread: Tid, call: u64, arguments: [u64; 6]) -> Result<i64, CollectError> {
        self.handle_new_tasks_of_others(thread)?;
        let session = &self.subject.session;
        self.watch.prepare_for_filter(self.subject, thread)?;
        if self.subject.fixed_clock {
            self.subject.enable_rdtsc(thread)?;
        }
        let result = self.subject.inject_system_call(thread, Some(self.subject.area), call as libc::c_long, arguments)?;
        // A positive result is the id of a thread to which the filter could not be applied.
        if result == 0 {
            if self.followed.threads == 1 {
                session.remove(|entry| matches!(entry, JournalEntry::TimeStampCounter));
            }
            session.set_filtered();
        }
        ptrace::write_registers(thread, &Registers { rax: result as u64, ..ptrace::read_registers(thread)? })?;
        Ok(result)
    }

    /// Handles the start of a system call: adds the size of the trace's mappings to a limit on the address space.
    pub(super) fn raise_address_space_limit(&mut self, thread: Tid, call: u64, arguments: &[u64; 6]) -> Result<(), CollectError> {
        let Some((Some(place), _)) = self.address_limit_pointers(call, arguments) else { return Ok(()) };
        let memory = &self.subject.memory;
        let (Ok(soft), Ok(hard)) = (memory.word(place), memory.word(place.wrapping_add(8))) else { return Ok(()) };
        let own = AddressLimit { soft, hard };
        if memory.write(place, &own.raised(self.subject.session.mapped_bytes()).bytes()).is_ok() {
            self.pending_limits.insert(thread, (place, own));
        }
        Ok(())
    }

    /// Handles the end of a system call: shows the program its own limit on the address space.
    pub(super) fn show_own_address_space_limit(&mut self, thread: Tid, call: &Registers, result: i64) -> Result<(), CollectError> {
        let arguments = [call.rdi, call.rsi, call.rdx, call.r10, call.r8, call.r9];
        let Some((_, old)) = self.address_limit_pointers(call.orig_rax, &arguments) else { return Ok(()) };
        let session = &self.subject.session;
        let before = session.address_limit();
        if let Some((place, own)) = self.pending_limits.remove(&thread) {
            self.subject.memory.write(place, &own.bytes())?;
            if result == 0 {
                session.set_address_limit(own);
            }
        }
        match (old, before) {
            (Some(old), Some(before)) if result == 0 => Ok(self.subject.memory.write(old, &before.bytes())?),
            _ => Ok(()),
        }
    }

    /// If a system call sets or reads the address-space limit, returns where it reads the new limit and where it writes the limit that was
    /// in force; `None` for an absent pointer.
    fn address_limit_pointers(&self, call: u64, arguments: &[u64; 6]) -> Option<(Option<u64>, Option<u64>)> {
        let [first, second, third, fourth, ..] = *arguments;
        let place = |at: u64| Some(at).filter(|at| *at != 0);
        let is_own = first == 0 || first as Tid == self.subject.process;
        const ADDRESS_SPACE_RESOURCE: u64 = libc::RLIMIT_AS as u64;
        match call as i64 {
            libc::SYS_prlimit64 if is_own && second == ADDRESS_SPACE_RESOURCE => Some((place(third), place(fourth))),
            libc::SYS_setrlimit if first == ADDRESS_SPACE_RESOURCE => Some((place(second), None)),
            libc::SYS_getrlimit if first == ADDRESS_SPACE_RESOURCE => Some((None, place(second))),
            _ => None,
        }
    }
}

/// Restores the program's own limit in a process that has no mappings of the trace: one that has executed a different program, or a child
/// from which they were removed.
pub fn restore_limit(session: &Session, thread: Tid) {
    // A process that is not followed may have set a different limit.
    if let Some(own) = session.address_limit().filter(|own| AddressLimit::of(thread) == Some(own.raised(session.mapped_bytes()))) {
        own.set(thread);
    }
}
