//! The call stack of a replay.

use crate::steps::ReplayFrame;
use std::ops::{Deref, DerefMut};
use trodden_trace::TraceBlock;

/// The frames of a thread, outermost first. Memory is allocated ahead, so that a fast loop can add frames without allocating.
#[derive(Default)]
pub struct FrameStack {
    /// The frames, followed by unused elements.
    slots: Vec<ReplayFrame>,
    depth: usize,
}

impl FrameStack {
    pub fn push(&mut self, frame: ReplayFrame) {
        // Unused elements are kept: allocating them again would take as long as the stack is deep.
        match self.slots.get_mut(self.depth) {
            Some(slot) => *slot = frame,
            None => self.slots.push(frame),
        }
        self.depth += 1;
    }

    /// Removes the innermost frame, if any.
    pub fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    pub fn truncate(&mut self, depth: usize) {
        self.depth = self.depth.min(depth);
    }

    /// Returns the frames followed by some unused elements.
    pub fn slots_with_room(&mut self) -> &mut [ReplayFrame] {
        const MIN_FREE_SLOTS: usize = 64;
        if self.slots.len() < self.depth + MIN_FREE_SLOTS {
            let unused = ReplayFrame { block: TraceBlock(u32::MAX), calls: 0 };
            self.slots.resize(2 * self.depth + 2 * MIN_FREE_SLOTS, unused);
        }
        &mut self.slots
    }

    /// Sets the number of frames after elements of [`Self::slots_with_room`] have been changed.
    ///
    /// # Panics
    /// There are fewer elements.
    pub fn set_depth(&mut self, depth: usize) {
        assert!(depth <= self.slots.len(), "the frames are within the slots");
        self.depth = depth;
    }
}

impl Deref for FrameStack {
    type Target = [ReplayFrame];

    fn deref(&self) -> &[ReplayFrame] {
        &self.slots[..self.depth]
    }
}

impl DerefMut for FrameStack {
    fn deref_mut(&mut self) -> &mut [ReplayFrame] {
        &mut self.slots[..self.depth]
    }
}
