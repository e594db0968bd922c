//! Values of a unit's counters: executions, and in some builds also events and times of first executions.
//!
//! All lists contain only counters that are not zero, sorted by counter. Events and times have lists of their own because few builds record
//! them; a profile without them needs only 16 bytes per path.

use crate::events::{self, PathEvents};
use crate::sum;
use std::ops::Range;

/// Values of a unit's counters, each of which counts one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Numbers of executions by the counter's index within the unit, ascending. Zeros are left out.
    pub executions: Vec<(u64, u64)>,
    /// Events by counter, ascending; empty if the unit counts no events ([`trodden_unit::UnitMap::events`]).
    pub events: Vec<(u64, PathEvents)>,
    /// Time of the first execution in nanoseconds since 1970, by counter, ascending; empty if the unit does not record times
    /// ([`trodden_unit::UnitMap::has_times`]).
    pub first_seen: Vec<(u64, u64)>,
}

impl Counts {
    /// Creates counts from pairs of counter and executions, which must be sorted by counter.
    pub fn from_executions(executions: Vec<(u64, u64)>) -> Counts {
        Counts { executions, ..Counts::default() }
    }

    /// Returns true if no path of the unit was executed.
    pub fn is_empty(&self) -> bool {
        self.executions.is_empty()
    }

    /// Returns how often a counter's path was executed.
    pub fn executions_of_counter(&self, counter: u64) -> u64 {
        find_value(&self.executions, counter).unwrap_or(0)
    }

    /// Returns the events that were counted on a counter's path.
    pub fn events_of(&self, counter: u64) -> PathEvents {
        find_value(&self.events, counter).unwrap_or_default()
    }

    /// Returns when a counter's path was first executed, in nanoseconds since 1970, if known.
    pub fn first_seen_ns_of_counter(&self, counter: u64) -> Option<u64> {
        find_value(&self.first_seen, counter)
    }

    /// Returns the counters in a range that are not zero, with their executions, in ascending order.
    pub fn counters_in_range(&self, counters: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let from = self.executions.partition_point(|c| c.0 < counters.start);
        self.executions[from..].iter().copied().take_while(move |c| c.0 < counters.end)
    }

    /// Adds the executions and events of other runs of the same unit. For times of first executions, keeps the earlier one.
    pub fn merge(&mut self, more: &Counts) {
        if !more.executions.is_empty() {
            self.executions = sum::merge(&self.executions, &more.executions, u64::saturating_add);
        }
        if !more.events.is_empty() {
            self.events = events::merge(&self.events, &more.events);
        }
        if !more.first_seen.is_empty() {
            self.first_seen = sum::merge(&self.first_seen, &more.first_seen, u64::min);
        }
    }

    /// Drops all counters for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.executions.retain(|c| keep(c.0));
        self.events.retain(|c| keep(c.0));
        self.first_seen.retain(|c| keep(c.0));
    }
}

fn find_value<T: Copy>(list: &[(u64, T)], counter: u64) -> Option<T> {
    list.binary_search_by_key(&counter, |entry| entry.0).ok().map(|index| list[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_executions_and_events_and_keeps_the_earlier_time() {
        let events = |sum| PathEvents { sum, squares: 1 };
        let mut one = Counts { executions: vec![(1, 2), (5, 1)], events: vec![(1, events(7))], first_seen: vec![(1, 90)] };
        let other = Counts { executions: vec![(1, 3), (9, 4)], events: vec![(1, events(-2))], first_seen: vec![(1, 80), (9, 1)] };
        one.merge(&other);
        assert_eq!(
            (one.executions_of_counter(1), one.executions_of_counter(5), one.executions_of_counter(9), one.executions_of_counter(2)),
            (5, 1, 4, 0)
        );
        assert_eq!((one.events_of(1), one.events_of(5)), (PathEvents { sum: 5, squares: 2 }, PathEvents::default()));
        assert_eq!((one.first_seen_ns_of_counter(1), one.first_seen_ns_of_counter(5)), (Some(80), None));
        assert_eq!(one.counters_in_range(2..9).collect::<Vec<_>>(), [(5, 1)]);
        one.retain(|counter| counter != 1);
        assert_eq!(one, Counts { executions: vec![(5, 1), (9, 4)], events: Vec::new(), first_seen: vec![(9, 1)] });
    }
}
