//! Reconstructs a thread's stack of frames from its events: who called whom from where, what returned, what was unwound.
//!
//! - *Enter* pushes a frame, called by the top frame at the last call that it reached.
//! - *Path* belongs to the top frame. If it is of another function, frames disappeared unnoticed (their stack was switched) or were never
//!   seen to begin. Both are counted ([`Unclear`]); neither happens in a complete stream of a program that does not switch stacks.
//! - *Unwound* pops frames that an exception or `longjmp` left.

use super::places::{CounterLookup, FunctionIndex, PathRole};
use super::symbol::Symbol;

/// An activation of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamActivation {
    /// Its function.
    pub function: FunctionIndex,
    /// The caller's counter for its path up to the call. `None` if unknown, or if no instrumented function called it.
    pub call: Option<u32>,
    /// The counter of its own path up to its last call, if it has made a call since that path began.
    pub at: Option<u32>,
}

/// Effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestingStep {
    /// A function began.
    Entered(StreamActivation),
    /// A path of a live frame.
    Path {
        /// The counter.
        counter: u32,
        /// What the event says of the frame.
        role: PathRole,
        /// Depth of the frame; the outermost one has depth 1.
        depth: usize,
    },
    /// Number of frames that were unwound.
    Unwound(usize),
    /// The event's unit has no map.
    Unknown,
}

/// Number of frames whose beginning or end the events do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unclear {
    /// Frames that disappeared without an event.
    pub vanished: u64,
    /// Frames that were not seen to begin.
    pub unseen: u64,
}

/// The frames of a thread.
#[derive(Debug)]
pub struct Nesting<'p, 'a> {
    places: &'p CounterLookup<'a>,
    frames: Vec<StreamActivation>,
    unclear: Unclear,
}

impl<'p, 'a> Nesting<'p, 'a> {
    /// Starts without frames.
    pub fn new(places: &'p CounterLookup<'a>) -> Nesting<'p, 'a> {
        Nesting { places, frames: Vec::new(), unclear: Unclear::default() }
    }

    /// Starts in the middle of a stream with live frames, outermost first, each given by a counter of its function. Their calls are
    /// unknown.
    pub fn with_live_frames(places: &'p CounterLookup<'a>, live: impl IntoIterator<Item = u32>) -> Nesting<'p, 'a> {
        let functions = live.into_iter().filter_map(|counter| places.path(counter));
        let frames = functions.map(|(function, _)| StreamActivation { function, call: None, at: None }).collect();
        Nesting { places, frames, unclear: Unclear::default() }
    }

    /// The live frames, outermost first.
    pub fn frames(&self) -> &[StreamActivation] {
        &self.frames
    }

    /// Number of frames so far whose beginning or end is unknown.
    pub fn unclear(&self) -> Unclear {
        self.unclear
    }

    /// Processes the next symbol.
    pub fn feed(&mut self, symbol: Symbol) -> NestingStep {
        match symbol {
            Symbol::Enter(counter) | Symbol::Inherited(counter) => {
                let Some((function, _)) = self.places.path(counter) else { return NestingStep::Unknown };
                let inherited = matches!(symbol, Symbol::Inherited(_));
                let call = self.frames.last().and_then(|f| f.at);
                let is_call = |c: &u32| self.places.role(*c) == Some(PathRole::Call);
                let frame = StreamActivation { function, call, at: inherited.then_some(counter).filter(is_call) };
                self.frames.push(frame);
                NestingStep::Entered(frame)
            }
            Symbol::Path(counter) | Symbol::Exit(counter) => self.path(counter),
            Symbol::Unwound(frames) => {
                let gone = self.frames.len().min(frames as usize);
                self.frames.truncate(self.frames.len() - gone);
                NestingStep::Unwound(gone)
            }
        }
    }

    fn path(&mut self, counter: u32) -> NestingStep {
        let (Some((function, _)), Some(role)) = (self.places.path(counter), self.places.role(counter)) else { return NestingStep::Unknown };
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
