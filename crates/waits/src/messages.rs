//! Messages: which send a receive waits for, and the reverse.
//!
//! Matched first in, first out per channel (communicator, sender, receiver, tag), in the order in which the two sides begin (MPI's
//! non-overtaking rule). A receive from any process, or of any tag, takes its place when it completes: only then is its channel known.

use crate::call::{Collective, CommunicatorId, Meeting, Message, RequestId, WaitKind};
use crate::collectives::Membership;
use crate::hash::Map;
use crate::step::ProcessId;
use crate::wait::Moment;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Channel {
    communicator: CommunicatorId,
    from: ProcessId,
    to: ProcessId,
    tag: i32,
}

#[derive(Clone, Debug, Default)]
struct Pair {
    send: Option<Moment>,
    receive: Option<Moment>,
    /// Sides that need the pair no longer.
    done: [bool; 2],
}

#[derive(Clone, Debug, Default)]
struct Queue {
    /// Number of the first pair.
    first: u64,
    pairs: VecDeque<Pair>,
    sends: u64,
    receives: u64,
}

/// A side of a message: its place in its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePlace {
    channel: Channel,
    number: u64,
    is_receive: bool,
    is_buffered: bool,
}

impl MessagePlace {
    /// Whether it is the receiver's.
    pub fn is_receive(self) -> bool {
        self.is_receive
    }

    /// Whether it is that of a send that does not wait.
    pub fn is_buffered(self) -> bool {
        self.is_buffered && !self.is_receive
    }
}

/// A message that one side has begun.
#[derive(Clone, Copy, Debug)]
pub enum BegunRequest {
    /// It has its place.
    Placed(MessagePlace),
    /// A receive from any, begun at this moment: its place is known when it completes.
    Open(Message, Moment),
    /// It can never be matched: its peer is not in the trace.
    Nowhere,
}

/// A request.
#[derive(Clone, Debug)]
pub struct MessageRequest {
    /// What it can begin again; none if it is gone once it is complete.
    pub prepared: Option<Prepared>,
    /// What it has begun.
    pub started: Option<Started>,
}

/// What a request begins.
#[derive(Clone, Debug)]
pub enum Prepared {
    /// A send or a receive (`true`).
    Message(Message, bool),
    /// Sends and receives.
    Meeting(Meeting),
    /// A collective operation.
    Collective(Collective),
}

/// What was begun.
#[derive(Clone, Debug)]
pub enum Started {
    /// A side of a message.
    Message(BegunRequest),
    /// Sides of several, with the kind of their wait.
    Meeting(Vec<BegunRequest>, WaitKind),
    /// A collective operation: the number of its instance.
    Collective(Membership),
}

/// All channels and requests.
#[derive(Clone, Debug, Default)]
pub struct Messages {
    channels: Map<Channel, Queue>,
    /// Channels by receiver.
    incoming: Map<ProcessId, Vec<Channel>>,
    /// Requests by process and handle.
    pub requests: Map<(ProcessId, RequestId), MessageRequest>,
}

impl Messages {
    /// A side begins. Takes the moment, unless the message has no place yet.
    pub fn begin(&mut self, own: ProcessId, message: Message, is_receive: bool, moment: Moment) -> BegunRequest {
        match (message.peer, message.tag) {
            (Some(peer), Some(tag)) => {
                let place = self.place(own, peer, tag, message.communicator, is_receive, moment);
                BegunRequest::Placed(MessagePlace { is_buffered: message.is_buffered, ..place })
            }
            _ if is_receive => BegunRequest::Open(message, moment),
            _ => BegunRequest::Nowhere,
        }
    }

    fn place(
        &mut self,
        own: ProcessId,
        peer: ProcessId,
        tag: i32,
        communicator: CommunicatorId,
        is_receive: bool,
        moment: Moment,
    ) -> MessagePlace {
        let (from, to) = if is_receive { (peer, own) } else { (own, peer) };
        let channel = Channel { communicator, from, to, tag };
        let queue = self.channels.entry(channel).or_insert_with(|| {
            self.incoming.entry(to).or_default().push(channel);
            Queue::default()
        });
        let count = if is_receive { &mut queue.receives } else { &mut queue.sends };
        let number = *count;
        *count += 1;
        while queue.first + queue.pairs.len() as u64 <= number {
            queue.pairs.push_back(Pair::default());
        }
        let pair = &mut queue.pairs[(number - queue.first) as usize];
        *if is_receive { &mut pair.receive } else { &mut pair.send } = Some(moment);
        MessagePlace { channel, number, is_receive, is_buffered: false }
    }

    /// Gives a receive from any its place, once its sender is known.
    pub fn resolve(&mut self, own: ProcessId, begun: BegunRequest, actual: Option<(ProcessId, i32)>) -> BegunRequest {
        match (begun, actual) {
            (BegunRequest::Open(message, moment), Some((peer, tag))) => {
                BegunRequest::Placed(self.place(own, peer, tag, message.communicator, true, moment))
            }
            _ => begun,
        }
    }

    /// When the other side began, as far as that is known.
    pub fn partner(&self, place: MessagePlace) -> Option<Moment> {
        let queue = self.channels.get(&place.channel)?;
        let pair = queue.pairs.get(usize::try_from(place.number.checked_sub(queue.first)?).ok()?)?;
        if place.is_receive { pair.send } else { pair.receive }
    }

    /// Whether a message to the receiver of this one was sent before it and is not yet asked for: they are received in the wrong
    /// order. At most the first
    /// [`CHANNELS`] senders and tags are looked at.
    pub fn is_overtaken(&self, place: MessagePlace) -> bool {
        // Bounds the time for each wait.
        const CHANNELS: usize = 256;
        let Some(send) = self.partner(place).filter(|_| place.is_receive) else { return false };
        let incoming = self.incoming.get(&place.channel.to).into_iter().flatten().take(CHANNELS);
        incoming.filter(|channel| **channel != place.channel).any(|channel| {
            let queue = &self.channels[channel];
            let first = queue.receives.checked_sub(queue.first).and_then(|at| queue.pairs.get(at as usize));
            first.and_then(|pair| pair.send).is_some_and(|other| other.time_ns < send.time_ns)
        })
    }

    /// The next message of a channel that is not yet received, for probes.
    pub fn first_unreceived(&self, own: ProcessId, message: Message) -> Option<Moment> {
        let channel = Channel { communicator: message.communicator, from: message.peer?, to: own, tag: message.tag? };
        let queue = self.channels.get(&channel)?;
        queue.pairs.get(usize::try_from(queue.receives.checked_sub(queue.first)?).ok()?)?.send
    }

    /// A side is complete. Gives the moments that are no longer needed.
    pub fn end(&mut self, place: MessagePlace) -> Vec<Moment> {
        let mut ended = Vec::new();
        let Some(queue) = self.channels.get_mut(&place.channel) else { return ended };
        let Some(pair) = place.number.checked_sub(queue.first).and_then(|i| queue.pairs.get_mut(i as usize)) else { return ended };
        pair.done[usize::from(place.is_receive)] = true;
        while queue.pairs.front().is_some_and(|pair| pair.done == [true; 2]) {
            let pair = queue.pairs.pop_front().unwrap_or_default();
            ended.extend(pair.send);
            ended.extend(pair.receive);
            queue.first += 1;
        }
        ended
    }

    /// A side takes its place back. Where another one has a place behind it, the place stays, and its partner has none: messages cannot
    /// be renumbered. Gives the moments that are no longer needed.
    pub fn cancel(&mut self, place: MessagePlace) -> Vec<Moment> {
        let Some(queue) = self.channels.get_mut(&place.channel) else { return Vec::new() };
        let count = if place.is_receive { &mut queue.receives } else { &mut queue.sends };
        if place.number + 1 != *count {
            return self.end(place);
        }
        *count -= 1;
        let last = queue.pairs.len() as u64 + queue.first == place.number + 1;
        let Some(pair) = place.number.checked_sub(queue.first).and_then(|i| queue.pairs.get_mut(i as usize)) else { return Vec::new() };
        let side = if place.is_receive { pair.receive.take() } else { pair.send.take() };
        if last && pair.send.is_none() && pair.receive.is_none() {
            queue.pairs.pop_back();
        }
        side.into_iter().collect()
    }

    /// Whether the receive of a send's place is over already.
    pub fn is_received(&self, place: MessagePlace) -> bool {
        let pair = self.channels.get(&place.channel).and_then(|q| q.pairs.get(place.number.checked_sub(q.first)? as usize));
        pair.is_some_and(|pair| pair.done[1])
    }

    /// Receives that have no send.
    pub fn unsent(&self) -> impl Iterator<Item = Moment> + '_ {
        self.channels.values().flat_map(|queue| queue.pairs.iter()).filter(|pair| pair.send.is_none()).filter_map(|pair| pair.receive)
    }

    /// Sends that were never received.
    pub fn unreceived(&self) -> impl Iterator<Item = Moment> + '_ {
        self.channels.values().flat_map(|queue| queue.pairs.iter()).filter(|pair| pair.receive.is_none()).filter_map(|pair| pair.send)
    }
}
