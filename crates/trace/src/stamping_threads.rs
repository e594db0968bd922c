//! Threads that take [order stamps](crate::order_stamps): when they do, and what becomes of a stamp during which a thread stops.

use crate::copied_place::CopiedPlace;
use crate::order_stamps::{LAST_INSTRUCTION_LENGTH, StampState, read_time_stamp_counter};
use crate::ptrace::{self, Registers, Tid};
use crate::ring_layout::TAKES_STAMPS_OFFSET;
use crate::rings::RingBufferIndex;
use crate::sink::{OrderStamp, Sink, StampPosition, ThreadNumber};
use crate::trampolines::{CodePlace, Trampolines};
use std::io;

impl Trampolines {
    /// Begins the stamps of a new thread, with one that says when it starts.
    pub fn begin_stamps_of_thread(&mut self, ring: RingBufferIndex, number: ThreadNumber, sink: &mut dyn Sink) -> io::Result<()> {
        if self.stamps == StampState::NotYet && self.threads.len() > 1 {
            self.set_stamp_state(StampState::Taken)?;
        }
        self.rings.set_word(ring, TAKES_STAMPS_OFFSET, u64::from(self.stamps == StampState::Taken))?;
        if self.stamps == StampState::Taken {
            sink.record_stamp(number, OrderStamp { ticks: read_time_stamp_counter(), position: StampPosition::InBlock });
        }
        Ok(())
    }

    fn set_stamp_state(&mut self, state: StampState) -> io::Result<()> {
        self.stamps = state;
        let takes = state == StampState::Taken;
        self.threads.values().try_for_each(|thread| self.rings.set_word(thread.ring, TAKES_STAMPS_OFFSET, u64::from(takes)))
    }

    /// Returns true if the breakpoint of an order stamp is at an address. It is the only instruction of a stamp that has one byte.
    pub fn is_stamp_breakpoint(&self, address: u64) -> bool {
        let is_stamp = |address: u64| matches!(self.place_at(address), CodePlace::At(CopiedPlace::Stamp { .. }));
        is_stamp(address) && is_stamp(address + 1)
    }

    /// If a stopped thread is taking an order stamp, leaves the stamp out: the thread continues at the instruction after it, with the
    /// registers of the program. Returns false if it takes none.
    pub fn leave_stamp(&self, thread: Tid) -> io::Result<bool> {
        let registers = ptrace::read_registers(thread)?;
        let CodePlace::At(place @ CopiedPlace::Stamp { .. }) = self.place_at(registers.rip) else { return Ok(false) };
        let places = self.places_around(registers.rip).into_iter().flat_map(|places| places.within(&(registers.rip..u64::MAX)));
        let Some((last, _)) = places.take_while(|(_, place)| matches!(place, CopiedPlace::Stamp { .. })).last() else { return Ok(false) };
        let end = last + LAST_INSTRUCTION_LENGTH;
        let own = self.registers_in_image(thread, &place, &registers)?;
        ptrace::write_registers(thread, &Registers { rip: end, ..own })?;
        Ok(true)
    }

    /// If a signal is the fault of an order stamp, because the program has forbidden itself to read the time-stamp counter, ends the
    /// stamps. Returns true if so.
    pub fn handle_stamp_fault(&mut self, thread: Tid, signal: i32) -> io::Result<bool> {
        let is_fault = signal == libc::SIGSEGV && self.stamps == StampState::Taken && self.leave_stamp(thread)?;
        if is_fault {
            self.set_stamp_state(StampState::Ended)?;
        }
        Ok(is_fault)
    }
}
