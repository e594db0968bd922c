//! The frame around a unit's map and bitcode, as it stands in an object file's section and in the store.
//!
//! ```text
//! 0   magic "TRODUNIT"          8 bytes
//! 8   version                   u32
//! 12  flags (0)                 u32
//! 16  identity of the unit      16 bytes
//! 32  length of the map         u64   zstd of postcard of UnitMap
//! 40  length of the bitcode     u64   zstd of LLVM bitcode; 0: not kept
//! 48  checksum of the payload   u64   XXH3 over both
//! 56  payload: map, bitcode, zero bytes up to a multiple of 8
//! ```
//! All little-endian. Linkers put the frames of a program one behind the other; zero bytes between frames are passed over.

use crate::identity::Identity;
use crate::map::{MAP_VERSION, UnitMap};
use crate::packed::unpacked;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"TRODUNIT";
const HEADER: usize = 56;

/// A unit's map and bitcode, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Identity of the unit.
    pub unit: Identity,
    map: Vec<u8>,
    bitcode: Vec<u8>,
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not a frame at all.
    #[error("no unit frame at byte {0}: the section was written by something else, or is damaged")]
    Magic(usize),
    /// Another version.
    #[error("unit {unit} was built by another version of trodden (format {found}, this one reads {MAP_VERSION}): rebuild the program")]
    Version {
        /// The unit.
        unit: Identity,
        /// The version found.
        found: u32,
    },
    /// Fewer bytes than the header announces.
    #[error("unit {0} is cut short")]
    Truncated(Identity),
    /// The payload is not what was written.
    #[error("unit {0} is damaged: its checksum does not match")]
    Checksum(Identity),
    /// The payload cannot be unpacked.
    #[error("unit {unit} cannot be read: {what}")]
    Payload {
        /// The unit.
        unit: Identity,
        /// What is wrong.
        what: String,
    },
    /// The unit's bitcode was not kept.
    #[error("unit {0} holds no bitcode, of which other variants are made: build it again without `keep=map`")]
    NoBitcode(Identity),
}

impl Frame {
    /// Packs a unit. `bitcode` may be empty: not kept.
    pub fn pack(unit: Identity, map: &UnitMap, bitcode: &[u8]) -> Frame {
        let map = postcard::to_allocvec(map).expect("maps are plain data");
        let squeeze = |bytes: &[u8]| zstd::bulk::compress(bytes, 3).expect("compression in memory");
        let bitcode = if bitcode.is_empty() { Vec::new() } else { squeeze(bitcode) };
        Frame { unit, map: squeeze(&map), bitcode }
    }

    /// Whether both hold the same map.
    pub(crate) fn has_map_of(&self, other: &Frame) -> bool {
        self.map == other.map
    }

    /// The bytes of the frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut payload = self.map.clone();
        payload.extend(&self.bitcode);
        let mut out = Vec::with_capacity(HEADER + payload.len() + 8);
        out.extend(MAGIC);
        out.extend(MAP_VERSION.to_le_bytes());
        out.extend(0u32.to_le_bytes());
        out.extend(self.unit.0);
        out.extend((self.map.len() as u64).to_le_bytes());
        out.extend((self.bitcode.len() as u64).to_le_bytes());
        out.extend(xxh3_64(&payload).to_le_bytes());
        out.extend(payload);
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    /// Reads the frame at `at` and says where it ends.
    ///
    /// # Errors
    /// The bytes are no frame, of another version, or damaged.
    pub fn read(bytes: &[u8], at: usize) -> Result<(Frame, usize), FrameError> {
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.len() < HEADER || rest[..8] != MAGIC {
            return Err(FrameError::Magic(at));
        }
        let number = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().expect("eight bytes"));
        let unit = Identity(rest[16..32].try_into().expect("sixteen bytes"));
        let version = number(8) as u32;
        if version != MAP_VERSION {
            return Err(FrameError::Version { unit, found: version });
        }
        let (map, bitcode) = (number(32) as usize, number(40) as usize);
        let payload = map.checked_add(bitcode).and_then(|len| rest[HEADER..].get(..len)).ok_or(FrameError::Truncated(unit))?;
        if xxh3_64(payload) != number(48) {
            return Err(FrameError::Checksum(unit));
        }
        let end = at + (HEADER + payload.len()).next_multiple_of(8);
        let (map, bitcode) = payload.split_at(map);
        Ok((Frame { unit, map: map.to_vec(), bitcode: bitcode.to_vec() }, end.min(bytes.len())))
    }

    /// All frames of a section. Damage is reported with what could be read before and after it.
    pub fn read_all(bytes: &[u8]) -> (Vec<Frame>, Vec<FrameError>) {
        let (mut frames, mut errors) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < bytes.len() {
            if bytes[at] == 0 {
                at += 1;
                continue;
            }
            match Frame::read(bytes, at) {
                Ok((frame, end)) => {
                    frames.push(frame);
                    at = end;
                }
                Err(error) => {
                    errors.push(error);
                    let next = bytes[at + 1..].windows(8).position(|w| w == MAGIC);
                    at = next.map_or(bytes.len(), |n| at + 1 + n);
                }
            }
        }
        (frames, errors)
    }

    /// Unpacks the map.
    ///
    /// # Errors
    /// The payload is damaged.
    pub fn map(&self) -> Result<UnitMap, FrameError> {
        let wrong = |what: String| FrameError::Payload { unit: self.unit, what };
        let bytes = unpacked(&self.map).map_err(wrong)?;
        postcard::from_bytes(&bytes).map_err(|e| wrong(e.to_string()))
    }

    /// Unpacks the bitcode.
    ///
    /// # Errors
    /// It was not kept, or is damaged.
    pub fn bitcode(&self) -> Result<Vec<u8>, FrameError> {
        if self.bitcode.is_empty() {
            return Err(FrameError::NoBitcode(self.unit));
        }
        unpacked(&self.bitcode).map_err(|what| FrameError::Payload { unit: self.unit, what })
    }

    /// Whether the unit's bitcode was kept.
    pub fn has_bitcode(&self) -> bool {
        !self.bitcode.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Experiment;
    use crate::map::CountedEvent;

    fn map() -> UnitMap {
        UnitMap {
            source: "a.c".into(),
            producer: String::new(),
            target: String::new(),
            experiment: Experiment::default(),
            counted: CountedEvent::Paths,
            codegen: vec![],
            files: vec![],
            scopes: vec![],
            functions: vec![],
            skipped: vec![],
            instead: vec![],
            counters: 0,
            edge_profile: None,
            calls: vec![],
            aliases: vec![],
            line_graphs: Default::default(),
        }
    }

    #[test]
    fn frames_come_back_one_behind_the_other() {
        let one = Frame::pack(Identity([1; 16]), &map(), b"BC");
        let two = Frame::pack(Identity([2; 16]), &map(), b"");
        let mut bytes = one.to_bytes();
        bytes.extend([0; 24]);
        bytes.extend(two.to_bytes());
        let (frames, errors) = Frame::read_all(&bytes);
        assert_eq!(frames, [one.clone(), two.clone()]);
        assert!(errors.is_empty());
        assert_eq!(frames[0].map().unwrap(), map());
        assert_eq!(frames[0].bitcode().unwrap(), b"BC");
        assert_eq!(frames[1].bitcode(), Err(FrameError::NoBitcode(Identity([2; 16]))));
    }

    #[test]
    fn another_format_is_refused_by_name_with_the_remedy() {
        let mut bytes = Frame::pack(Identity([1; 16]), &map(), b"BC").to_bytes();
        bytes[8] -= 1;
        let (_, errors) = Frame::read_all(&bytes);
        let said = errors[0].to_string();
        assert!(said.contains(&Identity([1; 16]).to_string()) && said.contains("rebuild the program"), "{said}");
    }

    #[test]
    fn damage_is_named_and_what_follows_is_read() {
        let mut bytes = Frame::pack(Identity([1; 16]), &map(), b"BC").to_bytes();
        bytes[60] ^= 1;
        bytes.extend(Frame::pack(Identity([2; 16]), &map(), b"").to_bytes());
        let (frames, errors) = Frame::read_all(&bytes);
        assert_eq!(frames.len(), 1);
        assert_eq!(errors, [FrameError::Checksum(Identity([1; 16]))]);
    }
}
