//! The tier of unknown paths: what [`trodden_flow::residual`] decides, done to a function.
//!
//! The original blocks are the first version, copies ([`crate::sample::copies`]) the counted one. First control is led as the doubled graph says, and
//! values that are two now are merged ([`crate::sample::ssa`]); then the probes come, as into any other graph, but that they count by jumps to the runtime and back: such code
//! hardly ever runs, so it is to be small, and must not make a frame necessary. Last, loops of the first version get [`gates`], so that code generation sees them as they were; and it is told how often
//! the known paths take each way ([`weigh`]).
//!
//! Computed jumps have addresses of blocks in data, so the jumps of both versions arrive in one block; there it is known whether the path that begins is.

use crate::bounds;
use crate::counting::{Counters, Flushing, Unknown};
use crate::describe::{Draft, Site, is_must_tail};
use crate::emit;
use crate::llvm::{Block, Builder, Module, Value, c_string, llvm};
use crate::places;
use crate::probes::{self, Course, Surroundings};
use crate::sample::copies::{Copies, Lines};
use crate::sample::ssa::{Definitions, Flow};
use crate::sample::{Planned, landings, moved, part_landings};
use crate::shape::predecessors;
use crate::weights;
use llvm_sys::core::*;
use llvm_sys::{LLVMLinkage, LLVMOpcode, LLVMUnnamedAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use trodden_flow::schedule::Choices;
use trodden_flow::{CutReason, Doubled, Edge, Graph, Node, Plan, Residual, Schedule};
use trodden_unit::{BlockKind, KnownFunction};

mod gates;

/// Makes a function count its unknown paths.
pub fn insert(
    around: Surroundings,
    count: Value,
    planned: &Planned,
    residual: &Residual,
    known: &KnownFunction,
    first_counter: u64,
    choices: Choices,
) {
    let Planned { function, graph, plan, .. } = planned;
    let hubs: Vec<Node> = graph.nodes().filter(|n| planned.draft.blocks.get(n.index()).is_some_and(|b| b.kind == BlockKind::Hub)).collect();
    let mut doubled = Doubled::of(graph, plan, residual, &hubs);
    if !doubled.has_code() {
        return;
    }
    let mut work = Double { module: around.module, planned, doubled: &doubled, draft: planned.draft.clone() };
    let draft = work.make(*function);
    weigh(around.module, &draft, &doubled);
    doubled.rearrange_rounds(plan, &planned.frequencies, &places::facts(&draft, &doubled.graph), choices);
    let known = Some(known_bytes(around.module, function.name().as_str(), known));
    let course = Course { graph: &doubled.graph, order: &doubled.order, schedule: &doubled.schedule };
    let unknown = Some(Unknown { count, bias: emit::direct_bias(around.module), copies: None, known });
    let counters = Counters { unknown, flushing: Flushing::Jumping, ..Counters::own(around.counters, first_counter) };
    probes::insert_along(around, *function, &draft, course, counters);
    let (first, counted) = draft.nodes.split_at(planned.draft.nodes.len());
    let heads: Vec<Block> = first.iter().flatten().copied().collect();
    let nests = nests(graph, plan).into_iter().filter_map(|n| first[n.index()]).collect();
    gates::insert(around.module, *function, &heads, &counted.iter().flatten().copied().collect(), &nests);
}

/// The same for a function that stays one version, since there cannot be two of it or none of its paths is known: every path is looked up where it ends, or counted.
pub fn insert_into_one(
    around: Surroundings,
    count: Value,
    planned: &Planned,
    known: Option<&KnownFunction>,
    first_counter: u64,
    choices: Choices,
) {
    let Planned { function, draft, graph, plan, frequencies, .. } = planned;
    let schedule = match &planned.residual {
        Some(residual) => residual.looked_up(graph, plan),
        None => Schedule::of(graph, plan, frequencies, &places::facts(draft, graph), choices),
    };
    // A known set of another state of the function tells nothing of it.
    let known = known.filter(|_| planned.residual.is_some()).map(|known| known_bytes(around.module, function.name().as_str(), known));
    let bias = emit::direct_bias(around.module);
    // Where all is counted, and more than one path is taken, it pays to make sure at the entry that the thread has a region.
    let goes_on = !plan.dag.cuts().is_empty();
    let location = crate::debug::no_line(around.module, *function);
    let copies = (planned.residual.is_none() && goes_on).then(|| probes::direct_counters_of_thread(around, *function, bias, location));
    let unknown = Some(Unknown { count, bias, copies, known });
    let counters = Counters { unknown, flushing: Flushing::Jumping, ..Counters::own(around.counters, first_counter) };
    probes::insert(around, *function, draft, graph, plan, &schedule, counters);
}

/// The heads of loops that hold others.
fn nests(graph: &Graph, plan: &Plan) -> Vec<Node> {
    let back: Vec<Edge> = plan.dag.cuts().iter().filter(|c| c.reason == CutReason::Back).map(|c| c.edge).collect();
    let heads: HashSet<Node> = back.iter().map(|e| graph.to(*e)).collect();
    let mut nests = Vec::new();
    for &edge in &back {
        let (head, mut seen, mut stack) = (graph.to(edge), HashSet::new(), vec![graph.from(edge)]);
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

/// Tells code generation how often the known paths take each way of both versions; where they never come, what was said before stays.
fn weigh(module: Module, draft: &Draft, doubled: &Doubled) {
    let graph = &doubled.graph;
    for node in graph.nodes().filter(|n| *n != graph.exit() && doubled.reached[n.index()]) {
        let Some(block) = draft.nodes[node.index()] else { continue };
        let mut ways = vec![0; block.terminator().successors().len()];
        for edge in graph.out(node) {
            if let Site::OnEdge(successors) = &draft.sites[edge.index()] {
                let each = doubled.executions[edge.index()].div_ceil(successors.len().max(1) as u64);
                successors.iter().for_each(|way| ways[*way] = each);
            }
        }
        weights::weigh_ways(module, block.terminator(), &ways);
    }
}

/// A byte for each path: 1 for known ones.
fn known_bytes(module: Module, function: &str, known: &KnownFunction) -> Value {
    let mut bytes = vec![0u8; known.paths as usize];
    known.known.iter().filter_map(|(id, _)| usize::try_from(*id).ok()).for_each(|id| bytes[id] = 1);
    let (text, length) = (bytes.as_ptr().cast(), bytes.len());
    let content = llvm!(LLVMConstStringInContext2(module.context(), text, length, 1));
    let table = llvm!(LLVMAddGlobal(module.raw, llvm!(LLVMTypeOf(content)), c_string(&format!("{function}.known")).as_ptr()));
    llvm!(LLVMSetInitializer(table, content));
    llvm!(LLVMSetGlobalConstant(table, 1));
    llvm!(LLVMSetLinkage(table, LLVMLinkage::LLVMPrivateLinkage));
    llvm!(LLVMSetUnnamedAddress(table, LLVMUnnamedAddr::LLVMGlobalUnnamedAddr));
    Value(table)
}

/// A function while it gets its second version.
struct Double<'a> {
    module: Module,
    planned: &'a Planned,
    doubled: &'a Doubled,
    draft: Draft,
}

/// A phi node of a block that control may reach from both versions: its node, its copies in both, and what it had.
struct Arriving {
    node: Node,
    known: Value,
    counted: Option<Value>,
    entries: Vec<(Value, Block)>,
}

impl Double<'_> {
    /// Makes the counted version and leads control. Gives the description of both.
    fn make(&mut self, function: Value) -> Draft {
        let landings = part_landings(self.module, &landings(function), &mut self.draft);
        if !landings.is_empty() {
            bounds::VALUES_TOGETHER.raise();
        }
        let nodes = self.draft.nodes.len();
        let copied: Vec<Block> = (0..nodes).filter(|i| self.doubled.reached[nodes + i]).filter_map(|i| self.draft.nodes[i]).collect();
        let copies = Copies::make(self.module, &copied, function, &HashMap::new(), Lines::Keep);
        let arriving = self.phis(&copies);
        self.lead(&copies, &landings);
        let pairs = self.arrive(&copies, &landings, arriving, &copied);
        let meeting = self.meeting(&copies);
        let mut flow = Flow::of(self.module, function, &meeting);
        let pairs: Vec<Vec<Value>> = pairs.into_iter().filter(|(v, _)| !v.is_void()).map(|(one, other)| vec![one, other]).collect();
        debug_assert_eq!(pairs.iter().flatten().collect::<HashSet<_>>().len(), 2 * pairs.len(), "a value is one of one pair");
        flow.merge(&pairs, Definitions::Several);
        self.described(&copies, &copied)
    }

    fn block(&self, node: Node) -> Option<Block> {
        self.draft.nodes.get(node.index()).copied().flatten()
    }

    /// The doubled graph's edges between blocks: tail and head in the function's own graph, and the version of each.
    fn crossings(&self) -> impl Iterator<Item = (Edge, bool, bool)> + '_ {
        let (n, m) = (self.draft.nodes.len() as u32, self.planned.graph.edge_count());
        let graph = &self.doubled.graph;
        graph.edges().filter(move |e| graph.to(*e) != graph.exit() && self.doubled.reached[graph.from(*e).index()]).map(move |e| {
            let own = Edge((e.index() % m) as u32);
            (own, e.index() >= m, graph.to(e).0 >= n)
        })
    }

    /// The phi nodes of all blocks that are not landings, as they are.
    fn phis(&self, copies: &Copies) -> Vec<Arriving> {
        let mut all = Vec::new();
        for index in 0..self.draft.nodes.len() {
            let Some(block) = self.draft.nodes[index] else { continue };
            let copy = copies.block(block);
            for phi in block.phis() {
                let counted = (copy != block).then(|| copies.value(phi));
                all.push(Arriving { node: Node(index as u32), known: phi, counted, entries: phi.incoming() });
            }
        }
        all
    }

    /// Sets where terminators lead.
    fn lead(&self, copies: &Copies, landings: &[(Block, Block)]) {
        let graph = &self.planned.graph;
        let before: HashMap<Block, Vec<Block>> = self.draft.nodes.iter().flatten().map(|b| (*b, b.terminator().successors())).collect();
        let mut left = BTreeMap::<Block, BTreeSet<usize>>::new();
        for (edge, from_counted, to_counted) in self.crossings() {
            let Some(to) = self.block(graph.to(edge)) else { continue };
            let target = if to_counted { copies.block(to) } else { to };
            match self.block(graph.from(edge)) {
                Some(tail) => {
                    let from = if from_counted { copies.block(tail) } else { tail };
                    for (index, _) in before[&tail].iter().enumerate().filter(|(_, s)| **s == to) {
                        from.terminator().set_successor(index, target);
                        if to_counted && !from_counted {
                            left.entry(from).or_default().insert(index);
                        }
                    }
                }
                // From the hub: the landing goes on there.
                None => {
                    let (landing, _) = landings.iter().find(|(_, body)| *body == to).expect("computed jumps arrive in landings");
                    Builder::at_end(self.module, *landing, None).jump(target);
                }
            }
        }
        self.end_unreached();
        for (block, ways) in left {
            weights::mark_ways_unlikely(self.module, block.terminator(), &ways);
        }
        for (landing, body) in landings {
            if llvm!(LLVMGetBasicBlockTerminator(landing.0)).is_null() {
                Builder::at_end(self.module, *landing, None).jump(*body);
            }
        }
    }

    /// Blocks of the first version to which nothing leads any more lead nowhere. (But for computed jumps: whatever they lead to has phi nodes of all of them;
    /// and for calls that must be tail calls: a return has to follow them, wherever they are.)
    fn end_unreached(&self) {
        let unreached = (0..self.draft.nodes.len()).filter(|i| !self.doubled.reached[*i]).filter_map(|i| self.draft.nodes[i]);
        for block in unreached {
            let end = block.terminator();
            if end.is(LLVMOpcode::LLVMIndirectBr) || block.instructions().any(is_must_tail) {
                continue;
            }
            if !end.is_void() {
                end.replace_uses(Value(llvm!(LLVMGetPoison(end.kind()))));
            }
            end.erase();
            let builder = Builder::at_end(self.module, block, None);
            llvm!(LLVMBuildUnreachable(builder.raw()));
        }
    }

    /// Gives phi nodes what arrives from both versions now. Gives all values that are two.
    fn arrive(&self, copies: &Copies, landings: &[(Block, Block)], arriving: Vec<Arriving>, copied: &[Block]) -> Vec<(Value, Value)> {
        let is_copied: HashSet<Block> = copied.iter().copied().collect();
        for phi in landings.iter().flat_map(|(landing, _)| landing.phis().collect::<Vec<_>>()) {
            let both = phi.incoming().into_iter().filter(|(_, b)| is_copied.contains(b));
            let more: Vec<_> = both.map(|(v, b)| (copies.value(v), copies.block(b))).collect();
            phi.add_incoming(&more);
        }
        let anew = |old: Value| {
            let new = Builder::phi_before(self.module, old, old.kind(), old.location());
            probes::copy_fast_math(old, new);
            new
        };
        // Old ones are erased last: what is made later may come to lie where they were.
        let olds: Vec<Value> = arriving.iter().flat_map(|a| [Some(a.known), a.counted]).flatten().collect();
        let replaced: HashMap<Value, Value> = olds.iter().map(|old| (*old, anew(*old))).collect();
        let now = |v: Value| replaced.get(&v).copied().unwrap_or(v);
        // In their order: that of the uses is what passes go by.
        olds.iter().for_each(|old| old.replace_uses(now(*old)));
        // Asked once for each block: a switch may have thousands of ways to one.
        let mut leads = HashMap::<Block, HashSet<Block>>::new();
        for phi in &arriving {
            let known = self.block(phi.node).expect("phi nodes are in blocks");
            let counted = copies.block(known);
            let (mut to_known, mut to_counted) = (Vec::new(), Vec::new());
            for &(value, from) in &phi.entries {
                for (value, from) in [Some((value, from)), is_copied.contains(&from).then(|| (copies.value(value), copies.block(from)))]
                    .into_iter()
                    .flatten()
                {
                    let successors = leads.entry(from).or_insert_with(|| from.terminator().successors().into_iter().collect());
                    if successors.contains(&known) {
                        to_known.push((now(value), from));
                    } else if successors.contains(&counted) {
                        to_counted.push((now(value), from));
                    }
                }
            }
            now(phi.known).add_incoming(&to_known);
            if let Some(old) = phi.counted {
                now(old).add_incoming(&to_counted);
            }
        }
        // New ones may lie where terminators were that are no more; so they are none of what was copied.
        let new: HashSet<Value> = replaced.values().copied().collect();
        let copied = copies.pairs(copied).into_iter().filter(|(a, _)| !new.contains(a));
        let pairs = copied.map(|(a, b)| (now(a), now(b))).collect();
        olds.iter().for_each(|old| old.erase());
        pairs
    }

    /// The blocks to which both versions lead.
    fn meeting(&self, copies: &Copies) -> HashSet<Block> {
        let known: HashSet<Block> = self.draft.nodes.iter().flatten().copied().collect();
        let blocks = known.iter().flat_map(|b| [*b, copies.block(*b)]);
        let meets = |b: &Block| {
            let from = predecessors(*b);
            from.iter().any(|p| known.contains(p)) && from.iter().any(|p| !known.contains(p))
        };
        blocks.filter(meets).collect()
    }

    /// The description of both versions.
    fn described(&self, copies: &Copies, copied: &[Block]) -> Draft {
        let second = moved(&self.draft, copies);
        let is_copied: HashSet<Block> = copied.iter().copied().collect();
        let counted = self.draft.nodes.iter().map(|n| n.filter(|b| is_copied.contains(b)).map(|b| copies.block(b)));
        let mut both = self.draft.clone();
        both.nodes.extend(counted);
        both.blocks.extend(second.blocks);
        both.sites.extend(second.sites);
        both.hints.extend(second.hints);
        let graph = &self.doubled.graph;
        both.edges = self.draft.edges.iter().chain(&second.edges).cloned().collect();
        for ((edge, flow), site) in graph.edges().zip(&mut both.edges).zip(&mut both.sites) {
            (flow.from, flow.to) = (graph.from(edge), graph.to(edge));
            if !self.doubled.reached[flow.from.index()] {
                // What was not copied has no place.
                *site = Site::OnEdge(Vec::new());
            }
        }
        both
    }
}
