//! Probe programs: an ordered list of operations on the path register and the counters for each edge of a graph.
//!
//! A scheme creates a program, and passes rewrite it so that fewer instructions produce the same counts: [trip counts](trip_counts), [early
//! counts](early_counts) and [dominant iterations](dominant). A backend (LLVM, the interpreter of [`verify`], breakpoints) executes a
//! program independently of its scheme. The verifier checks a program against the paths of its graph after each pass. Passes do not change
//! final counts, but may change the time at which a count becomes visible in memory. They do not move counts over calls, so only a signal
//! handler can observe a different time.

mod cells;
mod code;
mod dominant;
mod early_counts;
mod ends;
pub mod machine;
pub mod operation;
mod part;
mod place;
mod stream;
mod text;
mod trip_counts;
pub mod verify;

use crate::dag::{Cut, Dag, DagEdgeSet};
use crate::frequency::Frequencies;
use crate::graph::{Edge, EdgeSet, Graph, Node, NodeSet};
use crate::interesting::{InterestingPathPlan, PathEndCounterMapping};
use crate::numbering::NumberedPaths;
use crate::part::{Part, ProbeHits};
use crate::placement::Probes;
use crate::plan::{PartPlan, Plan, RegisterAction};
use code::EdgeCode;
pub(crate) use code::ProgramGraphs;
use operation::{DominantId, LoopId, Operation, add};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use verify::{ProgramFault, WalkBudget, verify_counts};

pub use cells::{CounterCells, InterestingPathCells};
pub use code::{DominantIterationCode, RegisterCountedIteration, TripCountedLoop};
pub use dominant::DominantCounting;
pub use place::{CodeVersion, NodePlace};
pub use stream::StreamEdges;

/// Properties of a function's code that its graph does not contain.
#[derive(Clone, Debug)]
pub struct BlockProperties {
    /// Nodes whose code has no effect that can be observed from outside (it makes no calls).
    pub quiet: NodeSet,
    /// Nodes that only return the result of a tail call. The callee may not return, so their count must be moved to their in-edges.
    pub must_count_early: NodeSet,
    /// Edges on which code can be inserted.
    pub can_carry_code: EdgeSet,
    /// Edges on which code can be inserted without an additional jump.
    pub carries_code_for_free: EdgeSet,
    /// Number of instructions of each node.
    pub sizes: Vec<u32>,
    /// Back edges on which control may change to a different version of the code. Their loops cannot be counted by trip count.
    pub changes_version: BTreeSet<Edge>,
    /// Number of executions of a back edge per entry of its loop, if this number is constant and the loop is left at the edge's tail.
    pub trip_counts: BTreeMap<Edge, u64>,
    /// Back edges of loops whose iterations the program itself counts, so that their number is available at no cost.
    pub counted: BTreeSet<Edge>,
}

/// Which single-path loops are counted by trip count, among those with enough expected iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TripCounting {
    /// No loops.
    Off,
    /// Short loops, loops with a constant trip count, and loops with one exit edge whose iterations the program counts. In a short loop,
    /// repeated additions to the same word in memory are the bottleneck, because an addition takes about five cycles and an iteration only
    /// one or two. Longer iterations hide this latency.
    Tight,
    /// All loops.
    On,
}

/// Which counts are moved to earlier edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EarlyCounting {
    /// No count is moved, because the scheme itself counts early.
    Never,
    /// Counts are moved only if they would otherwise be wrong.
    IfNecessary,
    /// Counts are moved if they would otherwise be wrong, or if that is profitable.
    IfProfitable,
}

/// Options of the passes. The kind of data that is recorded determines which options a function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassChoices {
    /// Which loops are counted by trip count.
    pub trip_counts: TripCounting,
    /// Which counts are moved to earlier edges.
    pub early: EarlyCounting,
    /// How the dominant iterations of short loops are counted.
    pub dominant: DominantCounting,
}

impl PassChoices {
    /// Counts every path separately, where it ends.
    pub const COUNTING_AT_PATH_ENDS: PassChoices =
        PassChoices { trip_counts: TripCounting::Off, early: EarlyCounting::IfNecessary, dominant: DominantCounting::Shared };

    /// Restricts each of these passes to what `limit` allows.
    #[must_use]
    pub fn limited_to(self, limit: PassChoices) -> PassChoices {
        PassChoices {
            trip_counts: self.trip_counts.min(limit.trip_counts),
            early: self.early.min(limit.early),
            dominant: self.dominant.min(limit.dominant),
        }
    }

    /// Counts iterations in registers where that is profitable. If a program is killed inside a loop, these counts are lost.
    pub fn accumulating_in_registers(self) -> PassChoices {
        let trip_counts = if self.trip_counts == TripCounting::Tight { TripCounting::On } else { self.trip_counts };
        let dominant = if self.dominant == DominantCounting::Split { DominantCounting::Register } else { self.dominant };
        PassChoices { trip_counts, dominant, ..self }
    }
}

/// A pass. The variants are in the order in which passes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Counts loops by their trip counts.
    TripCounts,
    /// Counts paths early.
    EarlyCounts,
    /// Separates the counts of dominant iterations from all other counts.
    DominantIterations,
}

impl Pass {
    /// All passes.
    pub const ALL: [Pass; 3] = [Pass::TripCounts, Pass::EarlyCounts, Pass::DominantIterations];
}

/// The verifier found that a program miscounts its paths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct PassFault {
    /// The pass after which the fault was found, or `None` if it was found before the first pass.
    pub pass: Option<Pass>,
    /// The fault.
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

/// The operations on the edges of a graph, and the meaning of the counters.
#[derive(Clone, Debug)]
pub struct ProbeProgram {
    frame: ProgramGraphs,
    code: EdgeCode,
    paths: NumberedPaths,
    /// The increments by edge of the acyclic graph, or `None` if a path's increments do not sum to its number.
    increments: Option<Probes>,
    cells: CounterCells,
    /// Numbers of the known paths, which are not counted, or `None` if all paths are counted.
    known: Option<Vec<u64>>,
    versions: Option<CodeVersions>,
    /// The edges on which calls end if paths are appended to a stream, or `None` if paths are counted.
    stream: Option<StreamEdges>,
}

/// Several versions of a function's code.
#[derive(Clone, Debug)]
pub(crate) struct CodeVersions {
    /// For each node of the graph except the exit, the function's node and its version.
    pub places: Vec<NodePlace>,
    /// Number of executions of each edge by known paths.
    pub executions: Vec<u64>,
}

impl ProbeProgram {
    /// Creates the program of a plan, without running passes.
    pub fn from_plan(graph: &Graph, plan: &Plan) -> ProbeProgram {
        match (&plan.part, &plan.partial) {
            (Some(part), _) => ProbeProgram::from_part(graph, plan, part),
            // Counts all paths except those that the plan omits.
            (None, Some(_)) => ProbeProgram::from_actions(graph, plan),
            (None, None) => ProbeProgram::from_complete(graph, plan),
        }
    }

    fn from_complete(graph: &Graph, plan: &Plan) -> ProbeProgram {
        ProbeProgram { increments: Some(plan.probes.clone()), ..ProbeProgram::from_actions(graph, plan) }
    }

    fn from_actions(graph: &Graph, plan: &Plan) -> ProbeProgram {
        ProbeProgram::new(ProgramGraphs::from_function(graph, &plan.dag), actions(graph, plan), plan)
    }

    /// Creates the program that counts the paths of one of several copies, each at its end ([`crate::part::PathEnds`]).
    fn from_part(graph: &Graph, plan: &Plan, part: &PartPlan) -> ProbeProgram {
        let operations = part::operations(graph, &plan.dag, &part.part);
        let cells = CounterCells::Labels { labels: part.labels.clone(), cells: part.words, part: part.part.clone() };
        ProbeProgram { cells, ..ProbeProgram::new(ProgramGraphs::from_function(graph, &plan.dag), operations, plan) }
    }

    /// Creates the program that counts all paths of a plan whose increments sum to precise selective labels instead of numbers, so that
    /// only interesting paths have unique sums. `interesting` contains edges of the acyclic graph.
    pub fn from_labels(graph: &Graph, plan: &Plan, interesting: DagEdgeSet) -> ProbeProgram {
        let program = ProbeProgram::from_actions(graph, plan);
        let increments = plan.probes.increments().to_vec();
        let counted = DagEdgeSet::from_members(plan.dag.edges().len(), plan.dag.incoming(plan.dag.exit()).iter().copied());
        // At each node, the sums of increments differ from the sums of labels by a constant, so their ranges are also disjoint.
        let part = Part { interesting, values: increments.clone(), increments, offset: 0, ends: counted.clone(), counted };
        let cells = CounterCells::Labels { labels: part.values.clone(), cells: plan.numbering.paths(), part };
        ProbeProgram { cells, ..program }
    }

    /// Creates the program that counts each interesting path separately, and all others in one counter. A path's number is its number among
    /// all paths.
    pub fn from_interesting(graph: &Graph, planned: InterestingPathPlan) -> ProbeProgram {
        let program = ProbeProgram::from_plan(graph, &planned.plan);
        let InterestingPathPlan { dag, numbering, ending, paths, aliases, proven, .. } = planned;
        let cells = CounterCells::Interesting(InterestingPathCells { ending, paths, aliases, proven });
        ProbeProgram { paths: NumberedPaths { dag, numbering }, increments: None, cells, ..program }
    }

    /// Creates the program that counts the paths of a plan that are not in `known`, in a single version of the code. Each path is looked up
    /// at its end.
    pub(crate) fn from_lookups(graph: &Graph, plan: &Plan, operations: Vec<Vec<Operation>>, known: Vec<u64>) -> ProbeProgram {
        let program = ProbeProgram::new(ProgramGraphs::from_function(graph, &plan.dag), operations, plan);
        ProbeProgram { increments: Some(plan.probes.clone()), known: Some(known), ..program }
    }

    /// Creates the program that counts the paths of a plan that are not in `known`. Known paths are recognised at their end by preferential
    /// numbers. The plan's increments must belong to `ending`, and its numbering to all paths.
    pub fn from_preferential(graph: &Graph, plan: &Plan, ending: PathEndCounterMapping, known: Vec<u64>) -> ProbeProgram {
        let looked_up = |operation: Operation| match operation {
            Operation::Count { increment } => Operation::Check { increment },
            other => other,
        };
        let operations = actions(graph, plan).into_iter().map(|edge| edge.into_iter().map(looked_up).collect()).collect();
        let program = ProbeProgram::from_lookups(graph, plan, operations, known);
        ProbeProgram { increments: None, cells: CounterCells::Preferential(ending), ..program }
    }

    /// Creates the program that counts all paths, and finds each path's counter by `ending`, to which the plan's increments must belong.
    /// The numbering is of all paths.
    pub fn from_register_ending(graph: &Graph, plan: &Plan, ending: PathEndCounterMapping) -> ProbeProgram {
        ProbeProgram { increments: None, cells: CounterCells::Preferential(ending), ..ProbeProgram::from_complete(graph, plan) }
    }

    /// Creates the program that counts the paths of a plan that are not in `known`, in a graph with several versions of the function.
    pub(crate) fn from_versions(
        frame: ProgramGraphs,
        plan: &Plan,
        operations: Vec<Vec<Operation>>,
        versions: CodeVersions,
        known: Vec<u64>,
    ) -> ProbeProgram {
        let program = ProbeProgram::new(frame, operations, plan);
        ProbeProgram { increments: Some(plan.probes.clone()), known: Some(known), versions: Some(versions), ..program }
    }

    fn new(frame: ProgramGraphs, operations: Vec<Vec<Operation>>, plan: &Plan) -> ProbeProgram {
        let paths = NumberedPaths { dag: plan.numbered().clone(), numbering: plan.numbering.clone() };
        let (code, cells) = (EdgeCode::new(operations), CounterCells::Paths);
        ProbeProgram { frame, code, paths, increments: None, cells, known: None, versions: None, stream: None }
    }

    /// Creates the program of a plan and runs the passes.
    pub fn from_graph(
        graph: &Graph,
        plan: &Plan,
        frequencies: &Frequencies,
        blocks: &BlockProperties,
        choices: PassChoices,
    ) -> ProbeProgram {
        let mut program = ProbeProgram::from_plan(graph, plan);
        program.run_passes(frequencies, blocks, choices);
        program
    }

    /// Runs the chosen passes. `frequencies` belong to the function's graph, `blocks` to the program's, which may have several versions.
    pub fn run_passes(&mut self, frequencies: &Frequencies, blocks: &BlockProperties, choices: PassChoices) {
        let own = self.frequencies_of_versions(frequencies);
        Pass::ALL.into_iter().for_each(|pass| self.run_pass(pass, own.as_ref().unwrap_or(frequencies), blocks, choices));
    }

    /// Like [`ProbeProgram::run_passes`], but [verifies](verify_counts) the program before the first pass and after each pass.
    pub fn run_verified_passes(
        &mut self,
        frequencies: &Frequencies,
        blocks: &BlockProperties,
        choices: PassChoices,
        budget: &WalkBudget,
    ) -> Result<(), PassFault> {
        verify_counts(self, budget).map_err(|fault| PassFault { pass: None, fault })?;
        let own = self.frequencies_of_versions(frequencies);
        for pass in Pass::ALL {
            self.run_pass(pass, own.as_ref().unwrap_or(frequencies), blocks, choices);
            verify_counts(self, budget).map_err(|fault| PassFault { pass: Some(pass), fault })?;
        }
        Ok(())
    }

    /// Returns the frequencies of the edges of the program's graph, or `None` if that is the function's graph, to which `frequencies`
    /// belongs.
    fn frequencies_of_versions(&self, frequencies: &Frequencies) -> Option<Frequencies> {
        let edges = self.frame.origins.as_ref()?.iter().map(|e| frequencies.edge(*e)).collect();
        Some(Frequencies::from_measured_counts(&self.frame.graph, edges))
    }

    fn run_pass(&mut self, pass: Pass, frequencies: &Frequencies, blocks: &BlockProperties, choices: PassChoices) {
        let ProbeProgram { frame, code, .. } = self;
        match pass {
            Pass::TripCounts => trip_counts::count_loops_by_trip_count(frame, code, frequencies, blocks, choices.trip_counts),
            Pass::EarlyCounts => early_counts::move_counts_early(frame, code, frequencies, blocks, choices.early),
            Pass::DominantIterations => dominant::count_dominant_iterations(frame, code, frequencies, blocks, choices.dominant),
        }
    }

    /// Replaces the operations on an edge. The program should be verified afterwards.
    pub fn set_operations(&mut self, edge: Edge, operations: Vec<Operation>) {
        self.code.operations[edge.index()] = operations;
    }

    /// Adds counters for executed probes, whose values are compared with the prediction. Changes nothing unless paths are divided among
    /// several copies of the function.
    pub fn count_hits(&mut self) {
        let CounterCells::Labels { part, .. } = &self.cells else { return };
        for edge in self.frame.graph.edges() {
            let hits = part::probe_hits(&self.frame.dag, part, edge);
            if hits != ProbeHits::default() {
                self.code.operations[edge.index()].push(Operation::CountHits(hits));
            }
        }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        &self.frame.graph
    }

    /// Returns the nodes except the exit, in topological order of the paths.
    pub fn order(&self) -> &[Node] {
        &self.frame.order
    }

    /// Returns the acyclic graph of all paths of the function.
    pub fn dag(&self) -> &Dag {
        &self.frame.dag
    }

    /// Returns the acyclic graph of the numbered paths, with their numbering.
    pub fn paths(&self) -> &NumberedPaths {
        &self.paths
    }

    /// Returns the increments by edge of [`ProbeProgram::dag`], or `None` if a path's increments do not sum to its number.
    pub fn increments(&self) -> Option<&Probes> {
        self.increments.as_ref()
    }

    /// Returns the mapping of paths to counters.
    pub fn cells(&self) -> &CounterCells {
        &self.cells
    }

    /// Returns the numbers of the known paths, which are not counted, or `None` if all paths are counted.
    pub fn known(&self) -> Option<&[u64]> {
        self.known.as_deref()
    }

    /// Returns the function's node and version for each node except the exit, or `None` if there is only a single version.
    pub fn places(&self) -> Option<&[NodePlace]> {
        self.versions.as_ref().map(|v| v.places.as_slice())
    }

    /// Returns how often known paths execute an edge, or 0 if the program has a single version of the function.
    pub fn executions(&self, edge: Edge) -> u64 {
        self.versions.as_ref().map_or(0, |v| v.executions[edge.index()])
    }

    /// Returns the function's edge to which an edge corresponds.
    pub fn origin(&self, edge: Edge) -> Edge {
        self.frame.origin(edge)
    }

    /// Returns the cut of an edge, or `None` if the edge is not cut.
    pub fn cut(&self, edge: Edge) -> Option<&Cut> {
        self.frame.cut(edge)
    }

    /// Returns the operations on an edge, in order.
    pub fn operations(&self, edge: Edge) -> &[Operation] {
        self.code.operations_on(edge)
    }

    /// Returns the loops that are counted by trip count.
    pub fn loops(&self) -> &[TripCountedLoop] {
        &self.code.loops
    }

    /// Returns the loop with the given ID.
    pub fn loop_by_id(&self, id: LoopId) -> &TripCountedLoop {
        &self.code.loops[id.0]
    }

    /// Returns the dominant iterations that are counted separately.
    pub fn dominant(&self) -> &[DominantIterationCode] {
        &self.code.dominant
    }

    /// Returns the dominant iteration with the given ID.
    pub fn dominant_by_id(&self, id: DominantId) -> &DominantIterationCode {
        &self.code.dominant[id.0]
    }

    /// Returns the back edges of the loops that are counted by trip count.
    pub fn trip_counted_back_edges(&self) -> Vec<Edge> {
        self.code.loops.iter().map(|l| l.back).collect()
    }

    /// Returns whether an edge is never taken.
    pub fn is_dead(&self, edge: Edge) -> bool {
        self.code.is_dead(edge)
    }

    /// Returns whether an edge needs code.
    pub fn has_code(&self, edge: Edge) -> bool {
        self.code.has_code(edge)
    }

    /// Returns whether any edge needs code.
    pub fn has_any_code(&self) -> bool {
        self.frame.graph.edges().any(|e| self.has_code(e))
    }

    /// Returns whether the register's value before an edge is used on or after it.
    pub fn reads_register(&self, edge: Edge) -> bool {
        self.code.reads_register(edge)
    }

    /// Returns whether an edge counts a path that continues after it.
    pub fn counts_before_path_end(&self, edge: Edge) -> bool {
        use Operation::{Check, Count, CountHits, Emit, LeaveCall, NoteCall};
        let last = self.code.operations_on(edge).iter().rev().find(|o| !matches!(o, CountHits(_) | NoteCall | LeaveCall));
        self.frame.graph.to(edge) != self.frame.graph.exit() && matches!(last, Some(Count { .. } | Check { .. } | Emit { .. }))
    }
}

fn actions(graph: &Graph, plan: &Plan) -> Vec<Vec<Operation>> {
    graph.edges().map(|e| operations_of_action(plan.action(graph, e))).collect()
}

pub(crate) fn operations_of_action(action: RegisterAction) -> Vec<Operation> {
    match action {
        RegisterAction::Add { increment } => add(increment).into_iter().collect(),
        RegisterAction::Count { increment } => vec![Operation::Count { increment }],
        RegisterAction::CountAndRestart { increment, start } => vec![Operation::Count { increment }, Operation::Set(start)],
        RegisterAction::Dead => vec![Operation::Unreachable],
    }
}
