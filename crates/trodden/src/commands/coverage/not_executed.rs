//! Code behind calls that did not return, in LLVM's mapping of counters to source regions.
//!
//! LLVM gives a whole region the count of its beginning, and computes the counts of some regions by subtraction, as if each call
//! returned. Paths say which lines of a function with unfinished paths were not executed. The mapping that `llvm-cov` reads is a copy in
//! which regions that begin on such lines count 0, and *gap regions*, which count for lines but not among the regions, cover the rest of
//! a region behind the call. The format is that of LLVM's `CoverageMappingReader.cpp`, versions 6 and 7 (LLVM 14 to 22).

use super::region_code::{Counter, FunctionRegions, Region, RegionKind};
use anyhow::{Context, Result};
use md5::{Digest, Md5};
use object::write::Object as NewObject;
use object::{Architecture, BinaryFormat, Endianness, Object, ObjectSection, SectionKind};
use std::collections::{BTreeMap, HashMap, HashSet};
use trodden_analysis::changes::plain;
use trodden_report::View;
use trodden_report::lines::{Direction, FileCounts, LineCounts};

const MAPPING: &str = "__llvm_covmap";
const FUNCTIONS: &str = "__llvm_covfun";
const NAMES: &str = "__llvm_prf_names";
/// Size of a record's head: hash of the name, size of the regions, hash of the graph, hash of the file names.
const RECORD_HEAD: usize = 28;
/// Records and lists of file names begin at multiples of this.
const ALIGNMENT: usize = 8;

/// What paths say of functions with executions that did not reach their end.
pub struct NotExecuted {
    /// LLVM's hashes of the functions' names.
    functions: HashSet<u64>,
    /// Those whose branches are as in the source, because they are not optimised.
    unoptimised: HashSet<u64>,
    counts: LineCounts,
}

impl NotExecuted {
    /// Of all functions; `None` if every execution reached its end.
    pub fn from_view(view: &View) -> Option<NotExecuted> {
        let (mut names, mut optimised) = (HashSet::new(), HashSet::new());
        for function in view.functions.iter().filter(|f| !f.paths.all_finished()) {
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
        if names.is_empty() {
            return None;
        }
        let edges = view.profile.images.iter().flat_map(|i| &i.units).filter_map(|u| u.map.edge_profile.as_ref());
        let (mut functions, mut unoptimised) = (HashSet::new(), HashSet::new());
        for name in edges.flat_map(|edges| &edges.names) {
            // That of a local function begins with its file.
            let linkage = name.rsplit_once([';', ':']).map_or(name.as_str(), |(_, linkage)| linkage);
            if names.contains(linkage) {
                functions.insert(hash(name.as_bytes()));
                unoptimised.extend((!optimised.contains(linkage)).then(|| hash(name.as_bytes())));
            }
        }
        Some(NotExecuted { functions, unoptimised, counts: LineCounts::from_functions(&view.functions) })
    }

    /// An object file with the mapping of an image in which code that was not executed counts 0; `None` if that changes nothing.
    ///
    /// # Errors
    /// The mapping is damaged.
    pub fn correct(&self, image: &[u8]) -> Result<Option<Vec<u8>>> {
        let file = object::File::parse(image)?;
        let section = |name| file.section_by_name(name).and_then(|s| s.uncompressed_data().ok()).context("the coverage mapping is damaged");
        let (mapping, functions, names) = (section(MAPPING)?, section(FUNCTIONS)?, section(NAMES)?);
        let files = file_names(&mapping).context("the file names of the coverage mapping are damaged")?;
        let (mut at, mut out, mut changed) = (0, Vec::with_capacity(functions.len()), false);
        while at + RECORD_HEAD <= functions.len() {
            let head: &[u8; RECORD_HEAD] = functions[at..at + RECORD_HEAD].try_into().expect("as long");
            let word = |from: usize| u64::from_le_bytes(head[from..from + 8].try_into().expect("eight bytes"));
            let (name, names_of_files) = (word(0), word(20));
            let size = u32::from_le_bytes(head[8..12].try_into().expect("four bytes")) as usize;
            let code = functions.get(at + RECORD_HEAD..at + RECORD_HEAD + size).context("a record of the coverage mapping is cut off")?;
            let corrected = match files.get(&names_of_files).filter(|_| self.functions.contains(&name)) {
                Some(files) => self.corrected(name, code, files)?,
                None => None,
            };
            changed |= corrected.is_some();
            let code = corrected.as_deref().unwrap_or(code);
            out.extend(&head[..8]);
            out.extend((code.len() as u32).to_le_bytes());
            out.extend(&head[12..]);
            out.extend(code);
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            at = (at + RECORD_HEAD + size).next_multiple_of(ALIGNMENT);
        }
        if !changed {
            return Ok(None);
        }
        let mut object = NewObject::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        for (name, content) in [(MAPPING, &mapping[..]), (FUNCTIONS, &out), (NAMES, &names)] {
            let id = object.add_section(Vec::new(), name.into(), SectionKind::ReadOnlyData);
            object.append_section_data(id, content, ALIGNMENT as u64);
        }
        Ok(Some(object.write().context("cannot write the coverage mapping")?))
    }

    fn corrected(&self, name: u64, code: &[u8], files: &[String]) -> Result<Option<Vec<u8>>> {
        let mut function = FunctionRegions::read(code).context("the regions of a function in the coverage mapping are damaged")?;
        let mut changed = false;
        for (file, regions) in function.files.iter().zip(&mut function.regions) {
            let counts = files.get(*file as usize).and_then(|file| self.counts.files.get(&plain(file)));
            let Some(counts) = counts else { continue };
            changed |= correct_file(regions, counts, function.expressions.len() as u64, self.unoptimised.contains(&name));
        }
        if !changed {
            return Ok(None);
        }
        // A counter less itself: 0, where LLVM takes the constant 0 for a condition that the compiler knew.
        function.expressions.push([Counter::FIRST, Counter::FIRST]);
        Ok(Some(function.write()))
    }
}

/// Sets what was not executed of a file's regions to 0, by an expression. Returns whether there is anything.
fn correct_file(regions: &mut Vec<Region>, counts: &FileCounts, expression: u64, is_unoptimised: bool) -> bool {
    let zero = Counter::difference(expression);
    let dead = Dead::new(regions, counts, zero);
    let mut changed = !dead.gaps.is_empty();
    let conditions: BTreeMap<u64, usize> = regions.iter().filter(|r| r.is_branch()).fold(BTreeMap::new(), |mut lines, region| {
        *lines.entry(region.start.0).or_default() += 1;
        lines
    });
    for region in regions.iter_mut() {
        let line = region.start.0;
        let is_only_condition = || is_unoptimised && conditions.get(&line) == Some(&1);
        let is_dead = dead.has(region, counts);
        let has_sides = region.is_branch() && is_only_condition();
        for (counter, direction) in region.counters.iter_mut().zip([Direction::True, Direction::False]) {
            if *counter != Counter::ZERO && (is_dead || (has_sides && !is_taken(counts, line, direction))) {
                *counter = zero;
                changed = true;
            }
        }
    }
    regions.extend(dead.gaps);
    regions.sort_by_key(|region| region.start.0);
    changed
}

/// Whether the only branch on a line went in a direction; so does each of several, for all that is known.
fn is_taken(counts: &FileCounts, line: u64, direction: Direction) -> bool {
    let line = line as u32;
    let mut branches = counts.branches.range((line, 0)..=(line, u32::MAX)).map(|(_, directions)| directions);
    match (branches.next(), branches.next()) {
        (Some(directions), None) => directions.get(&direction).is_none_or(|taken| taken.taken > 0),
        _ => true,
    }
}

/// Lines without executions, and lines without code after them in the same region.
struct Dead {
    /// From the beginning of a line on, within the region around it: another may begin on its last line, as an `else` does.
    areas: Vec<((u64, u64), (u64, u64))>,
    /// Regions that cover them, of regions that begin before.
    gaps: Vec<Region>,
}

impl Dead {
    fn new(regions: &[Region], counts: &FileCounts, zero: Counter) -> Dead {
        let code = || regions.iter().filter(|r| matches!(r.kind, RegionKind::Code));
        let mut dead = Dead { areas: Vec::new(), gaps: Vec::new() };
        for line in counts.lines.iter().filter(|(_, count)| **count == 0).map(|(line, _)| u64::from(*line)) {
            let start = (line, 1);
            let around = code().filter(|region| region.start < start && start < region.end).max_by_key(|region| region.start);
            let Some(around) = around else { continue };
            let goes_on = |line: &u64| *line <= around.end.0 && u32::try_from(*line).is_ok_and(|line| !counts.lines.contains_key(&line));
            let last = (line + 1..).take_while(goes_on).last().unwrap_or(line);
            let end = around.end.min((last + 1, 1));
            dead.areas.push((start, end));
            match dead.gaps.last_mut() {
                Some(gap) if gap.end == start && end <= around.end && around.start < gap.start => gap.end = end,
                _ => {
                    let start = behind(line - 1, regions).max(around.start);
                    dead.gaps.push(Region { kind: RegionKind::Gap, counters: vec![zero], start, end, others: Vec::new() });
                }
            }
        }
        dead
    }
}

impl Dead {
    /// Whether a region begins there, and no line within it was executed.
    fn has(&self, region: &Region, counts: &FileCounts) -> bool {
        let line = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let within = line(region.start.0)..=line(region.end.0.saturating_sub(1)).max(line(region.start.0));
        let is_executed = counts.lines.range(within).any(|(_, count)| *count > 0);
        !is_executed && self.areas.iter().any(|(start, end)| *start <= region.start && region.start < *end)
    }
}

/// A place behind all that is on a line: a line has the count of what begins on a line before, and reaches into it.
fn behind(line: u64, regions: &[Region]) -> (u64, u64) {
    const LONG_LINE: u64 = 4096;
    let ends = regions.iter().flat_map(|region| [region.start, region.end]).filter(|place| place.0 == line).map(|place| place.1 + 1);
    (line, ends.max().unwrap_or(0).max(LONG_LINE))
}

/// File names by the hash of their list.
fn file_names(mapping: &[u8]) -> Option<HashMap<u64, Vec<String>>> {
    const HEAD: usize = 16;
    let (mut at, mut lists) = (0, HashMap::new());
    while at + HEAD <= mapping.len() {
        let size = u32::from_le_bytes(mapping[at + 4..at + 8].try_into().ok()?) as usize;
        let list = mapping.get(at + HEAD..at + HEAD + size)?;
        lists.insert(hash(list), super::region_code::file_names(list)?);
        at = (at + HEAD + size).next_multiple_of(ALIGNMENT);
    }
    Some(lists)
}

/// LLVM's hash of names.
fn hash(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(Md5::digest(bytes)[..8].try_into().expect("sixteen bytes"))
}
