//! Locations, code blocks and steps.
//!
//! A step is a code block that a location executes in some state (Carnival: process, code block, state). The caller decides what a code
//! block represents: a call stack, a region of a trace, or a Ball-Larus path.

use crate::hash::Map;

/// A process: an MPI rank, or an address space to which locks belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// A location: a thread of a process, which has one sequence of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

/// A code block, numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeId(pub u32);

/// What a location does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocationState {
    /// Executing code between calls.
    Computing,
    /// Ready to execute code between calls, but without a processor.
    Ready,
    /// Transferring data or completing a call, without waiting for another location.
    Communicating,
    /// Sleeping, or waiting for something outside the trace.
    Blocked,
    /// Waiting for a location that the trace does not identify.
    Unexplained,
    /// Created, but not started yet.
    Starting,
}

impl LocationState {
    /// Returns the state as an adjective, for reports.
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
    /// The location that executes the step.
    pub location: LocationId,
    /// The code that the location executes.
    pub code: CodeId,
    /// What the location does meanwhile.
    pub state: LocationState,
}

/// The number of a step in [`Steps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub u32);

/// All steps by number.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    steps: Vec<Step>,
    ids: Map<Step, StepId>,
}

impl Steps {
    /// Returns the number of a step. Assigns the next number to a new step.
    pub fn intern(&mut self, step: Step) -> StepId {
        *self.ids.entry(step).or_insert_with(|| {
            self.steps.push(step);
            StepId(self.steps.len() as u32 - 1)
        })
    }

    /// Returns the step with the given number. Panics if a different `Steps` assigned the number.
    pub fn get(&self, id: StepId) -> Step {
        self.steps[id.0 as usize]
    }
}
