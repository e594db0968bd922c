//! Reads the block addresses of programs that were built with `--addresses`.
//!
//! The addresses are given by pseudo probes in the section `.pseudo_probe`, as offsets from function symbols ([`crate::pseudo_probes`]).
//! The sizes of the symbols delimit functions. Local functions with the same name are distinguished by the source file that precedes them
//! in the symbol table or, if that does not suffice, by their link order.

use crate::address_space::Loadable;
use crate::error::BinaryError;
use crate::instruction::{BranchInstruction, branch_at};
use crate::pseudo_probes;
use object::{Object, ObjectKind, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SymbolKind, elf};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_unit::probes::{PseudoProbe, probe_function_id};
use trodden_unit::{FunctionMap, Identity, InstrumentedImage, UnitCache, UnitMap};

/// Index of a function in [`ProbedImage::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbedFunction(pub u32);

/// A probe at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedProbe {
    /// Address of the probe in the file.
    pub address: u64,
    /// The function that contains the probe.
    pub function: ProbedFunction,
    /// The block and the event that are marked by the probe.
    pub probe: PseudoProbe,
}

/// The range of addresses that the code of one function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// Address of the first byte.
    pub start: u64,
    /// Address after the last byte.
    pub end: u64,
    /// The function to which the code belongs.
    pub function: ProbedFunction,
}

/// An executable or shared library, with the addresses of its basic blocks.
#[derive(Debug)]
pub struct ProbedImage {
    /// Path of the file.
    pub path: PathBuf,
    /// Identity, build ID and other instrumentation data of the image.
    pub image: InstrumentedImage,
    /// Units in link order, with their maps.
    pub units: Vec<(Identity, Arc<UnitMap>)>,
    /// Functions whose address is known. The first number is the index in `units`, the second the index in the unit's map.
    pub functions: Vec<(usize, usize)>,
    /// Probes, sorted by address. Probes at the same address are in code order.
    pub probes: Vec<PlacedProbe>,
    /// Code ranges of functions, sorted by address.
    pub ranges: Vec<CodeRange>,
    /// Functions whose address is not known: name and reason, as text for messages.
    pub unplaced_functions: Vec<String>,
    /// Address and bytes of each executable section.
    code: Vec<(u64, Vec<u8>)>,
    /// File offset, file size and address of each segment.
    segments: Vec<(u64, u64, u64)>,
    /// Whether the image is always loaded at the addresses for which it was linked.
    is_fixed: bool,
}

struct ProbedSymbol {
    name: String,
    file: String,
    address: u64,
    size: u64,
}

impl ProbedImage {
    /// Reads an image. Maps of units that are not in the image are read from the unit cache `store`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, was not built with `--addresses`, or lacks symbols or maps.
    pub fn read(path: &Path, store: Option<&UnitCache>) -> Result<ProbedImage, BinaryError> {
        let error_of = |what: String| BinaryError::NoBlockAddresses { image: path.to_owned(), what };
        let bytes = std::fs::read(path).map_err(BinaryError::read(path))?;
        let image = InstrumentedImage::read(&bytes).map_err(|e| error_of(e.to_string()))?;
        let units = read_unit_maps(&image, store).map_err(error_of)?;
        if !units.iter().any(|(_, map)| map.experiment.marks_block_addresses()) {
            return Err(error_of(
                "its blocks have no addresses. Build it with `trodden build --addresses`, or create such a variant with \
                `trodden instrument --addresses`"
                    .into(),
            ));
        }
        let file = object::File::parse(&*bytes).map_err(|e| error_of(e.to_string()))?;
        let symbols = read_symbols(&file);
        if symbols.is_empty() {
            return Err(error_of("it has no symbols. Pass the unstripped file".into()));
        }
        let bodies = match file.section_by_name(".pseudo_probe") {
            Some(section) => {
                pseudo_probes::parse_pseudo_probes(&section.uncompressed_data().map_err(|e| error_of(e.to_string()))?).map_err(error_of)?
            }
            None => return Err(error_of("it has no section .pseudo_probe. Pass the unstripped file".into())),
        };
        let mut probed = ProbedImage {
            path: path.to_owned(),
            image,
            units,
            functions: Vec::new(),
            probes: Vec::new(),
            ranges: Vec::new(),
            unplaced_functions: Vec::new(),
            code: read_code(&file),
            segments: read_segments(&file),
            is_fixed: file.kind() == ObjectKind::Executable,
        };
        probed.locate_functions(bodies, &symbols);
        Ok(probed)
    }

    /// Returns the map of a function.
    pub fn map(&self, function: ProbedFunction) -> &FunctionMap {
        let (unit, index) = self.functions[function.0 as usize];
        &self.units[unit].1.functions[index]
    }

    /// Returns the index in [`ProbedImage::ranges`] of the code range that contains an address.
    pub fn range_at(&self, address: u64) -> Option<usize> {
        let after = self.ranges.partition_point(|r| r.start <= address);
        after.checked_sub(1).filter(|at| address < self.ranges[*at].end)
    }

    /// Returns the probes whose address is at least `from` and at most `to`.
    pub fn probes_between(&self, from: u64, to: u64) -> &[PlacedProbe] {
        let first = self.probes.partition_point(|m| m.address < from);
        let end = self.probes.partition_point(|m| m.address <= to);
        &self.probes[first..end.max(first)]
    }

    /// Returns the branch instruction at an address. Returns `None` if there is no code at this address, or if the instruction is not a
    /// branch.
    pub fn branch(&self, address: u64) -> Option<BranchInstruction> {
        let part = self.code.iter().find(|(start, bytes)| address.checked_sub(*start).is_some_and(|at| at < bytes.len() as u64));
        part.and_then(|(start, bytes)| branch_at(&bytes[(address - start) as usize..], address))
    }

    fn locate_functions(&mut self, bodies: Vec<pseudo_probes::ProbedBody>, symbols: &[ProbedSymbol]) {
        let mut known: HashMap<u64, (usize, usize)> = HashMap::new();
        for (u, (unit, map)) in self.units.iter().enumerate() {
            known.extend((0..map.functions.len()).map(|f| (probe_function_id(*unit, f as u32), (u, f))));
        }
        let mut found: HashMap<(usize, usize), Vec<pseudo_probes::ProbedBody>> = HashMap::new();
        for body in bodies {
            if let Some(at) = known.get(&body.function) {
                found.entry(*at).or_default().push(body);
            }
        }
        let mut present: Vec<(usize, usize)> = found.keys().copied().collect();
        present.sort();
        let starts = self.find_start_addresses(&present, symbols);
        let mut ends: HashMap<u64, u64> = HashMap::new();
        symbols.iter().for_each(|s| _ = ends.entry(s.address).and_modify(|e| *e = s.size.max(*e)).or_insert(s.size));
        for (at, start) in present.into_iter().zip(starts) {
            let name = self.units[at.0].1.functions[at.1].plain_name().to_owned();
            match (start, &found[&at][..]) {
                (None, _) => {
                    self.unplaced_functions.push(format!("`{name}`: several functions have this name and cannot be distinguished"))
                }
                (Some(start), [body]) => self.add_function(at, start, ends[&start], body),
                (Some(_), _) => self.unplaced_functions.push(format!("`{name}`: its code is split into several parts")),
            }
        }
        self.probes.sort_by_key(|m| m.address);
        self.ranges.sort_by_key(|r| (r.start, r.end));
        self.ranges.dedup_by_key(|r| r.start);
    }

    fn add_function(&mut self, at: (usize, usize), start: u64, size: u64, body: &pseudo_probes::ProbedBody) {
        let function = ProbedFunction(self.functions.len() as u32);
        let blocks = self.units[at.0].1.functions[at.1].blocks.len() as u32;
        self.functions.push(at);
        self.ranges.push(CodeRange { start, end: start + size, function });
        let probes = body.probes.iter().filter_map(|&(distance, number)| Some((start + distance, PseudoProbe::from_number(number)?)));
        let inside = probes.filter(|(address, probe)| *address < start + size && probe.block < blocks);
        self.probes.extend(inside.map(|(address, probe)| PlacedProbe { address, function, probe }));
    }

    /// Returns the start address of each function. `functions` is in link order. An address is `None` if it cannot be decided which of
    /// several symbols belongs to the function.
    fn find_start_addresses(&self, functions: &[(usize, usize)], symbols: &[ProbedSymbol]) -> Vec<Option<u64>> {
        let mut by_name: HashMap<&str, Vec<&ProbedSymbol>> = HashMap::new();
        symbols.iter().for_each(|s| by_name.entry(&s.name).or_default().push(s));
        let name_of = |&(u, f): &(usize, usize)| self.units[u].1.functions[f].plain_name();
        let mut same: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
        functions.iter().for_each(|at| same.entry(name_of(at)).or_default().push(*at));
        let start_of = |at: &(usize, usize)| {
            let candidates = by_name.get(name_of(at))?;
            if let [one] = candidates[..] {
                return Some(one.address);
            }
            let source = Path::new(&self.units[at.0].1.source).file_name()?.to_string_lossy().into_owned();
            let same_file: Vec<&&ProbedSymbol> = candidates.iter().filter(|s| s.file == source).collect();
            if let [one] = same_file[..] {
                return Some(one.address);
            }
            let namesakes = &same[name_of(at)];
            let number = namesakes.iter().position(|n| n == at)?;
            (namesakes.len() == candidates.len()).then(|| candidates[number].address)
        };
        functions.iter().map(start_of).collect()
    }
}

impl Loadable for ProbedImage {
    fn path(&self) -> &Path {
        &self.path
    }

    fn build_id(&self) -> Option<&str> {
        self.image.build_id.as_deref()
    }

    fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    fn load_bias(&self, start: u64, offset: u64) -> Option<u64> {
        let page = |at: u64| at & !0xfff;
        let (place, _, address) = self.segments.iter().find(|(place, size, _)| (page(*place)..place + size).contains(&offset))?;
        Some(start.wrapping_sub(address.wrapping_sub(*place).wrapping_add(offset)))
    }
}

fn read_unit_maps(image: &InstrumentedImage, store: Option<&UnitCache>) -> Result<Vec<(Identity, Arc<UnitMap>)>, String> {
    let mut units = Vec::new();
    for placed in &image.units {
        let unit = placed.unit;
        let frame = image.frame(unit, store).map_err(|e| format!("unit {unit}: {e}"))?;
        let frame = frame.ok_or_else(|| {
            format!("the map of unit {unit} is neither in the file nor in the unit cache. Set TRODDEN_CACHE to the cache of its build")
        })?;
        let map = frame.map().map_err(|e| e.to_string())?;
        map.check().map_err(|e| format!("unit {unit}: {e}"))?;
        units.push((unit, Arc::new(map)));
    }
    Ok(units)
}

/// Returns the symbols of functions, each with the source file that precedes it in the symbol table.
fn read_symbols(file: &object::File) -> Vec<ProbedSymbol> {
    let mut source = String::new();
    let mut out: Vec<ProbedSymbol> = Vec::new();
    for symbol in file.symbols() {
        match symbol.kind() {
            SymbolKind::File => source = symbol.name().unwrap_or_default().to_owned(),
            SymbolKind::Text if symbol.is_definition() && symbol.size() > 0 => {
                let Ok(name) = symbol.name() else { continue };
                if !symbol.is_local() {
                    source.clear();
                }
                out.push(ProbedSymbol { name: name.to_owned(), file: source.clone(), address: symbol.address(), size: symbol.size() });
            }
            _ => {}
        }
    }
    out
}

fn read_code(file: &object::File) -> Vec<(u64, Vec<u8>)> {
    let executable = |flags: SectionFlags| matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & u64::from(elf::SHF_EXECINSTR) != 0);
    let sections = file.sections().filter(|s| executable(s.flags()));
    sections.filter_map(|s| Some((s.address(), s.data().ok()?.to_vec()))).collect()
}

/// Returns the segments, executable ones first. The order matters because the last page of one segment may also be the first page of the
/// next, so that the offset of a mapping matches both. Segments without code are needed because emulators map code together with the data
/// before it.
fn read_segments(file: &object::File) -> Vec<(u64, u64, u64)> {
    let executable = |s: &object::Segment| matches!(s.flags(), object::SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0);
    let (first, others): (Vec<_>, Vec<_>) = file.segments().partition(executable);
    first.into_iter().chain(others).map(|s| (s.file_range().0, s.file_range().1, s.address())).collect()
}
