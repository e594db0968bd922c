//! What a trace lacks or contradicts. Counted, with the first place of each kind: a trace of a killed program has many.

use crate::step::LocationId;
use std::collections::BTreeMap;
use std::fmt;

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Diagnostic {
    /// An event lies before the one in front of it.
    TimeRunsBack,
    /// A call ends that did not begin, or begins inside another.
    Unbalanced,
    /// A receive ended, and its send is not in the trace before.
    ReceiveWithoutSend,
    /// A receive ended before its send began: clocks differ.
    ReceiveBeforeSend,
    /// A member left a collective operation before all those it waits for had entered.
    LeftBeforeEntered,
    /// Members of one collective operation called different ones.
    DifferentCollectives,
    /// A request was completed that was not begun.
    UnknownRequest,
    /// A contended lock was taken, and no release of it is in the trace.
    LockWithoutUnlock,
    /// A thread was woken, and no waker is in the trace.
    SleepWithoutWake,
    /// A thread was joined whose end is not in the trace.
    JoinWithoutEnd,
    /// A thread began, and no call that made it is in the trace.
    StartWithoutCreate,
    /// A message names a process that is not in the trace.
    UnknownProcess,
    /// Sends whose receives the trace does not have.
    SendWithoutReceive,
    /// A location ends inside a call: the program was killed, or the trace cut.
    EndsInsideCall,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Diagnostic::TimeRunsBack => "an event lies before the one in front of it; it was moved to that one's time",
            Diagnostic::Unbalanced => "a call ends that did not begin, or begins inside another; it was left out",
            Diagnostic::ReceiveWithoutSend => "a receive has no send before it; its wait is not explained",
            Diagnostic::ReceiveBeforeSend => "a receive ends before its send begins: the clocks differ; its wait is not explained",
            Diagnostic::LeftBeforeEntered => {
                "a collective operation was left before those it waits for had entered: the clocks differ, or the trace is cut; its wait \
                    is not explained"
            }
            Diagnostic::DifferentCollectives => "members of a collective operation called different ones; it is not matched",
            Diagnostic::UnknownRequest => "a request was completed that was not begun in the trace",
            Diagnostic::LockWithoutUnlock => "a contended lock was taken, and the trace has no release of it; its wait is not explained",
            Diagnostic::SleepWithoutWake => "a thread was woken, and the trace does not say by whom; its wait is not explained",
            Diagnostic::JoinWithoutEnd => "a thread was joined whose end the trace does not have; the wait is not explained",
            Diagnostic::StartWithoutCreate => "a thread began, and the trace does not say who made it",
            Diagnostic::UnknownProcess => "a message names a process that the trace does not have",
            Diagnostic::SendWithoutReceive => "a message was sent and, as far as the trace goes, not received",
            Diagnostic::EndsInsideCall => "the trace ends inside a call",
        })
    }
}

/// Findings by kind.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    found: BTreeMap<Diagnostic, FoundDiagnostic>,
}

/// How often, and where first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundDiagnostic {
    /// Times.
    pub count: u64,
    /// Location of the first.
    pub location: LocationId,
    /// Time of the first, ns since the origin.
    pub time_ns: u64,
}

impl Diagnostics {
    /// One more.
    pub fn add(&mut self, diagnostic: Diagnostic, location: LocationId, time_ns: u64) {
        self.found.entry(diagnostic).or_insert(FoundDiagnostic { count: 0, location, time_ns }).count += 1;
    }

    /// All.
    pub fn iter(&self) -> impl Iterator<Item = (Diagnostic, FoundDiagnostic)> + '_ {
        self.found.iter().map(|(diagnostic, found)| (*diagnostic, *found))
    }

    /// How often one was found.
    pub fn count(&self, diagnostic: Diagnostic) -> u64 {
        self.found.get(&diagnostic).map_or(0, |found| found.count)
    }
}
