//! Clocks of several hosts, corrected by what must lie behind what: a receive behind its send, the exit of a collective operation behind
//! the entries that it waits for.
//!
//! Hosts are taken one after the other, each with what it has exchanged with all that are corrected already; [`trodden_waits::offset`]
//! finds its clock's offset. A host that has exchanged nothing in both directions stays uncorrected, and that is said.

use crate::clock::Clocks;
use crate::convert::{ConvertedParts, Converter};
use crate::recording::Recording;
use anyhow::Result;
use std::collections::{BTreeMap, HashMap};
use trodden_waits::call::{Collective, CommunicatorId, Message, MultiExchange};
use trodden_waits::offset::Bounds;
use trodden_waits::{Call, ProcessId, Rule, WaitKind};

/// A host, by its first process.
type Host = usize;
/// Communicator, sender, receiver, tag.
type Channel = (CommunicatorId, ProcessId, ProcessId, i32);

/// Something happened on a host before something on another one, each by its own clock.
#[derive(Clone, Copy, Debug)]
struct Order {
    first: (Host, i128),
    second: (Host, i128),
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
    let mut orders = collect(recording, clocks, &hosts)?.orders();
    let mut errors: BTreeMap<Host, i128> = BTreeMap::from([(0, 0)]);
    while let Some((host, bounds)) = next(&orders, &errors) {
        let Some(offset) = bounds.offset() else { break };
        let error = offset.error_ns + bounds_error(&orders, &errors, host);
        let name = &recording.processes[host].file.host;
        clocks.notes.push(format!(
            "the clock of {name} is corrected by {} ns at the beginning and {} ns at the end of the run, with an error of at \
                most {error} ns",
            -offset.shift.at_start(),
            -offset.shift.at_end()
        ));
        if offset.violated > 0 {
            clocks.notes.push(format!(
                "the clock of {name} runs unevenly: {} messages or collective operations still end before they can, and their waits \
                    are not explained",
                offset.violated
            ));
        }
        for order in &mut orders {
            for (_, at) in [&mut order.first, &mut order.second].into_iter().filter(|(other, _)| *other == host) {
                *at -= offset.shift.at(*at);
            }
        }
        for (process, _) in hosts.iter().enumerate().filter(|(_, other)| **other == host) {
            clocks.clocks[process].shift = offset.shift.clone();
        }
        errors.insert(host, error);
    }
    for (process, _) in hosts.iter().enumerate().filter(|(process, host)| process == *host && !errors.contains_key(host)) {
        let name = &recording.processes[process].file.host;
        clocks.notes.push(format!("the clock of {name} is not corrected: it has no messages to and from the other hosts"));
    }
    clocks.set_origin(recording);
    Ok(())
}

/// The host that has most to do with those whose clocks are corrected, and what follows for its clock.
fn next(orders: &[Order], corrected: &BTreeMap<Host, i128>) -> Option<(Host, Bounds)> {
    let mut found: BTreeMap<Host, Bounds> = BTreeMap::new();
    for Order { first, second } in orders {
        match (corrected.contains_key(&first.0), corrected.contains_key(&second.0)) {
            (true, false) => found.entry(second.0).or_default().upper.push((second.1, second.1 - first.1)),
            (false, true) => found.entry(first.0).or_default().lower.push((first.1, first.1 - second.1)),
            _ => {}
        }
    }
    found.into_iter().max_by_key(|(host, bounds)| (bounds.lower.len().min(bounds.upper.len()), std::cmp::Reverse(*host)))
}

/// The greatest error of a clock that this one was corrected by.
fn bounds_error(orders: &[Order], errors: &BTreeMap<Host, i128>, host: Host) -> i128 {
    let partner = |order: &Order| match (order.first.0 == host, order.second.0 == host) {
        (true, _) => errors.get(&order.second.0),
        (_, true) => errors.get(&order.first.0),
        _ => None,
    };
    orders.iter().filter_map(partner).max().copied().unwrap_or(0)
}

/// Times of the members of one collective operation on one host.
#[derive(Clone, Copy, Debug, Default)]
struct Members {
    /// The last entry of those that others wait for.
    entered: Option<i128>,
    /// The first exit of those who wait.
    left: Option<i128>,
}

/// All times of a recording at which messages and operations begin and end.
#[derive(Default)]
struct Times {
    /// Sends and receives.
    messages: HashMap<Channel, [Vec<(i128, Host)>; 2]>,
    operations: HashMap<(CommunicatorId, u64), BTreeMap<Host, Members>>,
    counts: HashMap<(CommunicatorId, ProcessId), u64>,
}

fn collect(recording: &Recording, clocks: &Clocks, hosts: &[Host]) -> Result<Times> {
    let mut times = Times::default();
    let mut converter = Converter::new(recording);
    for (index, process) in recording.processes.iter().enumerate() {
        let mut own =
            Own { id: ProcessId(index as u32), host: hosts[index], begun: HashMap::new(), prepared: HashMap::new(), times: &mut times };
        for thread in &process.threads {
            let mut calls = thread.calls();
            while let Some(record) = calls.next() {
                let mut parts = ConvertedParts::take(&converter, process, own.id, &record, &mut calls);
                let call = converter.call(process, own.id, thread.token, &record, &mut parts);
                let [enter, exit] = [record.enter, record.exit].map(|ticks| clocks.clocks[index].absolute_ns(ticks));
                own.call(&call, enter, Some(exit).filter(|_| record.exit != 0));
            }
        }
    }
    Ok(times)
}

/// Something that was begun, to be completed.
enum Begun {
    Receives(Vec<Message>),
    Operation(Collective, u64),
}

/// What can be begun.
#[derive(Clone)]
enum Prepared {
    Messages { sends: Vec<Message>, receives: Vec<Message> },
    Operation(Collective),
}

fn message_of(message: Message, is_receive: bool) -> Prepared {
    let (sends, receives) = if is_receive { (Vec::new(), vec![message]) } else { (vec![message], Vec::new()) };
    Prepared::Messages { sends, receives }
}

/// Of an exchange with neighbours; calls on windows may return before their partners have come.
fn meeting_of(exchange: &MultiExchange) -> Prepared {
    if exchange.kind == WaitKind::LateSender {
        Prepared::Messages { sends: exchange.sends.clone(), receives: exchange.receives.clone() }
    } else {
        Prepared::Messages { sends: Vec::new(), receives: Vec::new() }
    }
}

/// The calls of one process.
struct Own<'a> {
    id: ProcessId,
    host: Host,
    begun: HashMap<u64, Begun>,
    prepared: HashMap<u64, Prepared>,
    times: &'a mut Times,
}

impl Own<'_> {
    fn call(&mut self, call: &Call, enter: i128, exit: Option<i128>) {
        match call {
            Call::Send(message, _) => self.send(message, enter),
            Call::Exchange(message, receive) => {
                self.send(message, enter);
                self.receive(receive, None, exit);
            }
            Call::Receive(message, actual) => self.receive(message, *actual, exit),
            Call::Begin(message, is_receive, request) => self.begin(request.0, message_of(*message, *is_receive), enter),
            Call::BeginMultiExchange(exchange, request) => self.begin(request.0, meeting_of(exchange), enter),
            Call::MultiExchange(exchange) => {
                let Prepared::Messages { sends, receives } = meeting_of(exchange) else { return };
                sends.iter().for_each(|message| self.send(message, enter));
                receives.iter().for_each(|message| self.receive(message, None, exit));
            }
            Call::BeginCollective(collective, request) => self.begin(request.0, Prepared::Operation(*collective), enter),
            Call::Prepare(message, is_receive, request) => drop(self.prepared.insert(request.0, message_of(*message, *is_receive))),
            Call::PrepareMultiExchange(exchange, request) => drop(self.prepared.insert(request.0, meeting_of(exchange))),
            Call::PrepareCollective(collective, request) => drop(self.prepared.insert(request.0, Prepared::Operation(*collective))),
            Call::Start(requests) => requests.iter().for_each(|request| {
                if let Some(prepared) = self.prepared.get(&request.0).cloned() {
                    self.begin(request.0, prepared, enter);
                }
            }),
            Call::Wait(completed) => {
                completed.iter().for_each(|one| match self.begun.remove(&one.request.0).filter(|_| !one.is_cancelled) {
                    Some(Begun::Receives(messages)) => {
                        messages.iter().for_each(|message| self.receive(message, one.peer.zip(one.tag), exit))
                    }
                    Some(Begun::Operation(collective, number)) => self.leave(&collective, number, exit),
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

    fn begin(&mut self, request: u64, what: Prepared, enter: i128) {
        let begun = match what {
            Prepared::Messages { sends, receives } => {
                sends.iter().for_each(|message| self.send(message, enter));
                Begun::Receives(receives)
            }
            Prepared::Operation(collective) => Begun::Operation(collective, self.enter(&collective, enter)),
        };
        self.begun.insert(request, begun);
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
            Rule::All => true,
            Rule::FromRoot => collective.is_root,
            Rule::ToRoot => !collective.is_root,
            Rule::Scan | Rule::Absent => false,
        };
        if is_waited_for && collective.is_binding {
            let members = self.members(collective, number);
            members.entered = members.entered.max(Some(enter));
        }
        number
    }

    fn leave(&mut self, collective: &Collective, number: u64, exit: Option<i128>) {
        let waits = match collective.rule {
            Rule::All => true,
            Rule::FromRoot => !collective.is_root,
            Rule::ToRoot => collective.is_root,
            Rule::Scan | Rule::Absent => false,
        };
        if let Some(exit) = exit.filter(|_| waits && collective.is_binding) {
            let members = self.members(collective, number);
            members.left = Some(members.left.map_or(exit, |first| first.min(exit)));
        }
    }

    fn members(&mut self, collective: &Collective, number: u64) -> &mut Members {
        self.times.operations.entry((collective.communicator, number)).or_default().entry(self.host).or_default()
    }
}

impl Times {
    /// What lies before what, on different hosts.
    ///
    /// The n-th receive to end on a channel ends behind n sends, so behind the n-th send to begin, whichever of them it received.
    fn orders(self) -> Vec<Order> {
        let mut orders = Vec::new();
        for mut sides in self.messages.into_values() {
            sides.iter_mut().for_each(|side| side.sort_unstable());
            let [sends, receives] = sides;
            let pairs = sends.into_iter().zip(receives).filter(|(send, receive)| send.1 != receive.1);
            orders.extend(pairs.map(|(send, receive)| Order { first: (send.1, send.0), second: (receive.1, receive.0) }));
        }
        for hosts in self.operations.values() {
            for (from, entered) in hosts.iter().filter_map(|(host, members)| Some((*host, members.entered?))) {
                let left = hosts.iter().filter(|(to, _)| **to != from).filter_map(|(to, members)| Some((*to, members.left?)));
                orders.extend(left.map(|second| Order { first: (from, entered), second }));
            }
        }
        orders
    }
}
