//! Collective operations: whose entry a member waits for.
//!
//! The n-th operation of each member on a communicator is one instance. Entries come in order of time, so the last one that matters
//! is kept:
//! of all members, of the root, or of those of lower rank.

use crate::call::{Collective, CommunicatorId, Rule};
use crate::diagnostic::Diagnostic;
use crate::hash::Map;
use crate::step::ProcessId;
use crate::wait::Moment;

/// A member's place in an instance.
#[derive(Clone, Copy, Debug)]
pub struct Membership {
    /// The operation.
    pub collective: Collective,
    number: u64,
}

#[derive(Clone, Debug, Default)]
struct Instance {
    entered: u32,
    left: u32,
    rule: Option<(Rule, bool)>,
    is_contradictory: bool,
    last: Option<Moment>,
    root: Option<Moment>,
    /// Of a scan: entries by rank.
    ranks: Vec<(u32, Moment)>,
}

/// Whom a member waited for.
#[derive(Clone, Copy, Debug)]
pub enum Waited {
    /// For this entry; it may be the member's own.
    For(Moment),
    /// It has not waited.
    NotAtAll,
    /// Not all had entered, and it cannot leave before; or members called different operations.
    Unexplained(Diagnostic),
}

/// All instances that have members inside.
#[derive(Clone, Debug, Default)]
pub struct Collectives {
    instances: Map<(CommunicatorId, u64), Instance>,
    counts: Map<(CommunicatorId, ProcessId), u64>,
}

impl Collectives {
    /// A member enters. Gives its place and a moment that is no longer needed.
    pub fn enter(&mut self, process: ProcessId, collective: Collective, moment: Moment) -> (Membership, Option<Moment>) {
        let count = self.counts.entry((collective.communicator, process)).or_default();
        let number = *count;
        *count += 1;
        if collective.rule == Rule::Absent {
            return (Membership { collective, number }, Some(moment));
        }
        let instance = self.instances.entry((collective.communicator, number)).or_default();
        let rule = (collective.rule, collective.is_barrier);
        instance.is_contradictory |= *instance.rule.get_or_insert(rule) != rule;
        instance.entered += 1;
        let old = match collective.rule {
            Rule::Scan => {
                instance.ranks.push((collective.rank, moment));
                None
            }
            Rule::FromRoot if collective.is_root => instance.root.replace(moment),
            Rule::FromRoot => Some(moment),
            _ => instance.last.replace(moment),
        };
        (Membership { collective, number }, old)
    }

    /// Whom a member that leaves has waited for.
    pub fn waited(&self, membership: Membership) -> Waited {
        let Collective { communicator, rule, is_root, rank, size, .. } = membership.collective;
        if rule == Rule::Absent {
            return Waited::NotAtAll;
        }
        let early = if membership.collective.is_binding { Waited::Unexplained(Diagnostic::LeftBeforeEntered) } else { Waited::NotAtAll };
        let Some(instance) = self.instances.get(&(communicator, membership.number)) else { return early };
        if instance.is_contradictory {
            return Waited::Unexplained(Diagnostic::DifferentCollectives);
        }
        let found = match rule {
            Rule::All if instance.entered < size => None,
            Rule::ToRoot if is_root && instance.entered < size => None,
            Rule::All => instance.last,
            Rule::ToRoot if is_root => instance.last,
            Rule::FromRoot if !is_root => instance.root,
            Rule::Scan => {
                let lower = instance.ranks.iter().filter(|(other, _)| *other < rank);
                if lower.clone().count() < rank as usize {
                    return early;
                }
                return lower.map(|(_, moment)| *moment).max_by_key(|moment| moment.time_ns).map_or(Waited::NotAtAll, Waited::For);
            }
            _ => return Waited::NotAtAll,
        };
        found.map_or(early, Waited::For)
    }

    /// A member leaves. Gives the moments that are no longer needed.
    pub fn leave(&mut self, membership: Membership) -> Vec<Moment> {
        if membership.collective.rule == Rule::Absent {
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
