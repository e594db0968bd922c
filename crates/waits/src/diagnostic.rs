//! Gaps and contradictions in a trace. All occurrences of each kind are counted, but only the first one is stored, because the trace of a
//! killed program may contain very many.

use crate::step::LocationId;
use std::collections::BTreeMap;
use std::fmt;

/// A kind of gap or contradiction in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Diagnostic {
    /// An event is earlier than the previous event of its location.
    TimeRunsBack,
    /// A call returns without having been entered, or is entered inside another call; or a location starts twice, or has an event before
    /// its start.
    Unbalanced,
    /// A receive was started, but the trace has no send for it.
    ReceiveWithoutSend,
    /// A receive completed before its send started, so the clocks differ.
    ReceiveBeforeSend,
    /// A member left a collective operation, or a thread left a barrier, before all those that it waits for had entered.
    LeftBeforeEntered,
    /// Members called different collective operations at the same point.
    DifferentCollectives,
    /// A call started a persistent request that no call had created.
    UnknownRequest,
    /// A contended lock was acquired, but the trace does not contain its release.
    LockWithoutUnlock,
    /// A thread was woken, but the trace has no waker.
    SleepWithoutWake,
    /// A thread was joined, but the trace does not show that it ended.
    JoinWithoutEnd,
    /// A thread started, but the trace has no call that created it.
    StartWithoutCreate,
    /// A message was sent to or received from a process that is not in the trace.
    UnknownProcess,
    /// A message was sent, but the trace does not show that it was received.
    SendWithoutReceive,
    /// A location ends inside a call, because the program was killed or the trace is truncated.
    EndsInsideCall,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Diagnostic::TimeRunsBack => "an event is earlier than its thread's previous event; the later time was used",
            Diagnostic::Unbalanced => "a call returns without having been entered, or is entered inside another call; it was ignored",
            Diagnostic::ReceiveWithoutSend => "a receive has no earlier send in the trace; its wait is not explained",
            Diagnostic::ReceiveBeforeSend => "a receive ends before its send starts, so the clocks differ; its wait is not explained",
            Diagnostic::LeftBeforeEntered => {
                "a collective operation returns before the processes that it waits for have entered, so the clocks differ or the trace is \
                    truncated; its wait is not explained"
            }
            Diagnostic::DifferentCollectives => "members called different collective operations at the same point; they are not matched",
            Diagnostic::UnknownRequest => "a request completed, but the trace does not contain its start",
            Diagnostic::LockWithoutUnlock => {
                "a contended lock was acquired, but the trace does not contain its release; the wait is not explained"
            }
            Diagnostic::SleepWithoutWake => {
                "a thread was woken, but the trace does not show which thread woke it; its wait is not explained"
            }
            Diagnostic::JoinWithoutEnd => "a thread was joined, but the trace does not contain its end; the wait is not explained",
            Diagnostic::StartWithoutCreate => "a thread started, but the trace does not show which thread created it",
            Diagnostic::UnknownProcess => "a message names a process that is not in the trace",
            Diagnostic::SendWithoutReceive => "a message was sent, but the trace does not contain its receive",
            Diagnostic::EndsInsideCall => "the trace ends inside a call",
        })
    }
}

/// The gaps and contradictions that were found in a trace, by kind.
#[derive(Clone, Debug, Default)]
pub struct DiagnosticCounts {
    found: BTreeMap<Diagnostic, DiagnosticOccurrences>,
}

/// Number of occurrences of a kind, and where the first one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiagnosticOccurrences {
    /// Number of occurrences.
    pub count: u64,
    /// Location of the first occurrence.
    pub location: LocationId,
    /// Time of the first occurrence in ns since the start of the run.
    pub time_ns: u64,
}

impl DiagnosticCounts {
    /// Counts an occurrence. If it is the first of its kind, stores its location and time.
    pub fn add(&mut self, diagnostic: Diagnostic, location: LocationId, time_ns: u64) {
        self.found.entry(diagnostic).or_insert(DiagnosticOccurrences { count: 0, location, time_ns }).count += 1;
    }

    /// Iterates over the kinds that occurred.
    pub fn iter(&self) -> impl Iterator<Item = (Diagnostic, DiagnosticOccurrences)> + '_ {
        self.found.iter().map(|(diagnostic, found)| (*diagnostic, *found))
    }

    /// Returns the number of occurrences of a kind.
    pub fn count(&self, diagnostic: Diagnostic) -> u64 {
        self.found.get(&diagnostic).map_or(0, |found| found.count)
    }
}
