//! Finds the location that released a blocked thread, from locks, wake-ups, barriers, and the creation and end of threads.

use crate::call::{ObjectId, ThreadToken};
use crate::hash::Map;
use crate::step::{LocationId, ProcessId};
use crate::wait::Moment;
use std::collections::VecDeque;

/// An object, and the process to which it belongs.
pub type ObjectKey = (ProcessId, ObjectId);

/// Returns the key of an object. Objects that all processes share have a common placeholder as their process.
pub fn object_key(process: ProcessId, object: ObjectId) -> ObjectKey {
    (if object.is_shared() { ProcessId(u32::MAX) } else { process }, object)
}

/// Maximum number of wake-ups stored per object, for sleepers that have not returned yet.
const MAX_WAKES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Wake {
    moment: Moment,
    /// Number of further sleepers that this call may have woken.
    left: u64,
}

#[derive(Clone, Debug, Default)]
struct Barrier {
    /// Number of the current round.
    number: u64,
    entered: u32,
}

#[derive(Clone, Debug, Default)]
struct BarrierRound {
    last: Option<Moment>,
    entered: u32,
    left: u32,
    is_complete: bool,
}

/// The barrier that a thread has entered, and the number of the barrier's round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BarrierEntry(ObjectKey, u64);

/// All synchronisation objects. Unless documented otherwise, a returned [`Moment`] is no longer needed, and the caller must release it.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// For each lock, the most recent releases by two different locations, the later one first.
    unlocks: Map<ObjectKey, [Option<Moment>; 2]>,
    wakes: Map<ObjectKey, VecDeque<Wake>>,
    barriers: Map<ObjectKey, Barrier>,
    rounds: Map<(ObjectKey, u64), BarrierRound>,
    /// Moments at which threads were created that have not started yet.
    pub created: Map<ThreadToken, Moment>,
    /// Moments at which threads ended that have not been joined yet.
    pub ended: Map<ThreadToken, Moment>,
}

impl Objects {
    pub fn unlock(&mut self, object: ObjectKey, moment: Moment) -> Option<Moment> {
        let newest = self.unlocks.entry(object).or_default();
        if newest[0].is_some_and(|first| first.location == moment.location) {
            return newest[0].replace(moment);
        }
        let old = newest[1].take();
        newest[1] = newest[0].replace(moment);
        old
    }

    /// Returns the most recent release of a lock by a location other than `own`, which the caller must not release.
    pub fn last_unlock(&self, object: ObjectKey, own: LocationId) -> Option<Moment> {
        let newest = self.unlocks.get(&object)?;
        newest.iter().flatten().find(|moment| moment.location != own).copied()
    }

    /// Records a call that wakes up to `count` sleepers.
    pub fn wake(&mut self, object: ObjectKey, count: u64, moment: Moment) -> Option<Moment> {
        let wakes = self.wakes.entry(object).or_default();
        wakes.push_back(Wake { moment, left: count.max(1) });
        if wakes.len() > MAX_WAKES { wakes.pop_front().map(|wake| wake.moment) } else { None }
    }

    /// Returns the most recent wake-up since `enter_ns` that may have woken this sleeper, and counts the sleeper as woken by that call.
    /// The caller must not release the moment.
    pub fn take_wake(&mut self, object: ObjectKey, own: LocationId, enter_ns: u64) -> Option<Moment> {
        let wakes = self.wakes.get_mut(&object)?;
        let since = wakes.iter_mut().rev().take_while(|wake| wake.moment.time_ns >= enter_ns);
        let found = { since }.find(|wake| wake.left > 0 && wake.moment.location != own)?;
        found.left -= 1;
        Some(found.moment)
    }

    /// Records a thread's entry into a barrier of `count` threads.
    pub fn enter(&mut self, object: ObjectKey, count: u32, moment: Moment) -> (BarrierEntry, Option<Moment>) {
        let barrier = self.barriers.entry(object).or_default();
        let number = barrier.number;
        barrier.entered += 1;
        let round = self.rounds.entry((object, number)).or_default();
        round.entered += 1;
        let old = round.last.replace(moment);
        if barrier.entered >= count.max(1) {
            round.is_complete = true;
            *barrier = Barrier { number: number + 1, entered: 0 };
        }
        (BarrierEntry(object, number), old)
    }

    /// Returns the last entry into a round, which released the other threads. Returns `None` if not all threads have entered. The caller
    /// must not release the moment.
    pub fn last_entry(&self, place: BarrierEntry) -> Option<Moment> {
        self.rounds.get(&(place.0, place.1)).filter(|round| round.is_complete)?.last
    }

    pub fn leave(&mut self, place: BarrierEntry) -> Option<Moment> {
        let round = self.rounds.get_mut(&(place.0, place.1))?;
        round.left += 1;
        if !round.is_complete || round.left < round.entered {
            return None;
        }
        self.rounds.remove(&(place.0, place.1))?.last
    }
}
