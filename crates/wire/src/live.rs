//! Files that programs write while others read them: the guarantees for readers of each part, and their reasons.
//!
//! Each starts with the [head](crate::head), whose checksum only covers the head. The rest changes while a program runs, so a checksum of
//! it would not match. The rules below protect it. A program may be killed between any two instructions, and its file
//! must still be readable.
//!
//! # Raw files and stream files ([`RawHeader`])
//!
//! - *Header, units, path*: written once, with [`HEADER_LOCK_BYTE`] locked. The head's checksum is written last and is 0 before that. They
//!   never change afterwards, except for `lost`. [`RawHeader::checksum`] covers them.
//! - *`lost`*, in the header and in each region: an aligned word that is only changed by atomic operations ([`LostThreads`]).
//! - *Length*: grows by whole regions, with the same byte locked. A file that ends within a region was truncated.
//! - *Region*: only written by the holder of its lock ([`region_lock_byte`]).
//! - *Counters* (raw files): aligned words that are written atomically and never decrease, so that a reader sees each of them as it was at
//!   some moment while reading. Words that belong to no unit stay 0.
//! - *Switch* (raw files): a byte that other processes may write.
//!
//! # Chunks of stream files ([`ChunkHeader`])
//!
//! - `state` works like a sequence lock: a chunk is `CHUNK_FREE` while its header changes, then `CHUNK_CURRENT`, and `CHUNK_FULL` when
//!   it no longer changes. A flight recorder overwrites full chunks, so the events of its chunks, and of a chunk that is being
//!   filled, are only valid if the header is unchanged after they were read; of a chunk that is being filled, only the common prefix of
//!   two readings is valid. [`ChunkHeader::fields_checksum`] covers the header.
//! - A thread's chunks are ordered by `sequence`, from 0 and without gaps; a missing number is a loss.
//! - A recorder that drains the file sets the state of a full chunk to `CHUNK_FREE` once its events are stored elsewhere.
//! - The first 0 ends the slots of the shadow stack. Slots of a running thread are more recent than its events.
//!
//! # Recordings of waits ([`waits`](crate::waits))
//!
//! - *Extent*: its space at the end of the file is reserved before its header is written. Zeros in place of the header mean that the
//!   process ended before writing it.
//! - *Chunk*: its header is written before the next chunk begins, with the recorder's lock held. Zeros mean that there is no chunk yet.
//! - *Headers* have checksums. After a corrupt one, readers search for the next, and report the bytes between them as a loss.
//! - *Records* are only written by their thread, in order. The first one whose `kind` (in samples: `time`) is 0 ends the chunk; `exit` is
//!   0 until the call returns.
//!
//! # Executed blocks ([`blocks`](crate::blocks))
//!
//! They are sent through a pipe: each frame is complete, or the last one. Readers store them as a recording of branches
//! ([`FileKind::BRANCHES`]), a file of sections that only grows.

#[cfg(doc)]
use crate::{HEADER_LOCK_BYTE, LostThreads, RawHeader, head::FileKind, region_lock_byte, stream::ChunkHeader};

#[cfg(test)]
mod tests {
    use crate::head::{FileHead, FileKind, HEAD_BYTES, HeadError};

    #[test]
    fn each_kind_is_registered_once() {
        for (index, (kind, phrase)) in FileKind::ALL.iter().enumerate() {
            assert!(FileKind::ALL[..index].iter().all(|other| other.0 != *kind && other.1 != *phrase), "{phrase}");
        }
    }

    /// Between the two steps in which a head is written, it is not valid, and complete heads are not unfinished.
    #[test]
    fn unfinished_head_differs_from_a_corrupt_one() {
        for (kind, _) in FileKind::ALL {
            let head = FileHead::new(*kind, 7);
            let unfinished = head.unfinished_bytes();
            assert!(FileHead::is_unfinished(&unfinished, *kind) && !FileHead::is_unfinished(&head.to_bytes(), *kind));
            assert_eq!(FileHead::read(&unfinished), Err(HeadError::Checksum));
            for at in 0..HEAD_BYTES {
                for change in 1..=255 {
                    let mut bytes = head.to_bytes();
                    bytes[at] ^= change;
                    assert!(FileHead::read(&bytes).is_err() && !FileHead::is_unfinished(&bytes, *kind), "byte {at} ^ {change}");
                }
            }
        }
    }
}
