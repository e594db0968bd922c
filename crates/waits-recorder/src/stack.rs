//! Stacks of return addresses, unwound once per call path.
//!
//! Unwinding by DWARF tables takes microseconds, but also finds the stack slots of the return addresses. A later call with the same stack
//! pointer is on the same path if these slots contain the same addresses, which a few loads can check. The cache is therefore keyed by
//! the stack pointer and checked slot by slot, and a hit is as exact as unwinding. Slots outside the thread's own stack are read through
//! the kernel, because coroutine stacks may have been unmapped. A thread's stacks are numbered in the order in which they are recorded. A
//! stack contains at most the [`MAX_DEPTH`] innermost frames.

use crate::process;
use crate::real::Variable;
use crate::records::ThreadRecords;
use crate::walk::{MAX_DEPTH, StackWalk, stack_pointer, unwind_stack};
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use trodden_wire::waits::{NO_STACK, chunk_kind};

/// Number of cache entries; must be a power of two.
const CACHE_ENTRIES: usize = 512;
/// Number of entries in the table of known stacks; must be a power of two.
const KNOWN_ENTRIES: usize = 8192;

struct CachedStack {
    pointer: usize,
    count: u32,
    id: u32,
    generation: u32,
    slots: [usize; MAX_DEPTH],
    addresses: [usize; MAX_DEPTH],
}

struct KnownStack {
    hash: u64,
    id: u32,
    generation: u32,
}

/// A thread's stack tables, whose memory later threads reuse. Entries of other generations count as empty, and all zeros are empty
/// tables.
pub struct StackTables {
    generation: u32,
    cache: [CachedStack; CACHE_ENTRIES],
    known: [KnownStack; KNOWN_ENTRIES],
}

pub struct Stacks {
    records: ThreadRecords<usize>,
    count: u32,
    generation: u32,
    tables: *mut StackTables,
    /// Address range of the thread's own stack. At least the part from the stack pointer to the range's end is mapped.
    own: Range<usize>,
}

impl Stacks {
    /// Creates an empty set of stacks for the thread with this index in the file, which takes over the memory at `tables`. `stack_size`
    /// is 0 if unknown.
    pub fn new(thread: u32, tables: *mut StackTables, stack_size: usize) -> Self {
        // SAFETY: the tables belong to this thread. The generation cannot overflow, because it counts threads that begin one after
        // another.
        let generation = unsafe {
            (*tables).generation += 1;
            (*tables).generation
        };
        Stacks { records: ThreadRecords::new(chunk_kind::STACKS, thread), count: 0, generation, tables, own: find_own_stack(stack_size) }
    }

    /// Returns the number of the calling thread's current stack. `pointer` is the stack pointer.
    #[inline]
    pub fn capture(&mut self, pointer: usize) -> u32 {
        let index = (pointer >> 4) & (CACHE_ENTRIES - 1);
        // SAFETY: the tables belong to this thread.
        let cached = unsafe { &(*self.tables).cache[index] };
        if cached.pointer == pointer
            && cached.generation == self.generation
            && self.slots_contain(pointer, &cached.slots, &cached.addresses, cached.count as usize)
        {
            cached.id
        } else {
            self.unwind(pointer, index)
        }
    }

    #[cold]
    fn unwind(&mut self, pointer: usize, index: usize) -> u32 {
        let walk = unwind_stack(0);
        let id = self.intern(&walk.addresses[..walk.count]);
        // The slots identify the stack only if each slot really contains its return address.
        if id != NO_STACK && self.slots_contain(pointer, &walk.slots, &walk.addresses, walk.count) {
            let StackWalk { slots, addresses, count, .. } = walk;
            // SAFETY: the tables belong to this thread.
            let cached = unsafe { &mut (*self.tables).cache[index] };
            *cached = CachedStack { pointer, count: count as u32, id, generation: self.generation, slots, addresses };
        }
        id
    }

    /// Returns the number of a stack, and writes the stack to the recording if it is new.
    pub fn intern(&mut self, addresses: &[usize]) -> u32 {
        let hash = addresses
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, a| (hash ^ *a as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
            | 1;
        let mut at = hash as usize & (KNOWN_ENTRIES - 1);
        for _ in 0..8 {
            // SAFETY: the tables belong to this thread.
            let known = unsafe { &mut (*self.tables).known[at] };
            if known.generation != self.generation {
                let id = self.write_stack(addresses);
                *known = KnownStack { hash, id, generation: self.generation };
                return id;
            }
            if known.hash == hash {
                return known.id;
            }
            at = (at + 1) & (KNOWN_ENTRIES - 1);
        }
        // If the table is full, the stack is written again; the reader recognises the duplicate.
        self.write_stack(addresses)
    }

    fn write_stack(&mut self, addresses: &[usize]) -> u32 {
        // A count of zero would mark the end of the chunk.
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
        process::append_maps();
        self.count += 1;
        self.count - 1
    }

    pub fn close(&mut self) {
        self.records.close();
    }

    /// Abandons the chunks in a forked child, because they belong to the parent.
    pub fn abandon_chunks(&mut self) {
        self.records.abandon_chunks();
    }
}

/// Returns the calling thread's stack, or an empty range if unknown. `size` is the size with which the thread was created, or 0 if
/// unknown.
fn find_own_stack(size: usize) -> Range<usize> {
    /// The kernel keeps this many bytes for the first thread's stack free of other mappings, whatever the stack limit is.
    const FIRST_STACK_BYTES: u64 = 128 << 20;
    /// Number of bytes left out at the lower end, which may be the guard area.
    const GUARD_BYTES: usize = 8192;
    if size > GUARD_BYTES {
        // The C library stores the thread's descriptor at the upper end of the stack. `pthread_getattr_np` would allocate memory. SAFETY:
        // the function has no arguments.
        let end = unsafe { libc::pthread_self() } as usize;
        let own = end.saturating_sub(size - GUARD_BYTES)..end;
        return if own.contains(&stack_pointer()) { own } else { 0..0 };
    }
    // SAFETY: the system calls have no pointer arguments.
    let (thread, process) = unsafe { (libc::syscall(libc::SYS_gettid), libc::getpid()) };
    // The C library would read /proc/self/maps for the first thread.
    static STACK_END: Variable = Variable::new(c"__libc_stack_end");
    let end = core::ptr::with_exposed_provenance::<usize>(STACK_END.address());
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut limit: libc::rlimit = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer refers to the local variable `limit`.
    let has_limit = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if thread != libc::c_long::from(process) || end.is_null() || !has_limit {
        return 0..0;
    }
    // SAFETY: the dynamic linker's variable of that name contains an address.
    let end = unsafe { end.read() };
    end.saturating_sub(limit.rlim_cur.min(FIRST_STACK_BYTES) as usize)..end
}

impl Stacks {
    /// Returns true if the slots still contain the given addresses. `pointer` is the stack pointer.
    #[inline]
    fn slots_contain(&self, pointer: usize, slots: &[usize; MAX_DEPTH], addresses: &[usize; MAX_DEPTH], count: usize) -> bool {
        let (slots, addresses) = (&slots[..count], &addresses[..count]);
        if self.own.contains(&pointer) && slots.iter().all(|slot| (pointer..self.own.end).contains(slot)) {
            // SAFETY: `pointer` is in the thread's own stack, which is mapped from there to its end.
            return slots.iter().zip(addresses).all(|(slot, address)| unsafe { (*slot as *const usize).read() } == *address);
        }
        unmapped_slots_contain(slots, addresses)
    }
}

/// Compares slots like [`Stacks::slots_contain`], in memory that may not be mapped. Returns false if the kernel cannot read the memory.
#[cold]
fn unmapped_slots_contain(slots: &[usize], addresses: &[usize]) -> bool {
    let mut found = [0usize; MAX_DEPTH];
    let mut from = [libc::iovec { iov_base: null_mut(), iov_len: size_of::<usize>() }; MAX_DEPTH];
    from.iter_mut().zip(slots).for_each(|(part, slot)| part.iov_base = *slot as *mut c_void);
    let size = size_of_val(addresses);
    let to = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: size };
    // SAFETY: `__errno_location` points to the calling thread's errno. The interrupted code may still need its value.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: `to` has room for `size` bytes, and the kernel checks the addresses that it reads.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, from.as_ptr(), slots.len() as u64, 0) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    read == size as isize && found[..addresses.len()] == *addresses
}
