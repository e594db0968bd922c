//! Reads the instrumentation data of an executable or shared library. Its unit records ([`trodden_wire::UnitRecord`]), which stripping does
//! not remove, give its identity and the layout of its counters. Its frames contain the units' maps and bitcode.

use crate::cache::UnitCache;
use crate::frame::{Frame, FrameError};
use crate::identity::Identity;
use object::{Object, ObjectSection, ObjectSymbol};
use trodden_wire::layout::Layout;
use trodden_wire::{COUNTERS_SECTION, FRAMES_SECTION, UNIT_MAGIC, UNIT_VERSION, UNITS_SECTION, UnitRecord, image_identity};

/// A unit, and the location of its counters in the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedUnit {
    /// The unit.
    pub unit: Identity,
    /// Index of the unit's first counter among all counters of the image.
    pub first: u64,
    /// Number of its counters.
    pub counters: u64,
}

/// The instrumentation data in an executable or shared library.
#[derive(Clone, Debug)]
pub struct InstrumentedImage {
    /// Identity of the image.
    pub identity: Identity,
    /// Its units in link order.
    pub units: Vec<PlacedUnit>,
    /// The frames of the units. There are fewer frames than units if the image was stripped, and more if the linker removed unused units.
    pub frames: Vec<Frame>,
    /// Errors of frames that cannot be read.
    pub frame_errors: Vec<FrameError>,
    /// The linker's build ID in hexadecimal digits; `None` if there is none.
    pub build_id: Option<String>,
    /// Names of all functions that are defined in the symbol tables, sorted.
    pub functions: Vec<String>,
}

/// Reason why a file is not a valid instrumented image.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum ImageError {
    #[error("cannot read it as an ELF file: {0}")]
    Elf(#[from] object::Error),
    #[error("no part of this program was built with trodden. Build it with `trodden cc`, `trodden build` or `cargo trodden build`")]
    NotInstrumented,
    #[error("its records of compilation units are corrupt, or were written by a different version of trodden ({0}). Rebuild the program")]
    Records(String),
}

impl InstrumentedImage {
    /// Reads the instrumentation data from the bytes of a file. Fails if it is not an ELF file, contains no instrumented unit, or is
    /// corrupt.
    pub fn read(bytes: &[u8]) -> Result<InstrumentedImage, ImageError> {
        let file = object::File::parse(bytes)?;
        let records = file.section_by_name(UNITS_SECTION).ok_or(ImageError::NotInstrumented)?;
        let counters = file.section_by_name(COUNTERS_SECTION).map_or(0, |s| s.address());
        let units = read_records(records.data()?, records.address(), counters)?;
        let identity = Identity(image_identity(units.iter().map(|u| (u.unit.0, u.counters))));
        let (frames, frame_errors) = match file.section_by_name(FRAMES_SECTION) {
            Some(section) => Frame::read_all(&section.uncompressed_data()?),
            None => (Vec::new(), Vec::new()),
        };
        let build_id = file.build_id()?.map(|id| id.iter().map(|b| format!("{b:02x}")).collect());
        let defined = |s: &object::Symbol| s.kind() == object::SymbolKind::Text && s.is_definition() && s.size() > 0;
        let mut functions: Vec<String> =
            file.symbols().chain(file.dynamic_symbols()).filter(defined).filter_map(|s| s.name().ok().map(str::to_owned)).collect();
        functions.sort();
        functions.dedup();
        Ok(InstrumentedImage { identity, units, frames, frame_errors, build_id, functions })
    }

    /// Returns the frame of a unit from the image or, if it is missing there, from the unit cache. `None` if neither has it.
    pub fn frame(&self, unit: Identity, store: Option<&UnitCache>) -> std::io::Result<Option<Frame>> {
        match (self.frames.iter().find(|f| f.unit == unit), store) {
            (Some(frame), _) => Ok(Some(frame.clone())),
            (None, Some(store)) => store.get(unit),
            (None, None) => Ok(None),
        }
    }
}

fn read_records(bytes: &[u8], address: u64, counters: u64) -> Result<Vec<PlacedUnit>, ImageError> {
    const RECORD_BYTES: usize = size_of::<UnitRecord>();
    if !bytes.len().is_multiple_of(RECORD_BYTES) {
        return Err(ImageError::Records(format!("their size of {} bytes is not a multiple of {RECORD_BYTES}", bytes.len())));
    }
    let mut units = Vec::new();
    for (i, record) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
        let record = UnitRecord::read(record).filter(|record| (record.magic, record.version) == (UNIT_MAGIC, UNIT_VERSION));
        let record = record.ok_or_else(|| ImageError::Records(format!("record {i} is invalid")))?;
        let first = address.wrapping_add((i * RECORD_BYTES) as u64).wrapping_add_signed(record.counters_delta).wrapping_sub(counters);
        units.push(PlacedUnit { unit: Identity(record.unit), first: first / 8, counters: record.counters });
    }
    Ok(units)
}
