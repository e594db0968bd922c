//! Locations, code blocks, and steps, of which execution paths consist.
//!
//! A step is a code block that a location executes in a certain state (in Carnival: process, code block, state). The caller decides what a
//! code block is, such as a call stack, a region in a trace, or a Ball-Larus path.

use crate::hash::Map;

/// A process: the owner of an MPI rank, and the address space to which locks belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// A thread of a process, which has its own sequence of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationId(pub u32);

/// A code block. The caller assigns the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeId(pub u32);

/// What a location does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocationState {
    /// Executing code between calls.
    Computing,
    /// Ready to execute code between calls, but waiting for a processor.
    Ready,
    /// Inside a call, but not waiting for another location: transferring data, or completing the call.
    Communicating,
    /// Sleeping, or waiting for something that is not in the trace.
    Blocked,
    /// Waiting for another location, which the trace does not identify.
    Unexplained,
    /// Created by another location but not started yet, or initialising MPI.
    Starting,
}

impl LocationState {
    /// Returns the name of the state, for reports.
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
    /// What the location does while it executes the code.
    pub state: LocationState,
}

/// Number of a step in a table of steps ([`Steps`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub u32);

/// All steps by number.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    steps: Vec<Step>,
    ids: Map<Step, StepId>,
}

impl Steps {
    /// Returns the number of a step. A new step gets the next number.
    pub fn intern(&mut self, step: Step) -> StepId {
        *self.ids.entry(step).or_insert_with(|| {
            self.steps.push(step);
            StepId(self.steps.len() as u32 - 1)
        })
    }

    /// Returns the step with a number. Panics if this table has not assigned the number.
    pub fn get(&self, id: StepId) -> Step {
        self.steps[id.0 as usize]
    }
}
