//! Matches collective operations, and finds the member whose entry another member waits for.
//!
//! The n-th operations of all members on a communicator belong to the same instance. Entries arrive in chronological order, so it is
//! enough to keep the last entry and the root's entry or, for scans, one entry per rank.

use crate::call::{Collective, CollectiveRule, CommunicatorId};
use crate::diagnostic::Diagnostic;
use crate::hash::Map;
use crate::step::ProcessId;
use crate::wait::Moment;

/// A member's participation in one instance.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// The operation, with the arguments of this member's call.
    pub collective: Collective,
    /// Index of the instance on its communicator.
    number: u64,
}

#[derive(Clone, Debug, Default)]
struct CollectiveInstance {
    entered: u32,
    left: u32,
    /// The rule, and whether the operation is a barrier, according to the first member's call.
    rule: Option<(CollectiveRule, bool)>,
    /// Whether members called different operations.
    is_inconsistent: bool,
    last: Option<Moment>,
    root: Option<Moment>,
    /// Entries by rank, only for scans.
    ranks: Vec<(u32, Moment)>,
}

#[derive(Clone, Copy, Debug)]
pub enum WaitTarget {
    /// The entry that ended the wait, which may be the member's own entry.
    Entry(Moment),
    Nothing,
    /// The wait is unexplained: the member left before the members that it had to wait for had entered, or members called different
    /// operations.
    Unexplained(Diagnostic),
}

/// All instances that at least one member has not left yet.
#[derive(Clone, Debug, Default)]
pub struct Collectives {
    instances: Map<(CommunicatorId, u64), CollectiveInstance>,
    counts: Map<(CommunicatorId, ProcessId), u64>,
}

impl Collectives {
    /// Records a member's entry. Returns its membership, and a moment that the caller must release, if any.
    pub fn enter(&mut self, process: ProcessId, collective: Collective, moment: Moment) -> (Membership, Option<Moment>) {
        let count = self.counts.entry((collective.communicator, process)).or_default();
        let number = *count;
        *count += 1;
        if collective.rule == CollectiveRule::Absent {
            return (Membership { collective, number }, Some(moment));
        }
        let instance = self.instances.entry((collective.communicator, number)).or_default();
        let rule = (collective.rule, collective.is_barrier);
        instance.is_inconsistent |= *instance.rule.get_or_insert(rule) != rule;
        instance.entered += 1;
        let old = match collective.rule {
            CollectiveRule::Scan => {
                instance.ranks.push((collective.rank, moment));
                None
            }
            CollectiveRule::FromRoot if collective.is_root => instance.root.replace(moment),
            CollectiveRule::FromRoot => Some(moment),
            _ => instance.last.replace(moment),
        };
        (Membership { collective, number }, old)
    }

    /// Returns the entry that a leaving member has waited for.
    pub fn wait_target(&self, membership: Membership) -> WaitTarget {
        let Collective { communicator, rule, is_root, rank, size, .. } = membership.collective;
        if rule == CollectiveRule::Absent {
            return WaitTarget::Nothing;
        }
        let early =
            if membership.collective.is_binding { WaitTarget::Unexplained(Diagnostic::LeftBeforeEntered) } else { WaitTarget::Nothing };
        let Some(instance) = self.instances.get(&(communicator, membership.number)) else { return early };
        if instance.is_inconsistent {
            return WaitTarget::Unexplained(Diagnostic::DifferentCollectives);
        }
        let found = match rule {
            CollectiveRule::All if instance.entered < size => None,
            CollectiveRule::ToRoot if is_root && instance.entered < size => None,
            CollectiveRule::All => instance.last,
            CollectiveRule::ToRoot if is_root => instance.last,
            CollectiveRule::FromRoot if !is_root => instance.root,
            CollectiveRule::Scan => {
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

    /// Records that a member leaves. Returns the moments that the caller must release.
    pub fn leave(&mut self, membership: Membership) -> Vec<Moment> {
        if membership.collective.rule == CollectiveRule::Absent {
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
