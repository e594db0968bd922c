//! A thread's records, which are stored in chunks of the threads file.

use crate::chunks::{self, CHUNK_GROWTH_FACTOR, FIRST_CHUNK_SIZE, MAX_CHUNK_SIZE, RecordChunk};
use crate::process;
use core::marker::PhantomData;

/// A thread's records of one kind, in a sequence of chunks.
pub struct ThreadRecords<T> {
    kind: u32,
    thread: u32,
    count: u32,
    chunk: Option<RecordChunk>,
    /// The chunk before `chunk`. It stays mapped until a further chunk is allocated, because its last record may still be incomplete.
    previous: Option<RecordChunk>,
    /// Number of bytes used in `chunk`.
    used: usize,
    /// Size in bytes of the next chunk.
    size: usize,
    is_full: bool,
    record: PhantomData<T>,
}

impl<T> ThreadRecords<T> {
    /// Creates an empty sequence of records. `thread` is the thread's index within the process.
    pub fn new(kind: u32, thread: u32) -> Self {
        let size = FIRST_CHUNK_SIZE;
        ThreadRecords { kind, thread, count: 0, chunk: None, previous: None, used: 0, size, is_full: false, record: PhantomData }
    }

    /// Allocates space for a record of type `T`. Returns `None` if the disk is full.
    #[inline]
    pub fn next_record(&mut self) -> Option<*mut T> {
        self.allocate(size_of::<T>()).map(<*mut u8>::cast)
    }

    /// Allocates space for a record of `size` bytes, which must not be larger than the smallest chunk. Returns `None` if the disk is full.
    #[inline]
    pub fn allocate(&mut self, size: usize) -> Option<*mut u8> {
        let has_room = self.chunk.as_ref().is_some_and(|chunk| self.used + size <= chunk.size);
        if !has_room && !self.start_next_chunk() {
            return None;
        }
        // SAFETY: the chunk has at least `size` unused bytes.
        let place = self.chunk.as_ref().map(|chunk| unsafe { chunk.start.add(self.used) });
        self.used += size;
        self.count += 1;
        place
    }

    /// Removes the newest record and fills its space with zeros. Must not be called again before the next call to
    /// [`ThreadRecords::next_record`].
    pub fn remove_last_record(&mut self) {
        let Some(chunk) = &self.chunk else { return };
        self.used -= size_of::<T>();
        self.count -= 1;
        // SAFETY: this is the address that `next_record` returned.
        unsafe { chunk.start.add(self.used).write_bytes(0, size_of::<T>()) };
    }

    #[cold]
    fn start_next_chunk(&mut self) -> bool {
        // After a failure, all further records are dropped, because the reader numbers records consecutively and would number those after a
        // gap incorrectly.
        if self.is_full {
            return false;
        }
        let Some(chunk) = chunks::add_chunk(self.kind, self.thread, self.count, self.size) else {
            self.is_full = true;
            process::append_no_space_note();
            return false;
        };
        let before = core::mem::replace(&mut self.previous, self.chunk.replace(chunk));
        before.into_iter().for_each(chunks::release_chunk);
        (self.used, self.size) = (0, self.size.saturating_mul(CHUNK_GROWTH_FACTOR).min(MAX_CHUNK_SIZE));
        true
    }

    /// Releases the chunks. Further records are dropped.
    pub fn close(&mut self) {
        self.chunk.take().into_iter().chain(self.previous.take()).for_each(chunks::release_chunk);
        self.is_full = true;
    }

    /// In a forked child, forgets the chunks without changing them, because the parent still writes to them.
    pub fn abandon_chunks(&mut self) {
        (self.chunk, self.previous, self.is_full) = (None, None, true);
    }
}
