//! Finds computations and loads whose result nearly every execution already has from earlier on its path.
//!
//! Compilers remove computations that are redundant on every path, or that become so by code motion without cost. What remains is redundant
//! on some paths only: the other paths do not compute the value, or write in between. If these other paths are rare, the frequent paths can
//! be duplicated, or the value can be kept in a register. Values are compared as in `trace.rs`.
//!
//! Computations on all paths without writes are left to the compiler, and conversions and address arithmetic are not reported, because they
//! are cheap or free. Each execution that already has the result saves one instruction.

use super::AdviseOptions;
use super::trace::{StepPosition, StepResult, ValueTracer};
use super::walks::ExecutedPaths;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use trodden_flow::{DagEdge, Node, Origin};
use trodden_unit::SourcePosition;
use trodden_unit::properties::{BlockAction, FunctionProperties, OperationId, UnitProperties};

/// Minimum share of executions that already have the result.
const MIN_REDUNDANT_SHARE: f64 = 0.9;
/// Maximum number of steps analysed per function. Further paths are assumed to have no redundancy.
const MAX_TRACED_STEPS: u64 = 40_000_000;

/// A block that computes results that nearly all executions already have.
#[derive(Clone, Debug, PartialEq)]
pub struct RedundantBlock {
    /// The block.
    pub block: Node,
    /// Number of executions of the block.
    pub executions: u64,
    /// The earlier block that computed most of the results.
    pub earlier: Node,
    /// True if every path to the block passes a block that computes the results. Only a write on some paths then keeps the compiler from
    /// reusing them.
    pub unavoidable: bool,
    /// The repeated computations.
    pub repeated: Vec<RepeatedComputation>,
}

/// A repeated computation or load.
#[derive(Clone, Debug, PartialEq)]
pub struct RepeatedComputation {
    /// The repeated operation.
    pub at: OperationSite,
    /// LLVM opcode and type, such as `load i32` or `mul i64`.
    pub operation: String,
    /// Number of executions that already had the result.
    pub found: u64,
    /// Number of executions in which the operands were constants.
    pub constant: u64,
    /// The earlier operations that supplied the result, each with the number of executions that it supplied, most frequent first.
    pub from: Vec<(OperationSite, u64)>,
}

/// A computation, a load or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSite {
    /// The operation's block.
    pub block: Node,
    /// Index of the operation among the block's steps.
    pub step: u32,
    /// Source position of the operation, or `None` if unknown.
    pub position: Option<SourcePosition>,
}

impl RedundantBlock {
    /// Returns an upper bound on the number of instructions that could be saved.
    pub fn max_saved_instructions(&self) -> u64 {
        self.repeated.iter().map(|r| r.found.saturating_add(r.constant)).sum()
    }
}

pub fn find(walks: &ExecutedPaths, unit: &UnitProperties, properties: &FunctionProperties, options: &AdviseOptions) -> Vec<RedundantBlock> {
    let mut blocks: BTreeMap<Node, Vec<RepeatedComputation>> = BTreeMap::new();
    for (place, tally) in tally_steps(walks, unit, properties) {
        let executions = walks.blocks[place.0.index()];
        let saved = tally.found.values().sum::<u64>() + tally.constant;
        let Some(operation) = find_operation(properties, place).map(|o| &unit.operations[o.0 as usize]) else { continue };
        if saved < options.min_count || (saved as f64) < MIN_REDUNDANT_SHARE * executions as f64 || is_cheap(operation) {
            continue;
        }
        let mut from: Vec<(OperationSite, u64)> =
            tally.found.iter().map(|(p, count)| (describe_operation_site(properties, *p), *count)).collect();
        from.sort_by_key(|(site, count)| (std::cmp::Reverse(*count), site.block, site.step));
        let found = tally.found.values().sum();
        let repeated = RepeatedComputation {
            at: describe_operation_site(properties, place),
            operation: operation.clone(),
            found,
            constant: tally.constant,
            from,
        };
        blocks.entry(place.0).or_default().push(repeated);
    }
    blocks.into_iter().filter_map(|(block, repeated)| build_finding(walks, block, repeated)).collect()
}

/// Counts how often a step's result was already known, by the earlier step that had computed it, and how often all of the step's operands
/// were constant.
#[derive(Default)]
struct StepTally {
    found: HashMap<StepPosition, u64>,
    constant: u64,
}

fn tally_steps(walks: &ExecutedPaths, unit: &UnitProperties, properties: &FunctionProperties) -> BTreeMap<StepPosition, StepTally> {
    let mut tallies: BTreeMap<StepPosition, StepTally> = BTreeMap::new();
    let mut tracer = ValueTracer::new(unit, properties);
    let mut steps = 0;
    for walk in &walks.walks {
        let length = |b: &Node| properties.blocks.get(b.index()).map_or(0, |b| b.steps.len() as u64);
        steps += walk.blocks.iter().map(length).sum::<u64>();
        if steps > MAX_TRACED_STEPS {
            break;
        }
        tracer.trace_path(walk, |place, finds| match finds {
            StepResult::New => {}
            StepResult::Known(from) => *tallies.entry(place).or_default().found.entry(from).or_default() += walk.count,
            StepResult::Constant => tallies.entry(place).or_default().constant += walk.count,
        });
    }
    tallies
}

/// Builds the finding for a block. Values that every path computes and no write can change are omitted, because the compiler reuses them
/// itself.
fn build_finding(walks: &ExecutedPaths, block: Node, mut repeated: Vec<RepeatedComputation>) -> Option<RedundantBlock> {
    repeated.retain(|r| r.operation.starts_with("load ") || !is_computed_on_every_path(walks, block, [r]));
    repeated.sort_by_key(|r| r.at.step);
    let mut sources: BTreeMap<Node, u64> = BTreeMap::new();
    for (site, count) in repeated.iter().flat_map(|r| &r.from) {
        *sources.entry(site.block).or_default() += count;
    }
    let earlier = sources.iter().max_by_key(|(_, count)| **count).map_or(block, |(b, _)| *b);
    let unavoidable = is_computed_on_every_path(walks, block, &repeated);
    (!repeated.is_empty()).then(|| RedundantBlock { block, executions: walks.blocks[block.index()], earlier, unavoidable, repeated })
}

fn is_computed_on_every_path<'r>(walks: &ExecutedPaths, block: Node, repeated: impl IntoIterator<Item = &'r RepeatedComputation>) -> bool {
    let sources: BTreeSet<Node> = repeated.into_iter().flat_map(|r| &r.from).map(|(site, _)| site.block).collect();
    !sources.is_empty() && !is_reached_avoiding_blocks(walks, block, &sources)
}

fn is_reached_avoiding_blocks(walks: &ExecutedPaths, block: Node, others: &BTreeSet<Node>) -> bool {
    let dag: Vec<DagEdge> = walks.map.dag.iter().map(|origin| origin.dag_edge(&walks.map.graph)).collect();
    let entered = dag.iter().filter(|e| matches!(e.origin, Origin::Enter(_))).map(|e| e.to);
    let mut stack: Vec<Node> = entered.chain([Node(0)]).filter(|b| !others.contains(b)).collect();
    let mut seen: BTreeSet<Node> = stack.iter().copied().collect();
    let mut next: BTreeMap<Node, Vec<Node>> = BTreeMap::new();
    dag.iter().filter(|e| matches!(e.origin, Origin::Real(_))).for_each(|e| next.entry(e.from).or_default().push(e.to));
    while let Some(at) = stack.pop() {
        if at == block {
            return true;
        }
        let new = next.get(&at).into_iter().flatten().filter(|b| !others.contains(b));
        let new: Vec<Node> = new.copied().filter(|b| seen.insert(*b)).collect();
        stack.extend(new);
    }
    false
}

fn describe_operation_site(properties: &FunctionProperties, (block, step): StepPosition) -> OperationSite {
    let position = properties.blocks[block.index()].steps[step as usize].position;
    OperationSite { block, step, position }
}

fn find_operation(properties: &FunctionProperties, (block, step): StepPosition) -> Option<OperationId> {
    match properties.blocks[block.index()].steps[step as usize].what {
        BlockAction::Compute { operation, .. } | BlockAction::Load { operation, .. } => Some(operation),
        _ => None,
    }
}

/// Returns true if an operation takes little or no machine code.
fn is_cheap(operation: &str) -> bool {
    let word = operation.split(' ').next().unwrap_or_default();
    let conversions = ["getelementptr", "zext", "sext", "trunc", "bitcast", "ptrtoint", "inttoptr", "addrspacecast", "extractvalue"];
    conversions.contains(&word) || operation.starts_with("call llvm.threadlocal.address")
}
