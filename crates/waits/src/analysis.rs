//! The wait analysis. It processes calls in chronological order and finds waits, each with the two execution paths that explain it.
//!
//! A *location* is a thread of a process. For each location, the analysis keeps an *expanded path* ([`PathVersions`]): steps of code whose
//! times add up to the time since the start of the run, because each wait has been replaced by the path of the location that ended it. When
//! a location does something for which others may wait (a send, an unlock, the entry into a barrier), its path is saved as a
//! [`PathMoment`]. If a call was released by a moment of another location, the caller has waited from the entry of its call to that moment.
//! Its own path then continues from the path of the moment, plus the rest of the call as communication.
//!
//! Unless expressions are kept, memory is bounded by the numbers of locations, steps, pending messages, synchronisation objects and
//! classes.

use crate::PathDistanceRule;
use crate::call::{Call, SleepKind, ThreadToken};
use crate::classes::{SiteWaits, WaitClasses};
use crate::collectives::{CollectiveInstances, CollectiveMembership};
use crate::diagnostic::{Diagnostic, DiagnosticCounts};
use crate::expansion::{ExpandedWait, Expansion};
use crate::messages::{MessageMatcher, StartedSendOrReceive};
use crate::objects::{BarrierEntry, SynchronisationObjects, object_key};
use crate::step::{CodeId, LocationId, LocationState, ProcessId, Step, StepId, Steps};
use crate::versions::{PathVersionId, PathVersions};
use crate::wait::{PathMoment, Wait};
use std::collections::{HashMap, HashSet};

/// Options of the analysis: how waits are classified, and what is computed besides.
#[derive(Clone, Debug)]
pub struct AnalysisOptions {
    /// Two paths count as equivalent if their distance, which is between 0 and 2, is less than this. See [`crate::classes`].
    pub threshold: f64,
    /// Which code is taken into account for the distance of two paths.
    pub rule: PathDistanceRule,
    /// Further thresholds. For these, only the number of classes is determined.
    pub other_thresholds: Vec<f64>,
    /// For a what-if prediction of the run time: code that would be faster, and the fraction of its measured time that it would take.
    pub what_if: Option<(HashSet<CodeId>, f64)>,
    /// Whether to keep the expressions of all waits ([`crate::expansion`]). Memory then grows with the number of events.
    pub has_expressions: bool,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        AnalysisOptions {
            threshold: crate::classes::DEFAULT_CLASS_THRESHOLD,
            rule: PathDistanceRule::Union,
            other_thresholds: Vec::new(),
            what_if: None,
            has_expressions: false,
        }
    }
}

/// The result of the analysis.
#[derive(Debug, Default)]
pub struct WaitOutcome {
    /// All steps by number.
    pub steps: Steps,
    /// Call sites at which locations wait, each with its classes of waits. The site with the largest total waiting time comes first.
    pub sites: Vec<SiteWaits>,
    /// Number of classes at each of [`AnalysisOptions::other_thresholds`].
    pub other_classes: Vec<(f64, usize)>,
    /// Gaps and contradictions in the trace.
    pub diagnostics: DiagnosticCounts,
    /// Steps of the critical path, which determines the run time, with their times in ns.
    pub critical_path: Vec<(StepId, u64)>,
    /// Time of the last event, in ns since the start of the run.
    pub run_ns: u64,
    /// Prediction of `run_ns` under [`AnalysisOptions::what_if`].
    pub what_if_ns: u64,
    /// Number of explained waits.
    pub waits: u64,
    /// Total length of all explained waits in ns.
    pub wait_ns: u64,
    /// Total time in ns of calls that ended because of another location, but whose end the trace does not explain.
    pub unexplained_ns: u64,
    /// For each step, the total time in ns that it was executed. Waits are not included.
    pub executed: HashMap<StepId, u64>,
    /// Maximum memory use of the paths, sampled every 1024 waits: the number of nodes, and the number of steps in them.
    pub max_live: (usize, usize),
    /// All waits with their expressions, in the order in which they ended. Empty unless [`AnalysisOptions::has_expressions`] is set.
    pub expanded: Vec<ExpandedWait>,
}

#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) process: ProcessId,
    pub(crate) head: PathVersionId,
    pub(crate) time_ns: u64,
    pub(crate) scaled_ns: u64,
    pub(crate) open: Option<OpenCall>,
}

#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) enter_ns: u64,
    pub(crate) site: CodeId,
    /// The sends and receives of this call, unless it only starts them for a request.
    pub(crate) sides: Vec<StartedSendOrReceive>,
    pub(crate) membership: Option<CollectiveMembership>,
    pub(crate) barrier: Option<BarrierEntry>,
}

#[derive(Clone, Copy)]
pub(crate) struct EndedCall {
    pub(crate) id: LocationId,
    pub(crate) process: ProcessId,
    pub(crate) enter_ns: u64,
    pub(crate) exit_ns: u64,
    pub(crate) site: CodeId,
}

/// An analysis in progress. Pass it events in chronological order, and then call [`Analysis::finish`].
#[derive(Debug)]
pub struct Analysis {
    pub(crate) options: AnalysisOptions,
    pub(crate) outcome: WaitOutcome,
    pub(crate) versions: PathVersions,
    pub(crate) origin: PathVersionId,
    pub(crate) locations: Vec<Option<Location>>,
    pub(crate) messages: MessageMatcher,
    pub(crate) collectives: CollectiveInstances,
    pub(crate) objects: SynchronisationObjects,
    /// For each MPI job, the moment at which its first member had initialised MPI. The paths of all members continue from there.
    pub(crate) jobs: HashMap<u32, PathMoment>,
    pub(crate) classes: WaitClasses,
    pub(crate) other_classes: Vec<WaitClasses>,
    pub(crate) executed: Vec<u64>,
    pub(crate) expansion: Option<Expansion>,
}

/// A period between two calls in which a location executed the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBlock {
    /// The code that the location executed.
    pub code: CodeId,
    /// What the location did: compute, or something else.
    pub state: LocationState,
    /// Length of the period in ns.
    pub ns: u64,
}

impl Analysis {
    /// Creates an analysis without events.
    pub fn new(options: AnalysisOptions) -> Self {
        let mut versions = PathVersions::default();
        let origin = versions.create_origin_version();
        let classes = WaitClasses::new(options.threshold, options.rule);
        let other_classes = options.other_thresholds.iter().map(|threshold| WaitClasses::new(*threshold, options.rule)).collect();
        Analysis {
            expansion: options.has_expressions.then(Expansion::default),
            options,
            outcome: WaitOutcome::default(),
            versions,
            origin,
            locations: Vec::new(),
            messages: MessageMatcher::default(),
            collectives: CollectiveInstances::default(),
            objects: SynchronisationObjects::default(),
            jobs: HashMap::new(),
            classes,
            other_classes,
            executed: Vec::new(),
        }
    }

    /// Records the start of a location. `created_by` identifies the call that created it; the time from that call, or else from the start
    /// of the run, to the start of the location is attributed to `code`. If the location has already been started, a diagnostic is
    /// recorded, and nothing else happens.
    pub fn start(&mut self, id: LocationId, process: ProcessId, time_ns: u64, created_by: Option<ThreadToken>, code: CodeId) {
        let index = id.0 as usize;
        if self.locations.len() <= index {
            self.locations.resize_with(index + 1, || None);
        }
        if self.locations[index].is_some() {
            self.outcome.diagnostics.add(Diagnostic::Unbalanced, id, time_ns);
            return;
        }
        let created = created_by.and_then(|token| self.objects.created.remove(&token)).filter(|moment| moment.time_ns <= time_ns);
        if created_by.is_some() && created.is_none() {
            self.outcome.diagnostics.add(Diagnostic::StartWithoutCreate, id, time_ns);
        }
        if let Some(expansion) = &mut self.expansion {
            expansion.start_history(id, created.map(|moment| moment.location), created.map_or(0, |moment| moment.time_ns));
        }
        let (head, from_ns, scaled_ns) = match created {
            Some(moment) => (moment.version, moment.time_ns, moment.scaled_ns),
            None => (self.versions.share_version(self.origin), 0, 0),
        };
        self.locations[index] = Some(Location { process, head, time_ns: from_ns, scaled_ns, open: None });
        self.append(id, code, LocationState::Starting, time_ns - from_ns);
    }

    /// Records that a location enters a call at the call site `site`. `blocks` is the code that it has executed since its previous event;
    /// if it is empty, the time is attributed to `site`. If its times add up to less than the elapsed time, the last one is extended; if
    /// they add up to more, the excess is cut off.
    pub fn enter(&mut self, id: LocationId, time_ns: u64, blocks: &[TimeBlock], call: &Call, site: CodeId) {
        let Some(known_ns) = self.clamp_time(id, time_ns) else { return };
        if self.location(id).open.is_some() {
            self.outcome.diagnostics.add(Diagnostic::Unbalanced, id, known_ns);
            return;
        }
        let Some(time_ns) = self.append_blocks(id, known_ns, blocks, site) else { return };
        let location = self.location(id);
        let process = location.process;
        location.open = Some(OpenCall { enter_ns: time_ns, site, sides: Vec::new(), membership: None, barrier: None });
        self.register_call(id, process, call);
    }

    /// Records that a location returns from its call. Returns the waits in the call that could be explained. There is at most one, except
    /// for a wait for a condition variable whose mutex was still locked after the wake-up, which counts as two waits.
    pub fn exit(&mut self, id: LocationId, time_ns: u64, call: &Call) -> Vec<Wait> {
        let Some(time_ns) = self.clamp_time(id, time_ns) else { return Vec::new() };
        let location = self.location(id);
        let process = location.process;
        let Some(open) = location.open.take() else {
            self.outcome.diagnostics.add(Diagnostic::Unbalanced, id, time_ns);
            return Vec::new();
        };
        let ended = EndedCall { id, process, enter_ns: open.enter_ns, exit_ns: time_ns, site: open.site };
        if let Call::Sleep(object, SleepKind::Condition(Some(mutex)), true) = call {
            let (object, mutex) = (object_key(process, *object), object_key(process, *mutex));
            return self.complete_condition_wait(ended, object, mutex);
        }
        self.complete_call(ended, open, call).into_iter().collect()
    }

    /// Records the end of a location. Its last call must have ended. `blocks` has the same meaning as in [`Analysis::enter`].
    pub fn end(&mut self, id: LocationId, time_ns: u64, blocks: &[TimeBlock], site: CodeId) {
        if self.locations.get(id.0 as usize).is_some_and(|l| l.as_ref().is_some_and(|l| l.open.is_some())) {
            self.outcome.diagnostics.add(Diagnostic::EndsInsideCall, id, time_ns);
            return;
        }
        self.append_blocks(id, time_ns, blocks, site);
    }

    /// Completes the analysis after the last event, and returns its result.
    pub fn finish(mut self) -> WaitOutcome {
        for moment in self.messages.unmatched_sends() {
            self.outcome.diagnostics.add(Diagnostic::SendWithoutReceive, moment.location, moment.time_ns);
        }
        for moment in self.messages.unmatched_receives() {
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
            other_classes: self.options.other_thresholds.iter().copied().zip(self.other_classes.iter().map(WaitClasses::count)).collect(),
            critical_path,
            run_ns,
            what_if_ns,
            expanded: self.expansion.map_or_else(Vec::new, |expansion| expansion.waits),
            executed: (0..).map(StepId).zip(self.executed).collect(),
            ..self.outcome
        }
    }

    /// Returns the table of all steps so far, by number.
    pub fn steps(&self) -> &Steps {
        &self.outcome.steps
    }

    /// Returns `time_ns` or the time of the location's previous event, whichever is later. Returns `None` if the location has not started.
    /// Records a diagnostic if the event precedes the previous one, or if the location has not started.
    pub(crate) fn clamp_time(&mut self, id: LocationId, time_ns: u64) -> Option<u64> {
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
        self.locations[id.0 as usize].as_mut().expect("callers have called `clamp_time`")
    }

    pub(crate) fn append_blocks(&mut self, id: LocationId, time_ns: u64, blocks: &[TimeBlock], site: CodeId) -> Option<u64> {
        let time_ns = self.clamp_time(id, time_ns)?;
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
        let step = self.outcome.steps.intern(Step { location: id, code, state });
        if self.executed.len() <= step.0 as usize {
            self.executed.resize(step.0 as usize + 1, 0);
        }
        self.executed[step.0 as usize] += ns;
        let scaled = match &self.options.what_if {
            Some((codes, factor)) if codes.contains(&code) && state != LocationState::Starting => (ns as f64 * factor) as u64,
            _ => ns,
        };
        let location = self.locations[id.0 as usize].as_mut().expect("callers have called `clamp_time`");
        location.head = self.versions.append(location.head, step, ns);
        if let Some(expansion) = &mut self.expansion {
            expansion.add_step(id, step, location.time_ns, ns);
        }
        location.time_ns += ns;
        location.scaled_ns += scaled;
    }

    /// Saves the location's current path, so that it can later explain the wait of another location. The moment owns a reference to the
    /// path.
    pub(crate) fn save_moment(&mut self, id: LocationId) -> PathMoment {
        let location = self.locations[id.0 as usize].as_ref().expect("callers have called `clamp_time`");
        PathMoment {
            time_ns: location.time_ns,
            location: id,
            version: self.versions.share_version(location.head),
            scaled_ns: location.scaled_ns,
        }
    }

    pub(crate) fn release_moments(&mut self, moments: impl IntoIterator<Item = PathMoment>) {
        moments.into_iter().for_each(|moment| self.versions.release(moment.version));
    }
}
