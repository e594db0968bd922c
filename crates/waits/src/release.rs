//! What a call means to others when it begins, and who has released it when it ends: the rules of the analysis.

use crate::Rule;
use crate::analysis::{Analysis, EndedCall, OpenCall};
use crate::call::{Call, Collective, Completed, Meeting, Message, RequestId, SleepKind, Token, WaitKind};
use crate::classes::PathShares;
use crate::collectives::{Membership, Waited};
use crate::diagnostic::Diagnostic;
use crate::messages::{BegunRequest, MessagePlace, MessageRequest, Prepared, Started};
use crate::objects::{Object, Objects, held_by};
use crate::step::{LocationId, LocationState, ProcessId};
use crate::wait::{Moment, Wait};

impl Analysis {
    /// What a call means to others, at its entry.
    pub(crate) fn begin(&mut self, id: LocationId, process: ProcessId, call: &Call) {
        match call {
            Call::Send(message, _) => self.begin_message(id, process, *message, false),
            Call::Receive(message, _) => self.begin_message(id, process, *message, true),
            Call::Exchange(send, receive) => {
                self.begin_message(id, process, *send, false);
                self.begin_message(id, process, *receive, true);
            }
            Call::Meeting(meeting) => {
                meeting.sends.iter().for_each(|message| self.begin_message(id, process, *message, false));
                meeting.receives.iter().for_each(|message| self.begin_message(id, process, *message, true));
            }
            Call::Begin(message, is_receive, request) => {
                self.begin_request(id, process, *request, Prepared::Message(*message, *is_receive))
            }
            Call::BeginMeeting(meeting, request) => self.begin_request(id, process, *request, Prepared::Meeting(meeting.clone())),
            Call::BeginCollective(collective, request) => self.begin_request(id, process, *request, Prepared::Collective(*collective)),
            Call::Prepare(message, is_receive, request) => self.prepare(process, *request, Prepared::Message(*message, *is_receive)),
            Call::PrepareMeeting(meeting, request) => self.prepare(process, *request, Prepared::Meeting(meeting.clone())),
            Call::PrepareCollective(collective, request) => self.prepare(process, *request, Prepared::Collective(*collective)),
            Call::Start(requests) => requests.iter().for_each(|request| self.start_prepared(id, process, *request)),
            Call::Collective(collective) => {
                let membership = self.enter_collective(id, process, *collective);
                self.open(id).membership = Some(membership);
            }
            Call::Unlock(object) => self.keep(id, |objects, moment| objects.unlock(held_by(process, *object), moment)),
            Call::Wake(object, count) => self.keep(id, |objects, moment| objects.wake(held_by(process, *object), *count, moment)),
            Call::Create(token) => self.keep(id, |objects, moment| objects.created.insert(*token, moment)),
            Call::End(token) => self.keep(id, |objects, moment| objects.ended.insert(*token, moment)),
            Call::ThreadBarrier(object, count) => {
                let moment = self.moment(id);
                let (place, old) = self.objects.enter(held_by(process, *object), *count, moment);
                self.give_back(old);
                self.open(id).barrier = Some(place);
            }
            _ => {}
        }
    }

    fn keep(&mut self, id: LocationId, put: impl FnOnce(&mut Objects, Moment) -> Option<Moment>) {
        let moment = self.moment(id);
        let old = put(&mut self.objects, moment);
        self.give_back(old);
    }

    fn open(&mut self, id: LocationId) -> &mut OpenCall {
        self.location(id).open.as_mut().expect("`enter` has opened it")
    }

    fn place(&mut self, id: LocationId, process: ProcessId, message: Message, is_receive: bool) -> BegunRequest {
        let moment = self.moment(id);
        let begun = self.messages.begin(process, message, is_receive, moment);
        match begun {
            BegunRequest::Nowhere => self.give_back([moment]),
            BegunRequest::Placed(place) if !is_receive && self.messages.is_received(place) => {
                self.outcome.diagnostics.add(Diagnostic::ReceiveBeforeSend, id, moment.time_ns);
            }
            _ => {}
        }
        begun
    }

    fn begin_message(&mut self, id: LocationId, process: ProcessId, message: Message, is_receive: bool) {
        let begun = self.place(id, process, message, is_receive);
        self.open(id).begun.push(begun);
    }

    fn prepare(&mut self, process: ProcessId, request: RequestId, what: Prepared) {
        self.messages.requests.insert((process, request), MessageRequest { prepared: Some(what), started: None });
    }

    fn begin_request(&mut self, id: LocationId, process: ProcessId, request: RequestId, what: Prepared) {
        let started = Some(self.started(id, process, &what));
        self.messages.requests.insert((process, request), MessageRequest { prepared: None, started });
    }

    fn start_prepared(&mut self, id: LocationId, process: ProcessId, request: RequestId) {
        let Some(prepared) = self.messages.requests.get(&(process, request)).and_then(|known| known.prepared.clone()) else {
            return self.unknown_request(id);
        };
        let started = Some(self.started(id, process, &prepared));
        self.messages.requests.insert((process, request), MessageRequest { prepared: Some(prepared), started });
    }

    fn started(&mut self, id: LocationId, process: ProcessId, what: &Prepared) -> Started {
        match what {
            Prepared::Message(message, is_receive) => Started::Message(self.place(id, process, *message, *is_receive)),
            Prepared::Meeting(Meeting { sends, receives, kind }) => {
                let sides = sends.iter().map(|send| (send, false)).chain(receives.iter().map(|receive| (receive, true)));
                Started::Meeting(sides.map(|(message, is_receive)| self.place(id, process, *message, is_receive)).collect(), *kind)
            }
            Prepared::Collective(collective) => Started::Collective(self.enter_collective(id, process, *collective)),
        }
    }

    fn enter_collective(&mut self, id: LocationId, process: ProcessId, collective: Collective) -> Membership {
        let moment = self.moment(id);
        let (membership, old) = self.collectives.enter(process, collective, moment);
        self.give_back(old);
        membership
    }

    fn unknown_request(&mut self, id: LocationId) {
        let time_ns = self.location(id).time_ns;
        self.outcome.diagnostics.add(Diagnostic::UnknownRequest, id, time_ns);
    }

    /// A call returns: who released it, and what follows.
    pub(crate) fn complete(&mut self, ended: EndedCall, open: OpenCall, call: &Call) -> Option<Wait> {
        let EndedCall { id, process, enter_ns, exit_ns, .. } = ended;
        match call {
            Call::Send(..) | Call::Receive(..) | Call::Exchange(..) | Call::Meeting(_) => self.complete_messages(ended, open, call),
            Call::Probe(message) => {
                let found = self.messages.first_unreceived(process, *message);
                self.resolve(ended, found.map(|moment| (moment, WaitKind::LateSender)))
            }
            Call::Wait(completed) => self.complete_requests(ended, completed),
            Call::Collective(_) => {
                let found = open.membership.and_then(|membership| self.collective_wait(id, membership, exit_ns));
                let wait = self.resolve(ended, found);
                let old = open.membership.map_or_else(Vec::new, |membership| self.collectives.leave(membership));
                self.give_back(old);
                wait
            }
            Call::BeginJob(job) => self.begin_job(ended, *job),
            Call::Free(request) => {
                self.messages.requests.remove(&(process, *request));
                self.resolve(ended, None)
            }
            Call::Lock(object) => {
                let found = self.objects.unlocked(held_by(process, *object), id).map(|moment| (moment, WaitKind::LockContention));
                if object.is_shared() {
                    // The process that holds a shared lock may only be slow to answer.
                    return self.resolve(ended, found);
                }
                self.expect(ended, found, Diagnostic::LockWithoutUnlock)
            }
            Call::Sleep(_, _, false) => self.complete_without_wait(ended, LocationState::Blocked),
            Call::Sleep(object, kind, true) => {
                let woken = self.objects.woken(held_by(process, *object), id, enter_ns);
                let found = woken.map(|moment| (moment, kind_of_sleep(kind)));
                self.expect(ended, found, Diagnostic::SleepWithoutWake)
            }
            // The last to enter released the others.
            Call::ThreadBarrier(..) => {
                let found = open.barrier.and_then(|place| self.objects.last(place)).map(|moment| (moment, WaitKind::ThreadBarrier));
                let wait = self.expect(ended, found, Diagnostic::LeftBeforeEntered);
                let old = open.barrier.and_then(|place| self.objects.leave(place));
                self.give_back(old);
                wait
            }
            Call::Join(token) => self.complete_join(ended, *token),
            Call::Blocked => self.complete_without_wait(ended, LocationState::Blocked),
            _ => self.complete_without_wait(ended, LocationState::Communicating),
        }
    }

    fn complete_join(&mut self, ended: EndedCall, token: Token) -> Option<Wait> {
        let found = self.objects.ended.remove(&token);
        let wait = self.expect(ended, found.map(|m| (m, WaitKind::Join)), Diagnostic::JoinWithoutEnd);
        self.give_back(found);
        wait
    }

    /// A wait for a condition returns: until the wake the location waited for the condition, from then on for the mutex, if another
    /// location released that later. Two waits, since two locations may be the releasers.
    pub(crate) fn complete_condition(&mut self, ended: EndedCall, condition: Object, mutex: Object) -> Vec<Wait> {
        let EndedCall { id, enter_ns, exit_ns, .. } = ended;
        let woken = self.objects.woken(condition, id, enter_ns).filter(|moment| moment.time_ns > enter_ns);
        let is_later = |unlocked: &Moment| woken.is_some_and(|woken| (woken.time_ns..=exit_ns).contains(&unlocked.time_ns));
        let unlocked = self.objects.unlocked(mutex, id).filter(is_later);
        let until_ns = woken.filter(|_| unlocked.is_some()).map_or(exit_ns, |moment| moment.time_ns);
        let found = woken.map(|moment| (moment, WaitKind::Condition));
        let slept = self.expect(EndedCall { exit_ns: until_ns, ..ended }, found, Diagnostic::SleepWithoutWake);
        let then = EndedCall { enter_ns: until_ns, ..ended };
        let locked = unlocked.and_then(|moment| self.resolve(then, Some((moment, WaitKind::LockContention))));
        slept.into_iter().chain(locked).collect()
    }

    /// No location was waited for: the call's time is of that state.
    fn complete_without_wait(&mut self, ended: EndedCall, state: LocationState) -> Option<Wait> {
        let ns = ended.exit_ns - self.location(ended.id).time_ns;
        self.append(ended.id, ended.site, state, ns);
        None
    }

    /// As [`Analysis::resolve`], where a location must have been waited for.
    fn expect(&mut self, ended: EndedCall, found: Option<(Moment, WaitKind)>, or: Diagnostic) -> Option<Wait> {
        if found.is_none() && ended.exit_ns > ended.enter_ns {
            return self.leave_unexplained(ended, or, ended.enter_ns);
        }
        self.resolve(ended, found)
    }

    fn leave_unexplained(&mut self, ended: EndedCall, because: Diagnostic, time_ns: u64) -> Option<Wait> {
        self.outcome.diagnostics.add(because, ended.id, time_ns);
        self.outcome.unexplained_ns += ended.exit_ns - ended.enter_ns;
        self.complete_without_wait(ended, LocationState::Unexplained)
    }

    /// The moment, if any, released the call's location.
    fn resolve(&mut self, ended: EndedCall, found: Option<(Moment, WaitKind)>) -> Option<Wait> {
        let EndedCall { id, enter_ns, exit_ns, site, .. } = ended;
        let found = found.filter(|(moment, _)| moment.location != id && moment.time_ns > enter_ns);
        let Some((moment, kind)) = found else { return self.complete_without_wait(ended, LocationState::Communicating) };
        if moment.time_ns > exit_ns {
            return self.leave_unexplained(ended, Diagnostic::ReceiveBeforeSend, exit_ns);
        }
        let head = self.location(id).head;
        let paths = self.versions.difference(moment.version, head);
        let wait = Wait { location: id, releaser: moment.location, site, kind, enter_ns, wait_ns: moment.time_ns - enter_ns, paths };
        let shares = PathShares::new(&self.outcome.steps, &wait);
        let placement = self.classes.add(&wait, &shares);
        self.others.iter_mut().for_each(|classes| classes.tally(&wait, &shares));
        if let Some(expansion) = &mut self.expansion {
            expansion.wait(&wait, placement);
        }
        let shared = self.versions.share(moment.version);
        self.versions.release(head);
        let location = self.location(id);
        location.head = shared;
        location.time_ns = moment.time_ns;
        location.scaled_ns = location.scaled_ns.max(moment.scaled_ns);
        self.append(id, site, LocationState::Communicating, exit_ns - moment.time_ns);
        let outcome = &mut self.outcome;
        outcome.waits += 1;
        outcome.wait_ns += wait.wait_ns;
        if outcome.waits.is_multiple_of(1024) {
            let live = self.versions.live();
            outcome.live = (outcome.live.0.max(live.0), outcome.live.1.max(live.1));
        }
        Some(wait)
    }

    fn complete_messages(&mut self, ended: EndedCall, open: OpenCall, call: &Call) -> Option<Wait> {
        let mut latest: Option<(Moment, WaitKind)> = None;
        let mut places = Vec::with_capacity(2);
        for begun in open.begun {
            let actual = if let Call::Receive(_, actual) = call { *actual } else { None };
            let begun = self.messages.resolve(ended.process, begun, actual);
            if let BegunRequest::Open(_, moment) = begun {
                self.give_back([moment]);
            }
            let BegunRequest::Placed(place) = begun else { continue };
            places.push(place);
            let mut partner = self.partner(place, ended.exit_ns);
            if let (Call::Meeting(Meeting { kind, .. }), Some(found)) = (call, &mut partner) {
                found.1 = *kind;
            }
            latest = later(latest, partner);
        }
        let wait = self.resolve(ended, latest);
        self.end_places(&places);
        wait
    }

    fn end_places(&mut self, places: &[MessagePlace]) {
        for place in places {
            let old = self.messages.end(*place);
            self.give_back(old);
        }
    }

    fn partner(&self, place: MessagePlace, until_ns: u64) -> Option<(Moment, WaitKind)> {
        let moment = self.messages.partner(place).filter(|moment| moment.time_ns <= until_ns && !place.is_buffered())?;
        let kind = match (place.is_receive(), self.messages.is_overtaken(place)) {
            (true, true) => WaitKind::WrongOrder,
            (true, false) => WaitKind::LateSender,
            (false, _) => WaitKind::LateReceiver,
        };
        Some((moment, kind))
    }

    fn collective_wait(&mut self, id: LocationId, membership: Membership, time_ns: u64) -> Option<(Moment, WaitKind)> {
        let kind = match membership.collective {
            collective if collective.is_barrier => WaitKind::Barrier,
            collective => match collective.rule {
                Rule::All | Rule::Absent => WaitKind::AllToAll,
                Rule::FromRoot => WaitKind::LateBroadcast,
                Rule::ToRoot => WaitKind::EarlyReduce,
                Rule::Scan => WaitKind::EarlyScan,
            },
        };
        match self.collectives.waited(membership) {
            Waited::For(moment) => Some((moment, kind)),
            Waited::NotAtAll => None,
            Waited::Unexplained(because) => {
                self.outcome.diagnostics.add(because, id, time_ns);
                None
            }
        }
    }

    fn complete_requests(&mut self, ended: EndedCall, completed: &[Completed]) -> Option<Wait> {
        let EndedCall { id, process, exit_ns, .. } = ended;
        let mut latest: Option<(Moment, WaitKind)> = None;
        let (mut places, mut members) = (Vec::new(), Vec::new());
        for one in completed {
            let Some(started) = self.take_started(process, one.request) else { continue };
            if one.is_cancelled {
                self.cancel(started);
                continue;
            }
            let (sides, kind) = match started {
                Started::Collective(membership) => {
                    members.push(membership);
                    latest = later(latest, self.collective_wait(id, membership, exit_ns));
                    continue;
                }
                Started::Message(begun) => (vec![self.messages.resolve(process, begun, one.peer.zip(one.tag))], None),
                Started::Meeting(sides, kind) => (sides, Some(kind)),
            };
            for begun in sides {
                match begun {
                    BegunRequest::Placed(place) => {
                        let partner = self.partner(place, exit_ns);
                        latest = later(latest, partner.map(|(moment, own)| (moment, kind.unwrap_or(own))));
                        places.push(place);
                    }
                    BegunRequest::Open(_, moment) => self.give_back([moment]),
                    BegunRequest::Nowhere => {}
                }
            }
        }
        let wait = self.resolve(ended, latest);
        self.end_places(&places);
        for membership in members {
            let old = self.collectives.leave(membership);
            self.give_back(old);
        }
        wait
    }

    /// What was begun is as if it had not been.
    fn cancel(&mut self, started: Started) {
        let sides = match started {
            Started::Message(begun) => vec![begun],
            Started::Meeting(sides, _) => sides,
            Started::Collective(_) => Vec::new(),
        };
        for begun in sides {
            match begun {
                BegunRequest::Placed(place) => {
                    let old = self.messages.cancel(place);
                    self.give_back(old);
                }
                BegunRequest::Open(_, moment) => self.give_back([moment]),
                BegunRequest::Nowhere => {}
            }
        }
    }

    /// What a request has begun; one that can begin it again stays.
    fn take_started(&mut self, process: ProcessId, request: RequestId) -> Option<Started> {
        let known = self.messages.requests.get_mut(&(process, request))?;
        let started = known.started.take();
        if known.prepared.is_none() {
            self.messages.requests.remove(&(process, request));
        }
        started
    }

    /// The start of a job is the origin of its members: what was before is not compared.
    fn begin_job(&mut self, ended: EndedCall, job: u32) -> Option<Wait> {
        let EndedCall { id, exit_ns: time_ns, site, .. } = ended;
        match self.jobs.get(&job).copied().filter(|moment| moment.time_ns <= time_ns) {
            Some(moment) => {
                let shared = self.versions.share(moment.version);
                let location = self.location(id);
                let old = std::mem::replace(&mut location.head, shared);
                location.time_ns = moment.time_ns;
                location.scaled_ns = moment.scaled_ns;
                self.versions.release(old);
                if let Some(expansion) = &mut self.expansion {
                    expansion.start(id, Some(moment.location), moment.time_ns);
                }
                self.append(id, site, LocationState::Starting, time_ns - moment.time_ns);
            }
            None => {
                self.complete_without_wait(ended, LocationState::Starting);
                let moment = self.moment(id);
                self.jobs.insert(job, moment);
            }
        }
        None
    }
}

fn later(one: Option<(Moment, WaitKind)>, other: Option<(Moment, WaitKind)>) -> Option<(Moment, WaitKind)> {
    match (one, other) {
        (Some(first), Some(second)) => Some(if second.0.time_ns > first.0.time_ns { second } else { first }),
        (first, second) => first.or(second),
    }
}

fn kind_of_sleep(kind: &SleepKind) -> WaitKind {
    match kind {
        SleepKind::Condition(_) => WaitKind::Condition,
        SleepKind::Semaphore => WaitKind::Semaphore,
        SleepKind::Futex => WaitKind::Futex,
    }
}
