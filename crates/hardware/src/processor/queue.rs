//! The branch queue between commit and profiler (section 5.5.3). The profiler serves branches in order, and each branch leaves the queue
//! when it has been served. A full queue stalls the commit of the next branch.

use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub(super) struct BranchQueue {
    capacity: usize,
    /// For each queued branch, the cycle in which it will have been served.
    served: VecDeque<u64>,
    last: u64,
}

impl BranchQueue {
    /// Creates a queue. A queue with capacity 0 never stalls.
    pub fn new(capacity: usize) -> BranchQueue {
        BranchQueue { capacity, served: VecDeque::new(), last: 0 }
    }

    /// Returns the first cycle, from `now` on, in which the queue has room.
    pub fn first_cycle_with_room(&mut self, now: u64) -> u64 {
        while self.served.front().is_some_and(|s| *s <= now) {
            self.served.pop_front();
        }
        if self.capacity == 0 || self.served.len() < self.capacity { now } else { self.served[self.served.len() - self.capacity] }
    }

    /// Enqueues a branch for which the profiler needs the given number of cycles.
    pub fn enqueue(&mut self, now: u64, cycles: u32) {
        if self.capacity > 0 {
            self.last = self.last.max(now) + u64::from(cycles);
            self.served.push_back(self.last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_stalls_branches() {
        let mut queue = BranchQueue::new(2);
        queue.enqueue(10, 3);
        queue.enqueue(10, 3);
        assert_eq!((queue.first_cycle_with_room(10), queue.first_cycle_with_room(13)), (13, 13));
        queue.enqueue(13, 3);
        assert_eq!(queue.first_cycle_with_room(14), 16);
        assert_eq!(queue.first_cycle_with_room(30), 30);
        let mut none = BranchQueue::new(0);
        none.enqueue(0, 100);
        assert_eq!(none.first_cycle_with_room(1), 1);
    }
}
