//! Recovers control-flow graphs from machine code. Nothing is executed: the result depends only on the file and on observed transfers of
//! control.
//!
//! Recovery has these phases:
//!
//! - Read tables ([`code`], [`frames`]).
//! - Follow code from entries and from addresses in data ([`explore`]).
//! - Resolve indirect jumps ([`values`], [`tables`]) and follow their targets.
//! - Find functions that never return, and start again with this knowledge, because code after calls to these functions is not reached.
//! - When no more are found, resolve the jumps again: code that was reached after a jump may lead to it with other values.
//! - Join regions of code to functions ([`regions`]).
//! - Build blocks, edges and calls ([`assemble`]), and split functions with several entries ([`split`]).
//!
//! The graphs say which of their parts are uncertain. The time is linear in the code size, except for the bounded searches of [`values`].

mod assemble;
mod bounds;
mod code;
mod explore;
mod frames;
mod handlers;
mod imports;
mod mapped;
mod names;
mod padding;
mod reached;
mod regions;
mod split;
mod sums;
mod tables;
mod values;

use crate::address_map::AddressMap;
use crate::elf::Binary;
use crate::error::BinaryError;
use crate::graph::{GraphDoubt, GraphObservation, ProgramGraph, Uncertainty};
use code::FileCode;
use explore::{Exploration, JumpResolution, KnownCode};
use frames::UnwindTables;
use reached::CodeFlow;
use regions::{FunctionFamilies, is_in_ranges};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Range, RangeInclusive};
use tables::ResolvedJump;
use values::FunctionBody;

/// Maximum number of passes over the code. Each pass starts with what the previous passes have found.
const MAX_RECOVERY_PASSES: usize = 8;
/// Maximum number of rounds in which indirect jumps are resolved and their targets are followed.
const MAX_RESOLUTION_ROUNDS: usize = 12;

impl ProgramGraph {
    /// Recovers the graphs of all functions of a file. Uses the compiler's address map if the file has one.
    pub fn from_binary(binary: &Binary) -> Result<ProgramGraph, BinaryError> {
        let map = AddressMap::read(binary)?;
        recover(binary, map.as_ref(), &[])
    }

    /// Adds an observed transfer of control to the graph. Returns true if the graph has changed.
    ///
    /// The graph is built again with all observations, so the numbers of blocks and functions may change. `map` must be the address map
    /// with which the graph was built.
    pub fn add_observation(&mut self, binary: &Binary, map: Option<&AddressMap>, seen: GraphObservation) -> Result<bool, BinaryError> {
        if self.observations.contains(&seen) {
            return Ok(false);
        }
        let mut observations = self.observations.clone();
        observations.push(seen);
        let amended = recover(binary, map, &observations)?;
        let changed = amended.functions != self.functions;
        *self = amended;
        Ok(changed)
    }
}

/// Recovers the graphs of all functions of a file from its machine code, the compiler's address map if there is one, and observed transfers
/// of control.
pub fn recover(binary: &Binary, map: Option<&AddressMap>, observations: &[GraphObservation]) -> Result<ProgramGraph, BinaryError> {
    let code = FileCode::read(binary)?;
    let frames = UnwindTables::read(&code);
    let mut known = KnownCode {
        symbols: names::read_symbol_names(&code),
        names: names::find_function_names(&code),
        observations: observations.to_vec(),
        ..KnownCode::default()
    };
    if let Some(map) = map {
        known.jump_targets = mapped::map_jump_targets(&code, map);
        known.entries = map.functions.iter().map(|f| f.address).collect();
    }
    let mut graph = recover_until_stable(&code, &frames, &mut known);
    if let Some(map) = map {
        mapped::add_map_data(&mut graph, map);
    }
    Ok(graph)
}

/// Explores the code repeatedly, until no more functions are found that never return, and no more data that may end a jump table.
fn recover_until_stable<'a>(code: &'a FileCode<'a>, frames: &'a UnwindTables<'a>, known: &mut KnownCode) -> ProgramGraph {
    for pass in 1.. {
        let (mut explored, mut notes) = (Exploration::new(code, frames, known), ResolutionNotes::default());
        let mut families = explore(&mut explored, &mut notes);
        let mut never = find_never_returning(&explored, &families);
        let is_last = |explored: &Exploration, never: &HashSet<u64>| {
            pass == MAX_RECOVERY_PASSES || (never.is_subset(&known.never_returning) && explored.data.len() == known.data.len())
        };
        if is_last(&explored, &never) {
            for _ in 0..MAX_RESOLUTION_ROUNDS {
                if !resolve_certain_jumps_again(&mut explored, &families, &mut notes) {
                    break;
                }
                families = explore(&mut explored, &mut notes);
            }
            never = find_never_returning(&explored, &families);
        }
        if is_last(&explored, &never) {
            explored.uncertain.extend(notes.doubts.into_iter().map(|(address, doubt)| Uncertainty { address, doubt }));
            return assemble::assemble(&explored, &families);
        }
        let data = explored.data;
        known.data = data;
        known.never_returning.extend(never);
    }
    unreachable!("the last pass returns")
}

/// How the indirect jumps of an exploration were resolved, by address of the jump.
#[derive(Default)]
struct ResolutionNotes {
    doubts: HashMap<u64, GraphDoubt>,
    /// Jumps through tables whose end was guessed.
    unbounded: HashSet<u64>,
    /// The indices of jump tables that checks allow.
    indices: HashMap<u64, RangeInclusive<u64>>,
}

/// Follows instructions and resolves indirect jumps until nothing new is reached. Returns the families of the explored code.
fn explore(explored: &mut Exploration, notes: &mut ResolutionNotes) -> FunctionFamilies {
    // The targets of a jump that one round resolves may lead to further jumps.
    for _ in 0..MAX_RESOLUTION_ROUNDS {
        let families = resolve_until_stable(explored, notes);
        resolve_jumps_without_table(explored, &families, &mut notes.doubts);
        explored.follow_all_code();
        if find_undecided_jumps(explored, notes).is_empty() && !explored.follow_gaps() {
            break;
        }
    }
    let undecided = find_undecided_jumps(explored, notes);
    notes.doubts.extend(undecided.into_iter().map(|jump| (jump, GraphDoubt::UnresolvedJump)));
    FunctionFamilies::new(explored)
}

/// Returns the jumps that are not resolved and for which no doubt has been recorded.
fn find_undecided_jumps(explored: &Exploration, notes: &ResolutionNotes) -> Vec<u64> {
    let is_undecided = |jump: &u64, resolution: &JumpResolution| *resolution == JumpResolution::Unknown && !notes.doubts.contains_key(jump);
    explored.jumps.iter().filter(|(jump, resolution)| is_undecided(jump, resolution)).map(|(jump, _)| *jump).collect()
}

/// Alternates between resolving jumps and following their targets, until nothing changes. Returns the families of the explored code.
fn resolve_until_stable(explored: &mut Exploration, notes: &mut ResolutionNotes) -> FunctionFamilies {
    for _ in 0..MAX_RESOLUTION_ROUNDS {
        let families = FunctionFamilies::new(explored);
        let before = explored.instructions.len();
        let changed = resolve_jumps(explored, &families, notes);
        explored.follow_all_code();
        if !changed && explored.instructions.len() == before && !explored.follow_data_words() {
            return families;
        }
    }
    FunctionFamilies::new(explored)
}

fn family_ranges(explored: &Exploration, regions: &[u64]) -> Vec<Range<u64>> {
    regions.iter().map(|&start| explored.region_range(start)).collect()
}

/// Resolves the jumps that are not resolved yet, and those with a table whose end was guessed. Returns true if a resolution changed.
fn resolve_jumps(explored: &mut Exploration, families: &FunctionFamilies, notes: &mut ResolutionNotes) -> bool {
    let is_open = |jump: u64, resolution: &JumpResolution| *resolution == JumpResolution::Unknown || notes.unbounded.contains(&jump);
    let mut changed = false;
    for (jump, found) in find_resolutions(explored, families, &is_open, &|_, _| false) {
        let Some(found) = found else { continue };
        changed |= explored.jumps.get(&jump) != Some(&found.resolution);
        if found.is_unbounded {
            notes.unbounded.insert(jump);
        }
        notes.indices.extend(found.indices.map(|indices| (jump, indices)));
        match found.doubt {
            Some(doubt) => _ = notes.doubts.insert(jump, doubt),
            None => _ = notes.doubts.remove(&jump),
        }
        explored.set_resolution(jump, found.resolution);
    }
    changed
}

/// Resolves the jumps again that were resolved without doubt, since code that was reached later may lead to them with other values. Returns
/// true if a resolution changed.
fn resolve_certain_jumps_again(explored: &mut Exploration, families: &FunctionFamilies, notes: &mut ResolutionNotes) -> bool {
    let is_certain = |jump: u64, resolution: &JumpResolution| {
        *resolution != JumpResolution::Unknown && !notes.unbounded.contains(&jump) && !notes.doubts.contains_key(&jump)
    };
    let has_checks =
        |body: &FunctionBody, jump: u64| notes.indices.get(&jump).is_some_and(|indices| tables::are_indices_checked(body, jump, indices));
    let mut changed = false;
    for (jump, found) in find_resolutions(explored, families, &is_certain, &has_checks) {
        let known = &explored.jumps[&jump];
        // All code should be known by now. Other targets result from values that no execution combines.
        let is_plausible = |found: &ResolvedJump| match &found.resolution {
            JumpResolution::Within(targets) => targets.iter().all(|to| explored.instructions.contains(*to)),
            _ => !matches!(known, JumpResolution::Within(_)),
        };
        match found.filter(is_plausible) {
            Some(found) if found.doubt.is_none() && !found.is_unbounded => {
                changed |= found.resolution != *known;
                explored.set_resolution(jump, found.resolution);
            }
            // The end of the table is unknown, and `resolve_jumps` will improve it.
            Some(ResolvedJump { doubt: Some(doubt), resolution, .. }) => {
                changed = true;
                notes.unbounded.insert(jump);
                notes.doubts.insert(jump, doubt);
                explored.set_resolution(jump, resolution);
            }
            _ => {
                let is_within = matches!(known, JumpResolution::Within(_));
                notes.doubts.insert(jump, if is_within { GraphDoubt::MoreTargets } else { GraphDoubt::AssumedTailCall });
            }
        }
    }
    changed
}

/// Resolves the jumps that `is_chosen` selects by address and present resolution, except those for which `is_known` returns true. `None`
/// means that a jump has no known form.
fn find_resolutions(
    explored: &Exploration,
    families: &FunctionFamilies,
    is_chosen: &dyn Fn(u64, &JumpResolution) -> bool,
    is_known: &dyn Fn(&FunctionBody, u64) -> bool,
) -> Vec<(u64, Option<ResolvedJump>)> {
    let mut by_family: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (&jump, resolution) in &explored.jumps {
        if is_chosen(jump, resolution) && !explored.known.jump_targets.contains_key(&jump) {
            let region = explored.region_of(jump);
            by_family.entry(families.family_of(region).unwrap_or(region)).or_default().push(jump);
        }
    }
    let all = families.families();
    let mut found = Vec::new();
    for (family, jumps) in by_family {
        let ranges = family_ranges(explored, all.get(&family).map_or(&[family][..], |r| r));
        let body = FunctionBody::new(explored, &ranges);
        let is_inside = |to: u64| is_table_target(explored, families, &ranges, family, to);
        let unknown = jumps.into_iter().filter(|jump| !is_known(&body, *jump));
        found.extend(unknown.map(|jump| (jump, tables::resolve_jump(explored, &body, jump, &is_inside))));
    }
    found
}

/// Returns true if a jump table of a family (the regions that form one function) may lead to an address. The address must be in the family,
/// or in cold code that only jumps can reach.
fn is_table_target(explored: &Exploration, families: &FunctionFamilies, ranges: &[Range<u64>], family: u64, to: u64) -> bool {
    if !explored.code.is_code(to) || explored.code.is_stub(to) {
        return false;
    }
    if is_in_ranges(ranges, to) {
        return true;
    }
    let region = explored.region_of(to);
    let Some(frame) = explored.frames.index_at(region) else { return false };
    // Cold code to which another function jumps is part of that function.
    let free = families.family_of(region).is_none_or(|f| f == region || f == family);
    free && !explored.frames.frames[frame].starts_as_function && !explored.is_function_start(region)
}

/// Decides where jumps without a table lead: to labels whose address is taken, or to another function as a tail call. Other jumps stay
/// unresolved.
fn resolve_jumps_without_table(explored: &mut Exploration, families: &FunctionFamilies, doubts: &mut HashMap<u64, GraphDoubt>) {
    let open: Vec<u64> = explored.jumps.iter().filter(|(_, r)| **r == JumpResolution::Unknown).map(|(j, _)| *j).collect();
    let all = families.families();
    let mut labels_of_families: HashMap<u64, Vec<u64>> = HashMap::new();
    for jump in open {
        let region = explored.region_of(jump);
        let family = families.family_of(region).unwrap_or(region);
        let find_labels = || {
            let ranges = family_ranges(explored, all.get(&family).map_or(&[family][..], |r| r));
            ranges.into_iter().flat_map(|range| explored.labels.range(range)).copied().collect()
        };
        let mut labels = labels_of_families.entry(family).or_insert_with(find_labels).clone();
        let at_entry_depth = match explored.frames.index_at(jump) {
            Some(frame) => explored.frames.has_entry_stack_depth(frame, jump),
            None => Some(true),
        };
        if at_entry_depth == Some(true) {
            // OCaml's frame tables contain every return address, but none of them can be a target here: when code makes a call, its stack
            // is deeper than at the entry.
            labels.retain(|label| !explored.is_return_address(*label));
            explored.may_leave.insert(jump);
        }
        let (resolution, doubt) = match (labels.is_empty(), at_entry_depth) {
            (true, Some(true)) => (JumpResolution::TailCall, GraphDoubt::AssumedTailCall),
            (false, _) => (JumpResolution::Within(labels), GraphDoubt::AnyLabel),
            _ => (JumpResolution::Unknown, GraphDoubt::UnresolvedJump),
        };
        doubts.insert(jump, doubt);
        explored.set_resolution(jump, resolution);
    }
    let observed: Vec<GraphObservation> = explored.known.observations.clone();
    for seen in observed {
        let Some(resolution) = explored.jumps.get(&seen.from).cloned() else { continue };
        // Ignores observations that add no edge: `longjmp` or an exception may transfer control to the middle of a different function,
        // after a call, to a handler (OCaml), or to the function's return (Go).
        let family_of = |at: u64| {
            let region = explored.region_of(at);
            families.family_of(region).unwrap_or(region)
        };
        let family = family_of(seen.to);
        let of_function = || all.get(&family).is_some_and(|regions| regions.iter().any(|region| explored.is_function_start(*region)));
        let is_within = || !explored.is_function_start(seen.to) && of_function();
        if family_of(seen.from) != family && (explored.is_return_address(seen.to) || is_within()) {
            continue;
        }
        if matches!(resolution, JumpResolution::TailCall | JumpResolution::Unknown) {
            explored.may_leave.insert(seen.from);
        }
        explored.set_resolution(seen.from, add_observed_target(explored, resolution, seen.to));
    }
}

fn add_observed_target(explored: &Exploration, resolution: JumpResolution, to: u64) -> JumpResolution {
    let is_function = explored.region_of(to) == to && explored.is_function_start(to);
    match resolution {
        JumpResolution::Within(mut targets) if !targets.contains(&to) => {
            targets.push(to);
            targets.sort_unstable();
            JumpResolution::Within(targets)
        }
        JumpResolution::Unknown | JumpResolution::TailCall if !is_function => JumpResolution::Within(vec![to]),
        other => other,
    }
}

/// Returns the entries of functions that never return. The other functions are the least fixed point of this rule: a function may return if
/// it contains a return instruction, or jumps to code that may return.
fn find_never_returning(explored: &Exploration, families: &FunctionFamilies) -> HashSet<u64> {
    let mut returning: HashSet<u64> = HashSet::new();
    let mut callers: HashMap<u64, Vec<u64>> = HashMap::new();
    let all = families.families();
    for (&family, regions) in &all {
        let ranges = family_ranges(explored, regions);
        let ends = |to: u64| classify_transfer(explored, &ranges, to);
        let reached = ranges.iter().flat_map(|r| explored.instructions.range(r.clone()));
        for (at, reached) in reached.filter(|(at, _)| !explored.speculative.contains(at)) {
            let to = match reached.flow {
                CodeFlow::Return => TransferOutcome::Returns,
                CodeFlow::Jump(to) | CodeFlow::Conditional(to) => ends(to),
                CodeFlow::JumpIndirect => match &explored.jumps[&at] {
                    JumpResolution::Within(_) if explored.may_leave.contains(&at) => TransferOutcome::Returns,
                    JumpResolution::Within(_) => TransferOutcome::Stays,
                    JumpResolution::Functions(_) | JumpResolution::TailCall | JumpResolution::Unknown => TransferOutcome::Returns,
                    JumpResolution::Import(name) if imports::never_returns(name) => TransferOutcome::Stays,
                    JumpResolution::Import(_) => TransferOutcome::Returns,
                },
                CodeFlow::Next => ends(at + u64::from(reached.size)),
                _ => TransferOutcome::Stays,
            };
            match to {
                TransferOutcome::Stays => {}
                TransferOutcome::Returns => _ = returning.insert(family),
                TransferOutcome::To(target) => {
                    let region = explored.region_of(target);
                    callers.entry(families.family_of(region).unwrap_or(region)).or_default().push(family);
                }
            }
        }
    }
    let mut work: Vec<u64> = returning.iter().copied().collect();
    while let Some(family) = work.pop() {
        for &caller in callers.get(&family).into_iter().flatten() {
            if returning.insert(caller) {
                work.push(caller);
            }
        }
    }
    let never = all.into_iter().filter(|(family, _)| !returning.contains(family));
    never.flat_map(|(_, regions)| regions).filter(|at| explored.is_function_start(*at)).collect()
}

/// What a transfer of control means for the question whether its function may return.
enum TransferOutcome {
    Stays,
    Returns,
    To(u64),
}

fn classify_transfer(explored: &Exploration, ranges: &[Range<u64>], to: u64) -> TransferOutcome {
    if let Some(stub) = explored.code.stubs.get(&to) {
        let never = stub.import.as_deref().is_some_and(imports::never_returns);
        return if never { TransferOutcome::Stays } else { TransferOutcome::Returns };
    }
    if is_in_ranges(ranges, to) || !explored.instructions.contains(to) {
        return TransferOutcome::Stays;
    }
    TransferOutcome::To(to)
}
