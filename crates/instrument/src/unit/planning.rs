//! Plans a function: its edge frequencies, the numbering of its paths, and when each path is counted.

use super::{InstrumentError, Unit};
use crate::describe::FunctionCfg;
use crate::llvm::Value;
use crate::options::ThreadCounters;
use crate::planned_function::PlannedFunction;
use llvm_sys::LLVMLinkage;
use trodden_flow::Plan;
use trodden_flow::frequency::{Frequencies, branch_weights};
use trodden_flow::program::verify::verify_numbering;
use trodden_flow::program::{DominantCounting, PassChoices, TripCounting};
use trodden_unit::graph_hash;

impl Unit {
    /// Returns the edge frequencies, and true if they were measured: by the weights that the user gave for this unit or, without these, by
    /// `path_counts`. Edges that were never executed keep a tiny share of their static estimate, so that likely edges can still be told
    /// from unlikely ones.
    pub fn frequencies(&self, name: &str, cfg: &FunctionCfg, path_counts: Option<&[u64]>) -> (Frequencies, bool) {
        // Weight of the static estimate relative to a measured execution. A factor of 100 either way changes the instruction counts of
        // three programs by at most 0.2 % (docs/benchmarks/constants.md).
        const UNEXECUTED_EDGE_SHARE: f64 = 1e-3;
        let graph = &cfg.graph;
        let estimate = Frequencies::estimate(graph, &branch_weights(graph, &cfg.hints));
        let known = self.options.weights.as_ref().and_then(|w| w.get(name, graph_hash(&cfg.blocks, graph), graph.edge_count()));
        // If all counts are 0 (interesting paths may never have been executed), they say nothing about frequencies.
        match known.or(path_counts).filter(|edges| edges.iter().any(|n| *n > 0)) {
            None => (estimate, false),
            Some(counts) => {
                let edges =
                    counts.iter().zip(estimate.edges()).map(|(count, guess)| *count as f64 + guess * UNEXECUTED_EDGE_SHARE).collect();
                (Frequencies::from_measured_counts(graph, edges), true)
            }
        }
    }

    /// Returns a plan that numbers all paths of the function to be added to the unit next.
    pub fn plan_all_paths(&self, cfg: &FunctionCfg, frequencies: &Frequencies) -> Plan {
        Plan::ball_larus(&cfg.graph, &cfg.forced, frequencies, &self.options.plan_options(self.paths_in_tables))
    }

    /// Returns which of the requested passes apply if counts are in an array or a hash table. Counting iterations pays off in loops with a
    /// high measured trip count, in tight loops, and where the program has an iteration counter anyway.
    pub fn choose_passes(&self, planned: &PlannedFunction) -> PassChoices {
        let PlannedFunction { program, is_measured, .. } = planned;
        let choices = self.options.choices;
        if self.options.counts_in_table(program.paths().numbering.paths()) {
            // Counting at a loop's exit would add paths to the table that were not taken.
            return count_each_iteration(choices);
        }
        let choices = match self.options.experiment.threads() {
            ThreadCounters::Atomic => PassChoices { dominant: DominantCounting::Shared, ..choices },
            ThreadCounters::Own => choices,
        };
        if *is_measured { choices.accumulating_in_registers() } else { choices }
    }

    /// Returns true if a thread may enter this function before it has counters of its own. This is impossible for a local function that is
    /// only called directly, and only by instrumented functions.
    pub fn may_lack_region(&self, function: Value) -> bool {
        let called_by_us = |user: Value| {
            let is_callee = user.is_call() && user.callee() == function && !user.arguments().any(|argument| argument == function);
            is_callee && self.chosen.contains(&user.block().function())
        };
        !is_local(function) || !function.users().all(|u| u.is_instruction() && called_by_us(u))
    }
}

pub(super) fn is_local(function: Value) -> bool {
    matches!(function.linkage(), LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage)
}

/// Verifies the numbering of a probe program. Numberings of interesting paths are also verified when they are built.
///
/// # Errors
/// Fails if two paths have the same number.
pub fn verify_plan(planned: &PlannedFunction) -> Result<(), InstrumentError> {
    verify_numbering(&planned.program).map_err(|what| InstrumentError::InvalidNumbering { function: planned.function.name(), what })
}

/// Returns `choices` without passes that count several iterations of a loop at once.
pub fn count_each_iteration(choices: PassChoices) -> PassChoices {
    PassChoices { trip_counts: TripCounting::Off, dominant: choices.dominant.min(DominantCounting::Split), ..choices }
}
