//! Calls that block a location or release other locations.

use crate::step::ProcessId;

/// A communicator, within which messages and collective operations are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommunicatorId(pub u64);

/// The handle of a pending operation, which is unique in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A lock, condition variable, futex or semaphore. The value is an address in a process, or a number for an object that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The smallest number of an object that all processes share. User-space addresses are lower.
    pub const FIRST_SHARED: u64 = 1 << 63;

    /// Returns true if all processes share the object.
    pub fn is_shared(self) -> bool {
        self.0 >= ObjectId::FIRST_SHARED
    }
}

/// Identifies a thread or process in the calls that create, end and join it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadToken(pub u64);

/// A message as its sender or its receiver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The communicator on which the message is matched.
    pub communicator: CommunicatorId,
    /// The process at the other end; `None` for a receive from any source.
    pub peer: Option<ProcessId>,
    /// The message's tag; `None` for a receive with any tag.
    pub tag: Option<i32>,
    /// Whether the message is buffered. The send of a buffered message does not wait for the receive.
    pub is_buffered: bool,
}

/// How the members of a collective operation wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectiveRule {
    /// Every member waits for all others, as in barriers and all-to-all operations.
    All,
    /// Every member waits for the root.
    FromRoot,
    /// The root waits for every member.
    ToRoot,
    /// Every member waits for all members of lower rank.
    Scan,
    /// The member does not wait, and no member waits for it. In an intercommunicator, this applies to the members of the root's group
    /// except for the root.
    Absent,
}

/// A collective operation, with the arguments of one member's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The communicator on which the operation is called.
    pub communicator: CommunicatorId,
    /// Which members wait for which.
    pub rule: CollectiveRule,
    /// Whether the caller is the root.
    pub is_root: bool,
    /// Rank of the caller.
    pub rank: u32,
    /// Number of members.
    pub size: u32,
    /// Whether the operation only synchronises and transfers no data.
    pub is_barrier: bool,
    /// Whether no member can leave before all members that it waits for have entered, because it needs their data. False for file
    /// operations, and for operations to which a member may contribute no data. Members may leave such operations early.
    pub is_binding: bool,
}

/// Simultaneous sends to and receives from several processes, as in neighbourhood collectives and in access epochs of windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiExchange {
    /// The messages that the caller sends.
    pub sends: Vec<Message>,
    /// The messages that the caller receives. It waits until the last of them has arrived.
    pub receives: Vec<Message>,
    /// How a wait for the last message is classified.
    pub kind: WaitKind,
}

/// A request that a call completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedRequest {
    /// The completed request.
    pub request: RequestId,
    /// Actual source of a receive; `None` for a send.
    pub peer: Option<ProcessId>,
    /// Actual tag of a receive; `None` for a send.
    pub tag: Option<i32>,
    /// Whether the request was cancelled, so that nothing was sent or received.
    pub is_cancelled: bool,
}

/// A call, whose entry and exit are reported separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A blocking send. The flag is true if the send is synchronous, so that it returns only after the receive has started.
    Send(Message, bool),
    /// A blocking receive, with the actual source and tag, which are known when it returns.
    Receive(Message, Option<(ProcessId, i32)>),
    /// A simultaneous send and receive (`MPI_Sendrecv`).
    Exchange(Message, Message),
    /// Blocking sends to and receives from several processes.
    MultiExchange(MultiExchange),
    /// Nonblocking sends to and receives from several processes.
    BeginMultiExchange(MultiExchange, RequestId),
    /// A persistent request for sends to and receives from several processes.
    PrepareMultiExchange(MultiExchange, RequestId),
    /// Waits for a message without receiving it.
    Probe(Message),
    /// A nonblocking send, or a receive if the flag is true.
    Begin(Message, bool, RequestId),
    /// A persistent request for a send, or for a receive if the flag is true.
    Prepare(Message, bool, RequestId),
    /// A persistent request for a collective operation.
    PrepareCollective(Collective, RequestId),
    /// Starts persistent requests.
    Start(Vec<RequestId>),
    /// Waits for requests.
    Wait(Vec<CompletedRequest>),
    /// Frees a request.
    Free(RequestId),
    /// A blocking collective operation.
    Collective(Collective),
    /// A nonblocking collective operation.
    BeginCollective(Collective, RequestId),
    /// Initialises MPI in a member of the job with this number. The paths of all members begin when the first member returns.
    BeginJob(u32),
    /// Acquires a lock that another thread held.
    Lock(ObjectId),
    /// Releases a lock.
    Unlock(ObjectId),
    /// Sleeps on a condition variable, semaphore or futex. The flag is false if no call woke the sleeper (timeout, signal, changed
    /// value).
    Sleep(ObjectId, SleepKind, bool),
    /// Wakes up to this many sleepers.
    Wake(ObjectId, u64),
    /// Enters a barrier for this many threads.
    ThreadBarrier(ObjectId, u32),
    /// Creates a thread or process.
    Create(ThreadToken),
    /// Ends the calling thread.
    End(ThreadToken),
    /// Waits for the end of a thread.
    Join(ThreadToken),
    /// Sleeps, or waits for something outside the trace.
    Blocked,
    /// A call that may block, but whose waits are not explained.
    Other,
}

/// What a call sleeps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SleepKind {
    /// A condition variable, with the mutex that is reacquired before the call returns, if the trace names it.
    Condition(Option<ObjectId>),
    /// A semaphore.
    Semaphore,
    /// A futex.
    Futex,
}

/// Kind of wait: Scalasca's MPI wait states, and wait states of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// A receive waits for its send.
    LateSender,
    /// A receive waits for its send although an earlier message is still unreceived, so messages are received in the wrong order.
    WrongOrder,
    /// A send waits for its receive.
    LateReceiver,
    /// An access epoch waits until the window's owner exposes the window.
    LatePost,
    /// A window's owner waits for the end of access epochs.
    LateComplete,
    /// A member of a barrier waits for the others.
    Barrier,
    /// A member waits for all others in a collective operation.
    AllToAll,
    /// A root waits for its members.
    EarlyReduce,
    /// Members wait for the root.
    LateBroadcast,
    /// A member waits for members of lower rank.
    EarlyScan,
    /// A thread waits for a lock.
    LockContention,
    /// A thread waits for a condition variable.
    Condition,
    /// A thread waits for a semaphore.
    Semaphore,
    /// A thread waits for a futex.
    Futex,
    /// A thread waits at a barrier of threads.
    ThreadBarrier,
    /// A thread waits for the end of another thread.
    Join,
}

impl WaitKind {
    /// Returns the name shown in reports.
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

    /// Returns the family shown in reports: imbalance, contention or communication.
    pub fn family(self) -> &'static str {
        match self {
            WaitKind::Barrier | WaitKind::AllToAll | WaitKind::ThreadBarrier | WaitKind::Join => "imbalance",
            WaitKind::LockContention | WaitKind::Futex | WaitKind::Semaphore | WaitKind::Condition => "contention",
            _ => "communication",
        }
    }
}
