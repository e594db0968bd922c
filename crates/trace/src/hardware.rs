//! Hardware breakpoints: up to four addresses in the debug registers of each thread. The code is not modified, so that programs which
//! read their own code are not disturbed.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, section 17.2 (DR0 to DR3: addresses, DR6: status, DR7:
//! control).

use crate::CollectError;
use crate::journal::JournalEntry;
use crate::ptrace::{self, Tid};
use crate::session::Session;
use crate::sink::{Sink, SinkFlow, ThreadNumber, TrapOutcome};
use std::ops::Range;

pub const MAX_HARDWARE_BREAKPOINTS: usize = 4;
const DEBUG_STATUS_REGISTER_NUMBER: usize = 6;
const DEBUG_CONTROL_REGISTER_NUMBER: usize = 7;

#[derive(Clone, Debug)]
pub struct HardwareBreakpoints {
    addresses: Vec<u64>,
    /// Addresses at which the program has changed the code, so that hits are no longer recorded.
    released: Vec<u64>,
}

impl HardwareBreakpoints {
    /// Creates breakpoints at addresses in memory.
    ///
    /// # Errors
    /// There are more addresses than registers.
    pub fn new(addresses: Vec<u64>) -> Result<Self, CollectError> {
        match addresses.len() <= MAX_HARDWARE_BREAKPOINTS {
            true => Ok(Self { addresses, released: Vec::new() }),
            false => Err(CollectError::TooManySites { sites: addresses.len(), max: MAX_HARDWARE_BREAKPOINTS }),
        }
    }

    /// Sets the debug registers of a stopped thread.
    ///
    /// # Errors
    /// The kernel or the machine does not support them.
    pub fn begin_thread(&self, session: &Session, thread: Tid) -> Result<(), CollectError> {
        session.enter(JournalEntry::DebugRegisters(thread));
        let mut control = 0;
        for (register, address) in self.addresses.iter().enumerate() {
            ptrace::set_debug_register(thread, register, *address)?;
            // Set the register's local enable bit. Its kind and length fields remain 0, which means execution and one byte.
            control |= 1 << (2 * register);
        }
        Ok(ptrace::set_debug_register(thread, DEBUG_CONTROL_REGISTER_NUMBER, control)?)
    }

    /// Records a hit, if the signal is one. The kernel sets the resume flag, so that the instruction is executed when the thread resumes.
    pub fn handle_trap(&self, thread: Tid, number: ThreadNumber, signal: i32, sink: &mut dyn Sink) -> Result<TrapOutcome, CollectError> {
        if signal != libc::SIGTRAP {
            return Ok(TrapOutcome::Foreign);
        }
        let status = ptrace::debug_register(thread, DEBUG_STATUS_REGISTER_NUMBER)?;
        let Some(register) = (0..self.addresses.len()).find(|register| status & 1 << register != 0) else {
            return Ok(TrapOutcome::Foreign);
        };
        ptrace::set_debug_register(thread, DEBUG_STATUS_REGISTER_NUMBER, 0)?;
        if self.released.contains(&self.addresses[register]) {
            return Ok(TrapOutcome::Recorded(SinkFlow::Continue));
        }
        Ok(TrapOutcome::Recorded(sink.record(number, register as u64)?))
    }

    /// Stops recording hits in a range of code that the program changes.
    pub fn release(&mut self, range: &Range<u64>) {
        self.released.extend(self.addresses.iter().filter(|address| range.contains(address)));
    }
}
