//! Reading layouts from bytes: each field where the compiler puts it in the `#[repr(C)]` type, so that no reader repeats an offset.

use core::mem::size_of;

/// A layout that is read from bytes. All its fields are little-endian.
pub trait Layout: Sized {
    /// Its size in bytes.
    const BYTES: usize = size_of::<Self>();

    /// The value at the beginning of `bytes`; `None` if there are fewer than [`Layout::BYTES`].
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// A field of a layout.
pub trait Field: Sized {
    /// The field at that offset.
    fn read_at(bytes: &[u8], offset: usize) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),+) => {$(
        impl Field for $number {
            #[inline]
            fn read_at(bytes: &[u8], offset: usize) -> Option<$number> {
                bytes.get(offset..)?.first_chunk().map(|bytes| <$number>::from_le_bytes(*bytes))
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
}

impl Field for [u64; 2] {
    #[inline]
    fn read_at(bytes: &[u8], offset: usize) -> Option<[u64; 2]> {
        Some([u64::read_at(bytes, offset)?, u64::read_at(bytes, offset.checked_add(8)?)?])
    }
}

/// Implements [`Layout`] for types by the names of all their fields.
macro_rules! layouts {
    ($($name:ident { $($field:ident),+ $(,)? })+) => {$(
        impl $crate::layout::Layout for $name {
            #[inline]
            fn read(bytes: &[u8]) -> Option<$name> {
                Some($name { $($field: $crate::layout::Field::read_at(bytes, core::mem::offset_of!($name, $field))?),+ })
            }
        }
    )+};
}

pub(crate) use layouts;

#[cfg(test)]
mod tests {
    use super::Layout;
    use crate::stream::{ChunkHeader, RegionStream};
    use crate::waits::{CallRecord, ExtentHeader, SampleRecord, ThreadHeader};
    use crate::{RawHeader, RawUnit, UnitRecord};

    /// Bytes that all differ from those beside them: a field that was read from another place would have another value.
    fn bytes() -> [u8; 256] {
        core::array::from_fn(|i| i as u8)
    }

    #[test]
    fn fields_are_where_the_documents_say() {
        let bytes = bytes();
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        let header = RawHeader::read(&bytes).unwrap();
        assert_eq!((header.version, header.ready), (0x0b0a_0908, 0x0f0e_0d0c));
        assert_eq!((header.counters, header.switch_offset, header.lost), (word(32), word(104), word(112)));
        assert_eq!(RawUnit::read(&bytes).unwrap().counters, word(24));
        assert_eq!(UnitRecord::read(&bytes).unwrap().counters_delta, word(24) as i64);
        assert_eq!(ChunkHeader::read(&bytes).unwrap().reserved, [word(48), word(56)]);
        assert_eq!(RegionStream::read(&bytes).unwrap().next, word(56));
        assert_eq!(ExtentHeader::read(&bytes).unwrap().check, 0x1f1e_1d1c);
        assert_eq!(ThreadHeader::read(&bytes).unwrap().anchor_ns, word(40));
        assert_eq!(CallRecord::read(&bytes).unwrap().cpu_ns, word(56));
        assert_eq!(SampleRecord::read(&bytes).unwrap().position, word(24));
    }

    #[test]
    fn too_few_bytes_are_no_value() {
        let bytes = bytes();
        for length in 0..RawHeader::BYTES {
            assert_eq!(RawHeader::read(&bytes[..length]), None);
        }
        assert!(RawHeader::read(&bytes[..RawHeader::BYTES]).is_some());
    }
}
