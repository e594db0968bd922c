//! Reads the sections that contain LLVM's mapping of counters to source regions, and writes them to object files.

use crate::region_code::{self, FunctionRegions};
use anyhow::{Context, Result};
use md5::{Digest, Md5};
use object::write::Object as NewObject;
use object::{Architecture, BinaryFormat, Endianness, Object, ObjectSection, SectionKind};
use std::collections::HashMap;

const MAPPING_SECTION: &str = "__llvm_covmap";
const FUNCTIONS_SECTION: &str = "__llvm_covfun";
const NAMES_SECTION: &str = "__llvm_prf_names";
/// Size in bytes of a record's header: the name hash, the size of the regions, the graph hash, and the hash of the file names.
const MAPPING_RECORD_HEADER_SIZE: usize = 28;
const MAPPING_RECORD_ALIGNMENT: usize = 8;

/// The sections of an image that contain the coverage mapping.
pub struct ImageCoverageMapping {
    mapping: Vec<u8>,
    functions: Vec<u8>,
    names: Vec<u8>,
    /// Lists of file names, by the hash of the list's encoded form.
    files: HashMap<u64, Vec<String>>,
}

#[derive(Clone, Copy)]
pub struct MappingRecord<'m> {
    header: &'m [u8; MAPPING_RECORD_HEADER_SIZE],
    code: &'m [u8],
}

impl ImageCoverageMapping {
    /// Reads the mapping of an image. Fails if the image or its mapping is corrupt.
    pub fn read(image: &[u8]) -> Result<ImageCoverageMapping> {
        let file = object::File::parse(image)?;
        let section =
            |name| file.section_by_name(name).and_then(|s| s.uncompressed_data().ok()).context("the program's coverage mapping is corrupt");
        let (mapping, functions, names) = (section(MAPPING_SECTION)?, section(FUNCTIONS_SECTION)?, section(NAMES_SECTION)?);
        let files = read_file_lists(&mapping).context("the file names in the program's coverage mapping are corrupt")?;
        Ok(ImageCoverageMapping { mapping: mapping.into_owned(), functions: functions.into_owned(), names: names.into_owned(), files })
    }

    pub fn records(&self) -> Result<Vec<MappingRecord<'_>>> {
        let (mut at, mut records) = (0, Vec::new());
        while at + MAPPING_RECORD_HEADER_SIZE <= self.functions.len() {
            let header: &[u8; MAPPING_RECORD_HEADER_SIZE] =
                self.functions[at..at + MAPPING_RECORD_HEADER_SIZE].try_into().expect("the size of a header");
            let size = u32::from_le_bytes(header[8..12].try_into().expect("four bytes")) as usize;
            let code = self
                .functions
                .get(at + MAPPING_RECORD_HEADER_SIZE..at + MAPPING_RECORD_HEADER_SIZE + size)
                .context("the program's coverage mapping is truncated")?;
            records.push(MappingRecord { header, code });
            at = (at + MAPPING_RECORD_HEADER_SIZE + size).next_multiple_of(MAPPING_RECORD_ALIGNMENT);
        }
        Ok(records)
    }

    /// Returns the names of the files in which a function has regions. A file that is missing from the mapping has an empty name.
    pub fn files_of(&self, record: &MappingRecord, function: &FunctionRegions) -> Vec<String> {
        let files = self.files.get(&record.read_word(20)).map_or(&[][..], Vec::as_slice);
        function.files.iter().map(|file| files.get(*file as usize).cloned().unwrap_or_default()).collect()
    }

    pub fn write_object(&self, records: &[u8]) -> Result<Vec<u8>> {
        let mut object = NewObject::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        for (name, content) in [(MAPPING_SECTION, &*self.mapping), (FUNCTIONS_SECTION, records), (NAMES_SECTION, &*self.names)] {
            let id = object.add_section(Vec::new(), name.into(), SectionKind::ReadOnlyData);
            object.append_section_data(id, content, MAPPING_RECORD_ALIGNMENT as u64);
        }
        object.write().context("cannot write the program's coverage mapping")
    }
}

impl MappingRecord<'_> {
    fn read_word(&self, from: usize) -> u64 {
        u64::from_le_bytes(self.header[from..from + 8].try_into().expect("eight bytes"))
    }

    pub fn name_hash(&self) -> u64 {
        self.read_word(0)
    }

    pub fn graph_hash(&self) -> u64 {
        self.read_word(12)
    }

    pub fn regions(&self) -> Result<FunctionRegions> {
        FunctionRegions::read(self.code).context("the source ranges of a function in the program's coverage mapping are corrupt")
    }

    /// Appends the record to `out` with the graph hash `graph`, and with `regions` in place of the record's own regions unless it is
    /// `None`.
    pub fn append(&self, out: &mut Vec<u8>, graph: u64, regions: Option<&FunctionRegions>) {
        let code = regions.map(FunctionRegions::write);
        let code = code.as_deref().unwrap_or(self.code);
        out.extend(&self.header[..8]);
        out.extend((code.len() as u32).to_le_bytes());
        out.extend(graph.to_le_bytes());
        out.extend(&self.header[20..]);
        out.extend(code);
        out.resize(out.len().next_multiple_of(MAPPING_RECORD_ALIGNMENT), 0);
    }
}

/// Decodes the lists of file names, by the hash of their encoded form. Returns `None` if one is corrupt.
fn read_file_lists(mapping: &[u8]) -> Option<HashMap<u64, Vec<String>>> {
    const HEADER_SIZE: usize = 16;
    let (mut at, mut lists) = (0, HashMap::new());
    while at + HEADER_SIZE <= mapping.len() {
        let size = u32::from_le_bytes(mapping[at + 4..at + 8].try_into().ok()?) as usize;
        let list = mapping.get(at + HEADER_SIZE..at + HEADER_SIZE + size)?;
        lists.insert(hash_name(list), region_code::read_file_names(list)?);
        at = (at + HEADER_SIZE + size).next_multiple_of(MAPPING_RECORD_ALIGNMENT);
    }
    Some(lists)
}

/// Computes LLVM's hash of names: the first eight bytes of MD5.
pub fn hash_name(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(Md5::digest(bytes)[..8].try_into().expect("sixteen bytes"))
}
