//! From partial traces to the execution: a walk over the program that reads each trace once.
//!
//! Source: D. Saha et al., "Distributed program tracing" (ESEC/FSE 2013), section 3.3, with the pairwise test at every branch. The walk
//! keeps the current state and a stack of calls. At a branch it keeps the successors in whose set W the next symbol of *every* trace lies
//! ([`first`](super::first)); where several are left, it asks the next symbol of the branch's own component
//! ([`Lookahead::OwnComponent`](super::Lookahead)). When a state with a witness is entered, each trace whose profile has it gives up one
//! symbol.
//!
//! Invariants: what was given out is certain. It is the execution if the traces are those of one execution of the program; otherwise the
//! first place where no execution agrees with the traces is reported. Memory: the stack, and one symbol per trace, plus what lies before
//! the next symbol of a component where the condition needs that. Time: per step a lookup for each trace and successor.

mod decision;

use super::Distribution;
use super::automaton::{AutomatonState, StateAction};
use super::condition::{self, BranchNode, BranchTarget};
use super::first::FirstSets;
use super::program::{Witness, WitnessFunctionId, WitnessProgram};
use super::pushdown::Pushdown;
use super::structure::{Scope, Structure};
use decision::DecisionTables;
use std::collections::VecDeque;
use trodden_flow::graph::Node;

/// How the traces end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceEnding {
    /// With the run: each trace has all its witnesses.
    Complete,
    /// Somewhere: the run was killed, or the traces were cut. What was executed behind the last symbol is not known.
    Cut,
}

/// A step of the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecutionEvent {
    /// A block is executed.
    Block(WitnessFunctionId, Node),
    /// A function is called.
    Call {
        /// The block with the call; `None` if code outside calls.
        caller: Option<(WitnessFunctionId, Node)>,
        /// The function.
        callee: WitnessFunctionId,
        /// Nothing is left to do in the caller: its frame is replaced.
        tail: bool,
    },
    /// A function returns.
    Return(WitnessFunctionId),
    /// A function is left by unwinding.
    Unwind(WitnessFunctionId),
}

/// How a reconstruction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconstructionOutcome {
    /// The execution is whole. The frames in which the run ended, outermost first; none if it returned from where it started.
    Complete(Vec<(WitnessFunctionId, Node)>),
    /// The traces were cut: what was given out is certain, what followed is not known. The frames at that place, outermost first.
    Cut(Vec<(WitnessFunctionId, Node)>),
}

/// Why no execution can be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReconstructError {
    /// There are not as many traces as profiles.
    #[error("there are {traces} partial traces for {profiles} profiles: give one for each")]
    Traces {
        /// Traces given.
        traces: usize,
        /// Profiles of the distribution.
        profiles: usize,
    },
    /// No successor of a branch agrees with all traces.
    #[error(
        "no successor of {branch:?} agrees with the traces after {blocks} blocks: \
         the graph lacks an edge, or the traces are of different executions"
    )]
    NoSuccessor {
        /// The branch.
        branch: BranchNode,
        /// Blocks executed before.
        blocks: u64,
        /// The next symbol of each trace; `None` at its end.
        next: Vec<Option<Witness>>,
    },
    /// A witness is executed that is not the next symbol of its trace.
    #[error(
        "trace {profile} has {found:?} at symbol {position}, where {expected:?} is executed: \
         the graph lacks an edge, or the traces are of different executions"
    )]
    Unexpected {
        /// The trace.
        profile: usize,
        /// Symbols of it read before.
        position: u64,
        /// Its next symbol; `None` at its end.
        found: Option<Witness>,
        /// The witness that is executed.
        expected: Witness,
        /// Blocks executed before.
        blocks: u64,
    },
    /// The run ends, but a trace goes on.
    #[error(
        "trace {profile} goes on with {found:?} at symbol {position}, where the run ends: \
         the graph lacks an edge, or the traces are of different executions"
    )]
    GoesOn {
        /// The trace.
        profile: usize,
        /// Symbols of it read before.
        position: u64,
        /// Its next symbol.
        found: Witness,
        /// Blocks executed before.
        blocks: u64,
    },
    /// Several successors of a branch agree with all traces.
    #[error("{branch:?} can go to {targets:?} after {blocks} blocks: the distribution is not realizable; check it, and add witnesses")]
    Ambiguous {
        /// The branch.
        branch: BranchNode,
        /// The successors that are left.
        targets: Vec<BranchTarget>,
        /// Blocks executed before.
        blocks: u64,
    },
    /// Control stays in a node, or goes around without end, though the traces go on.
    #[error("function {} stays in node {} after {blocks} blocks, but the traces go on: the graph lacks an edge", .function.0, .node.0)]
    Stays {
        /// The function.
        function: WitnessFunctionId,
        /// The node.
        node: Node,
        /// Blocks executed before.
        blocks: u64,
    },
}

/// What reconstructing needs of a program and a distribution, computed once.
pub struct Reconstruction {
    structure: Structure,
    members: Vec<Vec<bool>>,
    profiles_of: Vec<Vec<u32>>,
    component_of: Vec<u32>,
    whole: Scope,
    sets: Vec<FirstSets>,
}

impl Reconstruction {
    /// Computes the sets W of each profile.
    pub fn new(program: &WitnessProgram, distribution: &Distribution) -> Reconstruction {
        let structure = Structure::new(Pushdown::new(program, distribution.kind));
        let members = condition::members(program, distribution);
        let whole = structure.whole();
        let sets = members.iter().map(|m| FirstSets::new(&structure, &whole, m)).collect();
        let mut profiles_of = vec![Vec::new(); program.witness_count(distribution.kind)];
        for (profile, of) in (0..).zip(&distribution.profiles) {
            of.iter().for_each(|w| profiles_of[w.index()].push(profile));
        }
        let component = |w: u32| structure.component[program.function_of(distribution.kind, Witness(w)).index()];
        let component_of = (0..profiles_of.len() as u32).map(component).collect();
        Reconstruction { structure, members, profiles_of, component_of, whole, sets }
    }

    /// Starts at the beginning of a thread with its partial traces, one for each profile.
    ///
    /// # Errors
    /// There are not as many traces as profiles.
    pub fn start<I: Iterator<Item = Witness>>(
        &self,
        traces: Vec<I>,
        ending: TraceEnding,
    ) -> Result<Reconstructor<'_, I>, ReconstructError> {
        if traces.len() != self.members.len() {
            return Err(ReconstructError::Traces { traces: traces.len(), profiles: self.members.len() });
        }
        let traces = traces.into_iter().map(|rest| Trace { rest, ahead: VecDeque::new(), read: 0 }).collect();
        let root = self.structure.pushdown.root();
        let tables = DecisionTables::default();
        Ok(Reconstructor { of: self, traces, ending, next: Next::Enter(root), frames: Vec::new(), blocks: 0, idle: 0, tables })
    }
}

/// A partial trace with the symbols that were read ahead.
struct Trace<I> {
    rest: I,
    ahead: VecDeque<Witness>,
    read: u64,
}

impl<I: Iterator<Item = Witness>> Trace<I> {
    fn peek(&mut self) -> Option<Witness> {
        if self.ahead.is_empty() {
            self.ahead.extend(self.rest.next());
        }
        self.ahead.front().copied()
    }

    fn take(&mut self) {
        self.ahead.pop_front();
        self.read += 1;
    }

    /// The next symbol that is wanted, however far it is.
    fn find(&mut self, wanted: impl Fn(Witness) -> bool) -> Option<Witness> {
        if let Some(found) = self.ahead.iter().find(|w| wanted(**w)) {
            return Some(*found);
        }
        for symbol in self.rest.by_ref() {
            self.ahead.push_back(symbol);
            if wanted(symbol) {
                return Some(symbol);
            }
        }
        None
    }
}

enum Next {
    Enter(AutomatonState),
    Act(AutomatonState),
    Done(ReconstructionOutcome),
}

/// The walk along one thread.
pub struct Reconstructor<'r, I> {
    of: &'r Reconstruction,
    traces: Vec<Trace<I>>,
    ending: TraceEnding,
    next: Next,
    frames: Vec<AutomatonState>,
    blocks: u64,
    idle: u64,
    tables: DecisionTables,
}

/// Steps without a symbol or a branch after which control is taken to go around without end.
const MOST_IDLE: u64 = 1 << 26;

impl<I: Iterator<Item = Witness>> Reconstructor<'_, I> {
    /// The next step of the execution; `None` at its end, which [`outcome`](Self::outcome) describes.
    ///
    /// # Errors
    /// The traces contradict the graph, or do not determine the execution.
    pub fn next_event(&mut self) -> Result<Option<ExecutionEvent>, ReconstructError> {
        loop {
            let event = match self.next {
                Next::Enter(state) => self.enter(state)?,
                Next::Act(state) => self.act(state)?,
                Next::Done(_) => return Ok(None),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// How it ended, once there are no more steps.
    pub fn outcome(&self) -> Option<&ReconstructionOutcome> {
        match &self.next {
            Next::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Blocks that were executed so far.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The blocks whose calls are under way, outermost first; code outside left out.
    pub fn frames(&self) -> Vec<(WitnessFunctionId, Node)> {
        self.frames.iter().filter_map(|call| self.place(*call)).collect()
    }

    fn pushdown(&self) -> &Pushdown {
        &self.of.structure.pushdown
    }

    /// The node of a state; `None` outside.
    fn place(&self, state: AutomatonState) -> Option<(WitnessFunctionId, Node)> {
        let data = self.pushdown().state(state);
        (data.function.index() + 2 < self.pushdown().function_count()).then_some((data.function, data.node))
    }

    fn finish(&mut self, outcome: impl Fn(Vec<(WitnessFunctionId, Node)>) -> ReconstructionOutcome, last: Option<AutomatonState>) {
        let mut frames = self.frames();
        frames.extend(last.and_then(|s| self.place(s)));
        self.next = Next::Done(outcome(frames));
    }

    /// Records the witness of a state in all traces, and executes its block.
    fn enter(&mut self, state: AutomatonState) -> Result<Option<ExecutionEvent>, ReconstructError> {
        if self.ending == TraceEnding::Cut && self.traces.iter_mut().all(|t| t.peek().is_none()) {
            let last = (!matches!(self.pushdown().state(state).action, StateAction::End)).then_some(state);
            self.finish(ReconstructionOutcome::Cut, last);
            return Ok(None);
        }
        let data = self.of.structure.pushdown.state(state);
        if let Some(expected) = data.witness {
            for &profile in &self.of.profiles_of[expected.index()] {
                let trace = &mut self.traces[profile as usize];
                match trace.peek() {
                    Some(found) if found == expected => trace.take(),
                    None if self.ending == TraceEnding::Cut => {}
                    found => {
                        let (position, blocks) = (trace.read, self.blocks);
                        return Err(ReconstructError::Unexpected { profile: profile as usize, position, found, expected, blocks });
                    }
                }
                self.idle = 0;
            }
        }
        self.next = Next::Act(state);
        if !data.executes {
            return Ok(None);
        }
        self.blocks += 1;
        Ok(Some(ExecutionEvent::Block(data.function, data.node)))
    }

    fn act(&mut self, state: AutomatonState) -> Result<Option<ExecutionEvent>, ReconstructError> {
        self.idle += 1;
        if self.idle > MOST_IDLE {
            return Err(self.stays(state));
        }
        let data = self.of.structure.pushdown.state(state);
        match &data.action {
            StateAction::Choose(next) => {
                match **next {
                    [] => self.stop(state)?,
                    [one] => self.next = Next::Enter(one),
                    _ => match self.choose(state)? {
                        Some(one) => self.next = Next::Enter(one),
                        None => self.finish(ReconstructionOutcome::Cut, Some(state)),
                    },
                }
                Ok(None)
            }
            StateAction::Call { callee, .. } => Ok(self.call(state, *callee)),
            StateAction::Return | StateAction::Unwind => Ok(self.leave(data.function, data.action == StateAction::Return)),
            StateAction::End => {
                self.all_read()?;
                let last = self.place(state).map(|_| state);
                self.finish(ReconstructionOutcome::Complete, last);
                Ok(None)
            }
        }
    }

    /// Control cannot leave a node: that is an end of the run only if all is read.
    fn stop(&mut self, state: AutomatonState) -> Result<(), ReconstructError> {
        if self.traces.iter_mut().any(|t| t.peek().is_some()) {
            return Err(self.stays(state));
        }
        self.finish(ReconstructionOutcome::Complete, Some(state));
        Ok(())
    }

    fn stays(&self, state: AutomatonState) -> ReconstructError {
        let data = self.pushdown().state(state);
        ReconstructError::Stays { function: data.function, node: data.node, blocks: self.blocks }
    }

    fn all_read(&mut self) -> Result<(), ReconstructError> {
        let blocks = self.blocks;
        match self.traces.iter_mut().enumerate().find_map(|(i, t)| t.peek().map(|found| (i, found, t.read))) {
            Some((profile, found, position)) => Err(ReconstructError::GoesOn { profile, position, found, blocks }),
            None => Ok(()),
        }
    }

    fn call(&mut self, state: AutomatonState, callee: WitnessFunctionId) -> Option<ExecutionEvent> {
        let caller = self.place(state);
        let tail = caller.is_some() && self.is_tail(state);
        if !tail {
            self.frames.push(state);
        }
        self.next = Next::Enter(self.pushdown().entry(callee));
        let known = callee.index() + 2 < self.pushdown().function_count();
        known.then_some(ExecutionEvent::Call { caller, callee, tail })
    }

    fn is_tail(&self, state: AutomatonState) -> bool {
        let StateAction::Call { after, unwound, .. } = self.pushdown().state(state).action else { return false };
        let is = |state: AutomatonState, action: StateAction| {
            let data = self.pushdown().state(state);
            data.action == action && data.witness.is_none() && !data.executes
        };
        is(after, StateAction::Return) && is(unwound, StateAction::Unwind)
    }

    fn leave(&mut self, function: WitnessFunctionId, returns: bool) -> Option<ExecutionEvent> {
        let call = self.frames.pop().expect("the root is left by the end of the run only");
        let StateAction::Call { after, unwound, .. } = self.pushdown().state(call).action else { unreachable!("frames are calls") };
        self.next = Next::Enter(if returns { after } else { unwound });
        let known = function.index() + 2 < self.pushdown().function_count();
        known.then_some(if returns { ExecutionEvent::Return(function) } else { ExecutionEvent::Unwind(function) })
    }
}
