//! Conversion between `#[repr(C)]` types and bytes. Field offsets are taken from the type, so they are not written down a second time.

use core::mem::size_of;

/// A layout that can be read from and written to bytes. All its fields are little-endian.
pub trait Layout: Sized {
    /// The layout's size in bytes.
    const BYTES: usize = size_of::<Self>();

    /// Reads a value from the start of `bytes`. `None` if there are fewer than [`Layout::BYTES`].
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Writes the value to the start of `bytes`. Returns `None`, possibly after a partial write, if there are fewer than [`Layout::BYTES`].
    fn write(&self, bytes: &mut [u8]) -> Option<()>;
}

/// A field of a layout.
pub trait Field: Sized {
    /// Reads the field at an offset. `None` if `bytes` end before the field does.
    fn read_at(bytes: &[u8], offset: usize) -> Option<Self>;

    /// Writes the field at an offset. `None` if `bytes` end before the field does.
    fn write_at(&self, bytes: &mut [u8], offset: usize) -> Option<()>;
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Field for $number {
            #[inline]
            fn read_at(bytes: &[u8], offset: usize) -> Option<$number> {
                bytes.get(offset..)?.first_chunk().map(|bytes| <$number>::from_le_bytes(*bytes))
            }

            #[inline]
            fn write_at(&self, bytes: &mut [u8], offset: usize) -> Option<()> {
                self.to_le_bytes().write_at(bytes, offset)
            }
        }
    )+};
}

numbers!(u16, u32, i32, u64, i64);

impl<const N: usize> Field for [u8; N] {
    #[inline]
    fn read_at(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
        bytes.get(offset..)?.first_chunk().copied()
    }

    #[inline]
    fn write_at(&self, bytes: &mut [u8], offset: usize) -> Option<()> {
        *bytes.get_mut(offset..)?.first_chunk_mut()? = *self;
        Some(())
    }
}

/// Implements [`Layout`] for types, given the names of all their fields.
macro_rules! layouts {
    ($($name:ident { $($field:ident),+ $(,)? })+) => {$(
        impl $crate::layout::Layout for $name {
            #[inline]
            fn read(bytes: &[u8]) -> Option<$name> {
                Some($name { $($field: $crate::layout::Field::read_at(bytes, core::mem::offset_of!($name, $field))?),+ })
            }

            #[inline]
            fn write(&self, bytes: &mut [u8]) -> Option<()> {
                $($crate::layout::Field::write_at(&self.$field, bytes, core::mem::offset_of!($name, $field))?;)+
                Some(())
            }
        }
    )+};
}

pub(crate) use layouts;

#[cfg(test)]
mod tests {
    use super::Layout;
    use crate::blocks::{BlockHeader, FrameHeader};
    use crate::stream::{RegionStream, StreamChunkHeader};
    use crate::waits::{CallRecord, ExtentHeader, SampleRecord, ThreadHeader};
    use crate::{KnownHeader, RawHeader, RawUnit, UnitRecord};

    /// All bytes differ, so a field that is read at a wrong offset has a wrong value.
    fn distinct_bytes() -> [u8; 256] {
        core::array::from_fn(|i| i as u8)
    }

    #[test]
    fn fields_are_read_from_documented_offsets() {
        let bytes = distinct_bytes();
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let header = RawHeader::read(&bytes).unwrap();
        assert_eq!((header.file_header, header.image), (*bytes[..].first_chunk().unwrap(), *bytes[32..].first_chunk().unwrap()));
        assert_eq!((header.counters, header.switch_offset, header.checksum, header.lost), (word(48), word(120), word(128), word(136)));
        assert_eq!(RawHeader::CHECKSUMMED_BYTE_RANGE, 32..128);
        assert_eq!(RawUnit::read(&bytes).unwrap().counters, word(24));
        assert_eq!(UnitRecord::read(&bytes).unwrap().counters_delta, word(24) as i64);
        assert_eq!(KnownHeader::read(&bytes).unwrap().checksum, word(56));
        assert_eq!(
            (StreamChunkHeader::read(&bytes).unwrap().checksum, StreamChunkHeader::read(&bytes).unwrap().reserved),
            (word(48), word(56))
        );
        assert_eq!(RegionStream::read(&bytes).unwrap().next, word(56));
        assert_eq!((ExtentHeader::read(&bytes).unwrap().start, ExtentHeader::read(&bytes).unwrap().checksum), (word(32), word(48)));
        assert_eq!((FrameHeader::read(&bytes).unwrap().bytes, BlockHeader::read(&bytes).unwrap().instructions), (word(8), word(16)));
        assert_eq!(ThreadHeader::read(&bytes).unwrap().anchor_ns, word(40));
        assert_eq!(CallRecord::read(&bytes).unwrap().cpu_ns, word(56));
        assert_eq!(SampleRecord::read(&bytes).unwrap().position, word(24));
    }

    #[test]
    fn written_values_are_read_unchanged() {
        let mut written = [0; 256];
        RawHeader::read(&distinct_bytes()).unwrap().write(&mut written).unwrap();
        assert_eq!((&written[..RawHeader::BYTES], written[RawHeader::BYTES]), (&distinct_bytes()[..RawHeader::BYTES], 0));
        assert_eq!(RawUnit::read(&distinct_bytes()).unwrap().write(&mut written[..RawUnit::BYTES - 1]), None);
    }

    #[test]
    fn truncated_layout_is_not_read() {
        let bytes = distinct_bytes();
        for length in 0..RawHeader::BYTES {
            assert_eq!(RawHeader::read(&bytes[..length]), None);
        }
        assert!(RawHeader::read(&bytes[..RawHeader::BYTES]).is_some());
    }
}
