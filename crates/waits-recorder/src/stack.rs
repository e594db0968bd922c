//! Call stacks as lists of return addresses, which are unwound only once for each call path.
//!
//! Unwinding with DWARF tables takes microseconds. It yields the return addresses and the stack slots that contain them. A later call with
//! the same stack pointer is on the same path if the same slots contain the same addresses, which a few loads can check, so a cache with
//! the stack pointer as the key is as exact as unwinding. Slots outside the thread's own stack are read by the kernel, because the stacks
//! of coroutines may have been unmapped.
//!
//! Each thread numbers its stacks in the order in which it first records them. A stack contains at most the [`MAX_RECORDED_STACK_FRAMES`]
//! innermost frames.

use crate::process;
use crate::real::RealVariable;
use crate::records::ThreadRecords;
use crate::walk::{MAX_RECORDED_STACK_FRAMES, StackWalk, stack_pointer, unwind_stack};
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use trodden_wire::waits::{NO_STACK, chunk_kind};

/// Number of entries in the cache of unwound stacks. Must be a power of two.
const STACK_CACHE_ENTRIES: usize = 512;
/// Number of entries in the hash table of recorded stacks. Must be a power of two.
const RECORDED_STACK_ENTRIES: usize = 8192;

struct CachedUnwoundStack {
    pointer: usize,
    count: u32,
    id: u32,
    generation: u32,
    slots: [usize; MAX_RECORDED_STACK_FRAMES],
    addresses: [usize; MAX_RECORDED_STACK_FRAMES],
}

struct RecordedStackEntry {
    hash: u64,
    id: u32,
    generation: u32,
}

/// A thread's cache and hash table of stacks. Later threads reuse the memory without clearing it, so entries with another generation count
/// as empty. A zeroed structure is empty, too.
pub struct ThreadStackTables {
    generation: u32,
    cache: [CachedUnwoundStack; STACK_CACHE_ENTRIES],
    known: [RecordedStackEntry; RECORDED_STACK_ENTRIES],
}

pub struct ThreadStackRecorder {
    records: ThreadRecords<usize>,
    count: u32,
    generation: u32,
    tables: *mut ThreadStackTables,
    /// Address range of the thread's own stack. It is mapped at least from the stack pointer to its end.
    own: Range<usize>,
}

impl ThreadStackRecorder {
    /// Creates an empty set of stacks for a thread. `thread` is its index within the process, and `tables` is memory that no other thread
    /// uses. `stack_size` is in bytes, or 0 if unknown.
    pub fn new(thread: u32, tables: *mut ThreadStackTables, stack_size: usize) -> Self {
        // SAFETY: no other thread uses the tables. The generation cannot overflow in practice, because it counts threads that run one after
        // another.
        let generation = unsafe {
            (*tables).generation += 1;
            (*tables).generation
        };
        ThreadStackRecorder {
            records: ThreadRecords::new(chunk_kind::STACKS, thread),
            count: 0,
            generation,
            tables,
            own: find_own_stack(stack_size),
        }
    }

    /// Returns the number of the calling thread's current call stack, given the stack pointer.
    #[inline]
    pub fn capture_stack(&mut self, pointer: usize) -> u32 {
        let index = (pointer >> 4) & (STACK_CACHE_ENTRIES - 1);
        // SAFETY: no other thread uses the tables.
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
        let id = self.intern_stack(&walk.addresses[..walk.count]);
        // The unwinder may have computed a wrong slot, so an entry is cached only if each slot contains its return address.
        if id != NO_STACK && self.slots_contain(pointer, &walk.slots, &walk.addresses, walk.count) {
            let StackWalk { slots, addresses, count, .. } = walk;
            // SAFETY: as above.
            let cached = unsafe { &mut (*self.tables).cache[index] };
            *cached = CachedUnwoundStack { pointer, count: count as u32, id, generation: self.generation, slots, addresses };
        }
        id
    }

    /// Returns the number of a call stack. A stack without a number is first written to the recording.
    pub fn intern_stack(&mut self, addresses: &[usize]) -> u32 {
        let hash = addresses
            .iter()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, a| (hash ^ *a as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
            | 1;
        let mut at = hash as usize & (RECORDED_STACK_ENTRIES - 1);
        for _ in 0..8 {
            // SAFETY: no other thread uses the tables.
            let known = unsafe { &mut (*self.tables).known[at] };
            if known.generation != self.generation {
                let id = self.write_stack(addresses);
                *known = RecordedStackEntry { hash, id, generation: self.generation };
                return id;
            }
            if known.hash == hash {
                return known.id;
            }
            at = (at + 1) & (RECORDED_STACK_ENTRIES - 1);
        }
        // There is no free entry, so the stack is written again. The reader recognises duplicates.
        self.write_stack(addresses)
    }

    fn write_stack(&mut self, addresses: &[usize]) -> u32 {
        // A stack without addresses is not written, because a count of 0 would mark the end of the chunk.
        if addresses.is_empty() {
            return NO_STACK;
        }
        let Some(place) = self.records.allocate((addresses.len() + 1) * size_of::<usize>()) else { return NO_STACK };
        let place = place.cast::<usize>();
        // SAFETY: the allocated record has room for the count and the addresses.
        unsafe {
            place.add(1).copy_from_nonoverlapping(addresses.as_ptr(), addresses.len());
            // The count is written last, so that the reader finds either the complete stack or none, even if the program is killed.
            AtomicUsize::from_ptr(place).store(addresses.len(), Ordering::Release);
        }
        process::append_memory_maps();
        self.count += 1;
        self.count - 1
    }

    pub fn close(&mut self) {
        self.records.close();
    }

    /// In a forked child, forgets the chunks, because the parent still writes to them.
    pub fn abandon_chunks(&mut self) {
        self.records.abandon_chunks();
    }
}

/// Returns the address range of the calling thread's stack, or an empty range if unknown. `size` is the stack size with which the thread
/// was created, or 0 if unknown.
fn find_own_stack(size: usize) -> Range<usize> {
    /// Size of the address range below the end of the first thread's stack that the kernel keeps free of other mappings, however low the
    /// stack limit is.
    const FIRST_STACK_BYTES: u64 = 128 << 20;
    /// Number of bytes left out at the lower end of the stack, which may be an unmapped guard area.
    const STACK_GUARD_BYTES: usize = 8192;
    if size > STACK_GUARD_BYTES {
        // glibc stores the thread's descriptor at the upper end of the stack. `pthread_getattr_np` would also return the range, but it
        // allocates memory.
        // SAFETY: the function has no arguments.
        let end = unsafe { libc::pthread_self() } as usize;
        let own = end.saturating_sub(size - STACK_GUARD_BYTES)..end;
        return if own.contains(&stack_pointer()) { own } else { 0..0 };
    }
    // SAFETY: the system calls have no pointer arguments.
    let (thread, process) = unsafe { (libc::syscall(libc::SYS_gettid), libc::getpid()) };
    // The dynamic linker's variable is used because the C library would read /proc/self/maps to find the first thread's stack.
    static STACK_END: RealVariable = RealVariable::new(c"__libc_stack_end");
    let end = core::ptr::with_exposed_provenance::<usize>(STACK_END.address());
    // SAFETY: zero is a valid value for every field of this C structure.
    let mut limit: libc::rlimit = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer refers to the local variable `limit`.
    let has_limit = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if thread != libc::c_long::from(process) || end.is_null() || !has_limit {
        return 0..0;
    }
    // SAFETY: the dynamic linker stores an address in the variable with this name.
    let end = unsafe { end.read() };
    end.saturating_sub(limit.rlim_cur.min(FIRST_STACK_BYTES) as usize)..end
}

impl ThreadStackRecorder {
    /// Returns true if each slot still contains the address with the same index. `pointer` is the stack pointer.
    #[inline]
    fn slots_contain(
        &self,
        pointer: usize,
        slots: &[usize; MAX_RECORDED_STACK_FRAMES],
        addresses: &[usize; MAX_RECORDED_STACK_FRAMES],
        count: usize,
    ) -> bool {
        let (slots, addresses) = (&slots[..count], &addresses[..count]);
        if self.own.contains(&pointer) && slots.iter().all(|slot| (pointer..self.own.end).contains(slot)) {
            // SAFETY: the slots are between the stack pointer and the end of the thread's own stack, and that range is mapped.
            return slots.iter().zip(addresses).all(|(slot, address)| unsafe { (*slot as *const usize).read() } == *address);
        }
        unmapped_slots_contain(slots, addresses)
    }
}

/// Like [`ThreadStackRecorder::slots_contain`], but for slots in memory that may not be mapped. Returns false if the kernel cannot read
/// them.
#[cold]
fn unmapped_slots_contain(slots: &[usize], addresses: &[usize]) -> bool {
    let mut found = [0usize; MAX_RECORDED_STACK_FRAMES];
    let mut from = [libc::iovec { iov_base: null_mut(), iov_len: size_of::<usize>() }; MAX_RECORDED_STACK_FRAMES];
    from.iter_mut().zip(slots).for_each(|(part, slot)| part.iov_base = *slot as *mut c_void);
    let size = size_of_val(addresses);
    let to = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: size };
    // SAFETY: `__errno_location` points to the calling thread's errno. It is saved because code that a sample has interrupted may still
    // need it.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: `to` has room for `size` bytes, and the kernel checks the addresses that it reads.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, from.as_ptr(), slots.len() as u64, 0) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    read == size as isize && found[..addresses.len()] == *addresses
}
