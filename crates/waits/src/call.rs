//! Calls that block a location or release other locations.

use crate::step::ProcessId;

/// A communicator, within which messages and collective operations are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommunicatorId(pub u64);

/// The handle of a pending operation, unique within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A lock, condition variable, futex or semaphore: an address within a process, or a number for objects that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The smallest number of an object that all processes share. User-space addresses are lower.
    pub const FIRST_SHARED: u64 = 1 << 63;

    /// Whether all processes share the object.
    pub fn is_shared(self) -> bool {
        self.0 >= ObjectId::FIRST_SHARED
    }
}

/// Identifies a thread or process in the calls that create, end and join it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadToken(pub u64);

/// A message as seen by its sender or its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Communicator on which the message is matched.
    pub communicator: CommunicatorId,
    /// The other process; `None` for a receive from any source.
    pub peer: Option<ProcessId>,
    /// Tag; `None` for a receive with any tag.
    pub tag: Option<i32>,
    /// Whether the message is buffered, so that its send does not wait for its receive.
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
    /// The member does not wait, and no member waits for it. In an intercommunicator, this rule applies to the members of the root's group
    /// other than the root.
    Absent,
}

/// A collective operation.
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
    /// operations, and for operations to which a member may contribute no data: members may leave these early.
    pub is_binding: bool,
}

/// Simultaneous sends to and receives from several processes, as in neighbourhood collectives and access epochs of windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiExchange {
    /// The sends.
    pub sends: Vec<Message>,
    /// The receives. The caller waits until the last of them completes.
    pub receives: Vec<Message>,
    /// How a wait for the latest receive is classified.
    pub kind: WaitKind,
}

/// A request that a call completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The request.
    pub request: RequestId,
    /// Actual source of a receive.
    pub peer: Option<ProcessId>,
    /// Actual tag of a receive.
    pub tag: Option<i32>,
    /// Whether the request was cancelled, so that nothing was sent or received.
    pub is_cancelled: bool,
}

/// A call. Its entry and its exit are reported separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A blocking send. The flag is true if it is synchronous, that is, returns only after the receive has started.
    Send(Message, bool),
    /// A blocking receive, with the actual source and tag, which are known at its exit.
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
    /// A nonblocking send, or receive (`true`).
    Begin(Message, bool, RequestId),
    /// A persistent request for a send, or receive (`true`).
    Prepare(Message, bool, RequestId),
    /// A persistent request for a collective operation.
    PrepareCollective(Collective, RequestId),
    /// Starts persistent requests.
    Start(Vec<RequestId>),
    /// Waits for requests.
    Wait(Vec<Completed>),
    /// Frees a request.
    Free(RequestId),
    /// A blocking collective operation.
    Collective(Collective),
    /// A nonblocking collective operation.
    BeginCollective(Collective, RequestId),
    /// Initialises MPI in a member of the job with this number. The first return in any member is the origin of all members' paths.
    BeginJob(u32),
    /// Acquires a lock that a different thread held.
    Lock(ObjectId),
    /// Releases a lock.
    Unlock(ObjectId),
    /// Sleeps on a condition variable, semaphore or futex. The flag is false if no call woke the sleeper (timeout, signal, changed value).
    Sleep(ObjectId, SleepKind, bool),
    /// Wakes up to this many sleepers.
    Wake(ObjectId, u64),
    /// Enters a barrier of this many threads.
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
    /// A receive waits for its send although an earlier message is still unreceived: messages are received in the wrong order.
    WrongOrder,
    /// A send waits for its receive.
    LateReceiver,
    /// An access epoch waits for the owner of the window to expose it.
    LatePost,
    /// The owner of a window waits for the end of access epochs.
    LateComplete,
    /// A barrier.
    Barrier,
    /// A collective operation in which every member waits for all others.
    AllToAll,
    /// A root waits for its members.
    EarlyReduce,
    /// Members wait for the root.
    LateBroadcast,
    /// A member waits for lower ranks.
    EarlyScan,
    /// A lock.
    LockContention,
    /// A condition variable.
    Condition,
    /// A semaphore.
    Semaphore,
    /// A futex.
    Futex,
    /// A barrier of threads.
    ThreadBarrier,
    /// The end of a thread.
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
