//! Clocks of several hosts, corrected by the messages between them.
//!
//! A message is received after it was sent. On clocks that differ by an offset, the least time from send to receive in one direction
//! is the least latency plus
//! the offset, in the other direction the least latency less the offset: half the difference of both is the offset, and half their
//! sum bounds its error.
//! An operation of all with all is such a message from the last entry on each host to the first exit on each other one. Offsets are
//! taken in the first and in the
//! second half of the run, and interpolated: clocks drift. Hosts that exchange nothing in both directions stay uncorrected, and that
//! is said.

use super::clock::{Clocks, Shift};
use super::convert::{Converter, Parts};
use super::recording::Recording;
use anyhow::Result;
use std::collections::{BTreeMap, HashMap};
use trodden_waits::call::{CommunicatorId, Message};
use trodden_waits::{Call, ProcessId, Rule};

/// A host, by its first process.
type Host = usize;
/// Communicator, sender, receiver, tag.
type Channel = (CommunicatorId, ProcessId, ProcessId, i32);

/// The least delay in each half of the run, ns.
type Least = [Option<i128>; 2];

#[derive(Default)]
struct Times {
    sends: HashMap<Channel, Vec<(i128, Host)>>,
    receives: HashMap<Channel, Vec<(i128, Host)>>,
    /// Last entry and first exit on each host, by operation.
    operations: HashMap<(CommunicatorId, u64), BTreeMap<Host, (i128, i128)>>,
}

/// Corrects the clocks of a recording of several hosts.
///
/// # Errors
/// A file cannot be read.
pub fn correct(recording: &Recording, clocks: &mut Clocks) -> Result<()> {
    let host_of = |process: usize| {
        let file = &recording.processes[process].file;
        recording.processes.iter().position(|p| (&p.file.host, &p.file.boot) == (&file.host, &file.boot)).unwrap_or(process)
    };
    let hosts: Vec<Host> = (0..recording.processes.len()).map(host_of).collect();
    if hosts.iter().all(|host| *host == 0) {
        return Ok(());
    }
    let times = collect(recording, clocks, &hosts)?;
    let (least, middles) = delays(&times);
    let mut known: BTreeMap<Host, (Shift, i128)> = BTreeMap::from([(0, (Shift::default(), 0))]);
    loop {
        let next = least.keys().find_map(|(from, to)| {
            let (shift, error) = known.get(from).filter(|_| !known.contains_key(to))?;
            let (found, own) = offset(least.get(&(*from, *to))?, least.get(&(*to, *from))?, middles)?;
            Some((*to, (shift.and(&found), error + own)))
        });
        let Some((host, found)) = next else { break };
        known.insert(host, found);
    }
    for (process, host) in hosts.iter().enumerate() {
        let name = &recording.processes[*host].file.host;
        match known.get(host) {
            Some((shift, error)) => {
                clocks.clocks[process].shift = *shift;
                if process == *host && process != 0 {
                    clocks.notes.push(format!(
                        "the clock of {name} is corrected by {} ns at the beginning and {} ns at the end of the run, with an error of at \
                            most {error} ns",
                        -shift.at_begin(),
                        -shift.at_end()
                    ));
                }
            }
            None if process == *host => {
                clocks.notes.push(format!("the clock of {name} is not corrected: it has no messages to and from the other hosts"));
            }
            None => {}
        }
    }
    clocks.set_origin(recording);
    Ok(())
}

/// All times of a recording at which messages and operations begin and end.
fn collect(recording: &Recording, clocks: &Clocks, hosts: &[Host]) -> Result<Times> {
    let mut times = Times::default();
    let mut converter = Converter::new(recording);
    let mut counts: HashMap<(CommunicatorId, usize), u64> = HashMap::new();
    for (index, process) in recording.processes.iter().enumerate() {
        let (id, host) = (ProcessId(index as u32), hosts[index]);
        for thread in &process.threads {
            let mut calls = thread.calls()?;
            let mut begun: HashMap<u64, Message> = HashMap::new();
            while let Some(record) = calls.next() {
                let mut parts = Parts::take(&converter, process, id, &record, &mut calls);
                let call = converter.call(process, id, thread.token, &record, &mut parts);
                let [enter, exit] = [record.enter, record.exit].map(|ticks| clocks.clocks[index].absolute_ns(ticks));
                let mut send = |m: &Message| {
                    if let Some((to, tag)) = m.peer.zip(m.tag) {
                        times.sends.entry((m.communicator, id, to, tag)).or_default().push((enter, host));
                    }
                };
                match &call {
                    Call::Send(message, _) | Call::Begin(message, false, _) | Call::Exchange(message, _) => send(message),
                    Call::Begin(message, true, request) => drop(begun.insert(request.0, *message)),
                    Call::Collective(collective) if collective.rule == Rule::All && record.exit != 0 => {
                        let count = counts.entry((collective.communicator, index)).or_default();
                        let on_host = times
                            .operations
                            .entry((collective.communicator, *count))
                            .or_default()
                            .entry(host)
                            .or_insert((i128::MIN, i128::MAX));
                        *on_host = (on_host.0.max(enter), on_host.1.min(exit));
                    }
                    _ => {}
                }
                if let Call::Collective(collective) | Call::BeginCollective(collective, _) = &call {
                    *counts.entry((collective.communicator, index)).or_default() += 1;
                }
                let mut receive = |m: &Message, actual: Option<(ProcessId, i32)>| {
                    if let Some((from, tag)) = actual.or(m.peer.zip(m.tag)).filter(|_| record.exit != 0) {
                        times.receives.entry((m.communicator, from, id, tag)).or_default().push((exit, host));
                    }
                };
                match &call {
                    Call::Receive(message, actual) => receive(message, *actual),
                    Call::Exchange(_, message) => receive(message, None),
                    Call::Wait(completed) => completed.iter().for_each(|one| {
                        if let Some(message) = begun.remove(&one.request.0) {
                            receive(&message, one.peer.zip(one.tag));
                        }
                    }),
                    _ => {}
                }
            }
        }
    }
    Ok(times)
}

/// Least delays between hosts, and the middles of both halves.
fn delays(times: &Times) -> (BTreeMap<(Host, Host), Least>, [i128; 2]) {
    let mut found: Vec<(Host, Host, i128, i128)> = Vec::new();
    for (channel, sends) in &times.sends {
        let receives = times.receives.get(channel).into_iter().flatten();
        found.extend(sends.iter().zip(receives).filter(|(s, r)| s.1 != r.1).map(|(s, r)| (s.1, r.1, s.0, r.0 - s.0)));
    }
    for hosts in times.operations.values() {
        for (from, (enter, _)) in hosts {
            found.extend(hosts.iter().filter(|(to, _)| *to != from).map(|(to, (_, exit))| (*from, *to, *enter, exit - enter)));
        }
    }
    let (first, last) = (found.iter().map(|f| f.2).min().unwrap_or(0), found.iter().map(|f| f.2).max().unwrap_or(0));
    let middle = (first + last) / 2;
    let mut least: BTreeMap<(Host, Host), Least> = BTreeMap::new();
    for (from, to, at, delay) in found {
        let half = &mut least.entry((from, to)).or_default()[usize::from(at > middle)];
        *half = Some(half.map_or(delay, |known| known.min(delay)));
    }
    (least, [(first + middle) / 2, (middle + last) / 2])
}

/// The offset of a host from another, and its error.
fn offset(there: &Least, back: &Least, middles: [i128; 2]) -> Option<(Shift, i128)> {
    let of = |half: usize| Some(((there[half]? - back[half]?) / 2, (there[half]? + back[half]?) / 2));
    match (of(0), of(1)) {
        (Some(first), Some(second)) => Some((Shift::linear(middles, [first.0, second.0]), first.1.max(second.1))),
        (Some(only), None) | (None, Some(only)) => Some((Shift::linear(middles, [only.0; 2]), only.1)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_half_the_difference_of_least_delays() {
        let (shift, error) = offset(&[Some(5_010), Some(5_020)], &[Some(-4_990), Some(-4_990)], [0, 100]).unwrap();
        assert_eq!((shift.at(0), shift.at(100)), (5_000, 5_005));
        assert_eq!(error, 15);
        assert_eq!(offset(&[Some(1), None], &[None, Some(1)], [0, 1]), None);
    }
}
