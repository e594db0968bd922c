//! Locks, wakers, barriers and ends of threads: who lets a thread go on.

use crate::call::{ObjectId, Token};
use crate::hash::Map;
use crate::step::{LocationId, ProcessId};
use crate::wait::Moment;
use std::collections::VecDeque;

/// An object of a process.
pub type Object = (ProcessId, ObjectId);

/// Whose an object is: of a process, or of all.
pub fn held_by(process: ProcessId, object: ObjectId) -> Object {
    (if object.is_shared() { ProcessId(u32::MAX) } else { process }, object)
}

/// Wakes of an object that are kept for sleepers that have not yet left.
const WAKES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Wake {
    moment: Moment,
    left: u64,
}

#[derive(Clone, Debug, Default)]
struct Barrier {
    number: u64,
    entered: u32,
}

#[derive(Clone, Debug, Default)]
struct Passed {
    last: Option<Moment>,
    entered: u32,
    left: u32,
    is_complete: bool,
}

/// A thread's place in a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BarrierPlace(Object, u64);

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// The newest releases of a lock by two different locations.
    unlocks: Map<Object, [Option<Moment>; 2]>,
    wakes: Map<Object, VecDeque<Wake>>,
    barriers: Map<Object, Barrier>,
    passed: Map<(Object, u64), Passed>,
    pub created: Map<Token, Moment>,
    pub ended: Map<Token, Moment>,
}

impl Objects {
    /// A lock is released. Gives a moment that is no longer needed.
    pub fn unlock(&mut self, object: Object, moment: Moment) -> Option<Moment> {
        let newest = self.unlocks.entry(object).or_default();
        if newest[0].is_some_and(|first| first.location == moment.location) {
            return newest[0].replace(moment);
        }
        let old = newest[1].take();
        newest[1] = newest[0].replace(moment);
        old
    }

    /// The newest release of a lock by another location.
    pub fn unlocked(&self, object: Object, own: LocationId) -> Option<Moment> {
        let newest = self.unlocks.get(&object)?;
        newest.iter().flatten().find(|moment| moment.location != own).copied()
    }

    /// Sleepers are woken. Gives a moment that is no longer needed.
    pub fn wake(&mut self, object: Object, count: u64, moment: Moment) -> Option<Moment> {
        let wakes = self.wakes.entry(object).or_default();
        wakes.push_back(Wake { moment, left: count.max(1) });
        if wakes.len() > WAKES { wakes.pop_front().map(|wake| wake.moment) } else { None }
    }

    /// The newest wake since a sleeper entered that has not woken as many as it could. It has woken this one, too.
    pub fn woken(&mut self, object: Object, own: LocationId, enter_ns: u64) -> Option<Moment> {
        let wakes = self.wakes.get_mut(&object)?;
        let since = wakes.iter_mut().rev().take_while(|wake| wake.moment.time_ns >= enter_ns);
        let found = { since }.find(|wake| wake.left > 0 && wake.moment.location != own)?;
        found.left -= 1;
        Some(found.moment)
    }

    /// A thread enters a barrier. Gives its place and a moment that is no longer needed.
    pub fn enter(&mut self, object: Object, count: u32, moment: Moment) -> (BarrierPlace, Option<Moment>) {
        let barrier = self.barriers.entry(object).or_default();
        let number = barrier.number;
        barrier.entered += 1;
        let passed = self.passed.entry((object, number)).or_default();
        passed.entered += 1;
        let old = passed.last.replace(moment);
        if barrier.entered >= count.max(1) {
            passed.is_complete = true;
            *barrier = Barrier { number: number + 1, entered: 0 };
        }
        (BarrierPlace(object, number), old)
    }

    /// The last to enter, if all have.
    pub fn last(&self, place: BarrierPlace) -> Option<Moment> {
        self.passed.get(&(place.0, place.1)).filter(|passed| passed.is_complete)?.last
    }

    /// A thread leaves a barrier. Gives a moment that is no longer needed.
    pub fn leave(&mut self, place: BarrierPlace) -> Option<Moment> {
        let passed = self.passed.get_mut(&(place.0, place.1))?;
        passed.left += 1;
        if !passed.is_complete || passed.left < passed.entered {
            return None;
        }
        self.passed.remove(&(place.0, place.1))?.last
    }
}
