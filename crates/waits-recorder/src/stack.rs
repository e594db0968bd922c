//! Stacks of return addresses, unwound once per call path.
//!
//! Unwinding through DWARF tables takes microseconds. It also says in which slots of the stack the return addresses lie. The next call
//! from the same depth is on the same path if these slots hold the same addresses, and that is a handful of loads: the cache is keyed by
//! the stack pointer and checked slot by slot, so a hit is as exact as an unwinding. Stacks of coroutines may be unmapped since: slots
//! outside of the thread's own stack are read by the kernel. Stacks are numbered per thread in the order of their records, with [`DEPTH`]
//! innermost frames at most.

use crate::process;
use crate::real::Variable;
use crate::records::Records;
use crate::walk::{DEPTH, StackWalk, stack_pointer, walk};
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use trodden_wire::waits::{NO_STACK, chunk_kind};

/// Entries of the cache; a power of two.
const CACHE: usize = 512;
/// Entries of the table of known stacks; a power of two.
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

/// Tables of the stacks of a thread. Threads that begin later take them over: entries of other generations count as empty. Zeros are empty
/// tables.
pub struct StackTables {
    generation: u32,
    cache: [Cached; CACHE],
    known: [KnownStack; KNOWN],
}

/// The stacks of one thread.
pub struct Stacks {
    records: Records<usize>,
    count: u32,
    generation: u32,
    tables: *mut StackTables,
    /// The thread's own stack: all of it above the stack pointer is mapped.
    own: Range<usize>,
}

impl Stacks {
    /// None yet. `thread`: its number in the file; `tables`: memory that is this thread's from now on; `stack_size`: 0 if unknown.
    pub fn new(thread: u32, tables: *mut StackTables, stack_size: usize) -> Self {
        // SAFETY: the thread's own tables. The number is not used up by threads that begin one after another.
        let generation = unsafe {
            (*tables).generation += 1;
            (*tables).generation
        };
        Stacks { records: Records::new(chunk_kind::STACKS, thread), count: 0, generation, tables, own: own_stack(stack_size) }
    }

    /// The number of the calling thread's stack.
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
        // Only where each address lies in the slot that it is expected in can the stack be checked there again.
        if id != NO_STACK && self.is_same(pointer, &walk.slots, &walk.addresses, walk.count) {
            let StackWalk { slots, addresses, count, .. } = walk;
            // SAFETY: the thread's own tables.
            let cached = unsafe { &mut (*self.tables).cache[index] };
            *cached = Cached { pointer, count: count as u32, id, generation: self.generation, slots, addresses };
        }
        id
    }

    /// The number of a stack, which is written if it is new.
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
        // A full table: the reader finds that the stacks are equal.
        self.write(addresses)
    }

    fn write(&mut self, addresses: &[usize]) -> u32 {
        // A count of zero ends the chunk.
        if addresses.is_empty() {
            return NO_STACK;
        }
        let Some(place) = self.records.room((addresses.len() + 1) * size_of::<usize>()) else { return NO_STACK };
        let place = place.cast::<usize>();
        // SAFETY: room for the count and the addresses.
        unsafe {
            place.add(1).copy_from_nonoverlapping(addresses.as_ptr(), addresses.len());
            // The count last: a stack is there as a whole, or not at all.
            AtomicUsize::from_ptr(place).store(addresses.len(), Ordering::Release);
        }
        process::maps();
        self.count += 1;
        self.count - 1
    }

    /// Ends their records.
    pub fn close(&mut self) {
        self.records.close();
    }

    /// Gives their records up: in a forked child they are the parent's.
    pub fn forget(&mut self) {
        self.records.forget();
    }
}

/// The stack that the calling thread was given; empty if unknown. `size`: that of a thread that was made, else 0.
fn own_stack(size: usize) -> Range<usize> {
    /// Room that the kernel keeps free below the first thread's stack, whatever limit it has.
    const FIRST_STACK: u64 = 128 << 20;
    /// What is left out at the lower end, where the guard may be.
    const GUARD: usize = 8192;
    if size > GUARD {
        // The C library has the thread's descriptor at the stack's upper end. `pthread_getattr_np` would allocate memory.
        // SAFETY: gives the descriptor's address.
        let end = unsafe { libc::pthread_self() } as usize;
        let own = end.saturating_sub(size - GUARD)..end;
        return if own.contains(&stack_pointer()) { own } else { 0..0 };
    }
    // SAFETY: asks the kernel.
    let (thread, process) = unsafe { (libc::syscall(libc::SYS_gettid), libc::getpid()) };
    // The C library would read /proc/self/maps for this thread.
    static END: Variable = Variable::new(c"__libc_stack_end");
    let end = core::ptr::with_exposed_provenance::<usize>(END.address());
    // SAFETY: plain data.
    let mut limit: libc::rlimit = unsafe { core::mem::zeroed() };
    // SAFETY: writes to `limit`.
    let has_limit = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if thread != libc::c_long::from(process) || end.is_null() || !has_limit {
        return 0..0;
    }
    // SAFETY: the linker's variable of that name is an address.
    let end = unsafe { end.read() };
    end.saturating_sub(limit.rlim_cur.min(FIRST_STACK) as usize)..end
}

impl Stacks {
    /// Whether slots hold addresses now. `pointer`: the stack pointer.
    #[inline]
    fn is_same(&self, pointer: usize, slots: &[usize; DEPTH], addresses: &[usize; DEPTH], count: usize) -> bool {
        let (slots, addresses) = (&slots[..count], &addresses[..count]);
        if self.own.contains(&pointer) && slots.iter().all(|slot| (pointer..self.own.end).contains(slot)) {
            // SAFETY: between the stack pointer and the end of the stack that it points into, all is mapped.
            return slots.iter().zip(addresses).all(|(slot, address)| unsafe { (*slot as *const usize).read() } == *address);
        }
        is_same_elsewhere(slots, addresses)
    }
}

/// The same for slots in memory of which nothing is known. False where the kernel does not read it.
#[cold]
fn is_same_elsewhere(slots: &[usize], addresses: &[usize]) -> bool {
    let mut found = [0usize; DEPTH];
    let mut from = [libc::iovec { iov_base: null_mut(), iov_len: size_of::<usize>() }; DEPTH];
    from.iter_mut().zip(slots).for_each(|(part, slot)| part.iov_base = *slot as *mut c_void);
    let size = size_of_val(addresses);
    let to = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: size };
    // SAFETY: asks the kernel; the errno is the interrupted code's.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: `to` has room for `size` bytes, and the kernel checks what it reads.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, from.as_ptr(), slots.len() as u64, 0) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    read == size as isize && found[..addresses.len()] == *addresses
}
