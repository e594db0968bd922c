//! Locations, code blocks, steps.
//!
//! A step is a code block that a location executes in a state (Carnival: process, code block, state). What a code block is, the caller
//! knows: a stack of functions, a region of a trace, a Ball-Larus path.

use crate::hash::Map;

/// A process: what a rank is, and what the addresses of locks belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// A sequence of events: a thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

/// A code block, by the caller's numbering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeId(pub u32);

/// What a location does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocationState {
    /// It executes code between calls.
    Computing,
    /// It would execute code between calls, and has no processor.
    Ready,
    /// It is inside a call that moves data or completes, once no location has to be waited for any longer.
    Communicating,
    /// It sleeps, or waits for something that the trace does not have.
    Blocked,
    /// It waits, and the trace does not say for whom.
    Unexplained,
    /// It has not begun yet.
    Starting,
}

impl LocationState {
    /// As an adjective, for reports.
    pub fn name(self) -> &'static str {
        match self {
            LocationState::Computing => "computing",
            LocationState::Ready => "ready to run, without a processor",
            LocationState::Communicating => "communicating",
            LocationState::Blocked => "blocked",
            LocationState::Unexplained => "waiting, unexplained",
            LocationState::Starting => "starting",
        }
    }
}

/// A step of an execution path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    /// Who.
    pub location: LocationId,
    /// Which code.
    pub code: CodeId,
    /// How.
    pub state: LocationState,
}

/// A step by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub u32);

/// All steps, numbered.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    steps: Vec<Step>,
    ids: Map<Step, StepId>,
}

impl Steps {
    /// The number of a step.
    pub fn id(&mut self, step: Step) -> StepId {
        *self.ids.entry(step).or_insert_with(|| {
            self.steps.push(step);
            StepId(self.steps.len() as u32 - 1)
        })
    }

    /// The step of a number.
    pub fn get(&self, id: StepId) -> Step {
        self.steps[id.0 as usize]
    }
}
