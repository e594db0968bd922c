//! Builds units, profiles, raw files and images for the tests of this crate.
#![allow(dead_code, unused_imports)]

mod profiles;

pub use profiles::{counts, identity, profile, run, unit_map};

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trodden_container::{FileHeader, FileKind};
use trodden_unit::{Frame, Identity};
use trodden_wire::layout::Layout;
use trodden_wire::{RAW_VERSION, RawHeader, RawUnit, UNIT_MAGIC, UNIT_VERSION, UnitRecord, image_identity};

/// Builder of raw files.
pub struct RawFile {
    pub image: String,
    /// Identity, first counter and number of counters of each unit.
    pub units: Vec<(Identity, u64, u64)>,
    /// The nonzero counters of each region, by index.
    pub regions: Vec<BTreeMap<u64, u64>>,
}

impl RawFile {
    /// Creates a raw file for the units of an image. After each unit, one counter is left unused.
    pub fn new(image: &Path, units: &[(Identity, u64)]) -> RawFile {
        let mut next = 0;
        let place = |&(unit, counters): &(Identity, u64)| {
            let first = next;
            next += counters + 1;
            (unit, first, counters)
        };
        RawFile { image: image.display().to_string(), units: units.iter().map(place).collect(), regions: Vec::new() }
    }

    pub fn counters(&self) -> u64 {
        self.units.iter().map(|u| u.1 + u.2).max().unwrap_or(0)
    }

    pub fn identity(&self) -> Identity {
        Identity(image_identity(self.units.iter().map(|u| (u.0.0, u.2))))
    }

    /// Returns the bytes before the first region, and the size of a region in bytes.
    pub fn header(&self) -> (Vec<u8>, u64) {
        let stride = trodden_wire::region_stride(self.counters());
        let (units_offset, path_offset) = (RawHeader::BYTES, RawHeader::BYTES + RawUnit::BYTES * self.units.len());
        let regions_offset = (path_offset + self.image.len()).next_multiple_of(4096);
        let header = RawHeader {
            file_header: FileHeader::new(FileKind::RAW_COUNTS, RAW_VERSION).to_bytes(),
            image: self.identity().0,
            counters: self.counters(),
            units: self.units.len() as u64,
            units_offset: units_offset as u64,
            path_offset: path_offset as u64,
            path_len: self.image.len() as u64,
            regions_offset: regions_offset as u64,
            region_stride: stride,
            pid: 4711,
            created_ns: 1_700_000_000_000_000_000,
            ..RawHeader::default()
        };
        let mut bytes = vec![0; path_offset];
        header.write(&mut bytes).unwrap();
        for ((unit, first, counters), bytes) in self.units.iter().zip(bytes[units_offset..].chunks_mut(RawUnit::BYTES)) {
            RawUnit { unit: unit.0, first: *first, counters: *counters }.write(bytes).unwrap();
        }
        bytes.extend(self.image.as_bytes());
        bytes.resize(regions_offset, 0);
        seal_checksum(&mut bytes);
        (bytes, stride)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let (mut bytes, stride) = self.header();
        for region in &self.regions {
            let start = bytes.len();
            bytes.resize(start + stride as usize, 0);
            for (&index, &count) in region {
                let at = start + 8 * index as usize;
                bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
            }
        }
        bytes
    }
}

/// Updates the checksum over the header, the units and the path of a raw file. Does nothing if these are incomplete.
pub fn seal_checksum(bytes: &mut [u8]) {
    if let Some(checksum) = RawHeader::checksum_of(bytes) {
        RawHeader { checksum, ..RawHeader::read(bytes).unwrap() }.write(bytes).unwrap();
    }
}

/// Builds an ELF file that contains unit records and frames, like an instrumented program.
pub fn image_file(units: &[(Identity, u64)], frames: &[Frame]) -> Vec<u8> {
    use object::write::Object;
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let records = object.add_section(Vec::new(), trodden_wire::UNITS_SECTION.into(), SectionKind::Data);
    let mut first = 0i64;
    for (place, (unit, counters)) in units.iter().enumerate() {
        let counters_delta = first - (UnitRecord::BYTES * place) as i64;
        let mut record = [0; UnitRecord::BYTES];
        UnitRecord { magic: UNIT_MAGIC, version: UNIT_VERSION, unit: unit.0, counters_delta, counters: *counters }
            .write(&mut record)
            .unwrap();
        object.append_section_data(records, &record, 8);
        first += 8 * *counters as i64;
    }
    let section = object.add_section(Vec::new(), trodden_wire::FRAMES_SECTION.into(), SectionKind::Other);
    for frame in frames {
        object.append_section_data(section, &frame.to_bytes(), 8);
    }
    object.write().expect("a small object")
}
