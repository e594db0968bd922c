//! Files that programs write while others read them: what readers may believe of each part, and why.
//!
//! Each begins with the [head](crate::head), whose checksum covers the head alone: what follows changes as long as a program runs, so that
//! no checksum of it would ever hold. It is protected by the rules below. A program may be killed between any two instructions, and its
//! file is read all the same.
//!
//! # Raw files and stream files ([`RawHeader`])
//!
//! - *Header, units, path*: written once, under the lock of [`HEADER_LOCK_BYTE`]. The head's checksum is written last, and is 0 until then.
//!   They never change afterwards, but for `lost`. [`RawHeader::checksum`] covers them.
//! - *`lost`*, of the header and of each region: an aligned word that is changed by atomic operations only ([`LostThreads`]).
//! - *Length*: grows by whole regions, under the same lock. A file that ends within a region was cut.
//! - *Region*: written by the holder of its lock ([`region_lock_byte`]) alone.
//! - *Counters* (raw files): aligned words that are written whole and never decrease, so that a reader sees each of them as it was at some
//!   moment of the reading. Words of no unit stay 0.
//! - *Switch* (raw files): a byte that other processes may write.
//!
//! # Chunks of stream files ([`ChunkHeader`])
//!
//! - `state` works like a sequence lock: a chunk is `CHUNK_FREE` while its header changes, then `CHUNK_CURRENT`, and `CHUNK_FULL` once
//!   nothing in it changes any more. Of a flight recorder, which overwrites full chunks, and of a chunk that is being filled, a reader
//!   believes the events only if the header is the same after they were read, and of a chunk that is being filled only what two readings
//!   have up to where they differ. [`ChunkHeader::fields_checksum`] covers the header.
//! - Chunks of a thread are ordered by `sequence`, from 0 and without gaps: a missing number is a loss.
//! - A recorder that drains the file stores `CHUNK_FREE` in the state of a full chunk once its events are safe elsewhere.
//! - The slots of the shadow stack end with the first 0. Those of a running thread are of a later moment than its events.
//!
//! # Recordings of waits ([`waits`](crate::waits))
//!
//! - *Extent*: its room at the end of the file is reserved before its header is written. Where there are zeros in place of the header, its
//!   process did not live to write it.
//! - *Chunk*: its header is written before the next chunk begins, under the recorder's lock. Where there are zeros, there is no chunk yet.
//! - *Headers* have checksums. After a damaged one readers search for the next, and report what lies between as a loss.
//! - *Records* are written by their thread alone, in order. The first whose `kind` (of samples: `time`) is 0 ends the chunk; `exit` is 0
//!   until the call returns.
//!
//! # Executed blocks ([`blocks`](crate::blocks))
//!
//! They go through a pipe: each frame is whole, or the last one. What a reader keeps of them is a recording of branches
//! ([`FileKind::BRANCHES`]), which only grows: it is a file of sections, like those that are written as a whole.

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

    /// A head that is set up in two steps is never taken for a whole one in between, nor the other way round.
    #[test]
    fn an_unfinished_head_differs_from_a_damaged_one() {
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
