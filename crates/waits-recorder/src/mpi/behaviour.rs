//! What is recorded of each kind of MPI call.

use super::call::{MpiCall, source_and_tag};
use super::communicator;
use super::implementation::{Implementation, STATUS_WORDS, implementation};
use crate::output::OutputLine;
use crate::real::{Real, real};
use crate::thread::{self, OpenRecord, Thread, add, finish};
use crate::{process, walk};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use trodden_wire::waits::{ANY_PEER, ANY_TAG, CallName, CallRecord, kind};

/// Position of the root of an operation that has none.
pub const NO_ROOT: usize = usize::MAX;
/// Amount of a collective operation on nothing, from which libraries return at once.
const EMPTY: u64 = u64::MAX;
/// Whether the process has cancelled a request: only then are statuses asked.
static HAS_CANCELLED: AtomicBool = AtomicBool::new(false);

/// A call of which nothing but its time is known: one that transfers data and by no rule waits for another process, or one for which
/// there is no rule.
#[inline]
pub fn timed(call: MpiCall, kind: u16) -> i32 {
    call.recorded(kind, |_| {})
}

fn bytes(count: usize, datatype: usize) -> u64 {
    static SIZE: Real = Real::new(c"PMPI_Type_size");
    thread_local!(static LAST: Cell<(usize, i32)> = const { Cell::new((0, 0)) });
    let mut size = LAST.get();
    if size.0 != datatype {
        // A handle may be given again for another type: only types that are there from the start are remembered.
        real!(SIZE, fn(usize, *mut i32) -> i32, datatype, &raw mut size.1);
        size.0 = datatype;
        LAST.set(if implementation() == Implementation::Mpich && datatype & 0xff00_0000 == 0x4c00_0000 { size } else { (0, 0) });
    }
    (count as u32 as u64) * size.1.max(0) as u64
}

#[inline]
fn address(record: &mut CallRecord, call: &MpiCall, [peer, tag, comm]: [usize; 3]) {
    let library = implementation();
    record.peer = library.peer(call.arguments[peer]);
    record.tag = library.tag(call.arguments[tag]);
    record.object = call.communicator(comm);
}

/// A send, or a message that is begun: buffer, count, type, peer, tag, communicator, and a request. What is known at the
/// beginning is recorded before the call: a program killed inside it has named its partner.
#[inline]
pub fn message(call: MpiCall, kind: u16) -> i32 {
    let Some((thread, mut open)) = call.begin(kind) else { return call.run() };
    address(open.record(), &call, [3, 4, 5]);
    open.record().amount = bytes(call.arguments[1], call.arguments[2]);
    let result = call.run();
    // 0 if the function has none.
    open.record().request = call.handle_at(6) as u64;
    finish(thread, open);
    result
}

/// Buffer, count, type, source, tag, communicator, status.
#[inline]
pub fn receive(mut call: MpiCall) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::RECV) else { return call.run() };
    address(open.record(), &call, [3, 4, 5]);
    let wildcard = open.record().peer == ANY_PEER || open.record().tag == ANY_TAG;
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.statuses(6, spare.as_mut_ptr());
    let result = call.run();
    finish(thread, open);
    if wildcard {
        completed(thread, &mut open, 0, source_and_tag(status, 0), 0);
    }
    result
}

#[inline]
pub fn completed(thread: &mut Thread, open: &mut OpenRecord, request: u64, (peer, tag): (i32, i32), amount: u64) {
    // The piece of the open record may be gone once another is begun: copy first.
    let common = open.copy();
    add(thread, CallRecord { peer, tag, amount, request, ..common });
}

/// A send and a receive at once; positions of destination, its tag, source, its tag, communicator. The status follows.
#[inline]
pub fn exchange(mut call: MpiCall, [to, to_tag, from, from_tag, comm]: [usize; 5]) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::SENDRECV) else { return call.run() };
    address(open.record(), &call, [to, to_tag, comm]);
    open.record().amount = bytes(call.arguments[1], call.arguments[2]);
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.statuses(comm + 1, spare.as_mut_ptr());
    let result = call.run();
    let (source, tag) = source_and_tag(status, 0);
    finish(thread, open);
    let mut second = *open.record();
    second.kind = kind::SENDRECV_RECV;
    address(&mut second, &call, [from, from_tag, comm]);
    if second.peer == ANY_PEER {
        second.peer = source;
    }
    if second.tag == ANY_TAG {
        second.tag = tag;
    }
    add(thread, second);
    result
}

/// Starts a persistent request, or frees one.
#[inline]
pub fn one_request(call: MpiCall, kind: u16) -> i32 {
    let request = call.handle_at(0) as u64;
    call.recorded(kind, |record| record.request = request)
}

/// Starts several.
#[inline]
pub fn start_all(call: MpiCall) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::START) else { return call.run() };
    let count = (call.arguments[0] as i32).max(0) as usize;
    // SAFETY: the array's address and size, by MPI's definition.
    let request = |index| unsafe { implementation().handle_at(call.arguments[1], index) } as u64;
    open.record().request = if count > 0 { request(0) } else { 0 };
    let first = *open.record();
    let result = call.run();
    finish(thread, open);
    let exit = open.record().exit;
    // Persistent requests keep their handles, so they can be read after the call.
    for request in (1..count).map(request) {
        add(thread, CallRecord { enter: exit, exit, request, cpu_ns: 0, ..first });
    }
    result
}

/// Source, tag, communicator, flag, status.
#[inline]
pub fn immediate_probe(mut call: MpiCall) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::PROBE) else { return call.run() };
    address(open.record(), &call, [0, 1, 2]);
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.statuses(4, spare.as_mut_ptr());
    let result = call.run();
    if call.integer_at(3) == 0 {
        thread.withdraw(open);
        return result;
    }
    (open.record().peer, open.record().tag) = source_and_tag(status, 0);
    thread.end_polling(&mut open);
    finish(thread, open);
    result
}

/// Source, tag, communicator, message, status.
#[inline]
pub fn matched_probe(call: MpiCall) -> i32 {
    let result = probe(call, 4);
    MATCHED.set((call.handle_at(3), LAST_PROBE.get()));
    result
}

thread_local! {
    /// Peer, tag and communicator of the newest probe.
    static LAST_PROBE: Cell<(i32, i32, u64)> = const { Cell::new((0, 0, 0)) };
    /// The same of the newest matched probe, with its message.
    static MATCHED: Cell<(usize, (i32, i32, u64))> = const { Cell::new((0, (0, 0, 0))) };
}

/// Source, tag, communicator; position of the status.
#[inline]
pub fn probe(mut call: MpiCall, status: usize) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::PROBE) else { return call.run() };
    address(open.record(), &call, [0, 1, 2]);
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.statuses(status, spare.as_mut_ptr());
    let result = call.run();
    let (peer, tag) = source_and_tag(status, 0);
    (open.record().peer, open.record().tag) = (peer, tag);
    LAST_PROBE.set((peer, tag, open.record().object));
    finish(thread, open);
    result
}

/// Buffer, count, type, message, status: the receive of what a matched probe found.
#[inline]
pub fn matched_receive(call: MpiCall) -> i32 {
    let (matched, (peer, tag, object)) = MATCHED.get();
    if matched != call.handle_at(3) {
        return timed(call, kind::MPI_OTHER);
    }
    call.recorded(kind::RECV, |record| (record.peer, record.tag, record.object) = (peer, tag, object))
}

/// A collective operation; positions of its root and its communicator. A request follows the communicator if it does not block.
#[inline]
pub fn collective(call: MpiCall, kind: u16, root: usize, comm: usize) -> i32 {
    let Some((thread, mut open)) = call.begin(kind) else { return call.run() };
    let record = open.record();
    record.object = call.communicator(comm);
    if root != NO_ROOT {
        record.peer = implementation().root(call.arguments[root]);
    }
    if is_empty(&call) {
        record.amount = EMPTY;
    }
    let result = call.run();
    if kind & trodden_wire::waits::kind::NON_BLOCKING != 0 {
        open.record().request = call.handle_at(comm + 1) as u64;
    }
    finish(thread, open);
    result
}

/// Whether a collective operation is on nothing. Of those with several counts, the caller's own is meant.
#[inline]
fn is_empty(call: &MpiCall) -> bool {
    let arguments = &call.arguments;
    match call.function {
        CallName::MPI_Barrier | CallName::MPI_Ibarrier => false,
        CallName::MPI_Bcast | CallName::MPI_Ibcast => bytes(arguments[1], arguments[2]) == 0,
        CallName::MPI_Reduce
        | CallName::MPI_Ireduce
        | CallName::MPI_Allreduce
        | CallName::MPI_Iallreduce
        | CallName::MPI_Reduce_scatter_block
        | CallName::MPI_Ireduce_scatter_block
        | CallName::MPI_Scan
        | CallName::MPI_Iscan
        | CallName::MPI_Exscan
        | CallName::MPI_Iexscan => arguments[2] as u32 == 0,
        _ => arguments[1] as u32 == 0,
    }
}

/// A request is cancelled: whether that came in time, its status says when it is complete.
#[inline]
pub fn cancel(call: MpiCall) -> i32 {
    HAS_CANCELLED.store(true, Ordering::Release);
    call.run()
}

/// 1 if the `index`-th status of an array is that of a cancelled request, else 0: the amount of its record.
#[inline]
pub fn cancelled(statuses: usize, index: usize) -> u64 {
    static TEST: Real = Real::new(c"PMPI_Test_cancelled");
    if !HAS_CANCELLED.load(Ordering::Acquire) {
        return 0;
    }
    let mut flag = 0i32;
    real!(TEST, fn(usize, *mut i32) -> i32, statuses + index * implementation().status_words() * 4, &raw mut flag);
    u64::from(flag != 0)
}

/// A persistent collective operation is made: the arguments of the operation, an info, a request.
#[inline]
pub fn collective_init(call: MpiCall, kind: u16, root: usize, comm: usize) -> i32 {
    call.recorded(kind | trodden_wire::waits::kind::PERSISTENT, |record| {
        record.object = call.communicator(comm);
        if root != NO_ROOT {
            record.peer = implementation().root(call.arguments[root]);
        }
        record.request = call.handle_at(comm + 2) as u64;
    })
}

/// A communicator is made by all of another; positions of both.
#[inline]
pub fn communicator(call: MpiCall, parent: usize, made: usize) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator(parent);
        communicator::made(call.handle(parent), call.handle_at(made), None);
    })
}

/// The same, to be completed later: the group is that of the parent, so nothing has to be waited for.
#[inline]
pub fn communicator_later(call: MpiCall, parent: usize, made: usize) -> i32 {
    call.recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = call.communicator(parent);
        record.request = call.handle_at(made + 1) as u64;
        process::note(b"MPI_Comm_idup: messages on the communicator that it makes are not matched");
    })
}

/// A communicator is made by some of another: no rule says who waits for whom.
#[inline]
pub fn communicator_of_group(call: MpiCall, parent: usize, made: usize) -> i32 {
    call.recorded(kind::MPI_OTHER, |_| {
        // The tag is the argument before the new communicator in both functions.
        let tag = call.arguments[made - 1] as u32;
        communicator::made(call.handle(parent), call.handle_at(made), Some(u64::from(tag) | 1 << 40));
    })
}

/// Local communicator, its leader, a communicator of both leaders, the other leader, tag, new communicator.
#[inline]
pub fn intercommunicator(call: MpiCall) -> i32 {
    call.recorded(kind::MPI_OTHER, |_| {
        let tag = call.arguments[4] as u32;
        // Both sides have other parents: the number is of what they agree on.
        communicator::made(0, call.handle_at(5), Some(u64::from(tag) | 1 << 41));
    })
}

/// A communicator's handle may be given again.
#[inline]
pub fn free_communicator(call: MpiCall) -> i32 {
    let handle = call.handle_at(0);
    let result = call.recorded(kind::MPI_OTHER, |record| record.object = communicator::number(handle));
    communicator::remove(handle);
    result
}

/// MPI begins: the thread is recorded from here on, and the origin of the rank is where this call ends.
pub fn init(call: MpiCall) -> i32 {
    thread::register(0, 0);
    let result = call.recorded(kind::MPI_INIT, |record| {
        static RANK: Real = Real::new(c"PMPI_Comm_rank");
        static SIZE: Real = Real::new(c"PMPI_Comm_size");
        let library = implementation();
        let (mut rank, mut size) = (0i32, 0i32);
        real!(RANK, fn(usize, *mut i32) -> i32, library.world(), &raw mut rank);
        real!(SIZE, fn(usize, *mut i32) -> i32, library.world(), &raw mut size);
        communicator::begin();
        record.peer = rank;
        record.amount = size as u64;
        let mut line = OutputLine::new();
        line.add(b"mpi ").add(library.name()).add(b" ").number(rank as u64).add(b" ").number(size as u64);
        process::line(&line);
    });
    process::maps();
    walk::own_range();
    result
}

/// MPI ends: all wait for all.
pub fn finalize(call: MpiCall) -> i32 {
    call.recorded(kind::MPI_FINALIZE, |record| record.object = communicator::WORLD)
}
