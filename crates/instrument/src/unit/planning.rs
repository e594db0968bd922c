//! What a function's probes are to be: its description, its frequencies, the plan of its paths, and when each is counted.

use super::{Error, Unit, path_sets};
use crate::describe::FunctionCfg;
use crate::llvm::{Value, llvm};
use crate::options::{CountingTier, Threads};
use crate::sample::{self, CountedPaths, PlannedFunction};
use crate::shape::prepare;
use crate::stream;
use llvm_sys::LLVMLinkage;
use llvm_sys::core::*;
use trodden_flow::frequency::{Frequencies, branch_weights};
use trodden_flow::program::{Cells, Choices, DominantCounting, TripCounting};
use trodden_flow::{Edge, Graph, Node, Plan, ProbeProgram};
use trodden_unit::{FunctionPart, KnownFunction, NameVersion, shape};

impl Unit {
    /// Describes a function and plans its probes.
    pub(super) fn plan(&mut self, function: Value) -> Result<PlannedFunction, Error> {
        if self.map.producer.is_empty() {
            self.map.producer = self.positions.producer(function).unwrap_or_default();
        }
        let position = self.positions.of_function(function);
        let versions = self.options.tier == CountingTier::Residual && sample::reason_not_to_double(function).is_none();
        // Before the function's blocks change: whether its callers have all acquired regions.
        // Those that count unknown paths only acquire none.
        let open = self.options.tier == CountingTier::Residual || self.may_be_first(function);
        if let Some(placeholders) = &mut self.placeholders {
            placeholders.count_computed(function, self.context.counters);
        }
        let prepared = prepare(self.module, function);
        let cfg = FunctionCfg::new(function, &prepared, &self.no_return, &mut self.positions);
        if let Some(placeholders) = &mut self.placeholders {
            placeholders.note(function, &cfg, &self.no_return, self.map.functions.len(), &mut self.map.counters);
            if self.options.experiment.has_coverage() {
                let number = self.map.functions.len();
                placeholders.note_calls(function, &cfg, number, &mut self.positions, &mut self.map.counters);
            }
        }
        let graph = graph_of(function, &cfg)?;
        let (frequencies, measured) = self.frequencies(&function.name(), &cfg, &graph);
        // A copy of a residual build has whole functions, each as the build itself has it.
        let is_part = self.options.parts.is_some() && self.options.tier != CountingTier::Residual;
        let plan = match is_part {
            true => self.plan_of_part(&function.name(), &cfg, &graph)?,
            false => self.plan_of_all(&cfg, &graph, &frequencies),
        };
        let mut planned = PlannedFunction {
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
        if !is_part {
            self.plan_for_paths(&mut planned, versions)?;
        }
        if let Some(no_return) = &self.no_return_of_events {
            let with_calls = FunctionCfg::new(function, &prepared, no_return, &mut self.positions);
            planned = self.plan_events(planned, with_calls)?;
        }
        path_sets::verify(&planned)?;
        Ok(planned)
    }

    /// The program that writes a function's events: of the graph that has its calls besides, cut where the function itself is.
    fn plan_events(&self, own: PlannedFunction, cfg: FunctionCfg) -> Result<PlannedFunction, Error> {
        let besides = cfg.edges_besides(&own.cfg);
        if besides.is_empty() && cfg.blocks == own.cfg.blocks {
            return Ok(PlannedFunction { cfg, ..own });
        }
        let graph = graph_of(own.function, &cfg)?;
        let (frequencies, measured) = (Frequencies::estimate(&graph, &branch_weights(&graph, &cfg.hints)), false);
        let edges: Vec<Edge> = graph.edges().filter(|edge| besides.binary_search_by_key(edge, |call| call.0).is_err()).collect();
        let cuts: Vec<_> = own.program.dag().cuts().iter().map(|cut| (edges[cut.edge.index()], cut.reason)).collect();
        let options = &self.options.plan;
        let (dag, numbering) = Plan::cut_at(&graph, &cuts, options.entries).map_err(|_| Error::TooManyEvents(own.function.name()))?;
        let plan = Plan::from_numbering(dag, numbering, &graph, &frequencies, options);
        let program = ProbeProgram::from_plan(&graph, &plan);
        let counted = Some(Box::new(CountedPaths { blocks: own.cfg.blocks, edges: own.cfg.edges, program: own.program, besides }));
        Ok(PlannedFunction { cfg, graph, program, frequencies, measured, counted, ..own })
    }

    /// How often each edge is executed, and whether that was measured. Where it was, what was never executed is still
    /// distinguished by what is likely.
    fn frequencies(&self, name: &str, cfg: &FunctionCfg, graph: &Graph) -> (Frequencies, bool) {
        // Executions for each that was estimated. A hundred times as much or as little changes at most 0.2 % of three programs'
        // instructions (docs/benchmarks/constants.md).
        const UNSEEN: f64 = 1e-3;
        let estimate = Frequencies::estimate(graph, &branch_weights(graph, &cfg.hints));
        let known = self.options.weights.as_ref().and_then(|w| w.of(name, shape(&cfg.blocks, &cfg.edges), cfg.edges.len()));
        let of_paths = || {
            let known = self.known_of(name, cfg).or_else(|| self.interesting_of(name, cfg)).map(|k| k.edges.as_slice());
            known.or_else(|| self.segments_of(name, cfg).map(|(_, function)| function.edges.as_slice()))
        };
        // Interesting paths may never have been executed.
        match known.or_else(of_paths).filter(|edges| edges.iter().any(|n| *n > 0)) {
            None => (estimate, false),
            Some(counts) => {
                let edges = counts.iter().zip(estimate.edges()).map(|(count, guess)| *count as f64 + guess * UNSEEN).collect();
                (Frequencies::measured(graph, edges), true)
            }
        }
    }

    /// What is known of a function's paths, if that is the tier's business and anything is.
    pub(super) fn known_of(&self, name: &str, cfg: &FunctionCfg) -> Option<&KnownFunction> {
        let known = self.options.known.as_ref()?;
        let version = NameVersion { shape: shape(&cfg.blocks, &cfg.edges), code: cfg.code };
        known.of(&self.map.source, name, version).filter(|k| k.edges.len() == cfg.edges.len())
    }

    pub(super) fn part_of(&self, name: &str) -> Option<&FunctionPart> {
        self.options.parts.as_ref()?.of(self.options.experiment.part()?.origin, name)
    }

    /// The plan of this copy's part of a function.
    fn plan_of_part(&self, name: &str, cfg: &FunctionCfg, graph: &Graph) -> Result<Plan, Error> {
        let other = || Error::OtherParts(name.to_owned());
        let known = self.part_of(name).filter(|k| k.shape == shape(&cfg.blocks, &cfg.edges)).ok_or_else(other)?;
        let (dag, _) = Plan::cut_as(graph, &known.cuts, self.options.plan.entries, known.paths).ok_or_else(other)?;
        Plan::from_part(dag, known.part.clone()).ok_or_else(other)
    }

    fn plan_of_all(&self, cfg: &FunctionCfg, graph: &Graph, frequencies: &Frequencies) -> Plan {
        Plan::ball_larus(graph, &cfg.forced, frequencies, &self.options.plan_of(self.in_tables))
    }

    /// Iterations pay in loops that are known to iterate often, in tight ones, and where the program counts them; most
    /// loops do not iterate often. Where events are summed up, they are read when a path ends, and then only.
    pub(super) fn choices(&self, planned: &PlannedFunction) -> Choices {
        let PlannedFunction { program, measured, .. } = planned;
        let is_interesting = matches!(program.cells(), Cells::Interesting(_));
        let choices = self.options.choices;
        if self.streams.is_some() {
            return stream::PLAIN;
        }
        if self.events.is_some() {
            return Choices { trip_counts: TripCounting::Off, early: false, dominant: DominantCounting::Shared };
        }
        if self.options.in_table(program.paths().numbering.paths()) || is_interesting || self.options.count_hits {
            // An exit edge would count what was not seen, or look for paths that were not taken; and each iteration has hits of its own.
            return Choices { trip_counts: TripCounting::Off, dominant: choices.dominant.min(DominantCounting::Split), ..choices };
        }
        let choices = match self.options.experiment.threads() {
            Threads::Atomic => Choices { dominant: DominantCounting::Shared, ..choices },
            Threads::Own => choices,
        };
        if self.options.experiment.is_watched() {
            // A watch for paths is notified of each at once.
            return Choices { trip_counts: TripCounting::Off, dominant: choices.dominant.min(DominantCounting::Split), ..choices };
        }
        // To count an unknown path takes a comparison besides.
        if *measured || self.options.tier == CountingTier::Residual { choices.in_registers() } else { choices }
    }

    /// Whether a thread may come to this function without having counted anywhere before. A local function that only
    /// instrumented functions call, directly, finds the region acquired.
    fn may_be_first(&self, function: Value) -> bool {
        let called_by_us = |user: Value| {
            let is_callee = user.is_call() && user.callee() == function && !user.arguments().any(|argument| argument == function);
            is_callee && self.chosen.contains(&user.block().function())
        };
        !is_local(function) || !function.users().all(|u| u.is_instruction() && called_by_us(u))
    }
}

fn graph_of(function: Value, cfg: &FunctionCfg) -> Result<Graph, Error> {
    let edges = cfg.edges.iter().map(|e| (e.from, e.to)).collect();
    let nodes = cfg.nodes.len() as u32;
    Graph::new(nodes + 1, Node(0), Node(nodes), edges).map_err(|source| Error::Graph { function: function.name(), source })
}

pub(super) fn is_local(function: Value) -> bool {
    matches!(llvm!(LLVMGetLinkage(function.0)), LLVMLinkage::LLVMInternalLinkage | LLVMLinkage::LLVMPrivateLinkage)
}
