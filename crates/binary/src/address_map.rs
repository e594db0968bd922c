//! Parses the basic-block address map that the compiler writes to the section `.llvm_bb_addr_map`, versions 2 to 5, including the PGO
//! analysis map.
//!
//! clang writes the map with `-fbasic-block-address-map`, and rustc with `-C llvm-args=--basic-block-address-map`. `-mllvm
//! -pgo-analysis-map=func-entry-count,bb-freq,br-prob` adds frequencies. The map does not affect code generation, so it may come from a
//! side build, which is a second build of the same sources. Blocks are LLVM's machine blocks, which may be empty and need not start at a
//! branch target. Format: LLVM, "Extensions", "`SHT_LLVM_BB_ADDR_MAP` Section (basic block address map)"; numbers are ULEB128.

use crate::elf::{Binary, parse_elf};
use crate::error::BinaryError;
use object::read::elf::SectionHeader;
use object::{Object, ObjectSection};

/// `SHT_LLVM_BB_ADDR_MAP`.
const MAP_SECTION_TYPE: u32 = 0x6fff_4c0a;
const MAP_SECTION_NAME: &str = ".llvm_bb_addr_map";
const SUPPORTED_MAP_VERSIONS: std::ops::RangeInclusive<u8> = 2..=5;

/// Properties of a machine block: how it ends, and whether it is a landing pad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MapFunctionProperties {
    /// Whether the block ends with a return.
    pub returns: bool,
    /// Whether the block ends with a tail call.
    pub has_tail_call: bool,
    /// Whether the block is a landing pad.
    pub is_landing_pad: bool,
    /// Whether control may fall through to the next block.
    pub falls_through: bool,
    /// Whether the block ends with an indirect jump.
    pub has_indirect_jump: bool,
}

/// A successor of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapSuccessor {
    /// ID of the successor, which is unique in its function.
    pub id: u32,
    /// Probability that control takes the edge, in units of 2^-31.
    pub probability: u32,
    /// Execution count of the edge, if the compiler used a profile to lay out the code (version 5).
    pub frequency: Option<u64>,
}

/// A block of LLVM's machine code, as the map describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapBlock {
    /// ID of the block, which is unique in its function.
    pub id: u32,
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes; 0 if the block is empty.
    pub size: u64,
    /// Properties of the block.
    pub properties: MapFunctionProperties,
    /// Return addresses of the calls in the block. Empty for maps before version 3.
    pub call_ends: Vec<u64>,
    /// Hash of the block's instructions, if the map contains one (version 4).
    pub hash: Option<u64>,
    /// Frequency relative to the other blocks of the function, if the map contains frequencies.
    pub frequency: Option<u64>,
    /// Execution count, if the compiler used a profile to lay out the code (version 5).
    pub executed: Option<u64>,
    /// The block's successors, if the map contains them.
    pub successors: Option<Vec<MapSuccessor>>,
}

/// A function in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFunction {
    /// Format version of the function's entry in the map.
    pub version: u8,
    /// Address of the function's entry.
    pub address: u64,
    /// Number of calls to the function in the compiler's profile, if the map contains it.
    pub entry_count: Option<u64>,
    /// Blocks in the order of the map. The code of a function may have several ranges; the blocks of each range are sorted by address.
    pub blocks: Vec<MapBlock>,
}

/// The address map of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap {
    /// Functions, sorted by address.
    pub functions: Vec<MapFunction>,
}

impl AddressMap {
    /// Reads the address map of a file. Returns `None` if the file has none.
    ///
    /// # Errors
    /// Fails if the map is corrupt or has an unsupported version.
    pub fn read(binary: &Binary) -> Result<Option<AddressMap>, BinaryError> {
        let file = parse_elf(binary.path(), binary.data())?;
        let endian = file.endian();
        let mut functions = Vec::new();
        let mut found = false;
        for section in file.sections().filter(|s| s.elf_section_header().sh_type(endian) == MAP_SECTION_TYPE) {
            let data =
                section.uncompressed_data().map_err(|e| BinaryError::corrupt(binary.path(), format!("section {MAP_SECTION_NAME}: {e}")))?;
            found = true;
            functions.extend(
                AddressMap::parse(&data)
                    .map_err(|what| BinaryError::corrupt(binary.path(), format!("section {MAP_SECTION_NAME}, {what}")))?
                    .functions,
            );
        }
        functions.sort_by_key(|f| f.address);
        // Drops entries of functions that the linker has removed. Their address is 0.
        functions.retain(|f| binary.is_code(f.address));
        Ok(found.then_some(AddressMap { functions }))
    }

    /// Reads the address map of a side build (a second build with the map), whose code must be the same as that of `binary`.
    ///
    /// # Errors
    /// Fails if the code differs, or if the side build has no valid map.
    pub fn from_side_build(binary: &Binary, side: &Binary) -> Result<AddressMap, BinaryError> {
        if let Some(address) = find_first_difference(binary, side) {
            let what = format!("its code differs from that of {} from address {address:#x} on", binary.path().display());
            return Err(BinaryError::SideBuild { path: side.path().to_owned(), what });
        }
        AddressMap::read(side)?
            .ok_or_else(|| BinaryError::SideBuild { path: side.path().to_owned(), what: format!("it has no section {MAP_SECTION_NAME}") })
    }

    /// Parses the content of the section with the map.
    ///
    /// # Errors
    /// Fails if the content is corrupt. The text says at which byte offset, and how.
    pub fn parse(data: &[u8]) -> Result<AddressMap, String> {
        let mut reader = AddressMapReader { data, at: 0 };
        let mut functions = Vec::new();
        while reader.at < data.len() {
            functions.push(parse_function(&mut reader)?);
        }
        Ok(AddressMap { functions })
    }

    /// Returns the function that is entered at `address`.
    pub fn function_at(&self, address: u64) -> Option<&MapFunction> {
        self.functions.binary_search_by_key(&address, |f| f.address).ok().map(|at| &self.functions[at])
    }
}

/// Returns the lowest address at which the code of two files differs; `None` if their code is identical.
fn find_first_difference(a: &Binary, b: &Binary) -> Option<u64> {
    let code = |binary: &Binary| -> Vec<(u64, Vec<u8>)> {
        let segments = binary.segments().iter().filter(|s| s.is_executable);
        segments.map(|s| (s.address, binary.bytes_at(s.address).unwrap_or_default().to_vec())).collect()
    };
    let (a, b) = (code(a), code(b));
    for ((at, own), (at_other, other)) in a.iter().zip(&b) {
        if at != at_other {
            return Some(*at.min(at_other));
        }
        if let Some(offset) = own.iter().zip(other).position(|(x, y)| x != y) {
            return Some(at + offset as u64);
        }
        if own.len() != other.len() {
            return Some(at + own.len().min(other.len()) as u64);
        }
    }
    let rest = a.get(b.len()).or(b.get(a.len()));
    rest.map(|(at, _)| *at)
}

/// The set of optional parts that an entry of the map has.
#[derive(Clone, Copy)]
struct AddressMapFeatures(u16);

impl AddressMapFeatures {
    const ENTRY_COUNT_FEATURE: u16 = 1;
    const FREQUENCY_FEATURE: u16 = 1 << 1;
    const PROBABILITY_FEATURE: u16 = 1 << 2;
    const RANGES_FEATURE: u16 = 1 << 3;
    const NO_BLOCKS_FEATURE: u16 = 1 << 4;
    const CALLS_FEATURE: u16 = 1 << 5;
    const HASH_FEATURE: u16 = 1 << 6;
    const EXECUTED_FEATURE: u16 = 1 << 7;
    const ALL_KNOWN_FEATURES: u16 = 0xff;

    fn has_feature(self, feature: u16) -> bool {
        self.0 & feature != 0
    }
}

fn parse_function(reader: &mut AddressMapReader) -> Result<MapFunction, String> {
    let start = reader.at;
    let version = reader.read_byte()?;
    if !SUPPORTED_MAP_VERSIONS.contains(&version) {
        return Err(format!("byte {start}: version {version} is not supported (only 2 to 5 are): build with LLVM 19 to 22"));
    }
    let features = AddressMapFeatures(if version < 5 { u16::from(reader.read_byte()?) } else { u16::from_le_bytes(reader.read_bytes()?) });
    let too_new =
        [(AddressMapFeatures::CALLS_FEATURE, 3), (AddressMapFeatures::HASH_FEATURE, 4), (AddressMapFeatures::EXECUTED_FEATURE, 5)];
    if features.0 & !AddressMapFeatures::ALL_KNOWN_FEATURES != 0
        || too_new.iter().any(|(feature, since)| features.has_feature(*feature) && version < *since)
    {
        return Err(format!("byte {start}: features {:#x} are not supported in version {version}", features.0));
    }
    let ranges = if features.has_feature(AddressMapFeatures::RANGES_FEATURE) { reader.read_number()? } else { 1 };
    if ranges == 0 {
        return Err(format!("byte {}: a function has no code ranges", reader.at));
    }
    let mut function = MapFunction { version, address: 0, entry_count: None, blocks: Vec::new() };
    for range in 0..ranges {
        let address = u64::from_le_bytes(reader.read_bytes()?);
        if range == 0 {
            function.address = address;
        }
        let count = reader.read_number()?;
        if !features.has_feature(AddressMapFeatures::NO_BLOCKS_FEATURE) {
            parse_blocks(reader, features, address, count, &mut function.blocks)?;
        }
    }
    parse_pgo_analysis(reader, features, &mut function)?;
    Ok(function)
}

fn parse_blocks(
    reader: &mut AddressMapReader,
    features: AddressMapFeatures,
    address: u64,
    count: u64,
    into: &mut Vec<MapBlock>,
) -> Result<(), String> {
    let mut end = address;
    for _ in 0..count {
        let id = reader.read_id()?;
        let start = end.wrapping_add(reader.read_number()?);
        let mut after = start;
        let mut call_ends = Vec::new();
        if features.has_feature(AddressMapFeatures::CALLS_FEATURE) {
            for _ in 0..reader.read_number()? {
                after = after.wrapping_add(reader.read_number()?);
                call_ends.push(after);
            }
        }
        end = after.wrapping_add(reader.read_number()?);
        let bits = reader.read_number()?;
        if bits >= 1 << 5 || end < start {
            return Err(format!("byte {}: block {id} has impossible properties or size", reader.at));
        }
        let bit = |n: u32| bits >> n & 1 == 1;
        let properties = MapFunctionProperties {
            returns: bit(0),
            has_tail_call: bit(1),
            is_landing_pad: bit(2),
            falls_through: bit(3),
            has_indirect_jump: bit(4),
        };
        let hash =
            if features.has_feature(AddressMapFeatures::HASH_FEATURE) { Some(u64::from_le_bytes(reader.read_bytes()?)) } else { None };
        let size = end - start;
        into.push(MapBlock { id, address: start, size, properties, call_ends, hash, frequency: None, executed: None, successors: None });
    }
    Ok(())
}

fn parse_pgo_analysis(reader: &mut AddressMapReader, features: AddressMapFeatures, function: &mut MapFunction) -> Result<(), String> {
    if features.has_feature(AddressMapFeatures::ENTRY_COUNT_FEATURE) {
        function.entry_count = Some(reader.read_number()?);
    }
    if !features.has_feature(AddressMapFeatures::FREQUENCY_FEATURE | AddressMapFeatures::PROBABILITY_FEATURE) {
        return Ok(());
    }
    let executed = |reader: &mut AddressMapReader| {
        if features.has_feature(AddressMapFeatures::EXECUTED_FEATURE) { reader.read_number().map(Some) } else { Ok(None) }
    };
    for block in &mut function.blocks {
        if features.has_feature(AddressMapFeatures::FREQUENCY_FEATURE) {
            block.frequency = Some(reader.read_number()?);
        }
        block.executed = executed(reader)?;
        if features.has_feature(AddressMapFeatures::PROBABILITY_FEATURE) {
            let mut successors = Vec::new();
            for _ in 0..reader.read_number()? {
                successors.push(MapSuccessor { id: reader.read_id()?, probability: reader.read_id()?, frequency: executed(reader)? });
            }
            block.successors = Some(successors);
        }
    }
    Ok(())
}

struct AddressMapReader<'a> {
    data: &'a [u8],
    at: usize,
}

impl AddressMapReader<'_> {
    fn read_bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.data.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).copied();
        let bytes = bytes.ok_or_else(|| format!("byte {}: the section ends in the middle of an entry", self.at))?;
        self.at += N;
        Ok(bytes)
    }

    fn read_byte(&mut self) -> Result<u8, String> {
        self.read_bytes::<1>().map(|[byte]| byte)
    }

    fn read_number(&mut self) -> Result<u64, String> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.read_byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(format!("byte {start}: a number exceeds 64 bits"))
    }

    fn read_id(&mut self) -> Result<u32, String> {
        let start = self.at;
        u32::try_from(self.read_number()?).map_err(|_| format!("byte {start}: a number exceeds 32 bits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of version 2 with all optional parts: two ranges, an entry count, frequencies and probabilities.
    const SAMPLE_ADDRESS_MAP: [u8; 46] = [
        2, 0b1111, 2, 0, 0x10, 0, 0, 0, 0, 0, 0, 2, 0, 0, 4, 8, 1, 2, 6, 1, 0, 0x20, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3, 4, 100, 50, 1, 1, 9, 25,
        0, 12, 1, 2, 0xe5, 0x8e, 0x26,
    ];

    #[test]
    fn version_2_with_all_features_is_read() {
        let map = AddressMap::parse(&SAMPLE_ADDRESS_MAP).unwrap();
        let [function] = &map.functions[..] else { panic!("one function") };
        let extents: Vec<(u32, u64, u64)> = function.blocks.iter().map(|b| (b.id, b.address, b.size)).collect();
        assert_eq!(extents, [(0, 0x1000, 4), (1, 0x1006, 6), (2, 0x2000, 3)]);
        assert_eq!(function.entry_count, Some(100));
        assert!(
            function.blocks[0].properties.falls_through
                && function.blocks[1].properties.returns
                && function.blocks[2].properties.is_landing_pad
        );
        assert_eq!(function.blocks[0].successors.as_deref(), Some(&[MapSuccessor { id: 1, probability: 9, frequency: None }][..]));
        assert_eq!(function.blocks.iter().map(|b| b.frequency.unwrap()).collect::<Vec<_>>(), [50, 25, 12]);
        assert_eq!(function.blocks[2].successors.as_ref().unwrap()[0].probability, 624_485);
    }

    #[test]
    fn corrupt_map_is_rejected_without_panic() {
        assert!(AddressMap::parse(&[1, 0]).unwrap_err().contains("version 1"));
        assert!(AddressMap::parse(&[2, 0x20, 0]).unwrap_err().contains("features 0x20"));
        assert!(AddressMap::parse(&[5, 0, 1]).unwrap_err().contains("features 0x100"));
        for end in 1..SAMPLE_ADDRESS_MAP.len() {
            let _ = AddressMap::parse(&SAMPLE_ADDRESS_MAP[..end]);
        }
        for at in 0..SAMPLE_ADDRESS_MAP.len() {
            for byte in 0..=255 {
                let mut bytes = SAMPLE_ADDRESS_MAP;
                bytes[at] = byte;
                let _ = AddressMap::parse(&bytes);
            }
        }
    }
}
