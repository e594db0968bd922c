//! What a thread records of one kind: a sequence of chunks.

use crate::chunks::{self, Chunk, FIRST_SIZE, GROWTH, MAX_SIZE};
use crate::process;
use core::marker::PhantomData;

/// Records of a kind, in the chunks of one thread.
pub struct Records<T> {
    kind: u32,
    thread: u32,
    /// Records so far.
    count: u32,
    chunk: Option<Chunk>,
    /// The chunk before, mapped until the next one begins: a record that is not complete may lie in it.
    previous: Option<Chunk>,
    /// Bytes of the chunk that have records.
    used: usize,
    /// Size of the next chunk.
    size: usize,
    is_full: bool,
    record: PhantomData<T>,
}

impl<T> Records<T> {
    /// None yet. `thread`: its number in the file.
    pub fn new(kind: u32, thread: u32) -> Self {
        let size = FIRST_SIZE;
        Records { kind, thread, count: 0, chunk: None, previous: None, used: 0, size, is_full: false, record: PhantomData }
    }

    /// Room for one more record; none where the disk is full.
    #[inline]
    pub fn next(&mut self) -> Option<*mut T> {
        self.room(size_of::<T>()).map(<*mut u8>::cast)
    }

    /// Room for one more record of `size` bytes, which is less than the smallest chunk has.
    #[inline]
    pub fn room(&mut self, size: usize) -> Option<*mut u8> {
        let has_room = self.chunk.as_ref().is_some_and(|chunk| self.used + size <= chunk.size);
        if !has_room && !self.advance() {
            return None;
        }
        // SAFETY: the chunk has room for it.
        let place = self.chunk.as_ref().map(|chunk| unsafe { chunk.start.add(self.used) });
        self.used += size;
        self.count += 1;
        place
    }

    /// Takes the newest record back: it is cleared. At most once after each [`Records::next`].
    pub fn back(&mut self) {
        let Some(chunk) = &self.chunk else { return };
        self.used -= size_of::<T>();
        self.count -= 1;
        // SAFETY: the place that `next` gave.
        unsafe { chunk.start.add(self.used).write_bytes(0, size_of::<T>()) };
    }

    #[cold]
    fn advance(&mut self) -> bool {
        // A gap would shift the numbers of later records.
        if self.is_full {
            return false;
        }
        let Some(chunk) = chunks::add(self.kind, self.thread, self.count, self.size) else {
            self.is_full = true;
            process::say_full();
            return false;
        };
        let before = core::mem::replace(&mut self.previous, self.chunk.replace(chunk));
        before.into_iter().for_each(chunks::release);
        (self.used, self.size) = (0, self.size.saturating_mul(GROWTH).min(MAX_SIZE));
        true
    }

    /// Ends it.
    pub fn close(&mut self) {
        self.chunk.take().into_iter().chain(self.previous.take()).for_each(chunks::release);
        self.is_full = true;
    }

    /// Gives it up without a change: in a forked child it is the parent's.
    pub fn forget(&mut self) {
        (self.chunk, self.previous, self.is_full) = (None, None, true);
    }
}
