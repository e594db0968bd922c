//! Corrects LLVM's mapping of counters to source regions if calls did not return, because the code after such a call was not executed.
//!
//! LLVM counts a region once, at its start, and computes the counts of some regions by subtraction, as if each call returned. Unfinished
//! paths show which lines were not executed. `llvm-cov` reads a copy of the mapping in which regions that start on these lines have count
//! 0. *Gap regions* set line counts without counting as regions; they cover the rest of a region after the call. LLVM's
//! `CoverageMappingReader.cpp` defines the format, versions 6 and 7 (LLVM 14 to 22).

use crate::caveats::{CallEndCache, CaveatReason, CoverageCaveat};
use crate::demangled::linkage_name;
use crate::file_names::FileNames;
use crate::instances::FunctionInstances;
use crate::region_code::{CodeRegion, FunctionRegions, RegionCounter, RegionKind};
use crate::sections::{ImageCoverageMapping, MappingRecord, hash_name};
use crate::stops::{ExecutionStop, ExecutionStops};
use crate::true_counts::{CorrectedRegionCounts, SourceSpan};
use anyhow::Result;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use trodden_analysis::changes::normalize;
use trodden_profile::ImageProfile;
use trodden_report::ProfileView;
use trodden_report::lines::{BranchDirection, FileCounts, LineCounts};

/// What the paths reveal about functions in which some executions ended early, by a call that did not return or a signal.
pub struct NotExecutedCode {
    /// LLVM's hashes of the names of functions with unfinished paths, and of functions that are inlined into them.
    functions: HashSet<u64>,
    /// The hashes of those `functions` that were compiled with `-O0`. Only their branches correspond to branches in the source.
    unoptimised: HashSet<u64>,
    /// Line and branch counts, by the file's name in the mapping.
    counts: BTreeMap<String, FileCounts>,
    stops: ExecutionStops,
    /// For each function, given by its declaration, the parts that follow a position where an execution ended.
    parts_after_stops: HashMap<FunctionPosition, BTreeSet<SourceSpan>>,
    caveats: BTreeSet<CoverageCaveat>,
}

impl NotExecutedCode {
    pub fn from_view(view: &ProfileView, images: &[&ImageProfile], names_of_files: &FileNames) -> NotExecutedCode {
        let (mut names, mut optimised) = (HashSet::new(), HashSet::new());
        for function in view.functions.iter().filter(|f| !f.paths.are_all_paths_finished()) {
            let map = &function.unit.map;
            let mut all = HashSet::from([function.name.linkage.as_str()]);
            for position in function.map.blocks.iter().flat_map(|block| &block.positions) {
                let mut scope = map.scopes.get(position.scope as usize);
                while let Some(inner) = scope {
                    all.insert(if inner.linkage_name.is_empty() { &inner.name } else { &inner.linkage_name });
                    scope = inner.inlined_at.and_then(|caller| map.scopes.get(caller.scope as usize));
                }
            }
            if !map.codegen.iter().any(|option| option == "-O0") {
                optimised.extend(all.iter().copied());
            }
            names.extend(all);
        }
        let stops = ExecutionStops::from_view(view, images, names_of_files);
        let edges = view.profile.images.iter().flat_map(|i| &i.units).filter_map(|u| u.map.edge_profile.as_ref());
        let (mut functions, mut unoptimised) = (HashSet::new(), HashSet::new());
        for name in edges.flat_map(|edges| &edges.names) {
            let linkage = linkage_name(name);
            if names.contains(linkage) {
                functions.insert(hash_name(name.as_bytes()));
                unoptimised.extend((!optimised.contains(linkage)).then(|| hash_name(name.as_bytes())));
            }
        }
        let mut counts = BTreeMap::<String, FileCounts>::new();
        for image in images {
            let of_image = LineCounts::from_functions(view.functions.iter().filter(|f| std::ptr::eq(f.image, *image)));
            for (file, of_file) in of_image.files {
                let file = names_of_files.name_in_mapping(view.profile, image, &file).unwrap_or_else(|| normalize(&file));
                counts.entry(file).or_default().add(&of_file);
            }
        }
        NotExecutedCode { functions, unoptimised, counts, stops, parts_after_stops: HashMap::new(), caveats: BTreeSet::new() }
    }

    /// Records the parts of functions that follow calls that did not return. All instances of a function have these parts in common.
    pub fn record_parts_after_stops(&mut self, image: usize, mapping: &ImageCoverageMapping, instances: &FunctionInstances) -> Result<()> {
        let mut ends = CallEndCache::default();
        for record in mapping.records()? {
            let Some(instance) = instances.instance_number(image, &record).map(|number| instances.instance(number)) else { continue };
            let name = &instance.edges.name;
            let (stops, reasons) =
                (self.stops.stops_of_function(&instance.images, name), self.stops.caveats_of_function(&instance.images, name));
            if stops.is_empty() && reasons.is_empty() {
                continue;
            }
            let function = record.regions()?;
            let files = normalized_paths(mapping, &record, &function);
            let Some(place) = find_declaration(&function, &files) else { continue };
            let mut mark = |reason| {
                let caveat = CoverageCaveat { file: place.0.clone(), line: place.1.0, function: name.clone(), reason };
                self.caveats.insert(caveat);
            };
            reasons.into_iter().for_each(&mut mark);
            if stops.is_empty() {
                continue;
            }
            let Some(counts) = CorrectedRegionCounts::new(&function, &instance.edges.counts, &files, &stops) else {
                let is_unknown = stops.iter().any(|stop| !files.contains(&stop.file));
                mark(if is_unknown { CaveatReason::UnknownPosition } else { CaveatReason::Contradiction });
                continue;
            };
            let is_rust = place.0.ends_with(".rs");
            if is_rust && counts.has_branches() {
                mark(CaveatReason::RustBranches);
            }
            for (file, name) in files.iter().enumerate() {
                let lines = self.counts.get(name);
                let is_code = |line: u64| lines.is_none_or(|l| u32::try_from(line).is_ok_and(|line| l.lines.contains_key(&line)));
                let parts = counts.parts_after_stops(file, is_code, |place| if is_rust { None } else { ends.last_line(name, place) });
                // In unoptimised code, nothing but the evaluation of arguments comes between the position of a call and the call itself, so
                // no code can have been moved.
                if parts.has_unknown_lines && !self.unoptimised.contains(&record.name_hash()) {
                    mark(CaveatReason::MovedCode);
                }
                self.parts_after_stops.entry(place.clone()).or_default().extend(parts.spans);
            }
        }
        Ok(())
    }

    pub fn into_caveats(self) -> BTreeSet<CoverageCaveat> {
        self.caveats
    }

    /// Writes object files with a corrected copy of an image's mapping. In the copy, each instance has its own counters, and so does code
    /// after calls that did not return. The first record of an instance is in an object file without other instances of the same name;
    /// further records of the instance are in the first object file. Returns `None` if the mapping needs no correction.
    pub fn write_corrected_objects(
        &self,
        image: usize,
        mapping: &ImageCoverageMapping,
        instances: &mut FunctionInstances,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let (mut objects, mut changed) = (Vec::<MappingObject>::new(), false);
        let mut corrected = BTreeMap::new();
        for record in mapping.records()? {
            let Some(number) = instances.instance_number(image, &record) else {
                find_object_for(&mut objects, None).add(&record, record.graph_hash(), None);
                continue;
            };
            let regions = match corrected.entry(number) {
                Entry::Vacant(entry) => entry.insert(self.correct_record(mapping, &record, number, instances)?),
                Entry::Occupied(entry) => entry.into_mut(),
            };
            let hash = instances.instance(number).edges.hash;
            let is_again = objects.iter().any(|object| object.instances.contains(&number));
            let object = find_object_for(&mut objects, (!is_again).then_some(record.name_hash()));
            object.instances.insert(number);
            object.add(&record, hash, regions.as_ref());
            changed |= hash != record.graph_hash() || regions.is_some();
        }
        match changed || objects.len() > 1 {
            true => objects.iter().map(|object| mapping.write_object(&object.records)).collect::<Result<_>>().map(Some),
            false => Ok(None),
        }
    }

    /// Returns the corrected regions of an instance's record; `None` if the record needs no correction.
    fn correct_record(
        &self,
        mapping: &ImageCoverageMapping,
        record: &MappingRecord,
        number: usize,
        instances: &mut FunctionInstances,
    ) -> Result<Option<FunctionRegions>> {
        let mut function = record.regions()?;
        let files = normalized_paths(mapping, record, &function);
        let instance = instances.instance(number);
        let stops = self.stops.stops_of_function(&instance.images, &instance.edges.name);
        let is_unfinished = self.functions.contains(&record.name_hash());
        let parts = find_declaration(&function, &files).and_then(|place| self.parts_after_stops.get(&place));
        let mut changed = false;
        if !stops.is_empty() || parts.is_some() {
            let values = &mut instances.instance_edges_mut(number).counts;
            changed = correct_counts(values, &mut function, &files, &stops, parts.into_iter().flatten());
        }
        for (file, regions) in files.iter().zip(&mut function.regions).filter(|_| is_unfinished) {
            let Some(counts) = self.counts.get(file) else { continue };
            changed |=
                zero_unexecuted_regions(regions, counts, function.expressions.len() as u64, self.unoptimised.contains(&record.name_hash()));
        }
        if changed {
            // This expression has the value 0, because it subtracts a counter from itself. The constant 0 cannot be used, because LLVM
            // takes it to mean that the compiler folded a condition.
            function.expressions.push([RegionCounter::FIRST, RegionCounter::FIRST]);
        }
        changed |= instances.instance(number).add_variant_files(&mut function);
        Ok(changed.then_some(function))
    }
}

#[derive(Default)]
struct MappingObject {
    records: Vec<u8>,
    names: BTreeSet<u64>,
    instances: BTreeSet<usize>,
}

impl MappingObject {
    fn add(&mut self, record: &MappingRecord, graph: u64, regions: Option<&FunctionRegions>) {
        self.names.insert(record.name_hash());
        record.append(&mut self.records, graph, regions);
    }
}

/// Returns the first object file without a record of this name, and adds a file if necessary. If `name` is `None`, returns the first file.
fn find_object_for(objects: &mut Vec<MappingObject>, name: Option<u64>) -> &mut MappingObject {
    let number = name.map_or(0, |name| objects.iter().position(|object| !object.names.contains(&name)).unwrap_or(objects.len()));
    objects.resize_with(objects.len().max(number + 1), MappingObject::default);
    &mut objects[number]
}

fn normalized_paths(mapping: &ImageCoverageMapping, record: &MappingRecord, function: &FunctionRegions) -> Vec<String> {
    mapping.files_of(record, function).iter().map(|file| normalize(file)).collect()
}

/// Identifies a function in the source, by the file and start of its first region. All instances of a template have these in common.
type FunctionPosition = (String, (u64, u64));

fn find_declaration(function: &FunctionRegions, files: &[String]) -> Option<FunctionPosition> {
    Some((files.first()?.clone(), function.regions.first()?.first()?.start))
}

/// Corrects the counters of a function's regions, and adds a gap region for each part that follows a call. The corrected counts are
/// appended to `values` as additional counters. Returns true if anything changed.
fn correct_counts<'r>(
    values: &mut Vec<u64>,
    function: &mut FunctionRegions,
    files: &[String],
    stops: &[ExecutionStop],
    parts: impl Iterator<Item = &'r SourceSpan>,
) -> bool {
    let (original, known) = (function.clone(), values.clone());
    let Some(counts) = CorrectedRegionCounts::new(&original, &known, files, stops) else { return false };
    let mut changed = false;
    let mut set = |counter: &mut RegionCounter, count: Option<i128>, value: Option<i128>| {
        if let Some(count) = count.and_then(|count| u64::try_from(count).ok())
            && value != Some(i128::from(count))
            && *counter != RegionCounter::ZERO
        {
            values.push(count);
            *counter = RegionCounter::from_counter(values.len() as u64 - 1);
            changed = true;
        }
    };
    for (file, regions) in function.regions.iter_mut().enumerate() {
        for (at, region) in regions.iter_mut().enumerate() {
            let known: Vec<Option<i128>> = region.counters.iter().map(|counter| counts.count_of_counter(*counter)).collect();
            if region.is_branch() {
                let sides = counts.direction_counts(file, at);
                let sides = (0..2).map(|side| sides.map(|sides| sides[side]));
                region.counters.iter_mut().zip(sides).zip(known).for_each(|((counter, side), value)| set(counter, side, value));
            } else if let (Some(counter), Some(value)) = (region.counters.first_mut(), known.first()) {
                set(counter, counts.entry_count(file, at), *value);
            }
        }
    }
    for part in parts {
        let mut counter = RegionCounter::FIRST;
        set(&mut counter, counts.count_reaching_part(part), None);
        let gap = CodeRegion { kind: RegionKind::Gap, counters: vec![counter], start: part.start, end: part.end, others: Vec::new() };
        function.regions[part.file].extend((counter != RegionCounter::FIRST).then_some(gap));
    }
    function.regions.iter_mut().for_each(|regions| regions.sort_by_key(|region| region.start.0));
    changed
}

/// Replaces the counters of regions that were not executed by the expression with the value 0. Returns true if anything changed.
fn zero_unexecuted_regions(regions: &mut Vec<CodeRegion>, counts: &FileCounts, expression: u64, is_unoptimised: bool) -> bool {
    let zero = RegionCounter::from_difference(expression);
    let dead = DeadCode::new(regions, counts, zero);
    let mut changed = !dead.gaps.is_empty();
    let conditions: BTreeMap<u64, usize> = regions.iter().filter(|r| r.is_branch()).fold(BTreeMap::new(), |mut lines, region| {
        *lines.entry(region.start.0).or_default() += 1;
        lines
    });
    for region in regions.iter_mut() {
        let line = region.start.0;
        let is_only_condition = || is_unoptimised && conditions.get(&line) == Some(&1);
        let is_dead = dead.is_dead(region, counts);
        let has_sides = region.is_branch() && is_only_condition();
        for (counter, direction) in region.counters.iter_mut().zip([BranchDirection::True, BranchDirection::False]) {
            if *counter != RegionCounter::ZERO && (is_dead || (has_sides && !is_direction_taken(counts, line, direction))) {
                *counter = zero;
                changed = true;
            }
        }
    }
    regions.extend(dead.gaps);
    regions.sort_by_key(|region| region.start.0);
    changed
}

/// Returns true if the branch on a line took the direction, and also if there are several branches on the line, which cannot be
/// distinguished.
fn is_direction_taken(counts: &FileCounts, line: u64, direction: BranchDirection) -> bool {
    let line = line as u32;
    let mut branches = counts.branches.range((line, 0)..=(line, u32::MAX)).map(|(_, directions)| directions);
    match (branches.next(), branches.next()) {
        (Some(directions), None) => directions.get(&direction).is_none_or(|taken| taken.taken > 0),
        _ => true,
    }
}

/// Areas of source that were not executed. An area has lines with count 0, and the lines without code that follow them in the same region.
struct DeadCode {
    /// Start and end of each area. An area ends with the region around it, because, for example, an executed `else` may start on the
    /// region's last line.
    areas: Vec<((u64, u64), (u64, u64))>,
    gaps: Vec<CodeRegion>,
}

impl DeadCode {
    fn new(regions: &[CodeRegion], counts: &FileCounts, zero: RegionCounter) -> DeadCode {
        let code = || regions.iter().filter(|r| matches!(r.kind, RegionKind::Code));
        let mut dead = DeadCode { areas: Vec::new(), gaps: Vec::new() };
        for line in counts.lines.iter().filter(|(_, count)| **count == 0).map(|(line, _)| u64::from(*line)) {
            let start = (line, 1);
            let around = code().filter(|region| region.start < start && start < region.end).max_by_key(|region| region.start);
            let Some(around) = around else { continue };
            let has_no_code =
                |line: &u64| *line <= around.end.0 && u32::try_from(*line).is_ok_and(|line| !counts.lines.contains_key(&line));
            let last = (line + 1..).take_while(has_no_code).last().unwrap_or(line);
            let end = around.end.min((last + 1, 1));
            dead.areas.push((start, end));
            match dead.gaps.last_mut() {
                Some(gap) if gap.end == start && end <= around.end && around.start < gap.start => gap.end = end,
                _ => {
                    let start = end_of_line(line - 1, regions).max(around.start);
                    dead.gaps.push(CodeRegion { kind: RegionKind::Gap, counters: vec![zero], start, end, others: Vec::new() });
                }
            }
        }
        dead
    }
}

impl DeadCode {
    /// Returns true if a region starts in one of the areas and none of its lines was executed.
    fn is_dead(&self, region: &CodeRegion, counts: &FileCounts) -> bool {
        let line = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let lines = line(region.start.0)..=line(region.end.0.saturating_sub(1)).max(line(region.start.0));
        let is_executed = counts.lines.range(lines).any(|(_, count)| *count > 0);
        !is_executed && self.areas.iter().any(|(start, end)| *start <= region.start && region.start < *end)
    }
}

/// Returns a position after all code on a line. A gap region that starts there determines the count of the next line.
fn end_of_line(line: u64, regions: &[CodeRegion]) -> (u64, u64) {
    const MIN_END_OF_LINE_COLUMN: u64 = 4096;
    let ends = regions.iter().flat_map(|region| [region.start, region.end]).filter(|place| place.0 == line).map(|place| place.1 + 1);
    (line, ends.max().unwrap_or(0).max(MIN_END_OF_LINE_COLUMN))
}
