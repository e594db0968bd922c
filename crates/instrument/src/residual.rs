//! The tier of unknown paths: what [`trodden_flow::residual`] decides, done to a function.
//!
//! The original blocks are the checking code, with copies ([`crate::sample::copies`]) of those that are several there;
//! other copies are the instrumented code. First control is led as the graph of all versions says, and values that are
//! several now are merged ([`crate::sample::ssa`]); then the probes come, as into any other graph, but that they count
//! by jumps to the runtime and back: such code hardly ever runs, so it is to be small, and must not make a frame
//! necessary. Last, loops of the checking code get [`gates`], so that code generation sees them as they were; and it is
//! given how often the known paths take each edge ([`weigh`]).
//!
//! Indirect branches have addresses of blocks in data, so the jumps of all versions arrive in one block; there it is known
//! whether the path that begins is.

use crate::bounds;
use crate::counting::{Counters, Flushing};
use crate::describe::{EdgeSite, FunctionCfg, is_must_tail};
use crate::emit;
use crate::entry;
use crate::interesting::Words;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::module_context::ModuleContext;
use crate::path_end::{KnownTest, PathEnd, Unknown};
use crate::places;
use crate::probes;
use crate::sample::copies::{Copies, Lines};
use crate::sample::ssa::{Definitions, ValueFlow};
use crate::sample::{PlannedFunction, landings, moved, part_landings};
use crate::shape::predecessors;
use crate::weights;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::program::{Cells, Choices, CodeVersion, NodePlace};
use trodden_flow::{CutReason, Dag, Edge, Graph, Node, ProbeProgram};
use trodden_unit::{BlockKind, FlowEdge};

mod gates;

/// Makes a function count its unknown paths.
pub fn insert(context: ModuleContext, count: Value, planned: &PlannedFunction, first_counter: u64, choices: Choices) {
    match planned.program.places() {
        Some(places) => insert_versions(context, count, planned, places, first_counter, choices),
        None => insert_into_one(context, count, planned, first_counter, choices),
    }
}

/// Makes the versions of a function, and has them count its unknown paths.
fn insert_versions(
    context: ModuleContext,
    count: Value,
    planned: &PlannedFunction,
    places: &[NodePlace],
    first_counter: u64,
    choices: Choices,
) {
    let PlannedFunction { function, graph, frequencies, .. } = planned;
    let mut program = planned.program.clone();
    if !program.has_any_code() {
        return;
    }
    let mut work = Several { module: context.module, program: &planned.program, places, cfg: planned.cfg.clone(), copies: BTreeMap::new() };
    let cfg = work.make(*function);
    weigh(context.module, *function, &cfg, &program);
    let blocks = places::block_properties(&cfg, program.graph());
    probes::run_passes(&mut program, frequencies, &blocks, choices);
    let known = known_test(context.module, planned);
    let at_end = PathEnd::Unknown(Unknown { count, bias: emit::direct_bias(context.module), copies: None, known });
    let counters = Counters { at_end, flushing: Flushing::Jumping, ..Counters::own(context.counters, first_counter) };
    probes::insert(context, *function, &cfg, &program, counters);
    let blocks = |chosen: &dyn Fn(NodePlace) -> bool| -> Vec<Block> {
        cfg.nodes.iter().zip(places).filter(|(_, place)| chosen(**place)).filter_map(|(block, _)| *block).collect()
    };
    let nests: IndexSet<Node> = nests(graph, program.dag()).into_iter().collect();
    let first = |p: NodePlace| p.version != CodeVersion::Instrumented;
    let counted = blocks(&|p| !first(p)).into_iter().collect();
    gates::insert(
        context.module,
        *function,
        &blocks(&first),
        &counted,
        &blocks(&|p| first(p) && nests.contains(&p.node)).into_iter().collect(),
    );
}

/// The nodes of a function that exist once: dispatch blocks of indirect branches.
pub fn dispatch_blocks(cfg: &FunctionCfg) -> Vec<Node> {
    let dispatch_blocks = cfg.blocks.iter().enumerate().filter(|(_, b)| b.kind == BlockKind::Dispatch);
    dispatch_blocks.map(|(i, _)| Node(i as u32)).collect()
}

/// The same for a function that stays one version, since there cannot be two of it, none of its paths is known, or known paths are
/// recognised by their numbers: every path is looked up where it ends, or counted.
fn insert_into_one(context: ModuleContext, count: Value, planned: &PlannedFunction, first_counter: u64, choices: Choices) {
    let PlannedFunction { function, cfg, graph, frequencies, .. } = planned;
    let mut program = planned.program.clone();
    probes::run_passes(&mut program, frequencies, &places::block_properties(cfg, graph), choices);
    let known = known_test(context.module, planned);
    let bias = emit::direct_bias(context.module);
    // Where all is counted, and more than one path is taken, it pays to make sure at the entry that the thread has a region.
    let goes_on = !program.dag().cuts().is_empty();
    let location = crate::debug::no_line(context.module, *function);
    let copies = (known.is_none() && goes_on).then(|| entry::direct_counters_of_thread(context, *function, bias, location));
    let at_end = PathEnd::Unknown(Unknown { count, bias, copies, known });
    let counters = Counters { at_end, flushing: Flushing::Jumping, ..Counters::own(context.counters, first_counter) };
    probes::insert(context, *function, cfg, &program, counters);
}

/// The heads of loops that hold others.
fn nests(graph: &Graph, dag: &Dag) -> Vec<Node> {
    let back: Vec<Edge> = dag.cuts().iter().filter(|c| c.reason == CutReason::Back).map(|c| c.edge).collect();
    let heads: IndexSet<Node> = back.iter().map(|e| graph.to(*e)).collect();
    let mut nests = Vec::new();
    for &edge in &back {
        let (head, mut seen, mut stack) = (graph.to(edge), IndexSet::new(), vec![graph.from(edge)]);
        while let Some(node) = stack.pop() {
            if node != head && seen.insert(node) {
                stack.extend(graph.incoming(node).iter().map(|e| graph.from(*e)));
            }
        }
        if seen.iter().any(|n| heads.contains(n)) {
            nests.push(head);
        }
    }
    nests
}

/// Says to code generation how often the known paths take each edge of all versions; where they never come, what was said
/// before stays. And how often they begin at the entry: with a count there it takes the weights for measured, and lays
/// blocks that are hardly ever executed behind the loops that they are in (the instrumented code among them).
fn weigh(module: Module, function: Value, cfg: &FunctionCfg, program: &ProbeProgram) {
    let graph = program.graph();
    let entries = graph.out(graph.entry()).iter().map(|e| program.executions(*e)).fold(0, u64::saturating_add);
    if entries > 0 && !weights::has_entries(module, function) {
        weights::weigh_function(module, function, entries);
    }
    for node in graph.nodes().filter(|n| *n != graph.exit()) {
        let Some(block) = cfg.nodes[node.index()] else { continue };
        let mut taken = vec![0; block.terminator().successors().len()];
        for edge in graph.out(node) {
            if let EdgeSite::OnEdge(successors) = &cfg.sites[edge.index()] {
                let each = program.executions(*edge).div_ceil(successors.len().max(1) as u64);
                successors.iter().for_each(|at| taken[*at] = each);
            }
        }
        weights::weigh_successors(module, block.terminator(), &taken);
    }
}

/// How paths are looked up. None if nothing is known of the function.
fn known_test(module: Module, planned: &PlannedFunction) -> Option<KnownTest<'_>> {
    let known = planned.program.known()?;
    if let Cells::Preferential(ending) = planned.program.cells() {
        let words = Words::declare(module, &planned.function.name(), ending);
        return Some(KnownTest::Words(words, ending.identity_mask().unwrap_or(u64::MAX)));
    }
    let mut bytes = vec![0u8; planned.program.paths().numbering.paths() as usize];
    known.iter().filter_map(|id| usize::try_from(*id).ok()).for_each(|id| bytes[id] = 1);
    Some(KnownTest::Bytes(module.add_bytes(&format!("{}.known", planned.function.name()), &bytes)))
}

/// A function while it gets its versions.
struct Several<'a> {
    module: Module,
    program: &'a ProbeProgram,
    /// What the nodes of the program's graph are.
    places: &'a [NodePlace],
    cfg: FunctionCfg,
    /// What is not original.
    copies: BTreeMap<CodeVersion, Copies>,
}

/// The blocks that are original.
const ORIGINAL: CodeVersion = CodeVersion::Known(0);

/// A phi node of a block: in each version that has one, with its block; and what the original had.
struct Arriving {
    phis: Vec<(Value, Block)>,
    entries: Vec<(Value, Block)>,
}

impl Several<'_> {
    /// Makes the copies and leads control. Gives the description of all versions.
    fn make(&mut self, function: Value) -> FunctionCfg {
        let landings = part_landings(self.module, &landings(function), &mut self.cfg);
        if !landings.is_empty() {
            bounds::VALUES_TOGETHER.raise();
        }
        let mut copied = BTreeMap::<CodeVersion, Vec<Block>>::new();
        for place in self.places {
            if let (true, Some(block)) = (place.version != ORIGINAL, self.cfg.block(place.node)) {
                copied.entry(place.version).or_default().push(block);
            }
        }
        let made = copied.iter().map(|(v, blocks)| (*v, Copies::make(self.module, blocks, function, &IndexMap::new(), Lines::Keep)));
        self.copies = made.collect();
        let mut arriving = self.phis();
        self.lead(&landings);
        self.end_unreached(&mut arriving);
        let values = self.arrive(&landings, arriving);
        let mut flow = ValueFlow::new(self.module, function, &self.meeting());
        let values: Vec<Vec<Value>> = values.into_iter().filter(|v| !v[0].is_void()).collect();
        let all = values.iter().map(Vec::len).sum::<usize>();
        debug_assert_eq!(values.iter().flatten().collect::<IndexSet<_>>().len(), all, "a value is one version of one");
        flow.merge(&values, Definitions::Several);
        self.described()
    }

    /// A block of a version; `None` if it has none such.
    fn block_in(&self, version: CodeVersion, block: Block) -> Option<Block> {
        match self.copies.get(&version) {
            Some(copies) => Some(copies.block(block)).filter(|copy| *copy != block),
            None => (version == ORIGINAL).then_some(block),
        }
    }

    /// A value of a version; the original where the version has none of its own.
    fn value_in(&self, version: CodeVersion, value: Value) -> Value {
        self.copies.get(&version).map_or(value, |copies| copies.value(value))
    }

    /// A block and its copies, with their versions.
    fn all_of(&self, block: Block) -> Vec<(CodeVersion, Block)> {
        let versions = std::iter::once(ORIGINAL).chain(self.copies.keys().copied());
        versions.filter_map(|v| Some((v, self.block_in(v, block)?))).collect()
    }

    /// The phi nodes of all blocks that are not landings, as they are.
    fn phis(&self) -> Vec<Arriving> {
        let mut all = Vec::new();
        for &block in self.cfg.nodes.iter().flatten() {
            let places = self.all_of(block);
            for phi in block.phis() {
                let phis = places.iter().map(|(version, block)| (self.value_in(*version, phi), *block)).collect();
                all.push(Arriving { phis, entries: phi.incoming() });
            }
        }
        all
    }

    /// Sets where terminators lead.
    fn lead(&self, landings: &[(Block, Block)]) {
        let (graph, places) = (self.program.graph(), self.places);
        let before: IndexMap<Block, Vec<Block>> = self.cfg.nodes.iter().flatten().map(|b| (*b, b.terminator().successors())).collect();
        let mut left = IndexMap::<Block, BTreeSet<usize>>::new();
        for edge in graph.edges().filter(|e| graph.to(*e) != graph.exit()) {
            let (tail, head) = (places[graph.from(edge).index()], places[graph.to(edge).index()]);
            let Some(to) = self.cfg.block(head.node) else { continue };
            let target = self.block_in(head.version, to).expect("what control reaches was copied");
            match self.cfg.block(tail.node) {
                Some(block) => {
                    let from = self.block_in(tail.version, block).expect("what control reaches was copied");
                    for (index, _) in before[&block].iter().enumerate().filter(|(_, s)| **s == to) {
                        from.terminator().set_successor(index, target);
                        if head.version == CodeVersion::Instrumented && tail.version != CodeVersion::Instrumented {
                            left.entry(from).or_default().insert(index);
                        }
                    }
                }
                // From the dispatch block: the landing goes on there.
                None => {
                    let (landing, _) = landings.iter().find(|(_, body)| *body == to).expect("indirect branches arrive in landings");
                    Builder::at_end(self.module, *landing, None).jump(target);
                }
            }
        }
        for (block, successors) in left {
            weights::mark_edges_unlikely(self.module, block.terminator(), &successors);
        }
        for (landing, body) in landings {
            if llvm!(LLVMGetBasicBlockTerminator(landing.0)).is_null() {
                Builder::at_end(self.module, *landing, None).jump(*body);
            }
        }
    }

    /// Original blocks to which nothing leads any more lead nowhere. (But for indirect branches: whatever they lead to has
    /// phi nodes of all of them; and for calls that must be tail calls: a return has to follow them, wherever they
    /// are.) What such a block's end defined (a call that may throw does) still has versions in the copies, which may
    /// arrive in original blocks: a stand-in takes its place in everything that names it.
    fn end_unreached(&mut self, arriving: &mut [Arriving]) {
        let places = self.places.iter();
        let reached: IndexSet<Node> = places.filter(|p| p.version == ORIGINAL).map(|p| p.node).collect();
        let nodes = self.cfg.nodes.iter().enumerate();
        let unreached = nodes.filter(|(i, _)| !reached.contains(&Node(*i as u32))).filter_map(|(_, block)| *block);
        let stays = |b: &Block| b.terminator().is(LLVMOpcode::LLVMIndirectBr) || b.instructions().any(is_must_tail);
        let ends: Vec<(Value, Value)> = unreached.filter(|b| !stays(b)).map(|b| (b.terminator(), self.stand_in(b))).collect();
        let stand_ins: IndexMap<Value, Value> = ends.iter().copied().collect();
        let instead = |value: &mut Value| *value = stand_ins.get(value).copied().unwrap_or(*value);
        arriving.iter_mut().flat_map(|a| &mut a.entries).for_each(|(value, _)| instead(value));
        for site in &mut self.cfg.sites {
            if let EdgeSite::Before(at) | EdgeSite::BeforeThenHead(at) = site {
                instead(at);
            }
        }
        self.copies.values_mut().for_each(|copies| copies.replace_originals(&ends));
        // All stand-ins are there already: none of them lies where one of these did.
        for (end, stand_in) in ends {
            if !end.is_void() {
                end.replace_uses(stand_in);
            }
            // SAFETY: the graph and the copies name the stand-ins now (`instead`, `replace_originals`).
            unsafe { end.erase() };
        }
    }

    /// Ends a block again, behind its end, and gives what takes the end's place: a value of its kind, if it has one.
    fn stand_in(&self, block: Block) -> Value {
        let end = block.terminator();
        let builder = Builder::at_end(self.module, block, None);
        let value = (!end.is_void()).then(|| builder.freeze(Value(llvm!(LLVMGetPoison(end.kind())))));
        let unreachable = Value(llvm!(LLVMBuildUnreachable(builder.raw())));
        value.unwrap_or(unreachable)
    }

    /// Gives phi nodes what arrives from all versions now. Gives all values that are several.
    fn arrive(&self, landings: &[(Block, Block)], arriving: Vec<Arriving>) -> Vec<Vec<Value>> {
        for phi in landings.iter().flat_map(|(landing, _)| landing.phis().collect::<Vec<_>>()) {
            let entries = phi.incoming();
            for &version in self.copies.keys() {
                let copied = entries.iter().filter_map(|(v, b)| Some((self.value_in(version, *v), self.block_in(version, *b)?)));
                phi.add_incoming(&copied.collect::<Vec<_>>());
            }
        }
        // Old ones are erased last: what is made later may come to lie where they were.
        let olds: Vec<Value> = arriving.iter().flat_map(|a| &a.phis).map(|(phi, _)| *phi).collect();
        let replaced: IndexMap<Value, Value> = olds.iter().map(|old| (*old, Builder::phi_like(self.module, *old, *old))).collect();
        let now = |v: Value| replaced.get(&v).copied().unwrap_or(v);
        // In their order: that of the uses is what passes go by.
        olds.iter().for_each(|old| old.replace_uses(now(*old)));
        // Asked once for each block: a switch may have thousands of edges to one.
        let mut leads = IndexMap::<Block, IndexSet<Block>>::new();
        for Arriving { phis, entries } in &arriving {
            let mut into = vec![Vec::new(); phis.len()];
            for &(value, from) in entries {
                for (version, from) in self.all_of(from) {
                    let successors = leads.entry(from).or_insert_with(|| from.terminator().successors().into_iter().collect());
                    if let Some(which) = phis.iter().position(|(_, block)| successors.contains(block)) {
                        into[which].push((now(self.value_in(version, value)), from));
                    }
                }
            }
            phis.iter().zip(into).for_each(|((phi, _), entries)| now(*phi).add_incoming(&entries));
        }
        let instructions = self.cfg.nodes.iter().flatten().flat_map(|b| b.instructions());
        let versions_of = |i: Value| {
            let copies = self.copies.values().map(move |c| c.value(i)).filter(move |copy| *copy != i);
            std::iter::once(i).chain(copies).map(now).collect::<Vec<_>>()
        };
        let several = instructions.map(versions_of).filter(|all| all.len() > 1).collect();
        for old in olds {
            // SAFETY: `now` gave the new node wherever an old one was kept, and nothing is made after this.
            unsafe { old.erase() };
        }
        several
    }

    /// The blocks to which both the checking code and the counted one lead.
    fn meeting(&self) -> IndexSet<Block> {
        let all: IndexMap<Block, bool> =
            self.cfg.nodes.iter().flatten().flat_map(|b| self.all_of(*b)).map(|(v, b)| (b, v == CodeVersion::Instrumented)).collect();
        let meets = |b: &Block| {
            let from: Vec<bool> = predecessors(*b).iter().map(|p| all.get(p).copied().unwrap_or(true)).collect();
            from.contains(&true) && from.contains(&false)
        };
        all.keys().copied().filter(meets).collect()
    }

    /// The description of all versions.
    fn described(&self) -> FunctionCfg {
        let (graph, places) = (self.program.graph(), self.places);
        let copies: BTreeMap<CodeVersion, FunctionCfg> =
            self.copies.iter().map(|(version, copies)| (*version, moved(&self.cfg, copies))).collect();
        let of = |version: CodeVersion| copies.get(&version).unwrap_or(&self.cfg);
        let own = || graph.edges().map(|e| (e, of(places[graph.from(e).index()].version), self.program.origin(e).index()));
        let flow = |(e, cfg, own): (Edge, &FunctionCfg, usize)| FlowEdge { from: graph.from(e), to: graph.to(e), ..cfg.edges[own].clone() };
        FunctionCfg {
            nodes: places.iter().map(|p| of(p.version).nodes[p.node.index()]).collect(),
            blocks: places.iter().map(|p| self.cfg.blocks[p.node.index()].clone()).collect(),
            edges: own().map(flow).collect(),
            sites: own().map(|(_, cfg, own)| cfg.sites[own].clone()).collect(),
            hints: own().map(|(_, cfg, own)| cfg.hints[own]).collect(),
            ..self.cfg.clone()
        }
    }
}
