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
//! A backend (LLVM, the interpreter of [`verify`], breakpoints) only carries a program out, and needs to know
//! nothing of schemes. The verifier holds a program against the paths of its graph, after every pass.
//!
//! [Streams](stream) append paths where such a program counts them.
//!
//! All passes leave the counts as they are; but a path in the middle of a loop, or of a node, that they treat may be seen in
//! memory late or early. That is why nodes that call something are left alone: nothing but a signal can look in between.

mod cells;
mod code;
mod dominant;
mod early_counts;
pub mod machine;
pub mod operation;
mod part;
mod place;
mod stream;
mod text;
mod trip_counts;
pub mod verify;

use crate::dag::{Cut, Dag, DagEdgeId};
use crate::frequency::Frequencies;
use crate::graph::{Edge, Graph, Node};
use crate::interesting::{InterestingPlan, PathEnding};
use crate::numbering::NumberedPaths;
use crate::part::{Hits, Part};
use crate::placement::Probes;
use crate::plan::{PartPlan, Plan, RegisterAction};
use code::{Code, ProgramFrame};
use operation::{DominantId, LoopId, Operation, add};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use verify::{ProgramFault, WalkBudget, verify_counts};

pub use cells::{Cells, InterestingCells};
pub use code::{DominantIterationCode, RegisterCounted, TripCountedLoop};
pub use dominant::DominantCounting;
pub use place::{CodeVersion, NodePlace};
pub use stream::StreamEdges;

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
pub enum TripCounting {
    /// None.
    Off,
    /// Those of a few instructions, those with a constant trip count, and those with one exit edge whose iterations the
    /// program counts. In short ones an addition to the same word of memory in each iteration is what the processor waits
    /// for: it takes some five cycles from one to the next, where an iteration takes one or two. Longer iterations hide that.
    Tight,
    /// All.
    On,
}

/// Which passes are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Loops of one path that are counted by trip count.
    pub trip_counts: TripCounting,
    /// Counts are made early.
    pub early: bool,
    /// What counts the dominant iterations of short loops.
    pub dominant: DominantCounting,
}

impl Choices {
    /// Numbers of iterations are kept in registers wherever that is worthwhile, unless a pass is off: a program that is
    /// killed in the middle of a loop loses them.
    pub fn in_registers(self) -> Choices {
        let trip_counts = if self.trip_counts == TripCounting::Tight { TripCounting::On } else { self.trip_counts };
        let dominant = if self.dominant == DominantCounting::Split { DominantCounting::Register } else { self.dominant };
        Choices { trip_counts, dominant, ..self }
    }
}

/// What rewrites a program, in the order in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Loops are counted by their trip counts.
    TripCounts,
    /// Counts are made early.
    EarlyCounts,
    /// Counts of dominant iterations are split from others.
    DominantIterations,
}

impl Pass {
    /// All.
    pub const ALL: [Pass; 3] = [Pass::TripCounts, Pass::EarlyCounts, Pass::DominantIterations];
}

/// A program that does not count its paths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PassFault {
    /// After which pass; none: as the scheme made it.
    pub pass: Option<Pass>,
    /// What is wrong.
    pub fault: ProgramFault,
}

impl fmt::Display for PassFault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.pass {
            None => write!(f, "the program of the scheme does not count its paths: {}", self.fault),
            Some(pass) => write!(f, "after the pass {pass:?} the program does not count its paths any more: {}", self.fault),
        }
    }
}

/// Which passes a scheme admits.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    trip_counts: bool,
    early_counts: EarlyCounts,
    dominant: bool,
}

/// Where counts are made early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlyCounts {
    /// Nowhere: they are so already.
    Nowhere,
    /// Where they have to be.
    Necessary,
    /// Where that pays, too.
    Worthwhile,
}

/// What has to be done on the edges of a graph, and what the counters mean.
#[derive(Clone, Debug)]
pub struct ProbeProgram {
    frame: ProgramFrame,
    code: Code,
    admitted: Admitted,
    paths: NumberedPaths,
    /// Increments by edge of the acyclic graph, if each path's sum is its number.
    increments: Option<Probes>,
    cells: Cells,
    /// If some paths are known, and only the others are counted: their numbers.
    known: Option<Vec<u64>>,
    versions: Option<Versions>,
    /// If paths are appended to a stream, and not counted.
    stream: Option<StreamEdges>,
}

/// Several versions of a function's code.
#[derive(Clone, Debug)]
struct Versions {
    /// What each node of the graph but the exit is.
    places: Vec<NodePlace>,
    /// How often the known paths take its edges.
    executions: Vec<u64>,
}

impl ProbeProgram {
    /// Of a plan, before any pass.
    pub fn from_plan(graph: &Graph, plan: &Plan) -> ProbeProgram {
        match (&plan.part, &plan.partial) {
            (Some(part), _) => ProbeProgram::from_part(graph, plan, part),
            (None, Some(_)) => ProbeProgram::leaving_out(graph, plan),
            (None, None) => ProbeProgram::from_all(graph, plan),
        }
    }

    /// Of every path.
    fn from_all(graph: &Graph, plan: &Plan) -> ProbeProgram {
        let admitted = Admitted { trip_counts: true, early_counts: EarlyCounts::Worthwhile, dominant: true };
        let program = ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), actions(graph, plan), admitted, plan);
        ProbeProgram { increments: Some(plan.probes.clone()), ..program }
    }

    /// Of the paths that do not end on edges which are left out.
    fn leaving_out(graph: &Graph, plan: &Plan) -> ProbeProgram {
        let admitted = Admitted { trip_counts: false, early_counts: EarlyCounts::Worthwhile, dominant: false };
        ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), actions(graph, plan), admitted, plan)
    }

    /// Of what one of several copies counts: at the ends of its paths already.
    fn from_part(graph: &Graph, plan: &Plan, part: &PartPlan) -> ProbeProgram {
        let admitted = Admitted { trip_counts: true, early_counts: EarlyCounts::Nowhere, dominant: false };
        let operations = part::operations(graph, &plan.dag, &part.part);
        let cells = Cells::Labels { labels: part.labels.clone(), cells: part.words, part: part.part.clone() };
        ProbeProgram { cells, ..ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), operations, admitted, plan) }
    }

    /// Of every path of a plan, whose sums of increments are those of precise selective labels instead of numbers: those of interesting
    /// paths are of no other path. `interesting` has an entry for each edge of the acyclic graph.
    pub fn from_labels(graph: &Graph, plan: &Plan, interesting: Vec<bool>) -> ProbeProgram {
        let admitted = Admitted { trip_counts: false, early_counts: EarlyCounts::Worthwhile, dominant: false };
        let program = ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), actions(graph, plan), admitted, plan);
        let (increments, last) = (plan.probes.increments().to_vec(), |edge: DagEdgeId| plan.dag.edge(edge).to == plan.dag.exit());
        let counted: Vec<bool> = plan.dag.edge_ids().map(last).collect();
        // By increments, sums behind a node are off by one constant for all edges: they overlap as little as labels do.
        let part = Part { interesting, values: increments.clone(), increments, offset: 0, ends: counted.clone(), counted };
        let cells = Cells::Labels { labels: part.values.clone(), cells: plan.numbering.paths(), part };
        ProbeProgram { cells, ..program }
    }

    /// Of the interesting paths, each with a counter of its own; all others have one together. Numbers are those of all paths.
    pub fn from_interesting(graph: &Graph, planned: InterestingPlan) -> ProbeProgram {
        let program = ProbeProgram::from_plan(graph, &planned.plan);
        let InterestingPlan { dag, numbering, ending, paths, aliases, proven, .. } = planned;
        let cells = Cells::Interesting(InterestingCells { ending, paths, aliases, proven });
        ProbeProgram { paths: NumberedPaths { dag, numbering }, increments: None, cells, ..program }
    }

    /// Of a plan's unknown paths, in a function that stays one version: paths are looked up where they end.
    pub(crate) fn from_lookups(graph: &Graph, plan: &Plan, operations: Vec<Vec<Operation>>, known: Vec<u64>) -> ProbeProgram {
        let admitted = Admitted { trip_counts: false, early_counts: EarlyCounts::Necessary, dominant: false };
        let program = ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), operations, admitted, plan);
        ProbeProgram { increments: Some(plan.probes.clone()), known: Some(known), ..program }
    }

    /// Of a plan's unknown paths, recognised by preferential numbering where they end: the plan's increments are those of `ending`, and its
    /// numbers those of all paths.
    pub fn from_preferential(graph: &Graph, plan: &Plan, ending: PathEnding, known: Vec<u64>) -> ProbeProgram {
        let looked_up = |operation: Operation| match operation {
            Operation::Count { increment } => Operation::Check { increment },
            other => other,
        };
        let operations = actions(graph, plan).into_iter().map(|edge| edge.into_iter().map(looked_up).collect()).collect();
        let program = ProbeProgram::from_lookups(graph, plan, operations, known);
        ProbeProgram { increments: None, cells: Cells::Preferential(ending), ..program }
    }

    /// Of every path, by a plan whose increments are those of `ending` and whose numbers are those of all paths.
    pub fn from_registers(graph: &Graph, plan: &Plan, ending: PathEnding) -> ProbeProgram {
        ProbeProgram { increments: None, cells: Cells::Preferential(ending), ..ProbeProgram::from_all(graph, plan) }
    }

    /// Of a plan's unknown paths, in a graph of several versions of the function.
    pub(crate) fn from_versions(
        (graph, order, origins): (Graph, Vec<Node>, Vec<Edge>),
        plan: &Plan,
        operations: Vec<Vec<Operation>>,
        (known, places, executions): (Vec<u64>, Vec<NodePlace>, Vec<u64>),
    ) -> ProbeProgram {
        let admitted = Admitted { trip_counts: true, early_counts: EarlyCounts::Necessary, dominant: true };
        let frame = ProgramFrame { graph, order, dag: plan.dag.clone(), origins: Some(origins) };
        let program = ProbeProgram::new(frame, operations, admitted, plan);
        let versions = Some(Versions { places, executions });
        ProbeProgram { increments: Some(plan.probes.clone()), known: Some(known), versions, ..program }
    }

    fn new(frame: ProgramFrame, operations: Vec<Vec<Operation>>, admitted: Admitted, plan: &Plan) -> ProbeProgram {
        let paths = NumberedPaths { dag: plan.numbered().clone(), numbering: plan.numbering.clone() };
        let (code, cells) = (Code::new(operations), Cells::Paths);
        ProbeProgram { frame, code, admitted, paths, increments: None, cells, known: None, versions: None, stream: None }
    }

    /// A plan's program, after the passes.
    pub fn from_graph(graph: &Graph, plan: &Plan, frequencies: &Frequencies, blocks: &BlockProperties, choices: Choices) -> ProbeProgram {
        let mut program = ProbeProgram::from_plan(graph, plan);
        program.run_passes(frequencies, blocks, choices);
        program
    }

    /// Runs the passes that are on and that the scheme admits. Frequencies are those of the function's edges; block
    /// properties are those of the program's graph, so of all versions if there are several.
    pub fn run_passes(&mut self, frequencies: &Frequencies, blocks: &BlockProperties, choices: Choices) {
        let own = self.own_frequencies(frequencies);
        Pass::ALL.into_iter().for_each(|pass| self.run(pass, own.as_ref().unwrap_or(frequencies), blocks, choices));
    }

    /// The same; the program is [verified](verify_counts) before the first pass and after each.
    ///
    /// # Errors
    /// The program does not count its paths, or does not do so any more after a pass.
    pub fn run_verified_passes(
        &mut self,
        frequencies: &Frequencies,
        blocks: &BlockProperties,
        choices: Choices,
        budget: &WalkBudget,
    ) -> Result<(), PassFault> {
        verify_counts(self, budget).map_err(|fault| PassFault { pass: None, fault })?;
        let own = self.own_frequencies(frequencies);
        for pass in Pass::ALL {
            self.run(pass, own.as_ref().unwrap_or(frequencies), blocks, choices);
            verify_counts(self, budget).map_err(|fault| PassFault { pass: Some(pass), fault })?;
        }
        Ok(())
    }

    /// Frequencies of the edges of several versions.
    fn own_frequencies(&self, frequencies: &Frequencies) -> Option<Frequencies> {
        let edges = self.frame.origins.as_ref()?.iter().map(|e| frequencies.edge(*e)).collect();
        Some(Frequencies::measured(&self.frame.graph, edges))
    }

    fn run(&mut self, pass: Pass, frequencies: &Frequencies, blocks: &BlockProperties, choices: Choices) {
        let ProbeProgram { frame, code, admitted, .. } = self;
        match pass {
            Pass::TripCounts if admitted.trip_counts => trip_counts::run(frame, code, frequencies, blocks, choices.trip_counts),
            Pass::EarlyCounts if admitted.early_counts != EarlyCounts::Nowhere => {
                early_counts::run(frame, code, frequencies, blocks, choices.early && admitted.early_counts == EarlyCounts::Worthwhile);
            }
            Pass::DominantIterations if admitted.dominant => dominant::run(frame, code, frequencies, blocks, choices.dominant),
            Pass::TripCounts | Pass::EarlyCounts | Pass::DominantIterations => {}
        }
    }

    /// Sets what is done on an edge. The caller verifies the program afterwards.
    pub fn set_operations(&mut self, edge: Edge, operations: Vec<Operation>) {
        self.code.operations[edge.index()] = operations;
    }

    /// If this is one copy's part, has its probes counted besides, wherever control takes an edge with some: to check what
    /// their hits are said to be.
    pub fn count_hits(&mut self) {
        let Cells::Labels { part, .. } = &self.cells else { return };
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

    /// The acyclic graph of all paths of the function.
    pub fn dag(&self) -> &Dag {
        &self.frame.dag
    }

    /// The paths that have numbers.
    pub fn paths(&self) -> &NumberedPaths {
        &self.paths
    }

    /// Increments by edge of [`ProbeProgram::dag`], if each path's sum is its number.
    pub fn increments(&self) -> Option<&Probes> {
        self.increments.as_ref()
    }

    /// Which counter counts which path.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Numbers of the paths that are not counted, since they are known; `None` if the program knows of none.
    pub fn known(&self) -> Option<&[u64]> {
        self.known.as_deref()
    }

    /// What the nodes of the graph but the exit are, if it is of several versions of a function's code.
    pub fn places(&self) -> Option<&[NodePlace]> {
        self.versions.as_ref().map(|v| v.places.as_slice())
    }

    /// How often known paths take an edge of several versions.
    pub fn executions(&self, edge: Edge) -> u64 {
        self.versions.as_ref().map_or(0, |v| v.executions[edge.index()])
    }

    /// Which of the function's edges an edge is.
    pub fn origin(&self, edge: Edge) -> Edge {
        self.frame.origin(edge)
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
    pub fn dominant(&self) -> &[DominantIterationCode] {
        &self.code.dominant
    }

    /// A dominant iteration.
    pub fn dominant_of(&self, id: DominantId) -> &DominantIterationCode {
        &self.code.dominant[id.0]
    }

    /// The edges that close loops which are counted by trip count.
    pub fn by_trip_count(&self) -> Vec<Edge> {
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

    /// Whether anything has to be done at all.
    pub fn has_any_code(&self) -> bool {
        self.frame.graph.edges().any(|e| self.has_code(e))
    }

    /// Whether the register's value in front of an edge matters.
    pub fn reads_register(&self, edge: Edge) -> bool {
        self.code.reads_register(edge)
    }

    /// Whether the path that goes on behind an edge, and does not end there, is counted on the edge.
    pub fn counts_early(&self, edge: Edge) -> bool {
        use Operation::{Check, Count, CountHits, Emit, LeaveCall, NoteCall};
        let last = self.code.on(edge).iter().rev().find(|o| !matches!(o, CountHits(_) | NoteCall | LeaveCall));
        self.frame.graph.to(edge) != self.frame.graph.exit() && matches!(last, Some(Count { .. } | Check { .. } | Emit { .. }))
    }
}

fn actions(graph: &Graph, plan: &Plan) -> Vec<Vec<Operation>> {
    graph.edges().map(|e| of_action(plan.action(graph, e))).collect()
}

/// What a plan says of an edge, as operations.
pub(crate) fn of_action(action: RegisterAction) -> Vec<Operation> {
    match action {
        RegisterAction::Add { increment } => add(increment).into_iter().collect(),
        RegisterAction::Count { increment } => vec![Operation::Count { increment }],
        RegisterAction::CountAndRestart { increment, start } => vec![Operation::Count { increment }, Operation::Set(start)],
        RegisterAction::Dead => vec![Operation::Unreachable],
    }
}
