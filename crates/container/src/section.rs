//! Sections: the parts of a file that are compressed and checked separately. Everything is little-endian. Checksums are XXH3 (64 bits,
//! seed 0). Values are encoded in the [postcard](https://postcard.jamesmunns.com/wire-format) format.

// Layout of a section:
//
// 0   marker    8   [`SECTION_MARKER`]
// 8   tag       4   meaning of the section, which depends on the kind of file
// 12  layout    4   version of the tag's layout
// 16  subject   16  identity of what the section is about
// 32  count     4   a number whose meaning depends on the tag
// 36  index     4   size of the index
// 40  packed    8   size of the compressed content
// 48  unpacked  8   size of the content
// 56  checksum  8   of the index
// 64  checksum  8   of the compressed content
// 72  checksum  8   of bytes 0 to 71
// 80  index, then the compressed content: one zstd frame

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of a section.
pub const SECTION_MARKER: [u8; 8] = *b"\x93SECTION";
/// Size of a section's header in bytes.
pub const SECTION_HEADER_BYTES: usize = 80;
const CHECKED_HEADER_BYTES: usize = SECTION_HEADER_BYTES - 8;
const MAX_INDEX_BYTES: u32 = 1 << 28;
/// Maximum size of a section's decompressed content. If a header has a larger size, it is corrupt.
const MAX_UNPACKED_BYTES: u64 = 4 << 30;
/// Maximum ratio of decompressed to compressed size. It keeps a small file from exhausting memory.
const MAX_COMPRESSION_RATIO: u64 = 1024;
/// Decompressed size below which [`MAX_COMPRESSION_RATIO`] does not apply.
const MIN_SIZE_FOR_MAX_COMPRESSION_RATIO: u64 = 16 << 20;

/// Returns the maximum decompressed size that is plausible for this compressed size. If a header has a larger size, it is corrupt.
pub fn max_unpacked_size(packed: u64) -> u64 {
    packed.saturating_mul(MAX_COMPRESSION_RATIO).clamp(MIN_SIZE_FOR_MAX_COMPRESSION_RATIO, MAX_UNPACKED_BYTES)
}

/// A section to be written, without its content.
#[derive(Clone, Copy, Debug, Default)]
pub struct Section<'a> {
    /// The meaning of the section; each kind of file defines its own tags.
    pub tag: u32,
    /// Version of the tag's layout.
    pub layout: u32,
    /// Identity of what the section is about, such as a unit or an image. Zeros if there is nothing to identify.
    pub subject: [u8; 16],
    /// A number whose meaning depends on the tag.
    pub count: u32,
    /// Data that can be read without decompressing the content.
    pub index: &'a [u8],
}

/// The header of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionHeader {
    /// The meaning of the section; each kind of file defines its own tags.
    pub tag: u32,
    /// Version of the tag's layout.
    pub layout: u32,
    /// Identity of what the section is about; zeros if there is nothing to identify.
    pub subject: [u8; 16],
    /// A number whose meaning depends on the tag.
    pub count: u32,
    index: u32,
    packed: u64,
    unpacked: u64,
    index_checksum: u64,
    checksum: u64,
}

/// The reason why a section cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants and their fields")]
pub enum SectionError {
    #[error("a section should start here, but its marker is missing")]
    Marker,
    #[error("its content is truncated")]
    Truncated,
    #[error("the checksum of its header does not match")]
    Header,
    #[error("the checksum of its index does not match")]
    Index,
    #[error("its checksum does not match")]
    Content,
    /// The header has a size that no writer produces.
    #[error("its header contains an impossible size: {claimed} bytes of content in {packed} compressed bytes")]
    Size { claimed: u64, packed: u64 },
    #[error("it cannot be decompressed: {0}")]
    Decompression(String),
    #[error("its content cannot be parsed: {0}")]
    UnexpectedForm(String),
}

impl Section<'_> {
    /// Returns the section's bytes. A higher compression level gives fewer bytes, but takes longer. Panics if the index has 4 GiB or more,
    /// which no writer produces.
    pub fn to_bytes(&self, content: &[u8], level: i32) -> Vec<u8> {
        let packed = zstd::bulk::compress(content, level).expect("memory can be compressed into memory");
        self.packed_to_bytes(&packed, content.len() as u64)
    }

    /// Returns the section's bytes for content that is already compressed. `unpacked` is the size of the content before compression. Panics
    /// like [`Section::to_bytes`].
    pub fn packed_to_bytes(&self, packed: &[u8], unpacked: u64) -> Vec<u8> {
        let index = u32::try_from(self.index.len()).expect("an index has less than 4 GiB");
        let mut bytes = Vec::with_capacity(SECTION_HEADER_BYTES + self.index.len() + packed.len());
        bytes.extend(SECTION_MARKER);
        bytes.extend(self.tag.to_le_bytes());
        bytes.extend(self.layout.to_le_bytes());
        bytes.extend(self.subject);
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(index.to_le_bytes());
        for number in [packed.len() as u64, unpacked, xxh3_64(self.index), xxh3_64(packed)] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes.extend(self.index);
        bytes.extend(packed);
        bytes
    }

    /// Returns the bytes of a section whose content is a value.
    pub fn value_to_bytes(&self, value: &impl Serialize, level: i32) -> Vec<u8> {
        self.to_bytes(&encode(value), level)
    }
}

impl SectionHeader {
    /// Reads the header at the start of `bytes`. Fails if `bytes` do not start with a header, the header is corrupt, or it has sizes that
    /// no section can have.
    pub fn read(bytes: &[u8]) -> Result<SectionHeader, SectionError> {
        if !bytes.starts_with(&SECTION_MARKER) {
            return Err(SectionError::Marker);
        }
        let bytes = bytes.first_chunk::<SECTION_HEADER_BYTES>().ok_or(SectionError::Truncated)?;
        let half = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"));
        if xxh3_64(&bytes[..CHECKED_HEADER_BYTES]) != word(CHECKED_HEADER_BYTES) {
            return Err(SectionError::Header);
        }
        let header = SectionHeader {
            tag: half(8),
            layout: half(12),
            subject: *bytes[16..].first_chunk().expect("sixteen bytes"),
            count: half(32),
            index: half(36),
            packed: word(40),
            unpacked: word(48),
            index_checksum: word(56),
            checksum: word(64),
        };
        let is_sound =
            header.index <= MAX_INDEX_BYTES && header.packed <= MAX_UNPACKED_BYTES && header.unpacked <= max_unpacked_size(header.packed);
        is_sound.then_some(header).ok_or(SectionError::Size { claimed: header.unpacked.max(header.index.into()), packed: header.packed })
    }

    /// Returns the size of the complete section in bytes.
    pub fn length(&self) -> u64 {
        SECTION_HEADER_BYTES as u64 + self.index_length() + self.packed
    }

    /// Returns the size of the index, which follows the header.
    pub fn index_length(&self) -> u64 {
        self.index.into()
    }

    /// Returns the size of the compressed content, which follows the index.
    pub fn packed_length(&self) -> u64 {
        self.packed
    }

    /// Returns the size of the content after decompression.
    pub fn unpacked_length(&self) -> u64 {
        self.unpacked
    }

    /// Verifies an index. Fails if the checksum does not match.
    pub fn verify_index_checksum(&self, index: &[u8]) -> Result<(), SectionError> {
        (xxh3_64(index) == self.index_checksum).then_some(()).ok_or(SectionError::Index)
    }

    /// Verifies compressed content. Fails if the checksum does not match.
    pub fn check(&self, packed: &[u8]) -> Result<(), SectionError> {
        (xxh3_64(packed) == self.checksum).then_some(()).ok_or(SectionError::Content)
    }

    /// Verifies and decompresses content. Memory is only allocated for content that exists, no matter what size the header claims. Fails
    /// if the checksum does not match, or the content does not have the size in the header.
    pub fn unpack(&self, packed: &[u8]) -> Result<Vec<u8>, SectionError> {
        self.check(packed)?;
        let cannot = |e: std::io::Error| SectionError::Decompression(e.to_string());
        let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(cannot)?;
        let mut content = Vec::new();
        decoder.take(self.unpacked + 1).read_to_end(&mut content).map_err(cannot)?;
        match content.len() as u64 == self.unpacked {
            true => Ok(content),
            false => Err(SectionError::Size { claimed: self.unpacked, packed: self.packed }),
        }
    }

    /// Verifies, decompresses and decodes content that is a value. Fails like [`SectionHeader::unpack`], or if the content is not a value
    /// of this type.
    pub fn value<T: DeserializeOwned>(&self, packed: &[u8]) -> Result<T, SectionError> {
        decode(&self.unpack(packed)?)
    }
}

/// Encodes a value as the content of a section.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("stored values can be encoded")
}

/// Decodes the content of a section into a value. Fails if the content is not a value of this type, or if bytes follow the value.
pub fn decode<T: DeserializeOwned>(content: &[u8]) -> Result<T, SectionError> {
    match postcard::take_from_bytes(content) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(SectionError::UnexpectedForm(format!("{} bytes follow it", rest.len()))),
        Err(error) => Err(SectionError::UnexpectedForm(error.to_string())),
    }
}

/// Returns the position of the first complete marker in `bytes`.
pub fn find_marker(bytes: &[u8]) -> Option<usize> {
    bytes.windows(SECTION_MARKER.len()).position(|window| window == SECTION_MARKER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example_section() -> Vec<u8> {
        let described = Section { tag: 3, layout: 2, subject: [7; 16], count: 9, index: b"index" };
        described.value_to_bytes(&("content".repeat(9), 5u64), 3)
    }

    fn read(bytes: &[u8]) -> Result<(SectionHeader, (String, u64)), SectionError> {
        let header = SectionHeader::read(bytes)?;
        if bytes.len() as u64 != header.length() {
            return Err(SectionError::Truncated);
        }
        let (index, packed) = bytes[SECTION_HEADER_BYTES..].split_at(header.index_length() as usize);
        header.verify_index_checksum(index)?;
        assert_eq!(index, b"index");
        Ok((header, header.value(packed)?))
    }

    #[test]
    fn written_section_is_read_unchanged() {
        let (header, value) = read(&example_section()).unwrap();
        assert_eq!((header.tag, header.layout, header.subject, header.count), (3, 2, [7; 16], 9));
        assert_eq!(value, ("content".repeat(9), 5));
    }

    #[test]
    fn changed_bytes_and_truncation_are_detected() {
        let whole = example_section();
        for at in 0..whole.len() {
            for change in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= change;
                assert!(read(&bytes).is_err(), "byte {at} ^ {change}");
            }
            assert!(read(&whole[..at]).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn small_section_with_large_claimed_size_is_rejected() {
        let bytes = Section::default().to_bytes(&vec![0; 64 << 20], 19);
        assert!(bytes.len() < 16 << 10);
        assert!(matches!(SectionHeader::read(&bytes), Err(SectionError::Size { claimed, .. }) if claimed == 64 << 20));
    }

    #[test]
    fn memory_is_allocated_for_actual_content_only() {
        // The header of a zstd frame that claims to contain 4 GB, although nothing follows the header.
        let claim = [0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0xff, 0xff, 0xff, 0xff, 0x01, 0x00, 0x00];
        let header = SectionHeader {
            packed: claim.len() as u64,
            unpacked: MIN_SIZE_FOR_MAX_COMPRESSION_RATIO,
            checksum: xxh3_64(&claim),
            ..read(&example_section()).unwrap().0
        };
        assert!(matches!(header.unpack(&claim), Err(SectionError::Size { .. } | SectionError::Decompression(_))));
    }

    #[test]
    fn value_of_unexpected_form_is_rejected() {
        let header = SectionHeader::read(&example_section()).unwrap();
        let packed = &example_section()[SECTION_HEADER_BYTES + 5..];
        assert!(matches!(header.value::<u8>(packed), Err(SectionError::UnexpectedForm(_))));
        assert!(matches!(header.value::<(String, u64, u64)>(packed), Err(SectionError::UnexpectedForm(_))));
    }

    #[test]
    fn next_section_is_found_by_its_marker() {
        let bytes = [&b"before"[..], &example_section()].concat();
        assert_eq!(find_marker(&bytes), Some(6));
        assert_eq!(find_marker(&bytes[..12]), None);
    }
}
