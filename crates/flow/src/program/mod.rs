//! Probe programs: for each edge of a graph, an ordered list of operations on path register and counters.
//!
//! A scheme makes a program (every path; without rare edges; the paths that are interesting; one copy's part; unknown paths
//! only, by several versions of the code). Passes rewrite it, each with a switch of its own, so that fewer instructions run
//! for the same counts:
//!
//! 1. [trip counts](trip_counts): loops of one path are counted when they are left;
//! 2. [early counts](early_counts): counts are made on the edges into a node from which one path leads to the end;
//! 3. [dominant iterations](dominant) of other loops have an instruction of their own that counts them, or a register.
//!
//! A backend (LLVM, the interpreter of [`crate::verify::program`], breakpoints) only carries a program out, and needs to know
//! nothing of schemes. The verifier holds a program against the paths of its graph, after every pass.
//!
//! All passes leave the counts as they are; but a path in the middle of a loop, or of a node, that they treat may be seen in
//! memory late or early. That is why nodes that call something are left alone: nothing but a signal can look in between.

mod code;
mod dominant;
mod early_counts;
pub mod operation;
mod part;
mod trip_counts;

use crate::dag::{Cut, Dag};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph, Node};
use crate::partition::{Hits, Part};
use crate::plan::{Action, Plan};
use code::{Code, Frame};
use operation::{DominantId, LoopId, Operation, add};
use std::collections::{BTreeMap, BTreeSet};

pub use code::{DominantIteration, Held, TripCountedLoop};
pub use dominant::UsualRounds;

/// What a backend knows of a function beyond its graph: by number of node or edge.
#[derive(Clone, Debug)]
pub struct BlockProperties {
    /// Nodes whose code does nothing that could be observed from outside: no call.
    pub quiet: Vec<bool>,
    /// Nodes whose count has to be made on the edges into them, whatever it costs.
    pub early: Vec<bool>,
    /// Edges that can carry code.
    pub open: Vec<bool>,
    /// Edges that can carry code without another jump.
    pub free: Vec<bool>,
    /// Instructions of each node.
    pub sizes: Vec<u32>,
    /// Back edges on which control may leave this code for another version of it: their loops cannot be counted by trip count.
    pub crossed: BTreeSet<Edge>,
    /// How often each of these back edges is taken from when its loop is entered until the loop is left at the edge's
    /// tail, where that is a constant.
    pub trip_counts: BTreeMap<Edge, u64>,
    /// Back edges of loops whose iterations the program itself counts: nothing has to be done in them to know their number.
    pub counted: BTreeSet<Edge>,
}

/// Which loops of one path are counted by trip count, of those that iterate often enough, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ByRounds {
    /// None.
    No,
    /// Those of a few instructions, those with a constant trip count, and those with one exit edge whose iterations the
    /// program counts. In short ones an addition to the same word of memory in each iteration is what the processor waits
    /// for: it takes some five cycles from one to the next, where an iteration takes one or two. Longer iterations hide that.
    Tight,
    /// All.
    Often,
}

/// Which passes are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Loops of one path that are counted by trip count.
    pub rounds: ByRounds,
    /// Counts are made early.
    pub early: bool,
    /// What counts the dominant iterations of short loops.
    pub usual: UsualRounds,
}

impl Choices {
    /// Numbers of iterations are kept in registers wherever that is worthwhile, unless a pass is off: a program that is
    /// killed in the middle of a loop loses them.
    pub fn in_registers(self) -> Choices {
        let rounds = if self.rounds == ByRounds::Tight { ByRounds::Often } else { self.rounds };
        let usual = if self.usual == UsualRounds::Apart { UsualRounds::Held } else { self.usual };
        Choices { rounds, usual, ..self }
    }
}

/// Which passes a scheme admits.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    trip_counts: bool,
    early_counts: bool,
    dominant: bool,
}

/// What has to be done on the edges of a graph.
#[derive(Clone, Debug)]
pub struct ProbeProgram {
    frame: Frame,
    code: Code,
    admitted: Admitted,
}

impl ProbeProgram {
    /// Of a plan, before any pass.
    pub fn of_plan(graph: &Graph, plan: &Plan) -> ProbeProgram {
        let frame = Frame { graph: graph.clone(), order: order(graph, &plan.dag), dag: plan.dag.clone(), origins: None };
        let (operations, admitted) = match (&plan.share, &plan.partial) {
            // What one of several copies counts is counted at the ends of paths already.
            (Some(share), _) => {
                (part::operations(graph, &plan.dag, &share.part), Admitted { trip_counts: true, early_counts: false, dominant: false })
            }
            (None, Some(_)) => (actions(graph, plan), Admitted { trip_counts: false, early_counts: true, dominant: false }),
            (None, None) => (actions(graph, plan), Admitted { trip_counts: true, early_counts: true, dominant: true }),
        };
        ProbeProgram { frame, code: Code::new(operations), admitted }
    }

    /// A plan's program, after the passes.
    pub fn of(graph: &Graph, plan: &Plan, frequencies: &Frequencies, blocks: &BlockProperties, choices: Choices) -> ProbeProgram {
        let mut program = ProbeProgram::of_plan(graph, plan);
        program.run_passes(frequencies, blocks, choices);
        program
    }

    /// Runs the passes that are on and that the scheme admits. The frequencies are those of the program's own graph.
    pub fn run_passes(&mut self, frequencies: &Frequencies, blocks: &BlockProperties, choices: Choices) {
        let ProbeProgram { frame, code, admitted } = self;
        if admitted.trip_counts {
            trip_counts::run(frame, code, frequencies, blocks, choices.rounds);
        }
        if admitted.early_counts {
            early_counts::run(frame, code, frequencies, blocks, choices.early);
        }
        if admitted.dominant {
            dominant::run(frame, code, frequencies, blocks, choices.usual);
        }
    }

    /// Has the probes of one copy's part counted besides, wherever control takes an edge with some: to check what their
    /// hits are said to be.
    pub fn count_hits(&mut self, part: &Part) {
        for edge in self.frame.graph.edges() {
            let hits = part::hits(&self.frame.dag, part, edge);
            if hits != Hits::default() {
                self.code.operations[edge.index()].push(Operation::CountHits(hits));
            }
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.frame.graph
    }

    /// Its nodes but the exit, those of a path in its order.
    pub fn order(&self) -> &[Node] {
        &self.frame.order
    }

    /// How the path on an edge is cut, if it is.
    pub fn cut(&self, edge: Edge) -> Option<&Cut> {
        self.frame.cut(edge)
    }

    /// What has to be done on an edge, in this order.
    pub fn operations(&self, edge: Edge) -> &[Operation] {
        self.code.on(edge)
    }

    /// The loops that are counted by trip count.
    pub fn loops(&self) -> &[TripCountedLoop] {
        &self.code.loops
    }

    /// A loop that is counted by trip count.
    pub fn loop_of(&self, id: LoopId) -> &TripCountedLoop {
        &self.code.loops[id.0]
    }

    /// The dominant iterations that are split from others where they are counted: on the edges that close their loops.
    pub fn dominant(&self) -> &[DominantIteration] {
        &self.code.dominant
    }

    /// A dominant iteration.
    pub fn dominant_of(&self, id: DominantId) -> &DominantIteration {
        &self.code.dominant[id.0]
    }

    /// The edges that close loops which are counted by trip count.
    pub fn by_rounds(&self) -> Vec<Edge> {
        self.code.loops.iter().map(|l| l.back).collect()
    }

    /// Whether no control comes along an edge.
    pub fn is_dead(&self, edge: Edge) -> bool {
        self.code.is_dead(edge)
    }

    /// Whether an edge needs code.
    pub fn has_code(&self, edge: Edge) -> bool {
        self.code.has_code(edge)
    }

    /// Whether the register's value in front of an edge matters.
    pub fn reads_register(&self, edge: Edge) -> bool {
        self.code.reads_register(edge)
    }

    /// Whether the path that goes on behind an edge, and does not end there, is counted on the edge.
    pub fn counts_early(&self, edge: Edge) -> bool {
        let last = self.code.on(edge).iter().rev().find(|o| !matches!(o, Operation::CountHits(_)));
        self.frame.graph.to(edge) != self.frame.graph.exit() && matches!(last, Some(Operation::Count { .. }))
    }
}

fn order(graph: &Graph, dag: &Dag) -> Vec<Node> {
    dag.order().iter().copied().filter(|n| *n != graph.exit()).collect()
}

fn actions(graph: &Graph, plan: &Plan) -> Vec<Vec<Operation>> {
    graph.edges().map(|e| of_action(plan.action(graph, e))).collect()
}

/// What a plan says of an edge, as operations.
pub(crate) fn of_action(action: Action) -> Vec<Operation> {
    match action {
        Action::Add { increment } => add(increment).into_iter().collect(),
        Action::Count { increment } => vec![Operation::Count { increment }],
        Action::CountAndRestart { increment, start } => vec![Operation::Count { increment }, Operation::Set(start)],
        Action::Poison { value } => vec![Operation::Set(value)],
        Action::Dead => vec![Operation::Unreachable],
    }
}

/// The program of a graph of several versions of a function: which edge of the function each edge is, and what is done there.
pub(crate) fn of_versions(graph: Graph, order: Vec<Node>, dag: Dag, origins: Vec<Edge>, operations: Vec<Vec<Operation>>) -> ProbeProgram {
    let admitted = Admitted { trip_counts: true, early_counts: false, dominant: true };
    ProbeProgram { frame: Frame { graph, order, dag, origins: Some(origins) }, code: Code::new(operations), admitted }
}

/// The program of a function whose paths are looked up where they end.
pub(crate) fn of_lookups(graph: &Graph, dag: &Dag, operations: Vec<Vec<Operation>>) -> ProbeProgram {
    let frame = Frame { graph: graph.clone(), order: order(graph, dag), dag: dag.clone(), origins: None };
    let admitted = Admitted { trip_counts: false, early_counts: false, dominant: false };
    ProbeProgram { frame, code: Code::new(operations), admitted }
}
