//! Partitioned path profiling: divides the paths of a program among several copies of it, so that together they count every path, and
//! even the slowest copy is fast.
//!
//! Source: M. Afraz, D. Saha and A. Kanade, "P3: partitioned path profiling" (ESEC/FSE 2015), algorithm 2 and section 4;
//! [`PartitionStrategy::Weighted`] is our own.
//!
//! Invariants of a [`PartitionPlan`]: every path lies entirely within the interesting edges of at least one copy; within a part, all
//! interesting paths have different sums of increments; a counter incremented by an interesting path is incremented by no other path.
#![forbid(unsafe_code)]

mod anneal;
pub mod bounded;
pub mod cross_check;
pub mod edges;
pub mod exact;
pub mod hits;
pub mod lower_bound;
pub mod published;
pub mod reduce;
pub mod separation_bound;
pub mod setup;
pub mod single_path_bound;
pub mod tasks;
mod weighing;
pub mod weighted;

pub use lower_bound::LowerBound;

use trodden_flow::part::{Measure, Part};
use trodden_flow::{Dag, DagEdgeId};

/// A procedure to be profiled, and what is known about its executions.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// Acyclic graph of the procedure's paths.
    pub dag: Dag,
    /// Number of executions of each edge of `dag`, measured or estimated.
    pub frequencies: Vec<u64>,
    /// Executed paths, if they were measured.
    pub paths: Vec<ExecutedPath>,
    /// Number of call sites; `None` if unknown.
    pub call_sites: Option<u32>,
    /// Index of the procedure's compilation unit. A copy that counts in only a few units is quick to build.
    pub unit: usize,
}

/// A measured path, identified by the first edge after which only one path to the exit remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedPath {
    /// The path's [end](trodden_flow::part::PathEnds), which is this edge.
    pub end: DagEdgeId,
    /// Number of executions.
    pub count: u64,
    /// True if the path is a prefix of another one. It is then counted where the longer path continues, and has the labels of that path.
    pub in_passing: bool,
}

/// A way to distribute paths over copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionStrategy {
    /// Sequential Ball-Larus: a single copy profiles everything.
    Sbl,
    /// Parallel Ball-Larus: distributes whole procedures by their number of probes.
    Pbl,
    /// Partitioned path profiling as published.
    P3,
    /// Distributes the ends of paths by measured frequencies, with a local search.
    Weighted,
}

/// Options of a partition, other than its strategy.
#[derive(Clone, Copy, Debug)]
pub struct PartitionOptions {
    /// Number of copies; 0 is treated as 1.
    pub copies: usize,
    /// Which procedures [`PartitionStrategy::P3`] partitions, and how finely.
    pub profitable: ProfitableProcedures,
    /// True if diamonds and triangles are folded repeatedly until none is left. In the paper, they are folded once.
    pub fold_again: bool,
    /// The cost to minimise.
    pub measure: Measure,
}

impl PartitionOptions {
    /// Returns the published options for this number of copies.
    pub fn new(copies: usize, measure: Measure) -> PartitionOptions {
        PartitionOptions { copies, profitable: ProfitableProcedures::default(), fold_again: false, measure }
    }
}

/// The procedures that P3 considers profitable, and the number of tasks into which it divides them. The paper's conclusion leaves both
/// open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfitableProcedures {
    /// Maximum number of call sites: procedures with more are not partitioned. The paper uses 1.
    pub max_callers: u32,
    /// Number of tasks at which the division of a procedure stops. `None` means the published value: the larger of the entry's out-degree
    /// and the number of copies.
    pub threshold: Option<usize>,
}

impl ProfitableProcedures {
    /// All procedures, with any number of call sites.
    pub const ALL: ProfitableProcedures = ProfitableProcedures { max_callers: u32::MAX, threshold: None };

    /// Returns true if a procedure has few enough call sites. If their number is unknown, returns true only if there is no limit.
    pub fn has_few_callers(&self, procedure: &Procedure) -> bool {
        procedure.call_sites.map_or(self.max_callers == u32::MAX, |sites| sites <= self.max_callers)
    }

    /// Returns the number of tasks at which the division of this graph stops.
    pub fn threshold(&self, dag: &Dag, copies: usize) -> usize {
        self.threshold.unwrap_or_else(|| dag.out(dag.entry()).len().max(copies))
    }
}

impl Default for ProfitableProcedures {
    fn default() -> Self {
        ProfitableProcedures { max_callers: 1, threshold: None }
    }
}

/// What each copy of the program counts: its part of each procedure.
#[derive(Clone, Debug)]
pub struct PartitionPlan {
    /// The copies.
    pub copies: Vec<CopyPlan>,
    /// Number of procedures that were divided.
    pub profitable: usize,
}

/// What one copy of the program counts.
#[derive(Clone, Debug)]
pub struct CopyPlan {
    /// The copy's part of each procedure; `None` if it counts no path of that procedure.
    pub parts: Vec<Option<Part>>,
}

/// Distributes the paths of the procedures over copies.
pub fn plan(procedures: &[Procedure], strategy: PartitionStrategy, options: &PartitionOptions) -> PartitionPlan {
    match strategy {
        PartitionStrategy::Sbl => published::plan_by_sequential_ball_larus(procedures, options),
        PartitionStrategy::Pbl => published::plan_by_parallel_ball_larus(procedures, options),
        PartitionStrategy::P3 => published::plan_by_partitioned_profiling(procedures, options),
        PartitionStrategy::Weighted => weighted::plan(procedures, options),
    }
}
