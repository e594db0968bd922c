//! Text of `perf script` (or `perf sched script`): who slept, who woke whom.
//!
//! ```text
//!   comm  1234 [001]  100.123456: sched:sched_waking: comm=worker pid=1235 prio=120 target_cpu=000
//!   comm  1234 [001]  100.123456: sched:sched_switch: prev_comm=comm prev_pid=1234 prev_prio=120 prev_state=S ==> next_comm=x
//! next_pid=0 ...
//! ```
//!
//! A thread that leaves the processor in state S or D waits for the thread that wakes it; woken by an interrupt (from the idle
//! thread), it was
//! blocked by something outside. One that leaves it in state R waits for a processor. The events have no stacks: code is the thread's name.

use super::super::replay::LocationName;
use super::{Event, Imported, ImportedLocation, What, code};
use anyhow::{Result, anyhow, bail};
use std::collections::BTreeMap;
use std::path::Path;
use trodden_waits::call::{ObjectId, SleepKind};
use trodden_waits::{Call, ProcessId, State};

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
    events: Vec<Event>,
}

/// Reads the text.
///
/// # Errors
/// A line is damaged, or times run back.
pub fn read(path: &Path, text: &str) -> Result<Imported> {
    let mut imported = Imported::default();
    code(&mut imported.names, &["(start)"], None, "", 0);
    let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
    let mut last_ns = 0;
    let mut known = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let place = |what: &str| anyhow!("{}:{number}: {what}: write it by `perf script`", path.display());
        let Some((head, event)) = ["sched_switch: ", "sched_waking: "].iter().find_map(|name| Some((line.split_once(name)?, *name))) else {
            continue;
        };
        known += 1;
        let time_ns = time(head.0).ok_or_else(|| place("no time before the event"))?;
        if time_ns < last_ns {
            bail!("{}:{number}: its time is before that of the line in front of it", path.display());
        }
        last_ns = time_ns;
        let field = |name: &str| field(head.1, name).ok_or_else(|| place(&format!("no field {name}")));
        if event == "sched_waking: " {
            let waker = pid_of_head(head.0).ok_or_else(|| place("no thread before the event"))?;
            waking(&mut imported, &mut threads, (waker, number_of(&field("pid")?)?), time_ns);
        } else {
            let (from, to) = (number_of(&field("prev_pid")?)?, number_of(&field("next_pid")?)?);
            leave(&mut imported, &mut threads, (from, &field("prev_comm")?, &field("prev_state")?), time_ns);
            arrive(&mut imported, &mut threads, (to, &field("next_comm")?), time_ns);
        }
    }
    imported.notes.push(format!("{known} events of the scheduler without stacks: code is named by threads"));
    for (index, (id, thread)) in threads.into_iter().enumerate() {
        let name = LocationName {
            process: id,
            is_rank: false,
            thread: 0,
            computing_ns: 0,
            processor_ns: 0,
            label: Some(format!("{} {id}", thread.name)),
        };
        imported.locations.push(ImportedLocation {
            name,
            process: ProcessId(index as u32),
            begin_ns: thread.begin_ns,
            events: thread.events,
        });
    }
    share_objects(&mut imported);
    Ok(imported)
}

/// Objects are threads, of all processes at once.
fn share_objects(imported: &mut Imported) {
    imported.locations.iter_mut().for_each(|location| location.process = ProcessId(0));
}

fn waking(imported: &mut Imported, threads: &mut BTreeMap<u32, Thread>, (waker, woken): (u32, u32), time_ns: u64) {
    let by_thread = waker != 0;
    if let Some(thread) = threads.get_mut(&woken)
        && let Doing::Asleep(is_woken) = &mut thread.doing
    {
        *is_woken |= by_thread;
    }
    if let Some(thread) = threads.get_mut(&waker).filter(|_| by_thread) {
        let site = code(&mut imported.names, &[&thread.name], Some("wake"), "", 0);
        let own = code(&mut imported.names, &[&thread.name], None, "", 0);
        let wake = Call::Wake(ObjectId(u64::from(woken)), 1);
        let events = [What::Run(own, State::Computing), What::Enter(wake.clone(), site), What::Exit(wake)];
        thread.events.extend(events.map(|what| Event { time_ns, what }));
    }
}

fn leave(imported: &mut Imported, threads: &mut BTreeMap<u32, Thread>, (id, name, state): (u32, &str, &str), time_ns: u64) {
    if id == 0 {
        return;
    }
    let thread = thread(threads, id, name, time_ns);
    let own = code(&mut imported.names, &[name], None, "", 0);
    thread.events.push(Event { time_ns, what: What::Run(own, State::Computing) });
    if state.starts_with('R') {
        thread.doing = Doing::Runnable;
    } else {
        let site = code(&mut imported.names, &[name], Some("sleep"), "", 0);
        thread.doing = Doing::Asleep(false);
        // How it ends is known when it is woken.
        thread.events.push(Event { time_ns, what: What::Enter(Call::Blocked, site) });
    }
}

fn arrive(imported: &mut Imported, threads: &mut BTreeMap<u32, Thread>, (id, name): (u32, &str), time_ns: u64) {
    if id == 0 {
        return;
    }
    let thread = thread(threads, id, name, time_ns);
    match thread.doing {
        Doing::Running => {}
        Doing::Runnable => {
            let queue = code(&mut imported.names, &[name, "(waits for a processor)"], None, "", 0);
            thread.events.push(Event { time_ns, what: What::Run(queue, State::Blocked) });
        }
        Doing::Asleep(is_woken) => {
            let call = if is_woken { Call::Sleep(ObjectId(u64::from(id)), SleepKind::Futex, true) } else { Call::Blocked };
            if let Some(Event { what: What::Enter(entered, _), .. }) = thread.events.last_mut() {
                *entered = call.clone();
            }
            thread.events.push(Event { time_ns, what: What::Exit(call) });
        }
    }
    thread.doing = Doing::Running;
}

fn thread<'a>(threads: &'a mut BTreeMap<u32, Thread>, id: u32, name: &str, time_ns: u64) -> &'a mut Thread {
    threads.entry(id).or_insert_with(|| Thread { name: name.to_owned(), doing: Doing::Running, begin_ns: time_ns, events: Vec::new() })
}

/// `... 100.123456: ` or with nine digits, in ns.
fn time(head: &str) -> Option<u64> {
    let word = head.split_ascii_whitespace().rev().find_map(|word| {
        let word = word.strip_suffix(':')?;
        word.contains('.').then_some(word)
    })?;
    let (seconds, fraction) = word.split_once('.')?;
    let digits = fraction.len().min(9) as u32;
    let fraction: u64 = fraction.get(..digits as usize)?.parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction * 10u64.pow(9 - digits))
}

/// The thread that an event interrupted: the number before `[cpu]`.
fn pid_of_head(head: &str) -> Option<u32> {
    let before = head.split_once('[')?.0;
    before.split_ascii_whitespace().last()?.rsplit('/').next()?.parse().ok()
}

/// The value of `name=`; names of threads may have blanks in them.
fn field(fields: &str, name: &str) -> Option<String> {
    let start = fields.match_indices(name).find(|(at, _)| {
        let is_begin = *at == 0 || fields.as_bytes()[at - 1] == b' ';
        is_begin && fields[at + name.len()..].starts_with('=')
    })?;
    let rest = &fields[start.0 + name.len() + 1..];
    let end = rest.match_indices(' ').map(|(at, _)| at).find(|at| {
        let next = rest[at + 1..].split(' ').next().unwrap_or("");
        next.contains('=') || next == "==>"
    });
    Some(rest[..end.unwrap_or(rest.len())].trim().to_owned())
}

fn number_of(text: &str) -> Result<u32> {
    text.parse().map_err(|_| anyhow!("`{text}` is not the number of a thread"))
}
