//! Symbolic expressions of waits, as in the Carnival papers, for readers who want to follow an explanation step by step.
//!
//! A wait is first expressed as the difference of two paths, which begin when the two locations last synchronised. These paths may contain
//! earlier waits. Each of those is then replaced by its own two paths: the steps of its longer path are added, and those of its shorter
//! path are subtracted. [`crate::versions`] computes the same differences without subtraction. Expressions require the complete history of
//! each location, so memory grows with the trace.

use crate::call::WaitKind;
use crate::classes::ClassMember;
use crate::step::{CodeId, LocationId, StepId};
use crate::wait::Wait;
use std::collections::{BTreeMap, HashMap};

/// A part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathPart {
    /// A step that the location executes.
    Step(StepId),
    /// An earlier wait of the location, by its index in [`crate::WaitOutcome::expanded`].
    Wait(usize),
}

/// The two paths of a wait, as parts with times in ns, in the order in which they were first executed. A time is negative if an earlier
/// wait subtracts more of a step than the path contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitExpression {
    /// The path of the location that ended the wait.
    pub plus: Vec<(PathPart, i128)>,
    /// The path of the location that waited.
    pub minus: Vec<(PathPart, i128)>,
}

/// A wait and its expressions.
#[derive(Clone, Debug)]
pub struct ExpandedWait {
    /// The location that waits.
    pub location: LocationId,
    /// The location that ended the wait.
    pub releaser: LocationId,
    /// The call site of the call that waited.
    pub site: CodeId,
    /// The kind of wait.
    pub kind: WaitKind,
    /// Start of the wait in ns since the start of the run.
    pub enter_ns: u64,
    /// Length of the wait in ns.
    pub wait_ns: u64,
    /// The two paths since the locations last synchronised, which may contain earlier waits.
    pub first: WaitExpression,
    /// The two paths after all earlier waits have been replaced, so that they consist of steps.
    pub expanded: WaitExpression,
    /// The wait's class, and its distance from the representative of that class.
    pub placement: ClassMember,
}

/// The steps and waits of a location since `begin_ns`. Before that time, its history is the one with the index `parent`.
#[derive(Clone, Debug, Default)]
struct LocationHistory {
    begin_ns: u64,
    parent: Option<usize>,
    /// For each step or wait, its start and its end in ns.
    parts: Vec<(u64, u64, PathPart)>,
}

/// The histories of all locations while the analysis runs, and the expressions of the waits so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expansion {
    histories: Vec<LocationHistory>,
    current: HashMap<LocationId, usize>,
    /// For each pair of histories, the times in ns at which their locations synchronised, in ascending order. The smaller index comes first
    /// in the key.
    synchronised: HashMap<(usize, usize), Vec<u64>>,
    /// For each history and time in ns, the histories whose waits its location ended at that time.
    released: HashMap<(usize, u64), Vec<usize>>,
    pub(crate) waits: Vec<ExpandedWait>,
}

impl Expansion {
    /// Starts a new history for a location. It continues the current history of the location `from`.
    pub(crate) fn start_history(&mut self, id: LocationId, from: Option<LocationId>, begin_ns: u64) {
        let parent = from.and_then(|other| self.current.get(&other).copied());
        self.current.insert(id, self.histories.len());
        self.histories.push(LocationHistory { begin_ns: if parent.is_some() { begin_ns } else { 0 }, parent, parts: Vec::new() });
    }

    pub(crate) fn add_step(&mut self, id: LocationId, step: StepId, from_ns: u64, ns: u64) {
        let history = self.current[&id];
        self.histories[history].parts.push((from_ns, from_ns + ns, PathPart::Step(step)));
    }

    /// Records a wait, and computes its expressions.
    pub(crate) fn add_wait(&mut self, wait: &Wait, placement: ClassMember) {
        let (own, other) = (self.current[&wait.location], self.current[&wait.releaser]);
        let released_ns = wait.enter_ns + wait.wait_ns;
        let since_ns = self.last_synchronisation_ns(own, other, u64::MAX);
        let mut first = [(other, released_ns), (own, wait.enter_ns)].map(|(history, until_ns)| {
            let mut path = Vec::new();
            self.append_parts(history, since_ns, until_ns, &mut path);
            path
        });
        let expanded = [0, 1].map(|side| self.expand(&first[side]));
        first.iter_mut().for_each(merge_equal_path_parts);
        let ([plus, minus], [longer, shorter]) = (first, expanded);
        let number = self.waits.len();
        let Wait { location, releaser, site, kind, enter_ns, wait_ns, .. } = *wait;
        self.waits.push(ExpandedWait {
            location,
            releaser,
            site,
            kind,
            enter_ns,
            wait_ns,
            first: WaitExpression { plus, minus },
            expanded: WaitExpression { plus: longer, minus: shorter },
            placement,
        });
        self.histories[own].parts.push((enter_ns, released_ns, PathPart::Wait(number)));
        // If a moment ends the waits of several locations, these synchronise not only with the one that released them, but also with each
        // other.
        let others = self.released.entry((other, released_ns)).or_default();
        let synchronised_together: Vec<usize> = others.iter().copied().chain([other]).collect();
        others.push(own);
        for with in synchronised_together {
            self.synchronised.entry((own.min(with), own.max(with))).or_default().push(released_ns);
        }
    }

    /// Returns the last time, up to `until_ns`, at which the locations of two histories synchronised. At that time, their expanded paths
    /// are the same.
    fn last_synchronisation_ns(&self, one: usize, other: usize, until_ns: u64) -> u64 {
        if one == other {
            return until_ns;
        }
        let times = self.synchronised.get(&(one.min(other), one.max(other)));
        if let Some(last) = times.and_then(|times| times.iter().rev().find(|at| **at <= until_ns)) {
            return *last;
        }
        let (young, old) = if one > other { (one, other) } else { (other, one) };
        let LocationHistory { begin_ns, parent, .. } = self.histories[young];
        parent.map_or(0, |parent| self.last_synchronisation_ns(parent, old, begin_ns.min(until_ns)))
    }

    /// Appends the parts of a history between two times to `path`, in chronological order.
    fn append_parts(&self, history: usize, from_ns: u64, until_ns: u64, path: &mut Vec<(PathPart, i128)>) {
        let LocationHistory { begin_ns, parent, parts } = &self.histories[history];
        if let Some(parent) = parent.filter(|_| from_ns < *begin_ns) {
            self.append_parts(parent, from_ns, until_ns.min(*begin_ns), path);
        }
        let first = parts.partition_point(|(_, end_ns, _)| *end_ns <= from_ns);
        for (begin_ns, end_ns, part) in parts[first..].iter().take_while(|(begin_ns, ..)| *begin_ns < until_ns) {
            path.push((*part, i128::from(*end_ns.min(&until_ns)) - i128::from(*begin_ns.max(&from_ns))));
        }
    }

    /// Returns the steps of a path in which each wait has been replaced by its own two paths.
    fn expand(&self, path: &[(PathPart, i128)]) -> Vec<(PathPart, i128)> {
        let mut steps: BTreeMap<PathPart, i128> = BTreeMap::new();
        let mut add = |(part, ns): (PathPart, i128)| *steps.entry(part).or_default() += ns;
        for (part, ns) in path {
            match part {
                PathPart::Step(_) => add((*part, *ns)),
                PathPart::Wait(number) => {
                    let WaitExpression { plus, minus } = &self.waits[*number].expanded;
                    plus.iter().copied().for_each(&mut add);
                    minus.iter().for_each(|(step, ns)| add((*step, -ns)));
                }
            }
        }
        steps.into_iter().filter(|(_, ns)| *ns != 0).collect()
    }
}

/// Merges parts that are equal, by adding their times to the first one.
fn merge_equal_path_parts(path: &mut Vec<(PathPart, i128)>) {
    let mut merged: Vec<(PathPart, i128)> = Vec::new();
    let mut indices: HashMap<PathPart, usize> = HashMap::new();
    for (part, ns) in path.drain(..) {
        let place = *indices.entry(part).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(known) => known.1 += ns,
            None => merged.push((part, ns)),
        }
    }
    *path = merged;
}
