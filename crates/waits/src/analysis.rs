//! Calls in order of time to waits, each with the two paths that explain it.
//!
//! Each location has an expanded path ([`Versions`]) whose sum is the time since the origin. Its blocks and calls are appended. What
//! lets others go on (a send, an unlock, an entry into a barrier) keeps the path as it is then: a [`Moment`]. Where a location leaves a
//! call that the moment `m` of another released, after it had entered, it has waited `m - enter`; the two paths are that of the moment and
//! its own at the entry; and its path goes on from that of the moment, with the rest of the call as communication.
//!
//! Invariant: path sums equal times, so the two paths of a wait differ by the wait, in integer nanoseconds. Waits are expanded in
//! order of time, so a
//! path never has waiting in it. Memory: live locations, messages and locks; classes. Time: each event once; each wait, its two paths.

use crate::ClassRule;
use crate::call::{Call, SleepKind, Token};
use crate::classes::{Classes, SiteWaits};
use crate::collectives::{Collectives, Membership};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::expansion::{ExpandedWait, Expansion};
use crate::messages::{BegunRequest, Messages};
use crate::objects::{BarrierPlace, Objects, held_by};
use crate::step::{CodeId, LocationId, LocationState, ProcessId, Step, StepId, Steps};
use crate::versions::{PathVersion, Versions};
use crate::wait::{Moment, Wait};
use std::collections::{HashMap, HashSet};

/// What may be chosen.
#[derive(Clone, Debug)]
pub struct AnalysisOptions {
    /// Paths less distant than this are equivalent. See [`crate::classes`].
    pub threshold: f64,
    /// How distances are measured.
    pub rule: ClassRule,
    /// Other thresholds, for which classes are counted.
    pub others: Vec<f64>,
    /// A question: how long would the run take if these blocks took this part of their time?
    pub what_if: Option<(HashSet<CodeId>, f64)>,
    /// Whether to keep the expressions of all waits, which takes memory for each event.
    pub expand: bool,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        AnalysisOptions {
            threshold: crate::classes::DEFAULT_THRESHOLD,
            rule: ClassRule::Union,
            others: Vec::new(),
            what_if: None,
            expand: false,
        }
    }
}

/// The result.
#[derive(Debug, Default)]
pub struct WaitOutcome {
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
    /// All waits with their expressions, in order of their ends, if that was asked for.
    pub expanded: Vec<ExpandedWait>,
}

#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) process: ProcessId,
    pub(crate) head: PathVersion,
    pub(crate) time_ns: u64,
    pub(crate) scaled_ns: u64,
    pub(crate) open: Option<OpenCall>,
}

/// A call that a location is in.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) enter_ns: u64,
    pub(crate) site: CodeId,
    pub(crate) begun: Vec<BegunRequest>,
    pub(crate) membership: Option<Membership>,
    pub(crate) barrier: Option<BarrierPlace>,
}

/// A call that has returned.
#[derive(Clone, Copy)]
pub(crate) struct EndedCall {
    pub(crate) id: LocationId,
    pub(crate) process: ProcessId,
    pub(crate) enter_ns: u64,
    pub(crate) exit_ns: u64,
    pub(crate) site: CodeId,
}

/// The analysis, while events come in.
#[derive(Debug)]
pub struct Analysis {
    pub(crate) options: AnalysisOptions,
    /// What is known of the result so far.
    pub(crate) outcome: WaitOutcome,
    pub(crate) versions: Versions,
    pub(crate) origin: PathVersion,
    pub(crate) locations: Vec<Option<Location>>,
    pub(crate) messages: Messages,
    pub(crate) collectives: Collectives,
    pub(crate) objects: Objects,
    pub(crate) jobs: HashMap<u32, Moment>,
    pub(crate) classes: Classes,
    pub(crate) others: Vec<Classes>,
    pub(crate) executed: Vec<u64>,
    pub(crate) expansion: Option<Expansion>,
}

/// Part of the time between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBlock {
    /// Which code.
    pub code: CodeId,
    /// How.
    pub state: LocationState,
    /// How long, ns.
    pub ns: u64,
}

impl Analysis {
    /// Before the first event.
    pub fn new(options: AnalysisOptions) -> Self {
        let mut versions = Versions::default();
        let origin = versions.origin();
        let classes = Classes::new(options.threshold, options.rule);
        let others = options.others.iter().map(|threshold| Classes::new(*threshold, options.rule)).collect();
        Analysis {
            expansion: options.expand.then(Expansion::default),
            options,
            outcome: WaitOutcome::default(),
            versions,
            origin,
            locations: Vec::new(),
            messages: Messages::default(),
            collectives: Collectives::default(),
            objects: Objects::default(),
            jobs: HashMap::new(),
            classes,
            others,
            executed: Vec::new(),
        }
    }

    /// A location begins; `made_by` names the call that made it, `code` its start-up. A second beginning is ignored.
    pub fn start(&mut self, id: LocationId, process: ProcessId, time_ns: u64, made_by: Option<Token>, code: CodeId) {
        let index = id.0 as usize;
        if self.locations.len() <= index {
            self.locations.resize_with(index + 1, || None);
        }
        if self.locations[index].is_some() {
            self.outcome.diagnostics.add(Diagnostic::Unbalanced, id, time_ns);
            return;
        }
        let made = made_by.and_then(|token| self.objects.created.remove(&token)).filter(|moment| moment.time_ns <= time_ns);
        if made_by.is_some() && made.is_none() {
            self.outcome.diagnostics.add(Diagnostic::StartWithoutCreate, id, time_ns);
        }
        if let Some(expansion) = &mut self.expansion {
            expansion.start(id, made.map(|moment| moment.location), made.map_or(0, |moment| moment.time_ns));
        }
        let (head, from_ns, scaled_ns) = match made {
            Some(moment) => (moment.version, moment.time_ns, moment.scaled_ns),
            None => (self.versions.share(self.origin), 0, 0),
        };
        self.locations[index] = Some(Location { process, head, time_ns: from_ns, scaled_ns, open: None });
        self.append(id, code, LocationState::Starting, time_ns - from_ns);
    }

    /// A location makes a call; `blocks` are what it did since the last event. What they lack of the time is the last one's, what
    /// they have too much is cut.
    pub fn enter(&mut self, id: LocationId, time_ns: u64, blocks: &[TimeBlock], call: &Call, site: CodeId) {
        let Some(known_ns) = self.known(id, time_ns) else { return };
        if self.location(id).open.is_some() {
            self.outcome.diagnostics.add(Diagnostic::Unbalanced, id, known_ns);
            return;
        }
        let Some(time_ns) = self.spend(id, known_ns, blocks, site) else { return };
        let location = self.location(id);
        let process = location.process;
        location.open = Some(OpenCall { enter_ns: time_ns, site, begun: Vec::new(), membership: None, barrier: None });
        self.begin(id, process, call);
    }

    /// The call that a location made returns. Gives its waits, if it has waited and the trace says for whom: one, or for a condition
    /// whose mutex was still locked after the wake two in a row.
    pub fn exit(&mut self, id: LocationId, time_ns: u64, call: &Call) -> Vec<Wait> {
        let Some(time_ns) = self.known(id, time_ns) else { return Vec::new() };
        let location = self.location(id);
        let process = location.process;
        let Some(open) = location.open.take() else {
            self.outcome.diagnostics.add(Diagnostic::Unbalanced, id, time_ns);
            return Vec::new();
        };
        let ended = EndedCall { id, process, enter_ns: open.enter_ns, exit_ns: time_ns, site: open.site };
        if let Call::Sleep(object, SleepKind::Condition(Some(mutex)), true) = call {
            let (object, mutex) = (held_by(process, *object), held_by(process, *mutex));
            return self.complete_condition(ended, object, mutex);
        }
        self.complete(ended, open, call).into_iter().collect()
    }

    /// A location executes until then, without a call: its last event.
    pub fn end(&mut self, id: LocationId, time_ns: u64, blocks: &[TimeBlock], site: CodeId) {
        if self.locations.get(id.0 as usize).is_some_and(|l| l.as_ref().is_some_and(|l| l.open.is_some())) {
            self.outcome.diagnostics.add(Diagnostic::EndsInsideCall, id, time_ns);
            return;
        }
        self.spend(id, time_ns, blocks, site);
    }

    /// After the last event.
    pub fn finish(mut self) -> WaitOutcome {
        for moment in self.messages.unreceived() {
            self.outcome.diagnostics.add(Diagnostic::SendWithoutReceive, moment.location, moment.time_ns);
        }
        for moment in self.messages.unsent() {
            self.outcome.diagnostics.add(Diagnostic::ReceiveWithoutSend, moment.location, moment.time_ns);
        }
        for (index, location) in self.locations.iter().enumerate() {
            if let Some(Location { open: Some(_), time_ns, .. }) = location {
                self.outcome.diagnostics.add(Diagnostic::EndsInsideCall, LocationId(index as u32), *time_ns);
            }
        }
        let last = self.locations.iter().flatten().max_by_key(|location| location.time_ns);
        let critical_path = last.map_or_else(Vec::new, |location| self.versions.path(location.head));
        let run_ns = last.map_or(0, |location| location.time_ns);
        let what_if_ns = self.locations.iter().flatten().map(|location| location.scaled_ns).max().unwrap_or(0);
        WaitOutcome {
            sites: self.classes.into_sites(),
            other_classes: self.options.others.iter().copied().zip(self.others.iter().map(Classes::count)).collect(),
            critical_path,
            run_ns,
            what_if_ns,
            expanded: self.expansion.map_or_else(Vec::new, |expansion| expansion.waits),
            executed: (0..).map(StepId).zip(self.executed).collect(),
            ..self.outcome
        }
    }

    /// Steps so far.
    pub fn steps(&self) -> &Steps {
        &self.outcome.steps
    }

    /// A time that is not before the location's last event, if the location has begun.
    pub(crate) fn known(&mut self, id: LocationId, time_ns: u64) -> Option<u64> {
        let Some(Some(location)) = self.locations.get(id.0 as usize) else {
            self.outcome.diagnostics.add(Diagnostic::Unbalanced, id, time_ns);
            return None;
        };
        let last_ns = location.time_ns;
        if time_ns < last_ns {
            self.outcome.diagnostics.add(Diagnostic::TimeRunsBack, id, time_ns);
        }
        Some(time_ns.max(last_ns))
    }

    pub(crate) fn location(&mut self, id: LocationId) -> &mut Location {
        self.locations[id.0 as usize].as_mut().expect("callers have asked `known`")
    }

    pub(crate) fn spend(&mut self, id: LocationId, time_ns: u64, blocks: &[TimeBlock], site: CodeId) -> Option<u64> {
        let time_ns = self.known(id, time_ns)?;
        let mut left = time_ns - self.location(id).time_ns;
        for block in blocks {
            let ns = block.ns.min(left);
            self.append(id, block.code, block.state, ns);
            left -= ns;
        }
        let (code, state) = blocks.last().map_or((site, LocationState::Computing), |block| (block.code, block.state));
        self.append(id, code, state, left);
        Some(time_ns)
    }

    pub(crate) fn append(&mut self, id: LocationId, code: CodeId, state: LocationState, ns: u64) {
        if ns == 0 {
            return;
        }
        let step = self.outcome.steps.id(Step { location: id, code, state });
        if self.executed.len() <= step.0 as usize {
            self.executed.resize(step.0 as usize + 1, 0);
        }
        self.executed[step.0 as usize] += ns;
        let scaled = match &self.options.what_if {
            Some((codes, factor)) if codes.contains(&code) && state != LocationState::Starting => (ns as f64 * factor) as u64,
            _ => ns,
        };
        let location = self.locations[id.0 as usize].as_mut().expect("callers have asked `known`");
        location.head = self.versions.append(location.head, step, ns);
        if let Some(expansion) = &mut self.expansion {
            expansion.step(id, step, location.time_ns, ns);
        }
        location.time_ns += ns;
        location.scaled_ns += scaled;
    }

    /// The location's path as it is now, with a reference of its own.
    pub(crate) fn moment(&mut self, id: LocationId) -> Moment {
        let location = self.locations[id.0 as usize].as_ref().expect("callers have asked `known`");
        Moment { time_ns: location.time_ns, location: id, version: self.versions.share(location.head), scaled_ns: location.scaled_ns }
    }

    pub(crate) fn give_back(&mut self, moments: impl IntoIterator<Item = Moment>) {
        moments.into_iter().for_each(|moment| self.versions.release(moment.version));
    }
}
