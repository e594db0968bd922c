//! The rules of the analysis: what other locations may wait for when a location enters a call, and which location ended the wait in a call
//! that returns.

use crate::CollectiveWaitRule;
use crate::analysis::{Analysis, EndedCall, OpenCall};
use crate::call::{Call, Collective, CompletedRequest, Message, MultiExchange, RequestId, SleepKind, ThreadToken, WaitKind};
use crate::classes::WaitPathShares;
use crate::collectives::{CollectiveMembership, WaitTarget};
use crate::diagnostic::Diagnostic;
use crate::messages::{MessagePosition, MessageRequest, PreparedOperation, StartedOperation, StartedSendOrReceive};
use crate::objects::{ObjectKey, SynchronisationObjects, object_key};
use crate::step::{LocationId, LocationState, ProcessId};
use crate::wait::{PathMoment, Wait};

impl Analysis {
    /// Records everything in a call for which other locations may wait. Called when a location enters the call.
    pub(crate) fn register_call(&mut self, id: LocationId, process: ProcessId, call: &Call) {
        match call {
            Call::Send(message, _) => self.begin_message(id, process, *message, false),
            Call::Receive(message, _) => self.begin_message(id, process, *message, true),
            Call::Exchange(send, receive) => {
                self.begin_message(id, process, *send, false);
                self.begin_message(id, process, *receive, true);
            }
            Call::MultiExchange(exchange) => {
                exchange.sends.iter().for_each(|message| self.begin_message(id, process, *message, false));
                exchange.receives.iter().for_each(|message| self.begin_message(id, process, *message, true));
            }
            Call::Begin(message, is_receive, request) => {
                self.begin_nonblocking_request(id, process, *request, PreparedOperation::Message(*message, *is_receive))
            }
            Call::BeginMultiExchange(exchange, request) => {
                self.begin_nonblocking_request(id, process, *request, PreparedOperation::MultiExchange(exchange.clone()))
            }
            Call::BeginCollective(collective, request) => {
                self.begin_nonblocking_request(id, process, *request, PreparedOperation::Collective(*collective))
            }
            Call::Prepare(message, is_receive, request) => {
                self.store_prepared_request(process, *request, PreparedOperation::Message(*message, *is_receive))
            }
            Call::PrepareMultiExchange(exchange, request) => {
                self.store_prepared_request(process, *request, PreparedOperation::MultiExchange(exchange.clone()))
            }
            Call::PrepareCollective(collective, request) => {
                self.store_prepared_request(process, *request, PreparedOperation::Collective(*collective))
            }
            Call::Start(requests) => requests.iter().for_each(|request| self.start_prepared_request(id, process, *request)),
            Call::Collective(collective) => {
                let membership = self.enter_collective(id, process, *collective);
                self.open_call(id).membership = Some(membership);
            }
            Call::Unlock(object) => self.store_release_moment(id, |objects, moment| objects.unlock(object_key(process, *object), moment)),
            Call::Wake(object, count) => {
                self.store_release_moment(id, |objects, moment| objects.wake(object_key(process, *object), *count, moment))
            }
            Call::Create(token) => self.store_release_moment(id, |objects, moment| objects.created.insert(*token, moment)),
            Call::End(token) => self.store_release_moment(id, |objects, moment| objects.ended.insert(*token, moment)),
            Call::ThreadBarrier(object, count) => {
                let moment = self.save_moment(id);
                let (place, old) = self.objects.enter_barrier(object_key(process, *object), *count, moment);
                self.release_moments(old);
                self.open_call(id).barrier = Some(place);
            }
            _ => {}
        }
    }

    fn store_release_moment(&mut self, id: LocationId, store: impl FnOnce(&mut SynchronisationObjects, PathMoment) -> Option<PathMoment>) {
        let moment = self.save_moment(id);
        let old = store(&mut self.objects, moment);
        self.release_moments(old);
    }

    fn open_call(&mut self, id: LocationId) -> &mut OpenCall {
        self.location(id).open.as_mut().expect("`enter` has set it")
    }

    fn begin_send_or_receive(&mut self, id: LocationId, process: ProcessId, message: Message, is_receive: bool) -> StartedSendOrReceive {
        let moment = self.save_moment(id);
        let side = self.messages.start_send_or_receive(process, message, is_receive, moment);
        match side {
            StartedSendOrReceive::Unmatchable => self.release_moments([moment]),
            StartedSendOrReceive::Placed(place) if !is_receive && self.messages.is_received(place) => {
                self.outcome.diagnostics.add(Diagnostic::ReceiveBeforeSend, id, moment.time_ns);
            }
            _ => {}
        }
        side
    }

    fn begin_message(&mut self, id: LocationId, process: ProcessId, message: Message, is_receive: bool) {
        let side = self.begin_send_or_receive(id, process, message, is_receive);
        self.open_call(id).sides.push(side);
    }

    fn store_prepared_request(&mut self, process: ProcessId, request: RequestId, prepared: PreparedOperation) {
        self.messages.requests.insert((process, request), MessageRequest { prepared: Some(prepared), started: None });
    }

    fn begin_nonblocking_request(&mut self, id: LocationId, process: ProcessId, request: RequestId, operation: PreparedOperation) {
        let started = Some(self.begin_prepared_operation(id, process, &operation));
        self.messages.requests.insert((process, request), MessageRequest { prepared: None, started });
    }

    fn start_prepared_request(&mut self, id: LocationId, process: ProcessId, request: RequestId) {
        let Some(prepared) = self.messages.requests.get(&(process, request)).and_then(|known| known.prepared.clone()) else {
            return self.diagnose_unknown_request(id);
        };
        let started = Some(self.begin_prepared_operation(id, process, &prepared));
        self.messages.requests.insert((process, request), MessageRequest { prepared: Some(prepared), started });
    }

    fn begin_prepared_operation(&mut self, id: LocationId, process: ProcessId, prepared: &PreparedOperation) -> StartedOperation {
        match prepared {
            PreparedOperation::Message(message, is_receive) => {
                StartedOperation::Message(self.begin_send_or_receive(id, process, *message, *is_receive))
            }
            PreparedOperation::MultiExchange(MultiExchange { sends, receives, kind }) => {
                let sides = sends.iter().map(|send| (send, false)).chain(receives.iter().map(|receive| (receive, true)));
                StartedOperation::MultiExchange(
                    sides.map(|(message, is_receive)| self.begin_send_or_receive(id, process, *message, is_receive)).collect(),
                    *kind,
                )
            }
            PreparedOperation::Collective(collective) => StartedOperation::Collective(self.enter_collective(id, process, *collective)),
        }
    }

    fn enter_collective(&mut self, id: LocationId, process: ProcessId, collective: Collective) -> CollectiveMembership {
        let moment = self.save_moment(id);
        let (membership, old) = self.collectives.enter(process, collective, moment);
        self.release_moments(old);
        membership
    }

    fn diagnose_unknown_request(&mut self, id: LocationId) {
        let time_ns = self.location(id).time_ns;
        self.outcome.diagnostics.add(Diagnostic::UnknownRequest, id, time_ns);
    }

    /// Handles the return of a call. Finds the moment that ended the wait in the call, and releases moments that are no longer needed.
    pub(crate) fn complete_call(&mut self, ended: EndedCall, open: OpenCall, call: &Call) -> Option<Wait> {
        let EndedCall { id, process, enter_ns, exit_ns, .. } = ended;
        match call {
            Call::Send(..) | Call::Receive(..) | Call::Exchange(..) | Call::MultiExchange(_) => self.complete_messages(ended, open, call),
            Call::Probe(message) => {
                let found = self.messages.first_unreceived_send(process, *message);
                self.complete_call_released_by(ended, found.map(|moment| (moment, WaitKind::LateSender)))
            }
            Call::Wait(completed) => self.complete_requests(ended, completed),
            Call::Collective(_) => {
                let found = open.membership.and_then(|membership| self.find_collective_wait(id, membership, exit_ns));
                let wait = self.complete_call_released_by(ended, found);
                let old = open.membership.map_or_else(Vec::new, |membership| self.collectives.leave(membership));
                self.release_moments(old);
                wait
            }
            Call::BeginJob(job) => self.begin_mpi_job(ended, *job),
            Call::Free(request) => {
                self.messages.requests.remove(&(process, *request));
                self.complete_call_released_by(ended, None)
            }
            Call::Lock(object) => {
                let found =
                    self.objects.last_unlock_by_other(object_key(process, *object), id).map(|moment| (moment, WaitKind::LockContention));
                if object.is_shared() {
                    // A lock of an MPI window may take time although no other process holds it, so a missing release is no gap in the
                    // trace.
                    return self.complete_call_released_by(ended, found);
                }
                self.complete_call_needing_release(ended, found, Diagnostic::LockWithoutUnlock)
            }
            Call::Sleep(_, _, false) => self.complete_call_without_wait(ended, LocationState::Blocked),
            Call::Sleep(object, kind, true) => {
                let woken = self.objects.take_wake_up_of(object_key(process, *object), id, enter_ns);
                let found = woken.map(|moment| (moment, sleep_wait_kind(kind)));
                self.complete_call_needing_release(ended, found, Diagnostic::SleepWithoutWake)
            }
            Call::ThreadBarrier(..) => {
                let found = open.barrier.and_then(|place| self.objects.last_entry(place)).map(|moment| (moment, WaitKind::ThreadBarrier));
                let wait = self.complete_call_needing_release(ended, found, Diagnostic::LeftBeforeEntered);
                let old = open.barrier.and_then(|place| self.objects.leave_barrier(place));
                self.release_moments(old);
                wait
            }
            Call::Join(token) => self.complete_join(ended, *token),
            Call::Blocked => self.complete_call_without_wait(ended, LocationState::Blocked),
            _ => self.complete_call_without_wait(ended, LocationState::Communicating),
        }
    }

    fn complete_join(&mut self, ended: EndedCall, token: ThreadToken) -> Option<Wait> {
        let found = self.objects.ended.remove(&token);
        let wait = self.complete_call_needing_release(ended, found.map(|m| (m, WaitKind::Join)), Diagnostic::JoinWithoutEnd);
        self.release_moments(found);
        wait
    }

    /// Handles the return from a wait for a condition variable. The location first waited for the wake-up. If another location released the
    /// mutex after that, it then waited for the mutex. These count as two waits, because different locations may have ended them.
    pub(crate) fn complete_condition_wait(&mut self, ended: EndedCall, condition: ObjectKey, mutex: ObjectKey) -> Vec<Wait> {
        let EndedCall { id, enter_ns, exit_ns, .. } = ended;
        let woken = self.objects.take_wake_up_of(condition, id, enter_ns).filter(|moment| moment.time_ns > enter_ns);
        let is_later = |unlocked: &PathMoment| woken.is_some_and(|woken| (woken.time_ns..=exit_ns).contains(&unlocked.time_ns));
        let unlocked = self.objects.last_unlock_by_other(mutex, id).filter(is_later);
        let until_ns = woken.filter(|_| unlocked.is_some()).map_or(exit_ns, |moment| moment.time_ns);
        let found = woken.map(|moment| (moment, WaitKind::Condition));
        let slept = self.complete_call_needing_release(EndedCall { exit_ns: until_ns, ..ended }, found, Diagnostic::SleepWithoutWake);
        let then = EndedCall { enter_ns: until_ns, ..ended };
        let locked = unlocked.and_then(|moment| self.complete_call_released_by(then, Some((moment, WaitKind::LockContention))));
        slept.into_iter().chain(locked).collect()
    }

    /// Completes a call without a wait: the rest of the call becomes a step in the given state on the location's path.
    fn complete_call_without_wait(&mut self, ended: EndedCall, state: LocationState) -> Option<Wait> {
        let ns = ended.exit_ns - self.location(ended.id).time_ns;
        self.append(ended.id, ended.site, state, ns);
        None
    }

    /// Completes a call that cannot return before another location does something. If `found` is `None`, the trace does not show what that
    /// was; the call is then unexplained, and the diagnostic `missing` is recorded. Otherwise, this is the same as
    /// [`Analysis::complete_call_released_by`].
    fn complete_call_needing_release(
        &mut self,
        ended: EndedCall,
        found: Option<(PathMoment, WaitKind)>,
        missing: Diagnostic,
    ) -> Option<Wait> {
        if found.is_none() && ended.exit_ns > ended.enter_ns {
            return self.mark_call_unexplained(ended, missing, ended.enter_ns);
        }
        self.complete_call_released_by(ended, found)
    }

    fn mark_call_unexplained(&mut self, ended: EndedCall, diagnostic: Diagnostic, time_ns: u64) -> Option<Wait> {
        self.outcome.diagnostics.add(diagnostic, ended.id, time_ns);
        self.outcome.unexplained_ns += ended.exit_ns - ended.enter_ns;
        self.complete_call_without_wait(ended, LocationState::Unexplained)
    }

    /// Completes a call that may have been released by the moment in `found`. The call contains a wait if the moment is that of another
    /// location, and later than the entry of the call.
    fn complete_call_released_by(&mut self, ended: EndedCall, found: Option<(PathMoment, WaitKind)>) -> Option<Wait> {
        let EndedCall { id, enter_ns, exit_ns, site, .. } = ended;
        let found = found.filter(|(moment, _)| moment.location != id && moment.time_ns > enter_ns);
        let Some((moment, kind)) = found else { return self.complete_call_without_wait(ended, LocationState::Communicating) };
        if moment.time_ns > exit_ns {
            return self.mark_call_unexplained(ended, Diagnostic::ReceiveBeforeSend, exit_ns);
        }
        let head = self.location(id).head;
        let paths = self.versions.difference(moment.version, head);
        let wait = Wait { location: id, releaser: moment.location, site, kind, enter_ns, wait_ns: moment.time_ns - enter_ns, paths };
        let shares = WaitPathShares::new(&self.outcome.steps, &wait);
        let placement = self.classes.add(&wait, &shares);
        self.other_classes.iter_mut().for_each(|classes| classes.count_wait(&wait, &shares));
        if let Some(expansion) = &mut self.expansion {
            expansion.add_wait(&wait, placement);
        }
        let shared = self.versions.share_version(moment.version);
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
            let live = self.versions.count_live_nodes_and_steps();
            outcome.max_live = (outcome.max_live.0.max(live.0), outcome.max_live.1.max(live.1));
        }
        Some(wait)
    }

    fn complete_messages(&mut self, ended: EndedCall, open: OpenCall, call: &Call) -> Option<Wait> {
        let mut latest: Option<(PathMoment, WaitKind)> = None;
        let mut places = Vec::with_capacity(2);
        for side in open.sides {
            let actual = if let Call::Receive(_, actual) = call { *actual } else { None };
            let side = self.messages.assign_channel_position(ended.process, side, actual);
            if let StartedSendOrReceive::AnySource(_, moment) = side {
                self.release_moments([moment]);
            }
            let StartedSendOrReceive::Placed(place) = side else { continue };
            places.push(place);
            let mut partner = self.find_partner_wait(place, ended.exit_ns);
            if let (Call::MultiExchange(MultiExchange { kind, .. }), Some(found)) = (call, &mut partner) {
                found.1 = *kind;
            }
            latest = later_moment_of(latest, partner);
        }
        let wait = self.complete_call_released_by(ended, latest);
        self.complete_sends_and_receives(&places);
        wait
    }

    fn complete_sends_and_receives(&mut self, places: &[MessagePosition]) {
        for place in places {
            let old = self.messages.complete_send_or_receive(*place);
            self.release_moments(old);
        }
    }

    fn find_partner_wait(&self, place: MessagePosition, until_ns: u64) -> Option<(PathMoment, WaitKind)> {
        let moment = self.messages.partner_start_moment(place).filter(|moment| moment.time_ns <= until_ns && !place.is_buffered())?;
        let kind = match (place.is_receive(), self.messages.has_earlier_unreceived_send(place)) {
            (true, true) => WaitKind::WrongOrder,
            (true, false) => WaitKind::LateSender,
            (false, _) => WaitKind::LateReceiver,
        };
        Some((moment, kind))
    }

    fn find_collective_wait(&mut self, id: LocationId, membership: CollectiveMembership, time_ns: u64) -> Option<(PathMoment, WaitKind)> {
        let kind = match membership.collective {
            collective if collective.is_barrier => WaitKind::Barrier,
            collective => match collective.rule {
                CollectiveWaitRule::All | CollectiveWaitRule::Absent => WaitKind::AllToAll,
                CollectiveWaitRule::FromRoot => WaitKind::LateBroadcast,
                CollectiveWaitRule::ToRoot => WaitKind::EarlyReduce,
                CollectiveWaitRule::Scan => WaitKind::EarlyScan,
            },
        };
        match self.collectives.wait_target(membership) {
            WaitTarget::Entry(moment) => Some((moment, kind)),
            WaitTarget::Nothing => None,
            WaitTarget::Unexplained(diagnostic) => {
                self.outcome.diagnostics.add(diagnostic, id, time_ns);
                None
            }
        }
    }

    fn complete_requests(&mut self, ended: EndedCall, completed: &[CompletedRequest]) -> Option<Wait> {
        let EndedCall { id, process, exit_ns, .. } = ended;
        let mut latest: Option<(PathMoment, WaitKind)> = None;
        let (mut places, mut members) = (Vec::new(), Vec::new());
        for completed in completed {
            let Some(started) = self.take_started_operation(process, completed.request) else { continue };
            if completed.is_cancelled {
                self.cancel_operations(started);
                continue;
            }
            let (sides, kind) = match started {
                StartedOperation::Collective(membership) => {
                    members.push(membership);
                    latest = later_moment_of(latest, self.find_collective_wait(id, membership, exit_ns));
                    continue;
                }
                StartedOperation::Message(side) => {
                    (vec![self.messages.assign_channel_position(process, side, completed.peer.zip(completed.tag))], None)
                }
                StartedOperation::MultiExchange(sides, kind) => (sides, Some(kind)),
            };
            for side in sides {
                match side {
                    StartedSendOrReceive::Placed(place) => {
                        let partner = self.find_partner_wait(place, exit_ns);
                        latest = later_moment_of(latest, partner.map(|(moment, own)| (moment, kind.unwrap_or(own))));
                        places.push(place);
                    }
                    StartedSendOrReceive::AnySource(_, moment) => self.release_moments([moment]),
                    StartedSendOrReceive::Unmatchable => {}
                }
            }
        }
        let wait = self.complete_call_released_by(ended, latest);
        self.complete_sends_and_receives(&places);
        for membership in members {
            let old = self.collectives.leave(membership);
            self.release_moments(old);
        }
        wait
    }

    /// Removes the sends and receives of a request that was cancelled.
    fn cancel_operations(&mut self, started: StartedOperation) {
        let sides = match started {
            StartedOperation::Message(side) => vec![side],
            StartedOperation::MultiExchange(sides, _) => sides,
            StartedOperation::Collective(_) => Vec::new(),
        };
        for side in sides {
            match side {
                StartedSendOrReceive::Placed(place) => {
                    let old = self.messages.cancel_send_or_receive(place);
                    self.release_moments(old);
                }
                StartedSendOrReceive::AnySource(_, moment) => self.release_moments([moment]),
                StartedSendOrReceive::Unmatchable => {}
            }
        }
    }

    /// Returns the operation in progress of a request, and marks the request as not started. Removes the request unless it is persistent.
    fn take_started_operation(&mut self, process: ProcessId, request: RequestId) -> Option<StartedOperation> {
        let known = self.messages.requests.get_mut(&(process, request))?;
        let started = known.started.take();
        if known.prepared.is_none() {
            self.messages.requests.remove(&(process, request));
        }
        started
    }

    /// Replaces a member's path by that of the first member that returned from the initialisation of MPI, so that steps before the
    /// initialisation are not compared.
    fn begin_mpi_job(&mut self, ended: EndedCall, job: u32) -> Option<Wait> {
        let EndedCall { id, exit_ns: time_ns, site, .. } = ended;
        match self.jobs.get(&job).copied().filter(|moment| moment.time_ns <= time_ns) {
            Some(moment) => {
                let shared = self.versions.share_version(moment.version);
                let location = self.location(id);
                let old = std::mem::replace(&mut location.head, shared);
                location.time_ns = moment.time_ns;
                location.scaled_ns = moment.scaled_ns;
                self.versions.release(old);
                if let Some(expansion) = &mut self.expansion {
                    expansion.start_history(id, Some(moment.location), moment.time_ns);
                }
                self.append(id, site, LocationState::Starting, time_ns - moment.time_ns);
            }
            None => {
                self.complete_call_without_wait(ended, LocationState::Starting);
                let moment = self.save_moment(id);
                self.jobs.insert(job, moment);
            }
        }
        None
    }
}

fn later_moment_of(one: Option<(PathMoment, WaitKind)>, other: Option<(PathMoment, WaitKind)>) -> Option<(PathMoment, WaitKind)> {
    match (one, other) {
        (Some(first), Some(second)) => Some(if second.0.time_ns > first.0.time_ns { second } else { first }),
        (first, second) => first.or(second),
    }
}

fn sleep_wait_kind(kind: &SleepKind) -> WaitKind {
    match kind {
        SleepKind::Condition(_) => WaitKind::Condition,
        SleepKind::Semaphore => WaitKind::Semaphore,
        SleepKind::Futex => WaitKind::Futex,
    }
}
