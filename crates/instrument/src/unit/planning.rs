//! What a function is planned by: its frequencies, the plan of its paths, and when each is counted.

use super::{Error, Unit};
use crate::describe::FunctionCfg;
use crate::llvm::{Value, llvm};
use crate::options::Threads;
use crate::sample::PlannedFunction;
use llvm_sys::LLVMLinkage;
use llvm_sys::core::*;
use trodden_flow::frequency::{Frequencies, branch_weights};
use trodden_flow::program::verify::verify_numbering;
use trodden_flow::program::{Choices, DominantCounting, TripCounting};
use trodden_flow::{Graph, Node, Plan};
use trodden_unit::shape;

impl Unit {
    /// How often each edge is executed, and whether that was measured: by weights that were given, or else by paths. Where it was, what
    /// was never executed is still distinguished by what is likely.
    pub fn frequencies(&self, name: &str, cfg: &FunctionCfg, graph: &Graph, of_paths: Option<&[u64]>) -> (Frequencies, bool) {
        // Executions for each that was estimated. A hundred times as much or as little changes at most 0.2 % of three programs'
        // instructions (docs/benchmarks/constants.md).
        const UNSEEN: f64 = 1e-3;
        let estimate = Frequencies::estimate(graph, &branch_weights(graph, &cfg.hints));
        let known = self.options.weights.as_ref().and_then(|w| w.of(name, shape(&cfg.blocks, &cfg.edges), cfg.edges.len()));
        // Interesting paths may never have been executed.
        match known.or(of_paths).filter(|edges| edges.iter().any(|n| *n > 0)) {
            None => (estimate, false),
            Some(counts) => {
                let edges = counts.iter().zip(estimate.edges()).map(|(count, guess)| *count as f64 + guess * UNSEEN).collect();
                (Frequencies::measured(graph, edges), true)
            }
        }
    }

    /// The plan of all paths of the next function.
    pub fn plan_of_all(&self, cfg: &FunctionCfg, graph: &Graph, frequencies: &Frequencies) -> Plan {
        Plan::ball_larus(graph, &cfg.forced, frequencies, &self.options.plan_of(self.in_tables))
    }

    /// The passes that a program of counts in arrays and tables admits, of those that were chosen. Iterations pay in loops that are known
    /// to iterate often, in tight ones, and where the program counts them; most loops do not iterate often.
    pub fn passes(&self, planned: &PlannedFunction) -> Choices {
        let PlannedFunction { program, measured, .. } = planned;
        let choices = self.options.choices;
        if self.options.in_table(program.paths().numbering.paths()) {
            // An exit edge would count what was not seen.
            return each_iteration(choices);
        }
        let choices = match self.options.experiment.threads() {
            Threads::Atomic => Choices { dominant: DominantCounting::Shared, ..choices },
            Threads::Own => choices,
        };
        if *measured { choices.in_registers() } else { choices }
    }

    /// Whether a thread may come to this function without having counted anywhere before. A local function that only
    /// instrumented functions call, directly, finds the region acquired.
    pub fn may_be_first(&self, function: Value) -> bool {
        let called_by_us = |user: Value| {
            let is_callee = user.is_call() && user.callee() == function && !user.arguments().any(|argument| argument == function);
            is_callee && self.chosen.contains(&user.block().function())
        };
        !is_local(function) || !function.users().all(|u| u.is_instruction() && called_by_us(u))
    }
}

/// The graph of a described function.
///
/// # Errors
/// The description is no graph.
pub fn graph_of(function: Value, cfg: &FunctionCfg) -> Result<Graph, Error> {
    let edges = cfg.edges.iter().map(|e| (e.from, e.to)).collect();
    let nodes = cfg.nodes.len() as u32;
    Graph::new(nodes + 1, Node(0), Node(nodes), edges).map_err(|source| Error::Graph { function: function.name(), source })
}

pub(super) fn is_local(function: Value) -> bool {
    matches!(llvm!(LLVMGetLinkage(function.0)), LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage)
}

/// Verifies the numbering of a program; those of interesting paths are verified where they are made, too.
///
/// # Errors
/// Two paths have one number.
pub fn verify_plan(planned: &PlannedFunction) -> Result<(), Error> {
    verify_numbering(&planned.program).map_err(|what| Error::Wrong { function: planned.function.name(), what })
}

/// Passes after which each iteration of a loop is counted when it ends.
pub fn each_iteration(choices: Choices) -> Choices {
    Choices { trip_counts: TripCounting::Off, dominant: choices.dominant.min(DominantCounting::Split), ..choices }
}

/// Counts are made where paths end, each by itself.
pub const AT_PATH_ENDS: Choices = Choices { trip_counts: TripCounting::Off, early: false, dominant: DominantCounting::Shared };
