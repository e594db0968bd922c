//! Probe programs: for each edge of a graph, an ordered list of operations on path register and counters.
//!
//! A scheme makes a program, and passes rewrite it so that fewer instructions run for the same counts: [trip counts](trip_counts), [early
//! counts](early_counts) and [dominant iterations](dominant). A backend (LLVM, the interpreter of [`verify`], breakpoints) carries a
//! program out and needs to know nothing about schemes. The verifier checks a program against the paths of its graph after every pass.
//! Passes keep the final counts, but may change when a count becomes visible in memory; they leave nodes with calls alone, so that only a
//! signal can observe that.

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

/// What a backend knows about a function beyond its graph, by number of node or edge.
#[derive(Clone, Debug)]
pub struct BlockProperties {
    /// Nodes whose code has no effect that can be observed from outside: no calls.
    pub quiet: Vec<bool>,
    /// Nodes whose count must be made on the edges into them, whatever the cost.
    pub must_count_early: Vec<bool>,
    /// Edges that can carry code.
    pub can_carry_code: Vec<bool>,
    /// Edges that can carry code without another jump.
    pub carries_code_for_free: Vec<bool>,
    /// Number of instructions of each node.
    pub sizes: Vec<u32>,
    /// Back edges on which control may change to another version of the code. Their loops cannot be counted by trip count.
    pub changes_version: BTreeSet<Edge>,
    /// For each of these back edges, how often it is taken per entry of the loop if the loop is left at the edge's tail, where that is a
    /// constant.
    pub trip_counts: BTreeMap<Edge, u64>,
    /// Back edges of loops whose iterations the program itself counts, so that their number is available for free.
    pub counted: BTreeSet<Edge>,
}

/// Which single-path loops are counted by trip count, of those that are expected to iterate often enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TripCounting {
    /// None.
    Off,
    /// Short loops, loops with a constant trip count, and loops with one exit edge whose iterations the program counts. In a short loop,
    /// the addition to the same word of memory is the bottleneck: it takes some five cycles, an iteration one or two. Longer iterations
    /// hide it.
    Tight,
    /// All.
    On,
}

/// Which passes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Which loops are counted by trip count.
    pub trip_counts: TripCounting,
    /// Whether counts are made early where that pays.
    pub early: bool,
    /// How the dominant iterations of short loops are counted.
    pub dominant: DominantCounting,
}

impl Choices {
    /// Keeps numbers of iterations in registers wherever that pays and the pass is on. A program that is killed inside a loop loses them.
    pub fn in_registers(self) -> Choices {
        let trip_counts = if self.trip_counts == TripCounting::Tight { TripCounting::On } else { self.trip_counts };
        let dominant = if self.dominant == DominantCounting::Split { DominantCounting::Register } else { self.dominant };
        Choices { trip_counts, dominant, ..self }
    }
}

/// A pass, in the order in which passes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Counts loops by their trip counts.
    TripCounts,
    /// Counts paths early.
    EarlyCounts,
    /// Separates the counts of dominant iterations from others.
    DominantIterations,
}

impl Pass {
    /// All passes.
    pub const ALL: [Pass; 3] = [Pass::TripCounts, Pass::EarlyCounts, Pass::DominantIterations];
}

/// A program does not count its paths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PassFault {
    /// The pass after which that is so; `None` if it is so before the first pass.
    pub pass: Option<Pass>,
    /// What is wrong.
    pub fault: ProgramFault,
}

impl fmt::Display for PassFault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.pass {
            None => write!(f, "the scheme's program miscounts its paths: {}", self.fault),
            Some(pass) => write!(f, "the program miscounts its paths after the pass {pass:?}: {}", self.fault),
        }
    }
}

/// The passes that a scheme permits.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    trip_counts: bool,
    early_counts: EarlyCounts,
    dominant: bool,
}

/// Where counts are made early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlyCounts {
    /// Nowhere: the scheme does so itself.
    Nowhere,
    /// Where it is necessary for exact counts.
    Necessary,
    /// Also where it pays.
    Worthwhile,
}

/// The operations on the edges of a graph, and the meaning of the counters.
#[derive(Clone, Debug)]
pub struct ProbeProgram {
    frame: ProgramFrame,
    code: Code,
    admitted: Admitted,
    paths: NumberedPaths,
    /// Increments by edge of the acyclic graph, if each path's sum of them is its number.
    increments: Option<Probes>,
    cells: Cells,
    /// If some paths are known and not counted: their numbers.
    known: Option<Vec<u64>>,
    versions: Option<Versions>,
    /// Set if paths are appended to a stream instead of counted.
    stream: Option<StreamEdges>,
}

/// Several versions of a function's code.
#[derive(Clone, Debug)]
struct Versions {
    /// What each node of the graph, except the exit, is a version of.
    places: Vec<NodePlace>,
    /// How often the known paths take each edge.
    executions: Vec<u64>,
}

impl ProbeProgram {
    /// The program of a plan, before any pass.
    pub fn from_plan(graph: &Graph, plan: &Plan) -> ProbeProgram {
        match (&plan.part, &plan.partial) {
            (Some(part), _) => ProbeProgram::from_part(graph, plan, part),
            (None, Some(_)) => ProbeProgram::leaving_out(graph, plan),
            (None, None) => ProbeProgram::from_all(graph, plan),
        }
    }

    /// Counts every path.
    fn from_all(graph: &Graph, plan: &Plan) -> ProbeProgram {
        let admitted = Admitted { trip_counts: true, early_counts: EarlyCounts::Worthwhile, dominant: true };
        let program = ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), actions(graph, plan), admitted, plan);
        ProbeProgram { increments: Some(plan.probes.clone()), ..program }
    }

    /// Counts the paths that do not end on edges which the plan leaves out.
    fn leaving_out(graph: &Graph, plan: &Plan) -> ProbeProgram {
        let admitted = Admitted { trip_counts: false, early_counts: EarlyCounts::Worthwhile, dominant: false };
        ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), actions(graph, plan), admitted, plan)
    }

    /// Counts one copy's part of the paths, at the ends of the paths already.
    fn from_part(graph: &Graph, plan: &Plan, part: &PartPlan) -> ProbeProgram {
        let admitted = Admitted { trip_counts: true, early_counts: EarlyCounts::Nowhere, dominant: false };
        let operations = part::operations(graph, &plan.dag, &part.part);
        let cells = Cells::Labels { labels: part.labels.clone(), cells: part.words, part: part.part.clone() };
        ProbeProgram { cells, ..ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), operations, admitted, plan) }
    }

    /// Counts every path of a plan whose increments sum to precise selective labels instead of numbers: no other path has the sum of an
    /// interesting one. `interesting` has an entry for each edge of the acyclic graph.
    pub fn from_labels(graph: &Graph, plan: &Plan, interesting: Vec<bool>) -> ProbeProgram {
        let admitted = Admitted { trip_counts: false, early_counts: EarlyCounts::Worthwhile, dominant: false };
        let program = ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), actions(graph, plan), admitted, plan);
        let (increments, last) = (plan.probes.increments().to_vec(), |edge: DagEdgeId| plan.dag.edge(edge).to == plan.dag.exit());
        let counted: Vec<bool> = plan.dag.edge_ids().map(last).collect();
        // Sums of increments after a node differ from sums of labels by one constant for all its edges, so they do not overlap either.
        let part = Part { interesting, values: increments.clone(), increments, offset: 0, ends: counted.clone(), counted };
        let cells = Cells::Labels { labels: part.values.clone(), cells: plan.numbering.paths(), part };
        ProbeProgram { cells, ..program }
    }

    /// Counts each interesting path in a counter of its own, and all others in one. Numbers are those of all paths.
    pub fn from_interesting(graph: &Graph, planned: InterestingPlan) -> ProbeProgram {
        let program = ProbeProgram::from_plan(graph, &planned.plan);
        let InterestingPlan { dag, numbering, ending, paths, aliases, proven, .. } = planned;
        let cells = Cells::Interesting(InterestingCells { ending, paths, aliases, proven });
        ProbeProgram { paths: NumberedPaths { dag, numbering }, increments: None, cells, ..program }
    }

    /// Counts a plan's unknown paths in a function that stays in one version: paths are looked up where they end.
    pub(crate) fn from_lookups(graph: &Graph, plan: &Plan, operations: Vec<Vec<Operation>>, known: Vec<u64>) -> ProbeProgram {
        let admitted = Admitted { trip_counts: false, early_counts: EarlyCounts::Necessary, dominant: false };
        let program = ProbeProgram::new(ProgramFrame::from_function(graph, &plan.dag), operations, admitted, plan);
        ProbeProgram { increments: Some(plan.probes.clone()), known: Some(known), ..program }
    }

    /// Counts a plan's unknown paths, which preferential numbering recognises where they end. The plan's increments are those of
    /// `ending`, and its numbers those of all paths.
    pub fn from_preferential(graph: &Graph, plan: &Plan, ending: PathEnding, known: Vec<u64>) -> ProbeProgram {
        let looked_up = |operation: Operation| match operation {
            Operation::Count { increment } => Operation::Check { increment },
            other => other,
        };
        let operations = actions(graph, plan).into_iter().map(|edge| edge.into_iter().map(looked_up).collect()).collect();
        let program = ProbeProgram::from_lookups(graph, plan, operations, known);
        ProbeProgram { increments: None, cells: Cells::Preferential(ending), ..program }
    }

    /// Counts every path by a plan whose increments are those of `ending`, and whose numbers are those of all paths.
    pub fn from_register_ending(graph: &Graph, plan: &Plan, ending: PathEnding) -> ProbeProgram {
        ProbeProgram { increments: None, cells: Cells::Preferential(ending), ..ProbeProgram::from_all(graph, plan) }
    }

    /// Counts a plan's unknown paths in a graph of several versions of the function.
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

    /// The program of a plan, after the passes.
    pub fn from_graph(graph: &Graph, plan: &Plan, frequencies: &Frequencies, blocks: &BlockProperties, choices: Choices) -> ProbeProgram {
        let mut program = ProbeProgram::from_plan(graph, plan);
        program.run_passes(frequencies, blocks, choices);
        program
    }

    /// Runs the passes that are switched on and that the scheme permits. Frequencies are those of the function's edges; block properties
    /// are those of the program's graph, which may have several versions.
    pub fn run_passes(&mut self, frequencies: &Frequencies, blocks: &BlockProperties, choices: Choices) {
        let own = self.own_frequencies(frequencies);
        Pass::ALL.into_iter().for_each(|pass| self.run(pass, own.as_ref().unwrap_or(frequencies), blocks, choices));
    }

    /// Like [`ProbeProgram::run_passes`], but [verifies](verify_counts) the program before the first pass and after each.
    ///
    /// # Errors
    /// The program miscounts its paths, from the start or after a pass.
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

    /// Frequencies of the edges of this graph, if it has several versions.
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

    /// Replaces the operations on an edge. The caller should verify the program afterwards.
    pub fn set_operations(&mut self, edge: Edge, operations: Vec<Operation>) {
        self.code.operations[edge.index()] = operations;
    }

    /// If this is one copy's part, makes the program count the hits of its probes as well, to verify the predicted ones.
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

    /// The nodes except the exit, in topological order of the paths.
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

    /// Numbers of the paths that are not counted because they are known; `None` if the program knows no paths.
    pub fn known(&self) -> Option<&[u64]> {
        self.known.as_deref()
    }

    /// What each node, except the exit, is a version of; `None` if the program has a single version of the function.
    pub fn places(&self) -> Option<&[NodePlace]> {
        self.versions.as_ref().map(|v| v.places.as_slice())
    }

    /// How often known paths take an edge; 0 if the program has a single version of the function.
    pub fn executions(&self, edge: Edge) -> u64 {
        self.versions.as_ref().map_or(0, |v| v.executions[edge.index()])
    }

    /// The function's edge that an edge stands for.
    pub fn origin(&self, edge: Edge) -> Edge {
        self.frame.origin(edge)
    }

    /// The cut on an edge, if it is cut.
    pub fn cut(&self, edge: Edge) -> Option<&Cut> {
        self.frame.cut(edge)
    }

    /// The operations on an edge, in order.
    pub fn operations(&self, edge: Edge) -> &[Operation] {
        self.code.on(edge)
    }

    /// The loops that are counted by trip count.
    pub fn loops(&self) -> &[TripCountedLoop] {
        &self.code.loops
    }

    /// The loop with this number.
    pub fn loop_by_id(&self, id: LoopId) -> &TripCountedLoop {
        &self.code.loops[id.0]
    }

    /// The dominant iterations that are counted separately, on the back edges of their loops.
    pub fn dominant(&self) -> &[DominantIterationCode] {
        &self.code.dominant
    }

    /// The dominant iteration with this number.
    pub fn dominant_by_id(&self, id: DominantId) -> &DominantIterationCode {
        &self.code.dominant[id.0]
    }

    /// The back edges of the loops that are counted by trip count.
    pub fn trip_counted_back_edges(&self) -> Vec<Edge> {
        self.code.loops.iter().map(|l| l.back).collect()
    }

    /// Whether an edge is never taken.
    pub fn is_dead(&self, edge: Edge) -> bool {
        self.code.is_dead(edge)
    }

    /// Whether an edge needs code.
    pub fn has_code(&self, edge: Edge) -> bool {
        self.code.has_code(edge)
    }

    /// Whether any edge needs code.
    pub fn has_any_code(&self) -> bool {
        self.frame.graph.edges().any(|e| self.has_code(e))
    }

    /// Whether the register's value before an edge is used later.
    pub fn reads_register(&self, edge: Edge) -> bool {
        self.code.reads_register(edge)
    }

    /// Whether an edge counts the path that continues after it.
    pub fn counts_early(&self, edge: Edge) -> bool {
        use Operation::{Check, Count, CountHits, Emit, LeaveCall, NoteCall};
        let last = self.code.on(edge).iter().rev().find(|o| !matches!(o, CountHits(_) | NoteCall | LeaveCall));
        self.frame.graph.to(edge) != self.frame.graph.exit() && matches!(last, Some(Count { .. } | Check { .. } | Emit { .. }))
    }
}

fn actions(graph: &Graph, plan: &Plan) -> Vec<Vec<Operation>> {
    graph.edges().map(|e| operations_of_action(plan.action(graph, e))).collect()
}

/// The operations of a plan's action.
pub(crate) fn operations_of_action(action: RegisterAction) -> Vec<Operation> {
    match action {
        RegisterAction::Add { increment } => add(increment).into_iter().collect(),
        RegisterAction::Count { increment } => vec![Operation::Count { increment }],
        RegisterAction::CountAndRestart { increment, start } => vec![Operation::Count { increment }, Operation::Set(start)],
        RegisterAction::Dead => vec![Operation::Unreachable],
    }
}
