//! Partitioned path profiling: which copy of a program profiles which paths, so that the slowest copy is fast and all
//! copies together know every path.
//!
//! Source: M. Afraz, D. Saha and A. Kanade, "P3: partitioned path profiling" (ESEC/FSE 2015), algorithm 2 and section
//! 4; the strategy [`PartitionStrategy::Weighted`] is ours. From procedures to a plan:
//!
//! 1. a [`Procedure`] is an acyclic graph with measured or estimated frequencies;
//! 2. a [`PartitionStrategy`] gives each copy some of the paths of each procedure: as published by tasks on a reduced graph
//!    ([`tasks`], [`published`]), or by the [ends](trodden_flow::part::Ends) of paths ([`weighted`], [`exact`]);
//! 3. a [`Part`] is what one copy does in one procedure: interesting edges, increments, and where it counts. It is `flow`'s, which
//!    makes a probe program of it;
//!    Or the size of a copy is bounded, and their number follows ([`bounded`]);
//! 4. some paths are counted by all copies ([`cross_check`]), so that they can be compared;
//! 5. [`hits`] is what a plan costs, exactly, and [`lower_bound`] what every plan costs at least ([`separation_bound`],
//!    [`single_path_bound`]).
//!
//! Invariants of a [`PartitionPlan`]: every path lies wholly within the interesting edges of at least one copy; in each part the
//! interesting paths have different sums of increments; what is counted at an interesting path's end with its sum is
//! that path's executions and no other's.
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
pub mod single_path_bound;
pub mod tasks;
mod weighing;
pub mod weighted;

pub use lower_bound::LowerBound;

use trodden_flow::part::{Measure, Part};
use trodden_flow::{Dag, DagEdgeId};

/// A procedure to be profiled, and what is known of its executions.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// Its paths.
    pub dag: Dag,
    /// Executions of each edge of the DAG, measured or estimated.
    pub frequencies: Vec<u64>,
    /// Executed paths, as far as they were measured.
    pub paths: Vec<ExecutedPath>,
    /// From how many places it is called; `None` if unknown.
    pub call_sites: Option<u32>,
    /// The unit that it is compiled in, by a number: a copy that counts in few units takes little time to make.
    pub unit: usize,
}

/// A measured path, by the edge where its identity is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedPath {
    /// Its [end](trodden_flow::part::Ends).
    pub end: DagEdgeId,
    /// Executions.
    pub count: u64,
    /// It is but the beginning of another path, counted in passing: its labels are that path's.
    pub in_passing: bool,
}

/// How paths are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionStrategy {
    /// Sequential Ball-Larus: one copy profiles everything.
    Sbl,
    /// Parallel Ball-Larus: whole procedures, by their numbers of probes.
    Pbl,
    /// Partitioned path profiling as published.
    P3,
    /// By measured frequencies and the ends of paths, with search.
    Weighted,
}

/// Choices beyond the strategy.
#[derive(Clone, Copy, Debug)]
pub struct PartitionOptions {
    /// Number of copies, from 1.
    pub copies: usize,
    /// Which procedures are partitioned, and how finely (for [`PartitionStrategy::P3`]).
    pub profitable: ProfitableProcedures,
    /// Diamonds and triangles are folded until nothing folds, rather than once as published.
    pub fold_again: bool,
    /// What is to be small.
    pub measure: Measure,
}

impl PartitionOptions {
    /// As published, for so many copies.
    pub fn new(copies: usize, measure: Measure) -> PartitionOptions {
        PartitionOptions { copies, profitable: ProfitableProcedures::default(), fold_again: false, measure }
    }
}

/// Which procedures P3 takes for profitable, and how many tasks it makes of them: the paper's conclusion leaves both open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfitableProcedures {
    /// Call sites of a procedure at most: what is called from more places is not partitioned. As published, 1.
    pub max_callers: u32,
    /// The number of tasks at which no more are made; as published, the out-degree of the entry or the number of copies, whichever is more.
    pub threshold: Option<usize>,
}

impl ProfitableProcedures {
    /// However often they are called.
    pub const ALL: ProfitableProcedures = ProfitableProcedures { max_callers: u32::MAX, threshold: None };

    /// Whether a procedure's callers are few enough. Of one whose callers are not known, only if all are.
    pub fn has_few_callers(&self, procedure: &Procedure) -> bool {
        procedure.call_sites.map_or(self.max_callers == u32::MAX, |sites| sites <= self.max_callers)
    }

    /// The number of tasks of a graph at which no more are made.
    pub fn threshold(&self, dag: &Dag, copies: usize) -> usize {
        self.threshold.unwrap_or_else(|| dag.out(dag.entry()).len().max(copies))
    }
}

impl Default for ProfitableProcedures {
    fn default() -> Self {
        ProfitableProcedures { max_callers: 1, threshold: None }
    }
}

/// What each copy does in each procedure.
#[derive(Clone, Debug)]
pub struct PartitionPlan {
    /// The copies.
    pub copies: Vec<CopyPlan>,
    /// Procedures whose paths more than one task holds, and that may be partitioned.
    pub profitable: usize,
}

/// What one copy does: a part for each procedure in which it profiles anything.
#[derive(Clone, Debug)]
pub struct CopyPlan {
    /// By procedure.
    pub parts: Vec<Option<Part>>,
}

/// Distributes the procedures' paths over copies.
pub fn plan(procedures: &[Procedure], strategy: PartitionStrategy, options: &PartitionOptions) -> PartitionPlan {
    match strategy {
        PartitionStrategy::Sbl => published::sbl(procedures, options),
        PartitionStrategy::Pbl => published::pbl(procedures, options),
        PartitionStrategy::P3 => published::p3(procedures, options),
        PartitionStrategy::Weighted => weighted::plan(procedures, options),
    }
}
