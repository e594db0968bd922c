//! Matches sends with receives.
//!
//! On each channel (communicator, sender, receiver, tag), the n-th send to start matches the n-th receive to start, because MPI does not
//! permit messages to overtake each other. The channel of a receive from any source or with any tag is known only when it completes. It
//! gets its position then.

use crate::call::{Collective, CommunicatorId, Message, MultiExchange, RequestId, WaitKind};
use crate::collectives::CollectiveMembership;
use crate::hash::Map;
use crate::step::ProcessId;
use crate::wait::PathMoment;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct MessageChannel {
    communicator: CommunicatorId,
    from: ProcessId,
    to: ProcessId,
    tag: i32,
}

#[derive(Clone, Debug, Default)]
struct MatchedMessagePair {
    send: Option<PathMoment>,
    receive: Option<PathMoment>,
    /// Whether the send is complete, and whether the receive is complete.
    is_done: [bool; 2],
}

#[derive(Clone, Debug, Default)]
struct ChannelQueue {
    /// Position in the channel of the first element of `pairs`.
    first: u64,
    pairs: VecDeque<MatchedMessagePair>,
    sends: u64,
    receives: u64,
}

/// A send or receive, identified by its channel and its position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePosition {
    channel: MessageChannel,
    number: u64,
    is_receive: bool,
    is_buffered: bool,
}

impl MessagePosition {
    pub fn is_receive(self) -> bool {
        self.is_receive
    }

    /// Returns true for a send that does not wait for its receive.
    pub fn is_buffered(self) -> bool {
        self.is_buffered && !self.is_receive
    }
}

#[derive(Clone, Copy, Debug)]
pub enum StartedSendOrReceive {
    /// A send or receive whose position in its channel is known.
    Placed(MessagePosition),
    /// A receive from any source or with any tag, which started at this moment. It gets a position when it completes.
    AnySource(Message, PathMoment),
    /// A send that cannot be matched with a receive, because its destination or its tag is unknown.
    Unmatchable,
}

#[derive(Clone, Debug)]
pub struct MessageRequest {
    /// The operation of a persistent request, which can be started repeatedly. `None` for other requests, which are removed when they
    /// complete.
    pub prepared: Option<PreparedOperation>,
    /// The operation, if it is in progress.
    pub started: Option<StartedOperation>,
}

#[derive(Clone, Debug)]
pub enum PreparedOperation {
    /// A send or, if the flag is true, a receive.
    Message(Message, bool),
    MultiExchange(MultiExchange),
    Collective(Collective),
}

#[derive(Clone, Debug)]
pub enum StartedOperation {
    Message(StartedSendOrReceive),
    /// Several sends and receives, and the kind of a wait for them.
    MultiExchange(Vec<StartedSendOrReceive>, WaitKind),
    Collective(CollectiveMembership),
}

#[derive(Clone, Debug, Default)]
pub struct MessageMatcher {
    channels: Map<MessageChannel, ChannelQueue>,
    /// For each receiving process, the channels to it.
    incoming: Map<ProcessId, Vec<MessageChannel>>,
    /// Operations of requests, by process and request handle.
    pub requests: Map<(ProcessId, RequestId), MessageRequest>,
}

impl MessageMatcher {
    /// Adds a send or receive that starts at `moment`. Takes over the caller's reference to the moment, unless the result is
    /// [`StartedSendOrReceive::Unmatchable`].
    pub fn start_send_or_receive(
        &mut self,
        own: ProcessId,
        message: Message,
        is_receive: bool,
        moment: PathMoment,
    ) -> StartedSendOrReceive {
        match (message.peer, message.tag) {
            (Some(peer), Some(tag)) => {
                let place = self.add_send_or_receive(own, peer, tag, message.communicator, is_receive, moment);
                StartedSendOrReceive::Placed(MessagePosition { is_buffered: message.is_buffered, ..place })
            }
            _ if is_receive => StartedSendOrReceive::AnySource(message, moment),
            _ => StartedSendOrReceive::Unmatchable,
        }
    }

    fn add_send_or_receive(
        &mut self,
        own: ProcessId,
        peer: ProcessId,
        tag: i32,
        communicator: CommunicatorId,
        is_receive: bool,
        moment: PathMoment,
    ) -> MessagePosition {
        let (from, to) = if is_receive { (peer, own) } else { (own, peer) };
        let channel = MessageChannel { communicator, from, to, tag };
        let queue = self.channels.entry(channel).or_insert_with(|| {
            self.incoming.entry(to).or_default().push(channel);
            ChannelQueue::default()
        });
        let count = if is_receive { &mut queue.receives } else { &mut queue.sends };
        let number = *count;
        *count += 1;
        while queue.first + queue.pairs.len() as u64 <= number {
            queue.pairs.push_back(MatchedMessagePair::default());
        }
        let pair = &mut queue.pairs[(number - queue.first) as usize];
        *if is_receive { &mut pair.receive } else { &mut pair.send } = Some(moment);
        MessagePosition { channel, number, is_receive, is_buffered: false }
    }

    /// Assigns a position to a receive from any source whose sender and tag are now known. Returns other sends and receives unchanged.
    pub fn assign_channel_position(
        &mut self,
        own: ProcessId,
        side: StartedSendOrReceive,
        actual: Option<(ProcessId, i32)>,
    ) -> StartedSendOrReceive {
        match (side, actual) {
            (StartedSendOrReceive::AnySource(message, moment), Some((peer, tag))) => {
                StartedSendOrReceive::Placed(self.add_send_or_receive(own, peer, tag, message.communicator, true, moment))
            }
            _ => side,
        }
    }

    /// Returns the moment at which the matching send or receive started; `None` if it has not started yet.
    pub fn partner_start_moment(&self, place: MessagePosition) -> Option<PathMoment> {
        let queue = self.channels.get(&place.channel)?;
        let pair = queue.pairs.get(usize::try_from(place.number.checked_sub(queue.first)?).ok()?)?;
        if place.is_receive { pair.send } else { pair.receive }
    }

    /// Returns true if a message to the same process that was sent earlier has not been received yet. In that case, messages are received
    /// in the wrong order.
    pub fn has_earlier_unreceived_send(&self, place: MessagePosition) -> bool {
        // Maximum number of channels to look at, which limits the time for each wait.
        const MAX_EXAMINED_CHANNELS: usize = 256;
        let Some(send) = self.partner_start_moment(place).filter(|_| place.is_receive) else { return false };
        let incoming = self.incoming.get(&place.channel.to).into_iter().flatten().take(MAX_EXAMINED_CHANNELS);
        incoming.filter(|channel| **channel != place.channel).any(|channel| {
            let queue = &self.channels[channel];
            let first = queue.receives.checked_sub(queue.first).and_then(|index| queue.pairs.get(index as usize));
            first.and_then(|pair| pair.send).is_some_and(|other| other.time_ns < send.time_ns)
        })
    }

    /// Returns the moment of the send for which a probe waits: that of the next message that has not been received. Returns `None` if the
    /// probe does not specify the channel, or if there is no such message.
    pub fn first_unreceived_send(&self, own: ProcessId, message: Message) -> Option<PathMoment> {
        let channel = MessageChannel { communicator: message.communicator, from: message.peer?, to: own, tag: message.tag? };
        let queue = self.channels.get(&channel)?;
        queue.pairs.get(usize::try_from(queue.receives.checked_sub(queue.first)?).ok()?)?.send
    }

    /// Records that a send or receive is complete. Returns moments that are no longer needed and that the caller must release.
    pub fn complete_send_or_receive(&mut self, place: MessagePosition) -> Vec<PathMoment> {
        let mut ended = Vec::new();
        let Some(queue) = self.channels.get_mut(&place.channel) else { return ended };
        let Some(pair) = place.number.checked_sub(queue.first).and_then(|i| queue.pairs.get_mut(i as usize)) else { return ended };
        pair.is_done[usize::from(place.is_receive)] = true;
        while queue.pairs.front().is_some_and(|pair| pair.is_done == [true; 2]) {
            let pair = queue.pairs.pop_front().unwrap_or_default();
            ended.extend(pair.send);
            ended.extend(pair.receive);
            queue.first += 1;
        }
        ended
    }

    /// Removes a send or receive that was cancelled. If a later one has started on the same channel, it is completed instead of removed, so
    /// that the positions of later ones remain valid. Returns moments that are no longer needed and that the caller must release.
    pub fn cancel_send_or_receive(&mut self, place: MessagePosition) -> Vec<PathMoment> {
        let Some(queue) = self.channels.get_mut(&place.channel) else { return Vec::new() };
        let count = if place.is_receive { &mut queue.receives } else { &mut queue.sends };
        if place.number + 1 != *count {
            return self.complete_send_or_receive(place);
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

    pub fn is_received(&self, place: MessagePosition) -> bool {
        let pair = self.channels.get(&place.channel).and_then(|q| q.pairs.get(place.number.checked_sub(q.first)? as usize));
        pair.is_some_and(|pair| pair.is_done[1])
    }

    pub fn unmatched_receives(&self) -> impl Iterator<Item = PathMoment> + '_ {
        self.channels.values().flat_map(|queue| queue.pairs.iter()).filter(|pair| pair.send.is_none()).filter_map(|pair| pair.receive)
    }

    pub fn unmatched_sends(&self) -> impl Iterator<Item = PathMoment> + '_ {
        self.channels.values().flat_map(|queue| queue.pairs.iter()).filter(|pair| pair.receive.is_none()).filter_map(|pair| pair.send)
    }
}
