//! Builds functions with two versions of their blocks, plain ones and copies with probes. Control changes versions at function entry, on
//! chosen back edges, and at targets of indirect branches.

use super::checks::{self, CheckSites};
use super::dispatch::{self, DispatchTables};
use super::unroll::{self, UnrolledCopies};
use super::{SampleTier, latch};
use crate::bounds;
use crate::counting::CounterAccess;
use crate::describe::{EdgeInsertionSite, FunctionCfg};
use crate::entry;
use crate::llvm::{Block, Builder, DebugLocation, Module, Value};
use crate::phis;
use crate::planned_function::PlannedFunction;
use crate::probes;
use crate::shape::new_block_after;
use crate::versions::copies::{CopiedLinePolicy, CopyMapping};
use crate::versions::ssa::{self, VersionDefinitions};
use crate::versions::{cfg_of_copies, indirect_branch_targets, split_landings};
use crate::weights;
use indexmap::{IndexMap, IndexSet};
use llvm_sys::LLVMOpcode;
use trodden_flow::{Edge, Graph};

/// Weight of the plain version of an interpreter's loop header relative to the instrumented one. Without weights, two of four such
/// interpreters execute 0.1 and 2 % more instructions (docs/benchmarks/constants.md).
const UNINSTRUMENTED_LOOP_HEADER_WEIGHT: i64 = 1 << 20;

/// Entry count of functions for which no count is known, high enough that the frequencies of unlikely edges are not rounded to 0. The exact
/// value does not matter: three programs compile to the same code with 2^10 and 2^40 (docs/benchmarks/constants.md).
const ASSUMED_FUNCTION_ENTRY_COUNT: u64 = 1 << 20;

/// Builds both versions of a function's code.
pub struct DoubledFunction<'a> {
    tier: &'a SampleTier,
    module: Module,
    function: Value,
    location: Option<DebugLocation>,
    /// Values of the address of the thread's counters, one for each place where control enters the instrumented code.
    bases: Vec<Value>,
    /// Blocks with predecessors in both versions, where values must be merged.
    join_blocks: IndexSet<Block>,
}

impl DoubledFunction<'_> {
    pub fn insert(tier: &SampleTier, planned: &PlannedFunction, first_counter: u64) -> Result<(), String> {
        let (module, function) = (tier.context.module, planned.function);
        let location = crate::debug::location_without_line(module, function);
        let mut work = DoubledFunction { tier, module, function, location, bases: Vec::new(), join_blocks: IndexSet::new() };
        let mut cfg = planned.cfg.clone();
        let tables = find_dispatch_tables(function);
        let (landings, sites) = work.choose_sites(planned, tables.as_ref());
        let landings = split_landings(module, &landings, &mut cfg);
        let crossings = work.split_back_edges(&mut cfg, &planned.cfg.graph, &sites.every_iteration, false);
        let short: Vec<Edge> = sites.unrolled.iter().map(|l| l.back).collect();
        let short = work.split_back_edges(&mut cfg, &planned.cfg.graph, &short, true);
        let entry = entry::insert_entry_block(module, function);
        let mut shared = IndexSet::from([entry.0]);
        if tables.is_none() {
            shared.extend(landings.iter().map(|(landing, _)| *landing));
        }
        let fast: Vec<Block> = function.blocks().filter(|b| !shared.contains(b)).collect();
        let mut copies = CopyMapping::new(module, &fast, function, &tier.left_to_callers, CopiedLinePolicy::Keep);
        match &tables {
            Some(tables) => tables.retarget_copies(module, function, &copies),
            None => work.join_landing_versions(&landings, &copies),
        }
        let (acquire, _) = work.emit_region_acquisition(copies.block(entry.1));
        tier.insert_check(entry.0, acquire, entry.1, location);
        let counted = cfg_of_copies(&cfg, &copies);
        let counters = CounterAccess::private_to_thread(work.bases[0], first_counter);
        let replaced = probes::insert_function_probes(tier.context, function, &counted, &planned.program, counters);
        copies.replace(&replaced);
        let is_interpreter = work.split_latches(&crossings, &mut copies);
        let unrolled: Vec<UnrolledCopies> =
            sites.unrolled.iter().zip(&short).map(|(l, (check, head))| work.unroll_loop(&cfg, l, *check, *head)).collect();
        // Collect the values before anything is deleted, because new values may get the addresses of deleted ones.
        let values = value_versions(&copies, &fast, &unrolled);
        let heads: Vec<(Block, Block)> = crossings.iter().map(|(_, head)| (*head, copies.block(*head))).collect();
        work.insert_version_switches(&landings, &crossings, &copies)?;
        for ((check, head), unrolled) in short.iter().zip(&unrolled) {
            work.connect_versions(*check, *head, &copies, unrolled.last_copy())?;
        }
        work.merge_versions(&values);
        if let Some(tables) = &tables {
            tables.keep_table_addresses(module, function);
        }
        // If there is an entry count, LLVM trusts the weights, and moves instrumented code out of the checking code's loops. In a module
        // with a real profile, an assumed count would make the function appear hot.
        if !weights::has_entry_count(module, function) && !weights::has_profile_summary(module) {
            weights::set_entry_count(module, function, ASSUMED_FUNCTION_ENTRY_COUNT);
        }
        if is_interpreter {
            work.set_header_weights(&heads);
        }
        Ok(())
    }

    /// Splits, in both versions, the latches of those back edges in `crossings` that belong to the loop of an interpreter. Returns true if
    /// there were any.
    fn split_latches(&self, crossings: &[(Block, Block)], copies: &mut CopyMapping) -> bool {
        let (module, function) = (self.module, self.function);
        let mut any = false;
        for &(check, head) in crossings {
            let split = latch::split_latch(module, function, check, head);
            any |= !split.is_empty();
            copies.replace_originals(&split);
            copies.replace(&latch::split_latch(module, function, copies.block(check), copies.block(head)));
        }
        any
    }

    /// Inserts the changes of versions at targets of indirect branches, and on back edges of loops that are not unrolled.
    fn insert_version_switches(
        &mut self,
        landings: &[(Block, Block)],
        crossings: &[(Block, Block)],
        copies: &CopyMapping,
    ) -> Result<(), String> {
        for &(landing, body) in landings {
            self.check_at_landing(landing, body, copies);
        }
        crossings.iter().try_for_each(|(check, head)| self.connect_versions(*check, *head, copies, &CopyMapping::default()))
    }

    /// Returns where control changes versions: targets of indirect branches, and back edges of loops.
    fn choose_sites(&self, planned: &PlannedFunction, tables: Option<&DispatchTables>) -> (Vec<Block>, CheckSites) {
        let mut landings = indirect_branch_targets(self.function);
        let mut sites = self.tier.sites[&planned.function].clone();
        if let Some(tables) = tables {
            let live = tables.blocks_with_live_address();
            let PlannedFunction { cfg, program, frequencies, .. } = planned;
            let graph = &cfg.graph;
            landings = checks::choose_landings_with_check(&landings, cfg, graph, program.dag(), frequencies);
            landings.retain(|l| !live.contains(l));
            let is_free = |e: &Edge| cfg.nodes[graph.to(*e).index()].is_none_or(|b| !live.contains(&b));
            sites.every_iteration.retain(is_free);
            sites.unrolled.retain(|l| is_free(&l.back));
        }
        (landings, sites)
    }

    fn unroll_loop(&self, cfg: &FunctionCfg, sites: &checks::UnrolledLoop, check: Block, head: Block) -> UnrolledCopies {
        let body = sites.body.iter().filter_map(|n| cfg.nodes[n.index()]).collect();
        unroll::unroll_loop(self.module, body, head, check, sites.iterations, self.location)
    }

    /// Inserts a block on each of the given back edges that lacks one of its own, or on all of them if `new`. Returns the blocks, each with
    /// its loop header.
    fn split_back_edges(&self, cfg: &mut FunctionCfg, graph: &Graph, edges: &[Edge], new: bool) -> Vec<(Block, Block)> {
        let mut renames = IndexMap::<Block, IndexMap<Block, Block>>::new();
        let mut crossings = Vec::new();
        for &edge in edges {
            let block = |node: trodden_flow::Node| cfg.nodes[node.index()].expect("a block");
            let (from, to) = (block(graph.from(edge)), block(graph.to(edge)));
            let taken: Vec<usize> = match &cfg.sites[edge.index()] {
                EdgeInsertionSite::OnEdge(successors) => successors.clone(),
                _ if new => vec![0],
                _ => Vec::new(),
            };
            let mut check = from;
            if !taken.is_empty() {
                check = new_block_after(self.module, from);
                Builder::at_end(self.module, check, self.location).jump(to);
                taken.iter().for_each(|i| from.terminator().set_successor(*i, check));
                renames.entry(to).or_default().insert(from, check);
            }
            cfg.sites[edge.index()] = EdgeInsertionSite::Before(check.terminator());
            crossings.push((check, to));
        }
        for (to, renamed) in renames {
            phis::rename_phi_predecessors(self.module, to, &renamed);
        }
        crossings
    }

    /// Adds the values that come from the copies' indirect branches to the phi nodes of shared targets.
    fn join_landing_versions(&self, landings: &[(Block, Block)], copies: &CopyMapping) {
        for phi in landings.iter().flat_map(|(landing, _)| landing.phis().collect::<Vec<_>>()) {
            let more: Vec<_> = phi.incoming().into_iter().map(|(v, b)| (copies.value(v), copies.block(b))).collect();
            phi.add_incoming(&more);
        }
    }

    /// Creates code that gives the thread counters of its own, unless it has some, and then continues at `to`, in the instrumented code.
    /// Returns the first and the last block of this code.
    fn emit_region_acquisition(&mut self, to: Block) -> (Block, Block) {
        let block = Block::append(self.module, self.function);
        let (base, end) = entry::emit_region_check(self.tier.context, block, self.location);
        Builder::at_end(self.module, end, self.location).jump(to);
        self.bases.push(base);
        (block, end)
    }

    /// Inserts a change of versions at a target of indirect branches: in one block that both versions share, or in one block for each
    /// version.
    fn check_at_landing(&mut self, landing: Block, body: Block, copies: &CopyMapping) {
        let (counted_landing, counted_body) = (copies.block(landing), copies.block(body));
        let (acquire, _) = self.emit_region_acquisition(counted_body);
        self.tier.insert_check(landing, acquire, body, self.location);
        if counted_landing == landing {
            self.join_blocks.insert(landing);
        } else {
            self.tier.insert_check(counted_landing, counted_body, body, self.location);
            self.join_blocks.extend([body, counted_body]);
        }
    }

    /// Inserts a change of versions on the back edge through the block `check`. In the checking code, the edge comes from `last`, the last
    /// copy of an unrolled loop's body; if the loop is not unrolled, `last` is empty.
    fn connect_versions(&mut self, check: Block, head: Block, copies: &CopyMapping, last: &CopyMapping) -> Result<(), String> {
        let (counted_check, counted_head) = (copies.block(check), copies.block(head));
        let (acquire, acquired) = self.emit_region_acquisition(counted_head);
        for (block, on, off) in [(check, acquire, head), (counted_check, counted_head, head)] {
            // SAFETY: the handle was just obtained, and no other code keeps a handle to this terminator.
            unsafe { block.terminator().erase() };
            self.tier.insert_check(block, on, off, self.location);
        }
        for phi in counted_head.phis() {
            let value = phi.incoming_from(counted_check).ok_or("the path register is not reset on a back edge")?;
            let original = copies.original(value);
            // These values are the same in both versions: stack variables, and values that are merged where versions meet.
            let computed = value.is_instruction() && !value.is(LLVMOpcode::LLVMAlloca);
            if original == value && computed && !self.join_blocks.contains(&value.block()) {
                return Err("the path register is not constant on a back edge".into());
            }
            phi.add_incoming(&[(last.value(original), acquired)]);
        }
        for phi in head.phis() {
            let value = phi.incoming_from(check).expect("the edge was there");
            phi.add_incoming(&[(copies.value(last.original(value)), counted_check)]);
        }
        self.join_blocks.extend([head, counted_head]);
        Ok(())
    }

    /// Sets the weights of loop headers between whose versions control changes on a back edge. Such a loop has two headers, because each
    /// version is entered from outside. Without weights, LLVM would consider both equally hot, and spill values that the checking code
    /// could hold in registers.
    fn set_header_weights(&self, heads: &[(Block, Block)]) {
        for &(fast, counted) in heads {
            weights::set_header_weight(self.module, fast, UNINSTRUMENTED_LOOP_HEADER_WEIGHT);
            weights::set_header_weight(self.module, counted, 1);
        }
    }

    /// Merges the values that have several definitions now that the versions are connected.
    fn merge_versions(&self, values: &[Vec<Value>]) {
        let mut flow = ssa::VersionSsaRepair::new(self.module, self.function, &self.join_blocks);
        flow.rewrite_uses(&self.bases, VersionDefinitions::Arbitrary);
        flow.merge(values, VersionDefinitions::OnePerVersion);
    }
}

/// Returns a function's tables for indirect branches, and makes LLVM duplicate the branches unless they have too many targets.
fn find_dispatch_tables(function: Value) -> Option<DispatchTables> {
    let tables = DispatchTables::from_function(function)?;
    if indirect_branch_targets(function).len() <= dispatch::MAX_COPIED_LANDINGS {
        bounds::BRANCH_DUPLICATION_LIMIT.raise_limit();
    }
    Some(tables)
}

/// Returns the versions of each value, starting with the one in the plain code.
fn value_versions(copies: &CopyMapping, fast: &[Block], unrolled: &[UnrolledCopies]) -> Vec<Vec<Value>> {
    let mut more: IndexMap<Value, Vec<Value>> = unrolled.iter().flat_map(UnrolledCopies::copies_of_values).collect();
    let pairs = copies.pairs(fast).into_iter().filter(|(v, _)| !v.is_void());
    pairs.map(|(one, other)| [one, other].into_iter().chain(more.swap_remove(&one).into_iter().flatten()).collect()).collect()
}
