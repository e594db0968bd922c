//! Events to frames: who called whom from where, what returned, what was unwound.
//!
//! The rules, for a thread's events in order:
//!
//! - *enter*: a frame of the function, called by the top frame where that came to a call last;
//! - *path*: of the top frame. If that is of another function, frames are gone that could not say so (their stack was
//!   switched, or the stream began later): those above the nearest frame of the function, or the function's frame was not seen to begin.
//!   Both are counted ([`Unclear`]), and neither happens in a program of one stack whose stream is whole;
//! - *unwound*: so many frames are gone by an exception or `longjmp`.
//!
//! Complexity: constant for each event, but for frames that are unwound.

use super::places::{FunctionPlace, PathRole, Places};
use super::symbol::Symbol;

/// An activation of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamActivation {
    /// Its function.
    pub function: FunctionPlace,
    /// The caller's counter at the call: its path up to there. `None`: unknown, or no instrumented function called it.
    pub call: Option<u32>,
    /// The counter of its own path up to its last call, if it made one since its path began.
    pub at: Option<u32>,
}

/// What an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestingStep {
    /// A function began.
    Entered(StreamActivation),
    /// A path of the frame at this depth (from 1): its counter, and its role.
    Path {
        /// The counter.
        counter: u32,
        /// What it says.
        role: PathRole,
        /// Depth of the frame.
        depth: usize,
    },
    /// So many frames were unwound.
    Unwound(usize),
    /// The unit has no map.
    Unknown,
}

/// What is not known from the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unclear {
    /// Frames that went without a word.
    pub vanished: u64,
    /// Frames that were not seen to begin.
    pub unseen: u64,
}

/// The frames of a thread.
#[derive(Debug)]
pub struct Nesting<'p, 'a> {
    places: &'p Places<'a>,
    frames: Vec<StreamActivation>,
    unclear: Unclear,
}

impl<'p, 'a> Nesting<'p, 'a> {
    /// No frames yet.
    pub fn new(places: &'p Places<'a>) -> Nesting<'p, 'a> {
        Nesting { places, frames: Vec::new(), unclear: Unclear::default() }
    }

    /// In the midst of a stream, where frames are live, outermost first: each by a counter of its function. Their calls are not known.
    pub fn within(places: &'p Places<'a>, live: impl IntoIterator<Item = u32>) -> Nesting<'p, 'a> {
        let functions = live.into_iter().filter_map(|counter| places.path(counter));
        let frames = functions.map(|(function, _)| StreamActivation { function, call: None, at: None }).collect();
        Nesting { places, frames, unclear: Unclear::default() }
    }

    /// The live frames, outermost first.
    pub fn frames(&self) -> &[StreamActivation] {
        &self.frames
    }

    /// What is not known so far.
    pub fn unclear(&self) -> Unclear {
        self.unclear
    }

    /// Takes the next symbol.
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
        top.at = matches!(role, PathRole::Call | PathRole::Stops).then_some(counter);
        if role == PathRole::Leaves {
            self.frames.pop();
        }
        NestingStep::Path { counter, role, depth }
    }
}
