//! Random functions in the form in which the compiler plugin describes them, with a plan for their instrumentation. They have exits, calls
//! that might not return ([`EdgeKind::Reach`]), and calls that return twice.

use crate::graphs;
use crate::random::Random;
use trodden_flow::frequency::Frequencies;
use trodden_flow::{CutReason, Graph, Node, Plan};
use trodden_unit::{BlockKind, EdgeKind, FlowEdge, FlowGraph, FunctionMap, Storage, UnitBlock, UnitMap};

/// A function and its plan.
#[derive(Clone, Debug)]
pub struct RandomFunction {
    /// The description of the function for the map of its compilation unit.
    pub map: FunctionMap,
    /// Its control-flow graph.
    pub graph: Graph,
    /// The numbering of the function's paths, and the probes to insert for counting them.
    pub plan: Plan,
}

impl RandomFunction {
    /// Generates a function. Its number of basic blocks is random, from 1 to `blocks`.
    pub fn random(random: &mut Random, name: &str, blocks: u32) -> RandomFunction {
        let count = 1 + random.below(blocks.into()) as u32;
        let continues: Vec<bool> = (0..count).scan(false, |last, at| Some(choose_continuation(random, last, at, count))).collect();
        let edges = random_edges(random, &continues);
        let kind = |c: &bool| if *c { BlockKind::Continuation } else { BlockKind::Code };
        let block = |c: &bool| UnitBlock {
            instructions: 1 + random.below(9) as u32,
            positions: Vec::new(),
            up_to_calls: 0,
            branch: None,
            kind: kind(c),
        };
        let blocks: Vec<UnitBlock> = continues.iter().map(block).collect();
        let flow = FlowGraph::new(blocks.len(), edges).expect("the blocks exist");
        let graph = (*flow).clone();
        let mut forced = match random.chance(30) {
            true => graphs::forced_cuts(random, &graph),
            false => Vec::new(),
        };
        let twice = flow.edges_where(|kind| kind == EdgeKind::ReturnsTwice);
        forced.retain(|(e, _)| !twice.contains(*e));
        forced.extend(twice.iter().map(|e| (e, CutReason::ReturnsTwice)));
        let weights: Vec<f64> = graph.edges().map(|_| 1.0 + random.below(50) as f64).collect();
        let plan = Plan::ball_larus(&graph, &forced, &Frequencies::estimate(&graph, &weights), &graphs::plan_options(random));
        let map = build_function_map(name, blocks, flow, &plan);
        RandomFunction { map, graph, plan }
    }
}

/// Generates a compilation unit, with its map, of 1 to `functions` functions. Each function has at most `blocks` basic blocks.
pub fn unit(random: &mut Random, source: &str, functions: u64, blocks: u32) -> (UnitMap, Vec<RandomFunction>) {
    let mut subjects: Vec<RandomFunction> =
        (0..1 + random.below(functions)).map(|i| RandomFunction::random(random, &format!("function_{i}"), blocks)).collect();
    let mut counters = 0;
    for subject in &mut subjects {
        subject.map.first_counter = counters;
        counters += subject.map.counters;
    }
    let map = UnitMap {
        source: source.into(),
        producer: "a compiler".into(),
        llvm: 22,
        target: "x86_64-unknown-linux-gnu".into(),
        experiment: Default::default(),
        counted: Default::default(),
        codegen: vec!["-O2".into()],
        files: vec![source.into()],
        scopes: Vec::new(),
        functions: subjects.iter().map(|s| s.map.clone()).collect(),
        skipped: Vec::new(),
        fully_counted: Vec::new(),
        counters,
        edge_profile: None,
        calls: vec![],
        aliases: vec![],
        line_graphs: Default::default(),
    };
    (map, subjects)
}

fn build_function_map(name: &str, blocks: Vec<UnitBlock>, graph: FlowGraph, plan: &Plan) -> FunctionMap {
    FunctionMap {
        name: name.into(),
        local: false,
        position: None,
        shape: 0,
        code: 0,
        first_counter: 0,
        counters: plan.numbering.paths(),
        storage: Storage::Array,
        blocks,
        graph,
        dag: plan.dag.origins(),
        values: plan.numbering.values().to_vec(),
        cuts: plan.dag.cuts().iter().map(|c| (c.edge, c.reason)).collect(),
        by_trip_count: Vec::new(),
        calls: Vec::new(),
    }
}

/// Decides at random whether block `at` continues the previous block after a call that returns twice. The entry block never continues
/// another block, nor does the block after a continuation. `last` says whether the previous block is one.
fn choose_continuation(random: &mut Random, last: &mut bool, at: u32, count: u32) -> bool {
    *last = at > 0 && at < count && !*last && random.chance(8);
    *last
}

fn random_edges(random: &mut Random, continues: &[bool]) -> Vec<FlowEdge<'static>> {
    let exit = Node(continues.len() as u32);
    let lowest = if random.chance(10) { 0 } else { 1 };
    let targets: Vec<Node> = (lowest..continues.len()).filter(|b| !continues[*b]).map(|b| Node(b as u32)).collect();
    let mut all = Vec::new();
    for at in 0..continues.len() {
        let from = Node(at as u32);
        let edge = |to: Node, kind: EdgeKind| FlowEdge::new(from, to, kind);
        let mut own = Vec::new();
        if continues.get(at + 1) == Some(&true) {
            own.push(edge(Node(at as u32 + 1), EdgeKind::ReturnsTwice));
        } else if targets.is_empty() || random.chance(20) {
            own.push(edge(exit, random.pick(&[EdgeKind::Return, EdgeKind::NoReturn, EdgeKind::Resume])));
        } else {
            let edges = random.pick(&[1, 1, 2, 2, 2, 3]);
            own.extend((0..edges).map(|at| edge(random.pick(&targets), EdgeKind::Indirect(at))));
        }
        if random.chance(35) {
            own.insert(random.index(own.len() + 1), edge(exit, EdgeKind::Reach));
        }
        all.extend(own);
    }
    all
}
