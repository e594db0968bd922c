//! What readers may rely on in files that a program is still writing, and why.
//!
//! Each file starts with a [file header](crate::file_header), whose checksum covers only the file header. The rest changes while a program
//! runs, so no checksum of it would match; the rules below protect it instead. A program may be killed between any two instructions, and
//! its file must still be readable.
//!
//! # Raw files and stream files ([`RawHeader`])
//!
//! - *Header, units, path*: written once, with [`HEADER_LOCK_BYTE`] locked. The file header's checksum is 0 until the
//!   rest is complete. Afterwards, only `lost` changes, which [`RawHeader::checksum`] does not cover.
//! - *`lost`*, in the header and in each region: an aligned word that is only changed by atomic operations ([`LostThreads`]).
//! - *Length*: grows by whole regions, with the same byte locked. A file that ends within a region was truncated.
//! - *Region*: only written by the holder of its lock ([`region_lock_byte`]).
//! - *Counters* (raw files): aligned words that are written atomically and never decrease. A reader therefore sees, for each of them, a
//!   value that it had at some moment of the reading. Words that belong to no unit stay 0.
//! - *Switch* (raw files): a byte that other processes may write.
//!
//! # Chunks of stream files ([`StreamChunkHeader`])
//!
//! - `state` works like a sequence lock. A chunk is `CHUNK_FREE` while its header changes, `CHUNK_CURRENT` while events are appended, and
//!   `CHUNK_FULL` when it no longer changes. A flight recorder overwrites full chunks. The events of its chunks, and of any current chunk,
//!   are valid only if the header is the same after they were read. A current chunk must also be read twice: only the common prefix of the
//!   two readings is valid. [`StreamChunkHeader::fields_checksum`] covers the header.
//! - A thread's chunks are ordered by `sequence`, from 0 and without gaps; a missing number is a loss.
//! - A recorder that drains the file sets a full chunk's state to `CHUNK_FREE` once its events are stored elsewhere.
//! - The shadow stack ends at its first slot that is 0. A running thread's slots are more recent than its events.
//!
//! # Recordings of waits ([`waits`](crate::waits))
//!
//! - *Extent*: its space at the end of the file is reserved before its header is written. A header of zeros means that the process
//!   ended before writing it.
//! - *Chunk*: its header is written before the next chunk begins, with the recorder's lock held. Zeros follow the last chunk.
//! - *Headers* have checksums. After a corrupt header, readers search for the next one, and report the bytes between them as a loss.
//! - *Records* are only written by their thread, in order. A chunk ends at the first record whose `kind` (in samples, whose `time`) is 0.
//!   `exit` is 0 until the call returns.
//!
//! # Executed blocks ([`blocks`](crate::blocks))
//!
//! They are sent through a pipe, so only the last frame can be incomplete. Readers store them as a recording of branches
//! ([`FileKind::BRANCHES`]), a file of sections that only grows.

#[cfg(doc)]
use crate::{HEADER_LOCK_BYTE, LostThreads, RawHeader, file_header::FileKind, region_lock_byte, stream::StreamChunkHeader};

#[cfg(test)]
mod tests {
    use crate::file_header::{FILE_HEADER_BYTES, FileHeader, FileKind, HeaderError};

    #[test]
    fn file_kinds_and_descriptions_are_unique() {
        for (index, (kind, phrase)) in FileKind::ALL.iter().enumerate() {
            assert!(FileKind::ALL[..index].iter().all(|other| other.0 != *kind && other.1 != *phrase), "{phrase}");
        }
    }

    #[test]
    fn zero_checksum_marks_a_header_as_unfinished() {
        for (kind, _) in FileKind::ALL {
            let header = FileHeader::new(*kind, 7);
            let unfinished = header.bytes_with_zero_checksum();
            assert!(FileHeader::is_unfinished(&unfinished, *kind) && !FileHeader::is_unfinished(&header.to_bytes(), *kind));
            assert_eq!(FileHeader::read(&unfinished), Err(HeaderError::Checksum));
            for at in 0..FILE_HEADER_BYTES {
                for change in 1..=255 {
                    let mut bytes = header.to_bytes();
                    bytes[at] ^= change;
                    assert!(FileHeader::read(&bytes).is_err() && !FileHeader::is_unfinished(&bytes, *kind), "byte {at} ^ {change}");
                }
            }
        }
    }
}
