//! Execution frequencies of blocks, which determine the cost of witnesses. They come from an earlier trace, from a separate run that counts
//! executions of function entries and loop heads, or from estimates. Estimates use the compiler's frequencies if the program contains them.

use crate::calls::{CallStep, TraceFilter, walk_calls};
use crate::model::WitnessModel;
use crate::place::require_all_blocks;
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::path::Path;
use trodden_binary::graph::{FunctionGraph, ProgramGraph};
use trodden_flow::graph::{Edge, Node};
use trodden_trace::TraceFile;
use trodden_witness::weights::nodes_whose_counts_correct_weights;
use trodden_witness::{EdgeWeights, Weights, Witness, WitnessFunctionId};

/// Execution counts of blocks, by address, and of steps from one block to another in the same function call.
#[derive(Clone, Debug, Default)]
pub struct BlockExecutionCounts {
    blocks: HashMap<u64, u64>,
    /// For pairs of blocks, the number of times that a function continued from one to the other.
    steps: HashMap<(u64, u64), u64>,
}

impl BlockExecutionCounts {
    /// Counts the executions in a trace. `hash` identifies the build that the trace must be of.
    ///
    /// # Errors
    /// The trace cannot be read, or was recorded from a different build.
    pub fn from_trace(path: &Path, hash: u64) -> Result<Self> {
        let trace = TraceFile::open(path).with_context(|| format!("cannot open the trace {}", path.display()))?;
        ensure!(
            trace.description().hash == hash,
            "trace {} was recorded with a different build of {}. Record a trace of this build, or pass `--witness-weights first-run`",
            path.display(),
            trace.description().image
        );
        require_all_blocks(&trace, "`--witness-weights`")?;
        let mut executions = Self::default();
        let all = TraceFilter::default();
        for thread in all.threads(&trace) {
            let mut last: Vec<Option<u64>> = Vec::new();
            walk_calls(&trace, thread, &all, |step, _| {
                match step {
                    CallStep::Open(_) => last.push(None),
                    CallStep::Close => drop(last.pop()),
                    CallStep::Block(block) => {
                        let to = trace.block(block).address;
                        *executions.blocks.entry(to).or_default() += 1;
                        if let Some(from) = last.last_mut().and_then(|l| l.replace(to)) {
                            *executions.steps.entry((from, to)).or_default() += 1;
                        }
                    }
                }
                Ok(())
            })?;
        }
        Ok(executions)
    }

    /// Returns the execution counts as weights of a model's nodes and edges.
    pub fn weights(&self, model: &WitnessModel, graphs: &ProgramGraph) -> Weights {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        for f in model.program.function_ids() {
            let function = model.functions[f.index()].map(|place| &graphs.functions[place]);
            let block = |n: Node| start_of_block(model, f, n, function);
            let times = |n: Node| block(n).and_then(|b| self.blocks.get(&b)).copied().unwrap_or(0) as f64;
            let graph = &model.program.function(f).graph;
            nodes.extend(graph.nodes().map(times));
            let of_edge = |e: Edge| {
                let (from, to) = (graph.from(e), graph.to(e));
                match (block(from), block(to)) {
                    (Some(a), Some(b)) if a != b || is_block_start(model, f, to) => self.steps.get(&(a, b)).copied().unwrap_or(0) as f64,
                    _ => times(from),
                }
            };
            edges.extend(graph.edges().map(of_edge));
        }
        Weights::from_executions(nodes, edges)
    }
}

fn start_of_block(model: &WitnessModel, f: WitnessFunctionId, node: Node, function: Option<&FunctionGraph>) -> Option<u64> {
    let address = model.addresses[model.program.node_witness(f, node).index()]?;
    function?.block_containing(address).map(|b| function.expect("it is there").block(b).start)
}

fn is_block_start(model: &WitnessModel, f: WitnessFunctionId, node: Node) -> bool {
    model.program.function(f).nodes[node.index()] == trodden_witness::NodeKind::Block
}

/// Estimates frequencies from the graphs and, if present, the compiler's frequencies.
pub fn estimate_weights(model: &WitnessModel, graphs: &ProgramGraph) -> Weights {
    let measured = graphs.functions.iter().any(|f| f.frequencies.as_ref().is_some_and(|f| f.entry_count.is_some_and(|n| n > 0)));
    let known: Vec<EdgeWeights> = model
        .program
        .function_ids()
        .map(|f| match model.functions[f.index()].map(|place| &graphs.functions[place]) {
            Some(function) => edge_weights_from_compiler(model, f, function, measured).unwrap_or(EdgeWeights::Unknown),
            None => EdgeWeights::Unknown,
        })
        .collect();
    Weights::new(&model.program, &known)
}

/// Returns edge frequencies from the compiler: numbers of executions per run if the compiler had measured entry counts, and otherwise
/// shares of the edge's source node. Returns `None` if the compiler has stored none for the function.
fn edge_weights_from_compiler(model: &WitnessModel, f: WitnessFunctionId, function: &FunctionGraph, measured: bool) -> Option<EdgeWeights> {
    let map = function.frequencies.as_ref().filter(|m| m.edges.len() == function.edges.len() && !m.edges.is_empty())?;
    let graph = &model.program.function(f).graph;
    let block = |n: Node| start_of_block(model, f, n, Some(function)).and_then(|b| function.block_starting_at(b));
    let share = |e: Edge| match (block(graph.from(e)), block(graph.to(e))) {
        (Some(from), Some(to)) if is_block_start(model, f, graph.to(e)) => {
            let edges = function.edges.iter().zip(&map.edges);
            edges.filter(|(edge, _)| edge.from == from && edge.to == to).map(|(_, share)| *share).sum()
        }
        _ => 1.0,
    };
    let entry = function.block_starting_at(function.entry).and_then(|b| map.blocks.get(b.0 as usize)).copied();
    match (measured, map.entry_count, entry) {
        (true, Some(count), Some(entry @ 1..)) => {
            let of_block = |n: Node| block(n).map_or(0.0, |b| map.blocks[b.0 as usize] as f64 / entry as f64);
            Some(EdgeWeights::PerRun(graph.edges().map(|e| count as f64 * of_block(graph.from(e)) * share(e)).collect()))
        }
        _ => Some(EdgeWeights::PerBranch(graph.edges().map(share).collect())),
    }
}

/// Returns the addresses at which a measuring run counts executions, in ascending order: function entries and loop heads.
pub fn sites_counted_for_weights(model: &WitnessModel) -> Vec<(u64, Witness)> {
    let mut sites: Vec<(u64, Witness)> =
        nodes_whose_counts_correct_weights(&model.program).into_iter().filter_map(|w| Some((model.addresses[w.index()]?, w))).collect();
    sites.sort_unstable();
    sites.dedup_by_key(|s| s.0);
    sites
}
