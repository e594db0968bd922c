//! Stacks of return addresses, unwound once per call path.
//!
//! Unwinding by DWARF tables takes microseconds, but also finds the stack slots of the return addresses. A later call with the same stack
//! pointer is on the same path if these slots contain the same addresses, which takes a few loads to check. So the cache is keyed by the
//! stack pointer and checked slot by slot, and a hit is as exact as unwinding. Slots outside the thread's own stack are read through the
//! kernel, since coroutine stacks may have been unmapped. A thread's stacks are numbered in the order of their records, and contain at most
//! the [`DEPTH`] innermost frames.

use crate::process;
use crate::real::Variable;
use crate::records::ThreadRecords;
use crate::walk::{DEPTH, StackWalk, stack_pointer, walk};
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use trodden_wire::waits::{NO_STACK, chunk_kind};

/// Number of entries of the cache; a power of two.
const CACHE: usize = 512;
/// Number of entries of the table of known stacks; a power of two.
const KNOWN: usize = 8192;

struct Cached {
    pointer: usize,
    count: u32,
    id: u32,
    generation: u32,
    slots: [usize; DEPTH],
    addresses: [usize; DEPTH],
}

struct KnownStack {
    hash: u64,
    id: u32,
    generation: u32,
}

/// A thread's stack tables. Later threads reuse the memory; entries of other generations count as empty. All zeros represent empty tables.
pub struct StackTables {
    generation: u32,
    cache: [Cached; CACHE],
    known: [KnownStack; KNOWN],
}

/// The stacks of one thread.
pub struct Stacks {
    records: ThreadRecords<usize>,
    count: u32,
    generation: u32,
    tables: *mut StackTables,
    /// Address range of the thread's own stack. It is mapped at least from the stack pointer to the range's end.
    own: Range<usize>,
}

impl Stacks {
    /// Creates an empty set of stacks. `thread` is the thread's number in the file. The thread takes over the memory at `tables`.
    /// `stack_size` is 0 if unknown.
    pub fn new(thread: u32, tables: *mut StackTables, stack_size: usize) -> Self {
        // SAFETY: the tables belong to this thread. The generation cannot overflow, since it counts threads that begin one after another.
        let generation = unsafe {
            (*tables).generation += 1;
            (*tables).generation
        };
        Stacks { records: ThreadRecords::new(chunk_kind::STACKS, thread), count: 0, generation, tables, own: own_stack(stack_size) }
    }

    /// The number of the calling thread's stack. `pointer` is the stack pointer.
    #[inline]
    pub fn capture(&mut self, pointer: usize) -> u32 {
        let index = (pointer >> 4) & (CACHE - 1);
        // SAFETY: the thread's own tables.
        let cached = unsafe { &(*self.tables).cache[index] };
        if cached.pointer == pointer
            && cached.generation == self.generation
            && self.is_same(pointer, &cached.slots, &cached.addresses, cached.count as usize)
        {
            cached.id
        } else {
            self.unwind(pointer, index)
        }
    }

    #[cold]
    fn unwind(&mut self, pointer: usize, index: usize) -> u32 {
        let walk = walk(0);
        let id = self.intern(&walk.addresses[..walk.count]);
        // The slots identify the stack only if each slot really contains its return address.
        if id != NO_STACK && self.is_same(pointer, &walk.slots, &walk.addresses, walk.count) {
            let StackWalk { slots, addresses, count, .. } = walk;
            // SAFETY: the thread's own tables.
            let cached = unsafe { &mut (*self.tables).cache[index] };
            *cached = Cached { pointer, count: count as u32, id, generation: self.generation, slots, addresses };
        }
        id
    }

    /// The number of a stack. A new stack is written to the recording.
    pub fn intern(&mut self, addresses: &[usize]) -> u32 {
        let hash = addresses
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, a| (hash ^ *a as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
            | 1;
        let mut at = hash as usize & (KNOWN - 1);
        for _ in 0..8 {
            // SAFETY: the thread's own tables.
            let known = unsafe { &mut (*self.tables).known[at] };
            if known.generation != self.generation {
                let id = self.write(addresses);
                *known = KnownStack { hash, id, generation: self.generation };
                return id;
            }
            if known.hash == hash {
                return known.id;
            }
            at = (at + 1) & (KNOWN - 1);
        }
        // If the table is full, the stack is written again, and the reader recognises the duplicate.
        self.write(addresses)
    }

    fn write(&mut self, addresses: &[usize]) -> u32 {
        // A count of zero would end the chunk.
        if addresses.is_empty() {
            return NO_STACK;
        }
        let Some(place) = self.records.allocate((addresses.len() + 1) * size_of::<usize>()) else { return NO_STACK };
        let place = place.cast::<usize>();
        // SAFETY: the allocated record has room for the count and the addresses.
        unsafe {
            place.add(1).copy_from_nonoverlapping(addresses.as_ptr(), addresses.len());
            // The count is written last, so that a stack is either complete or absent.
            AtomicUsize::from_ptr(place).store(addresses.len(), Ordering::Release);
        }
        process::maps();
        self.count += 1;
        self.count - 1
    }

    /// Releases the chunks.
    pub fn close(&mut self) {
        self.records.close();
    }

    /// Abandons the chunks in a forked child, since they belong to the parent.
    pub fn forget(&mut self) {
        self.records.forget();
    }
}

/// The stack of the calling thread; empty if unknown. `size` is the size with which the thread was created, or 0.
fn own_stack(size: usize) -> Range<usize> {
    /// The kernel keeps this many bytes for the first thread's stack free of other mappings, whatever the stack limit is.
    const FIRST_STACK: u64 = 128 << 20;
    /// Number of bytes left out at the lower end, which may be the guard area.
    const GUARD: usize = 8192;
    if size > GUARD {
        // The C library stores the thread's descriptor at the upper end of the stack. `pthread_getattr_np` would allocate memory.
        // SAFETY: this has no arguments.
        let end = unsafe { libc::pthread_self() } as usize;
        let own = end.saturating_sub(size - GUARD)..end;
        return if own.contains(&stack_pointer()) { own } else { 0..0 };
    }
    // SAFETY: system calls without pointer arguments.
    let (thread, process) = unsafe { (libc::syscall(libc::SYS_gettid), libc::getpid()) };
    // The C library would read /proc/self/maps for the first thread.
    static END: Variable = Variable::new(c"__libc_stack_end");
    let end = core::ptr::with_exposed_provenance::<usize>(END.address());
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut limit: libc::rlimit = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer refers to the local variable `limit`.
    let has_limit = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if thread != libc::c_long::from(process) || end.is_null() || !has_limit {
        return 0..0;
    }
    // SAFETY: the linker's variable of that name contains an address.
    let end = unsafe { end.read() };
    end.saturating_sub(limit.rlim_cur.min(FIRST_STACK) as usize)..end
}

impl Stacks {
    /// Whether the slots currently contain the given addresses. `pointer` is the stack pointer.
    #[inline]
    fn is_same(&self, pointer: usize, slots: &[usize; DEPTH], addresses: &[usize; DEPTH], count: usize) -> bool {
        let (slots, addresses) = (&slots[..count], &addresses[..count]);
        if self.own.contains(&pointer) && slots.iter().all(|slot| (pointer..self.own.end).contains(slot)) {
            // SAFETY: the stack that the stack pointer points into is mapped from there to its end.
            return slots.iter().zip(addresses).all(|(slot, address)| unsafe { (*slot as *const usize).read() } == *address);
        }
        is_same_elsewhere(slots, addresses)
    }
}

/// Like [`Stacks::is_same`], for slots in memory that may not be mapped. Returns false if the kernel cannot read the memory.
#[cold]
fn is_same_elsewhere(slots: &[usize], addresses: &[usize]) -> bool {
    let mut found = [0usize; DEPTH];
    let mut from = [libc::iovec { iov_base: null_mut(), iov_len: size_of::<usize>() }; DEPTH];
    from.iter_mut().zip(slots).for_each(|(part, slot)| part.iov_base = *slot as *mut c_void);
    let size = size_of_val(addresses);
    let to = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: size };
    // SAFETY: `__errno_location` points to the calling thread's errno. The interrupted code may still need it.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: `to` has room for `size` bytes, and the kernel checks the addresses that it reads.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, from.as_ptr(), slots.len() as u64, 0) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    read == size as isize && found[..addresses.len()] == *addresses
}
