//! Code behind calls that did not return, in LLVM's mapping of counters to source regions.
//!
//! LLVM gives a whole region the count of its beginning, and computes the counts of some regions by subtraction, as if each call
//! returned. Paths say which lines of a function with unfinished paths were not executed. The mapping that `llvm-cov` reads is a copy in
//! which regions that begin on such lines count 0, and *gap regions*, which count for lines but not among the regions, cover the rest of
//! a region behind the call. The format is that of LLVM's `CoverageMappingReader.cpp`, versions 6 and 7 (LLVM 14 to 22).

use super::region_code::{Counter, FunctionRegions, Region, RegionKind};
use super::renamed::RenamedFolders;
use super::stops::{Stop, Stops, linkage};
use super::true_counts::{Span, TrueCounts};
use anyhow::{Context, Result};
use md5::{Digest, Md5};
use object::write::Object as NewObject;
use object::{Architecture, BinaryFormat, Endianness, Object, ObjectSection, SectionKind};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use trodden_profile::edges::FunctionEdges;
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
    stops: Stops,
    /// Parts of functions that are behind stops.
    rests: HashMap<Declared, BTreeSet<Span>>,
    renamed: RenamedFolders,
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
        let stops = Stops::from_view(view);
        if names.is_empty() && stops.is_empty() {
            return None;
        }
        let edges = view.profile.images.iter().flat_map(|i| &i.units).filter_map(|u| u.map.edge_profile.as_ref());
        let (mut functions, mut unoptimised) = (HashSet::new(), HashSet::new());
        for name in edges.flat_map(|edges| &edges.names) {
            let linkage = linkage(name);
            if names.contains(linkage) {
                functions.insert(hash(name.as_bytes()));
                unoptimised.extend((!optimised.contains(linkage)).then(|| hash(name.as_bytes())));
            }
        }
        let counts = LineCounts::from_functions(&view.functions);
        Some(NotExecuted { functions, unoptimised, counts, stops, rests: HashMap::new(), renamed: RenamedFolders::default() })
    }

    /// Names of a function's files in debug information.
    fn names(&self, function: &FunctionRegions, files: &[String]) -> Vec<String> {
        let known: BTreeSet<&str> = self.counts.files.keys().map(String::as_str).collect();
        let name = |file: &u64| files.get(*file as usize).map(|file| self.renamed.in_code(file, &known)).unwrap_or_default();
        function.files.iter().map(name).collect()
    }

    /// Notes which parts of functions are behind calls that did not return, so that all instances of a function have the same parts.
    ///
    /// # Errors
    /// The mapping is damaged.
    pub fn note_rests(&mut self, image: &[u8], counters: &Counters) -> Result<()> {
        let mapping = Mapping::read(image)?;
        for record in mapping.records()? {
            let Some(known) = counters.of(&record) else { continue };
            let (stops, files) = (self.stops.of(&known.name), mapping.files_of(&record));
            if stops.is_empty() {
                continue;
            }
            let function = record.regions()?;
            if let Some(file) = function.files.first().and_then(|file| files.get(*file as usize)) {
                stops.iter().for_each(|stop| self.renamed.note(file, &stop.file));
            }
            let names = self.names(&function, files);
            let Some(counts) = TrueCounts::new(&function, &known.counts, &names, &stops) else { continue };
            let Some(place) = declared(&function, &names) else { continue };
            for (file, name) in names.iter().enumerate() {
                let lines = self.counts.files.get(name);
                let is_code = |line: u64| lines.is_none_or(|l| u32::try_from(line).is_ok_and(|line| l.lines.contains_key(&line)));
                self.rests.entry(place.clone()).or_default().extend(counts.rests(file, is_code));
            }
        }
        Ok(())
    }

    /// An object file with the mapping of an image in which code behind calls that did not return has its own counts; `None` if that
    /// changes nothing.
    ///
    /// # Errors
    /// The mapping is damaged.
    pub fn correct(&self, image: &[u8], counters: &mut Counters) -> Result<Option<Vec<u8>>> {
        let mapping = Mapping::read(image)?;
        let (mut out, mut changed) = (Vec::with_capacity(mapping.functions.len()), false);
        for record in mapping.records()? {
            let corrected = self.corrected(&record, mapping.files_of(&record), counters)?;
            changed |= corrected.is_some();
            let code = corrected.as_deref().unwrap_or(record.code);
            out.extend(&record.head[..8]);
            out.extend((code.len() as u32).to_le_bytes());
            out.extend(&record.head[12..]);
            out.extend(code);
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        }
        if !changed {
            return Ok(None);
        }
        let mut object = NewObject::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        for (name, content) in [(MAPPING, &mapping.mapping), (FUNCTIONS, &out), (NAMES, &mapping.names)] {
            let id = object.add_section(Vec::new(), name.into(), SectionKind::ReadOnlyData);
            object.append_section_data(id, content, ALIGNMENT as u64);
        }
        Ok(Some(object.write().context("cannot write the coverage mapping")?))
    }

    fn corrected(&self, record: &Record, files: &[String], counters: &mut Counters) -> Result<Option<Vec<u8>>> {
        let Some(known) = counters.of(record) else { return Ok(None) };
        let stops = self.stops.of(&known.name);
        let is_unfinished = self.functions.contains(&record.name());
        if stops.is_empty() && self.rests.is_empty() && !is_unfinished {
            return Ok(None);
        }
        let mut function = record.regions()?;
        let names = self.names(&function, files);
        let rests = declared(&function, &names).and_then(|place| self.rests.get(&place));
        let mut changed = false;
        if !stops.is_empty() || rests.is_some() {
            changed = counters.correct(record, &mut function, &names, &stops, rests.into_iter().flatten());
        }
        for (file, regions) in names.iter().zip(&mut function.regions).filter(|_| is_unfinished) {
            let Some(counts) = self.counts.files.get(file) else { continue };
            changed |= correct_file(regions, counts, function.expressions.len() as u64, self.unoptimised.contains(&record.name()));
        }
        if !changed {
            return Ok(None);
        }
        // A counter less itself: 0, where LLVM takes the constant 0 for a condition that the compiler knew.
        function.expressions.push([Counter::FIRST, Counter::FIRST]);
        Ok(Some(function.write()))
    }
}

/// A function's place: its file, and where its first region begins. Instances of a template have the same.
type Declared = (String, (u64, u64));

fn declared(function: &FunctionRegions, files: &[String]) -> Option<Declared> {
    Some((files.first()?.clone(), function.regions.first()?.first()?.start))
}

/// LLVM's counters of all functions; counts of code behind calls become further counters.
pub struct Counters<'e> {
    functions: &'e mut [FunctionEdges],
    numbers: HashMap<(u64, u64), usize>,
}

impl<'e> Counters<'e> {
    /// Of functions.
    pub fn new(functions: &'e mut [FunctionEdges]) -> Counters<'e> {
        let numbers = functions.iter().enumerate().map(|(number, f)| ((hash(f.name.as_bytes()), f.hash), number)).collect();
        Counters { functions, numbers }
    }

    fn of(&self, record: &Record) -> Option<&FunctionEdges> {
        Some(&self.functions[*self.numbers.get(&(record.name(), record.graph()))?])
    }

    /// Corrects a function's regions, and adds the given parts of it that are behind calls. Returns whether anything changed.
    fn correct<'r>(
        &mut self,
        record: &Record,
        function: &mut FunctionRegions,
        names: &[String],
        stops: &[Stop],
        rests: impl Iterator<Item = &'r Span>,
    ) -> bool {
        let Some(&number) = self.numbers.get(&(record.name(), record.graph())) else { return false };
        let (original, mut values) = (function.clone(), self.functions[number].counts.clone());
        let known = values.clone();
        let Some(counts) = TrueCounts::new(&original, &known, names, stops) else { return false };
        let mut changed = false;
        let mut set = |counter: &mut Counter, count: Option<i128>, value: Option<i128>| {
            if let Some(count) = count.and_then(|count| u64::try_from(count).ok())
                && value != Some(i128::from(count))
                && *counter != Counter::ZERO
            {
                values.push(count);
                *counter = Counter::plain(values.len() as u64 - 1);
                changed = true;
            }
        };
        for (file, regions) in function.regions.iter_mut().enumerate() {
            for (at, region) in regions.iter_mut().enumerate() {
                let known: Vec<Option<i128>> = region.counters.iter().map(|counter| counts.value(*counter)).collect();
                if region.is_branch() {
                    let sides = counts.sides(file, at);
                    let sides = (0..2).map(|side| sides.map(|sides| sides[side]));
                    region.counters.iter_mut().zip(sides).zip(known).for_each(|((counter, side), value)| set(counter, side, value));
                } else if let (Some(counter), Some(value)) = (region.counters.first_mut(), known.first()) {
                    set(counter, counts.begun(file, at), *value);
                }
            }
        }
        for rest in rests {
            let mut counter = Counter::FIRST;
            set(&mut counter, counts.rest(rest), None);
            let gap = Region { kind: RegionKind::Gap, counters: vec![counter], start: rest.start, end: rest.end, others: Vec::new() };
            function.regions[rest.file].extend((counter != Counter::FIRST).then_some(gap));
        }
        function.regions.iter_mut().for_each(|regions| regions.sort_by_key(|region| region.start.0));
        self.functions[number].counts = values;
        changed
    }
}

/// The sections of an image with its coverage mapping.
struct Mapping {
    mapping: Vec<u8>,
    functions: Vec<u8>,
    names: Vec<u8>,
    /// File names by the hash of their list.
    files: HashMap<u64, Vec<String>>,
}

/// A function's record in the coverage mapping.
struct Record<'m> {
    head: &'m [u8; RECORD_HEAD],
    code: &'m [u8],
}

impl Mapping {
    fn read(image: &[u8]) -> Result<Mapping> {
        let file = object::File::parse(image)?;
        let section = |name| file.section_by_name(name).and_then(|s| s.uncompressed_data().ok()).context("the coverage mapping is damaged");
        let (mapping, functions, names) = (section(MAPPING)?, section(FUNCTIONS)?, section(NAMES)?);
        let files = file_names(&mapping).context("the file names of the coverage mapping are damaged")?;
        Ok(Mapping { mapping: mapping.into_owned(), functions: functions.into_owned(), names: names.into_owned(), files })
    }

    fn records(&self) -> Result<Vec<Record<'_>>> {
        let (mut at, mut records) = (0, Vec::new());
        while at + RECORD_HEAD <= self.functions.len() {
            let head: &[u8; RECORD_HEAD] = self.functions[at..at + RECORD_HEAD].try_into().expect("as long");
            let size = u32::from_le_bytes(head[8..12].try_into().expect("four bytes")) as usize;
            let code =
                self.functions.get(at + RECORD_HEAD..at + RECORD_HEAD + size).context("a record of the coverage mapping is cut off")?;
            records.push(Record { head, code });
            at = (at + RECORD_HEAD + size).next_multiple_of(ALIGNMENT);
        }
        Ok(records)
    }

    fn files_of(&self, record: &Record) -> &[String] {
        self.files.get(&record.word(20)).map_or(&[], Vec::as_slice)
    }
}

impl Record<'_> {
    fn word(&self, from: usize) -> u64 {
        u64::from_le_bytes(self.head[from..from + 8].try_into().expect("eight bytes"))
    }

    /// The hash of its function's name.
    fn name(&self) -> u64 {
        self.word(0)
    }

    /// The hash of its function's graph.
    fn graph(&self) -> u64 {
        self.word(12)
    }

    fn regions(&self) -> Result<FunctionRegions> {
        FunctionRegions::read(self.code).context("the regions of a function in the coverage mapping are damaged")
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
