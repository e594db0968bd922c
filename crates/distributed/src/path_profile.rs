//! Converts the acyclic paths in a trace to a path profile, like that of an instrumented build, for reports, comparisons and residual
//! builds (which count only paths that earlier runs have not taken).
//!
//! The graphs in the trace are converted to unit maps: one unit per traced file, and for each function its blocks (the entry first), edges
//! and Ball-Larus numbering. A first pass over the trace collects exits of functions, and edges that the graphs lack. A second pass counts
//! every path whose beginning is in the trace. Memory is bounded by the call depth and the number of paths.

use crate::place::{name_in_file, require_all_blocks};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use trodden_binary::linked::split_address;
use trodden_flow::dag::{Dag, Entries};
use trodden_flow::frequency::{BranchHint, Frequencies, branch_weights};
use trodden_flow::graph::{Edge, Node};
use trodden_flow::limit::cut_to_limit;
use trodden_flow::numbering::NumberedPaths;
use trodden_profile::{Counts, ImageProfile, ProcessEnding, Profile, Run, UnitProfile};
use trodden_trace::{FollowEnding, ThreadNumber, TraceBlock, TraceEvent, TraceFile, TraceFunction};
use trodden_unit::{
    BlockKind, EdgeKind, Experiment, FlowEdge, FlowGraph, FunctionMap, Identity, LineGraphs, Scope, SourcePosition, Storage, UnitBlock,
    UnitMap, code_hash, graph_hash,
};

/// Maximum number of paths in a function. If a function has more, its paths are split at some edges.
const MAX_PATHS_PER_FUNCTION: u64 = 1 << 24;

/// Creates the path profile of a trace. `run` is the description of the traced run that the profile stores.
///
/// # Errors
/// The trace cannot be read, or has no complete path.
pub fn build_path_profile(trace: &TraceFile, run: Run) -> Result<Profile> {
    require_all_blocks(trace, "a path profile")?;
    let seen = TraceFlow::collect(trace)?;
    let functions = number_functions(trace, &seen)?;
    let counts = count_paths(trace, &functions)?;
    ensure!(!counts.is_empty(), "cannot count paths, because the trace contains no path from its beginning to its end");
    let ending = match trace.end().ending {
        Some(FollowEnding::Exited(code)) => Some(ProcessEnding::Exit(code)),
        Some(FollowEnding::Killed(signal)) => Some(ProcessEnding::Signal(signal)),
        _ => None,
    };
    let run = Run { command: trace.description().command.clone(), ending, ..run };
    Ok(Profile { run, images: build_images(trace, functions, counts), sampling: None })
}

/// Creates a profile for each file with executed functions, because function names are unique only within a file.
fn build_images(trace: &TraceFile, functions: Vec<NumberedGraph>, mut counts: PathCounts) -> Vec<ImageProfile> {
    let about = trace.description();
    let mut files: BTreeMap<usize, Vec<FunctionMap>> = BTreeMap::new();
    for function in functions {
        files.entry(function.file).or_default().push(function.map);
    }
    let image = |(file, functions): (usize, Vec<FunctionMap>)| {
        let path = file.checked_sub(1).map_or(&about.image, |library| &about.libraries[library]).clone();
        let unit = Identity::from_content(format!("trace {:x} {file} {:?}", about.hash, functions.len()).as_bytes());
        let map = Arc::new(build_unit_map(trace, path.clone(), functions));
        let counts = Counts::from_executions(counts.remove(&file).unwrap_or_default().into_iter().collect());
        let identity = Identity::from_content(format!("trace {:x} {file}", about.hash).as_bytes());
        ImageProfile { identity, path, build_id: None, units: vec![UnitProfile { unit, map, counts }] }
    };
    files.into_iter().map(image).collect()
}

type PathCounts = BTreeMap<usize, BTreeMap<u64, u64>>;

#[derive(Default)]
struct TraceFlow {
    executed: BTreeSet<TraceFunction>,
    edges: BTreeSet<(TraceBlock, TraceBlock)>,
    exits: BTreeMap<TraceBlock, EdgeKind>,
}

enum PathStep {
    Enter(TraceBlock),
    Edge(TraceBlock, TraceBlock),
    Leave(TraceBlock, EdgeKind),
}

/// Calls `see` with each step of a thread through the graphs, and with the depth in the call stack of the function that makes the step.
fn for_each_step(trace: &TraceFile, thread: ThreadNumber, see: &mut dyn FnMut(usize, PathStep)) -> Result<()> {
    let mut frames: Vec<Option<TraceBlock>> = Vec::new();
    for event in trace.stream(thread) {
        let event = event?;
        let leave = |frames: &mut Vec<Option<TraceBlock>>, kind: EdgeKind, see: &mut dyn FnMut(usize, PathStep)| {
            if let Some(Some(block)) = frames.pop() {
                see(frames.len(), PathStep::Leave(block, kind));
            }
        };
        match event {
            TraceEvent::Return => leave(&mut frames, EdgeKind::Return, see),
            TraceEvent::Unwind => leave(&mut frames, EdgeKind::Resume, see),
            TraceEvent::Call { tail, .. } => {
                if tail {
                    leave(&mut frames, EdgeKind::TailCall, see);
                }
                frames.push(None);
            }
            TraceEvent::Block(block) => {
                if frames.is_empty() {
                    frames.push(None);
                }
                let depth = frames.len() - 1;
                match frames[depth].replace(block) {
                    Some(from) => see(depth, PathStep::Edge(from, block)),
                    None => see(depth, PathStep::Enter(block)),
                }
            }
        }
    }
    while let Some(open) = frames.pop() {
        if let Some(block) = open {
            see(frames.len(), PathStep::Leave(block, EdgeKind::NoReturn));
        }
    }
    Ok(())
}

impl TraceFlow {
    fn successors(&self, block: TraceBlock) -> impl Iterator<Item = TraceBlock> + '_ {
        self.edges.range((block, TraceBlock(0))..=(block, TraceBlock(u32::MAX))).map(|edge| edge.1)
    }

    fn collect(trace: &TraceFile) -> Result<Self> {
        let mut seen = Self { edges: trace.description().edges.iter().copied().collect(), ..Self::default() };
        for thread in (0..trace.threads()).map(ThreadNumber) {
            for_each_step(trace, thread, &mut |_, step| match step {
                PathStep::Enter(block) => drop(seen.executed.insert(trace.function_of(block))),
                PathStep::Edge(from, to) => drop(seen.edges.insert((from, to))),
                PathStep::Leave(block, kind) => drop(seen.exits.entry(block).or_insert(kind)),
            })?;
        }
        Ok(seen)
    }
}

struct NumberedGraph {
    map: FunctionMap,
    /// Index of the file that contains the function. Counters are numbered separately in each file.
    file: usize,
    dag: Dag,
    /// The edge between each pair of blocks. The target `None` stands for the function's exit.
    edges: HashMap<(TraceBlock, Option<TraceBlock>), Edge>,
    entry: TraceBlock,
    function: TraceFunction,
}

fn number_functions(trace: &TraceFile, seen: &TraceFlow) -> Result<Vec<NumberedGraph>> {
    let about = trace.description();
    let mut blocks: BTreeMap<TraceFunction, Vec<TraceBlock>> = BTreeMap::new();
    for (number, block) in (0..).zip(&about.blocks).filter(|(_, b)| seen.executed.contains(&b.function)) {
        blocks.entry(block.function).or_default().push(TraceBlock(number));
    }
    let mut numbered = Vec::new();
    let mut counters: BTreeMap<usize, u64> = BTreeMap::new();
    for (function, mut blocks) in blocks {
        let entry = about.functions[function.0 as usize].address;
        let at = blocks.iter().position(|b| trace.block(*b).address == entry);
        let at = at.with_context(|| format!("the trace has no basic block at the entry of function {}", trace.name(function)))?;
        blocks[..=at].rotate_right(1);
        let first_counter = counters.entry(split_address(entry).0).or_default();
        let one = number_function(trace, seen, function, &blocks, *first_counter)?;
        *first_counter += one.map.counters;
        numbered.push(one);
    }
    Ok(numbered)
}

fn number_function(
    trace: &TraceFile,
    seen: &TraceFlow,
    function: TraceFunction,
    blocks: &[TraceBlock],
    counter: u64,
) -> Result<NumberedGraph> {
    let node: HashMap<TraceBlock, Node> = (0..).zip(blocks).map(|(n, b)| (*b, Node(n))).collect();
    let exit = Node(blocks.len() as u32);
    let (mut flow, mut edges) = (Vec::new(), HashMap::new());
    for block in blocks {
        let next: Vec<TraceBlock> = seen.successors(*block).filter(|to| node.contains_key(to)).collect();
        for (place, to) in (0i64..).zip(&next) {
            let kind = match next.len() {
                1 => EdgeKind::Always,
                // The branch is not taken if execution continues with the next block in memory.
                2 if to.0 == block.0 + 1 => EdgeKind::False,
                2 => EdgeKind::True,
                _ => EdgeKind::Case(place),
            };
            edges.insert((*block, Some(*to)), Edge(flow.len() as u32));
            flow.push(FlowEdge::new(node[block], node[to], kind));
        }
        if let Some(kind) = seen.exits.get(block).copied().or(next.is_empty().then_some(EdgeKind::NoReturn)) {
            edges.insert((*block, None), Edge(flow.len() as u32));
            flow.push(FlowEdge::new(node[block], exit, kind));
        }
    }
    let graph = FlowGraph::new(blocks.len(), flow)?;
    let frequencies = Frequencies::estimate(&graph, &branch_weights(&graph, &vec![BranchHint::None; graph.edge_count()]));
    let NumberedPaths { dag, numbering } = cut_to_limit(&graph, &[], &frequencies, MAX_PATHS_PER_FUNCTION, Entries::Shared);
    let map_blocks: Vec<UnitBlock> = blocks.iter().map(|b| build_unit_block(trace, *b)).collect();
    let map = FunctionMap {
        name: name_in_file(trace, &trace.description().functions[function.0 as usize]).to_owned(),
        local: false,
        position: map_blocks.first().and_then(|b| b.positions.first().copied()),
        shape: graph_hash(&map_blocks, &graph),
        code: code_hash(&trace.description().hash.to_le_bytes()),
        first_counter: counter,
        counters: numbering.paths(),
        storage: Storage::Array,
        blocks: map_blocks,
        graph,
        dag: dag.origins(),
        values: numbering.values().to_vec(),
        cuts: dag.cuts().iter().map(|c| (c.edge, c.reason)).collect(),
        by_trip_count: Vec::new(),
        calls: Vec::new(),
    };
    Ok(NumberedGraph { map, file: split_address(trace.block(blocks[0]).address).0, dag, edges, entry: blocks[0], function })
}

fn build_unit_block(trace: &TraceFile, block: TraceBlock) -> UnitBlock {
    let data = trace.block(block);
    let position = |(file, line): &(u32, u32)| SourcePosition { scope: data.function.0, file: *file, line: *line, column: 0 };
    let positions: Vec<SourcePosition> = data.lines.iter().map(position).collect();
    // The trace does not contain the number of instructions in a block. It is estimated from an average instruction length of four bytes.
    let up_to_calls = positions.len() as u32;
    UnitBlock { instructions: (data.size / 4).max(1), branch: positions.last().copied(), positions, up_to_calls, kind: BlockKind::Code }
}

fn build_unit_map(trace: &TraceFile, source: String, functions: Vec<FunctionMap>) -> UnitMap {
    let about = trace.description();
    let mut declared: HashMap<TraceFunction, (u32, u32)> = HashMap::new();
    for block in &about.blocks {
        if let Some(line) = block.lines.first() {
            declared.entry(block.function).or_insert(*line);
        }
    }
    let scope = |(number, f): (u32, &trodden_trace::TracedFunctionInfo)| {
        let (file, line) = declared.get(&TraceFunction(number)).copied().unwrap_or((0, 0));
        Scope { name: name_in_file(trace, f).to_owned(), linkage_name: String::new(), file, line, inlined_at: None }
    };
    UnitMap {
        source,
        producer: String::new(),
        llvm: 0,
        target: "x86_64-unknown-linux-gnu".to_owned(),
        experiment: Experiment::from_trace(),
        counted: trodden_unit::CountedEvent::Paths,
        codegen: Vec::new(),
        files: about.files.clone(),
        scopes: (0..).zip(&about.functions).map(scope).collect(),
        counters: functions.iter().map(|f| f.counters).sum(),
        functions,
        skipped: Vec::new(),
        fully_counted: Vec::new(),
        edge_profile: None,
        calls: Vec::new(),
        aliases: Vec::new(),
        line_graphs: LineGraphs::default(),
    }
}

fn count_paths(trace: &TraceFile, functions: &[NumberedGraph]) -> Result<PathCounts> {
    let by_function: HashMap<TraceFunction, &NumberedGraph> = functions.iter().map(|f| (f.function, f)).collect();
    let mut counts = PathCounts::new();
    for thread in (0..trace.threads()).map(ThreadNumber) {
        // For each open call, the sum of the edge values on its current path; `None` if the trace does not contain the beginning of the
        // path.
        let mut sums: Vec<Option<i64>> = Vec::new();
        for_each_step(trace, thread, &mut |depth, step| {
            sums.resize(sums.len().max(depth + 1), None);
            let (block, edge) = match step {
                PathStep::Enter(block) => {
                    sums[depth] = (by_function[&trace.function_of(block)].entry == block).then_some(0);
                    return;
                }
                PathStep::Edge(from, to) => (from, by_function[&trace.function_of(from)].edges.get(&(from, Some(to)))),
                PathStep::Leave(from, _) => (from, by_function[&trace.function_of(from)].edges.get(&(from, None))),
            };
            let function = by_function[&trace.function_of(block)];
            let ends = matches!(step, PathStep::Leave(..));
            let Some(edge) = edge else {
                sums[depth] = None;
                return;
            };
            add_edge_to_path(function, *edge, &mut sums[depth], ends, &mut counts);
        })?;
    }
    Ok(counts)
}

/// Adds an edge to the current path of a call. At a split, counts the path and begins a new one. If `ends` is true, counts the last path as
/// well.
fn add_edge_to_path(function: &NumberedGraph, edge: Edge, sum: &mut Option<i64>, ends: bool, counts: &mut PathCounts) {
    let value = |id: trodden_flow::dag::DagEdgeId| function.map.values[id.index()];
    let mut finish = |sum: Option<i64>| {
        if let Some(path) = sum.and_then(|s| u64::try_from(s).ok()).filter(|p| *p < function.map.counters) {
            *counts.entry(function.file).or_default().entry(function.map.first_counter + path).or_default() += 1;
        }
    };
    if let Some(cut) = function.dag.cut(edge) {
        finish(sum.map(|s| s + cut.leave.map_or(0, value)));
        *sum = Some(cut.enter.map_or(0, value));
    } else {
        *sum = sum.and_then(|s| Some(s + value(function.dag.real(edge)?)));
    }
    if ends {
        finish(*sum);
        *sum = None;
    }
}
