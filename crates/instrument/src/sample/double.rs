//! One function with two versions of its blocks: copies get the probes, and control changes versions at its entry, on chosen back edges,
//! and where indirect branches arrive.

use super::checks::{self, CheckSites};
use super::copies::{Copies, Lines};
use super::dispatch::{self, DispatchTables};
use super::ssa::{self, Definitions};
use super::unroll::{self, Unrolled};
use super::{PlannedFunction, SampleTier, landings, latch, moved, part_landings};
use crate::bounds;
use crate::counting::Counters;
use crate::describe::{EdgeSite, FunctionCfg};
use crate::entry;
use crate::llvm::{Block, Builder, Module, Value, llvm};
use crate::phis;
use crate::probes;
use crate::shape::new_block_behind;
use crate::weights;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use llvm_sys::core::*;
use llvm_sys::prelude::LLVMMetadataRef;
use trodden_flow::{Edge, Graph};

/// How much more often than its copy the head of an interpreter's loop is entered, for code generation. Without it, two of four such
/// interpreters execute 0.1 and 2 % more (docs/benchmarks/constants.md).
const FAST_HEAD: i64 = 1 << 20;

/// How often a function is said to be entered: often enough for what is unlikely not to be never. That it is said matters, not how often:
/// three programs are the same with 2^10 and 2^40 (docs/benchmarks/constants.md).
const ENTRIES: u64 = 1 << 20;

/// A function while it gets its instrumented code.
pub struct Double<'a> {
    tier: &'a SampleTier,
    module: Module,
    function: Value,
    location: Option<LLVMMetadataRef>,
    /// Addresses of the counters, computed where control enters the instrumented code.
    bases: Vec<Value>,
    /// Where versions meet.
    meeting: IndexSet<Block>,
}

impl Double<'_> {
    /// Makes a function's instrumented code beside the code that it has.
    pub fn insert(tier: &SampleTier, planned: &PlannedFunction, first_counter: u64) -> Result<(), String> {
        let (module, function) = (tier.context.module, planned.function);
        let location = crate::debug::no_line(module, function);
        let mut work = Double { tier, module, function, location, bases: Vec::new(), meeting: IndexSet::new() };
        let mut cfg = planned.cfg.clone();
        let tables = tables(function);
        let (landings, sites) = work.places(planned, tables.as_ref());
        let landings = part_landings(module, &landings, &mut cfg);
        let crossings = work.split_back_edges(&mut cfg, &planned.graph, &sites.each_iteration, false);
        let short: Vec<Edge> = sites.unrolled.iter().map(|l| l.back).collect();
        let short = work.split_back_edges(&mut cfg, &planned.graph, &short, true);
        let entry = entry::new_entry(module, function);
        let mut shared = IndexSet::from([entry.0]);
        if tables.is_none() {
            shared.extend(landings.iter().map(|(landing, _)| *landing));
        }
        let fast: Vec<Block> = function.blocks().filter(|b| !shared.contains(b)).collect();
        let mut copies = Copies::make(module, &fast, function, &tier.left_to_callers, Lines::Keep);
        match &tables {
            Some(tables) => tables.part(module, function, &copies),
            None => work.join_landings(&landings, &copies),
        }
        let (acquire, _) = work.acquire(copies.block(entry.1));
        tier.insert_check(entry.0, acquire, entry.1, location);
        let counted = moved(&cfg, &copies);
        let counters = Counters::own(work.bases[0], first_counter);
        let replaced = probes::insert(tier.context, function, &counted, &planned.program, counters);
        copies.replace(&replaced);
        let is_interpreter = work.split_latches(&crossings, &mut copies);
        let unrolled: Vec<Unrolled> =
            sites.unrolled.iter().zip(&short).map(|(l, (check, head))| work.unroll(&cfg, l, *check, *head)).collect();
        // Before anything is erased: what is made later may come to lie where that was.
        let values = values(&copies, &fast, &unrolled);
        let heads: Vec<(Block, Block)> = crossings.iter().map(|(_, head)| (*head, copies.block(*head))).collect();
        work.change_versions(&landings, &crossings, &copies)?;
        for ((check, head), unrolled) in short.iter().zip(&unrolled) {
            work.cross(*check, *head, &copies, unrolled.last())?;
        }
        work.repair(&values);
        if let Some(tables) = &tables {
            tables.keep_addresses(module, function);
        }
        // With a count there, code generation takes its weights for measured, and lays the instrumented code behind the
        // loops of the fast one. Beside counts that were measured, one that was not would say that the function is hot.
        if !weights::has_entries(module, function) && !weights::is_profiled(module) {
            weights::weigh_function(module, function, ENTRIES);
        }
        if is_interpreter {
            work.weigh(&heads);
        }
        Ok(())
    }

    /// Splits the latches through which these edges go, in both versions; whether there was any, as interpreters have them.
    fn split_latches(&self, crossings: &[(Block, Block)], copies: &mut Copies) -> bool {
        let (module, function) = (self.module, self.function);
        let mut any = false;
        for &(check, head) in crossings {
            let split = latch::part(module, function, check, head);
            any |= !split.is_empty();
            copies.replace_originals(&split);
            copies.replace(&latch::part(module, function, copies.block(check), copies.block(head)));
        }
        any
    }

    /// Lets control change versions where indirect branches arrive, and on back edges of loops that are not unrolled.
    fn change_versions(&mut self, landings: &[(Block, Block)], crossings: &[(Block, Block)], copies: &Copies) -> Result<(), String> {
        for &(landing, body) in landings {
            self.check_at_landing(landing, body, copies);
        }
        crossings.iter().try_for_each(|(check, head)| self.cross(*check, *head, copies, &Copies::default()))
    }

    /// Where control changes versions: blocks where indirect branches arrive, and back edges.
    fn places(&self, planned: &PlannedFunction, tables: Option<&DispatchTables>) -> (Vec<Block>, CheckSites) {
        let mut landings = landings(self.function);
        let mut sites = self.tier.sites[&planned.function].clone();
        if let Some(tables) = tables {
            let live = tables.live();
            let PlannedFunction { cfg, graph, program, frequencies, .. } = planned;
            landings = checks::long_landings(&landings, cfg, graph, program.dag(), frequencies);
            landings.retain(|l| !live.contains(l));
            let is_free = |e: &Edge| cfg.nodes[graph.to(*e).index()].is_none_or(|b| !live.contains(&b));
            sites.each_iteration.retain(is_free);
            sites.unrolled.retain(|l| is_free(&l.back));
        }
        (landings, sites)
    }

    fn unroll(&self, cfg: &FunctionCfg, sites: &checks::Unrolled, check: Block, head: Block) -> Unrolled {
        let body = sites.body.iter().filter_map(|n| cfg.nodes[n.index()]).collect();
        unroll::unroll(self.module, body, head, check, sites.iterations, self.location)
    }

    /// Puts a block on each of these edges that has none of its own, or on all of them if blocks are to be `new`; gives
    /// these blocks with the edges' heads.
    fn split_back_edges(&self, cfg: &mut FunctionCfg, graph: &Graph, edges: &[Edge], new: bool) -> Vec<(Block, Block)> {
        let mut renames = IndexMap::<Block, IndexMap<Block, Block>>::new();
        let mut crossings = Vec::new();
        for &edge in edges {
            let block = |node: trodden_flow::Node| cfg.nodes[node.index()].expect("a block");
            let (from, to) = (block(graph.from(edge)), block(graph.to(edge)));
            let taken: Vec<usize> = match &cfg.sites[edge.index()] {
                EdgeSite::OnEdge(successors) => successors.clone(),
                _ if new => vec![0],
                _ => Vec::new(),
            };
            let mut check = from;
            if !taken.is_empty() {
                check = new_block_behind(self.module, from);
                Builder::at_end(self.module, check, self.location).jump(to);
                taken.iter().for_each(|i| from.terminator().set_successor(*i, check));
                renames.entry(to).or_default().insert(from, check);
            }
            cfg.sites[edge.index()] = EdgeSite::Before(check.terminator());
            crossings.push((check, to));
        }
        for (to, renamed) in renames {
            phis::rename_all(self.module, to, &renamed);
        }
        crossings
    }

    /// What both versions' indirect branches bring to their landings.
    fn join_landings(&self, landings: &[(Block, Block)], copies: &Copies) {
        for phi in landings.iter().flat_map(|(landing, _)| landing.phis().collect::<Vec<_>>()) {
            let more: Vec<_> = phi.incoming().into_iter().map(|(v, b)| (copies.value(v), copies.block(b))).collect();
            phi.add_incoming(&more);
        }
    }

    /// A block that sees to it that the thread has a region, and goes on in the instrumented code.
    /// Gives its first and its last block.
    fn acquire(&mut self, to: Block) -> (Block, Block) {
        let block = Block(llvm!(LLVMAppendBasicBlockInContext(self.module.context(), self.function.0, c"".as_ptr())));
        let (base, end) = entry::counters_at(self.tier.context, block, self.location);
        Builder::at_end(self.module, end, self.location).jump(to);
        self.bases.push(base);
        (block, end)
    }

    /// Lets control change versions where indirect branches arrive: in one block for both versions, or in that of each.
    fn check_at_landing(&mut self, landing: Block, body: Block, copies: &Copies) {
        let (counted_landing, counted_body) = (copies.block(landing), copies.block(body));
        let (acquire, _) = self.acquire(counted_body);
        self.tier.insert_check(landing, acquire, body, self.location);
        if counted_landing == landing {
            self.meeting.insert(landing);
        } else {
            self.tier.insert_check(counted_landing, counted_body, body, self.location);
            self.meeting.extend([body, counted_body]);
        }
    }

    /// Lets control change versions on the edge that goes through `check`, which the checking code comes to from the
    /// `last` copy of an unrolled loop's body, or from no copy.
    fn cross(&mut self, check: Block, head: Block, copies: &Copies, last: &Copies) -> Result<(), String> {
        let (counted_check, counted_head) = (copies.block(check), copies.block(head));
        let (acquire, acquired) = self.acquire(counted_head);
        for (block, on, off) in [(check, acquire, head), (counted_check, counted_head, head)] {
            // SAFETY: the handle was asked for here; those of places and values are to instructions within blocks.
            unsafe { block.terminator().erase() };
            self.tier.insert_check(block, on, off, self.location);
        }
        for phi in counted_head.phis() {
            let value = phi.incoming_from(counted_check).ok_or("a path's register does not begin again on a back edge")?;
            let original = copies.original(value);
            // Variables in the stack frame are shared, as are merged values where versions have met.
            let computed = value.is_instruction() && !value.is(LLVMOpcode::LLVMAlloca);
            if original == value && computed && !self.meeting.contains(&value.block()) {
                return Err("a path's register is not constant on a back edge".into());
            }
            phi.add_incoming(&[(last.value(original), acquired)]);
        }
        for phi in head.phis() {
            let value = phi.incoming_from(check).expect("the edge was there");
            phi.add_incoming(&[(copies.value(last.original(value)), counted_check)]);
        }
        self.meeting.extend([head, counted_head]);
        Ok(())
    }

    /// Two versions of a loop between which control changes are one loop with two heads, for each is entered from
    /// outside. Without that weight, code generation would take both for equally hot, and keep in the frame what the
    /// checking code has in registers.
    fn weigh(&self, heads: &[(Block, Block)]) {
        for &(fast, counted) in heads {
            weights::weigh_head(self.module, fast, FAST_HEAD);
            weights::weigh_head(self.module, counted, 1);
        }
    }

    /// Merges what is several values now.
    fn repair(&self, values: &[Vec<Value>]) {
        let mut flow = ssa::ValueFlow::new(self.module, self.function, &self.meeting);
        flow.variable(&self.bases, Definitions::Several);
        flow.merge(values, Definitions::OnePerVersion);
    }
}

/// The tables of a function's indirect branches, each of which is to be copied if there are not too many.
fn tables(function: Value) -> Option<DispatchTables> {
    let tables = DispatchTables::from_function(function)?;
    if landings(function).len() <= dispatch::COPIED {
        bounds::COPIED_JUMPS.raise();
    }
    Some(tables)
}

/// What the versions have of each value, the fast one first.
fn values(copies: &Copies, fast: &[Block], unrolled: &[Unrolled]) -> Vec<Vec<Value>> {
    let mut more: IndexMap<Value, Vec<Value>> = unrolled.iter().flat_map(Unrolled::values).collect();
    let pairs = copies.pairs(fast).into_iter().filter(|(v, _)| !v.is_void());
    pairs.map(|(one, other)| [one, other].into_iter().chain(more.swap_remove(&one).into_iter().flatten()).collect()).collect()
}
