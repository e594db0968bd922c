//! Converts scheduler events to calls for the analysis.
//!
//! A thread that leaves the processor in order to sleep waits for the thread that wakes it. If it is woken by an interrupt (in the idle
//! thread), it was blocked by something outside the trace. A thread that leaves the processor while it is ready to run waits for a
//! processor. Scheduler events have no call stacks, so code is named after the thread.

use super::{EventKind, ImportedEvent, ImportedLocation, ImportedTrace, intern_code};
use crate::replay::NamedLocation;
use std::collections::BTreeMap;
use trodden_text::words::plural;
use trodden_waits::call::{ObjectId, SleepKind};
use trodden_waits::{Call, LocationState, ProcessId};

#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Running,
    Runnable,
    /// The thread sleeps. The flag is true if another thread has already woken it.
    Asleep(bool),
}

struct ScheduledThread {
    name: String,
    state: ThreadState,
    begin_ns: u64,
    events: Vec<ImportedEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerEvent {
    Switch,
    Wake,
}

/// The events by which a trace records that one thread wakes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUpEventNames {
    /// The event `sched_waking`, which occurs in the thread that wakes the other.
    Waking,
    /// Only the older event `sched_wakeup`, which may occur in another thread on the processor of the woken thread.
    Wakeup,
    Missing,
}

impl WakeUpEventNames {
    /// Determines which of these events a trace contains, given its text.
    pub fn detect(text: &str) -> WakeUpEventNames {
        let has = |name: &str| text.contains(name);
        match (has("sched_waking: "), has("sched_wakeup: ")) {
            (true, _) => WakeUpEventNames::Waking,
            (false, true) => WakeUpEventNames::Wakeup,
            (false, false) => WakeUpEventNames::Missing,
        }
    }

    /// Splits a line into the text before the name of the event, the fields of the event, and the kind of event. Returns `None` if the line
    /// is not an event.
    pub fn parse_event(self, line: &str) -> Option<(&str, &str, SchedulerEvent)> {
        let wake = if self == WakeUpEventNames::Waking { "sched_waking: " } else { "sched_wakeup: " };
        let found = [("sched_switch: ", SchedulerEvent::Switch), (wake, SchedulerEvent::Wake)];
        found.into_iter().find_map(|(name, event)| line.split_once(name).map(|(head, fields)| (head, fields, event)))
    }
}

/// Converts seconds and the decimal digits after the point to ns. Digits after the ninth are ignored.
pub fn to_nanoseconds(seconds: u64, fraction: &str) -> Option<u64> {
    let digits = fraction.len().min(9) as u32;
    let fraction: u64 = fraction.get(..digits as usize)?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction * 10u64.pow(9 - digits))
}

/// The state of the conversion. Events must be added in chronological order.
pub struct SchedulerTraceImporter {
    imported: ImportedTrace,
    threads: BTreeMap<u32, ScheduledThread>,
    wake_ups: WakeUpEventNames,
    events: u64,
    sleeps: u64,
}

impl SchedulerTraceImporter {
    pub fn new(wake_ups: WakeUpEventNames) -> SchedulerTraceImporter {
        let mut imported = ImportedTrace::default();
        intern_code(&mut imported.names, &["(start)"], None, "", 0);
        SchedulerTraceImporter { imported, threads: BTreeMap::new(), wake_ups, events: 0, sleeps: 0 }
    }

    /// Adds a context switch. `from` is the ID and name of the thread that leaves the processor, and whether it is still ready to run. `to`
    /// is the ID and name of the thread that gets the processor.
    pub fn add_switch(&mut self, from: (u32, &str, bool), to: (u32, &str), time_ns: u64) {
        self.events += 1;
        self.switch_thread_out(from, time_ns);
        self.switch_thread_in(to, time_ns);
    }

    /// Adds the event that the thread `waker` wakes the thread `woken`. If `waker` is 0, an interrupt has woken it.
    pub fn add_wake_up(&mut self, waker: u32, woken: u32, time_ns: u64) {
        self.events += 1;
        let by_thread = waker != 0;
        if let Some(ScheduledThread { state: ThreadState::Asleep(is_woken), .. }) = self.threads.get_mut(&woken) {
            *is_woken |= by_thread;
        }
        if let Some(thread) = self.threads.get_mut(&waker).filter(|_| by_thread) {
            let site = intern_code(&mut self.imported.names, &[&thread.name], Some("wake"), "", 0);
            let own = intern_code(&mut self.imported.names, &[&thread.name], None, "", 0);
            let wake = Call::Wake(ObjectId(u64::from(woken)), 1);
            let events = [EventKind::Run(own, LocationState::Computing), EventKind::Enter(wake.clone(), site), EventKind::Exit(wake)];
            thread.events.extend(events.map(|kind| ImportedEvent { time_ns, kind }));
        }
    }

    fn switch_thread_out(&mut self, (id, name, is_ready): (u32, &str, bool), time_ns: u64) {
        if id == 0 {
            return;
        }
        let thread = thread_entry(&mut self.threads, id, name, time_ns);
        let own = intern_code(&mut self.imported.names, &[name], None, "", 0);
        thread.events.push(ImportedEvent { time_ns, kind: EventKind::Run(own, LocationState::Computing) });
        if is_ready {
            thread.state = ThreadState::Runnable;
        } else {
            let site = intern_code(&mut self.imported.names, &[name], Some("sleep"), "", 0);
            thread.state = ThreadState::Asleep(false);
            self.sleeps += 1;
            // If another thread wakes the sleeper, `switch_thread_in` replaces this call.
            thread.events.push(ImportedEvent { time_ns, kind: EventKind::Enter(Call::Blocked, site) });
        }
    }

    fn switch_thread_in(&mut self, (id, name): (u32, &str), time_ns: u64) {
        if id == 0 {
            return;
        }
        let thread = thread_entry(&mut self.threads, id, name, time_ns);
        match thread.state {
            ThreadState::Running => {}
            ThreadState::Runnable => {
                let queue = intern_code(&mut self.imported.names, &[name, "(waits for a processor)"], None, "", 0);
                thread.events.push(ImportedEvent { time_ns, kind: EventKind::Run(queue, LocationState::Blocked) });
            }
            ThreadState::Asleep(is_woken) => {
                let call = if is_woken { Call::Sleep(ObjectId(u64::from(id)), SleepKind::Futex, true) } else { Call::Blocked };
                if let Some(ImportedEvent { kind: EventKind::Enter(entered, _), .. }) = thread.events.last_mut() {
                    *entered = call.clone();
                }
                thread.events.push(ImportedEvent { time_ns, kind: EventKind::Exit(call) });
            }
        }
        thread.state = ThreadState::Running;
    }

    pub fn finish(self) -> ImportedTrace {
        let SchedulerTraceImporter { mut imported, threads, wake_ups, events, sleeps } = self;
        let events = plural(events.into(), "scheduler event", "scheduler events");
        imported.notes.push(format!("{events} without call stacks: code is named after threads"));
        match wake_ups {
            WakeUpEventNames::Waking => {}
            WakeUpEventNames::Wakeup => imported.notes.push(
                "the trace has no events sched_waking: wakers are taken from sched_wakeup, which often occurs on the processor of the \
                    woken thread instead"
                    .into(),
            ),
            WakeUpEventNames::Missing => imported.notes.push(format!(
                "the trace has no events sched_waking or sched_wakeup, so it does not show which threads ended its {}. Record \
                    sched_waking as well",
                plural(sleeps.into(), "sleep", "sleeps")
            )),
        }
        for (id, thread) in threads {
            let label = Some(format!("{} {id}", thread.name));
            let name = NamedLocation { process: id, label, ..NamedLocation::default() };
            // Objects represent the threads themselves. A thread may wake threads of other processes, but objects are only unique within a
            // process, so all locations get the same process.
            let process = ProcessId(0);
            imported.locations.push(ImportedLocation { name, process, begin_ns: thread.begin_ns, events: thread.events });
        }
        imported
    }
}

fn thread_entry<'a>(threads: &'a mut BTreeMap<u32, ScheduledThread>, id: u32, name: &str, time_ns: u64) -> &'a mut ScheduledThread {
    threads.entry(id).or_insert_with(|| ScheduledThread {
        name: name.to_owned(),
        state: ThreadState::Running,
        begin_ns: time_ns,
        events: Vec::new(),
    })
}
