//! Stacks of return addresses, unwound once per call path.
//!
//! Unwinding through DWARF tables takes microseconds. It also says in which slots of the stack the return addresses lie. The next call
//! from the same depth is on the same path if these slots hold the same addresses, and that is a handful of loads: the cache is keyed by
//! the stack pointer and checked slot by slot, so a hit is as exact as an unwinding. Stacks of coroutines may be unmapped since: slots
//! outside of the thread's own stack are read by the kernel. Stacks are numbered per thread in the order of their file, with [`DEPTH`]
//! innermost frames at most.

use crate::images;
use crate::output::{self, Path, memory, release};
use crate::process;
use core::ffi::c_void;
use core::ops::Range;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};
use trodden_wire::waits::NO_STACK;

/// Frames that are kept.
pub const DEPTH: usize = 40;
/// Entries of the cache; a power of two.
const CACHE: usize = 512;
/// Entries of the table of known stacks; a power of two.
const KNOWN: usize = 8192;

unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> i32, state: *mut c_void) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
    fn _Unwind_GetCFA(context: *mut c_void) -> usize;
}

/// The stack pointer here: where it is equal at two calls from equal paths, the frames are laid out equally.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

struct Cached {
    pointer: usize,
    count: u32,
    id: u32,
    slots: [usize; DEPTH],
    addresses: [usize; DEPTH],
}

struct KnownStack {
    hash: u64,
    id: u32,
}

/// The stacks of one thread.
pub struct Stacks {
    file: libc::c_int,
    count: u32,
    cache: *mut Cached,
    known: *mut KnownStack,
    /// The thread's own stack: all of it above the stack pointer is mapped.
    own: Range<usize>,
}

/// What an unwinding finds.
pub struct StackWalk {
    pub addresses: [usize; DEPTH],
    slots: [usize; DEPTH],
    pub count: usize,
    /// Frames up to this address are left out; 0: none.
    from: usize,
}

impl Stacks {
    /// With an empty file.
    pub fn create(path: &Path) -> Option<Self> {
        // SAFETY: a C string.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC, 0o644) };
        if file < 0 {
            return None;
        }
        Some(Stacks { file, count: 0, cache: memory(CACHE)?, known: memory(KNOWN)?, own: own_stack() })
    }

    /// The number of the calling thread's stack.
    #[inline]
    pub fn capture(&mut self, pointer: usize) -> u32 {
        let index = (pointer >> 4) & (CACHE - 1);
        // SAFETY: the cache has that many entries.
        let cached = unsafe { &*self.cache.add(index) };
        if cached.pointer == pointer && self.is_same(pointer, &cached.slots, &cached.addresses, cached.count as usize) {
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
            let new = Cached { pointer, count: walk.count as u32, id, slots: walk.slots, addresses: walk.addresses };
            // SAFETY: the cache has that many entries.
            unsafe { self.cache.add(index).write(new) };
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
            // SAFETY: the table has that many entries.
            let known = unsafe { &mut *self.known.add(at) };
            if known.hash == hash {
                return known.id;
            }
            if known.hash == 0 {
                let id = self.write(addresses);
                *known = KnownStack { hash, id };
                return id;
            }
            at = (at + 1) & (KNOWN - 1);
        }
        // A full table: the reader finds that the stacks are equal.
        self.write(addresses)
    }

    fn write(&mut self, addresses: &[usize]) -> u32 {
        let mut words = [0usize; DEPTH + 1];
        words[0] = addresses.len();
        words[1..=addresses.len()].copy_from_slice(addresses);
        let size = (addresses.len() + 1) * size_of::<usize>();
        // SAFETY: the words are readable, as bytes too.
        let bytes = unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size) };
        if output::write(self.file, bytes) != size as isize {
            return NO_STACK;
        }
        process::maps();
        self.count += 1;
        self.count - 1
    }

    /// Gives memory and file back.
    pub fn close(&mut self) {
        // SAFETY: this one's own descriptor.
        unsafe { libc::close(self.file) };
        release(self.cache, CACHE);
        release(self.known, KNOWN);
    }
}

/// The stack that the system gave to the calling thread; empty if unknown.
fn own_stack() -> Range<usize> {
    /// Room that the kernel keeps free below the first thread's stack, whatever limit it has.
    const FIRST_STACK: u64 = 128 << 20;
    // SAFETY: asks the kernel.
    let (thread, process) = unsafe { (libc::syscall(libc::SYS_gettid), libc::getpid()) };
    if thread == libc::c_long::from(process) {
        // The C library would read /proc/self/maps for this thread.
        // SAFETY: a C string.
        let end = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()) }.cast::<usize>();
        // SAFETY: plain data.
        let mut limit: libc::rlimit = unsafe { core::mem::zeroed() };
        // SAFETY: writes to `limit`.
        if end.is_null() || unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } != 0 {
            return 0..0;
        }
        // SAFETY: the linker's variable of that name is an address.
        let end = unsafe { end.read() };
        return end.saturating_sub(limit.rlim_cur.min(FIRST_STACK) as usize)..end;
    }
    // SAFETY: plain data, filled by the call.
    let mut attributes: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    let (mut start, mut size) = (null_mut(), 0);
    // SAFETY: the calling thread, and places of this function.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return 0..0;
        }
        libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
    }
    start as usize..start as usize + size
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

/// Unwinds the calling thread's stack. `from`: an instruction, above which the stack begins (that of an interrupted function); 0: at the
/// first frame that is not this library's.
pub fn walk(from: usize) -> StackWalk {
    own_range();
    let mut walk = StackWalk { addresses: [0; DEPTH], slots: [0; DEPTH], count: 0, from };
    // SAFETY: `step` gets this state.
    unsafe { _Unwind_Backtrace(step, (&raw mut walk).cast()) };
    walk
}

extern "C" fn step(context: *mut c_void, state: *mut c_void) -> i32 {
    const GO_ON: i32 = 0;
    const STOP: i32 = 4;
    // SAFETY: `walk` passes its state, the unwinder its context.
    let (walk, address, frame) = unsafe { (&mut *state.cast::<StackWalk>(), _Unwind_GetIP(context), _Unwind_GetCFA(context)) };
    if walk.from != 0 {
        if address == walk.from {
            walk.from = 0;
        }
        return GO_ON;
    }
    if is_own(address) {
        return GO_ON;
    }
    if walk.count == DEPTH || address == 0 {
        return STOP;
    }
    walk.addresses[walk.count] = address;
    walk.slots[walk.count] = frame.wrapping_sub(size_of::<usize>());
    walk.count += 1;
    GO_ON
}

static OWN_START: AtomicUsize = AtomicUsize::new(0);
static OWN_END: AtomicUsize = AtomicUsize::new(0);

/// Whether an address lies in this library.
pub fn is_own(address: usize) -> bool {
    (OWN_START.load(Ordering::Relaxed)..OWN_END.load(Ordering::Relaxed)).contains(&address)
}

/// Finds this library's addresses, once.
pub fn own_range() {
    if OWN_END.load(Ordering::Acquire) == 0 {
        images::any(|info| {
            let range = images::segment_at(info, own_range as *const () as usize);
            if let Some(range) = &range {
                OWN_START.store(range.start, Ordering::Release);
                OWN_END.store(range.end, Ordering::Release);
            }
            range.is_some()
        });
    }
}
