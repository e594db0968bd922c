//! Converts the calls in a recording to those of the analysis. Ranks become processes. Communicators, threads and objects in shared memory
//! get numbers that are unique in the recording; requests and other objects keep theirs, which are unique in their process.

use crate::ranks::RankList;
use crate::recording::{Process, RecordedCalls, WaitsRecording};
use std::collections::{HashMap, HashSet};
use trodden_waits::call::{
    Collective, CommunicatorId, CompletedRequest, Message, MultiExchange, ObjectId, RequestId, SleepKind, ThreadToken,
};
use trodden_waits::{Call, CollectiveWaitRule, ProcessId, WaitKind};
use trodden_wire::waits::{ANY_PEER, ANY_TAG, CallName, CallRecord, NO_PEER, ROOT_PEER, kind};

const COMM_WORLD: u64 = 1;
const COMM_SELF: u64 = 2;
/// Maximum size in bytes of messages that all common MPI libraries buffer, so that a send does not wait for the receive.
pub const MAX_BUFFERED_BYTES: u64 = 4096;
/// Flag in the number of a communicator. It keeps messages of neighbourhood collectives apart from messages that the program sends itself.
const NEIGHBOURHOOD_COMMUNICATOR_FLAG: u64 = 1 << 62;
const BARRIER_FUNCTIONS: [&str; 6] =
    ["MPI_Barrier", "MPI_Ibarrier", "MPI_Barrier_init", "MPIX_Barrier_init", "MPI_Win_fence", "MPI_Finalize"];
/// Endings of the names of operations in which a member may send no data to some of the others, and therefore need not make them wait.
const NONBINDING_FUNCTION_SUFFIXES: [&str; 9] =
    ["v", "w", "v_init", "w_init", "Reduce_scatter", "Ireduce_scatter", "Reduce_scatter_init", "Comm_idup", "Win_fence"];
/// Recorded as the result of a wait if the thread was woken. Other results are error numbers.
const WOKEN_RESULT: u64 = 0;
/// Recorded as the result of a futex wait that returned at once, because the value in memory was not the expected one.
const FUTEX_VALUE_CHANGED_RESULT: u64 = 11;
/// Recorded as the size of a collective operation that transfers no data. MPI libraries may return from it without waiting.
const NO_DATA_COLLECTIVE_SIZE: u64 = u64::MAX;

/// The processes that share one `MPI_COMM_WORLD`.
#[derive(Debug)]
struct MpiJob {
    size: u32,
    /// The recorded processes of the job by rank. Other processes may not have been recorded.
    processes: HashMap<u32, ProcessId>,
}

/// State of the conversion. It is shared by all processes, because calls refer to other processes.
#[derive(Debug, Default)]
pub struct CallRecordConverter {
    /// For each process, the index of its job and its rank; `None` for a process without MPI.
    ranks: Vec<Option<(u32, u32)>>,
    jobs: Vec<MpiJob>,
    communicators: HashMap<(u32, u64), CommunicatorId>,
    /// Process IDs of all recorded processes.
    pids: HashSet<u32>,
    /// For each request of a pending receive from any source, its communicator. Only the completion shows the source, as a rank in that
    /// communicator.
    wildcards: HashMap<(ProcessId, u64), u64>,
}

impl CallRecordConverter {
    pub fn new(recording: &WaitsRecording) -> CallRecordConverter {
        let pids = recording.processes.iter().map(|process| process.file.number).collect();
        let mut converter = CallRecordConverter { pids, ..CallRecordConverter::default() };
        for (index, process) in recording.processes.iter().enumerate() {
            converter.add_process(ProcessId(index as u32), process);
        }
        converter
    }

    fn add_process(&mut self, id: ProcessId, process: &Process) {
        let Some(mpi) = &process.file.mpi else { return self.ranks.push(None) };
        // Ranks are unique within a job. A process therefore belongs to the first job of its size that does not have this rank yet.
        let fits = |job: &MpiJob| job.size == mpi.size && mpi.rank < job.size && !job.processes.contains_key(&mpi.rank);
        let job = self.jobs.iter().position(fits).unwrap_or_else(|| {
            self.jobs.push(MpiJob { size: mpi.size, processes: HashMap::new() });
            self.jobs.len() - 1
        });
        if mpi.rank < mpi.size {
            self.jobs[job].processes.insert(mpi.rank, id);
        }
        self.ranks.push(Some((job as u32, mpi.rank)));
    }

    /// Returns the number of unrecorded ranks and the size of each job that is not completely recorded.
    pub fn missing_ranks(&self) -> Vec<(usize, usize)> {
        let missing = |job: &MpiJob| (job.size as usize - job.processes.len(), job.size as usize);
        self.jobs.iter().map(missing).filter(|(missing, _)| *missing > 0).collect()
    }

    /// Converts a recorded call. A call that cannot be interpreted becomes [`Call::Other`].
    pub fn convert_call(
        &mut self,
        process: &Process,
        id: ProcessId,
        thread_token: u64,
        record: &CallRecord,
        parts: &mut SupplementaryRecords,
    ) -> Call {
        self.convert_known_call(process, id, thread_token, record, parts).unwrap_or(Call::Other)
    }

    fn convert_known_call(
        &mut self,
        process: &Process,
        id: ProcessId,
        thread_token: u64,
        record: &CallRecord,
        parts: &mut SupplementaryRecords,
    ) -> Option<Call> {
        let object = object_id(process, record.kind, record.object);
        let request = RequestId(record.request);
        Some(match record.kind {
            _ if is_collective(record.kind) => self.convert_collective(process, id, record)?,
            _ if is_persistent_collective(record.kind) => {
                Call::PrepareCollective(self.convert_collective_arguments(process, id, record)?, request)
            }
            _ if record.kind < kind::START && record.kind & kind::PERSISTENT != 0 => {
                Call::Prepare(self.convert_message(process, id, record)?, record.kind & 0xf == kind::IRECV, request)
            }
            kind::SEND | kind::SYNC_SEND => Call::Send(self.convert_message(process, id, record)?, record.kind == kind::SYNC_SEND),
            kind::RECV => {
                let message = self.convert_message(process, id, record)?;
                let actual = parts.completed.first().and_then(|c| Some((self.find_peer(process, id, record.object, c.peer)?, c.tag)));
                Call::Receive(message, actual)
            }
            kind::ISEND | kind::SYNC_ISEND | kind::IRECV => {
                Call::Begin(self.convert_message(process, id, record)?, record.kind == kind::IRECV, request)
            }
            kind::SENDRECV => {
                match (self.convert_message(process, id, record), parts.receive.and_then(|r| self.convert_message(process, id, &r))) {
                    (Some(send), Some(receive)) => Call::Exchange(send, receive),
                    (Some(send), None) => Call::Send(send, false),
                    (None, Some(receive)) => Call::Receive(receive, None),
                    (None, None) => return None,
                }
            }
            kind::MEETING | kind::MEETING_INIT => self.convert_exchange(process, id, record, &parts.members)?,
            kind::PROBE => Call::Probe(self.convert_message(process, id, record)?),
            _ => self.convert_thread_call(process, record, id, thread_token, parts, object),
        })
    }

    fn convert_thread_call(
        &mut self,
        process: &Process,
        record: &CallRecord,
        id: ProcessId,
        thread_token: u64,
        parts: &mut SupplementaryRecords,
        object: ObjectId,
    ) -> Call {
        let is_woken = record.size_or_count == WOKEN_RESULT;
        match record.kind {
            kind::WAIT => Call::Wait(std::mem::take(&mut parts.requests)),
            kind::START => Call::Start(std::mem::take(&mut parts.starts)),
            kind::REQUEST_FREE => Call::Free(RequestId(record.request)),
            kind::MPI_INIT => self.ranks[id.0 as usize].map_or(Call::Other, |(job, _)| Call::BeginJob(job)),
            kind::LOCK if is_woken => Call::Lock(object),
            kind::LOCK => Call::Blocked,
            kind::UNLOCK | kind::WINDOW_UNLOCK => Call::Unlock(object),
            kind::WINDOW_LOCK => Call::Lock(object),
            kind::CONDITION_WAIT => {
                let mutex = object_id(process, record.kind, record.request);
                Call::Sleep(object, SleepKind::Condition(Some(mutex)), is_woken)
            }
            kind::SEMAPHORE_WAIT => Call::Sleep(object, SleepKind::Semaphore, is_woken),
            kind::FUTEX_WAIT if record.size_or_count == FUTEX_VALUE_CHANGED_RESULT => Call::Other,
            kind::FUTEX_WAIT => Call::Sleep(object, SleepKind::Futex, is_woken),
            kind::CONDITION_WAKE | kind::SEMAPHORE_POST | kind::FUTEX_WAKE => Call::Wake(object, record.size_or_count),
            kind::BARRIER => Call::ThreadBarrier(object, record.size_or_count.min(u64::from(u32::MAX)) as u32),
            kind::THREAD_CREATE => Call::Create(thread_token_of(id, record.object)),
            kind::THREAD_EXIT if record.function == CallName::process_exit as u16 => {
                Call::End(thread_token_of_child_process(process.file.number))
            }
            kind::THREAD_EXIT => Call::End(thread_token_of(id, thread_token)),
            kind::JOIN => Call::Join(thread_token_of(id, record.object)),
            kind::FORK => Call::Create(thread_token_of_child_process(record.object as u32)),
            kind::PROCESS_WAIT if self.is_recorded_pid(record.object) => Call::Join(thread_token_of_child_process(record.object as u32)),
            kind::BLOCKED | kind::PROCESS_WAIT => Call::Blocked,
            _ => Call::Other,
        }
    }

    /// Returns true if a recorded process has this ID. `result` is the return value of a call like `waitpid`.
    fn is_recorded_pid(&self, result: u64) -> bool {
        u32::try_from(result).is_ok_and(|number| self.pids.contains(&number))
    }

    fn convert_message(&mut self, process: &Process, id: ProcessId, record: &CallRecord) -> Option<Message> {
        let peer = match record.peer {
            ANY_PEER => {
                self.wildcards.insert((id, record.request), record.object);
                None
            }
            rank => Some(self.find_peer(process, id, record.object, rank)?),
        };
        let tag = (record.tag != ANY_TAG).then_some(record.tag);
        let is_synchronous = matches!(record.kind & !kind::PERSISTENT, kind::SYNC_SEND | kind::SYNC_ISEND);
        let is_buffered = record.size_or_count <= MAX_BUFFERED_BYTES && !is_synchronous;
        Some(Message { communicator: self.communicator_id(id, record.object)?, peer, tag, is_buffered })
    }

    /// Converts a call that exchanges messages with several processes: a call of a window's epoch, or a neighbourhood collective.
    fn convert_exchange(&mut self, process: &Process, id: ProcessId, record: &CallRecord, members: &[CallRecord]) -> Option<Call> {
        let wait_kind = match record.function {
            epoch if epoch == CallName::MPI_Win_start as u16 => WaitKind::LatePost,
            function if is_neighbourhood_exchange(function) => WaitKind::LateSender,
            _ => WaitKind::LateComplete,
        };
        let flag = if wait_kind == WaitKind::LateSender { NEIGHBOURHOOD_COMMUNICATOR_FLAG } else { 0 };
        let communicator = self.communicator_id(id, record.object ^ flag)?;
        let message = |member: &CallRecord| {
            let peer = Some(self.find_peer(process, id, record.object, member.peer)?);
            Some(Message { communicator, peer, tag: Some(member.tag), is_buffered: true })
        };
        let messages = |kind: u16| members.iter().filter(|m| m.kind == kind).filter_map(message).collect();
        let exchange = MultiExchange { sends: messages(kind::MEETING_SEND), receives: messages(kind::MEETING_RECV), kind: wait_kind };
        Some(match (record.kind, record.request) {
            (kind::MEETING, 0) => Call::MultiExchange(exchange),
            (kind::MEETING, request) => Call::BeginMultiExchange(exchange, RequestId(request)),
            (_, request) => Call::PrepareMultiExchange(exchange, RequestId(request)),
        })
    }

    /// Returns the process with the given rank in a communicator; `None` if that process is not recorded.
    fn find_peer(&self, process: &Process, id: ProcessId, communicator: u64, rank: i32) -> Option<ProcessId> {
        let rank = usize::try_from(rank).ok()?;
        let (job, _) = self.ranks[id.0 as usize]?;
        let world = match communicator {
            COMM_SELF => return Some(id),
            COMM_WORLD => rank,
            _ => {
                let members = process.file.communicators.get(&communicator)?;
                members.remote.as_ref().unwrap_or(&members.local).get(rank)?? as usize
            }
        };
        self.jobs[job as usize].processes.get(&u32::try_from(world).ok()?).copied()
    }

    fn communicator_id(&mut self, id: ProcessId, communicator: u64) -> Option<CommunicatorId> {
        let (job, _) = self.ranks[id.0 as usize]?;
        // Each process has its own `MPI_COMM_SELF`, so its number must include the process.
        let key = match communicator {
            0 => return None,
            COMM_SELF => (u32::MAX - id.0, COMM_SELF),
            other => (job, other),
        };
        let next = CommunicatorId(self.communicators.len() as u64);
        Some(*self.communicators.entry(key).or_insert(next))
    }

    fn convert_collective(&mut self, process: &Process, id: ProcessId, record: &CallRecord) -> Option<Call> {
        let collective = self.convert_collective_arguments(process, id, record)?;
        Some(match record.kind & kind::NON_BLOCKING != 0 && record.kind != kind::MPI_FINALIZE {
            true => Call::BeginCollective(collective, RequestId(record.request)),
            false => Call::Collective(collective),
        })
    }

    fn convert_collective_arguments(&mut self, process: &Process, id: ProcessId, record: &CallRecord) -> Option<Collective> {
        let (job, world_rank) = self.ranks[id.0 as usize]?;
        let (rank, size) = match record.object {
            COMM_SELF => (0, 1),
            COMM_WORLD => (world_rank, self.jobs[job as usize].size),
            other => {
                let members = process.file.communicators.get(&other)?;
                if let Some(remote) = &members.remote {
                    return self.intercommunicator_collective(id, record, world_rank, &members.local, remote);
                }
                (members.local.position(world_rank)? as u32, members.local.len() as u32)
            }
        };
        let name = trodden_wire::waits::FUNCTIONS.get(record.function as usize).copied().unwrap_or_default();
        Some(Collective {
            communicator: self.communicator_id(id, record.object)?,
            rule: collective_rule(record.kind),
            is_root: record.peer >= 0 && record.peer as u32 == rank,
            rank,
            size,
            is_barrier: BARRIER_FUNCTIONS.contains(&name),
            is_binding: record.size_or_count != NO_DATA_COLLECTIVE_SIZE && is_binding_collective(name),
        })
    }

    /// Converts a collective operation on an intercommunicator, in which a root exchanges data only with members of the other group.
    fn intercommunicator_collective(
        &mut self,
        id: ProcessId,
        record: &CallRecord,
        world_rank: u32,
        local: &RankList,
        remote: &RankList,
    ) -> Option<Collective> {
        let own = local.position(world_rank)?;
        // The members of both groups are numbered together. The group whose first member has the lower world rank comes first.
        let rank = (if local.get(0) > remote.get(0) { remote.len() } else { 0 } + own) as u32;
        let (rule, size) = match (collective_rule(record.kind), record.peer) {
            (rule @ (CollectiveWaitRule::FromRoot | CollectiveWaitRule::ToRoot), ROOT_PEER) => (rule, 1 + remote.len()),
            (CollectiveWaitRule::FromRoot | CollectiveWaitRule::ToRoot, NO_PEER) => (CollectiveWaitRule::Absent, 1 + remote.len()),
            (rule @ (CollectiveWaitRule::FromRoot | CollectiveWaitRule::ToRoot), _) => (rule, 1 + local.len()),
            (rule, _) => (rule, local.len() + remote.len()),
        };
        let communicator = self.communicator_id(id, record.object)?;
        let name = trodden_wire::waits::FUNCTIONS.get(record.function as usize).copied().unwrap_or_default();
        let (is_root, is_binding) =
            (record.peer == ROOT_PEER, record.size_or_count != NO_DATA_COLLECTIVE_SIZE && is_binding_collective(name));
        Some(Collective { communicator, rule, is_root, rank, size: size as u32, is_barrier: false, is_binding })
    }

    /// Returns the token by which the call that created a thread refers to it. A process's first thread was created with the process.
    /// Returns `None` if that call is not recorded.
    pub fn find_creator(&self, process: &Process, id: ProcessId, token: u64) -> Option<ThreadToken> {
        if token != 0 {
            return Some(thread_token_of(id, token));
        }
        (process.file.mpi.is_none() && self.pids.contains(&process.file.parent)).then(|| thread_token_of_child_process(process.file.number))
    }
}

fn is_neighbourhood_exchange(function: u16) -> bool {
    trodden_wire::waits::FUNCTIONS.get(function as usize).is_some_and(|name| name.contains("eighbor_"))
}

/// Returns the number of the object on which a call operates. All processes get the same number for an object in shared memory.
fn object_id(process: &Process, kind: u16, address: u64) -> ObjectId {
    let is_address = (kind::LOCK..=kind::SEMAPHORE_POST).contains(&kind) || matches!(kind, kind::FUTEX_WAIT | kind::FUTEX_WAKE);
    match is_address.then(|| process.file.shared_object(address)).flatten() {
        Some(number) => ObjectId(ObjectId::FIRST_SHARED_OBJECT | number),
        None => ObjectId(address),
    }
}

/// Returns true if no member of the collective operation with this name can return before all members that it waits for have entered it.
pub fn is_binding_collective(name: &str) -> bool {
    !name.starts_with("MPI_File_") && !NONBINDING_FUNCTION_SUFFIXES.iter().any(|end| name.ends_with(end))
}

fn thread_token_of(process: ProcessId, token: u64) -> ThreadToken {
    ThreadToken(u64::from(process.0) << 32 | token & 0xffff_ffff)
}

fn thread_token_of_child_process(number: u32) -> ThreadToken {
    ThreadToken(1 << 63 | u64::from(number))
}

fn collective_rule(kind: u16) -> CollectiveWaitRule {
    match kind & !(kind::NON_BLOCKING | kind::PERSISTENT) {
        kind::COLLECTIVE_FROM_ROOT => CollectiveWaitRule::FromRoot,
        kind::COLLECTIVE_TO_ROOT => CollectiveWaitRule::ToRoot,
        kind::COLLECTIVE_SCAN => CollectiveWaitRule::Scan,
        _ => CollectiveWaitRule::All,
    }
}

fn is_persistent_collective(kind: u16) -> bool {
    kind < kind::START && kind & kind::PERSISTENT != 0 && (kind::COLLECTIVE_ALL..=kind::COLLECTIVE_SCAN).contains(&(kind & 0xf))
}

fn is_collective(kind: u16) -> bool {
    kind == kind::MPI_FINALIZE
        || kind < kind::PERSISTENT && (kind::COLLECTIVE_ALL..=kind::COLLECTIVE_SCAN).contains(&(kind & !kind::NON_BLOCKING))
}

/// The records that follow a call and add data to it, such as those of completed requests.
#[derive(Debug, Default)]
pub struct SupplementaryRecords {
    completed: Vec<CallRecord>,
    receive: Option<CallRecord>,
    requests: Vec<CompletedRequest>,
    starts: Vec<RequestId>,
    members: Vec<CallRecord>,
    /// Number of records that were consumed.
    pub count: u32,
}

impl SupplementaryRecords {
    /// Consumes the records that follow a call and belong to it.
    pub fn collect(
        converter: &CallRecordConverter,
        process: &Process,
        id: ProcessId,
        record: &CallRecord,
        calls: &mut RecordedCalls,
    ) -> SupplementaryRecords {
        let mut parts = SupplementaryRecords::default();
        if record.kind == kind::START {
            parts.starts.push(RequestId(record.request));
        }
        loop {
            let is_part = |next: &&CallRecord| match next.kind {
                kind::COMPLETED => true,
                kind::MEETING_SEND | kind::MEETING_RECV => matches!(record.kind, kind::MEETING | kind::MEETING_INIT),
                kind::SENDRECV_RECV => record.kind == kind::SENDRECV,
                // For `MPI_Startall`, the first request is in the record of the call. The others have records of their own, with the time
                // at which the call returned.
                kind::START => record.kind == kind::START && next.enter == next.exit && next.enter == record.exit,
                _ => false,
            };
            let Some(next) = calls.peek_record().filter(is_part).copied() else { return parts };
            calls.next();
            parts.count += 1;
            match next.kind {
                kind::SENDRECV_RECV => parts.receive = Some(next),
                kind::START => parts.starts.push(RequestId(next.request)),
                kind::MEETING_SEND | kind::MEETING_RECV => parts.members.push(next),
                _ if next.request == 0 => parts.completed.push(next),
                _ => parts.requests.push(CompletedRequest {
                    request: RequestId(next.request),
                    peer: converter.find_completed_peer(process, id, &next),
                    tag: Some(next.tag),
                    is_cancelled: next.size_or_count != 0,
                }),
            }
        }
    }
}

impl CallRecordConverter {
    /// Returns the process whose message a receive has received. The recorded rank is relative to the communicator with which the receive
    /// was started.
    fn find_completed_peer(&self, process: &Process, id: ProcessId, record: &CallRecord) -> Option<ProcessId> {
        let communicator = self.wildcards.get(&(id, record.request)).copied().unwrap_or(COMM_WORLD);
        self.find_peer(process, id, communicator, record.peer)
    }
}
