//! Recovery of control-flow graphs from machine code.
//!
//! Phases: read tables ([`code`], [`frames`]); follow code from its entries and from what data names ([`explore`]); resolve
//! indirect jumps ([`values`], [`tables`]) and follow what they reach; find functions that do not return, and start again with that
//! knowledge, since nothing behind a call of one is code; join pieces to functions ([`regions`]); make blocks, edges
//! and calls ([`assemble`]). Nothing is executed. The result depends on the file and on what executions showed, nothing
//! else.
//!
//! What stays uncertain is in the graphs, with addresses. Complexity: linear in the code for all but the searches of
//! [`values`], which are bounded.

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
mod regions;
mod sums;
mod tables;
mod values;

use crate::address_map::AddressMap;
use crate::elf::Binary;
use crate::error::BinaryError;
use crate::graph::{Doubt, GraphObservation, ProgramGraph, Uncertainty};
use code::Code;
use explore::{CodeFlow, Explored, KnownCode, Resolution};
use frames::Frames;
use regions::Families;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

/// Passes, each of which starts again with what is known from the ones before, at most.
const PASSES: usize = 8;
/// Alternations of resolving jumps and following what they reach, at most.
const ALTERNATIONS: usize = 12;

impl ProgramGraph {
    /// The graphs of a file's functions, by the compiler's map where it has one, else recovered.
    ///
    /// # Errors
    /// The file's tables are damaged.
    pub fn from_binary(binary: &Binary) -> Result<ProgramGraph, BinaryError> {
        let map = AddressMap::read(binary)?;
        recover(binary, map.as_ref(), &[])
    }

    /// Adds a transfer of control that an execution showed: from the instruction at one address to that at another.
    /// Says whether the graph changed.
    ///
    /// The graph is rebuilt with all that was observed; blocks and functions may get other numbers. `map` is the one
    /// that the graph was made with.
    ///
    /// # Errors
    /// As [`recover`].
    pub fn amend(&mut self, binary: &Binary, map: Option<&AddressMap>, seen: GraphObservation) -> Result<bool, BinaryError> {
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

/// The graphs of a file's functions: from the compiler's map for those that it has, else recovered from the code, with
/// what executions showed besides.
///
/// # Errors
/// The file's tables are damaged.
pub fn recover(binary: &Binary, map: Option<&AddressMap>, observations: &[GraphObservation]) -> Result<ProgramGraph, BinaryError> {
    let code = Code::read(binary)?;
    let frames = Frames::read(&code);
    let mut known = KnownCode {
        symbols: names::symbols(&code),
        names: names::names(&code),
        observations: observations.to_vec(),
        ..KnownCode::default()
    };
    if let Some(map) = map {
        known.jump_targets = mapped::jump_targets(&code, map);
        known.entries = map.functions.iter().map(|f| f.address).collect();
    }
    let mut graph = stable_graph(&code, &frames, &mut known);
    if let Some(map) = map {
        mapped::annotate(&mut graph, map);
    }
    Ok(graph)
}

/// Follows code again and again, each time with what is known from before: functions that do not return, and where data
/// begins that ends a table.
fn stable_graph<'a>(code: &'a Code<'a>, frames: &'a Frames<'a>, known: &mut KnownCode) -> ProgramGraph {
    for pass in 1.. {
        let (explored, families) = explore(code, frames, known);
        let never = never_returning(&explored, &families);
        if pass == PASSES || (never.is_subset(&known.never) && explored.data.len() == known.data.len()) {
            return assemble::assemble(&explored, &families);
        }
        let data = explored.data;
        known.data = data;
        known.never.extend(never);
    }
    unreachable!("the last pass returns")
}

/// Follows code and resolves indirect jumps until nothing new is reached.
fn explore<'k, 'a>(code: &'a Code<'a>, frames: &'a Frames<'a>, known: &'k KnownCode) -> (Explored<'k, 'a>, Families) {
    let mut explored = Explored::new(code, frames, known);
    let mut doubts: HashMap<u64, Doubt> = HashMap::new();
    let mut unbounded: HashSet<u64> = HashSet::new();
    // What a decision reaches may have jumps of its own.
    for _ in 0..ALTERNATIONS {
        resolve_all(&mut explored, &mut doubts, &mut unbounded);
        let families = Families::new(&explored);
        decide_jumps(&mut explored, &families, &mut doubts);
        explored.follow();
        if undecided(&explored, &doubts).is_empty() && !explored.follow_gaps() {
            break;
        }
    }
    doubts.extend(undecided(&explored, &doubts).into_iter().map(|jump| (jump, Doubt::UnresolvedJump)));
    let families = Families::new(&explored);
    explored.uncertain.extend(doubts.into_iter().map(|(address, doubt)| Uncertainty { address, doubt }));
    (explored, families)
}

/// Jumps of which nothing is known, nor that nothing is known.
fn undecided(explored: &Explored, doubts: &HashMap<u64, Doubt>) -> Vec<u64> {
    let open = explored.jumps.iter().filter(|(jump, resolution)| **resolution == Resolution::Unknown && !doubts.contains_key(*jump));
    open.map(|(jump, _)| *jump).collect()
}

/// Alternates between resolving jumps and following what they reach.
fn resolve_all(explored: &mut Explored, doubts: &mut HashMap<u64, Doubt>, unbounded: &mut HashSet<u64>) {
    for _ in 0..ALTERNATIONS {
        let families = Families::new(explored);
        let before = explored.instructions.len();
        let changed = resolve_jumps(explored, &families, doubts, unbounded);
        explored.follow();
        if !changed && explored.instructions.len() == before && !explored.follow_words() {
            break;
        }
    }
}

/// Addresses of a family's regions.
fn ranges_of(explored: &Explored, regions: &[u64]) -> Vec<Range<u64>> {
    regions.iter().map(|&start| explored.region_range(start)).collect()
}

/// Resolves jumps that are not resolved yet, and again those whose table's end may be known better now. Says whether any changed.
fn resolve_jumps(explored: &mut Explored, families: &Families, doubts: &mut HashMap<u64, Doubt>, unbounded: &mut HashSet<u64>) -> bool {
    let open = |jump: &u64, resolution: &Resolution| *resolution == Resolution::Unknown || unbounded.contains(jump);
    let mut by_family: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (&jump, resolution) in &explored.jumps {
        if open(&jump, resolution) && !explored.known.jump_targets.contains_key(&jump) {
            let region = explored.region_of(jump);
            by_family.entry(families.family_of(region).unwrap_or(region)).or_default().push(jump);
        }
    }
    let all = families.families();
    let mut found = Vec::new();
    for (family, jumps) in by_family {
        let ranges = ranges_of(explored, all.get(&family).map_or(&[family][..], |r| r));
        let body = values::FunctionBody::new(explored, &ranges);
        let is_inside = |to: u64| is_target(explored, families, &ranges, family, to);
        found.extend(jumps.into_iter().filter_map(|jump| Some((jump, tables::resolve(explored, &body, jump, &is_inside)?))));
    }
    let mut changed = false;
    for (jump, found) in found {
        changed |= explored.jumps.get(&jump) != Some(&found.resolution);
        if found.unbounded {
            unbounded.insert(jump);
        }
        match found.doubt {
            Some(doubt) => _ = doubts.insert(jump, doubt),
            None => _ = doubts.remove(&jump),
        }
        explored.resolve(jump, found.resolution);
    }
    changed
}

/// Whether a jump table of a family may lead to an address: into the family itself, or to cold code that only jumps can reach.
fn is_target(explored: &Explored, families: &Families, ranges: &[Range<u64>], family: u64, to: u64) -> bool {
    if !explored.code.is_code(to) || explored.code.is_stub(to) {
        return false;
    }
    if ranges.iter().any(|r| r.contains(&to)) {
        return true;
    }
    let region = explored.region_of(to);
    let Some(frame) = explored.frames.at(region) else { return false };
    // Cold code that some other function jumps to is that function's.
    let free = families.family_of(region).is_none_or(|f| f == region || f == family);
    free && !explored.frames.frames[frame].starts_as_function && !explored.is_function_start(region)
}

/// Decides about jumps that no table explains: to labels whose address is kept, to another function, or not known.
fn decide_jumps(explored: &mut Explored, families: &Families, doubts: &mut HashMap<u64, Doubt>) {
    let open: Vec<u64> = explored.jumps.iter().filter(|(_, r)| **r == Resolution::Unknown).map(|(j, _)| *j).collect();
    let all = families.families();
    for jump in open {
        let region = explored.region_of(jump);
        let family = families.family_of(region).unwrap_or(region);
        let ranges = ranges_of(explored, all.get(&family).map_or(&[family][..], |r| r));
        let mut labels: Vec<u64> = ranges.iter().flat_map(|r| explored.labels.range(r.clone())).copied().collect();
        let at_entry_depth = match explored.frames.at(jump) {
            Some(frame) => explored.frames.is_entry_depth(frame, jump),
            None => Some(true),
        };
        if at_entry_depth == Some(true) {
            // OCaml's tables of frames name every return address. Code that calls has its stack deeper than at the entry.
            labels.retain(|label| !explored.is_behind_call(*label));
            explored.leaving.insert(jump);
        }
        let (resolution, doubt) = match (labels.is_empty(), at_entry_depth) {
            (true, Some(true)) => (Resolution::TailCall, Doubt::AssumedTailCall),
            (false, _) => (Resolution::Within(labels), Doubt::AnyLabel),
            _ => (Resolution::Unknown, Doubt::UnresolvedJump),
        };
        doubts.insert(jump, doubt);
        explored.resolve(jump, resolution);
    }
    let observed: Vec<GraphObservation> = explored.known.observations.clone();
    for seen in observed {
        let Some(resolution) = explored.jumps.get(&seen.from).cloned() else { continue };
        // `longjmp`, or an exception: another function goes on in its middle, behind a call, or where it has named a handler (OCaml), or
        // where it returns from (Go). No edge leads there.
        let family_of = |at: u64| {
            let region = explored.region_of(at);
            families.family_of(region).unwrap_or(region)
        };
        let family = family_of(seen.to);
        let of_function = || all.get(&family).is_some_and(|regions| regions.iter().any(|region| explored.is_function_start(*region)));
        let is_within = || !explored.is_function_start(seen.to) && of_function();
        if family_of(seen.from) != family && (explored.is_behind_call(seen.to) || is_within()) {
            continue;
        }
        if matches!(resolution, Resolution::TailCall | Resolution::Unknown) {
            explored.leaving.insert(seen.from);
        }
        explored.resolve(seen.from, with_observed(explored, resolution, seen.to));
    }
}

fn with_observed(explored: &Explored, resolution: Resolution, to: u64) -> Resolution {
    let is_function = explored.region_of(to) == to && explored.is_function_start(to);
    match resolution {
        Resolution::Within(mut targets) if !targets.contains(&to) => {
            targets.push(to);
            targets.sort_unstable();
            Resolution::Within(targets)
        }
        Resolution::Unknown | Resolution::TailCall if !is_function => Resolution::Within(vec![to]),
        other => other,
    }
}

/// Functions from whose entry no return can be reached, as the code shows.
///
/// The least solution: a function may return if it has a return, or jumps to something that may return.
fn never_returning(explored: &Explored, families: &Families) -> HashSet<u64> {
    let mut returning: HashSet<u64> = HashSet::new();
    let mut callers: HashMap<u64, Vec<u64>> = HashMap::new();
    let all = families.families();
    for (&family, regions) in &all {
        let ranges = ranges_of(explored, regions);
        let ends = |to: u64| leaves(explored, &ranges, to);
        let reached = ranges.iter().flat_map(|r| explored.instructions.range(r.clone()));
        for (&at, reached) in reached.filter(|(at, _)| !explored.speculative.contains(at)) {
            let to = match reached.flow {
                CodeFlow::Return => Leaves::Returns,
                CodeFlow::Jump(to) | CodeFlow::Conditional(to) => ends(to),
                CodeFlow::JumpIndirect => match &explored.jumps[&at] {
                    Resolution::Within(_) if explored.leaving.contains(&at) => Leaves::Returns,
                    Resolution::Within(_) => Leaves::Stays,
                    Resolution::Functions(_) | Resolution::TailCall | Resolution::Unknown => Leaves::Returns,
                    Resolution::Import(name) if imports::never_returns(name) => Leaves::Stays,
                    Resolution::Import(_) => Leaves::Returns,
                },
                CodeFlow::Next => ends(at + u64::from(reached.size)),
                _ => Leaves::Stays,
            };
            match to {
                Leaves::Stays => {}
                Leaves::Returns => _ = returning.insert(family),
                Leaves::To(target) => {
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

/// Where control leaves a function to.
enum Leaves {
    Stays,
    Returns,
    To(u64),
}

fn leaves(explored: &Explored, ranges: &[Range<u64>], to: u64) -> Leaves {
    if let Some(stub) = explored.code.stubs.get(&to) {
        let never = stub.import.as_deref().is_some_and(imports::never_returns);
        return if never { Leaves::Stays } else { Leaves::Returns };
    }
    if ranges.iter().any(|r| r.contains(&to)) || !explored.instructions.contains_key(&to) {
        return Leaves::Stays;
    }
    Leaves::To(to)
}
