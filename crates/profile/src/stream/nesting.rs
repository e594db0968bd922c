//! Reconstructs a thread's call stack from the events in its stream.
//!
//! - *Enter* pushes a frame. Its caller is the frame on top of the stack, at the last call that this frame reached.
//! - *Path* belongs to the frame on top of the stack. If it is a path of a different function, frames disappeared without an event, because
//!   the program switched stacks, or began without one. Both kinds of frames are counted ([`UnclearFrameCounts`]). Neither occurs in a
//!   complete stream of a program that does not switch stacks.
//! - *Unwound* pops the frames that an exception or `longjmp` left.

use super::counters::{CounterLookup, FunctionIndex, PathRole};
use super::symbol::StreamSymbol;

/// An activation of a function: a frame of the thread's call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamActivation {
    /// Its function.
    pub function: FunctionIndex,
    /// Counter of the path on which the caller reached the call; `None` if unknown, or if uninstrumented code called the function.
    pub call: Option<u32>,
    /// Counter of the frame's current path up to its last call; `None` if the frame has made no call on this path.
    pub at: Option<u32>,
}

/// Effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestingStep {
    /// A function began.
    Entered(StreamActivation),
    /// A live frame completed a path, or reached a call on a path.
    Path {
        /// The path's counter.
        counter: u32,
        /// What the path says about the frame.
        role: PathRole,
        /// Depth of the frame in the call stack. The outermost frame has depth 1.
        depth: usize,
    },
    /// Frames were unwound, as many as the number says.
    Unwound(usize),
    /// The event belongs to a unit that has no map.
    Unknown,
}

/// Numbers of frames whose beginning or end is not in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnclearFrameCounts {
    /// Number of frames that disappeared without an event.
    pub vanished: u64,
    /// Number of frames that began without an event.
    pub unseen: u64,
}

/// The call stack of a thread, updated with each event of its stream.
#[derive(Debug)]
pub struct CallNesting<'p, 'a> {
    lookup: &'p CounterLookup<'a>,
    frames: Vec<StreamActivation>,
    unclear: UnclearFrameCounts,
}

impl<'p, 'a> CallNesting<'p, 'a> {
    /// Returns an empty call stack, for the beginning of a stream.
    pub fn new(lookup: &'p CounterLookup<'a>) -> CallNesting<'p, 'a> {
        CallNesting { lookup, frames: Vec::new(), unclear: UnclearFrameCounts::default() }
    }

    /// Returns a call stack for the middle of a stream. For each live frame, outermost first, `live` contains any counter of the frame's
    /// function. The paths of the callers are unknown.
    pub fn with_live_frames(lookup: &'p CounterLookup<'a>, live: impl IntoIterator<Item = u32>) -> CallNesting<'p, 'a> {
        let functions = live.into_iter().filter_map(|counter| lookup.path(counter));
        let frames = functions.map(|(function, _)| StreamActivation { function, call: None, at: None }).collect();
        CallNesting { lookup, frames, unclear: UnclearFrameCounts::default() }
    }

    /// Returns the live frames, outermost first.
    pub fn frames(&self) -> &[StreamActivation] {
        &self.frames
    }

    /// Returns the numbers of frames whose beginning or end is not in the part of the stream processed so far.
    pub fn unclear_frame_counts(&self) -> UnclearFrameCounts {
        self.unclear
    }

    /// Updates the call stack with the next symbol of the stream, and returns what happened.
    pub fn feed_symbol(&mut self, symbol: StreamSymbol) -> NestingStep {
        match symbol {
            StreamSymbol::Enter(counter) | StreamSymbol::Inherited(counter) => {
                let Some((function, _)) = self.lookup.path(counter) else { return NestingStep::Unknown };
                let inherited = matches!(symbol, StreamSymbol::Inherited(_));
                let call = self.frames.last().and_then(|f| f.at);
                let is_call = |c: &u32| self.lookup.path_role(*c) == Some(PathRole::Call);
                let frame = StreamActivation { function, call, at: inherited.then_some(counter).filter(is_call) };
                self.frames.push(frame);
                NestingStep::Entered(frame)
            }
            StreamSymbol::Path(counter) | StreamSymbol::Exit(counter) => self.feed_path(counter),
            StreamSymbol::Unwound(frames) => {
                let gone = self.frames.len().min(frames as usize);
                self.frames.truncate(self.frames.len() - gone);
                NestingStep::Unwound(gone)
            }
        }
    }

    fn feed_path(&mut self, counter: u32) -> NestingStep {
        let (Some((function, _)), Some(role)) = (self.lookup.path(counter), self.lookup.path_role(counter)) else {
            return NestingStep::Unknown;
        };
        if self.frames.last().is_none_or(|f| f.function != function) {
            match self.frames.iter().rposition(|f| f.function == function) {
                Some(nearest) => {
                    self.unclear.vanished += (self.frames.len() - nearest - 1) as u64;
                    self.frames.truncate(nearest + 1);
                }
                None => {
                    self.unclear.unseen += 1;
                    self.frames.push(StreamActivation { function, call: None, at: None });
                }
            }
        }
        let depth = self.frames.len();
        let top = &mut self.frames[depth - 1];
        top.at = matches!(role, PathRole::Call | PathRole::DoesNotReturn).then_some(counter);
        if role == PathRole::Leaves {
            self.frames.pop();
        }
        NestingStep::Path { counter, role, depth }
    }
}
