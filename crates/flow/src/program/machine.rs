//! A single-threaded interpreter of probe programs. It defines the meaning of each [`Operation`], for the verifier and for tests.
//!
//! A [`MachineFault`] is a violation that no program may commit on any path: using a register whose value was discarded, taking an edge
//! that is declared dead, or leaving a loop whose iterations have not been counted.

use crate::graph::{Edge, Node};
use crate::part::ProbeHits;
use crate::program::operation::{DominantId, LoopId, Operation};
use crate::program::{ProbeProgram, RegisterCountedIteration};
use std::collections::{BTreeMap, BTreeSet};

/// An item of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamItem {
    /// A path with this number ended.
    Path(i64),
    /// A call of the function began.
    EnterCall,
    /// The call ended.
    LeaveCall,
}

/// An illegal action of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineFault {
    /// Control takes an edge that is declared dead.
    #[error("control reaches {0:?}, which is declared unreachable")]
    Unreachable(Edge),
    /// The path register is used after its value was discarded.
    #[error("{0:?} uses the path register after its value was discarded")]
    Discarded(Edge),
    /// A loop is left or entered again before its iterations are counted.
    #[error("{0:?} leaves or re-enters {1:?} before the loop's iterations are counted")]
    Iterations(Edge, LoopId),
    /// A loop is left before the executions of its dominant iteration are added to their counter.
    #[error("{0:?} leaves the loop of {1:?} before the executions counted in its register are added to its counter")]
    Dominant(Edge, DominantId),
}

/// The state of one thread.
#[derive(Clone, Debug)]
pub struct ProbeMachine {
    /// The path register, or `None` after its value was discarded.
    pub register: Option<i64>,
    /// Nonzero counts by index.
    pub counts: BTreeMap<i64, u64>,
    /// Numbers of the known paths, which [`Operation::Check`] does not count.
    pub known: BTreeSet<i64>,
    /// The items that were appended to the stream.
    pub stream: Vec<StreamItem>,
    /// The path that [`Operation::NoteCall`] wrote to the frame of the current call.
    pub noted: Option<i64>,
    /// Number of executions of probes that the program itself counted ([`Operation::CountHits`]).
    pub hits: ProbeHits,
    /// Pending iterations of loops that are counted by trip count.
    iterations: BTreeMap<LoopId, u64>,
    /// Pending executions of dominant iterations that are counted in a register.
    in_register: BTreeMap<DominantId, u64>,
}

impl Default for ProbeMachine {
    fn default() -> ProbeMachine {
        ProbeMachine {
            register: Some(0),
            counts: BTreeMap::new(),
            known: BTreeSet::new(),
            stream: Vec::new(),
            noted: None,
            hits: ProbeHits::default(),
            iterations: BTreeMap::new(),
            in_register: BTreeMap::new(),
        }
    }
}

impl ProbeMachine {
    /// Creates a machine to which the paths with the given numbers are known.
    pub fn with_known_paths(known: impl IntoIterator<Item = i64>) -> ProbeMachine {
        ProbeMachine { known: known.into_iter().collect(), ..ProbeMachine::default() }
    }

    /// Enters a call of the program's function: the path register is 0, and no path is noted.
    pub fn enter_function(&mut self, program: &ProbeProgram) {
        (self.register, self.noted) = (Some(0), None);
        self.stream.extend(program.operations_at_entry().iter().filter(|o| **o == Operation::EnterCall).map(|_| StreamItem::EnterCall));
    }

    /// Executes the operations on an edge.
    pub fn take_edge(&mut self, program: &ProbeProgram, edge: Edge) -> Result<(), MachineFault> {
        for operation in program.operations(edge) {
            self.execute(program, edge, *operation)?;
        }
        self.check_pending_counts(program, edge)
    }

    fn execute(&mut self, program: &ProbeProgram, edge: Edge, operation: Operation) -> Result<(), MachineFault> {
        let register = self.register.ok_or(MachineFault::Discarded(edge));
        match operation {
            Operation::Unreachable => return Err(MachineFault::Unreachable(edge)),
            Operation::Add(increment) => self.register = Some(register?.wrapping_add(increment)),
            Operation::Set(value) => self.register = Some(value),
            Operation::Discard => self.register = None,
            Operation::Count { increment } => self.count(register?.wrapping_add(increment), 1),
            Operation::CountIteration { increment, dominant } => {
                let (index, it) = (register?.wrapping_add(increment), program.dominant_by_id(dominant));
                match it.in_register.is_some() && index == it.index {
                    true => *self.in_register.entry(dominant).or_default() += 1,
                    false => self.count(index, 1),
                }
            }
            Operation::Check { increment } => {
                let path = register?.wrapping_add(increment);
                if !program.cells().is_known(path).unwrap_or_else(|| self.known.contains(&path)) {
                    self.count(path, 1);
                }
            }
            Operation::Iterate(of) => *self.iterations.entry(of).or_default() += 1,
            Operation::Flush { of, partial } => {
                let (it, n, register) = (program.loop_by_id(of), self.iterations.remove(&of).unwrap_or(0), register?);
                self.count(register.wrapping_add(it.increment), n.min(1));
                self.count(it.start.wrapping_add(it.increment), n.saturating_sub(1));
                self.register = Some(if n > 0 { it.start } else { register }.wrapping_add(partial));
            }
            Operation::FlushDominant(dominant) => {
                let in_register = self.in_register.remove(&dominant).unwrap_or(0);
                self.count(program.dominant_by_id(dominant).index, in_register);
            }
            Operation::CountHits(hits) => self.hits = [self.hits, hits].into_iter().sum(),
            Operation::Emit { increment } => self.stream.push(StreamItem::Path(register?.wrapping_add(increment))),
            Operation::NoteCall => {
                self.noted = self.stream.iter().rev().find_map(|e| if let StreamItem::Path(path) = e { Some(*path) } else { None });
            }
            Operation::EnterCall => self.stream.push(StreamItem::EnterCall),
            Operation::LeaveCall => self.stream.push(StreamItem::LeaveCall),
        }
        Ok(())
    }

    fn count(&mut self, index: i64, by: u64) {
        if by > 0 {
            *self.counts.entry(index).or_default() += by;
        }
    }

    fn check_pending_counts(&self, program: &ProbeProgram, edge: Edge) -> Result<(), MachineFault> {
        let (from, to) = (program.graph().from(edge), program.graph().to(edge));
        for id in self.iterations.keys() {
            let it = program.loop_by_id(*id);
            if !it.nodes.contains(&to) || (to == it.head && edge != it.back) {
                return Err(MachineFault::Iterations(edge, *id));
            }
        }
        let leaves = |in_register: &RegisterCountedIteration, node: Node| {
            !in_register.nodes.contains(&node) || (node == in_register.head && !in_register.nodes.contains(&from))
        };
        for id in self.in_register.keys() {
            if program.dominant_by_id(*id).in_register.as_ref().is_none_or(|register| leaves(register, to)) {
                return Err(MachineFault::Dominant(edge, *id));
            }
        }
        Ok(())
    }
}
