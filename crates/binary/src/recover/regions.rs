//! Groups regions of code into functions.
//!
//! A region is the code that one unwind entry describes or, in code without unwind entries, the code from one known function start to the
//! next. Compilers split off cold code, which then has its own unwind entry and is reached by jumps. A jump joins the regions of its source
//! and its target in two cases: it leads to the middle of the target region, or the target region cannot be a function, because its stack
//! is deeper than at an entry or because its symbol ends with `.cold`.

use super::explore::{Exploration, JumpResolution};
use super::reached::CodeFlow;
use crate::instruction::MAX_INSTRUCTION_LENGTH;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

impl Exploration<'_, '_> {
    /// Returns the start of the region that contains an address. Regions are identified by their start.
    pub fn region_of(&self, address: u64) -> u64 {
        if let Some(frame) = self.frames.index_at(address) {
            return self.frames.frames[frame].start;
        }
        let lowest = self.code.section_at(address).map_or(0, |s| s.range.start);
        let after = self.frames.frames.partition_point(|f| f.start <= address);
        let lowest = after.checked_sub(1).map_or(lowest, |at| self.frames.frames[at].end.max(lowest));
        self.starts.range(lowest..=address).next_back().copied().unwrap_or(lowest)
    }

    pub fn region_range(&self, start: u64) -> Range<u64> {
        if let Some(frame) = self.frames.index_at(start) {
            return start..self.frames.frames[frame].end;
        }
        let mut end = self.code.section_at(start).map_or(start, |s| s.range.end);
        if let Some(frame) = self.frames.frames.get(self.frames.frames.partition_point(|f| f.start <= start)) {
            end = end.min(frame.start);
        }
        start..self.starts.range(start + 1..).next().map_or(end, |next| end.min(*next))
    }

    /// Returns true if an address is used like a function: it is called, its address is taken, or it has a function symbol.
    pub fn is_used_as_function(&self, address: u64) -> bool {
        let is_named = self.known.symbols.get(&address).is_some_and(|name| !is_cold(name));
        is_named || self.call_targets.contains(&address) || self.address_taken.contains(&address)
    }

    /// Returns true if a function starts at an address, and not a part that was split off from a function.
    pub fn is_function_start(&self, address: u64) -> bool {
        if !self.code.is_code(address) || self.code.is_stub(address) {
            return false;
        }
        if self.call_targets.contains(&address) || self.address_taken.contains(&address) {
            return true;
        }
        if let Some(name) = self.known.symbols.get(&address) {
            return !is_cold(name);
        }
        match self.frames.index_at(address) {
            Some(frame) => self.frames.frames[frame].start == address && self.frames.frames[frame].starts_as_function,
            None => self.code.startup_functions.contains(&address) || self.code.exported.contains(&address),
        }
    }
}

/// Returns true if an address is in one of the ranges, which must be ascending and disjoint.
pub fn is_in_ranges(ranges: &[Range<u64>], at: u64) -> bool {
    let after = ranges.partition_point(|range| range.start <= at);
    ranges[..after].last().is_some_and(|range| at < range.end)
}

/// A direct jump from one region to another.
struct JumpBetweenRegions {
    from: u64,
    to: u64,
    /// Start of the region of `from`.
    region: u64,
    is_conditional: bool,
}

fn find_jumps_between_regions(explored: &Exploration) -> Vec<JumpBetweenRegions> {
    let mut found = Vec::new();
    let mut region = 0..0;
    for (from, reached) in explored.instructions.transfers() {
        let (CodeFlow::Jump(to) | CodeFlow::Conditional(to)) = reached.flow else { continue };
        if !region.contains(&from) {
            region = explored.region_range(explored.region_of(from));
        }
        if !region.contains(&to) {
            let is_conditional = matches!(reached.flow, CodeFlow::Conditional(_));
            found.push(JumpBetweenRegions { from, to, region: region.start, is_conditional });
        }
    }
    found
}

/// Returns the starts of code without unwind information to which several functions jump. Such code is treated as a function of its own.
fn find_shared_tails(explored: &Exploration, jumps: &[JumpBetweenRegions]) -> BTreeSet<u64> {
    let mut first: BTreeMap<u64, u64> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for JumpBetweenRegions { to, region, .. } in jumps.iter().filter(|jump| !jump.is_conditional) {
        if explored.frames.index_at(*to).is_some() || explored.region_of(*to) != *to {
            continue;
        }
        if explored.is_function_start(*region) && *first.entry(*to).or_insert(*region) != *region {
            shared.insert(*to);
        }
    }
    shared
}

/// Returns true if a symbol names a part that was split off from a function.
pub fn is_cold(name: &str) -> bool {
    name.ends_with(".cold") || name.contains(".cold.") || name.contains(".__part.")
}

/// The regions that form each function (its family), as a disjoint-set forest.
#[derive(Clone, Debug, Default)]
pub struct FunctionFamilies {
    /// Start of each region that contains instructions, ascending, and index of its parent in the forest.
    regions: Vec<(u64, usize)>,
}

impl FunctionFamilies {
    /// Joins the regions of explored code to families.
    pub fn new(explored: &Exploration) -> FunctionFamilies {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut at = 0;
        while let Some(first) = explored.instructions.first_from(at) {
            let range = explored.region_range(explored.region_of(first));
            at = range.end.max(first + 1);
            ranges.push(range);
        }
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup();
        let mut families = FunctionFamilies { regions: ranges.iter().enumerate().map(|(index, range)| (range.start, index)).collect() };
        let jumps = find_jumps_between_regions(explored);
        let shared = find_shared_tails(explored, &jumps);
        for jump in jumps.iter().filter(|jump| !shared.contains(&jump.to)) {
            families.join_by_jump(explored, jump.from, jump.to);
        }
        for region in ranges {
            for (from, reached) in
                explored.instructions.range(region.end.saturating_sub(MAX_INSTRUCTION_LENGTH).max(region.start)..region.end)
            {
                let next = from + u64::from(reached.size);
                if matches!(reached.flow, CodeFlow::Next | CodeFlow::Conditional(_)) && !region.contains(&next) {
                    families.join_by_jump(explored, from, next);
                }
            }
        }
        for (&jump, resolution) in &explored.jumps {
            if let JumpResolution::Within(targets) = resolution {
                let region = explored.region_range(explored.region_of(jump));
                targets.iter().filter(|to| !region.contains(to)).for_each(|&to| families.join_by_jump(explored, jump, to));
            }
        }
        families.join_landing_pads(explored);
        families
    }

    /// Joins functions with the cold code that contains their landing pads.
    fn join_landing_pads(&mut self, explored: &Exploration) {
        for frame in &explored.frames.frames {
            for pad in frame.protected.iter().map(|p| p.landing_pad).filter(|pad| !(frame.start..frame.end).contains(pad)) {
                self.join_regions(explored, frame.start, pad);
            }
        }
    }

    fn join_by_jump(&mut self, explored: &Exploration, from: u64, to: u64) {
        if !explored.instructions.contains(to) || (explored.region_of(to) == to && explored.is_function_start(to)) {
            return;
        }
        self.join_regions(explored, from, to);
    }

    fn join_regions(&mut self, explored: &Exploration, from: u64, to: u64) {
        let (Some(a), Some(b)) = (self.index_of(explored.region_of(from)), self.index_of(explored.region_of(to))) else { return };
        let (a, b) = (self.find_root(a), self.find_root(b));
        self.regions[a.max(b)].1 = a.min(b);
    }

    fn index_of(&self, start: u64) -> Option<usize> {
        self.regions.binary_search_by_key(&start, |r| r.0).ok()
    }

    fn find_root(&mut self, mut index: usize) -> usize {
        while self.regions[index].1 != index {
            self.regions[index].1 = self.regions[self.regions[index].1].1;
            index = self.regions[index].1;
        }
        index
    }

    /// Returns the start of the first region in the same family, which identifies the family. Returns `None` for a region without
    /// instructions.
    pub fn family_of(&self, region: u64) -> Option<u64> {
        let mut index = self.index_of(region)?;
        while self.regions[index].1 != index {
            index = self.regions[index].1;
        }
        Some(self.regions[index].0)
    }

    /// Returns the regions of each family, ascending. A family is identified by the start of its first region.
    pub fn families(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut all: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for &(start, _) in &self.regions {
            all.entry(self.family_of(start).unwrap_or(start)).or_default().push(start);
        }
        all
    }
}
