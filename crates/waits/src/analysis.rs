//! Calls in order of time to waits, each with the two paths that explain it.
//!
//! Each location has an expanded path ([`Versions`]) whose sum is the time since the origin. Its blocks and calls are appended. What
//! lets others go on (a send, an unlock, an entry into a barrier) keeps the path as it is then: a [`Moment`]. Where a location leaves a
//! call that the moment `m` of another released, after it had entered, it has waited `m - enter`; the two paths are that of the moment and
//! its own at the entry; and its path goes on from that of the moment, with the rest of the call as communication.
//!
//! Invariant: path sums equal times, so the two paths of a wait differ by the wait, in integer nanoseconds. Waits are expanded in order of time, so a
//! path never has waiting in it. Memory: live locations, messages and locks; classes. Time: each event once; each wait, its two paths.

use crate::call::{Call, Completed, Message, RequestId, SleepKind, Token, WaitKind};
use crate::classes::{Classes, SiteWaits};
use crate::collectives::{Collectives, Membership, Waited};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::messages::{Begun, Messages, Place, Request};
use crate::objects::{BarrierPlace, Objects};
use crate::step::{CodeId, LocationId, ProcessId, State, Step, StepId, Steps};
use crate::versions::{Difference, Version, Versions};
use crate::{ClassRule, Rule};
use std::collections::{HashMap, HashSet};

/// A point of a location's path, kept for those that it lets go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When, ns since the origin.
    pub time_ns: u64,
    /// Whose.
    pub location: LocationId,
    version: Version,
    scaled_ns: u64,
}

/// What may be chosen.
#[derive(Clone, Debug)]
pub struct Options {
    /// Paths less distant than this are equivalent. See [`crate::classes`].
    pub threshold: f64,
    /// How distances are measured.
    pub rule: ClassRule,
    /// Other thresholds, for which classes are counted.
    pub others: Vec<f64>,
    /// A question: how long would the run take if these blocks took this part of their time?
    pub what_if: Option<(HashSet<CodeId>, f64)>,
}

impl Default for Options {
    fn default() -> Self {
        Options { threshold: crate::classes::DEFAULT_THRESHOLD, rule: ClassRule::Union, others: Vec::new(), what_if: None }
    }
}

/// A wait.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Who waits.
    pub location: LocationId,
    /// For whom.
    pub releaser: LocationId,
    /// Code of the call.
    pub site: CodeId,
    /// Kind.
    pub kind: WaitKind,
    /// When it began, ns since the origin.
    pub enter_ns: u64,
    /// How long it is, ns.
    pub wait_ns: u64,
    /// The two paths.
    pub paths: Difference,
}

/// The result.
#[derive(Debug)]
pub struct Outcome {
    /// Steps by number.
    pub steps: Steps,
    /// Wait sites with their classes, the greatest wait first.
    pub sites: Vec<SiteWaits>,
    /// Classes at other thresholds.
    pub other_classes: Vec<(f64, usize)>,
    /// What the trace lacks.
    pub diagnostics: Diagnostics,
    /// Steps of the path that decides the run time, with their times.
    pub critical_path: Vec<(StepId, u64)>,
    /// End of the last location, ns since the origin.
    pub run_ns: u64,
    /// The same if the blocks of the question took less.
    pub what_if_ns: u64,
    /// Waits that were found, and their sum.
    pub waits: u64,
    /// Sum of all waits, ns.
    pub wait_ns: u64,
    /// Time in calls whose wait is not explained, ns.
    pub unexplained_ns: u64,
    /// Times of locations by step, without waits: what each executed.
    pub executed: HashMap<StepId, u64>,
    /// Most nodes and entries of paths at a time, as far as was sampled.
    pub live: (usize, usize),
}

#[derive(Debug)]
struct Location {
    process: ProcessId,
    head: Version,
    time_ns: u64,
    scaled_ns: u64,
    open: Option<Open>,
}

/// A call that a location is in.
#[derive(Debug)]
struct Open {
    enter_ns: u64,
    site: CodeId,
    begun: Vec<(Begun, bool)>,
    membership: Option<Membership>,
    barrier: Option<BarrierPlace>,
}

/// The analysis, while events come in.
#[derive(Debug)]
pub struct Analysis {
    options: Options,
    steps: Steps,
    versions: Versions,
    origin: Version,
    locations: Vec<Option<Location>>,
    messages: Messages,
    collectives: Collectives,
    objects: Objects,
    jobs: HashMap<u32, Moment>,
    classes: Classes,
    others: Vec<Classes>,
    diagnostics: Diagnostics,
    executed: HashMap<StepId, u64>,
    waits: u64,
    wait_ns: u64,
    unexplained_ns: u64,
    live: (usize, usize),
}

/// Part of the time between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which code.
    pub code: CodeId,
    /// How.
    pub state: State,
    /// How long, ns.
    pub ns: u64,
}

impl Analysis {
    /// Before the first event.
    pub fn new(options: Options) -> Self {
        let mut versions = Versions::default();
        let origin = versions.origin();
        let classes = Classes::new(options.threshold, options.rule);
        let others = options.others.iter().map(|threshold| Classes::new(*threshold, options.rule)).collect();
        Analysis {
            options,
            steps: Steps::default(),
            versions,
            origin,
            locations: Vec::new(),
            messages: Messages::default(),
            collectives: Collectives::default(),
            objects: Objects::default(),
            jobs: HashMap::new(),
            classes,
            others,
            diagnostics: Diagnostics::default(),
            executed: HashMap::new(),
            waits: 0,
            wait_ns: 0,
            unexplained_ns: 0,
            live: (0, 0),
        }
    }

    /// A location begins; `made_by` names the call that made it, `code` its start-up. A second beginning is ignored.
    pub fn start(&mut self, id: LocationId, process: ProcessId, time_ns: u64, made_by: Option<Token>, code: CodeId) {
        let index = id.0 as usize;
        if self.locations.len() <= index {
            self.locations.resize_with(index + 1, || None);
        }
        if self.locations[index].is_some() {
            self.diagnostics.add(Diagnostic::Unbalanced, id, time_ns);
            return;
        }
        let made = made_by.and_then(|token| self.objects.begin(token)).filter(|moment| moment.time_ns <= time_ns);
        if made_by.is_some() && made.is_none() {
            self.diagnostics.add(Diagnostic::StartWithoutCreate, id, time_ns);
        }
        let (head, from_ns, scaled_ns) = match made {
            Some(moment) => (moment.version, moment.time_ns, moment.scaled_ns),
            None => (self.versions.share(self.origin), 0, 0),
        };
        self.locations[index] = Some(Location { process, head, time_ns: from_ns, scaled_ns, open: None });
        self.append(id, code, State::Starting, time_ns - from_ns);
    }

    /// A location makes a call; `blocks` are what it did since the last event. What they lack of the time is the last one's, what they have too much is cut.
    pub fn enter(&mut self, id: LocationId, time_ns: u64, blocks: &[Block], call: &Call, site: CodeId) {
        let Some(known_ns) = self.known(id, time_ns) else { return };
        if self.location(id).open.is_some() {
            self.diagnostics.add(Diagnostic::Unbalanced, id, known_ns);
            return;
        }
        let Some(time_ns) = self.spend(id, known_ns, blocks, site) else { return };
        let location = self.location(id);
        let process = location.process;
        location.open = Some(Open { enter_ns: time_ns, site, begun: Vec::new(), membership: None, barrier: None });
        self.begin(id, process, call);
    }

    /// The call that a location made returns. Gives its wait, if it has waited and the trace says for whom.
    pub fn exit(&mut self, id: LocationId, time_ns: u64, call: &Call) -> Option<Wait> {
        let time_ns = self.known(id, time_ns)?;
        let location = self.location(id);
        let process = location.process;
        let Some(open) = location.open.take() else {
            self.diagnostics.add(Diagnostic::Unbalanced, id, time_ns);
            return None;
        };
        self.complete(id, process, open, time_ns, call)
    }

    /// A location executes until then, without a call: its last event.
    pub fn end(&mut self, id: LocationId, time_ns: u64, blocks: &[Block], site: CodeId) {
        if self.locations.get(id.0 as usize).is_some_and(|l| l.as_ref().is_some_and(|l| l.open.is_some())) {
            self.diagnostics.add(Diagnostic::EndsInsideCall, id, time_ns);
            return;
        }
        self.spend(id, time_ns, blocks, site);
    }

    /// After the last event.
    pub fn finish(mut self) -> Outcome {
        for moment in self.messages.unreceived() {
            self.diagnostics.add(Diagnostic::SendWithoutReceive, moment.location, moment.time_ns);
        }
        for moment in self.messages.unsent() {
            self.diagnostics.add(Diagnostic::ReceiveWithoutSend, moment.location, moment.time_ns);
        }
        for (index, location) in self.locations.iter().enumerate() {
            if let Some(Location { open: Some(_), time_ns, .. }) = location {
                self.diagnostics.add(Diagnostic::EndsInsideCall, LocationId(index as u32), *time_ns);
            }
        }
        let last = self.locations.iter().flatten().max_by_key(|location| location.time_ns);
        let critical_path = last.map_or_else(Vec::new, |location| self.versions.path(location.head));
        let run_ns = last.map_or(0, |location| location.time_ns);
        let what_if_ns = self.locations.iter().flatten().map(|location| location.scaled_ns).max().unwrap_or(0);
        Outcome {
            sites: self.classes.into_sites(),
            other_classes: self.options.others.iter().copied().zip(self.others.iter().map(Classes::count)).collect(),
            steps: self.steps,
            diagnostics: self.diagnostics,
            critical_path,
            run_ns,
            what_if_ns,
            waits: self.waits,
            wait_ns: self.wait_ns,
            unexplained_ns: self.unexplained_ns,
            executed: self.executed,
            live: self.live,
        }
    }

    /// Steps so far.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// A time that is not before the location's last event, if the location has begun.
    fn known(&mut self, id: LocationId, time_ns: u64) -> Option<u64> {
        let Some(Some(location)) = self.locations.get(id.0 as usize) else {
            self.diagnostics.add(Diagnostic::Unbalanced, id, time_ns);
            return None;
        };
        let last_ns = location.time_ns;
        if time_ns < last_ns {
            self.diagnostics.add(Diagnostic::TimeRunsBack, id, time_ns);
        }
        Some(time_ns.max(last_ns))
    }

    fn location(&mut self, id: LocationId) -> &mut Location {
        self.locations[id.0 as usize].as_mut().expect("callers have asked `known`")
    }

    fn spend(&mut self, id: LocationId, time_ns: u64, blocks: &[Block], site: CodeId) -> Option<u64> {
        let time_ns = self.known(id, time_ns)?;
        let mut left = time_ns - self.location(id).time_ns;
        for block in blocks {
            let ns = block.ns.min(left);
            self.append(id, block.code, block.state, ns);
            left -= ns;
        }
        let (code, state) = blocks.last().map_or((site, State::Computing), |block| (block.code, block.state));
        self.append(id, code, state, left);
        Some(time_ns)
    }

    fn append(&mut self, id: LocationId, code: CodeId, state: State, ns: u64) {
        if ns == 0 {
            return;
        }
        let step = self.steps.id(Step { location: id, code, state });
        *self.executed.entry(step).or_default() += ns;
        let scaled = match &self.options.what_if {
            Some((codes, factor)) if codes.contains(&code) && state != State::Starting => (ns as f64 * factor) as u64,
            _ => ns,
        };
        let location = self.locations[id.0 as usize].as_mut().expect("callers have asked `known`");
        location.head = self.versions.append(location.head, step, ns);
        location.time_ns += ns;
        location.scaled_ns += scaled;
    }

    /// The location's path as it is now, with a reference of its own.
    fn moment(&mut self, id: LocationId) -> Moment {
        let location = self.locations[id.0 as usize].as_ref().expect("callers have asked `known`");
        Moment { time_ns: location.time_ns, location: id, version: self.versions.share(location.head), scaled_ns: location.scaled_ns }
    }

    fn give_back(&mut self, moments: impl IntoIterator<Item = Moment>) {
        moments.into_iter().for_each(|moment| self.versions.release(moment.version));
    }

    /// What a call means to others, at its entry.
    fn begin(&mut self, id: LocationId, process: ProcessId, call: &Call) {
        match call {
            Call::Send(message, _) => self.begin_message(id, process, *message, false),
            Call::Receive(message, _) => self.begin_message(id, process, *message, true),
            Call::Exchange(send, receive) => {
                self.begin_message(id, process, *send, false);
                self.begin_message(id, process, *receive, true);
            }
            Call::Begin(message, is_receive, request) => {
                let begun = self.place(id, process, *message, *is_receive);
                self.messages.requests.insert((process, *request), Request::Message(begun));
            }
            Call::Prepare(message, is_receive, request) => {
                self.messages.requests.insert((process, *request), Request::Prepared(*message, *is_receive));
            }
            Call::Start(requests) => requests.iter().for_each(|request| self.start_prepared(id, process, *request)),
            Call::Collective(collective) => {
                let moment = self.moment(id);
                let (membership, old) = self.collectives.enter(process, *collective, moment);
                self.give_back(old);
                self.open(id).membership = Some(membership);
            }
            Call::BeginCollective(collective, request) => {
                let moment = self.moment(id);
                let (membership, old) = self.collectives.enter(process, *collective, moment);
                self.give_back(old);
                self.messages.requests.insert((process, *request), Request::Collective(membership));
            }
            Call::Unlock(object) => self.keep(id, |objects, moment| objects.unlock((process, *object), moment)),
            Call::Wake(object, count) => self.keep(id, |objects, moment| objects.wake((process, *object), *count, moment)),
            Call::Create(token) => self.keep(id, |objects, moment| objects.create(*token, moment)),
            Call::End(token) => self.keep(id, |objects, moment| objects.end(*token, moment)),
            Call::ThreadBarrier(object, count) => {
                let moment = self.moment(id);
                let (place, old) = self.objects.enter((process, *object), *count, moment);
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

    fn open(&mut self, id: LocationId) -> &mut Open {
        self.location(id).open.as_mut().expect("`enter` has opened it")
    }

    fn place(&mut self, id: LocationId, process: ProcessId, message: Message, is_receive: bool) -> Begun {
        let moment = self.moment(id);
        let begun = self.messages.begin(process, message, is_receive, moment);
        match begun {
            Begun::Nowhere => self.give_back([moment]),
            Begun::Placed(place) if !is_receive && self.messages.is_received(place) => {
                self.diagnostics.add(Diagnostic::ReceiveBeforeSend, id, moment.time_ns);
            }
            _ => {}
        }
        begun
    }

    fn begin_message(&mut self, id: LocationId, process: ProcessId, message: Message, is_receive: bool) {
        let begun = self.place(id, process, message, is_receive);
        self.open(id).begun.push((begun, is_receive));
    }

    fn start_prepared(&mut self, id: LocationId, process: ProcessId, request: RequestId) {
        match self.messages.requests.get(&(process, request)) {
            Some(Request::Prepared(message, is_receive) | Request::Started(message, is_receive, _)) => {
                let (message, is_receive) = (*message, *is_receive);
                let begun = self.place(id, process, message, is_receive);
                self.messages.requests.insert((process, request), Request::Started(message, is_receive, begun));
            }
            _ => self.unknown_request(id),
        }
    }

    fn unknown_request(&mut self, id: LocationId) {
        let time_ns = self.location(id).time_ns;
        self.diagnostics.add(Diagnostic::UnknownRequest, id, time_ns);
    }

    /// A call returns: who released it, and what follows.
    fn complete(&mut self, id: LocationId, process: ProcessId, open: Open, time_ns: u64, call: &Call) -> Option<Wait> {
        let (enter_ns, site) = (open.enter_ns, open.site);
        match call {
            Call::Send(..) | Call::Receive(..) | Call::Exchange(..) => self.complete_messages(id, process, open, time_ns, call),
            Call::Probe(message) => {
                let found = self.messages.first_unreceived(process, *message);
                self.resolve(id, (enter_ns, time_ns), site, found.map(|moment| (moment, WaitKind::LateSender)))
            }
            Call::Wait(completed) => self.complete_requests(id, process, (enter_ns, time_ns), site, completed),
            Call::Collective(_) => {
                let found = open.membership.and_then(|membership| self.collective_wait(id, membership, time_ns));
                let wait = self.resolve(id, (enter_ns, time_ns), site, found);
                let old = open.membership.map_or_else(Vec::new, |membership| self.collectives.leave(membership));
                self.give_back(old);
                wait
            }
            Call::BeginJob(job) => self.begin_job(id, *job, time_ns, site),
            Call::Free(request) => {
                self.messages.requests.remove(&(process, *request));
                self.resolve(id, (enter_ns, time_ns), site, None)
            }
            Call::Lock(object) => {
                let found = self.objects.unlocked((process, *object), id).map(|moment| (moment, WaitKind::LockContention));
                self.expect(id, (enter_ns, time_ns), site, found, Diagnostic::LockWithoutUnlock)
            }
            Call::Sleep(object, kind, was_woken) => {
                if !was_woken {
                    return self.nobody(id, time_ns, site, State::Blocked);
                }
                let kind = match kind {
                    SleepKind::Condition => WaitKind::Condition,
                    SleepKind::Semaphore => WaitKind::Semaphore,
                    SleepKind::Futex => WaitKind::Futex,
                };
                let found = self.objects.woken((process, *object), id, enter_ns).map(|moment| (moment, kind));
                self.expect(id, (enter_ns, time_ns), site, found, Diagnostic::SleepWithoutWake)
            }
            Call::ThreadBarrier(..) => {
                let found = open.barrier.and_then(|place| self.objects.last(place)).map(|moment| (moment, WaitKind::ThreadBarrier));
                let wait = self.expect(id, (enter_ns, time_ns), site, found, Diagnostic::LeftBeforeEntered);
                let old = open.barrier.and_then(|place| self.objects.leave(place));
                self.give_back(old);
                wait
            }
            Call::Join(token) => {
                let found = self.objects.join(*token);
                let wait = self.expect(id, (enter_ns, time_ns), site, found.map(|m| (m, WaitKind::Join)), Diagnostic::JoinWithoutEnd);
                self.give_back(found);
                wait
            }
            Call::Blocked => self.nobody(id, time_ns, site, State::Blocked),
            _ => self.nobody(id, time_ns, site, State::Communicating),
        }
    }

    /// Nobody was waited for: the call's time is of that state.
    fn nobody(&mut self, id: LocationId, time_ns: u64, site: CodeId, state: State) -> Option<Wait> {
        let ns = time_ns - self.location(id).time_ns;
        self.append(id, site, state, ns);
        None
    }

    /// As [`Analysis::resolve`], where somebody must have been waited for.
    fn expect(
        &mut self,
        id: LocationId,
        times: (u64, u64),
        site: CodeId,
        found: Option<(Moment, WaitKind)>,
        or: Diagnostic,
    ) -> Option<Wait> {
        // Shorter than a switch of threads: the lock was free again before anybody slept.
        const SHORT_NS: u64 = 2_000;
        if found.is_none() && times.1 - times.0 > SHORT_NS {
            self.diagnostics.add(or, id, times.0);
            self.unexplained_ns += times.1 - times.0;
            return self.nobody(id, times.1, site, State::Unexplained);
        }
        self.resolve(id, times, site, found)
    }

    /// The call of a location lasted from `enter_ns` to `exit_ns`; the moment, if any, released it.
    fn resolve(
        &mut self,
        id: LocationId,
        (enter_ns, exit_ns): (u64, u64),
        site: CodeId,
        found: Option<(Moment, WaitKind)>,
    ) -> Option<Wait> {
        let found = found.filter(|(moment, _)| moment.location != id && moment.time_ns > enter_ns);
        let Some((moment, kind)) = found else { return self.nobody(id, exit_ns, site, State::Communicating) };
        if moment.time_ns > exit_ns {
            self.diagnostics.add(Diagnostic::ReceiveBeforeSend, id, exit_ns);
            self.unexplained_ns += exit_ns - enter_ns;
            return self.nobody(id, exit_ns, site, State::Unexplained);
        }
        let head = self.location(id).head;
        let paths = self.versions.difference(moment.version, head);
        let wait = Wait { location: id, releaser: moment.location, site, kind, enter_ns, wait_ns: moment.time_ns - enter_ns, paths };
        let shared = self.versions.share(moment.version);
        self.versions.release(head);
        let location = self.location(id);
        location.head = shared;
        location.time_ns = moment.time_ns;
        location.scaled_ns = location.scaled_ns.max(moment.scaled_ns);
        self.append(id, site, State::Communicating, exit_ns - moment.time_ns);
        self.waits += 1;
        self.wait_ns += wait.wait_ns;
        if self.waits.is_multiple_of(1024) {
            let live = self.versions.live();
            self.live = (self.live.0.max(live.0), self.live.1.max(live.1));
        }
        self.classes.add(&self.steps, &wait);
        self.others.iter_mut().for_each(|classes| classes.add(&self.steps, &wait));
        Some(wait)
    }

    fn complete_messages(&mut self, id: LocationId, process: ProcessId, open: Open, time_ns: u64, call: &Call) -> Option<Wait> {
        let mut latest: Option<(Moment, WaitKind)> = None;
        let mut places = Vec::with_capacity(2);
        for (begun, is_receive) in open.begun {
            let actual = if let Call::Receive(_, actual) = call { *actual } else { None };
            let begun = self.messages.resolve(process, begun, actual);
            if let Begun::Open(_, moment) = begun {
                self.give_back([moment]);
            }
            let Begun::Placed(place) = begun else { continue };
            places.push(place);
            latest = later(latest, self.partner(place, is_receive, time_ns));
        }
        let wait = self.resolve(id, (open.enter_ns, time_ns), open.site, latest);
        self.end_places(&places);
        wait
    }

    fn end_places(&mut self, places: &[Place]) {
        for place in places {
            let old = self.messages.end(*place);
            self.give_back(old);
        }
    }

    fn partner(&self, place: Place, is_receive: bool, until_ns: u64) -> Option<(Moment, WaitKind)> {
        let moment = self.messages.partner(place).filter(|moment| moment.time_ns <= until_ns && !place.is_buffered())?;
        let kind = match (is_receive, self.messages.is_overtaken(place)) {
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
                Rule::All => WaitKind::AllToAll,
                Rule::FromRoot => WaitKind::LateBroadcast,
                Rule::ToRoot => WaitKind::EarlyReduce,
                Rule::Scan => WaitKind::EarlyScan,
            },
        };
        match self.collectives.waited(membership) {
            Waited::For(moment) => Some((moment, kind)),
            Waited::Nobody => None,
            Waited::Early => {
                self.diagnostics.add(Diagnostic::LeftBeforeEntered, id, time_ns);
                None
            }
            Waited::Contradictory => {
                self.diagnostics.add(Diagnostic::DifferentCollectives, id, time_ns);
                None
            }
        }
    }

    fn complete_requests(
        &mut self,
        id: LocationId,
        process: ProcessId,
        times: (u64, u64),
        site: CodeId,
        completed: &[Completed],
    ) -> Option<Wait> {
        let mut latest: Option<(Moment, WaitKind)> = None;
        let (mut places, mut members) = (Vec::new(), Vec::new());
        for one in completed {
            let Some(request) = self.messages.requests.remove(&(process, one.request)) else {
                continue;
            };
            let begun = match request {
                Request::Message(begun) => begun,
                Request::Started(message, is_receive, begun) => {
                    self.messages.requests.insert((process, one.request), Request::Prepared(message, is_receive));
                    begun
                }
                Request::Prepared(..) => {
                    self.messages.requests.insert((process, one.request), request);
                    continue;
                }
                Request::Collective(membership) => {
                    members.push(membership);
                    latest = later(latest, self.collective_wait(id, membership, times.1));
                    continue;
                }
            };
            let begun = self.messages.resolve(process, begun, one.peer.zip(one.tag));
            match begun {
                Begun::Placed(place) => {
                    latest = later(latest, self.partner(place, place.is_receive(), times.1));
                    places.push(place);
                }
                Begun::Open(_, moment) => self.give_back([moment]),
                Begun::Nowhere => {}
            }
        }
        let wait = self.resolve(id, times, site, latest);
        self.end_places(&places);
        for membership in members {
            let old = self.collectives.leave(membership);
            self.give_back(old);
        }
        wait
    }

    /// The start of a job is the origin of its members: what was before is not compared.
    fn begin_job(&mut self, id: LocationId, job: u32, time_ns: u64, site: CodeId) -> Option<Wait> {
        match self.jobs.get(&job).copied().filter(|moment| moment.time_ns <= time_ns) {
            Some(moment) => {
                let shared = self.versions.share(moment.version);
                let location = self.location(id);
                let old = std::mem::replace(&mut location.head, shared);
                location.time_ns = moment.time_ns;
                location.scaled_ns = moment.scaled_ns;
                self.versions.release(old);
                self.append(id, site, State::Starting, time_ns - moment.time_ns);
            }
            None => {
                let ns = time_ns - self.location(id).time_ns;
                self.append(id, site, State::Starting, ns);
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
