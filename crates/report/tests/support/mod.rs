//! Builds profiles from functions that are described block by block, and from walks through their blocks.
//!
//! A walk performs the counter updates of the function's [`Plan`], so the counts are those that an instrumented program would write.
#![allow(dead_code)] // Each test file uses only a part.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use trodden_flow::dag::Entries;
use trodden_flow::frequency::Frequencies;
use trodden_flow::plan::RegisterAction;
use trodden_flow::{Edge, Node, Plan, PlanOptions};
use trodden_profile::{Counts, ImageProfile, ProcessEnding, Profile, Run, UnitProfile};
use trodden_unit::{BlockKind, EdgeKind, FlowEdge, FlowGraph, FunctionMap, Identity, Scope, SourcePosition, Storage, UnitBlock, UnitMap};

pub mod demo;
pub mod webdriver;

pub struct UnitBuilder {
    pub map: UnitMap,
    counts: BTreeMap<u64, u64>,
}

pub struct FunctionBuilder {
    name: String,
    position: Option<SourcePosition>,
    blocks: Vec<UnitBlock>,
    edges: Vec<FlowEdge<'static>>,
}

pub struct Walker {
    graph: FlowGraph,
    plan: Plan,
    first_counter: u64,
}

impl UnitBuilder {
    pub fn new(source: &str, files: &[&str]) -> UnitBuilder {
        let map = UnitMap {
            source: source.into(),
            producer: "clang version 22".into(),
            llvm: 22,
            target: "x86_64-unknown-linux-gnu".into(),
            experiment: Default::default(),
            counted: Default::default(),
            codegen: Vec::new(),
            files: files.iter().map(|f| f.to_string()).collect(),
            scopes: Vec::new(),
            functions: Vec::new(),
            skipped: Vec::new(),
            fully_counted: Vec::new(),
            counters: 0,
            edge_profile: None,
            calls: vec![],
            aliases: vec![],
            line_graphs: Default::default(),
        };
        UnitBuilder { map, counts: BTreeMap::new() }
    }

    /// Adds the debug information scope of a function, and returns its number. `inlined_at` is the call that the function was inlined at,
    /// if any.
    pub fn add_scope(&mut self, name: &str, file: u32, line: u32, inlined_at: Option<SourcePosition>) -> u32 {
        self.map.scopes.push(Scope { name: name.into(), linkage_name: String::new(), file, line, inlined_at });
        self.map.scopes.len() as u32 - 1
    }

    /// Adds a function and numbers its paths as the compiler plugin does.
    pub fn add(&mut self, function: FunctionBuilder) -> Walker {
        let FunctionBuilder { name, position, blocks, edges } = function;
        let graph = FlowGraph::new(blocks.len(), edges).unwrap();
        let options = PlanOptions { max_paths: 4096, entries: Entries::Shared, chords: true, hot_first: false };
        let even = Frequencies::estimate(&graph, &vec![1.0; graph.edge_count()]);
        let plan = Plan::ball_larus(&graph, &[], &even, &options);
        let (first_counter, counters) = (self.map.counters, plan.numbering.paths());
        self.map.counters += counters;
        let walker = Walker { graph: graph.clone(), plan, first_counter };
        self.map.functions.push(FunctionMap {
            name,
            local: false,
            position,
            shape: 0,
            code: 0,
            first_counter,
            counters,
            storage: Storage::Array,
            blocks,
            graph,
            dag: walker.plan.dag.origins(),
            values: walker.plan.numbering.values().to_vec(),
            cuts: walker.plan.dag.cuts().iter().map(|c| (c.edge, c.reason)).collect(),
            by_trip_count: Vec::new(),
            calls: Vec::new(),
        });
        walker
    }

    /// Counts `times` executions of a path through the given blocks. After the last block, the path leaves the function if `returns` is
    /// true; otherwise it stops at a call.
    pub fn walk(&mut self, walker: &Walker, blocks: &[u32], returns: bool, times: u64) {
        let mut register = 0i64;
        for (at, &block) in blocks.iter().enumerate() {
            let out = walker.graph.out(Node(block));
            if let Some(&reach) = out.iter().find(|e| walker.graph.kind(**e) == EdgeKind::Reach) {
                let RegisterAction::Count { increment } = walker.plan.action(&walker.graph, reach) else { panic!("a reach edge counts") };
                self.count(walker, register + increment, times);
            }
            let next = blocks.get(at + 1).map_or(walker.graph.exit(), |b| Node(*b));
            if at + 1 == blocks.len() && !returns {
                return;
            }
            let taken = out.iter().find(|e| walker.graph.to(**e) == next && walker.graph.kind(**e) != EdgeKind::Reach);
            let taken: Edge = *taken.unwrap_or_else(|| panic!("no edge from {block} to {next:?}"));
            match walker.plan.action(&walker.graph, taken) {
                RegisterAction::Add { increment } => register += increment,
                RegisterAction::Count { increment } => self.count(walker, register + increment, times),
                RegisterAction::CountAndRestart { increment, start } => {
                    self.count(walker, register + increment, times);
                    register = start;
                }
                RegisterAction::Dead => panic!("edge {taken:?} cannot be reached"),
            }
        }
    }

    fn count(&mut self, walker: &Walker, path: i64, times: u64) {
        *self.counts.entry(walker.first_counter + u64::try_from(path).unwrap()).or_default() += times;
    }

    pub fn build_unit_profile(self) -> UnitProfile {
        let unit = Identity::from_content(self.map.source.as_bytes());
        UnitProfile { unit, map: Arc::new(self.map), counts: Counts::from_executions(self.counts.into_iter().collect()) }
    }
}

impl FunctionBuilder {
    pub fn new(name: &str, position: Option<SourcePosition>) -> FunctionBuilder {
        FunctionBuilder { name: name.into(), position, blocks: Vec::new(), edges: Vec::new() }
    }

    /// Marks a call that may not return in the last block. `position` is its index among the block's source positions.
    pub fn call_at(mut self, position: u32) -> FunctionBuilder {
        self.blocks.last_mut().expect("a block").up_to_calls = position + 1;
        self
    }

    pub fn block(mut self, instructions: u32, positions: &[SourcePosition], branch: Option<SourcePosition>) -> FunctionBuilder {
        let up_to_calls = positions.len() as u32;
        self.blocks.push(UnitBlock { instructions, positions: positions.to_vec(), up_to_calls, branch, kind: BlockKind::Code });
        self
    }

    /// Adds an edge; `to` is `None` for the exit. All blocks must already exist.
    pub fn edge(mut self, from: u32, to: impl Into<Option<u32>>, kind: EdgeKind) -> FunctionBuilder {
        let to = to.into().map_or(Node(self.blocks.len() as u32), Node);
        let cases = if let EdgeKind::Case(value) = kind { vec![value] } else { Vec::new() };
        self.edges.push(FlowEdge { cases: cases.into(), ..FlowEdge::new(Node(from), to, kind) });
        self
    }

    /// Adds case values to the last edge.
    pub fn cases(mut self, values: &[i64]) -> FunctionBuilder {
        self.edges.last_mut().unwrap().cases.to_mut().extend(values);
        self
    }

    pub fn branch(self, from: u32, on_true: u32, on_false: u32) -> FunctionBuilder {
        self.edge(from, on_true, EdgeKind::True).edge(from, on_false, EdgeKind::False)
    }
}

pub fn profile(images: Vec<(&str, Vec<UnitProfile>)>) -> Profile {
    let image = |(path, units): (&str, Vec<UnitProfile>)| ImageProfile {
        identity: Identity::from_content(path.as_bytes()),
        path: path.into(),
        build_id: Some("c0ffee".into()),
        units,
    };
    Profile {
        run: Run {
            command: vec!["./demo".into(), "input.txt".into()],
            directory: "/home/user/demo".into(),
            host: "workstation".into(),
            suite: None,
            started_ns: 1_795_254_303_000_000_000,
            duration_ns: 1_234_000_000,
            ending: Some(ProcessEnding::Exit(0)),
            runs: 1,
            recorder: "trodden 0.1.0".into(),
            test: None,
            diverged: 0,
            lost: 0,
            interrupted: 0,
        },
        images: images.into_iter().map(image).collect(),
        sampling: None,
    }
}

/// Compares a text with the file `tests/golden/NAME`, or updates the file if `TRODDEN_BLESS=1` is set.
pub fn compare_with_golden(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("TRODDEN_BLESS").is_some_and(|v| v == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == actual, "{name} has changed (TRODDEN_BLESS=1 accepts it). Now:\n{actual}\nExpected:\n{expected}");
}
