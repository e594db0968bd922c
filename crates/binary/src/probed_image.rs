//! A program of the tier `addresses`: which block begins where in its code.
//!
//! Marks are in the section `.pseudo_probe`, as distances from functions' symbols ([`crate::pseudo_probes`]); symbols
//! say where a function's code begins and ends. Local functions of one name are distinguished by the source file that the
//! symbol table names before them, or else by the order of the link.

use crate::address_space::Loadable;
use crate::error::BinaryError;
use crate::instruction::{BranchInstruction, branch_at};
use crate::pseudo_probes;
use object::{Object, ObjectKind, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SymbolKind, elf};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trodden_unit::probes::{PseudoProbe, probe_function};
use trodden_unit::{FunctionMap, Identity, Image, UnitCache, UnitMap};

/// A function of an image, by its place in [`ProbedImage::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProbedFunction(pub u32);

/// A probe at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeAt {
    /// Address as the file has it.
    pub address: u64,
    /// The function.
    pub function: ProbedFunction,
    /// What happens there.
    pub probe: PseudoProbe,
}

/// Code of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// First address.
    pub start: u64,
    /// Behind its last byte.
    pub end: u64,
    /// Whose it is.
    pub function: ProbedFunction,
}

/// An image with the addresses of its blocks.
#[derive(Debug)]
pub struct ProbedImage {
    /// Its file.
    pub path: PathBuf,
    /// Identity, build id.
    pub image: Image,
    /// Its units in link order, with their maps.
    pub units: Vec<(Identity, Arc<UnitMap>)>,
    /// Functions with addresses: unit, and place in the unit's map.
    pub functions: Vec<(usize, usize)>,
    /// Ascending by address; those of one address in the order of the code.
    pub probes: Vec<ProbeAt>,
    /// Ascending.
    pub ranges: Vec<CodeRange>,
    /// Functions that lie in the image but whose addresses are unknown, each with the reason.
    pub without: Vec<String>,
    /// Executable parts: address, content.
    code: Vec<(u64, Vec<u8>)>,
    /// Segments: place in the file, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    /// It is loaded where its file says.
    fixed: bool,
}

/// A symbol of code.
struct Symbol {
    name: String,
    file: String,
    address: u64,
    size: u64,
}

impl ProbedImage {
    /// Reads an image; maps it does not carry come from the store.
    ///
    /// # Errors
    /// It cannot be read, was not built with `--addresses`, or lacks symbols or maps.
    pub fn read(path: &Path, store: Option<&UnitCache>) -> Result<ProbedImage, BinaryError> {
        let wrong = |what: String| BinaryError::Addresses { image: path.to_owned(), what };
        let bytes = std::fs::read(path).map_err(BinaryError::read(path))?;
        let image = Image::read(&bytes).map_err(|e| wrong(e.to_string()))?;
        let units = maps(&image, store).map_err(wrong)?;
        if !units.iter().any(|(_, map)| map.experiment.marks_addresses()) {
            return Err(wrong(
                "its blocks have no addresses: build it with `trodden build --addresses`, or make such a variant with \
                `trodden instrument --addresses`"
                    .into(),
            ));
        }
        let file = object::File::parse(&*bytes).map_err(|e| wrong(e.to_string()))?;
        let symbols = symbols(&file);
        if symbols.is_empty() {
            return Err(wrong("it has no symbols: name the file as it was before it was stripped".into()));
        }
        let bodies = match file.section_by_name(".pseudo_probe") {
            Some(section) => pseudo_probes::read(&section.uncompressed_data().map_err(|e| wrong(e.to_string()))?).map_err(wrong)?,
            None => return Err(wrong("it lacks the section .pseudo_probe: name the file as it was before it was stripped".into())),
        };
        let mut made = ProbedImage {
            path: path.to_owned(),
            image,
            units,
            functions: Vec::new(),
            probes: Vec::new(),
            ranges: Vec::new(),
            without: Vec::new(),
            code: code(&file),
            segments: segments(&file),
            fixed: file.kind() == ObjectKind::Executable,
        };
        made.place(bodies, &symbols);
        Ok(made)
    }

    /// What a function's map says.
    pub fn map(&self, function: ProbedFunction) -> &FunctionMap {
        let (unit, place) = self.functions[function.0 as usize];
        &self.units[unit].1.functions[place]
    }

    /// The code in which an address lies, as a place in [`ProbedImage::ranges`].
    pub fn range_at(&self, address: u64) -> Option<usize> {
        let behind = self.ranges.partition_point(|r| r.start <= address);
        behind.checked_sub(1).filter(|at| address < self.ranges[*at].end)
    }

    /// The probes from one address to another, both included.
    pub fn probes_in(&self, from: u64, to: u64) -> &[ProbeAt] {
        let first = self.probes.partition_point(|m| m.address < from);
        let end = self.probes.partition_point(|m| m.address <= to);
        &self.probes[first..end.max(first)]
    }

    /// What the instruction at an address does to control flow; `None` if the next one follows, or no code is there.
    pub fn branch(&self, address: u64) -> Option<BranchInstruction> {
        let part = self.code.iter().find(|(start, bytes)| address.checked_sub(*start).is_some_and(|at| at < bytes.len() as u64));
        part.and_then(|(start, bytes)| branch_at(&bytes[(address - start) as usize..], address))
    }

    fn place(&mut self, bodies: Vec<pseudo_probes::ProbedBody>, symbols: &[Symbol]) {
        let mut known: HashMap<u64, (usize, usize)> = HashMap::new();
        for (u, (unit, map)) in self.units.iter().enumerate() {
            known.extend((0..map.functions.len()).map(|f| (probe_function(*unit, f as u32), (u, f))));
        }
        let mut found: HashMap<(usize, usize), Vec<pseudo_probes::ProbedBody>> = HashMap::new();
        for body in bodies {
            if let Some(at) = known.get(&body.function) {
                found.entry(*at).or_default().push(body);
            }
        }
        let mut present: Vec<(usize, usize)> = found.keys().copied().collect();
        present.sort();
        let places = self.symbols_of(&present, symbols);
        let mut ends: HashMap<u64, u64> = HashMap::new();
        symbols.iter().for_each(|s| _ = ends.entry(s.address).and_modify(|e| *e = s.size.max(*e)).or_insert(s.size));
        for (at, start) in present.into_iter().zip(places) {
            let name = self.units[at.0].1.functions[at.1].plain_name().to_owned();
            match (start, &found[&at][..]) {
                (None, _) => self.without.push(format!("`{name}`: several functions of that name cannot be distinguished")),
                (Some(start), [body]) => self.add(at, start, ends[&start], body),
                (Some(_), _) => self.without.push(format!("`{name}`: its code lies in several parts")),
            }
        }
        self.probes.sort_by_key(|m| m.address);
        self.ranges.sort_by_key(|r| (r.start, r.end));
        self.ranges.dedup_by_key(|r| r.start);
    }

    fn add(&mut self, at: (usize, usize), start: u64, size: u64, body: &pseudo_probes::ProbedBody) {
        let function = ProbedFunction(self.functions.len() as u32);
        let blocks = self.units[at.0].1.functions[at.1].blocks.len() as u32;
        self.functions.push(at);
        self.ranges.push(CodeRange { start, end: start + size, function });
        let probes = body.probes.iter().filter_map(|&(distance, number)| Some((start + distance, PseudoProbe::from_number(number)?)));
        let inside = probes.filter(|(address, probe)| *address < start + size && probe.block < blocks);
        self.probes.extend(inside.map(|(address, probe)| ProbeAt { address, function, probe }));
    }

    /// Where each of the functions begins. They are in link order.
    fn symbols_of(&self, functions: &[(usize, usize)], symbols: &[Symbol]) -> Vec<Option<u64>> {
        let mut by_name: HashMap<&str, Vec<&Symbol>> = HashMap::new();
        symbols.iter().for_each(|s| by_name.entry(&s.name).or_default().push(s));
        let name_of = |&(u, f): &(usize, usize)| self.units[u].1.functions[f].plain_name();
        let mut same: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
        functions.iter().for_each(|at| same.entry(name_of(at)).or_default().push(*at));
        let place = |at: &(usize, usize)| {
            let candidates = by_name.get(name_of(at))?;
            if let [one] = candidates[..] {
                return Some(one.address);
            }
            let source = Path::new(&self.units[at.0].1.source).file_name()?.to_string_lossy().into_owned();
            let here: Vec<&&Symbol> = candidates.iter().filter(|s| s.file == source).collect();
            if let [one] = here[..] {
                return Some(one.address);
            }
            let namesakes = &same[name_of(at)];
            let number = namesakes.iter().position(|n| n == at)?;
            (namesakes.len() == candidates.len()).then(|| candidates[number].address)
        };
        functions.iter().map(place).collect()
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
        self.fixed
    }

    fn load_bias(&self, start: u64, offset: u64) -> Option<u64> {
        let page = |at: u64| at & !0xfff;
        let (place, _, address) = self.segments.iter().find(|(place, size, _)| (page(*place)..place + size).contains(&offset))?;
        Some(start.wrapping_sub(address.wrapping_sub(*place).wrapping_add(offset)))
    }
}

fn maps(image: &Image, store: Option<&UnitCache>) -> Result<Vec<(Identity, Arc<UnitMap>)>, String> {
    let mut units = Vec::new();
    for placed in &image.units {
        let unit = placed.unit;
        let frame = image.frame(unit, store).map_err(|e| format!("unit {unit}: {e}"))?;
        let frame = frame.ok_or_else(|| {
            format!("the map of unit {unit} is neither in it nor in the unit cache: set TRODDEN_CACHE to the store it was built with")
        })?;
        let map = frame.map().map_err(|e| e.to_string())?;
        map.check().map_err(|e| format!("unit {unit}: {e}"))?;
        units.push((unit, Arc::new(map)));
    }
    Ok(units)
}

/// Symbols of functions, each with the source file that the table names before it; one for each place of a name.
fn symbols(file: &object::File) -> Vec<Symbol> {
    let mut source = String::new();
    let mut out: Vec<Symbol> = Vec::new();
    for symbol in file.symbols() {
        match symbol.kind() {
            SymbolKind::File => source = symbol.name().unwrap_or_default().to_owned(),
            SymbolKind::Text if symbol.is_definition() && symbol.size() > 0 => {
                let Ok(name) = symbol.name() else { continue };
                if !symbol.is_local() {
                    source.clear();
                }
                out.push(Symbol { name: name.to_owned(), file: source.clone(), address: symbol.address(), size: symbol.size() });
            }
            _ => {}
        }
    }
    out
}

fn code(file: &object::File) -> Vec<(u64, Vec<u8>)> {
    let executable = |flags: SectionFlags| matches!(flags, SectionFlags::Elf { sh_flags } if sh_flags & u64::from(elf::SHF_EXECINSTR) != 0);
    let sections = file.sections().filter(|s| executable(s.flags()));
    sections.filter_map(|s| Some((s.address(), s.data().ok()?.to_vec()))).collect()
}

/// Executable segments first: a mapping's offset may lie in the last page of one and the first of another. Others are
/// there since emulators map code like data, in one piece with what is before it.
fn segments(file: &object::File) -> Vec<(u64, u64, u64)> {
    let executable = |s: &object::Segment| matches!(s.flags(), object::SegmentFlags::Elf { p_flags } if p_flags & elf::PF_X != 0);
    let (first, others): (Vec<_>, Vec<_>) = file.segments().partition(executable);
    first.into_iter().chain(others).map(|s| (s.file_range().0, s.file_range().1, s.address())).collect()
}
