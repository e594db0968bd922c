//! Matches the calls of a collective operation by its members, and finds out for whose entry a member has waited.
//!
//! On each communicator, the n-th calls of all members belong to the same operation, the n-th *instance*. Entries arrive in chronological
//! order, so it is enough to store the last entry and that of the root, or all entries in a scan.

use crate::call::{Collective, CollectiveWaitRule, CommunicatorId};
use crate::diagnostic::Diagnostic;
use crate::hash::Map;
use crate::step::ProcessId;
use crate::wait::PathMoment;

/// A member's participation in an instance of a collective operation.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveMembership {
    /// The operation, with the arguments of this member's call.
    pub collective: Collective,
    /// Number of the instance on its communicator, counted from 0.
    number: u64,
}

#[derive(Clone, Debug, Default)]
struct CollectiveInstance {
    entered: u32,
    left: u32,
    /// According to the call of the first member: which members wait for which, and whether the operation is a barrier.
    rule: Option<(CollectiveWaitRule, bool)>,
    /// Whether the calls of other members differ from the first one in this respect.
    is_inconsistent: bool,
    last: Option<PathMoment>,
    root: Option<PathMoment>,
    /// In a scan, the moment of entry of each rank.
    ranks: Vec<(u32, PathMoment)>,
}

#[derive(Clone, Copy, Debug)]
pub enum WaitTarget {
    /// The member waited until this entry, which may be its own.
    Entry(PathMoment),
    Nothing,
    /// The wait cannot be explained. Either the member returned before all members that it waits for had entered, or members called
    /// different operations.
    Unexplained(Diagnostic),
}

/// The instances of collective operations from which some member has not returned yet.
#[derive(Clone, Debug, Default)]
pub struct CollectiveInstances {
    instances: Map<(CommunicatorId, u64), CollectiveInstance>,
    counts: Map<(CommunicatorId, ProcessId), u64>,
}

impl CollectiveInstances {
    /// Records that a member enters a collective operation. Returns its membership, and a moment that is no longer needed and that the
    /// caller must release.
    pub fn enter(&mut self, process: ProcessId, collective: Collective, moment: PathMoment) -> (CollectiveMembership, Option<PathMoment>) {
        let count = self.counts.entry((collective.communicator, process)).or_default();
        let number = *count;
        *count += 1;
        if collective.rule == CollectiveWaitRule::Absent {
            return (CollectiveMembership { collective, number }, Some(moment));
        }
        let instance = self.instances.entry((collective.communicator, number)).or_default();
        let rule = (collective.rule, collective.is_barrier);
        instance.is_inconsistent |= *instance.rule.get_or_insert(rule) != rule;
        instance.entered += 1;
        let old = match collective.rule {
            CollectiveWaitRule::Scan => {
                instance.ranks.push((collective.rank, moment));
                None
            }
            CollectiveWaitRule::FromRoot if collective.is_root => instance.root.replace(moment),
            CollectiveWaitRule::FromRoot => Some(moment),
            _ => instance.last.replace(moment),
        };
        (CollectiveMembership { collective, number }, old)
    }

    /// Returns the entry for which the member has waited. Called when the member returns.
    pub fn wait_target(&self, membership: CollectiveMembership) -> WaitTarget {
        let Collective { communicator, rule, is_root, rank, size, .. } = membership.collective;
        if rule == CollectiveWaitRule::Absent {
            return WaitTarget::Nothing;
        }
        let early =
            if membership.collective.is_binding { WaitTarget::Unexplained(Diagnostic::LeftBeforeEntered) } else { WaitTarget::Nothing };
        let Some(instance) = self.instances.get(&(communicator, membership.number)) else { return early };
        if instance.is_inconsistent {
            return WaitTarget::Unexplained(Diagnostic::DifferentCollectives);
        }
        let found = match rule {
            CollectiveWaitRule::All if instance.entered < size => None,
            CollectiveWaitRule::ToRoot if is_root && instance.entered < size => None,
            CollectiveWaitRule::All => instance.last,
            CollectiveWaitRule::ToRoot if is_root => instance.last,
            CollectiveWaitRule::FromRoot if !is_root => instance.root,
            CollectiveWaitRule::Scan => {
                let lower = instance.ranks.iter().filter(|(other, _)| *other < rank);
                if lower.clone().count() < rank as usize {
                    return early;
                }
                return lower.map(|(_, moment)| *moment).max_by_key(|moment| moment.time_ns).map_or(WaitTarget::Nothing, WaitTarget::Entry);
            }
            _ => return WaitTarget::Nothing,
        };
        found.map_or(early, WaitTarget::Entry)
    }

    /// Records that a member returns. Returns moments that are no longer needed and that the caller must release.
    pub fn leave(&mut self, membership: CollectiveMembership) -> Vec<PathMoment> {
        if membership.collective.rule == CollectiveWaitRule::Absent {
            return Vec::new();
        }
        let key = (membership.collective.communicator, membership.number);
        let Some(instance) = self.instances.get_mut(&key) else { return Vec::new() };
        instance.left += 1;
        if instance.left < membership.collective.size {
            return Vec::new();
        }
        let instance = self.instances.remove(&key).unwrap_or_default();
        instance.last.into_iter().chain(instance.root).chain(instance.ranks.into_iter().map(|(_, moment)| moment)).collect()
    }
}
