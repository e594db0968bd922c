//! Events of the scheduler to calls: who slept, who woke whom.
//!
//! A thread that leaves the processor asleep waits for the thread that wakes it; woken by an interrupt (from the idle
//! thread), it was blocked by something outside. One that leaves it ready to run waits for a processor. The events have
//! no stacks: code is the thread's name.

use super::{Imported, ImportedEvent, ImportedLocation, What, code};
use crate::replay::LocationName;
use std::collections::BTreeMap;
use trodden_waits::call::{ObjectId, SleepKind};
use trodden_waits::{Call, LocationState, ProcessId};

/// What a thread does at present.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Running,
    Runnable,
    /// Asleep; whether a thread has woken it.
    Asleep(bool),
}

struct Thread {
    name: String,
    doing: Doing,
    begin_ns: u64,
    events: Vec<ImportedEvent>,
}

/// An event of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Switch,
    /// A thread is woken.
    Wake,
}

/// What a trace says of wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUps {
    /// `sched_waking`, which the waker itself causes.
    Waking,
    /// Only `sched_wakeup`: an older event, which may be another processor's that makes the woken thread ready to run.
    Wakeup,
    Missing,
}

impl WakeUps {
    /// What a text has.
    pub fn of(text: &str) -> WakeUps {
        let has = |name: &str| text.contains(name);
        match (has("sched_waking: "), has("sched_wakeup: ")) {
            (true, _) => WakeUps::Waking,
            (false, true) => WakeUps::Wakeup,
            (false, false) => WakeUps::Missing,
        }
    }

    /// A line that has an event: what is in front of it, and its fields.
    pub fn event_of(self, line: &str) -> Option<(&str, &str, Event)> {
        let wake = if self == WakeUps::Waking { "sched_waking: " } else { "sched_wakeup: " };
        let found = [("sched_switch: ", Event::Switch), (wake, Event::Wake)];
        found.into_iter().find_map(|(name, event)| line.split_once(name).map(|(head, fields)| (head, fields, event)))
    }
}

/// A time of whole seconds and a fraction, at most nine digits of which count, in ns.
pub fn nanoseconds(seconds: u64, fraction: &str) -> Option<u64> {
    let digits = fraction.len().min(9) as u32;
    let fraction: u64 = fraction.get(..digits as usize)?.parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction * 10u64.pow(9 - digits))
}

/// The threads of a trace, while its events come in order of time.
pub struct Scheduler {
    imported: Imported,
    threads: BTreeMap<u32, Thread>,
    wake_ups: WakeUps,
    events: u64,
    sleeps: u64,
}

impl Scheduler {
    /// Before the first event.
    pub fn new(wake_ups: WakeUps) -> Scheduler {
        let mut imported = Imported::default();
        code(&mut imported.names, &["(start)"], None, "", 0);
        Scheduler { imported, threads: BTreeMap::new(), wake_ups, events: 0, sleeps: 0 }
    }

    /// A thread leaves a processor, ready to run or asleep, and another one gets it.
    pub fn switch(&mut self, (from, name, is_ready): (u32, &str, bool), (to, next): (u32, &str), time_ns: u64) {
        self.events += 1;
        self.leave((from, name, is_ready), time_ns);
        self.arrive((to, next), time_ns);
    }

    /// A thread, or an interrupt (0), wakes another.
    pub fn wake(&mut self, waker: u32, woken: u32, time_ns: u64) {
        self.events += 1;
        let by_thread = waker != 0;
        if let Some(Thread { doing: Doing::Asleep(is_woken), .. }) = self.threads.get_mut(&woken) {
            *is_woken |= by_thread;
        }
        if let Some(thread) = self.threads.get_mut(&waker).filter(|_| by_thread) {
            let site = code(&mut self.imported.names, &[&thread.name], Some("wake"), "", 0);
            let own = code(&mut self.imported.names, &[&thread.name], None, "", 0);
            let wake = Call::Wake(ObjectId(u64::from(woken)), 1);
            let events = [What::Run(own, LocationState::Computing), What::Enter(wake.clone(), site), What::Exit(wake)];
            thread.events.extend(events.map(|what| ImportedEvent { time_ns, what }));
        }
    }

    fn leave(&mut self, (id, name, is_ready): (u32, &str, bool), time_ns: u64) {
        if id == 0 {
            return;
        }
        let thread = thread(&mut self.threads, id, name, time_ns);
        let own = code(&mut self.imported.names, &[name], None, "", 0);
        thread.events.push(ImportedEvent { time_ns, what: What::Run(own, LocationState::Computing) });
        if is_ready {
            thread.doing = Doing::Runnable;
        } else {
            let site = code(&mut self.imported.names, &[name], Some("sleep"), "", 0);
            thread.doing = Doing::Asleep(false);
            self.sleeps += 1;
            // How it ends is known when it is woken.
            thread.events.push(ImportedEvent { time_ns, what: What::Enter(Call::Blocked, site) });
        }
    }

    fn arrive(&mut self, (id, name): (u32, &str), time_ns: u64) {
        if id == 0 {
            return;
        }
        let thread = thread(&mut self.threads, id, name, time_ns);
        match thread.doing {
            Doing::Running => {}
            Doing::Runnable => {
                let queue = code(&mut self.imported.names, &[name, "(waits for a processor)"], None, "", 0);
                thread.events.push(ImportedEvent { time_ns, what: What::Run(queue, LocationState::Blocked) });
            }
            Doing::Asleep(is_woken) => {
                let call = if is_woken { Call::Sleep(ObjectId(u64::from(id)), SleepKind::Futex, true) } else { Call::Blocked };
                if let Some(ImportedEvent { what: What::Enter(entered, _), .. }) = thread.events.last_mut() {
                    *entered = call.clone();
                }
                thread.events.push(ImportedEvent { time_ns, what: What::Exit(call) });
            }
        }
        thread.doing = Doing::Running;
    }

    /// After the last event.
    pub fn finish(self) -> Imported {
        let Scheduler { mut imported, threads, wake_ups, events, sleeps } = self;
        imported.notes.push(format!("{events} events of the scheduler without stacks: code is named by threads"));
        match wake_ups {
            WakeUps::Waking => {}
            WakeUps::Wakeup => imported.notes.push(
                "the trace has no events sched_waking: wakers are those of sched_wakeup, which is often recorded on the processor of \
                    the woken thread instead"
                    .into(),
            ),
            WakeUps::Missing => imported.notes.push(format!(
                "the trace has no events sched_waking or sched_wakeup, so nothing says who ended its {sleeps} sleeps: record \
                    sched_waking, too"
            )),
        }
        for (id, thread) in threads {
            let label = Some(format!("{} {id}", thread.name));
            let name = LocationName { process: id, label, ..LocationName::default() };
            // Objects are threads, of all processes at once.
            let process = ProcessId(0);
            imported.locations.push(ImportedLocation { name, process, begin_ns: thread.begin_ns, events: thread.events });
        }
        imported
    }
}

fn thread<'a>(threads: &'a mut BTreeMap<u32, Thread>, id: u32, name: &str, time_ns: u64) -> &'a mut Thread {
    threads.entry(id).or_insert_with(|| Thread { name: name.to_owned(), doing: Doing::Running, begin_ns: time_ns, events: Vec::new() })
}
