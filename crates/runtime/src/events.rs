//! Reads event counters, in programs that sum up a hardware or kernel event per path ([`EventRecord`]). This file opens each thread's
//! counter, reads it, and measures what a reading costs.
//!
//! Instrumented code reads the time-stamp counter itself. For kernel events, each thread has a counter (perf_event_open(2)). Hardware
//! events are read with `rdpmc` if the kernel's page permits it; otherwise they are read with read(2), like software events. Counters are
//! pinned: a counter counts either always or never. Invariants: if the event cannot be counted, the image's counts are discarded, with a
//! message. A thread's readings never decrease, even when it gets a new counter (after `fork`) or loses its counter.

use crate::fork_page::FORK_PAGE;
use crate::image::address_of;
use crate::stub;
use crate::system::{self, Descriptor, Errno};
use crate::text::{self, OutputFailure};
use crate::wire::{EVENT_KIND_TIME_STAMP_COUNTER, EventCost, EventRecord, EventThread};
use core::arch::global_asm;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

// Instrumented code calls this function at function entry and at path ends. It returns the reading of the calling thread's counter in rax,
// and changes only rax and r11. Fields of the page that the kernel maps for a counter: `lock` at 8, `index` at 12, `offset` at 16,
// `pmc_width` at 48 (linux/perf_event.h explains their use). This page is not mapped in a child of `fork`, so the code first checks in the
// fork page whether this process is a child.
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
    // The thread's counter is read through the kernel's page.
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
    // The thread's counter is read through a file descriptor. esi is its number plus 1, or 0 if there is no counter.
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
    // Reading has failed, so the counter is lost.
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
    lost = sym handle_lost_counter,
);

unsafe extern "C" {
    safe fn __trodden_event_now() -> i64;
}

/// The kernel's `struct perf_event_attr`, in its first version.
#[repr(C)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sampling: [u64; 3],
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

/// Minimum number of a counter's file descriptor, so that the program's own descriptors keep their usual numbers.
const MIN_DESCRIPTOR: i32 = 200;
const PAGE_BYTES: usize = 4096;

/// True once the cost of reading the counter has been measured.
static IS_READING_COST_MEASURED: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy)]
pub struct CountedImageEvent {
    kind: u32,
    config: u64,
}

/// Returns the event that this image counts; `None` if it counts none.
pub fn event_counted_by_image() -> Option<CountedImageEvent> {
    let record = address_of!("__trodden_event") as *const EventRecord;
    // SAFETY: the pointer is null, or points to the record that a unit defines and nobody writes.
    let record = unsafe { record.as_ref() }?;
    Some(CountedImageEvent { kind: record.kind, config: record.config })
}

/// Returns the state of the calling thread's event counter. Must only be called if the image counts an event.
fn thread_event_state() -> &'static mut EventThread {
    let find = address_of!("__trodden_event_thread");
    // SAFETY: units that define the record also define this function with this type. It returns the address of thread-local memory, to
    // which callers keep only one reference at a time.
    unsafe {
        let find = core::mem::transmute::<usize, extern "C" fn() -> *mut EventThread>(find);
        &mut *find()
    }
}

impl CountedImageEvent {
    /// Opens a counter for the calling thread. Its readings continue from those of the thread's previous counter. The first call also
    /// measures the cost of a reading. Returns the argument for [`close_counter`].
    pub fn begin_counting(self) -> Result<u64, OutputFailure> {
        let source = if self.kind == EVENT_KIND_TIME_STAMP_COUNTER { 0 } else { self.open_counter()? };
        thread_event_state().source = source;
        if !IS_READING_COST_MEASURED.swap(true, SeqCst) {
            self.measure_reading_cost();
        }
        Ok(source)
    }

    pub fn is_read_inline(self) -> bool {
        self.kind == EVENT_KIND_TIME_STAMP_COUNTER
    }

    pub fn check(self) -> Result<(), OutputFailure> {
        if self.kind != EVENT_KIND_TIME_STAMP_COUNTER {
            close_counter(self.open_counter()?);
        }
        Ok(())
    }

    fn open_counter(self) -> Result<u64, OutputFailure> {
        const PINNED_FLAG: u64 = 4;
        const EXCLUDE_KERNEL_FLAGS: u64 = 3 << 5;
        let size = size_of::<EventAttributes>() as u32;
        let flags = PINNED_FLAG | EXCLUDE_KERNEL_FLAGS;
        let attributes =
            EventAttributes { kind: self.kind, size, config: self.config, sampling: [0; 3], flags, wakeup: 0, breakpoint: 0, config1: 0 };
        let file = system::open_event((&raw const attributes).cast()).map_err(explain_open_error)?;
        if self.kind == 0
            && let Some(page) = map_counter_page(&file)
        {
            return Ok(page as u64);
        }
        let file = system::move_descriptor_up(file, MIN_DESCRIPTOR);
        let source = file.number() as u64 + 1;
        file.leak();
        Ok(source)
    }

    fn read_counter(self) -> i64 {
        // SAFETY: every x86-64 processor has the time-stamp counter, and reading it has no side effects.
        if self.kind == EVENT_KIND_TIME_STAMP_COUNTER { unsafe { _rdtsc() as i64 } } else { __trodden_event_now() }
    }

    /// Measures the cost of a reading as the minimum over several trials, because subtracting too little is better than subtracting too
    /// much.
    ///
    /// A processor that wakes up at a low frequency needs about a millisecond to reach its usual frequency. The time-stamp counter does
    /// not slow down in the meantime, so trials with it go on for longer.
    fn measure_reading_cost(self) {
        const TRIAL_COUNT: u32 = 32;
        const MIN_TICKS: i64 = 5_000_000;
        let mut least = EventCost { begin: i64::MAX, end: i64::MAX };
        let first = self.read_counter();
        let lasts_long_enough = || self.kind != EVENT_KIND_TIME_STAMP_COUNTER || self.read_counter().wrapping_sub(first) >= MIN_TICKS;
        let mut trials = 0;
        while trials < TRIAL_COUNT || !lasts_long_enough() {
            least.begin = least.begin.min(self.measure_cost(simulate_entry));
            least.end = least.end.min(self.measure_cost(simulate_path_end));
            trials += 1;
        }
        let cost = address_of!("__trodden_event_cost") as *mut EventCost;
        // SAFETY: units that define the record also define the cost. It is only written here, once. Code that reads one of its fields at
        // the same time gets either the old or the new value.
        unsafe { cost.write_volatile(least) };
    }

    /// Returns the number of events from one reading to the next if `store` runs in between.
    fn measure_cost(self, store: fn(&mut [i64; 6], i64)) -> i64 {
        const ROUND_COUNT: i64 = 64;
        let mut cells = [0; 6];
        let first = self.read_counter();
        for _ in 0..ROUND_COUNT {
            let now = self.read_counter();
            store(&mut cells, now);
        }
        self.read_counter().wrapping_sub(first) / (ROUND_COUNT + 1)
    }
}

/// Performs the same operations as instrumented code at function entry.
#[inline(always)]
fn simulate_entry(cells: &mut [i64; 6], now: i64) {
    let [spent, start, cost, ..] = cells;
    store(start, now.wrapping_sub(load(spent)));
    let sum = load(spent).wrapping_add(load(cost));
    store(spent, sum);
}

/// Performs the same operations as instrumented code at the end of a path.
#[inline(always)]
fn simulate_path_end(cells: &mut [i64; 6], now: i64) {
    let [spent, start, cost, count, sum, squares] = cells;
    let own = now.wrapping_sub(load(start)).wrapping_sub(load(spent));
    let counted = load(count).wrapping_add(1);
    store(count, counted);
    let summed = load(sum).wrapping_add(own);
    store(sum, summed);
    let squared = load(squares).wrapping_add(own.wrapping_mul(own));
    store(squares, squared);
    let all = load(spent).wrapping_add(own).wrapping_add(load(cost));
    store(spent, all);
}

fn load(cell: &i64) -> i64 {
    // SAFETY: a reference is valid for reading.
    unsafe { (&raw const *cell).read_volatile() }
}

fn store(cell: &mut i64, value: i64) {
    // SAFETY: a reference is valid for writing.
    unsafe { (&raw mut *cell).write_volatile(value) }
}

/// Maps the page by which a program can read a counter without system calls; `None` if the kernel does not permit that. The counter stays
/// open as long as the page is mapped.
fn map_counter_page(file: &Descriptor) -> Option<usize> {
    const CAPABILITIES_OFFSET: usize = 40;
    const USER_RDPMC_FLAG: u64 = 1 << 2;
    let page = system::map_to_read(file, PAGE_BYTES).ok()?;
    // SAFETY: the page is mapped and contains that word.
    let capabilities = unsafe { ((page + CAPABILITIES_OFFSET) as *const u64).read_volatile() };
    if capabilities & USER_RDPMC_FLAG == 0 {
        system::unmap(page, PAGE_BYTES);
        return None;
    }
    Some(page)
}

/// Closes a thread's counter. `source` is 0 (no counter), the address of its page, or its descriptor plus 1.
pub fn close_counter(source: u64) {
    match source {
        0 => {}
        page if page >> 32 != 0 => system::unmap(page as usize, PAGE_BYTES),
        number => system::close((number - 1) as i32),
    }
}

/// Removes the calling thread's counter. From then on, all readings of this thread are equal.
pub fn close_thread_counter() {
    if event_counted_by_image().is_some_and(|e| e.kind != EVENT_KIND_TIME_STAMP_COUNTER) {
        save_reading_before_fork();
        let thread = thread_event_state();
        (thread.source, thread.base) = (0, thread.reading_at_fork);
    }
}

/// Stores the thread's reading before `fork`, so that the child's readings can continue from it.
pub fn save_reading_before_fork() {
    if event_counted_by_image().is_some_and(|e| e.kind != EVENT_KIND_TIME_STAMP_COUNTER) {
        let now = __trodden_event_now();
        thread_event_state().reading_at_fork = now;
    }
}

/// Opens a new counter in a child of `fork`, because the old one counts the parent's events. Returns the argument for [`close_counter`].
pub fn reopen_counter_after_fork() -> Result<u64, OutputFailure> {
    let Some(events) = event_counted_by_image().filter(|e| e.kind != EVENT_KIND_TIME_STAMP_COUNTER) else { return Ok(0) };
    let thread = thread_event_state();
    (thread.source, thread.base) = (0, thread.reading_at_fork);
    events.begin_counting()
}

/// Removes a counter that can no longer be read, because the program closed its descriptor, or forked in a way that runs no fork handlers.
extern "C" fn handle_lost_counter(thread: &mut EventThread) {
    (thread.source, thread.base) = (0, thread.spent);
    report_lost_event_counts();
}

pub fn report_lost_event_counts() {
    text::print_line(
        b"trodden: a thread lost its event counter (its descriptor was closed, or its process was created by vfork or without libc): its \
            events are not counted from here on\n",
    );
}

/// Explains why the kernel does not count the event, and gives advice.
fn explain_open_error(error: Errno) -> OutputFailure {
    const ADVICE_IF_UNSUPPORTED: &[u8] =
        b"build with --events tsc, or run on a machine where `perf stat` counts it (most virtual machines count no hardware events)";
    const ADVICE_IF_NOT_PERMITTED: &[u8] =
        b"set the sysctl kernel.perf_event_paranoid to 2 or less and, in a container, allow perf_event_open (its \
        seccomp profile) or give it CAP_PERFMON; or build with --events tsc";
    match error.0 {
        2 | 19 | 22 | 95 => OutputFailure::new(b"this machine does not count the program's event", ADVICE_IF_UNSUPPORTED),
        1 | 13 | 38 => OutputFailure::from_errno(b"the kernel does not let the program count its event", error, ADVICE_IF_NOT_PERMITTED),
        _ => OutputFailure::from_errno(b"the program's event cannot be counted", error, ADVICE_IF_UNSUPPORTED),
    }
}
