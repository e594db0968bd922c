//! Calls for which locations wait, or which end the waits of other locations.

use crate::step::ProcessId;

/// A communicator, within which messages and collective operations are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommunicatorId(pub u64);

/// The handle of an MPI operation in progress. It is unique within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A lock, condition variable, futex or semaphore. The number is an address, which is meaningful within a process, or identifies an object
/// that several processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The lowest number of an object that several processes share. Addresses of programs are lower.
    pub const FIRST_SHARED_OBJECT: u64 = 1 << 63;

    /// Returns true if several processes share the object.
    pub fn is_shared(self) -> bool {
        self.0 >= ObjectId::FIRST_SHARED_OBJECT
    }
}

/// Identifies a thread or process in the calls that create, end and join it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadToken(pub u64);

/// A message as it appears in the call of the sender or of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The communicator of the call. Only sends and receives on the same communicator match.
    pub communicator: CommunicatorId,
    /// The process that receives or sends the message; `None` for a receive from any source.
    pub peer: Option<ProcessId>,
    /// The message's tag; `None` for a receive with any tag.
    pub tag: Option<i32>,
    /// Whether the MPI library buffers the message, so that the send does not wait for the receive.
    pub is_buffered: bool,
}

/// Which members of a collective operation wait for which others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveWaitRule {
    /// Every member waits for all others, as in barriers and all-to-all operations.
    All,
    /// Every member waits for the root.
    FromRoot,
    /// The root waits for every member.
    ToRoot,
    /// Every member waits for all members of lower rank.
    Scan,
    /// The member neither waits nor is waited for. In an intercommunicator, this applies to all members of the root's group except the
    /// root.
    Absent,
}

/// A member's call of a collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The communicator on which the operation is called.
    pub communicator: CommunicatorId,
    /// Which members wait for which.
    pub rule: CollectiveWaitRule,
    /// Whether the caller is the root.
    pub is_root: bool,
    /// Rank of the caller.
    pub rank: u32,
    /// Number of members.
    pub size: u32,
    /// Whether the operation transfers no data and only synchronises its members.
    pub is_barrier: bool,
    /// Whether a member cannot return before all members that it waits for have entered the operation, because it needs their data. False
    /// for file operations, and for operations to which a member may contribute no data, because members may return from them early.
    pub is_binding: bool,
}

/// A call that sends to several processes and receives from several processes, like a neighbourhood collective or an access epoch of a
/// window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiExchange {
    /// The messages that the caller sends.
    pub sends: Vec<Message>,
    /// The messages that the caller receives. The call returns when all of them have arrived.
    pub receives: Vec<Message>,
    /// The kind of a wait for the last of these messages.
    pub kind: WaitKind,
}

/// A request whose operation has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedRequest {
    /// The completed request.
    pub request: RequestId,
    /// For a receive, the process that sent the message; `None` for a send.
    pub peer: Option<ProcessId>,
    /// For a receive, the tag of the message; `None` for a send.
    pub tag: Option<i32>,
    /// Whether the request was cancelled, so that no message was sent or received.
    pub is_cancelled: bool,
}

/// A call by which locations (threads or processes) may wait for each other. Its entry and its return are separate events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A blocking send. If the flag is true, the send is synchronous: it returns only after the receive has started.
    Send(Message, bool),
    /// A blocking receive. The source and the tag of the received message are known when the call returns.
    Receive(Message, Option<(ProcessId, i32)>),
    /// A simultaneous send and receive (`MPI_Sendrecv`).
    Exchange(Message, Message),
    /// Blocking sends to and receives from several processes.
    MultiExchange(MultiExchange),
    /// Nonblocking sends to and receives from several processes.
    BeginMultiExchange(MultiExchange, RequestId),
    /// Creates a persistent request for sends to and receives from several processes.
    PrepareMultiExchange(MultiExchange, RequestId),
    /// Waits until a message can be received, without receiving it.
    Probe(Message),
    /// Starts a nonblocking send or, if the flag is true, a nonblocking receive.
    Begin(Message, bool, RequestId),
    /// Creates a persistent request for a send or, if the flag is true, for a receive.
    Prepare(Message, bool, RequestId),
    /// Creates a persistent request for a collective operation.
    PrepareCollective(Collective, RequestId),
    /// Starts the operations of persistent requests.
    Start(Vec<RequestId>),
    /// Waits for requests.
    Wait(Vec<CompletedRequest>),
    /// Frees a request.
    Free(RequestId),
    /// A blocking collective operation.
    Collective(Collective),
    /// A nonblocking collective operation.
    BeginCollective(Collective, RequestId),
    /// The initialisation of MPI in a member of the job with this number. When the first member has returned, the paths of all members
    /// start from there.
    BeginJob(u32),
    /// Acquires a lock that another thread held.
    Lock(ObjectId),
    /// Releases a lock.
    Unlock(ObjectId),
    /// Sleeps until another thread wakes the caller with a condition variable, semaphore or futex. The flag is false if the caller was not
    /// woken by a call, but by a timeout, a signal or a changed value.
    Sleep(ObjectId, SleepKind, bool),
    /// Wakes at most this number of threads that sleep on the object.
    Wake(ObjectId, u64),
    /// Waits at a barrier until this number of threads have arrived.
    ThreadBarrier(ObjectId, u32),
    /// Creates a thread or process.
    Create(ThreadToken),
    /// Ends the calling thread or process.
    End(ThreadToken),
    /// Waits for the end of a thread or process.
    Join(ThreadToken),
    /// Sleeps, or waits for something that is not in the trace.
    Blocked,
    /// A call that may wait for another location, but whose waits the analysis does not explain.
    Other,
}

/// What a call sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SleepKind {
    /// A condition variable. The mutex is acquired again before the call returns; `None` if the trace does not name it.
    Condition(Option<ObjectId>),
    /// A semaphore.
    Semaphore,
    /// A futex.
    Futex,
}

/// The kind of a wait: one of Scalasca's wait states of MPI, or a wait state of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// A receive waits until the send starts.
    LateSender,
    /// Like `LateSender`, but an earlier message to the same process has not been received yet, so messages are received in the wrong
    /// order.
    WrongOrder,
    /// A send waits until the receive starts.
    LateReceiver,
    /// A process that wants to access a window waits until the window's owner permits it (`MPI_Win_post`).
    LatePost,
    /// The owner of a window waits until other processes have completed their accesses.
    LateComplete,
    /// A member of a barrier waits for the others.
    Barrier,
    /// A member of a collective operation such as an all-to-all operation waits for all others.
    AllToAll,
    /// In a reduction or gather operation, the root waits for a member.
    EarlyReduce,
    /// In a broadcast or scatter operation, a member waits for the root.
    LateBroadcast,
    /// In a scan operation, a member waits for a member of lower rank.
    EarlyScan,
    /// A thread waits for a lock.
    LockContention,
    /// A thread waits for a condition variable.
    Condition,
    /// A thread waits for a semaphore.
    Semaphore,
    /// A thread waits on a futex.
    Futex,
    /// A thread waits at a barrier of threads.
    ThreadBarrier,
    /// A thread waits for the end of another thread.
    Join,
}

impl WaitKind {
    /// Returns the name of the kind, for reports.
    pub fn name(self) -> &'static str {
        match self {
            WaitKind::LateSender => "late sender",
            WaitKind::WrongOrder => "late sender, wrong order",
            WaitKind::LateReceiver => "late receiver",
            WaitKind::LatePost => "late post",
            WaitKind::LateComplete => "late complete",
            WaitKind::Barrier => "wait at barrier",
            WaitKind::AllToAll => "wait at NxN",
            WaitKind::EarlyReduce => "early reduce",
            WaitKind::LateBroadcast => "late broadcast",
            WaitKind::EarlyScan => "early scan",
            WaitKind::LockContention => "lock contention",
            WaitKind::Condition => "condition variable",
            WaitKind::Semaphore => "semaphore",
            WaitKind::Futex => "futex",
            WaitKind::ThreadBarrier => "wait at thread barrier",
            WaitKind::Join => "join",
        }
    }

    /// Returns the family of the kind, for reports: imbalance, contention or communication.
    pub fn family(self) -> &'static str {
        match self {
            WaitKind::Barrier | WaitKind::AllToAll | WaitKind::ThreadBarrier | WaitKind::Join => "imbalance",
            WaitKind::LockContention | WaitKind::Futex | WaitKind::Semaphore | WaitKind::Condition => "contention",
            _ => "communication",
        }
    }
}
