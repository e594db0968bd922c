//! A thread's records of one kind, stored in a sequence of chunks.

use crate::chunks::{self, FIRST_SIZE, GROWTH, MAX_SIZE, RecordChunk};
use crate::process;
use core::marker::PhantomData;

/// A thread's records of one kind.
pub struct ThreadRecords<T> {
    kind: u32,
    thread: u32,
    /// Number of records so far.
    count: u32,
    chunk: Option<RecordChunk>,
    /// The previous chunk, which stays mapped until the next chunk begins, because a record in it may be incomplete.
    previous: Option<RecordChunk>,
    /// Number of bytes in use in the chunk.
    used: usize,
    /// Size of the next chunk.
    size: usize,
    is_full: bool,
    record: PhantomData<T>,
}

impl<T> ThreadRecords<T> {
    /// Creates an empty sequence. `thread` is the thread's number in the file.
    pub fn new(kind: u32, thread: u32) -> Self {
        let size = FIRST_SIZE;
        ThreadRecords { kind, thread, count: 0, chunk: None, previous: None, used: 0, size, is_full: false, record: PhantomData }
    }

    /// Allocates a record; `None` if the disk is full.
    #[inline]
    pub fn next(&mut self) -> Option<*mut T> {
        self.allocate(size_of::<T>()).map(<*mut u8>::cast)
    }

    /// Allocates a record of `size` bytes, which must fit the smallest chunk.
    #[inline]
    pub fn allocate(&mut self, size: usize) -> Option<*mut u8> {
        let has_room = self.chunk.as_ref().is_some_and(|chunk| self.used + size <= chunk.size);
        if !has_room && !self.advance() {
            return None;
        }
        // SAFETY: the chunk has room for the record.
        let place = self.chunk.as_ref().map(|chunk| unsafe { chunk.start.add(self.used) });
        self.used += size;
        self.count += 1;
        place
    }

    /// Removes and clears the newest record. May be called at most once after each [`ThreadRecords::next`].
    pub fn remove_last(&mut self) {
        let Some(chunk) = &self.chunk else { return };
        self.used -= size_of::<T>();
        self.count -= 1;
        // SAFETY: the address that `next` returned.
        unsafe { chunk.start.add(self.used).write_bytes(0, size_of::<T>()) };
    }

    #[cold]
    fn advance(&mut self) -> bool {
        // After a failure, no more records are added, since a gap would make the numbers of later records wrong.
        if self.is_full {
            return false;
        }
        let Some(chunk) = chunks::add_chunk(self.kind, self.thread, self.count, self.size) else {
            self.is_full = true;
            process::note_full();
            return false;
        };
        let before = core::mem::replace(&mut self.previous, self.chunk.replace(chunk));
        before.into_iter().for_each(chunks::release);
        (self.used, self.size) = (0, self.size.saturating_mul(GROWTH).min(MAX_SIZE));
        true
    }

    /// Releases the chunks.
    pub fn close(&mut self) {
        self.chunk.take().into_iter().chain(self.previous.take()).for_each(chunks::release);
        self.is_full = true;
    }

    /// Abandons the chunks in a forked child without changing them, since they belong to the parent.
    pub fn forget(&mut self) {
        (self.chunk, self.previous, self.is_full) = (None, None, true);
    }
}
