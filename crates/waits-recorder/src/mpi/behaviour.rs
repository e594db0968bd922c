//! What is recorded of each kind of MPI call. `arguments` are the caller's, `call` carries the call out.

use super::communicator;
use super::implementation::{Implementation, STATUS_WORDS, implementation};
use crate::output::OutputLine;
use crate::real::{Real, real};
use crate::thread::{self, OpenRecord, Thread, add, begin, finish, outside};
use crate::{process, stack};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};
use trodden_wire::waits::{ANY_PEER, ANY_TAG, CallName, CallRecord, kind};

/// Position of the root of an operation that has none.
pub const NO_ROOT: usize = usize::MAX;
/// Amount of a collective operation on nothing, from which libraries return at once.
const EMPTY: u64 = u64::MAX;
/// Whether the process has cancelled a request: only then are statuses asked.
static HAS_CANCELLED: AtomicBool = AtomicBool::new(false);

/// A call with nothing but its time and what `fill` adds when it has returned.
#[inline]
pub fn recorded<const N: usize>(
    kind: u16,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
    fill: impl FnOnce(&mut CallRecord, &[usize; N], Implementation),
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let Some(mut open) = begin(thread, kind, function) else { return call(arguments) };
    let result = call(arguments);
    fill(open.record(), arguments, implementation());
    finish(thread, open);
    result
}

/// An argument, where the function has so many: a wrapper is made for each count, and some behaviours read more than the least
/// function has.
#[inline]
pub fn at<const N: usize>(arguments: &[usize; N], index: usize) -> usize {
    arguments.get(index).copied().unwrap_or(0)
}

/// The handle whose address is an argument.
#[inline]
pub fn handle_of<const N: usize>(arguments: &[usize; N], index: usize) -> usize {
    // SAFETY: the address of a handle, by MPI's definition of the function that is called.
    unsafe { implementation().handle_at(at(arguments, index), 0) }
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
fn address<const N: usize>(record: &mut CallRecord, arguments: &[usize; N], library: Implementation, [peer, tag, comm]: [usize; 3]) {
    record.peer = library.peer(at(arguments, peer));
    record.tag = library.tag(at(arguments, tag));
    record.object = communicator::number(library.handle(at(arguments, comm)));
}

/// A send, or a message that is begun: buffer, count, type, peer, tag, communicator, and a request. What is known at the
/// beginning is recorded before the call: a program killed inside it has named its partner.
#[inline]
pub fn message<const N: usize>(
    kind: u16,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let Some(mut open) = begin(thread, kind, function) else { return call(arguments) };
    let library = implementation();
    address(open.record(), arguments, library, [3, 4, 5]);
    open.record().amount = bytes(at(arguments, 1), at(arguments, 2));
    let result = call(arguments);
    if N > 6 {
        open.record().request = handle_of(arguments, 6) as u64;
    }
    finish(thread, open);
    result
}

/// Buffer, count, type, source, tag, communicator, status.
#[inline]
pub fn receive<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let Some(mut open) = begin(thread, kind::RECV, function) else { return call(arguments) };
    address(open.record(), arguments, implementation(), [3, 4, 5]);
    let wildcard = open.record().peer == ANY_PEER || open.record().tag == ANY_TAG;
    let mut spare = [0i32; STATUS_WORDS];
    let result = with_status(arguments, 6, &mut spare, call);
    let (peer, tag) = status(arguments, 6, &spare);
    finish(thread, open);
    if wildcard {
        completed(thread, &mut open, 0, (peer, tag), 0);
    }
    result
}

/// Carries a call out with a status of its own where the caller wants none.
#[inline]
pub fn with_status<const N: usize>(
    arguments: &mut [usize; N],
    position: usize,
    spare: &mut [i32; STATUS_WORDS],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    if !implementation().is_ignored(at(arguments, position)) {
        return call(arguments);
    }
    let kept = core::mem::replace(&mut arguments[position], spare.as_mut_ptr() as usize);
    let result = call(arguments);
    arguments[position] = kept;
    result
}

/// Where the status of a call is, behind [`with_status`].
#[inline]
pub fn status_at<const N: usize>(arguments: &[usize; N], position: usize, spare: &[i32; STATUS_WORDS]) -> usize {
    let given = at(arguments, position);
    if implementation().is_ignored(given) { spare.as_ptr() as usize } else { given }
}

/// Source and tag behind [`with_status`].
#[inline]
pub fn status<const N: usize>(arguments: &[usize; N], position: usize, spare: &[i32; STATUS_WORDS]) -> (i32, i32) {
    let library = implementation();
    let address = status_at(arguments, position, spare);
    // SAFETY: the caller's status, or the spare one.
    unsafe { library.source_and_tag(address, 0) }
}

#[inline]
pub fn completed(thread: &mut Thread, open: &mut OpenRecord, request: u64, (peer, tag): (i32, i32), amount: u64) {
    // The piece of the open record may be gone once another is begun: copy first.
    let common = open.copy();
    add(thread, CallRecord { peer, tag, amount, request, ..common });
}

/// A send and a receive at once; positions of destination, its tag, source, its tag, communicator. The status follows.
#[inline]
pub fn exchange<const N: usize>(
    [to, to_tag, from, from_tag, comm]: [usize; 5],
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let Some(mut open) = begin(thread, kind::SENDRECV, function) else { return call(arguments) };
    let library = implementation();
    address(open.record(), arguments, library, [to, to_tag, comm]);
    open.record().amount = bytes(at(arguments, 1), at(arguments, 2));
    let mut spare = [0i32; STATUS_WORDS];
    let result = with_status(arguments, comm + 1, &mut spare, call);
    let (source, tag) = status(arguments, comm + 1, &spare);
    finish(thread, open);
    let mut second = *open.record();
    second.kind = kind::SENDRECV_RECV;
    address(&mut second, arguments, library, [from, from_tag, comm]);
    if second.peer == ANY_PEER {
        second.peer = source;
    }
    if second.tag == ANY_TAG {
        second.tag = tag;
    }
    add(thread, second);
    result
}

/// Starts a persistent request.
#[inline]
pub fn start<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let request = handle_of(arguments, 0) as u64;
    recorded(kind::START, function, arguments, call, |record, _, _| record.request = request)
}

/// Starts several.
#[inline]
pub fn start_all<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let Some(mut open) = begin(thread, kind::START, function) else { return call(arguments) };
    let library = implementation();
    let count = arguments[0] as i32;
    // SAFETY: the array's address and size, by MPI's definition.
    let request = |index| unsafe { library.handle_at(at(arguments, 1), index) } as u64;
    open.record().request = if count > 0 { request(0) } else { 0 };
    let first = *open.record();
    let others: (u64, CallRecord) = (count.max(1) as u64 - 1, first);
    let result = call(arguments);
    finish(thread, open);
    let exit = open.record().exit;
    for index in 0..others.0 as usize {
        // Persistent requests keep their handles, so they can be read after the call.
        // SAFETY: as above.
        let request = unsafe { library.handle_at(at(arguments, 1), index + 1) } as u64;
        add(thread, CallRecord { enter: exit, exit, request, cpu_ns: 0, ..others.1 });
    }
    result
}

/// Frees a request.
#[inline]
pub fn free_request<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let request = handle_of(arguments, 0) as u64;
    recorded(kind::REQUEST_FREE, function, arguments, call, |record, _, _| record.request = request)
}

/// Source, tag, communicator, status.
#[inline]
pub fn probe<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    probed(3, function, arguments, call)
}

/// Source, tag, communicator, flag, status.
#[inline]
pub fn immediate_probe<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let Some(mut open) = begin(thread, kind::PROBE, function) else { return call(arguments) };
    address(open.record(), arguments, implementation(), [0, 1, 2]);
    let mut spare = [0i32; STATUS_WORDS];
    let result = with_status(arguments, 4, &mut spare, call);
    if !is_set(at(arguments, 3)) {
        thread.withdraw(open);
        return result;
    }
    let (peer, tag) = status(arguments, 4, &spare);
    (open.record().peer, open.record().tag) = (peer, tag);
    thread.end_polling(&mut open);
    finish(thread, open);
    result
}

/// Source, tag, communicator, message, status.
#[inline]
pub fn matched_probe<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let result = probed(4, function, arguments, call);
    let message = handle_of(arguments, 3);
    MATCHED.set((message, LAST_PROBE.get()));
    result
}

thread_local! {
    /// Peer, tag and communicator of the newest probe.
    static LAST_PROBE: Cell<(i32, i32, u64)> = const { Cell::new((0, 0, 0)) };
    /// The same of the newest matched probe, with its message.
    static MATCHED: Cell<(usize, (i32, i32, u64))> = const { Cell::new((0, (0, 0, 0))) };
}

fn probed<const N: usize>(
    position: usize,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let Some(mut open) = begin(thread, kind::PROBE, function) else { return call(arguments) };
    address(open.record(), arguments, implementation(), [0, 1, 2]);
    let mut spare = [0i32; STATUS_WORDS];
    let result = with_status(arguments, position, &mut spare, call);
    let (peer, tag) = status(arguments, position, &spare);
    open.record().peer = peer;
    open.record().tag = tag;
    LAST_PROBE.set((peer, tag, open.record().object));
    finish(thread, open);
    result
}

/// Buffer, count, type, message, status: the receive of what a matched probe found.
#[inline]
pub fn matched_receive<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let message = handle_of(arguments, 3);
    let (matched, (peer, tag, object)) = MATCHED.get();
    let is_known = matched == message;
    recorded(if is_known { kind::RECV } else { kind::MPI_OTHER }, function, arguments, call, |record, _, _| {
        if is_known {
            (record.peer, record.tag, record.object) = (peer, tag, object);
        }
    })
}

/// A flag that the call set.
pub fn is_set(address: usize) -> bool {
    // SAFETY: a flag's address, by MPI's definition.
    unsafe { (address as *const i32).read() != 0 }
}

/// A collective operation; positions of its root and its communicator. A request follows the communicator if it does not block.
#[inline]
pub fn collective<const N: usize>(
    kind: u16,
    root: usize,
    comm: usize,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    let Some(thread) = outside() else { return call(arguments) };
    let Some(mut open) = begin(thread, kind, function) else { return call(arguments) };
    let library = implementation();
    let record = open.record();
    record.object = communicator::number(library.handle(at(arguments, comm)));
    if root != NO_ROOT {
        record.peer = library.root(at(arguments, root));
    }
    if is_empty(function, arguments) {
        record.amount = EMPTY;
    }
    let result = call(arguments);
    if kind & trodden_wire::waits::kind::NON_BLOCKING != 0 {
        open.record().request = handle_of(arguments, comm + 1) as u64;
    }
    finish(thread, open);
    result
}

/// Whether a collective operation is on nothing. Of those with several counts, the caller's own is meant.
#[inline]
fn is_empty<const N: usize>(function: CallName, arguments: &[usize; N]) -> bool {
    match function {
        CallName::MPI_Barrier | CallName::MPI_Ibarrier => false,
        CallName::MPI_Bcast | CallName::MPI_Ibcast => bytes(at(arguments, 1), at(arguments, 2)) == 0,
        CallName::MPI_Reduce
        | CallName::MPI_Ireduce
        | CallName::MPI_Allreduce
        | CallName::MPI_Iallreduce
        | CallName::MPI_Reduce_scatter_block
        | CallName::MPI_Ireduce_scatter_block
        | CallName::MPI_Scan
        | CallName::MPI_Iscan
        | CallName::MPI_Exscan
        | CallName::MPI_Iexscan => at(arguments, 2) as u32 == 0,
        _ => at(arguments, 1) as u32 == 0,
    }
}

/// A request is cancelled: whether that came in time, its status says when it is complete.
#[inline]
pub fn cancel<const N: usize>(_: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    HAS_CANCELLED.store(true, Ordering::Release);
    call(arguments)
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
pub fn collective_init<const N: usize>(
    kind: u16,
    root: usize,
    comm: usize,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    recorded(kind | trodden_wire::waits::kind::PERSISTENT, function, arguments, call, |record, arguments, library| {
        record.object = communicator::number(library.handle(at(arguments, comm)));
        if root != NO_ROOT {
            record.peer = library.root(at(arguments, root));
        }
        record.request = handle_of(arguments, comm + 2) as u64;
    })
}

/// A communicator is made by all of another; positions of both.
#[inline]
pub fn communicator<const N: usize>(
    parent: usize,
    made: usize,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    recorded(kind::COLLECTIVE_ALL, function, arguments, call, |record, arguments, library| {
        let from = library.handle(at(arguments, parent));
        record.object = communicator::number(from);
        communicator::made(from, handle_of(arguments, made), None);
    })
}

/// The same, to be completed later: the group is that of the parent, so nothing has to be waited for.
#[inline]
pub fn communicator_later<const N: usize>(
    parent: usize,
    made: usize,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    recorded(kind::COLLECTIVE_ALL | kind::NON_BLOCKING, function, arguments, call, |record, arguments, library| {
        let from = library.handle(at(arguments, parent));
        record.object = communicator::number(from);
        record.request = handle_of(arguments, made + 1) as u64;
        process::note(b"MPI_Comm_idup: messages on the communicator that it makes are not matched");
    })
}

/// A communicator is made by some of another: no rule says who waits for whom.
#[inline]
pub fn communicator_of_group<const N: usize>(
    parent: usize,
    made: usize,
    function: CallName,
    arguments: &mut [usize; N],
    call: impl FnOnce(&mut [usize; N]) -> i32,
) -> i32 {
    recorded(kind::MPI_OTHER, function, arguments, call, |_, arguments, library| {
        let from = library.handle(at(arguments, parent));
        // The tag is the argument before the new communicator in both functions.
        let tag = at(arguments, made - 1) as u32;
        communicator::made(from, handle_of(arguments, made), Some(u64::from(tag) | 1 << 40));
    })
}

/// Local communicator, its leader, a communicator of both leaders, the other leader, tag, new communicator.
#[inline]
pub fn intercommunicator<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::MPI_OTHER, function, arguments, call, |_, arguments, _| {
        let tag = at(arguments, 4) as u32;
        // Both sides have other parents: the number is of what they agree on.
        communicator::made(0, handle_of(arguments, 5), Some(u64::from(tag) | 1 << 41));
    })
}

/// A communicator's handle may be given again.
#[inline]
pub fn free_communicator<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    let handle = handle_of(arguments, 0);
    let result = recorded(kind::MPI_OTHER, function, arguments, call, |record, _, _| record.object = communicator::number(handle));
    communicator::remove(handle);
    result
}

/// MPI begins: the thread is recorded from here on, and the origin of the rank is where this call ends.
pub fn init<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    thread::register(0);
    let result = recorded(kind::MPI_INIT, function, arguments, call, |record, _, library| {
        static RANK: Real = Real::new(c"PMPI_Comm_rank");
        static SIZE: Real = Real::new(c"PMPI_Comm_size");
        let (mut rank, mut size) = (0i32, 0i32);
        real!(RANK, fn(usize, *mut i32) -> i32, library.world(), &raw mut rank);
        real!(SIZE, fn(usize, *mut i32) -> i32, library.world(), &raw mut size);
        communicator::begin();
        record.peer = rank;
        record.amount = size as u64;
        let mut line = OutputLine::new();
        line.add(b"mpi ").add(library.name()).add(b" ").number(rank as u64).add(b" ").number(size as u64);
        process::line(&mut line);
    });
    process::maps();
    stack::own_range();
    result
}

/// MPI ends: all wait for all.
pub fn finalize<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::MPI_FINALIZE, function, arguments, call, |record, _, _| record.object = communicator::WORLD)
}

/// A call that transfers data, and by no rule waits for another process.
#[inline]
pub fn transfer<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::MPI_TRANSFER, function, arguments, call, |_, _, _| {})
}

/// A call for which there is no rule.
#[inline]
pub fn other<const N: usize>(function: CallName, arguments: &mut [usize; N], call: impl FnOnce(&mut [usize; N]) -> i32) -> i32 {
    recorded(kind::MPI_OTHER, function, arguments, call, |_, _, _| {})
}
