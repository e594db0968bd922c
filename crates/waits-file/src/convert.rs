//! Records to calls: ranks of communicators to processes, requests and objects to numbers.

use crate::ranks::RankList;
use crate::recording::{Process, RecordedCalls, Recording};
use std::collections::{HashMap, HashSet};
use trodden_waits::call::{Collective, CommunicatorId, Completed, Message, MultiExchange, ObjectId, RequestId, SleepKind, Token};
use trodden_waits::{Call, ProcessId, Rule, WaitKind};
use trodden_wire::waits::{ANY_PEER, ANY_TAG, CallName, CallRecord, NO_PEER, ROOT_PEER, kind};

/// Numbers of the communicators that are there from the start.
const WORLD: u64 = 1;
const OWN: u64 = 2;
/// Bytes of a message that MPI libraries copy, so that its send need not wait for the receive: the least limit of those that are common.
pub const BUFFERED: u64 = 4096;
/// Added to the number of a communicator for what its neighbourhood operations exchange.
const NEIGHBOURS: u64 = 1 << 62;
/// Operations that only synchronise.
const BARRIERS: [&str; 6] = ["MPI_Barrier", "MPI_Ibarrier", "MPI_Barrier_init", "MPIX_Barrier_init", "MPI_Win_fence", "MPI_Finalize"];
/// Ends of names of operations in which members may give nothing to some others.
const PARTIAL: [&str; 9] =
    ["v", "w", "v_init", "w_init", "Reduce_scatter", "Ireduce_scatter", "Reduce_scatter_init", "Comm_idup", "Win_fence"];
/// Results of waits that ended by themselves are error numbers; a futex whose value has changed is none that a thread waited for.
const WOKEN: u64 = 0;
/// What a wait for a futex gives whose value is another one.
const EAGAIN: u64 = 11;
/// Amount of a collective operation on nothing, which libraries leave early.
const EMPTY: u64 = u64::MAX;

/// The processes of one MPI_COMM_WORLD.
#[derive(Debug)]
struct Job {
    size: u32,
    /// Those of the recording, by rank.
    processes: HashMap<u32, ProcessId>,
}

/// What conversion needs to know of all processes.
#[derive(Debug, Default)]
pub struct Converter {
    /// Job and rank of each process.
    places: Vec<Option<(u32, u32)>>,
    jobs: Vec<Job>,
    communicators: HashMap<(u32, u64), CommunicatorId>,
    numbers: HashSet<u32>,
    /// Communicators of receives from any that are not complete.
    wildcards: HashMap<(ProcessId, u64), u64>,
}

impl Converter {
    /// For a recording.
    pub fn new(recording: &Recording) -> Converter {
        let numbers = recording.processes.iter().map(|process| process.file.number).collect();
        let mut converter = Converter { numbers, ..Converter::default() };
        for (index, process) in recording.processes.iter().enumerate() {
            converter.add(ProcessId(index as u32), process);
        }
        converter
    }

    fn add(&mut self, id: ProcessId, process: &Process) {
        let Some(mpi) = &process.file.mpi else { return self.places.push(None) };
        // Ranks of a job differ: a process belongs to the first of its size that lacks its rank.
        let fits = |job: &Job| job.size == mpi.size && mpi.rank < job.size && !job.processes.contains_key(&mpi.rank);
        let job = self.jobs.iter().position(fits).unwrap_or_else(|| {
            self.jobs.push(Job { size: mpi.size, processes: HashMap::new() });
            self.jobs.len() - 1
        });
        if mpi.rank < mpi.size {
            self.jobs[job].processes.insert(mpi.rank, id);
        }
        self.places.push(Some((job as u32, mpi.rank)));
    }

    /// Ranks that the recording lacks, by job.
    pub fn missing_ranks(&self) -> Vec<(usize, usize)> {
        let missing = |job: &Job| (job.size as usize - job.processes.len(), job.size as usize);
        self.jobs.iter().map(missing).filter(|(missing, _)| *missing > 0).collect()
    }

    /// The call of a thread, and whether it made or ends another one.
    pub fn call(&mut self, process: &Process, id: ProcessId, thread_token: u64, record: &CallRecord, rest: &mut ConvertedParts) -> Call {
        self.known_call(process, id, thread_token, record, rest).unwrap_or(Call::Other)
    }

    fn known_call(
        &mut self,
        process: &Process,
        id: ProcessId,
        thread_token: u64,
        record: &CallRecord,
        rest: &mut ConvertedParts,
    ) -> Option<Call> {
        let object = object_of(process, record.kind, record.object);
        let request = RequestId(record.request);
        Some(match record.kind {
            _ if is_collective(record.kind) => self.collective(process, id, record)?,
            _ if is_prepared_collective(record.kind) => Call::PrepareCollective(self.collective_of(process, id, record)?, request),
            _ if record.kind < kind::START && record.kind & kind::PERSISTENT != 0 => {
                Call::Prepare(self.message(process, id, record)?, record.kind & 0xf == kind::IRECV, request)
            }
            kind::SEND | kind::SYNC_SEND => Call::Send(self.message(process, id, record)?, record.kind == kind::SYNC_SEND),
            kind::RECV => {
                let message = self.message(process, id, record)?;
                let actual = rest.completed.first().and_then(|c| Some((self.peer(process, id, record.object, c.peer)?, c.tag)));
                Call::Receive(message, actual)
            }
            kind::ISEND | kind::SYNC_ISEND | kind::IRECV => {
                Call::Begin(self.message(process, id, record)?, record.kind == kind::IRECV, request)
            }
            kind::SENDRECV => match (self.message(process, id, record), rest.receive.and_then(|r| self.message(process, id, &r))) {
                (Some(send), Some(receive)) => Call::Exchange(send, receive),
                (Some(send), None) => Call::Send(send, false),
                (None, Some(receive)) => Call::Receive(receive, None),
                (None, None) => return None,
            },
            kind::MEETING | kind::MEETING_INIT => self.exchange(process, id, record, &rest.members)?,
            kind::PROBE => Call::Probe(self.message(process, id, record)?),
            _ => self.other(process, record, id, thread_token, rest, object),
        })
    }

    fn other(
        &mut self,
        process: &Process,
        record: &CallRecord,
        id: ProcessId,
        thread_token: u64,
        rest: &mut ConvertedParts,
        object: ObjectId,
    ) -> Call {
        let is_woken = record.amount == WOKEN;
        match record.kind {
            kind::WAIT => Call::Wait(std::mem::take(&mut rest.requests)),
            kind::START => Call::Start(std::mem::take(&mut rest.starts)),
            kind::REQUEST_FREE => Call::Free(RequestId(record.request)),
            kind::MPI_INIT => self.places[id.0 as usize].map_or(Call::Other, |(job, _)| Call::BeginJob(job)),
            kind::LOCK if is_woken => Call::Lock(object),
            kind::LOCK => Call::Blocked,
            kind::UNLOCK | kind::WINDOW_UNLOCK => Call::Unlock(object),
            kind::WINDOW_LOCK => Call::Lock(object),
            kind::CONDITION_WAIT => {
                let mutex = object_of(process, record.kind, record.request);
                Call::Sleep(object, SleepKind::Condition(Some(mutex)), is_woken)
            }
            kind::SEMAPHORE_WAIT => Call::Sleep(object, SleepKind::Semaphore, is_woken),
            // Its value had changed: nothing was waited for.
            kind::FUTEX_WAIT if record.amount == EAGAIN => Call::Other,
            kind::FUTEX_WAIT => Call::Sleep(object, SleepKind::Futex, is_woken),
            kind::CONDITION_WAKE | kind::SEMAPHORE_POST | kind::FUTEX_WAKE => Call::Wake(object, record.amount),
            kind::BARRIER => Call::ThreadBarrier(object, record.amount.min(u64::from(u32::MAX)) as u32),
            kind::THREAD_CREATE => Call::Create(thread_token_of(id, record.object)),
            kind::THREAD_EXIT if record.function == CallName::process_exit as u16 => Call::End(child_token(process.file.number)),
            kind::THREAD_EXIT => Call::End(thread_token_of(id, thread_token)),
            kind::JOIN => Call::Join(thread_token_of(id, record.object)),
            kind::FORK => Call::Create(child_token(record.object as u32)),
            kind::PROCESS_WAIT if self.is_recorded(record.object) => Call::Join(child_token(record.object as u32)),
            kind::BLOCKED | kind::PROCESS_WAIT => Call::Blocked,
            _ => Call::Other,
        }
    }

    /// Whether a wait for a process gave the number of one that is in the recording.
    fn is_recorded(&self, result: u64) -> bool {
        u32::try_from(result).is_ok_and(|number| self.numbers.contains(&number))
    }

    fn message(&mut self, process: &Process, id: ProcessId, record: &CallRecord) -> Option<Message> {
        let peer = match record.peer {
            ANY_PEER => {
                self.wildcards.insert((id, record.request), record.object);
                None
            }
            rank => Some(self.peer(process, id, record.object, rank)?),
        };
        let tag = (record.tag != ANY_TAG).then_some(record.tag);
        let is_synchronous = matches!(record.kind & !kind::PERSISTENT, kind::SYNC_SEND | kind::SYNC_ISEND);
        let is_buffered = record.amount <= BUFFERED && !is_synchronous;
        Some(Message { communicator: self.communicator(id, record.object)?, peer, tag, is_buffered })
    }

    /// A call that meets several processes: an epoch of a window, whose ranks are those of the window's group, or an exchange with
    /// neighbours.
    fn exchange(&mut self, process: &Process, id: ProcessId, record: &CallRecord, members: &[CallRecord]) -> Option<Call> {
        let waits = match record.function {
            epoch if epoch == CallName::MPI_Win_start as u16 => WaitKind::LatePost,
            function if is_with_neighbours(function) => WaitKind::LateSender,
            _ => WaitKind::LateComplete,
        };
        // Messages of the program on that communicator are others.
        let of_neighbours = if waits == WaitKind::LateSender { NEIGHBOURS } else { 0 };
        let communicator = self.communicator(id, record.object ^ of_neighbours)?;
        let message = |member: &CallRecord| {
            let peer = Some(self.peer(process, id, record.object, member.peer)?);
            Some(Message { communicator, peer, tag: Some(member.tag), is_buffered: true })
        };
        let of = |kind: u16| members.iter().filter(|m| m.kind == kind).filter_map(message).collect();
        let exchange = MultiExchange { sends: of(kind::MEETING_SEND), receives: of(kind::MEETING_RECV), kind: waits };
        Some(match (record.kind, record.request) {
            (kind::MEETING, 0) => Call::MultiExchange(exchange),
            (kind::MEETING, request) => Call::BeginMultiExchange(exchange, RequestId(request)),
            (_, request) => Call::PrepareMultiExchange(exchange, RequestId(request)),
        })
    }

    /// The process of a rank of a communicator.
    fn peer(&self, process: &Process, id: ProcessId, communicator: u64, rank: i32) -> Option<ProcessId> {
        let rank = usize::try_from(rank).ok()?;
        let (job, _) = self.places[id.0 as usize]?;
        let world = match communicator {
            OWN => return Some(id),
            WORLD => rank,
            _ => {
                let members = process.file.communicators.get(&communicator)?;
                members.remote.as_ref().unwrap_or(&members.local).get(rank)?? as usize
            }
        };
        self.jobs[job as usize].processes.get(&u32::try_from(world).ok()?).copied()
    }

    fn communicator(&mut self, id: ProcessId, communicator: u64) -> Option<CommunicatorId> {
        let (job, _) = self.places[id.0 as usize]?;
        // That of a process alone is one for each.
        let key = match communicator {
            0 => return None,
            OWN => (u32::MAX - id.0, OWN),
            other => (job, other),
        };
        let next = CommunicatorId(self.communicators.len() as u64);
        Some(*self.communicators.entry(key).or_insert(next))
    }

    fn collective(&mut self, process: &Process, id: ProcessId, record: &CallRecord) -> Option<Call> {
        let collective = self.collective_of(process, id, record)?;
        Some(match record.kind & kind::NON_BLOCKING != 0 && record.kind != kind::MPI_FINALIZE {
            true => Call::BeginCollective(collective, RequestId(record.request)),
            false => Call::Collective(collective),
        })
    }

    fn collective_of(&mut self, process: &Process, id: ProcessId, record: &CallRecord) -> Option<Collective> {
        let (job, world_rank) = self.places[id.0 as usize]?;
        let (rank, size) = match record.object {
            OWN => (0, 1),
            WORLD => (world_rank, self.jobs[job as usize].size),
            other => {
                let members = process.file.communicators.get(&other)?;
                if let Some(remote) = &members.remote {
                    return self.between_groups(id, record, world_rank, &members.local, remote);
                }
                (members.local.position(world_rank)? as u32, members.local.len() as u32)
            }
        };
        let name = trodden_wire::waits::FUNCTIONS.get(record.function as usize).copied().unwrap_or_default();
        Some(Collective {
            communicator: self.communicator(id, record.object)?,
            rule: rule_of(record.kind),
            is_root: record.peer >= 0 && record.peer as u32 == rank,
            rank,
            size,
            is_barrier: BARRIERS.contains(&name),
            is_binding: record.amount != EMPTY && is_binding(name),
        })
    }

    /// An operation between two groups: the root is in one, and those who wait for it, or whom it waits for, are in the other.
    fn between_groups(
        &mut self,
        id: ProcessId,
        record: &CallRecord,
        world_rank: u32,
        local: &RankList,
        remote: &RankList,
    ) -> Option<Collective> {
        let own = local.position(world_rank)?;
        // Both groups count from the one with the lower first member.
        let rank = (if local.get(0) > remote.get(0) { remote.len() } else { 0 } + own) as u32;
        let (rule, size) = match (rule_of(record.kind), record.peer) {
            (rule @ (Rule::FromRoot | Rule::ToRoot), ROOT_PEER) => (rule, 1 + remote.len()),
            (Rule::FromRoot | Rule::ToRoot, NO_PEER) => (Rule::Absent, 1 + remote.len()),
            (rule @ (Rule::FromRoot | Rule::ToRoot), _) => (rule, 1 + local.len()),
            (rule, _) => (rule, local.len() + remote.len()),
        };
        let communicator = self.communicator(id, record.object)?;
        let name = trodden_wire::waits::FUNCTIONS.get(record.function as usize).copied().unwrap_or_default();
        let (is_root, is_binding) = (record.peer == ROOT_PEER, record.amount != EMPTY && is_binding(name));
        Some(Collective { communicator, rule, is_root, rank, size: size as u32, is_barrier: false, is_binding })
    }

    /// Names what made a process's first thread, if a recorded process did.
    pub fn made_by(&self, process: &Process, id: ProcessId, token: u64) -> Option<Token> {
        if token != 0 {
            return Some(thread_token_of(id, token));
        }
        (process.file.mpi.is_none() && self.numbers.contains(&process.file.parent)).then(|| child_token(process.file.number))
    }
}

/// Whether a function exchanges with the neighbours of a topology.
fn is_with_neighbours(function: u16) -> bool {
    trodden_wire::waits::FUNCTIONS.get(function as usize).is_some_and(|name| name.contains("eighbor_"))
}

/// The object of a call: in memory that processes share, it is one for all of them.
fn object_of(process: &Process, kind: u16, address: u64) -> ObjectId {
    let is_address = (kind::LOCK..=kind::SEMAPHORE_POST).contains(&kind) || matches!(kind, kind::FUTEX_WAIT | kind::FUTEX_WAKE);
    match is_address.then(|| process.file.shared_object(address)).flatten() {
        Some(number) => ObjectId(ObjectId::FIRST_SHARED | number),
        None => ObjectId(address),
    }
}

/// Whether a member of an operation of that name cannot leave before those that it waits for have entered.
pub fn is_binding(name: &str) -> bool {
    !name.starts_with("MPI_File_") && !PARTIAL.iter().any(|end| name.ends_with(end))
}

fn thread_token_of(process: ProcessId, token: u64) -> Token {
    Token(u64::from(process.0) << 32 | token & 0xffff_ffff)
}

fn child_token(number: u32) -> Token {
    Token(1 << 63 | u64::from(number))
}

fn rule_of(kind: u16) -> Rule {
    match kind & !(kind::NON_BLOCKING | kind::PERSISTENT) {
        kind::COLLECTIVE_FROM_ROOT => Rule::FromRoot,
        kind::COLLECTIVE_TO_ROOT => Rule::ToRoot,
        kind::COLLECTIVE_SCAN => Rule::Scan,
        _ => Rule::All,
    }
}

fn is_prepared_collective(kind: u16) -> bool {
    kind < kind::START && kind & kind::PERSISTENT != 0 && (kind::COLLECTIVE_ALL..=kind::COLLECTIVE_SCAN).contains(&(kind & 0xf))
}

fn is_collective(kind: u16) -> bool {
    kind == kind::MPI_FINALIZE
        || kind < kind::PERSISTENT && (kind::COLLECTIVE_ALL..=kind::COLLECTIVE_SCAN).contains(&(kind & !kind::NON_BLOCKING))
}

/// Records that belong to a call.
#[derive(Debug, Default)]
pub struct ConvertedParts {
    completed: Vec<CallRecord>,
    receive: Option<CallRecord>,
    requests: Vec<Completed>,
    starts: Vec<RequestId>,
    members: Vec<CallRecord>,
    /// How many records were taken.
    pub count: u32,
}

impl ConvertedParts {
    /// Takes the records behind a call that belong to it.
    pub fn take(converter: &Converter, process: &Process, id: ProcessId, record: &CallRecord, calls: &mut RecordedCalls) -> ConvertedParts {
        let mut parts = ConvertedParts::default();
        if record.kind == kind::START {
            parts.starts.push(RequestId(record.request));
        }
        loop {
            let is_ours = |next: &&CallRecord| match next.kind {
                kind::COMPLETED => true,
                kind::MEETING_SEND | kind::MEETING_RECV => matches!(record.kind, kind::MEETING | kind::MEETING_INIT),
                kind::SENDRECV_RECV => record.kind == kind::SENDRECV,
                // Further requests of one call begin when it has ended.
                kind::START => record.kind == kind::START && next.enter == next.exit && next.enter == record.exit,
                _ => false,
            };
            let Some(next) = calls.peek().filter(is_ours).copied() else { return parts };
            calls.next();
            parts.count += 1;
            match next.kind {
                kind::SENDRECV_RECV => parts.receive = Some(next),
                kind::START => parts.starts.push(RequestId(next.request)),
                kind::MEETING_SEND | kind::MEETING_RECV => parts.members.push(next),
                _ if next.request == 0 => parts.completed.push(next),
                _ => parts.requests.push(Completed {
                    request: RequestId(next.request),
                    peer: converter.peer_of_status(process, id, &next),
                    tag: Some(next.tag),
                    is_cancelled: next.amount != 0,
                }),
            }
        }
    }
}

impl Converter {
    /// The source of a completed receive: a rank of the communicator that it was begun on.
    fn peer_of_status(&self, process: &Process, id: ProcessId, record: &CallRecord) -> Option<ProcessId> {
        let communicator = self.wildcards.get(&(id, record.request)).copied().unwrap_or(WORLD);
        self.peer(process, id, communicator, record.peer)
    }
}
