//! Corrects the clocks of several hosts from the known order of events: a receive ends after its send starts, and a collective operation
//! ends after the entries that it waits for.
//!
//! Hosts are corrected one after the other, each relative to all hosts that are already corrected; [`trodden_waits::offset`] estimates
//! the offset. A host without messages in both directions stays uncorrected, and a note says so.

use crate::clock::Clocks;
use crate::convert::{ConvertedParts, Converter};
use crate::recording::WaitsRecording;
use anyhow::Result;
use std::collections::{BTreeMap, HashMap};
use trodden_text::words::plural;
use trodden_waits::call::{Collective, CommunicatorId, Message, MultiExchange};
use trodden_waits::offset::OffsetBounds;
use trodden_waits::{Call, CollectiveRule, ProcessId, WaitKind};

/// A host, identified by the index of its first process.
type Host = usize;
/// Communicator, sender, receiver, tag.
type ChannelKey = (CommunicatorId, ProcessId, ProcessId, i32);

/// Two events on different hosts, of which the first must precede the second. Each time is on the host's own clock, in ns.
#[derive(Clone, Copy, Debug)]
struct Precedence {
    first: (Host, i128),
    second: (Host, i128),
}

pub fn correct_clocks(recording: &WaitsRecording, clocks: &mut Clocks) -> Result<()> {
    let host_of = |process: usize| {
        let file = &recording.processes[process].file;
        recording.processes.iter().position(|p| (&p.file.host, &p.file.boot) == (&file.host, &file.boot)).unwrap_or(process)
    };
    let hosts: Vec<Host> = (0..recording.processes.len()).map(host_of).collect();
    if hosts.iter().all(|host| *host == 0) {
        return Ok(());
    }
    let mut precedences = collect_message_times(recording, clocks, &hosts)?.precedences();
    let mut errors: BTreeMap<Host, i128> = BTreeMap::from([(0, 0)]);
    while let Some((host, bounds)) = find_next_host(&precedences, &errors) {
        let Some(estimate) = bounds.estimate() else { break };
        let error = estimate.error_ns + find_reference_error(&precedences, &errors, host);
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
    clocks.set_origin(recording);
    Ok(())
}

/// Returns the uncorrected host with the most messages to and from corrected hosts, and the bounds on its clock that these messages
/// imply.
fn find_next_host(precedences: &[Precedence], corrected: &BTreeMap<Host, i128>) -> Option<(Host, OffsetBounds)> {
    let mut found: BTreeMap<Host, OffsetBounds> = BTreeMap::new();
    for Precedence { first, second } in precedences {
        match (corrected.contains_key(&first.0), corrected.contains_key(&second.0)) {
            (true, false) => found.entry(second.0).or_default().upper.push((second.1, second.1 - first.1)),
            (false, true) => found.entry(first.0).or_default().lower.push((first.1, first.1 - second.1)),
            _ => {}
        }
    }
    found.into_iter().max_by_key(|(host, bounds)| (bounds.lower.len().min(bounds.upper.len()), std::cmp::Reverse(*host)))
}

/// Returns the largest clock error among the hosts with which a host exchanged messages.
fn find_reference_error(precedences: &[Precedence], errors: &BTreeMap<Host, i128>, host: Host) -> i128 {
    let partner = |precedence: &Precedence| match (precedence.first.0 == host, precedence.second.0 == host) {
        (true, _) => errors.get(&precedence.second.0),
        (_, true) => errors.get(&precedence.first.0),
        _ => None,
    };
    precedences.iter().filter_map(partner).max().copied().unwrap_or(0)
}

/// Times at which the members of one collective operation on one host enter and leave.
#[derive(Clone, Copy, Debug, Default)]
struct MemberTimes {
    /// Time of the last entry by a member that others wait for.
    entered: Option<i128>,
    /// Time of the first exit by a member that waits for others.
    left: Option<i128>,
}

/// The start and end times of all messages and collective operations in a recording.
#[derive(Default)]
struct MessageTimes {
    /// Start times of sends, and end times of receives.
    messages: HashMap<ChannelKey, [Vec<(i128, Host)>; 2]>,
    operations: HashMap<(CommunicatorId, u64), BTreeMap<Host, MemberTimes>>,
    counts: HashMap<(CommunicatorId, ProcessId), u64>,
}

fn collect_message_times(recording: &WaitsRecording, clocks: &Clocks, hosts: &[Host]) -> Result<MessageTimes> {
    let mut times = MessageTimes::default();
    let mut converter = Converter::new(recording);
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
                let mut parts = ConvertedParts::collect(&converter, process, own.id, &record, &mut calls);
                let call = converter.convert_call(process, own.id, thread.token, &record, &mut parts);
                let [enter, exit] = [record.enter, record.exit].map(|ticks| clocks.clocks[index].absolute_ns(ticks));
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

/// Returns the messages of a neighbourhood collective. Calls on windows yield none, because such a call may return before its partners
/// arrive.
fn prepare_exchange(exchange: &MultiExchange) -> PreparedCommunication {
    if exchange.kind == WaitKind::LateSender {
        PreparedCommunication::Messages { sends: exchange.sends.clone(), receives: exchange.receives.clone() }
    } else {
        PreparedCommunication::Messages { sends: Vec::new(), receives: Vec::new() }
    }
}

struct MessageTimeCollector<'a> {
    id: ProcessId,
    host: Host,
    pending: HashMap<u64, PendingCommunication>,
    prepared: HashMap<u64, PreparedCommunication>,
    times: &'a mut MessageTimes,
}

impl MessageTimeCollector<'_> {
    fn add_call(&mut self, call: &Call, enter: i128, exit: Option<i128>) {
        match call {
            Call::Send(message, _) => self.send(message, enter),
            Call::Exchange(message, receive) => {
                self.send(message, enter);
                self.receive(receive, None, exit);
            }
            Call::Receive(message, actual) => self.receive(message, *actual, exit),
            Call::Begin(message, is_receive, request) => self.begin(request.0, prepare_message(*message, *is_receive), enter),
            Call::BeginMultiExchange(exchange, request) => self.begin(request.0, prepare_exchange(exchange), enter),
            Call::MultiExchange(exchange) => {
                let PreparedCommunication::Messages { sends, receives } = prepare_exchange(exchange) else { return };
                sends.iter().for_each(|message| self.send(message, enter));
                receives.iter().for_each(|message| self.receive(message, None, exit));
            }
            Call::BeginCollective(collective, request) => self.begin(request.0, PreparedCommunication::Operation(*collective), enter),
            Call::Prepare(message, is_receive, request) => drop(self.prepared.insert(request.0, prepare_message(*message, *is_receive))),
            Call::PrepareMultiExchange(exchange, request) => drop(self.prepared.insert(request.0, prepare_exchange(exchange))),
            Call::PrepareCollective(collective, request) => {
                drop(self.prepared.insert(request.0, PreparedCommunication::Operation(*collective)))
            }
            Call::Start(requests) => requests.iter().for_each(|request| {
                if let Some(prepared) = self.prepared.get(&request.0).cloned() {
                    self.begin(request.0, prepared, enter);
                }
            }),
            Call::Wait(completed) => {
                completed.iter().for_each(|done| match self.pending.remove(&done.request.0).filter(|_| !done.is_cancelled) {
                    Some(PendingCommunication::Receives(messages)) => {
                        messages.iter().for_each(|message| self.receive(message, done.peer.zip(done.tag), exit))
                    }
                    Some(PendingCommunication::Operation(collective, number)) => self.leave(&collective, number, exit),
                    None => {}
                })
            }
            Call::Collective(collective) => {
                let number = self.enter(collective, enter);
                self.leave(collective, number, exit);
            }
            _ => {}
        }
    }

    fn begin(&mut self, request: u64, prepared: PreparedCommunication, enter: i128) {
        let pending = match prepared {
            PreparedCommunication::Messages { sends, receives } => {
                sends.iter().for_each(|message| self.send(message, enter));
                PendingCommunication::Receives(receives)
            }
            PreparedCommunication::Operation(collective) => PendingCommunication::Operation(collective, self.enter(&collective, enter)),
        };
        self.pending.insert(request, pending);
    }

    fn send(&mut self, message: &Message, enter: i128) {
        if let Some((to, tag)) = message.peer.zip(message.tag) {
            self.times.messages.entry((message.communicator, self.id, to, tag)).or_default()[0].push((enter, self.host));
        }
    }

    fn receive(&mut self, message: &Message, actual: Option<(ProcessId, i32)>, exit: Option<i128>) {
        if let Some(((from, tag), exit)) = message.peer.zip(message.tag).or(actual).zip(exit) {
            self.times.messages.entry((message.communicator, from, self.id, tag)).or_default()[1].push((exit, self.host));
        }
    }

    fn enter(&mut self, collective: &Collective, enter: i128) -> u64 {
        let count = self.times.counts.entry((collective.communicator, self.id)).or_default();
        let number = *count;
        *count += 1;
        let is_waited_for = match collective.rule {
            CollectiveRule::All => true,
            CollectiveRule::FromRoot => collective.is_root,
            CollectiveRule::ToRoot => !collective.is_root,
            CollectiveRule::Scan | CollectiveRule::Absent => false,
        };
        if is_waited_for && collective.is_binding {
            let members = self.members(collective, number);
            members.entered = members.entered.max(Some(enter));
        }
        number
    }

    fn leave(&mut self, collective: &Collective, number: u64, exit: Option<i128>) {
        let waits = match collective.rule {
            CollectiveRule::All => true,
            CollectiveRule::FromRoot => !collective.is_root,
            CollectiveRule::ToRoot => collective.is_root,
            CollectiveRule::Scan | CollectiveRule::Absent => false,
        };
        if let Some(exit) = exit.filter(|_| waits && collective.is_binding) {
            let members = self.members(collective, number);
            members.left = Some(members.left.map_or(exit, |first| first.min(exit)));
        }
    }

    fn members(&mut self, collective: &Collective, number: u64) -> &mut MemberTimes {
        self.times.operations.entry((collective.communicator, number)).or_default().entry(self.host).or_default()
    }
}

impl MessageTimes {
    /// Returns the pairs of events on different hosts whose order is certain.
    ///
    /// The n-th receive to end on a channel ends after n sends have started. It therefore ends after the n-th send has started, whichever
    /// message it received.
    fn precedences(self) -> Vec<Precedence> {
        let mut precedences = Vec::new();
        for mut sides in self.messages.into_values() {
            sides.iter_mut().for_each(|side| side.sort_unstable());
            let [sends, receives] = sides;
            let pairs = sends.into_iter().zip(receives).filter(|(send, receive)| send.1 != receive.1);
            precedences.extend(pairs.map(|(send, receive)| Precedence { first: (send.1, send.0), second: (receive.1, receive.0) }));
        }
        for hosts in self.operations.values() {
            for (from, entered) in hosts.iter().filter_map(|(host, members)| Some((*host, members.entered?))) {
                let left = hosts.iter().filter(|(to, _)| **to != from).filter_map(|(to, members)| Some((*to, members.left?)));
                precedences.extend(left.map(|second| Precedence { first: (from, entered), second }));
            }
        }
        precedences
    }
}
