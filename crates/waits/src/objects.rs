//! Finds the location that ended the wait of a thread for a lock, a wake-up, a barrier, or the creation or end of a thread.

use crate::call::{ObjectId, ThreadToken};
use crate::hash::Map;
use crate::step::{LocationId, ProcessId};
use crate::wait::PathMoment;
use std::collections::VecDeque;

/// An object, and the process in which its number is valid.
pub type ObjectKey = (ProcessId, ObjectId);

/// Returns the key of an object. For objects that several processes share, the process is a placeholder.
pub fn object_key(process: ProcessId, object: ObjectId) -> ObjectKey {
    (if object.is_shared() { ProcessId(u32::MAX) } else { process }, object)
}

/// Maximum number of wake-ups that are stored per object, until the threads that were woken return from their calls.
const MAX_STORED_WAKE_UPS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct WakeUp {
    moment: PathMoment,
    /// Number of threads that this call may have woken and that have not been found yet.
    left: u64,
}

#[derive(Clone, Debug, Default)]
struct Barrier {
    /// Number of the current round. A round ends when all threads have entered the barrier.
    number: u64,
    entered: u32,
}

#[derive(Clone, Debug, Default)]
struct BarrierRound {
    last: Option<PathMoment>,
    entered: u32,
    left: u32,
    is_complete: bool,
}

/// A barrier that a thread has entered, and the number of the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BarrierEntry(ObjectKey, u64);

/// The state of all synchronisation objects. If a function returns a [`PathMoment`], the caller must release it, unless the function's
/// documentation says otherwise.
#[derive(Clone, Debug, Default)]
pub struct SynchronisationObjects {
    /// For each lock, the last releases by two different locations, the later one first.
    unlocks: Map<ObjectKey, [Option<PathMoment>; 2]>,
    wakes: Map<ObjectKey, VecDeque<WakeUp>>,
    barriers: Map<ObjectKey, Barrier>,
    rounds: Map<(ObjectKey, u64), BarrierRound>,
    /// For threads that have been created but have not started yet, the moments of creation.
    pub created: Map<ThreadToken, PathMoment>,
    /// For threads that have ended but have not been joined yet, the moments at which they ended.
    pub ended: Map<ThreadToken, PathMoment>,
}

impl SynchronisationObjects {
    pub fn unlock(&mut self, object: ObjectKey, moment: PathMoment) -> Option<PathMoment> {
        let newest = self.unlocks.entry(object).or_default();
        if newest[0].is_some_and(|first| first.location == moment.location) {
            return newest[0].replace(moment);
        }
        let old = newest[1].take();
        newest[1] = newest[0].replace(moment);
        old
    }

    /// Returns the moment at which a location other than `own` last released a lock. The moment is still needed, so the caller must not
    /// release it.
    pub fn last_unlock_by_other(&self, object: ObjectKey, own: LocationId) -> Option<PathMoment> {
        let newest = self.unlocks.get(&object)?;
        newest.iter().flatten().find(|moment| moment.location != own).copied()
    }

    /// Records a call that wakes at most `count` threads that sleep on the object.
    pub fn wake(&mut self, object: ObjectKey, count: u64, moment: PathMoment) -> Option<PathMoment> {
        let wakes = self.wakes.entry(object).or_default();
        wakes.push_back(WakeUp { moment, left: count.max(1) });
        if wakes.len() > MAX_STORED_WAKE_UPS { wakes.pop_front().map(|wake| wake.moment) } else { None }
    }

    /// Returns the last wake-up since `enter_ns` that may have woken the location `own`, and counts this location as woken by it. The
    /// caller must not release the moment.
    pub fn take_wake_up_of(&mut self, object: ObjectKey, own: LocationId, enter_ns: u64) -> Option<PathMoment> {
        let wakes = self.wakes.get_mut(&object)?;
        let since = wakes.iter_mut().rev().take_while(|wake| wake.moment.time_ns >= enter_ns);
        let found = { since }.find(|wake| wake.left > 0 && wake.moment.location != own)?;
        found.left -= 1;
        Some(found.moment)
    }

    /// Records that a thread enters a barrier for `count` threads. Returns the entry, and a moment that the caller must release.
    pub fn enter_barrier(&mut self, object: ObjectKey, count: u32, moment: PathMoment) -> (BarrierEntry, Option<PathMoment>) {
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

    /// Returns the last entry into a round of a barrier, which ended the waits of the other threads. Returns `None` if some thread has not
    /// entered yet. The caller must not release the moment.
    pub fn last_entry(&self, place: BarrierEntry) -> Option<PathMoment> {
        self.rounds.get(&(place.0, place.1)).filter(|round| round.is_complete)?.last
    }

    pub fn leave_barrier(&mut self, place: BarrierEntry) -> Option<PathMoment> {
        let round = self.rounds.get_mut(&(place.0, place.1))?;
        round.left += 1;
        if !round.is_complete || round.left < round.entered {
            return None;
        }
        self.rounds.remove(&(place.0, place.1))?.last
    }
}
