//! Events of each path, in images that have units which sum them up ([`EventRecord`]): each thread's counter, how it is
//! read, and what reading costs.
//!
//! The time-stamp counter is read by the code itself. Events of the kernel have a counter for each thread, by
//! perf_event_open(2): hardware events are read from the page that the kernel keeps for that, by `rdpmc`, where it
//! allows that, and otherwise, as software events, by read(2). Counters are pinned: they count all the time, or not at
//! all.
//!
//! Invariants: nothing is counted in an image whose events cannot be counted: its counts go nowhere, after a message.
//! What a thread reads never goes back, whether it gets a new counter (after `fork`) or loses the one it had.

use crate::fork_page::FORK_PAGE;
use crate::image::address_of;
use crate::stub;
use crate::system::{self, Descriptor, Errno};
use crate::text::{self, Failure};
use crate::wire::{EVENT_TSC, EventCost, EventRecord, EventThread};
use core::arch::global_asm;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

// The stub that code calls where a function begins and where a path ends: reads the calling thread's counter into rax.
// It changes rax and r11 only. Fields of the kernel's page: `lock` at 8, `index` at 12, `offset` at 16, `pmc_width` at
// 48 (linux/perf_event.h explains how they are used). A page is not there any more in a child of `fork`, where the
// page is 0.
global_asm!(
    ".weak __trodden_event_thread",
    stub::begin!("__trodden_event_now"),
    "push rcx",
    "push rdx",
    "push rsi",
    "push rdi",
    "push r8",
    ".cfi_def_cfa_offset 48",
    "call qword ptr [rip + __trodden_event_thread@GOTPCREL]",
    "mov r8, rax",
    "2: mov rsi, [r8 + 8]",
    "mov rax, rsi",
    "shr rax, 32",
    "jz 5f",
    "mov rax, [rip + {fork_page}]",
    "test rax, rax",
    "jz 3f",
    "cmp dword ptr [rax], 0",
    "je 7f",
    // A page.
    "3: mov r11d, [rsi + 8]",
    "mov ecx, [rsi + 12]",
    "xor eax, eax",
    "test ecx, ecx",
    "jz 4f",
    "dec ecx",
    "rdpmc",
    "shl rdx, 32",
    "or rax, rdx",
    "mov ecx, 64",
    "sub cx, word ptr [rsi + 48]",
    "shl rax, cl",
    "sar rax, cl",
    "4: add rax, [rsi + 16]",
    "cmp r11d, [rsi + 8]",
    "jne 3b",
    "jmp 6f",
    // A descriptor, and 1; or nothing.
    "5: xor eax, eax",
    "test esi, esi",
    "jz 6f",
    "lea edi, [rsi - 1]",
    "sub rsp, 16",
    "mov rsi, rsp",
    "mov edx, 8",
    "syscall",
    "mov rdx, [rsp]",
    "lea rsp, [rsp + 16]",
    "cmp rax, 8",
    "jne 7f",
    "mov rax, rdx",
    "6: add rax, [r8 + 16]",
    "pop r8",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop rcx",
    ".cfi_remember_state",
    ".cfi_def_cfa_offset 8",
    "ret",
    // The counter is lost.
    ".cfi_restore_state",
    "7: mov rdi, r8",
    "push rbp",
    ".cfi_def_cfa_offset 56",
    ".cfi_offset rbp, -56",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push r9",
    "push r10",
    "push r8",
    "sub rsp, 512",
    "and rsp, -16",
    "fxsave64 [rsp]",
    "cld",
    "call {lost}",
    "fxrstor64 [rsp]",
    "mov r8, [rbp - 24]",
    "mov r10, [rbp - 16]",
    "mov r9, [rbp - 8]",
    "leave",
    ".cfi_def_cfa rsp, 48",
    "jmp 2b",
    stub::end!("__trodden_event_now"),
    fork_page = sym FORK_PAGE,
    lost = sym lost,
);

unsafe extern "C" {
    safe fn __trodden_event_now() -> i64;
}

/// `struct perf_event_attr`, its first version.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sampling: [u64; 3],
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

/// Counters of software events stay open, out of the subject's way.
const OUT_OF_THE_WAY: i32 = 200;
const PAGE: usize = 4096;

/// Whether costs are known.
static CALIBRATED: AtomicBool = AtomicBool::new(false);

/// The image's event, if it has one.
#[derive(Clone, Copy)]
pub struct Events {
    kind: u32,
    config: u64,
}

/// The image's event.
pub fn of_image() -> Option<Events> {
    let record = address_of!("__trodden_event") as *const EventRecord;
    // SAFETY: null, or the record that a unit defines, which is never written.
    let record = unsafe { record.as_ref() }?;
    Some(Events { kind: record.kind, config: record.config })
}

/// What belongs to the calling thread; in images that have events.
fn thread() -> &'static mut EventThread {
    let find = address_of!("__trodden_event_thread");
    // SAFETY: where there is a record there is this function, of this type, and it gives the address of thread-local
    // memory, which no other thread uses; a reference is never kept while another may be made.
    unsafe {
        let find = core::mem::transmute::<usize, extern "C" fn() -> *mut EventThread>(find);
        &mut *find()
    }
}

impl Events {
    /// Gives the calling thread a counter, which goes on where an earlier one of it stopped; and finds out once what
    /// reading costs. Returns what [`close`] takes.
    pub fn begin(self) -> Result<u64, Failure> {
        let source = if self.kind == EVENT_TSC { 0 } else { self.open()? };
        thread().source = source;
        if !CALIBRATED.swap(true, SeqCst) {
            self.calibrate();
        }
        Ok(source)
    }

    /// Whether code reads them by itself.
    pub fn are_of_processor(self) -> bool {
        self.kind == EVENT_TSC
    }

    /// Whether the event can be counted.
    pub fn check(self) -> Result<(), Failure> {
        if self.kind != EVENT_TSC {
            close(self.open()?);
        }
        Ok(())
    }

    fn open(self) -> Result<u64, Failure> {
        const PINNED: u64 = 4;
        const NOT_THE_KERNEL: u64 = 3 << 5;
        let size = size_of::<Attributes>() as u32;
        let flags = PINNED | NOT_THE_KERNEL;
        let attributes =
            Attributes { kind: self.kind, size, config: self.config, sampling: [0; 3], flags, wakeup: 0, breakpoint: 0, config1: 0 };
        let file = system::open_event((&raw const attributes).cast()).map_err(failure)?;
        if self.kind == 0
            && let Some(page) = readable_page(&file)
        {
            return Ok(page as u64);
        }
        let file = system::move_up(file, OUT_OF_THE_WAY);
        let source = file.number() as u64 + 1;
        file.forget();
        Ok(source)
    }

    fn now(self) -> i64 {
        // SAFETY: reads a register.
        if self.kind == EVENT_TSC { unsafe { _rdtsc() as i64 } } else { __trodden_event_now() }
    }

    /// Does what code does, many times, and takes the least that it took: what is taken off should rather be too little.
    fn calibrate(self) {
        const TRIALS: u32 = 32;
        let mut least = EventCost { begin: i64::MAX, end: i64::MAX };
        for _ in 0..TRIALS {
            least.begin = least.begin.min(self.trial(begin));
            least.end = least.end.min(self.trial(end));
        }
        let cost = address_of!("__trodden_event_cost") as *mut EventCost;
        // SAFETY: where there is a record there is this one; it is only written here, once. What code reads meanwhile
        // is the old or the new number.
        unsafe { cost.write_volatile(least) };
    }

    /// Events from one reading to the next.
    fn trial(self, keep: fn(&mut [i64; 6], i64)) -> i64 {
        const ROUNDS: i64 = 64;
        let mut cells = [0; 6];
        let first = self.now();
        for _ in 0..ROUNDS {
            let now = self.now();
            keep(&mut cells, now);
        }
        self.now().wrapping_sub(first) / (ROUNDS + 1)
    }
}

/// What code does where a function begins.
#[inline(always)]
fn begin(cells: &mut [i64; 6], now: i64) {
    let [spent, begun, cost, ..] = cells;
    keep(begun, now.wrapping_sub(load(spent)));
    let sum = load(spent).wrapping_add(load(cost));
    keep(spent, sum);
}

/// What code does where a path ends.
#[inline(always)]
fn end(cells: &mut [i64; 6], now: i64) {
    let [spent, begun, cost, count, sum, squares] = cells;
    let own = now.wrapping_sub(load(begun)).wrapping_sub(load(spent));
    let counted = load(count).wrapping_add(1);
    keep(count, counted);
    let summed = load(sum).wrapping_add(own);
    keep(sum, summed);
    let squared = load(squares).wrapping_add(own.wrapping_mul(own));
    keep(squares, squared);
    let all = load(spent).wrapping_add(own).wrapping_add(load(cost));
    keep(spent, all);
}

fn load(cell: &i64) -> i64 {
    // SAFETY: a reference is valid for reading.
    unsafe { (&raw const *cell).read_volatile() }
}

fn keep(cell: &mut i64, value: i64) {
    // SAFETY: a reference is valid for writing.
    unsafe { (&raw mut *cell).write_volatile(value) }
}

/// The page by which the program may read a counter by itself; None if it may not. The page keeps the counter open.
fn readable_page(file: &Descriptor) -> Option<usize> {
    const CAPABILITIES: usize = 40;
    const USER_RDPMC: u64 = 1 << 2;
    let page = system::map_to_read(file, PAGE).ok()?;
    // SAFETY: the page is mapped, and has that word.
    let capabilities = unsafe { ((page + CAPABILITIES) as *const u64).read_volatile() };
    if capabilities & USER_RDPMC == 0 {
        system::unmap(page, PAGE);
        return None;
    }
    Some(page)
}

/// Gives back a thread's counter.
pub fn close(source: u64) {
    match source {
        0 => {}
        page if page >> 32 != 0 => system::unmap(page as usize, PAGE),
        number => system::close((number - 1) as i32),
    }
}

/// The calling thread has no counter from here on; what it reads stays what it is.
pub fn end_thread() {
    if of_image().is_some_and(|e| e.kind != EVENT_TSC) {
        note();
        let thread = thread();
        (thread.source, thread.base) = (0, thread.noted);
    }
}

/// Before `fork`: notes what the thread reads, with which the child goes on.
pub fn note() {
    if of_image().is_some_and(|e| e.kind != EVENT_TSC) {
        let now = __trodden_event_now();
        thread().noted = now;
    }
}

/// After `fork`, in the child: the counter is the parent's. The thread gets one of its own.
pub fn renew() -> Result<u64, Failure> {
    let Some(events) = of_image().filter(|e| e.kind != EVENT_TSC) else { return Ok(0) };
    let thread = thread();
    (thread.source, thread.base) = (0, thread.noted);
    events.begin()
}

/// The thread's counter cannot be read any more: the program closed its descriptor, or forked without its handlers.
extern "C" fn lost(thread: &mut EventThread) {
    (thread.source, thread.base) = (0, thread.spent);
    report_lost();
}

/// Says that a thread has no counter.
pub fn report_lost() {
    text::say_line(
        b"trodden: the counter of a thread's events is gone (its descriptor was closed, or its process was made by vfork or without \
            libc): no events are summed up for what it runs from here on\n",
    );
}

/// Why the kernel counts nothing, for people.
fn failure(error: Errno) -> Failure {
    const NONE: &[u8] =
        b"build with --events tsc, or run on a machine where `perf stat` counts it (most virtual machines count no hardware events)";
    const REFUSED: &[u8] = b"set the sysctl kernel.perf_event_paranoid to 2 or less and, in a container, allow perf_event_open (its \
        seccomp profile) or give it CAP_PERFMON; or build with --events tsc";
    match error.0 {
        2 | 19 | 22 | 95 => Failure::new(b"this machine does not count the program's event", NONE),
        1 | 13 | 38 => Failure::system(b"the kernel does not let the program count its event", error, REFUSED),
        _ => Failure::system(b"the program's event cannot be counted", error, NONE),
    }
}
