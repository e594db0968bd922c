//! Reconstructs an execution from partial traces by a walk over the program that reads each trace once.
//!
//! Source: D. Saha et al., "Distributed program tracing" (ESEC/FSE 2013), section 3.3, with the pairwise test at every branch. The walk
//! keeps the current state and a call stack. At a branch it keeps the successors whose set W contains the next symbol of *every* trace
//! ([`first`](super::first)); if several remain, it consults the next symbol of the branch's own component
//! ([`Lookahead::OwnComponent`](super::Lookahead)). When a state with a witness is entered, each trace whose profile contains it consumes
//! one symbol.

mod decision;

use super::Distribution;
use super::automaton::{AutomatonState, StateAction};
use super::condition::{self, BranchNode, BranchTarget};
use super::first::FirstWitnessSets;
use super::program::{Witness, WitnessFunctionId, WitnessProgram, WitnessSet};
use super::pushdown::Pushdown;
use super::structure::{PushdownStructure, WitnessScope};
use decision::DecisionTables;
use std::collections::VecDeque;
use trodden_flow::graph::Node;

/// Where the traces end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceEnding {
    /// The traces end at the end of the run, so each is complete.
    Complete,
    /// The traces may end at any point, because the run was killed or they were truncated. The execution after the last symbol is unknown.
    Truncated,
}

/// A step of the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecutionEvent {
    /// A block is executed.
    Block(WitnessFunctionId, Node),
    /// A function is called.
    Call {
        /// The block with the call. `None` if code outside calls, or if the run starts in the callee.
        caller: Option<(WitnessFunctionId, Node)>,
        /// The called function.
        callee: WitnessFunctionId,
        /// Whether this is a tail call, which replaces the caller's frame.
        tail: bool,
    },
    /// A function returns.
    Return(WitnessFunctionId),
    /// A function is left by unwinding.
    Unwind(WitnessFunctionId),
}

/// The end of a reconstruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconstructionOutcome {
    /// The execution is complete. The field has the frames in which the run ended, outermost first, or none if the start function returned.
    Complete(Vec<(WitnessFunctionId, Node)>),
    /// The traces were truncated. The returned events are certain, and later ones are unknown. The field has the frames after the last
    /// event, outermost first.
    Truncated(Vec<(WitnessFunctionId, Node)>),
}

/// The reason why an execution cannot be reconstructed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReconstructError {
    /// The numbers of traces and profiles differ.
    #[error("each of the {profiles} profiles needs one partial trace, but {traces} were given")]
    Traces {
        /// Number of traces.
        traces: usize,
        /// Number of profiles.
        profiles: usize,
    },
    /// No successor of a branch agrees with all traces.
    #[error(
        "after {blocks} blocks, no successor of {branch:?} agrees with the traces: the control-flow graph lacks an edge, or the traces are \
         of different executions"
    )]
    NoSuccessor {
        /// The branch.
        branch: BranchNode,
        /// Number of blocks executed so far.
        blocks: u64,
        /// The next symbol of each trace; `None` at its end.
        next: Vec<Option<Witness>>,
    },
    /// An executed witness is not the next symbol of its trace.
    #[error(
        "trace {profile} has {found:?} at symbol {position}, where {expected:?} is executed: the graph lacks an edge, or the traces are \
         of different executions"
    )]
    UnexpectedSymbol {
        /// Index of the trace.
        profile: usize,
        /// Number of the trace's symbols that were read before.
        position: u64,
        /// The trace's next symbol; `None` at its end.
        found: Option<Witness>,
        /// The executed witness.
        expected: Witness,
        /// Number of blocks executed so far.
        blocks: u64,
    },
    /// The run ends, but a trace continues.
    #[error(
        "trace {profile} continues with {found:?} at symbol {position}, where the run ends: the graph lacks an edge, or the traces are \
         of different executions"
    )]
    TraceContinues {
        /// Index of the trace.
        profile: usize,
        /// Number of the trace's symbols that were read before.
        position: u64,
        /// Its next symbol.
        found: Witness,
        /// Number of blocks executed so far.
        blocks: u64,
    },
    /// Several successors of a branch agree with all traces.
    #[error(
        "after {blocks} blocks, {branch:?} can continue with any of {targets:?}, which the witnesses (watched blocks or edges) do not \
         distinguish. Add witnesses"
    )]
    Ambiguous {
        /// The branch.
        branch: BranchNode,
        /// The remaining successors.
        targets: Vec<BranchTarget>,
        /// Number of blocks executed so far.
        blocks: u64,
    },
    /// Control cannot leave a node although the traces continue, or stays for too long in a loop without witnesses.
    #[error(
        "function {} cannot leave node {} after {blocks} blocks, but the traces continue, so the graph lacks an edge",
        .function.0, .node.0
    )]
    Stuck {
        /// The function.
        function: WitnessFunctionId,
        /// The node.
        node: Node,
        /// Number of blocks executed so far.
        blocks: u64,
    },
}

/// Precomputed data of a program and a distribution.
pub struct Reconstruction {
    structure: PushdownStructure,
    members: Vec<WitnessSet>,
    profiles_of: Vec<Vec<u32>>,
    component_of: Vec<u32>,
    whole: WitnessScope,
    sets: Vec<FirstWitnessSets>,
}

impl Reconstruction {
    /// Computes, for each profile, which witnesses can come first after each state (the sets W).
    pub fn new(program: &WitnessProgram, distribution: &Distribution) -> Reconstruction {
        let structure = PushdownStructure::new(Pushdown::new(program, distribution.kind));
        let members = condition::members(program, distribution);
        let whole = structure.whole();
        let sets = members.iter().map(|m| FirstWitnessSets::new(&structure, &whole, m)).collect();
        let mut profiles_of = vec![Vec::new(); program.witness_count(distribution.kind)];
        for (profile, of) in (0..).zip(&distribution.profiles) {
            of.iter().for_each(|w| profiles_of[w.index()].push(profile));
        }
        let component = |w: u32| structure.component[program.function_of(distribution.kind, Witness(w)).index()];
        let component_of = (0..profiles_of.len() as u32).map(component).collect();
        Reconstruction { structure, members, profiles_of, component_of, whole, sets }
    }

    /// Starts the walk at the beginning of a thread with its partial traces, one for each profile.
    ///
    /// # Errors
    /// The numbers of traces and profiles differ.
    pub fn start<I: Iterator<Item = Witness>>(
        &self,
        traces: Vec<I>,
        ending: TraceEnding,
    ) -> Result<Reconstructor<'_, I>, ReconstructError> {
        if traces.len() != self.members.len() {
            return Err(ReconstructError::Traces { traces: traces.len(), profiles: self.members.len() });
        }
        let traces = traces.into_iter().map(|rest| ReadAheadTrace { rest, ahead: VecDeque::new(), read: 0 }).collect();
        let root = self.structure.pushdown.root();
        let tables = DecisionTables::default();
        Ok(Reconstructor {
            reconstruction: self,
            traces,
            ending,
            next: NextAction::Enter(root),
            frames: Vec::new(),
            blocks: 0,
            idle_steps: 0,
            tables,
        })
    }
}

/// A partial trace with a buffer for symbols that were read ahead.
struct ReadAheadTrace<I> {
    rest: I,
    ahead: VecDeque<Witness>,
    read: u64,
}

impl<I: Iterator<Item = Witness>> ReadAheadTrace<I> {
    fn peek(&mut self) -> Option<Witness> {
        if self.ahead.is_empty() {
            self.ahead.extend(self.rest.next());
        }
        self.ahead.front().copied()
    }

    fn consume_symbol(&mut self) {
        self.ahead.pop_front();
        self.read += 1;
    }

    /// Returns the next symbol for which `wanted` is true, at any distance.
    fn find_symbol(&mut self, wanted: impl Fn(Witness) -> bool) -> Option<Witness> {
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

enum NextAction {
    Enter(AutomatonState),
    Act(AutomatonState),
    Done(ReconstructionOutcome),
}

/// The walk along a thread.
///
/// Invariants: the events returned so far are certain. They form the execution if the traces belong to one execution of the program;
/// otherwise, the walk reports the first branch or witness at which no execution agrees with the traces. Memory: the call stack, one symbol
/// per trace, and, where the condition needs an unbounded lookahead, the symbols before the component's next symbol. Time per step: a
/// lookup for each trace and successor.
pub struct Reconstructor<'r, I> {
    reconstruction: &'r Reconstruction,
    traces: Vec<ReadAheadTrace<I>>,
    ending: TraceEnding,
    next: NextAction,
    frames: Vec<AutomatonState>,
    blocks: u64,
    idle_steps: u64,
    tables: DecisionTables,
}

/// Number of steps without a witness after which control is assumed to be in an endless loop.
const MAX_STEPS_WITHOUT_SYMBOL: u64 = 1 << 26;

impl<I: Iterator<Item = Witness>> Reconstructor<'_, I> {
    /// Returns the next event of the execution, or `None` at its end, which [`outcome`](Self::outcome) describes.
    ///
    /// # Errors
    /// The traces contradict the graph, or do not determine the execution.
    pub fn next_event(&mut self) -> Result<Option<ExecutionEvent>, ReconstructError> {
        loop {
            let event = match self.next {
                NextAction::Enter(state) => self.enter_state(state)?,
                NextAction::Act(state) => self.perform_action(state)?,
                NextAction::Done(_) => return Ok(None),
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    /// Returns how the walk ended, or `None` before [`next_event`](Self::next_event) has returned `None`.
    pub fn outcome(&self) -> Option<&ReconstructionOutcome> {
        match &self.next {
            NextAction::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Returns the number of blocks executed so far.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the blocks with active calls, outermost first, without code outside.
    pub fn frames(&self) -> Vec<(WitnessFunctionId, Node)> {
        self.frames.iter().filter_map(|call| self.node_of(*call)).collect()
    }

    fn pushdown(&self) -> &Pushdown {
        &self.reconstruction.structure.pushdown
    }

    /// Returns the function and node of a state, or `None` if the state belongs to one of the two added functions (outside, root).
    fn node_of(&self, state: AutomatonState) -> Option<(WitnessFunctionId, Node)> {
        let data = self.pushdown().state(state);
        (data.function.index() + 2 < self.pushdown().function_count()).then_some((data.function, data.node))
    }

    fn finish(&mut self, outcome: impl Fn(Vec<(WitnessFunctionId, Node)>) -> ReconstructionOutcome, last: Option<AutomatonState>) {
        let mut frames = self.frames();
        frames.extend(last.and_then(|s| self.node_of(s)));
        self.next = NextAction::Done(outcome(frames));
    }

    /// Consumes the witness of a state in all traces, and executes its block.
    fn enter_state(&mut self, state: AutomatonState) -> Result<Option<ExecutionEvent>, ReconstructError> {
        if self.ending == TraceEnding::Truncated && self.traces.iter_mut().all(|t| t.peek().is_none()) {
            let last = (!matches!(self.pushdown().state(state).action, StateAction::End)).then_some(state);
            self.finish(ReconstructionOutcome::Truncated, last);
            return Ok(None);
        }
        let data = self.reconstruction.structure.pushdown.state(state);
        if let Some(expected) = data.witness {
            for &profile in &self.reconstruction.profiles_of[expected.index()] {
                let trace = &mut self.traces[profile as usize];
                match trace.peek() {
                    Some(found) if found == expected => trace.consume_symbol(),
                    None if self.ending == TraceEnding::Truncated => {}
                    found => {
                        let (position, blocks) = (trace.read, self.blocks);
                        return Err(ReconstructError::UnexpectedSymbol { profile: profile as usize, position, found, expected, blocks });
                    }
                }
                self.idle_steps = 0;
            }
        }
        self.next = NextAction::Act(state);
        if !data.executes {
            return Ok(None);
        }
        self.blocks += 1;
        Ok(Some(ExecutionEvent::Block(data.function, data.node)))
    }

    fn perform_action(&mut self, state: AutomatonState) -> Result<Option<ExecutionEvent>, ReconstructError> {
        self.idle_steps += 1;
        if self.idle_steps > MAX_STEPS_WITHOUT_SYMBOL {
            return Err(self.stuck_error(state));
        }
        let data = self.reconstruction.structure.pushdown.state(state);
        match &data.action {
            StateAction::Choose(next) => {
                match **next {
                    [] => self.handle_stuck_node(state)?,
                    [one] => self.next = NextAction::Enter(one),
                    _ => match self.choose_successor(state)? {
                        Some(one) => self.next = NextAction::Enter(one),
                        None => self.finish(ReconstructionOutcome::Truncated, Some(state)),
                    },
                }
                Ok(None)
            }
            StateAction::Call { callee, .. } => Ok(self.enter_call(state, *callee)),
            StateAction::Return | StateAction::Unwind => Ok(self.leave_function(data.function, data.action == StateAction::Return)),
            StateAction::End => {
                self.check_all_read()?;
                let last = self.node_of(state).map(|_| state);
                self.finish(ReconstructionOutcome::Complete, last);
                Ok(None)
            }
        }
    }

    /// Handles a node that control cannot leave, which ends the run only if all traces are read.
    fn handle_stuck_node(&mut self, state: AutomatonState) -> Result<(), ReconstructError> {
        if self.traces.iter_mut().any(|t| t.peek().is_some()) {
            return Err(self.stuck_error(state));
        }
        self.finish(ReconstructionOutcome::Complete, Some(state));
        Ok(())
    }

    fn stuck_error(&self, state: AutomatonState) -> ReconstructError {
        let data = self.pushdown().state(state);
        ReconstructError::Stuck { function: data.function, node: data.node, blocks: self.blocks }
    }

    fn check_all_read(&mut self) -> Result<(), ReconstructError> {
        let blocks = self.blocks;
        match self.traces.iter_mut().enumerate().find_map(|(i, t)| t.peek().map(|found| (i, found, t.read))) {
            Some((profile, found, position)) => Err(ReconstructError::TraceContinues { profile, position, found, blocks }),
            None => Ok(()),
        }
    }

    fn enter_call(&mut self, state: AutomatonState, callee: WitnessFunctionId) -> Option<ExecutionEvent> {
        let caller = self.node_of(state);
        let tail = caller.is_some() && self.is_tail_call(state);
        if !tail {
            self.frames.push(state);
        }
        self.next = NextAction::Enter(self.pushdown().entry(callee));
        let known = callee.index() + 2 < self.pushdown().function_count();
        known.then_some(ExecutionEvent::Call { caller, callee, tail })
    }

    fn is_tail_call(&self, state: AutomatonState) -> bool {
        let StateAction::Call { after, unwound, .. } = self.pushdown().state(state).action else { return false };
        let is = |state: AutomatonState, action: StateAction| {
            let data = self.pushdown().state(state);
            data.action == action && data.witness.is_none() && !data.executes
        };
        is(after, StateAction::Return) && is(unwound, StateAction::Unwind)
    }

    fn leave_function(&mut self, function: WitnessFunctionId, returns: bool) -> Option<ExecutionEvent> {
        let call = self.frames.pop().expect("the root is left only by the end of the run");
        let StateAction::Call { after, unwound, .. } = self.pushdown().state(call).action else { unreachable!("frames are calls") };
        self.next = NextAction::Enter(if returns { after } else { unwound });
        let known = function.index() + 2 < self.pushdown().function_count();
        known.then_some(if returns { ExecutionEvent::Return(function) } else { ExecutionEvent::Unwind(function) })
    }
}
