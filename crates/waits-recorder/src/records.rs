//! The records of a thread, in chunks of a file.

use crate::chunks::{self, CHUNK_GROWTH, FIRST_CHUNK_SIZE, MAX_CHUNK_SIZE, RecordChunk};
use crate::process;
use core::marker::PhantomData;

/// A thread's records of one kind, stored in a sequence of chunks.
pub struct ThreadRecords<T> {
    kind: u32,
    thread: u32,
    count: u32,
    chunk: Option<RecordChunk>,
    /// The previous chunk. It stays mapped until the next chunk begins, because a record in it may be incomplete.
    previous: Option<RecordChunk>,
    /// Number of bytes used in the chunk.
    used: usize,
    /// Size in bytes of the next chunk.
    size: usize,
    is_full: bool,
    record: PhantomData<T>,
}

impl<T> ThreadRecords<T> {
    /// Creates an empty sequence. `thread` is the thread's index in the file.
    pub fn new(kind: u32, thread: u32) -> Self {
        let size = FIRST_CHUNK_SIZE;
        ThreadRecords { kind, thread, count: 0, chunk: None, previous: None, used: 0, size, is_full: false, record: PhantomData }
    }

    /// Allocates a record. Returns `None` if the disk is full.
    #[inline]
    pub fn next_record(&mut self) -> Option<*mut T> {
        self.allocate(size_of::<T>()).map(<*mut u8>::cast)
    }

    /// Allocates a record of `size` bytes, which must fit into the smallest chunk.
    #[inline]
    pub fn allocate(&mut self, size: usize) -> Option<*mut u8> {
        let has_room = self.chunk.as_ref().is_some_and(|chunk| self.used + size <= chunk.size);
        if !has_room && !self.start_next_chunk() {
            return None;
        }
        // SAFETY: the chunk has room for the record.
        let place = self.chunk.as_ref().map(|chunk| unsafe { chunk.start.add(self.used) });
        self.used += size;
        self.count += 1;
        place
    }

    /// Removes and clears the newest record. May be called at most once after each [`ThreadRecords::next_record`].
    pub fn remove_last(&mut self) {
        let Some(chunk) = &self.chunk else { return };
        self.used -= size_of::<T>();
        self.count -= 1;
        // SAFETY: this is the address that `next` returned.
        unsafe { chunk.start.add(self.used).write_bytes(0, size_of::<T>()) };
    }

    #[cold]
    fn start_next_chunk(&mut self) -> bool {
        // No records are added after a failure, because the gap would shift the indices of later records.
        if self.is_full {
            return false;
        }
        let Some(chunk) = chunks::add_chunk(self.kind, self.thread, self.count, self.size) else {
            self.is_full = true;
            process::note_no_space();
            return false;
        };
        let before = core::mem::replace(&mut self.previous, self.chunk.replace(chunk));
        before.into_iter().for_each(chunks::release);
        (self.used, self.size) = (0, self.size.saturating_mul(CHUNK_GROWTH).min(MAX_CHUNK_SIZE));
        true
    }

    /// Releases the chunks. No further records can be added.
    pub fn close(&mut self) {
        self.chunk.take().into_iter().chain(self.previous.take()).for_each(chunks::release);
        self.is_full = true;
    }

    /// Abandons the chunks in a forked child without changing them, because they belong to the parent.
    pub fn abandon_chunks(&mut self) {
        (self.chunk, self.previous, self.is_full) = (None, None, true);
    }
}
