//! What an executable or shared library on disk says of its units.
//!
//! The allocated records ([`trodden_wire::UnitRecord`]) give the image's identity and the layout of its counters even
//! when it was stripped; the frames give maps and bitcode.

use crate::cache::UnitCache;
use crate::frame::{Frame, FrameError};
use crate::identity::Identity;
use object::{Object, ObjectSection, ObjectSymbol};
use trodden_wire::layout::Layout;
use trodden_wire::{COUNTERS_SECTION, FRAMES_SECTION, UNIT_MAGIC, UNIT_VERSION, UNITS_SECTION, UnitRecord, image_identity};

/// One unit's place in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedUnit {
    /// The unit.
    pub unit: Identity,
    /// Its first counter, from the start of the counters' section.
    pub first: u64,
    /// Number of its counters.
    pub counters: u64,
}

/// The instrumented side of an executable or shared library.
#[derive(Clone, Debug)]
pub struct Image {
    /// Identity of the image.
    pub identity: Identity,
    /// Its units in link order.
    pub units: Vec<PlacedUnit>,
    /// The frames it carries; may be fewer than its units (stripped) or more (unused ones that the linker dropped).
    pub frames: Vec<Frame>,
    /// What was wrong with frames.
    pub frame_errors: Vec<FrameError>,
    /// The linker's build id, in hexadecimal digits.
    pub build_id: Option<String>,
    /// Names of the functions it defines, as far as its symbols say.
    pub functions: Vec<String>,
}

/// Why a file is no instrumented image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No ELF file, or a damaged one.
    #[error("not a readable ELF file: {0}")]
    Elf(#[from] object::Error),
    /// Nothing in it was built by trodden.
    #[error("nothing in it was built with trodden: build it with `trodden cc`, `trodden build` or `cargo trodden build`")]
    NotInstrumented,
    /// Records of another version or damaged ones.
    #[error("its unit records are damaged or of another version of trodden: {0}")]
    Records(String),
}

impl Image {
    /// Reads an image from the bytes of its file.
    ///
    /// # Errors
    /// It is no ELF file, or holds no instrumented unit.
    pub fn read(bytes: &[u8]) -> Result<Image, ImageError> {
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
        Ok(Image { identity, units, frames, frame_errors, build_id, functions })
    }

    /// The frame of one of its units: the one it carries, else the store's. `None` if neither has it.
    pub fn frame(&self, unit: Identity, store: Option<&UnitCache>) -> std::io::Result<Option<Frame>> {
        match (self.frames.iter().find(|f| f.unit == unit), store) {
            (Some(frame), _) => Ok(Some(frame.clone())),
            (None, Some(store)) => store.get(unit),
            (None, None) => Ok(None),
        }
    }
}

fn read_records(bytes: &[u8], address: u64, counters: u64) -> Result<Vec<PlacedUnit>, ImageError> {
    const SIZE: usize = size_of::<UnitRecord>();
    if !bytes.len().is_multiple_of(SIZE) {
        return Err(ImageError::Records(format!("{} bytes are no multiple of {SIZE}", bytes.len())));
    }
    let mut units = Vec::new();
    for (i, record) in bytes.chunks_exact(SIZE).enumerate() {
        let record = UnitRecord::read(record).filter(|record| (record.magic, record.version) == (UNIT_MAGIC, UNIT_VERSION));
        let record = record.ok_or_else(|| ImageError::Records(format!("record {i}")))?;
        let first = address.wrapping_add((i * SIZE) as u64).wrapping_add_signed(record.counters_delta).wrapping_sub(counters);
        units.push(PlacedUnit { unit: Identity(record.unit), first: first / 8, counters: record.counters });
    }
    Ok(units)
}
