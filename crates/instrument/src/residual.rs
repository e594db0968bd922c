//! Builds functions of the residual tier, which counts only unknown paths, those that earlier runs have not taken. Such a function has
//! several versions of its code: checking code, which runs while the path may still be a known one, and instrumented code, which counts.
//! [`trodden_flow::residual`] chooses the versions, and this module builds them. The original blocks are the first version of the checking
//! code; its other versions and the instrumented code are copies ([`crate::versions::copies`]). Terminators are redirected to match the
//! graph of all versions, values with several versions are merged ([`crate::versions::ssa`]), and probes are inserted. To count, code jumps
//! to the runtime and back: counts are rare, so their code should be small and must not require a stack frame. Finally, loops get
//! [`gates`], and edges get the frequencies of the known paths ([`set_known_path_weights`]). Indirect branches of all versions lead to one
//! landing block, which then selects the version.

use crate::bounds;
use crate::counting::{CounterAccess, LoopFlushStrategy};
use crate::describe::{EdgeInsertionSite, FunctionCfg, is_must_tail};
use crate::emit;
use crate::entry;
use crate::interesting::InterestingPathCode;
use crate::llvm::{Block, Builder, Module, Value};
use crate::module_context::ModuleContext;
use crate::path_end::{KnownTest, PathEndAction, UnknownPathCode};
use crate::places;
use crate::planned_function::PlannedFunction;
use crate::probes;
use crate::program_passes;
use crate::shape::predecessors;
use crate::versions::copies::{CopiedLinePolicy, CopyMapping};
use crate::versions::ssa::{VersionDefinitions, VersionSsaRepair};
use crate::versions::{cfg_of_copies, indirect_branch_targets, split_landings};
use crate::weights;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use std::collections::{BTreeMap, BTreeSet};
use trodden_flow::program::{CodeVersion, CounterCells, NodePlace, PassChoices};
use trodden_flow::{CutReason, Dag, Edge, Graph, Node, ProbeProgram};
use trodden_unit::{BlockKind, FlowEdge, FlowGraph};

mod gates;

pub fn insert_residual_code(context: ModuleContext, count: Value, planned: &PlannedFunction, first_counter: u64, choices: PassChoices) {
    match planned.program.places() {
        Some(places) => insert_known_path_versions(context, count, planned, places, first_counter, choices),
        None => insert_single_code_version(context, count, planned, first_counter, choices),
    }
}

fn insert_known_path_versions(
    context: ModuleContext,
    count: Value,
    planned: &PlannedFunction,
    places: &[NodePlace],
    first_counter: u64,
    choices: PassChoices,
) {
    let PlannedFunction { function, frequencies, .. } = planned;
    let mut program = planned.program.clone();
    if !program.has_any_code() {
        return;
    }
    let mut work =
        VersionBuilder { module: context.module, program: &planned.program, places, cfg: planned.cfg.clone(), copies: BTreeMap::new() };
    let cfg = work.build_versions(*function);
    set_known_path_weights(context.module, *function, &cfg, &program);
    let blocks = places::block_properties(&cfg);
    program_passes::run_passes(&mut program, frequencies, &blocks, choices);
    let known = known_path_test(context.module, planned);
    let at_end =
        PathEndAction::Unknown(UnknownPathCode { count, bias: emit::declare_direct_bias(context.module), thread_base: None, known });
    let counters =
        CounterAccess { at_end, flushing: LoopFlushStrategy::Branch, ..CounterAccess::private_to_thread(context.counters, first_counter) };
    probes::insert_function_probes(context, *function, &cfg, &program, counters);
    let blocks = |chosen: &dyn Fn(NodePlace) -> bool| -> Vec<Block> {
        cfg.nodes.iter().zip(places).filter(|(_, place)| chosen(**place)).filter_map(|(block, _)| *block).collect()
    };
    let outer_headers: IndexSet<Node> = headers_of_outer_loops(&planned.cfg.graph, program.dag()).into_iter().collect();
    let first = |p: NodePlace| p.version != CodeVersion::Instrumented;
    let counted = blocks(&|p| !first(p)).into_iter().collect();
    gates::insert_gates(
        context.module,
        *function,
        &blocks(&first),
        &counted,
        &blocks(&|p| first(p) && outer_headers.contains(&p.node)).into_iter().collect(),
    );
}

/// Returns the nodes for dispatch blocks, which exist only once.
pub fn dispatch_blocks(cfg: &FunctionCfg) -> Vec<Node> {
    let dispatch_blocks = cfg.blocks.iter().enumerate().filter(|(_, b)| b.kind == BlockKind::Dispatch);
    dispatch_blocks.map(|(i, _)| Node(i as u32)).collect()
}

/// Instruments a function that keeps a single version of its code, because it cannot have two, none of its paths is known, or known paths
/// are recognised by their numbers. Each path is looked up at its end, unless none is known.
fn insert_single_code_version(context: ModuleContext, count: Value, planned: &PlannedFunction, first_counter: u64, choices: PassChoices) {
    let PlannedFunction { function, cfg, frequencies, .. } = planned;
    let mut program = planned.program.clone();
    program_passes::run_passes(&mut program, frequencies, &places::block_properties(cfg), choices);
    let known = known_path_test(context.module, planned);
    let bias = emit::declare_direct_bias(context.module);
    // If all paths are counted, and a call of the function may execute several, it is cheaper to check once, at entry, whether the thread
    // has counters.
    let has_cuts = !program.dag().cuts().is_empty();
    let location = crate::debug::location_without_line(context.module, *function);
    let thread_base = (known.is_none() && has_cuts).then(|| entry::emit_direct_thread_counters(context, *function, bias, location));
    let at_end = PathEndAction::Unknown(UnknownPathCode { count, bias, thread_base, known });
    let counters =
        CounterAccess { at_end, flushing: LoopFlushStrategy::Branch, ..CounterAccess::private_to_thread(context.counters, first_counter) };
    probes::insert_function_probes(context, *function, cfg, &program, counters);
}

/// Returns the headers of loops that contain other loops.
fn headers_of_outer_loops(graph: &Graph, dag: &Dag) -> Vec<Node> {
    let back: Vec<Edge> = dag.cuts().iter().filter(|c| c.reason == CutReason::Back).map(|c| c.edge).collect();
    let heads: IndexSet<Node> = back.iter().map(|e| graph.to(*e)).collect();
    let mut outer_headers = Vec::new();
    for &edge in &back {
        let (head, mut seen, mut stack) = (graph.to(edge), IndexSet::new(), vec![graph.from(edge)]);
        while let Some(node) = stack.pop() {
            if node != head && seen.insert(node) {
                stack.extend(graph.incoming(node).iter().map(|e| graph.from(*e)));
            }
        }
        if seen.iter().any(|n| heads.contains(n)) {
            outer_headers.push(head);
        }
    }
    outer_headers
}

/// Sets branch weights from the executions of known paths. A block that no known path reaches keeps its weights. Also sets the entry count:
/// without it, LLVM does not trust the weights, and does not move cold blocks (such as the instrumented code) out of loops.
fn set_known_path_weights(module: Module, function: Value, cfg: &FunctionCfg, program: &ProbeProgram) {
    let graph = program.graph();
    let entries = graph.out(graph.entry()).iter().map(|e| program.executions(*e)).fold(0, u64::saturating_add);
    if entries > 0 && !weights::has_entry_count(module, function) {
        weights::set_entry_count(module, function, entries);
    }
    for node in graph.nodes().filter(|n| *n != graph.exit()) {
        let Some(block) = cfg.nodes[node.index()] else { continue };
        let mut taken = vec![0; block.terminator().successors().len()];
        for edge in graph.out(node) {
            if let EdgeInsertionSite::OnEdge(successors) = &cfg.sites[edge.index()] {
                let each = program.executions(*edge).div_ceil(successors.len().max(1) as u64);
                successors.iter().for_each(|at| taken[*at] = each);
            }
        }
        weights::set_edge_weights(module, block.terminator(), &taken);
    }
}

/// Returns how the code recognises known paths; `None` if no path of the function is known.
fn known_path_test(module: Module, planned: &PlannedFunction) -> Option<KnownTest<'_>> {
    let known = planned.program.known()?;
    if let CounterCells::Preferential(ending) = planned.program.cells() {
        let words = InterestingPathCode::declare(module, &planned.function.name(), ending);
        return Some(KnownTest::Words(words, ending.identity_mask().unwrap_or(u64::MAX)));
    }
    let mut bytes = vec![0u8; planned.program.paths().numbering.paths() as usize];
    known.iter().filter_map(|id| usize::try_from(*id).ok()).for_each(|id| bytes[id] = 1);
    Some(KnownTest::Bytes(module.add_bytes(&format!("{}.known", planned.function.name()), &bytes)))
}

struct VersionBuilder<'a> {
    module: Module,
    program: &'a ProbeProgram,
    /// For each node of the probe program's graph, its version of the code and its node in the original graph.
    places: &'a [NodePlace],
    cfg: FunctionCfg,
    /// The copied blocks of each version except the original.
    copies: BTreeMap<CodeVersion, CopyMapping>,
}

/// The version that consists of the original blocks.
const ORIGINAL_CODE_VERSION: CodeVersion = CodeVersion::Known(0);

/// The copies of a phi node in all versions of the code, and the incoming values of the original.
struct PhiVersions {
    phis: Vec<(Value, Block)>,
    entries: Vec<(Value, Block)>,
}

impl VersionBuilder<'_> {
    /// Copies blocks, and redirects control flow between the versions. Returns the graph of all versions, with their blocks.
    fn build_versions(&mut self, function: Value) -> FunctionCfg {
        let landings = split_landings(self.module, &indirect_branch_targets(function), &mut self.cfg);
        if !landings.is_empty() {
            bounds::COALESCING_LIMIT.raise_limit();
        }
        let mut copied = BTreeMap::<CodeVersion, Vec<Block>>::new();
        for place in self.places {
            if let (true, Some(block)) = (place.version != ORIGINAL_CODE_VERSION, self.cfg.block(place.node)) {
                copied.entry(place.version).or_default().push(block);
            }
        }
        let created = copied
            .iter()
            .map(|(v, blocks)| (*v, CopyMapping::new(self.module, blocks, function, &IndexMap::new(), CopiedLinePolicy::Keep)));
        self.copies = created.collect();
        let mut arriving = self.phi_versions();
        self.redirect_terminators(&landings);
        self.terminate_unreachable(&mut arriving);
        let values = self.update_phis(&landings, arriving);
        let mut flow = VersionSsaRepair::new(self.module, function, &self.join_blocks());
        let values: Vec<Vec<Value>> = values.into_iter().filter(|v| !v[0].is_void()).collect();
        let all = values.iter().map(Vec::len).sum::<usize>();
        debug_assert_eq!(values.iter().flatten().collect::<IndexSet<_>>().len(), all, "a value is a version of only one original");
        flow.merge(&values, VersionDefinitions::Arbitrary);
        self.describe_versions()
    }

    /// Returns the block's copy in a version; `None` if the version has none.
    fn block_in_version(&self, version: CodeVersion, block: Block) -> Option<Block> {
        match self.copies.get(&version) {
            Some(copies) => Some(copies.block(block)).filter(|copy| *copy != block),
            None => (version == ORIGINAL_CODE_VERSION).then_some(block),
        }
    }

    /// Returns the copy of a value in a version, or the value itself if the version has no copy.
    fn value_in_version(&self, version: CodeVersion, value: Value) -> Value {
        self.copies.get(&version).map_or(value, |copies| copies.value(value))
    }

    /// Returns a block and all its copies, each with its version.
    fn block_versions(&self, block: Block) -> Vec<(CodeVersion, Block)> {
        let versions = std::iter::once(ORIGINAL_CODE_VERSION).chain(self.copies.keys().copied());
        versions.filter_map(|v| Some((v, self.block_in_version(v, block)?))).collect()
    }

    /// Returns the phi nodes of all blocks except landing blocks, each with its copies.
    fn phi_versions(&self) -> Vec<PhiVersions> {
        let mut all = Vec::new();
        for &block in self.cfg.nodes.iter().flatten() {
            let places = self.block_versions(block);
            for phi in block.phis() {
                let phis = places.iter().map(|(version, block)| (self.value_in_version(*version, phi), *block)).collect();
                all.push(PhiVersions { phis, entries: phi.incoming() });
            }
        }
        all
    }

    /// Redirects the terminators of all versions to the successors that the probe program's graph prescribes.
    fn redirect_terminators(&self, landings: &[(Block, Block)]) {
        let (graph, places) = (self.program.graph(), self.places);
        let before: IndexMap<Block, Vec<Block>> = self.cfg.nodes.iter().flatten().map(|b| (*b, b.terminator().successors())).collect();
        let mut left = IndexMap::<Block, BTreeSet<usize>>::new();
        for edge in graph.edges().filter(|e| graph.to(*e) != graph.exit()) {
            let (tail, head) = (places[graph.from(edge).index()], places[graph.to(edge).index()]);
            let Some(to) = self.cfg.block(head.node) else { continue };
            let target = self.block_in_version(head.version, to).expect("reachable blocks were copied");
            match self.cfg.block(tail.node) {
                Some(block) => {
                    let from = self.block_in_version(tail.version, block).expect("reachable blocks were copied");
                    for (index, _) in before[&block].iter().enumerate().filter(|(_, s)| **s == to) {
                        from.terminator().set_successor(index, target);
                        if head.version == CodeVersion::Instrumented && tail.version != CodeVersion::Instrumented {
                            left.entry(from).or_default().insert(index);
                        }
                    }
                }
                // In the graph, the dispatch block jumps to the target; in the code, the landing block does so at its end.
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
            if !landing.is_terminated() {
                Builder::at_end(self.module, *landing, None).jump(*body);
            }
        }
    }

    /// Replaces the terminators of unreachable original blocks with `unreachable`. This is not possible for indirect branches, because the
    /// phi nodes of their targets must list all of them, nor for blocks with `musttail` calls, after which a return must follow. If a
    /// terminator defines a value (`invoke`), copies of it may reach original blocks, so a dummy value replaces it everywhere.
    fn terminate_unreachable(&mut self, arriving: &mut [PhiVersions]) {
        let places = self.places.iter();
        let reached: IndexSet<Node> = places.filter(|p| p.version == ORIGINAL_CODE_VERSION).map(|p| p.node).collect();
        let nodes = self.cfg.nodes.iter().enumerate();
        let unreached = nodes.filter(|(i, _)| !reached.contains(&Node(*i as u32))).filter_map(|(_, block)| *block);
        let stays = |b: &Block| b.terminator().is(LLVMOpcode::LLVMIndirectBr) || b.instructions().any(is_must_tail);
        let ends: Vec<(Value, Value)> = unreached.filter(|b| !stays(b)).map(|b| (b.terminator(), self.append_unreachable(b))).collect();
        let placeholders: IndexMap<Value, Value> = ends.iter().copied().collect();
        let replace = |value: &mut Value| *value = placeholders.get(value).copied().unwrap_or(*value);
        arriving.iter_mut().flat_map(|a| &mut a.entries).for_each(|(value, _)| replace(value));
        for site in &mut self.cfg.sites {
            if let EdgeInsertionSite::Before(at) | EdgeInsertionSite::BeforeThenHead(at) = site {
                replace(at);
            }
        }
        self.copies.values_mut().for_each(|copies| copies.replace_originals(&ends));
        // All placeholders were created before, so none can have the address of a deleted terminator.
        for (end, placeholder) in ends {
            if !end.is_void() {
                end.replace_uses(placeholder);
            }
            // SAFETY: the graph and the copies now refer to the placeholders instead (`replace`, `replace_originals`).
            unsafe { end.erase() };
        }
    }

    /// Appends `unreachable` to a block. Returns the replacement for the old terminator: a dummy value if it has a result, otherwise the
    /// new terminator.
    fn append_unreachable(&self, block: Block) -> Value {
        let end = block.terminator();
        let builder = Builder::at_end(self.module, block, None);
        let value = (!end.is_void()).then(|| builder.freeze(end.kind().poison()));
        let unreachable = builder.unreachable();
        value.unwrap_or(unreachable)
    }

    /// Adds the incoming values of all versions to the phi nodes. Returns, for each value with copies, all its versions.
    fn update_phis(&self, landings: &[(Block, Block)], arriving: Vec<PhiVersions>) -> Vec<Vec<Value>> {
        for phi in landings.iter().flat_map(|(landing, _)| landing.phis().collect::<Vec<_>>()) {
            let entries = phi.incoming();
            for &version in self.copies.keys() {
                let copied =
                    entries.iter().filter_map(|(v, b)| Some((self.value_in_version(version, *v), self.block_in_version(version, *b)?)));
                phi.add_incoming(&copied.collect::<Vec<_>>());
            }
        }
        // Delete the old phi nodes last, so that no new one gets the address of an old one.
        let olds: Vec<Value> = arriving.iter().flat_map(|a| &a.phis).map(|(phi, _)| *phi).collect();
        let replaced: IndexMap<Value, Value> = olds.iter().map(|old| (*old, Builder::insert_phi_like(self.module, *old, *old))).collect();
        let now = |v: Value| replaced.get(&v).copied().unwrap_or(v);
        // Replace the uses in a fixed order, because passes depend on the order of uses.
        olds.iter().for_each(|old| old.replace_uses(now(*old)));
        // Cache the successors of each block: a switch may have thousands of edges to one target.
        let mut leads = IndexMap::<Block, IndexSet<Block>>::new();
        for PhiVersions { phis, entries } in &arriving {
            let mut into = vec![Vec::new(); phis.len()];
            for &(value, from) in entries {
                for (version, from) in self.block_versions(from) {
                    let successors = leads.entry(from).or_insert_with(|| from.terminator().successors().into_iter().collect());
                    if let Some(which) = phis.iter().position(|(_, block)| successors.contains(block)) {
                        into[which].push((now(self.value_in_version(version, value)), from));
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
            // SAFETY: every other handle to an old node was replaced (`now`), and no instruction is created after this.
            unsafe { old.erase() };
        }
        several
    }

    /// Returns the blocks that have predecessors in both the checking and the instrumented code.
    fn join_blocks(&self) -> IndexSet<Block> {
        let all: IndexMap<Block, bool> = self
            .cfg
            .nodes
            .iter()
            .flatten()
            .flat_map(|b| self.block_versions(*b))
            .map(|(v, b)| (b, v == CodeVersion::Instrumented))
            .collect();
        let meets = |b: &Block| {
            let from: Vec<bool> = predecessors(*b).iter().map(|p| all.get(p).copied().unwrap_or(true)).collect();
            from.contains(&true) && from.contains(&false)
        };
        all.keys().copied().filter(meets).collect()
    }

    fn describe_versions(&self) -> FunctionCfg {
        let (graph, places) = (self.program.graph(), self.places);
        let copies: BTreeMap<CodeVersion, FunctionCfg> =
            self.copies.iter().map(|(version, copies)| (*version, cfg_of_copies(&self.cfg, copies))).collect();
        let of = |version: CodeVersion| copies.get(&version).unwrap_or(&self.cfg);
        let own = || graph.edges().map(|e| (e, of(places[graph.from(e).index()].version), self.program.origin(e)));
        let flow = own().map(|(e, cfg, own)| FlowEdge { from: graph.from(e), to: graph.to(e), ..cfg.graph.edge(own) });
        FunctionCfg {
            nodes: places.iter().map(|p| of(p.version).nodes[p.node.index()]).collect(),
            blocks: places.iter().map(|p| self.cfg.blocks[p.node.index()].clone()).collect(),
            graph: FlowGraph::new(places.len(), flow).expect("the edges are those of the program's graph"),
            sites: own().map(|(_, cfg, own)| cfg.sites[own.index()].clone()).collect(),
            hints: own().map(|(_, cfg, own)| cfg.hints[own.index()]).collect(),
            ..self.cfg.clone()
        }
    }
}
