//! Corrects the clocks of several hosts, using events whose order is known: a receive ends after its send starts, and a collective
//! operation ends after the members that it waits for have entered it.
//!
//! Hosts are corrected one after another, each relative to all hosts that were corrected before. [`trodden_waits::offset`] estimates the
//! differences. If a host has not exchanged messages with others in both directions, it is not corrected, and a note says so.

use crate::clock::ProcessClocks;
use crate::convert::{CallRecordConverter, SupplementaryRecords};
use crate::recording::WaitsRecording;
use anyhow::Result;
use std::collections::{BTreeMap, HashMap};
use trodden_text::words::plural;
use trodden_waits::call::{Collective, CommunicatorId, Message, MultiExchange};
use trodden_waits::offset::OffsetBounds;
use trodden_waits::{Call, CollectiveWaitRule, ProcessId, WaitKind};

/// A host, identified by the index of its first process.
type HostNumber = usize;
/// The communicator, the sender, the receiver, and the tag of messages.
type ChannelKey = (CommunicatorId, ProcessId, ProcessId, i32);

/// Two events on different hosts, of which the first must come before the second. For each event: its host, and the time in ns on that
/// host's clock.
#[derive(Clone, Copy, Debug)]
struct EventPrecedence {
    first: (HostNumber, i128),
    second: (HostNumber, i128),
}

pub fn correct_clocks(recording: &WaitsRecording, clocks: &mut ProcessClocks) -> Result<()> {
    let host_of = |process: usize| {
        let file = &recording.processes[process].file;
        recording.processes.iter().position(|p| (&p.file.host, &p.file.boot) == (&file.host, &file.boot)).unwrap_or(process)
    };
    let hosts: Vec<HostNumber> = (0..recording.processes.len()).map(host_of).collect();
    if hosts.iter().all(|host| *host == 0) {
        return Ok(());
    }
    let mut precedences = collect_message_times(recording, clocks, &hosts)?.find_precedences();
    let mut errors: BTreeMap<HostNumber, i128> = BTreeMap::from([(0, 0)]);
    while let Some((host, bounds)) = find_next_host(&precedences, &errors) {
        let Some(estimate) = bounds.estimate() else { break };
        let error = estimate.error_ns + find_partner_clock_error(&precedences, &errors, host);
        let name = &recording.processes[host].file.host;
        clocks.notes.push(format!(
            "the clock of {name} is corrected by {} ns at the beginning and {} ns at the end of the run, with an error of at \
                most {error} ns",
            -estimate.curve.at_start(),
            -estimate.curve.at_end()
        ));
        if estimate.violated > 0 {
            let violated = plural(
                estimate.violated as u128,
                "message or collective operation still seems to end too early, and its wait is",
                "messages or collective operations still seem to end too early, and their waits are",
            );
            clocks.notes.push(format!("the clock of {name} runs unevenly: {violated} not explained"));
        }
        for precedence in &mut precedences {
            for (_, time) in [&mut precedence.first, &mut precedence.second].into_iter().filter(|(other, _)| *other == host) {
                *time -= estimate.curve.at(*time);
            }
        }
        for (process, _) in hosts.iter().enumerate().filter(|(_, other)| **other == host) {
            clocks.clocks[process].correction = estimate.curve.clone();
        }
        errors.insert(host, error);
    }
    for (process, _) in hosts.iter().enumerate().filter(|(process, host)| process == *host && !errors.contains_key(host)) {
        let name = &recording.processes[process].file.host;
        clocks.notes.push(format!("the clock of {name} is not corrected, as it exchanged no messages with other hosts in both directions"));
    }
    clocks.set_time_origin(recording);
    Ok(())
}

/// Returns the next host to correct: the one with the most messages to and from corrected hosts, counting the direction with fewer
/// messages. Also returns the bounds that these messages impose on its clock.
fn find_next_host(precedences: &[EventPrecedence], corrected: &BTreeMap<HostNumber, i128>) -> Option<(HostNumber, OffsetBounds)> {
    let mut found: BTreeMap<HostNumber, OffsetBounds> = BTreeMap::new();
    for EventPrecedence { first, second } in precedences {
        match (corrected.contains_key(&first.0), corrected.contains_key(&second.0)) {
            (true, false) => found.entry(second.0).or_default().upper.push((second.1, second.1 - first.1)),
            (false, true) => found.entry(first.0).or_default().lower.push((first.1, first.1 - second.1)),
            _ => {}
        }
    }
    found.into_iter().max_by_key(|(host, bounds)| (bounds.lower.len().min(bounds.upper.len()), std::cmp::Reverse(*host)))
}

/// Returns the largest error of the clocks of those hosts with which a host exchanged messages.
fn find_partner_clock_error(precedences: &[EventPrecedence], errors: &BTreeMap<HostNumber, i128>, host: HostNumber) -> i128 {
    let partner = |precedence: &EventPrecedence| match (precedence.first.0 == host, precedence.second.0 == host) {
        (true, _) => errors.get(&precedence.second.0),
        (_, true) => errors.get(&precedence.first.0),
        _ => None,
    };
    precedences.iter().filter_map(partner).max().copied().unwrap_or(0)
}

/// For the members of a collective operation that are on the same host, the times in ns that matter to other hosts.
#[derive(Clone, Copy, Debug, Default)]
struct HostMemberTimes {
    /// The latest entry of one of those members that others wait for.
    entered: Option<i128>,
    /// The earliest exit of one of those members that waits for others.
    left: Option<i128>,
}

/// The times of all messages and collective operations in a recording.
#[derive(Default)]
struct MessageTimes {
    /// For each channel, the times at which sends started, and those at which receives ended, each with its host.
    messages: HashMap<ChannelKey, [Vec<(i128, HostNumber)>; 2]>,
    operations: HashMap<(CommunicatorId, u64), BTreeMap<HostNumber, HostMemberTimes>>,
    counts: HashMap<(CommunicatorId, ProcessId), u64>,
}

fn collect_message_times(recording: &WaitsRecording, clocks: &ProcessClocks, hosts: &[HostNumber]) -> Result<MessageTimes> {
    let mut times = MessageTimes::default();
    let mut converter = CallRecordConverter::new(recording);
    for (index, process) in recording.processes.iter().enumerate() {
        let mut own = MessageTimeCollector {
            id: ProcessId(index as u32),
            host: hosts[index],
            pending: HashMap::new(),
            prepared: HashMap::new(),
            times: &mut times,
        };
        for thread in &process.threads {
            let mut calls = thread.calls();
            while let Some(record) = calls.next() {
                let mut parts = SupplementaryRecords::collect(&converter, process, own.id, &record, &mut calls);
                let call = converter.convert_call(process, own.id, thread.token, &record, &mut parts);
                let [enter, exit] = [record.enter, record.exit].map(|ticks| clocks.clocks[index].absolute_time_ns(ticks));
                own.add_call(&call, enter, Some(exit).filter(|_| record.exit != 0));
            }
        }
    }
    Ok(times)
}

enum PendingCommunication {
    Receives(Vec<Message>),
    Operation(Collective, u64),
}

#[derive(Clone)]
enum PreparedCommunication {
    Messages { sends: Vec<Message>, receives: Vec<Message> },
    Operation(Collective),
}

fn prepare_message(message: Message, is_receive: bool) -> PreparedCommunication {
    let (sends, receives) = if is_receive { (Vec::new(), vec![message]) } else { (vec![message], Vec::new()) };
    PreparedCommunication::Messages { sends, receives }
}

/// Returns the messages of a neighbourhood collective. There are none for a call on a window, because it may return before the other
/// processes have made their calls.
fn prepare_exchange(exchange: &MultiExchange) -> PreparedCommunication {
    if exchange.kind == WaitKind::LateSender {
        PreparedCommunication::Messages { sends: exchange.sends.clone(), receives: exchange.receives.clone() }
    } else {
        PreparedCommunication::Messages { sends: Vec::new(), receives: Vec::new() }
    }
}

struct MessageTimeCollector<'a> {
    id: ProcessId,
    host: HostNumber,
    pending: HashMap<u64, PendingCommunication>,
    prepared: HashMap<u64, PreparedCommunication>,
    times: &'a mut MessageTimes,
}

impl MessageTimeCollector<'_> {
    fn add_call(&mut self, call: &Call, enter: i128, exit: Option<i128>) {
        match call {
            Call::Send(message, _) => self.add_send(message, enter),
            Call::Exchange(message, receive) => {
                self.add_send(message, enter);
                self.add_receive(receive, None, exit);
            }
            Call::Receive(message, actual) => self.add_receive(message, *actual, exit),
            Call::Begin(message, is_receive, request) => self.begin_request(request.0, prepare_message(*message, *is_receive), enter),
            Call::BeginMultiExchange(exchange, request) => self.begin_request(request.0, prepare_exchange(exchange), enter),
            Call::MultiExchange(exchange) => {
                let PreparedCommunication::Messages { sends, receives } = prepare_exchange(exchange) else { return };
                sends.iter().for_each(|message| self.add_send(message, enter));
                receives.iter().for_each(|message| self.add_receive(message, None, exit));
            }
            Call::BeginCollective(collective, request) => {
                self.begin_request(request.0, PreparedCommunication::Operation(*collective), enter)
            }
            Call::Prepare(message, is_receive, request) => drop(self.prepared.insert(request.0, prepare_message(*message, *is_receive))),
            Call::PrepareMultiExchange(exchange, request) => drop(self.prepared.insert(request.0, prepare_exchange(exchange))),
            Call::PrepareCollective(collective, request) => {
                drop(self.prepared.insert(request.0, PreparedCommunication::Operation(*collective)))
            }
            Call::Start(requests) => requests.iter().for_each(|request| {
                if let Some(prepared) = self.prepared.get(&request.0).cloned() {
                    self.begin_request(request.0, prepared, enter);
                }
            }),
            Call::Wait(completed) => {
                completed.iter().for_each(|done| match self.pending.remove(&done.request.0).filter(|_| !done.is_cancelled) {
                    Some(PendingCommunication::Receives(messages)) => {
                        messages.iter().for_each(|message| self.add_receive(message, done.peer.zip(done.tag), exit))
                    }
                    Some(PendingCommunication::Operation(collective, number)) => self.leave_operation(&collective, number, exit),
                    None => {}
                })
            }
            Call::Collective(collective) => {
                let number = self.enter_operation(collective, enter);
                self.leave_operation(collective, number, exit);
            }
            _ => {}
        }
    }

    fn begin_request(&mut self, request: u64, prepared: PreparedCommunication, enter: i128) {
        let pending = match prepared {
            PreparedCommunication::Messages { sends, receives } => {
                sends.iter().for_each(|message| self.add_send(message, enter));
                PendingCommunication::Receives(receives)
            }
            PreparedCommunication::Operation(collective) => {
                PendingCommunication::Operation(collective, self.enter_operation(&collective, enter))
            }
        };
        self.pending.insert(request, pending);
    }

    fn add_send(&mut self, message: &Message, enter: i128) {
        if let Some((to, tag)) = message.peer.zip(message.tag) {
            self.times.messages.entry((message.communicator, self.id, to, tag)).or_default()[0].push((enter, self.host));
        }
    }

    fn add_receive(&mut self, message: &Message, actual: Option<(ProcessId, i32)>, exit: Option<i128>) {
        if let Some(((from, tag), exit)) = message.peer.zip(message.tag).or(actual).zip(exit) {
            self.times.messages.entry((message.communicator, from, self.id, tag)).or_default()[1].push((exit, self.host));
        }
    }

    fn enter_operation(&mut self, collective: &Collective, enter: i128) -> u64 {
        let count = self.times.counts.entry((collective.communicator, self.id)).or_default();
        let number = *count;
        *count += 1;
        let is_waited_for = match collective.rule {
            CollectiveWaitRule::All => true,
            CollectiveWaitRule::FromRoot => collective.is_root,
            CollectiveWaitRule::ToRoot => !collective.is_root,
            CollectiveWaitRule::Scan | CollectiveWaitRule::Absent => false,
        };
        if is_waited_for && collective.is_binding {
            let members = self.member_times(collective, number);
            members.entered = members.entered.max(Some(enter));
        }
        number
    }

    fn leave_operation(&mut self, collective: &Collective, number: u64, exit: Option<i128>) {
        let waits = match collective.rule {
            CollectiveWaitRule::All => true,
            CollectiveWaitRule::FromRoot => !collective.is_root,
            CollectiveWaitRule::ToRoot => collective.is_root,
            CollectiveWaitRule::Scan | CollectiveWaitRule::Absent => false,
        };
        if let Some(exit) = exit.filter(|_| waits && collective.is_binding) {
            let members = self.member_times(collective, number);
            members.left = Some(members.left.map_or(exit, |first| first.min(exit)));
        }
    }

    fn member_times(&mut self, collective: &Collective, number: u64) -> &mut HostMemberTimes {
        self.times.operations.entry((collective.communicator, number)).or_default().entry(self.host).or_default()
    }
}

impl MessageTimes {
    /// Returns pairs of events on different hosts whose order is certain.
    ///
    /// When the n-th receive on a channel ends, at least n sends have started, whichever messages were received. So the n-th receive ends
    /// after the n-th send has started.
    fn find_precedences(self) -> Vec<EventPrecedence> {
        let mut precedences = Vec::new();
        for mut sides in self.messages.into_values() {
            sides.iter_mut().for_each(|side| side.sort_unstable());
            let [sends, receives] = sides;
            let pairs = sends.into_iter().zip(receives).filter(|(send, receive)| send.1 != receive.1);
            precedences.extend(pairs.map(|(send, receive)| EventPrecedence { first: (send.1, send.0), second: (receive.1, receive.0) }));
        }
        for hosts in self.operations.values() {
            for (from, entered) in hosts.iter().filter_map(|(host, members)| Some((*host, members.entered?))) {
                let left = hosts.iter().filter(|(to, _)| **to != from).filter_map(|(to, members)| Some((*to, members.left?)));
                precedences.extend(left.map(|second| EventPrecedence { first: (from, entered), second }));
            }
        }
        precedences
    }
}
