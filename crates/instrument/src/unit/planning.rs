//! What a function's probes are to be: its description, its frequencies, the plan of its paths, and when each is counted.

use super::{Error, Unit};
use crate::describe::FunctionCfg;
use crate::llvm::{Value, llvm};
use crate::observe::{Observer, each_iteration};
use crate::options::Threads;
use crate::sample::PlannedFunction;
use crate::shape::prepare;
use llvm_sys::LLVMLinkage;
use llvm_sys::core::*;
use trodden_flow::frequency::{Frequencies, branch_weights};
use trodden_flow::program::verify::verify_numbering;
use trodden_flow::program::{Choices, DominantCounting};
use trodden_flow::{Graph, Node, Plan, ProbeProgram};
use trodden_unit::shape;

impl Unit {
    /// Describes a function and plans its probes.
    pub fn plan(&mut self, observer: &mut dyn Observer, function: Value) -> Result<PlannedFunction, Error> {
        if self.map.producer.is_empty() {
            self.map.producer = self.positions.producer(function).unwrap_or_default();
        }
        let position = self.positions.of_function(function);
        // Before the function's blocks change: whether its callers have all acquired regions.
        let open = observer.may_be_first(self, function);
        observer.before_description(self, function);
        let prepared = prepare(self.module, function);
        let cfg = FunctionCfg::new(function, &prepared, &self.no_return, &mut self.positions);
        observer.described(self, function, &cfg);
        let graph = graph_of(function, &cfg)?;
        let name = function.name();
        let (frequencies, measured) = self.frequencies(&name, &cfg, &graph, observer.measured_edges(self, &name, &cfg));
        let plan = observer.plan(self, &name, &cfg, &graph, &frequencies)?;
        let planned = PlannedFunction {
            program: ProbeProgram::from_plan(&graph, &plan),
            function,
            position,
            cfg,
            graph,
            frequencies,
            measured,
            open,
            counted: None,
        };
        let planned = observer.plan_again(self, planned, &prepared)?;
        verify_plan(&planned)?;
        Ok(planned)
    }

    /// How often each edge is executed, and whether that was measured: by weights that were given, or else by paths. Where it was, what was never executed is still
    /// distinguished by what is likely.
    fn frequencies(&self, name: &str, cfg: &FunctionCfg, graph: &Graph, of_paths: Option<&[u64]>) -> (Frequencies, bool) {
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

    /// The passes that a program of counts in arrays and tables admits, of those that were chosen. Iterations pay in loops that are known to
    /// iterate often, in tight ones, and where the program counts them; most loops do not iterate often.
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
