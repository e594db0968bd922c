//! Calls that make a location wait, or let others go on.

use crate::step::ProcessId;

/// A communicator: where messages and collective operations are matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommunicatorId(pub u64);

/// A handle of something begun and not yet completed, of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// A lock, condition variable, futex, semaphore: an address, of one process; or a lock of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// Numbers from here on, which are no addresses, are those of objects that all processes share.
    pub const FIRST_SHARED: u64 = 1 << 63;

    /// Whether all processes share it.
    pub fn is_shared(self) -> bool {
        self.0 >= ObjectId::FIRST_SHARED
    }
}

/// Names a thread that is made, ends, or is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// One side of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where it is matched.
    pub communicator: CommunicatorId,
    /// The other process; none in a receive from any.
    pub peer: Option<ProcessId>,
    /// None in a receive of any tag.
    pub tag: Option<i32>,
    /// A send that does not wait for its receive: libraries copy small messages.
    pub is_buffered: bool,
}

/// How the members of a collective operation wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// All for all: barriers, all-to-all kinds.
    All,
    /// All for the root.
    FromRoot,
    /// The root for all.
    ToRoot,
    /// Each for the lower ranks.
    Scan,
    /// The member neither waits nor is waited for: a member of the root's group in an operation between two groups.
    Absent,
}

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Whose.
    pub communicator: CommunicatorId,
    /// Who waits for whom.
    pub rule: Rule,
    /// Whether the caller is the root.
    pub is_root: bool,
    /// Rank of the caller, and how many members there are.
    pub rank: u32,
    /// Members.
    pub size: u32,
    /// Whether it only synchronises.
    pub is_barrier: bool,
    /// Whether no member can leave before those that it waits for have entered, since it needs what they give. Operations in which some
    /// may give nothing, and those of files, let members go on early.
    pub is_binding: bool,
}

/// Sends to and receives from several processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// To whom.
    pub sends: Vec<Message>,
    /// From whom.
    pub receives: Vec<Message>,
    /// Who receives waits for the latest, and that wait is of this kind.
    pub kind: WaitKind,
}

/// A request that a call completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Which.
    pub request: RequestId,
    /// Where a receive from any came from.
    pub peer: Option<ProcessId>,
    /// Its tag.
    pub tag: Option<i32>,
    /// It was cancelled: nothing was sent or received.
    pub is_cancelled: bool,
}

/// A call. Its enter and its exit are reported separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A blocking send. `synchronous`: it ends when the receive has begun.
    Send(Message, bool),
    /// A blocking receive; what it received is known at its exit.
    Receive(Message, Option<(ProcessId, i32)>),
    /// A send and a receive at once.
    Exchange(Message, Message),
    /// Sends to and receives from several at once.
    Meeting(Meeting),
    /// The same, that is begun only.
    BeginMeeting(Meeting, RequestId),
    /// The same, to be begun by [`Call::Start`] any number of times.
    PrepareMeeting(Meeting, RequestId),
    /// A wait for a message that is not received.
    Probe(Message),
    /// A send or receive (`true`) that is begun only.
    Begin(Message, bool, RequestId),
    /// The same, to be begun by [`Call::Start`] any number of times.
    Prepare(Message, bool, RequestId),
    /// A collective operation, to be begun likewise.
    PrepareCollective(Collective, RequestId),
    /// Prepared messages and collective operations are begun.
    Start(Vec<RequestId>),
    /// A wait for requests.
    Wait(Vec<Completed>),
    /// A request is given up.
    Free(RequestId),
    /// A collective operation.
    Collective(Collective),
    /// A collective operation that is begun only.
    BeginCollective(Collective, RequestId),
    /// MPI begins for the members of a job: the origin of their paths.
    BeginJob(u32),
    /// A lock is taken that another thread had.
    Lock(ObjectId),
    /// It is released.
    Unlock(ObjectId),
    /// A wait for a waker: condition variable, semaphore, futex. `false`: it ended by itself (time, signal, value changed).
    Sleep(ObjectId, SleepKind, bool),
    /// At most so many sleepers are woken.
    Wake(ObjectId, u64),
    /// A barrier of so many threads.
    ThreadBarrier(ObjectId, u32),
    /// A thread or process is made.
    Create(Token),
    /// The thread ends.
    End(Token),
    /// The end of a thread is waited for.
    Join(Token),
    /// Sleep, or a wait for something outside the trace.
    Blocked,
    /// A call that may wait, without a rule.
    Other,
}

/// What is slept on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SleepKind {
    /// A condition variable, with the mutex that is locked again before the call returns, if the trace has it.
    Condition(Option<ObjectId>),
    /// A semaphore.
    Semaphore,
    /// A futex.
    Futex,
}

/// What kind of wait it is. The classic wait states of the field, and those of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// A receive waits for its send.
    LateSender,
    /// The same while an earlier message is there that is received later: messages in the wrong order.
    WrongOrder,
    /// A send waits for its receive.
    LateReceiver,
    /// Access to a window waits for its owner.
    LatePost,
    /// The owner of a window waits for the end of accesses.
    LateComplete,
    /// A barrier.
    Barrier,
    /// An operation of all with all.
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
    /// The name in reports.
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

    /// The family in reports: imbalance, contention, communication.
    pub fn family(self) -> &'static str {
        match self {
            WaitKind::Barrier | WaitKind::AllToAll | WaitKind::ThreadBarrier | WaitKind::Join => "imbalance",
            WaitKind::LockContention | WaitKind::Futex | WaitKind::Semaphore | WaitKind::Condition => "contention",
            _ => "communication",
        }
    }
}
