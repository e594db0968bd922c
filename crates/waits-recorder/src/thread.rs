//! The state of a recorded thread, and the functions that begin and complete records of its calls.
//!
//! Recording of a thread begins with its registration. The first thread of a process is registered when it initialises MPI, creates a
//! thread or forks; other threads are registered when they start. While a recorded call runs, `depth` is not 0, and calls that the real
//! function makes are not recorded.

mod sample;

use crate::lock::Lock;
use crate::memory::{map_private, unmap_elements};
use crate::records::ThreadRecords;
use crate::schedule::ThreadScheduleStatistics;
use crate::stack::{ThreadStackRecorder, ThreadStackTables};
use crate::walk::stack_pointer;
use crate::{chunks, clock, process};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use trodden_wire::waits::{CallName, CallRecord, NO_PEER, SampleRecord, ThreadHeader, chunk_kind, kind};

/// Minimum length in ticks of a call, or of the computation between two calls, for which processor time is also recorded. Compared with
/// that length, the cost of reading processor time is negligible.
const MIN_LONG_CALL_TICKS: u64 = 300_000;

/// Number of ticks (about 10 ms) after which a new anchor, a pair of simultaneous times in ticks and in ns, is written. Recent anchors
/// allow ticks to be converted accurately even if the program is killed.
const ANCHOR_INTERVAL_TICKS: u64 = 30_000_000;

/// Minimum length in ticks of the time between two tests of a polling loop that suggests that the thread computed something in between.
const MIN_COMPUTING_GAP_TICKS: u64 = 60_000;

/// A sequence of unsuccessful tests (such as `MPI_Test`), which is a wait if the thread only polls. Long gaps between tests mean that the
/// thread computes. A loop that only polls has few of them, when the thread loses its processor.
#[derive(Clone, Copy, Default)]
struct PollingLoop {
    /// Time in ticks of the first test; 0 if there is no sequence.
    begin: u64,
    /// Time in ticks at which the last test returned.
    end: u64,
    /// The thread's number of records when the last test returned.
    count: u32,
    tests: u32,
    long_gaps: u32,
}

pub struct Thread {
    /// Number of nested calls during which nothing is recorded: the recorded call itself, and calls of this library.
    pub depth: Cell<u32>,
    pub calls: ThreadRecords<CallRecord>,
    pub samples: ThreadRecords<SampleRecord>,
    pub stacks: ThreadStackRecorder,
    pub count: u32,
    last_exit: u64,
    /// Time in ticks at which the last anchor was written.
    anchored_at: u64,
    polling: PollingLoop,
    schedule: ThreadScheduleStatistics,
    /// Total time in ns for which the thread had been ready to run without a processor, when last read.
    ready_ns: u64,
    pub timer: Option<libc::timer_t>,
    /// The kernel's thread ID.
    pub thread_id: u32,
    /// Offset of the thread's header in the file.
    header_offset: u64,
}

/// The memory of a recorded thread, except for its records. It is reused for later threads.
#[repr(C)]
struct ThreadMemory {
    thread: MaybeUninit<Thread>,
    tables: ThreadStackTables,
    next: *mut ThreadMemory,
    /// The previous element in the list of live threads. The list of ended threads has no such links.
    previous: *mut ThreadMemory,
}

struct ThreadLists {
    live: *mut ThreadMemory,
    ended: *mut ThreadMemory,
    ended_count: u32,
}

impl ThreadLists {
    const NONE: ThreadLists = ThreadLists { live: null_mut(), ended: null_mut(), ended_count: 0 };
}

static THREAD_LISTS: Lock<ThreadLists> = Lock::new(ThreadLists::NONE);
/// Maximum number of ended threads whose memory is retained for reuse.
const MAX_ENDED_THREADS: u32 = 256;

thread_local! {
    static CURRENT_THREAD: Cell<*mut Thread> = const { Cell::new(null_mut()) };
}

static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

/// Returns a number that identifies a new thread within the process.
pub fn create_thread_token() -> u64 {
    NEXT_TOKEN.fetch_add(1, Ordering::Relaxed)
}

/// Returns the calling thread if it is recorded.
#[inline]
pub fn current_thread() -> Option<&'static mut Thread> {
    if process::is_recording_sealed() {
        return None;
    }
    // SAFETY: the pointer belongs to this thread, and is cleared before the memory is released.
    unsafe { CURRENT_THREAD.get().as_mut() }
}

/// Returns the calling thread if its next call is to be recorded: it is a recorded thread, and not already inside a recorded call.
#[inline]
pub fn recordable_thread() -> Option<&'static mut Thread> {
    current_thread().filter(|thread| thread.depth.get() == 0)
}

/// Starts the recording of the calling thread. `token` is the number that its creator gave it, and `stack_size` is in bytes; both are 0 if
/// unknown.
pub fn register_current_thread(token: u64, stack_size: usize) {
    if current_thread().is_some() || !process::is_recorded() {
        return;
    }
    // SAFETY: the system call has no arguments.
    let thread_id = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let Some(place) = take_thread_memory() else { return };
    // SAFETY: no other thread uses the memory.
    let tables = unsafe { &raw mut (*place).tables };
    let Some(thread) = new_thread_state(thread_id, token, tables, stack_size) else { return keep_thread_memory(place) };
    // SAFETY: as above.
    let thread = unsafe { (*place).thread.write(thread) };
    CURRENT_THREAD.set(thread);
    process::append_memory_maps();
    sample::start_timer(thread);
    add_live_thread(place);
}

fn take_thread_memory() -> Option<*mut ThreadMemory> {
    let ended = THREAD_LISTS.with(|threads| {
        let first = threads.ended;
        if !first.is_null() {
            // SAFETY: the lock is held, and no thread uses the memory in this list.
            threads.ended = unsafe { (*first).next };
            threads.ended_count -= 1;
        }
        first
    });
    if ended.is_null() { map_private(1) } else { Some(ended) }
}

/// Adds an ended thread's memory to the list for reuse, or unmaps it if the list is full.
fn keep_thread_memory(place: *mut ThreadMemory) {
    let is_kept = THREAD_LISTS.with(|threads| {
        if threads.ended_count == MAX_ENDED_THREADS {
            return false;
        }
        // SAFETY: the caller passes memory that no thread uses, and the lock is held.
        unsafe { (*place).next = threads.ended };
        (threads.ended, threads.ended_count) = (place, threads.ended_count + 1);
        true
    });
    if !is_kept {
        unmap_elements(place, 1);
    }
}

/// Adds a thread to the list of live threads. If recording has ended in the meantime, ends the thread's timer at once.
fn add_live_thread(place: *mut ThreadMemory) {
    THREAD_LISTS.with(|threads| {
        // SAFETY: the memory of threads in the list is mapped, and the lock is held.
        unsafe {
            ((*place).next, (*place).previous) = (threads.live, null_mut());
            if !threads.live.is_null() {
                (*threads.live).previous = place;
            }
            threads.live = place;
            if process::is_recording_sealed() {
                sample::end_timer((*place).thread.assume_init_mut());
            }
        }
    });
}

fn remove_live_thread(place: *mut ThreadMemory) {
    THREAD_LISTS.with(|threads| {
        // SAFETY: as above.
        unsafe {
            let ThreadMemory { next, previous, .. } = *place;
            if !next.is_null() {
                (*next).previous = previous;
            }
            if previous.is_null() {
                threads.live = next;
            } else {
                (*previous).next = next;
            }
        }
    });
}

/// Ends the timers of all threads before the program filters system calls, because the handler of their signals makes system calls.
pub fn end_timers() {
    THREAD_LISTS.with(|threads| {
        let mut place = threads.live;
        while !place.is_null() {
            // SAFETY: the memory of threads in the list is mapped, and timers are only changed while the lock is held.
            unsafe {
                sample::end_timer((*place).thread.assume_init_mut());
                place = (*place).next;
            }
        }
    });
}

fn new_thread_state(thread_id: u32, token: u64, tables: *mut ThreadStackTables, stack_size: usize) -> Option<Thread> {
    let (begin, begin_ns) = clock::read_clock_anchor();
    let (index, header_offset) =
        chunks::add_thread(ThreadHeader { thread: thread_id, reserved: 0, begin, begin_ns, token, anchor_ticks: 0, anchor_ns: 0 })?;
    let mut schedule = ThreadScheduleStatistics::default();
    Some(Thread {
        depth: Cell::new(0),
        calls: ThreadRecords::new(chunk_kind::CALLS, index),
        samples: ThreadRecords::new(chunk_kind::SAMPLES, index),
        stacks: ThreadStackRecorder::new(index, tables, stack_size),
        count: 0,
        last_exit: begin,
        anchored_at: begin,
        polling: PollingLoop::default(),
        ready_ns: schedule.ready_ns(),
        schedule,
        timer: None,
        thread_id,
        header_offset,
    })
}

/// Records that the calling thread ends, and ends its recording. `by` is the call that ends the thread or the process.
pub fn unregister_current_thread(by: CallName) {
    let place = CURRENT_THREAD.get();
    let Some(thread) = current_thread() else { return };
    // The pointer is also that of the whole memory, because `thread` is its first field.
    remove_live_thread(place.cast());
    // The kernel ends the timers of a process with it.
    if by != CallName::process_exit {
        sample::end_timer(thread);
    }
    if let Some(open) = begin_record(thread, kind::THREAD_EXIT, by) {
        finish_record(thread, open);
    }
    thread.depth.set(1);
    CURRENT_THREAD.set(null_mut());
    // A forked child needs no new anchor, because the anchors of its parent determine its tick rate.
    if by == CallName::process_exit && !process::is_forked_child() {
        thread.write_anchor();
    } else {
        thread.write_anchor_if_old(thread.last_exit);
    }
    thread.calls.close();
    thread.samples.close();
    thread.stacks.close();
    thread.schedule.close();
    keep_thread_memory(place.cast());
}

/// In a forked child, forgets the threads of the parent.
pub fn reset_in_child() {
    let place = CURRENT_THREAD.get();
    THREAD_LISTS.reset_in_child(ThreadLists::NONE);
    let Some(thread) = current_thread() else { return };
    CURRENT_THREAD.set(null_mut());
    thread.calls.abandon_chunks();
    thread.samples.abandon_chunks();
    thread.stacks.abandon_chunks();
    keep_thread_memory(place.cast());
}

/// A record of a call that has not returned yet.
#[derive(Clone, Copy)]
pub struct OpenRecord(*mut CallRecord);

impl OpenRecord {
    #[inline]
    pub fn record(&mut self) -> &mut CallRecord {
        // SAFETY: the record is in its thread's newest chunk or in the one before, and both are mapped.
        unsafe { &mut *self.0 }
    }

    /// Returns a record for a request that this call has completed. Only the fields that both records have in common are filled in.
    pub fn completion_template(&mut self) -> CallRecord {
        let CallRecord { exit, function, stack, .. } = *self.record();
        CallRecord { enter: exit, exit, kind: kind::COMPLETED, function, stack, ..CallRecord::default() }
    }
}

/// Begins a record of a call that the calling thread makes now, with the current call stack. Returns `None` if the disk is full.
#[inline]
pub fn begin_record(thread: &mut Thread, kind: u16, function: CallName) -> Option<OpenRecord> {
    begin_record_at(thread, kind, function, clock::now_in_ticks)
}

/// Makes a call, and records it only if it took long and the thread slept during it. Functions like `read` are called often and usually
/// return without waiting. A thread that only lost its processor has not waited. Calls inside `call` are not recorded.
#[inline]
pub fn record_if_long(thread: &mut Thread, kind: u16, function: CallName, call: impl FnOnce() -> isize) -> isize {
    let sleeps = clock::voluntary_switches();
    let enter = clock::now_in_ticks();
    let result = run_unrecorded(thread, call);
    if !process::is_recording_sealed() && clock::now_in_ticks().wrapping_sub(enter) > MIN_LONG_CALL_TICKS && has_slept_since(sleeps) {
        // SAFETY: `__errno_location` points to the calling thread's errno, which is saved because recording may change it.
        let error = unsafe { *libc::__errno_location() };
        if let Some(mut open) = begin_record_at(thread, kind, function, || enter) {
            open.record().object = result as u64;
            finish_record(thread, open);
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = error };
    }
    result
}

/// Returns true if the calling thread's number of voluntary context switches is no longer `sleeps`, so it has slept. Preserves errno.
#[cold]
fn has_slept_since(sleeps: i64) -> bool {
    // SAFETY: `__errno_location` points to the calling thread's errno.
    let error = unsafe { *libc::__errno_location() };
    let has_slept = clock::voluntary_switches() != sleeps;
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    has_slept
}

/// Begins a record of a call. `enter_time` is called after the stack was captured, and returns the time in ticks at which the call begins.
#[inline]
fn begin_record_at(thread: &mut Thread, kind: u16, function: CallName, enter_time: impl FnOnce() -> u64) -> Option<OpenRecord> {
    thread.depth.set(thread.depth.get() + 1);
    let stack = thread.stacks.capture_stack(stack_pointer());
    let enter = enter_time();
    if enter.wrapping_sub(thread.last_exit) > MIN_LONG_CALL_TICKS {
        thread.record_processor_time(function, enter);
    }
    let record = thread.calls.next_record();
    let Some(record) = record else {
        thread.depth.set(thread.depth.get() - 1);
        return None;
    };
    if thread.count != 0 && thread.count.is_multiple_of(2048) {
        thread.write_anchor();
    }
    thread.count += 1;
    let new = CallRecord { enter, exit: 0, kind, function: function as u16, stack, peer: NO_PEER, tag: 0, ..CallRecord::default() };
    // SAFETY: the pointer refers to newly allocated space for one record.
    unsafe { record.write(new) };
    Some(OpenRecord(record))
}

#[inline]
pub fn finish_record(thread: &mut Thread, mut open: OpenRecord) {
    let mut exit = clock::now_in_ticks();
    let record = open.record();
    if exit.wrapping_sub(record.enter) > MIN_LONG_CALL_TICKS && !process::is_recording_sealed() {
        record.cpu_ns = clock::thread_cpu_ns();
        thread.ready_ns = thread.schedule.ready_ns();
        thread.write_anchor_if_old(exit);
        // The time is read again, so that the computation after the call does not include the time for which the thread lost its processor
        // before this line.
        exit = clock::now_in_ticks();
    }
    record.exit = exit;
    thread.last_exit = exit;
    thread.depth.set(thread.depth.get() - 1);
}

#[inline]
pub fn add_record(thread: &mut Thread, new: CallRecord) {
    if let Some(record) = thread.calls.next_record() {
        thread.count += 1;
        // SAFETY: the pointer refers to newly allocated space for one record.
        unsafe { record.write(new) };
    }
}

impl Thread {
    #[cold]
    fn record_processor_time(&mut self, function: CallName, now: u64) {
        let cpu_ns = clock::thread_cpu_ns();
        let before_ns = core::mem::replace(&mut self.ready_ns, self.schedule.ready_ns());
        let stack = trodden_wire::waits::NO_STACK;
        let record = CallRecord {
            enter: now,
            exit: now,
            kind: kind::CPU_AT_ENTER,
            function: function as u16,
            stack,
            object: self.ready_ns.saturating_sub(before_ns),
            cpu_ns,
            ..CallRecord::default()
        };
        add_record(self, record);
        self.write_anchor_if_old(now);
    }

    /// Writes a new anchor if the last one is old. Otherwise a killed thread with few calls would have none.
    fn write_anchor_if_old(&mut self, now: u64) {
        if now.wrapping_sub(self.anchored_at) > ANCHOR_INTERVAL_TICKS {
            self.write_anchor();
        }
    }

    /// Removes the newest record, which is that of an unsuccessful test, and counts the test in the polling loop instead. A loop is later
    /// recorded as one wait that begins with the first test.
    pub fn fold_test_into_polling_loop(&mut self, mut newest: OpenRecord) {
        let enter = newest.record().enter;
        let loop_before = self.find_continued_loop(enter);
        let PollingLoop { begin, tests, long_gaps, .. } = loop_before.unwrap_or(PollingLoop { begin: enter, ..PollingLoop::default() });
        self.last_exit = clock::now_in_ticks();
        self.polling = PollingLoop { begin, end: self.last_exit, count: self.count - 1, tests: tests + 1, long_gaps };
        self.calls.remove_last_record();
        self.count -= 1;
        self.depth.set(self.depth.get() - 1);
    }

    /// Ends the polling loop with a successful test. Its record then begins at the first test of the loop.
    pub fn end_polling_loop(&mut self, open: &mut OpenRecord) {
        if let Some(polling) = self.find_continued_loop(open.record().enter) {
            open.record().enter = polling.begin;
        }
        self.polling = PollingLoop::default();
    }

    /// Returns the polling loop that a test at time `enter` continues; `None` if the thread recorded a call or computed since the last
    /// test.
    fn find_continued_loop(&self, enter: u64) -> Option<PollingLoop> {
        let mut polling = self.polling;
        polling.long_gaps += u32::from(enter.wrapping_sub(polling.end) > MIN_COMPUTING_GAP_TICKS);
        // The thread's count already includes the record of the current test.
        let continues = polling.begin != 0 && polling.count + 1 == self.count && polling.long_gaps * 8 <= polling.tests;
        continues.then_some(polling)
    }

    /// Writes an anchor to the thread's header in the file. It is written with a system call, because that part of the file is no longer
    /// mapped.
    #[cold]
    pub fn write_anchor(&mut self) {
        let (ticks, ns) = clock::read_clock_anchor();
        self.anchored_at = ticks;
        chunks::write_words_at_file_offset(self.header_offset + core::mem::offset_of!(ThreadHeader, anchor_ticks) as u64, [ticks, ns]);
    }
}

/// Calls `call`, inside which no calls are recorded.
#[inline]
pub fn run_unrecorded<R>(thread: &Thread, call: impl FnOnce() -> R) -> R {
    thread.depth.set(thread.depth.get() + 1);
    let result = call();
    thread.depth.set(thread.depth.get() - 1);
    result
}
