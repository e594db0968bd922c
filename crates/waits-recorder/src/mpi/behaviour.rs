//! Functions that make and record MPI calls, one for each kind of call. Each doc comment lists the arguments of the MPI function.
//! Parameters of type `usize` are positions in that list, counted from 0.

use super::call::{MpiCall, source_and_tag};
use super::communicator;
use super::implementation::{Implementation, STATUS_WORDS, implementation};
use crate::output::OutputLine;
use crate::real::{RealFunction, real};
use crate::thread::{self, OpenRecord, Thread, add_record, finish_record};
use crate::{process, walk};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use trodden_wire::waits::{ANY_PEER, ANY_TAG, CallName, CallRecord, kind};

/// Passed as the position of the root argument if a collective operation has no root.
pub const NO_ROOT: usize = usize::MAX;
/// Recorded instead of a size if a collective operation transfers no data. The report must know, because MPI libraries may return from such
/// an operation without waiting.
const NO_DATA_SIZE: u64 = u64::MAX;
/// True once the process has cancelled a request. Until then, no status needs to be tested for cancellation.
static HAS_CANCELLED_A_REQUEST: AtomicBool = AtomicBool::new(false);

/// Makes a call and records only its start and end, because it does not wait for another process, or because the report cannot explain its
/// waits.
#[inline]
pub fn record_call_times_only(call: MpiCall, kind: u16) -> i32 {
    call.run_recorded(kind, |_| {})
}

fn message_bytes(count: usize, datatype: usize) -> u64 {
    static SIZE: RealFunction = RealFunction::new(c"PMPI_Type_size");
    thread_local!(static LAST: Cell<(usize, i32)> = const { Cell::new((0, 0)) });
    let mut size = LAST.get();
    if size.0 != datatype {
        // Only the sizes of predefined types are cached, because the handle of a freed type may be reused for another type.
        real!(SIZE, fn(usize, *mut i32) -> i32, datatype, &raw mut size.1);
        size.0 = datatype;
        LAST.set(if implementation() == Implementation::Mpich && datatype & 0xff00_0000 == 0x4c00_0000 { size } else { (0, 0) });
    }
    (count as u32 as u64) * size.1.max(0) as u64
}

#[inline]
fn fill_peer_fields(record: &mut CallRecord, call: &MpiCall, [peer, tag, comm]: [usize; 3]) {
    let library = implementation();
    record.peer = library.recorded_peer(call.arguments[peer]);
    record.tag = library.recorded_tag(call.arguments[tag]);
    record.object = call.communicator_number(comm);
}

/// Records a send (blocking or non-blocking) or a non-blocking receive. Arguments: buffer, count, type, peer, tag, communicator, and a
/// request if the function is non-blocking. They are recorded before the call, so that the peer is known even if the program is killed
/// inside the call.
#[inline]
pub fn record_message(call: MpiCall, kind: u16) -> i32 {
    let Some((thread, mut open)) = call.begin(kind) else { return call.run() };
    fill_peer_fields(open.record(), &call, [3, 4, 5]);
    open.record().size_or_count = message_bytes(call.arguments[1], call.arguments[2]);
    let result = call.run();
    // `read_handle` returns 0 for a function without a request.
    open.record().request = call.read_handle(6) as u64;
    finish_record(thread, open);
    result
}

/// Records a blocking receive. Arguments: buffer, count, type, source, tag, communicator, status.
#[inline]
pub fn record_receive(mut call: MpiCall) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::RECV) else { return call.run() };
    fill_peer_fields(open.record(), &call, [3, 4, 5]);
    let wildcard = open.record().peer == ANY_PEER || open.record().tag == ANY_TAG;
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.ensure_statuses(6, spare.as_mut_ptr());
    let result = call.run();
    finish_record(thread, open);
    if wildcard {
        add_completion_record(thread, &mut open, 0, source_and_tag(status, 0), 0);
    }
    result
}

#[inline]
pub fn add_completion_record(thread: &mut Thread, open: &mut OpenRecord, request: u64, (peer, tag): (i32, i32), amount: u64) {
    // The fields are copied first, because adding a record may unmap the chunk that contains the open record.
    let common = open.completion_template();
    add_record(thread, CallRecord { peer, tag, size_or_count: amount, request, ..common });
}

/// Records a combined send and receive. The array contains the positions of the destination and its tag, the source and its tag, and the
/// communicator. The status argument follows the communicator.
#[inline]
pub fn record_send_receive(mut call: MpiCall, [to, to_tag, from, from_tag, comm]: [usize; 5]) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::SENDRECV) else { return call.run() };
    fill_peer_fields(open.record(), &call, [to, to_tag, comm]);
    open.record().size_or_count = message_bytes(call.arguments[1], call.arguments[2]);
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.ensure_statuses(comm + 1, spare.as_mut_ptr());
    let result = call.run();
    let (source, tag) = source_and_tag(status, 0);
    finish_record(thread, open);
    let mut second = *open.record();
    second.kind = kind::SENDRECV_RECV;
    fill_peer_fields(&mut second, &call, [from, from_tag, comm]);
    if second.peer == ANY_PEER {
        second.peer = source;
    }
    if second.tag == ANY_TAG {
        second.tag = tag;
    }
    add_record(thread, second);
    result
}

/// Records a call that starts or frees the request that is its first argument.
#[inline]
pub fn record_call_on_request(call: MpiCall, kind: u16) -> i32 {
    let request = call.read_handle(0) as u64;
    call.run_recorded(kind, |record| record.request = request)
}

/// Records the start of several persistent requests. Arguments: count, requests.
#[inline]
pub fn record_request_starts(call: MpiCall) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::START) else { return call.run() };
    let count = (call.arguments[0] as i32).max(0) as usize;
    // SAFETY: MPI requires that the array contains `count` handles.
    let request = |index| unsafe { implementation().read_handle(call.arguments[1], index) } as u64;
    open.record().request = if count > 0 { request(0) } else { 0 };
    let first = *open.record();
    let result = call.run();
    finish_record(thread, open);
    let exit = open.record().exit;
    // Persistent requests keep their handles, so the array can be read after the call.
    for request in (1..count).map(request) {
        add_record(thread, CallRecord { enter: exit, exit, request, cpu_ns: 0, ..first });
    }
    result
}

/// Records a non-blocking probe. Arguments: source, tag, communicator, flag, status.
#[inline]
pub fn record_immediate_probe(mut call: MpiCall) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::PROBE) else { return call.run() };
    fill_peer_fields(open.record(), &call, [0, 1, 2]);
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.ensure_statuses(4, spare.as_mut_ptr());
    let result = call.run();
    if call.read_integer(3) == 0 {
        thread.fold_test_into_polling_loop(open);
        return result;
    }
    (open.record().peer, open.record().tag) = source_and_tag(status, 0);
    thread.end_polling_loop(&mut open);
    finish_record(thread, open);
    result
}

/// Records a matched probe (`MPI_Mprobe`), which also returns a handle to the message. Arguments: source, tag, communicator, message,
/// status.
#[inline]
pub fn record_matched_probe(call: MpiCall) -> i32 {
    let result = record_probe(call, 4);
    LAST_MATCHED_MESSAGE.set((call.read_handle(3), ENVELOPE_OF_LAST_PROBE.get()));
    result
}

/// Peer, tag and communicator of a message.
type MessageEnvelope = (i32, i32, u64);

thread_local! {
    /// Envelope of the message that the thread's last probe has found.
    static ENVELOPE_OF_LAST_PROBE: Cell<MessageEnvelope> = const { Cell::new((0, 0, 0)) };
    /// Handle and envelope of the message that the thread's last matched probe has found.
    static LAST_MATCHED_MESSAGE: Cell<(usize, MessageEnvelope)> = const { Cell::new((0, (0, 0, 0))) };
}

/// Records a blocking probe. Arguments: source, tag, communicator, and the status at position `status`.
#[inline]
pub fn record_probe(mut call: MpiCall, status: usize) -> i32 {
    let Some((thread, mut open)) = call.begin(kind::PROBE) else { return call.run() };
    fill_peer_fields(open.record(), &call, [0, 1, 2]);
    let mut spare = [0i32; STATUS_WORDS];
    let status = call.ensure_statuses(status, spare.as_mut_ptr());
    let result = call.run();
    let (peer, tag) = source_and_tag(status, 0);
    (open.record().peer, open.record().tag) = (peer, tag);
    ENVELOPE_OF_LAST_PROBE.set((peer, tag, open.record().object));
    finish_record(thread, open);
    result
}

/// Records the receive of a message that a matched probe has found (`MPI_Mrecv`). Arguments: buffer, count, type, message, status.
#[inline]
pub fn record_matched_receive(call: MpiCall) -> i32 {
    let (matched, (peer, tag, object)) = LAST_MATCHED_MESSAGE.get();
    if matched != call.read_handle(3) {
        return record_call_times_only(call, kind::MPI_OTHER);
    }
    call.run_recorded(kind::RECV, |record| (record.peer, record.tag, record.object) = (peer, tag, object))
}

/// Records a collective operation. `root` and `comm` are the positions of the root and the communicator. If the operation is non-blocking,
/// a request argument follows the communicator.
#[inline]
pub fn record_collective(call: MpiCall, kind: u16, root: usize, comm: usize) -> i32 {
    let Some((thread, mut open)) = call.begin(kind) else { return call.run() };
    let record = open.record();
    record.object = call.communicator_number(comm);
    if root != NO_ROOT {
        record.peer = implementation().recorded_root(call.arguments[root]);
    }
    if transfers_no_data(&call) {
        record.size_or_count = NO_DATA_SIZE;
    }
    let result = call.run();
    if kind & trodden_wire::waits::kind::NON_BLOCKING != 0 {
        open.record().request = call.read_handle(comm + 1) as u64;
    }
    finish_record(thread, open);
    result
}

/// Returns true if a collective operation transfers no data. If the function has both a send count and a receive count, the send count
/// decides.
#[inline]
fn transfers_no_data(call: &MpiCall) -> bool {
    let arguments = &call.arguments;
    match call.function {
        CallName::MPI_Barrier | CallName::MPI_Ibarrier => false,
        CallName::MPI_Bcast | CallName::MPI_Ibcast => message_bytes(arguments[1], arguments[2]) == 0,
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

/// Makes a call that cancels a request, without recording it. Whether the cancellation succeeded is only known from the request's status
/// when it completes.
#[inline]
pub fn run_unrecorded_cancel(call: MpiCall) -> i32 {
    HAS_CANCELLED_A_REQUEST.store(true, Ordering::Release);
    call.run()
}

/// Returns 1 if the `index`-th status in an array shows that its request was cancelled, and 0 otherwise. The record of the request's
/// completion stores this as its amount.
#[inline]
pub fn read_cancelled_as_amount(statuses: usize, index: usize) -> u64 {
    static TEST: RealFunction = RealFunction::new(c"PMPI_Test_cancelled");
    if !HAS_CANCELLED_A_REQUEST.load(Ordering::Acquire) {
        return 0;
    }
    let mut flag = 0i32;
    real!(TEST, fn(usize, *mut i32) -> i32, statuses + index * implementation().status_words() * 4, &raw mut flag);
    u64::from(flag != 0)
}

/// Records the creation of a persistent collective operation. Arguments: those of the operation, an info, and a request.
#[inline]
pub fn record_collective_init(call: MpiCall, kind: u16, root: usize, comm: usize) -> i32 {
    call.run_recorded(kind | trodden_wire::waits::kind::PERSISTENT, |record| {
        record.object = call.communicator_number(comm);
        if root != NO_ROOT {
            record.peer = implementation().recorded_root(call.arguments[root]);
        }
        record.request = call.read_handle(comm + 2) as u64;
    })
}

/// Records a collective call that creates a communicator. `parent` and `created` are the positions of the existing and the new
/// communicator.
#[inline]
pub fn record_communicator(call: MpiCall, parent: usize, created: usize) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL, |record| {
        record.object = call.communicator_number(parent);
        communicator::register_communicator(call.handle(parent), call.read_handle(created), None);
    })
}

/// Records a non-blocking call that creates a communicator. A request argument follows the new communicator; see also
/// [`record_communicator`].
#[inline]
pub fn record_communicator_nonblocking(call: MpiCall, parent: usize, created: usize) -> i32 {
    call.run_recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, |record| {
        record.object = call.communicator_number(parent);
        record.request = call.read_handle(created + 1) as u64;
        process::append_note(b"MPI_Comm_idup: messages on the communicator that it creates are not matched");
    })
}

/// Records a call with which only some members of a communicator create a new one. The report does not explain waits in the new
/// communicator.
#[inline]
pub fn record_group_communicator(call: MpiCall, parent: usize, created: usize) -> i32 {
    call.run_recorded(kind::MPI_OTHER, |_| {
        // The tag is the argument before the new communicator.
        let tag = call.arguments[created - 1] as u32;
        communicator::register_communicator(call.handle(parent), call.read_handle(created), Some(u64::from(tag) | 1 << 40));
    })
}

/// Records the creation of an intercommunicator. Arguments: local communicator, its leader, a communicator that contains both leaders, the
/// remote leader, tag, new communicator.
#[inline]
pub fn record_intercommunicator(call: MpiCall) -> i32 {
    call.run_recorded(kind::MPI_OTHER, |_| {
        let tag = call.arguments[4] as u32;
        // The two groups have different parents, so only values that are the same in both groups may affect the new communicator's number.
        communicator::register_communicator(0, call.read_handle(5), Some(u64::from(tag) | 1 << 41));
    })
}

/// Records a call that frees a communicator. Its handle is removed, because the library may reuse it.
#[inline]
pub fn record_communicator_free(call: MpiCall) -> i32 {
    let handle = call.read_handle(0);
    let result = call.run_recorded(kind::MPI_OTHER, |record| record.object = communicator::communicator_number_of_handle(handle));
    communicator::remove_handle(handle);
    result
}

/// Records the initialisation of MPI. The thread is recorded from here on.
pub fn record_init(call: MpiCall) -> i32 {
    thread::register_current_thread(0, 0);
    let result = call.run_recorded(kind::MPI_INIT, |record| {
        static RANK: RealFunction = RealFunction::new(c"PMPI_Comm_rank");
        static SIZE: RealFunction = RealFunction::new(c"PMPI_Comm_size");
        let library = implementation();
        let (mut rank, mut size) = (0i32, 0i32);
        real!(RANK, fn(usize, *mut i32) -> i32, library.world_communicator(), &raw mut rank);
        real!(SIZE, fn(usize, *mut i32) -> i32, library.world_communicator(), &raw mut size);
        communicator::register_predefined();
        record.peer = rank;
        record.size_or_count = size as u64;
        let mut line = OutputLine::new();
        line.add(b"mpi ").add(library.name()).add(b" ").add_number(rank as u64).add(b" ").add_number(size as u64);
        process::append_line(&line);
    });
    process::append_memory_maps();
    walk::find_own_code_range();
    result
}

/// Records `MPI_Finalize`, in which every rank may wait for all others.
pub fn record_finalize(call: MpiCall) -> i32 {
    call.run_recorded(kind::MPI_FINALIZE, |record| record.object = communicator::WORLD_COMMUNICATOR_NUMBER)
}
