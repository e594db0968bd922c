//! Layout of the files that the waits recorder writes inside a program and `trodden waits` reads. A recording is a folder with two files
//! for each program that a process executes, including forked children. Everything is little-endian. Times are ticks of the time-stamp
//! counter, or nanoseconds if the processor has no constant one. Anchors in the process file relate ticks to the monotonic clock. Files
//! are memory-mapped while they are written, so recorded data survive a crash or kill; [`crate::live`] explains how to read them
//! meanwhile.

// Files of a recording:
//
// <process>.process   lines of text: clock anchors, rank, communicators, mapped images, memory shared with others
// <process>.threads   extents, each with an ExtentHeader and chunks without gaps; a chunk has a WaitsChunkHeader and records
//
// - `<process>` consists of the process id and the start time, so a process that executes a different program starts new files.
// - An extent belongs to one process and starts at a multiple of [`EXTENT_ALIGNMENT`]. Zeros between two extents are an extent whose
//   process ended before writing its header. Zeros after the last chunk of an extent are free space.
// - All records in a chunk are of one kind ([`chunk_kind`]) and from one thread. The chunk ends at the first record of zeros.

use crate::Checksum;
use crate::file_header::{FILE_HEADER_BYTES, FileHeader, FileKind};

/// Version of files of kind [`FileKind::WAITS`].
pub const VERSION: u32 = 4;
/// Environment variable with the recording's folder, where the recorder writes its files.
pub const WAITS_OUTPUT_ENVIRONMENT_VARIABLE: &str = "TRODDEN_WAITS";
/// Environment variable with the number of samples per second of a thread's processor time; `0` disables sampling.
pub const WAITS_SAMPLING_RATE_ENVIRONMENT_VARIABLE: &str = "TRODDEN_WAITS_RATE";
/// Size of an [`ExtentHeader`].
pub const EXTENT_HEADER_SIZE: usize = size_of::<ExtentHeader>();
/// Alignment of extents in bytes.
pub const EXTENT_ALIGNMENT: usize = 4096;
/// Size of a [`WaitsChunkHeader`].
pub const CHUNK_HEADER_SIZE: usize = size_of::<WaitsChunkHeader>();
/// Alignment of chunks and of the ends of extents, in bytes.
pub const CHUNK_ALIGNMENT: usize = 32;
/// First word of a chunk.
pub const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"CHNK");
/// Size of a [`CallRecord`].
pub const CALL_RECORD_SIZE: usize = 64;
/// Size of a [`SampleRecord`].
pub const SAMPLE_RECORD_SIZE: usize = 32;
/// The number that a record without a stack has instead of a stack's number.
pub const NO_STACK: u32 = u32::MAX;
/// Peer in a record of a call without a partner, or whose partner is MPI's null process.
pub const NO_PEER: i32 = -1;
/// Peer in a receive from any source.
pub const ANY_PEER: i32 = -2;
/// Peer in the root's own record of a collective operation between two groups (`MPI_ROOT`).
pub const ROOT_PEER: i32 = -3;
/// Tag in a receive that accepts any tag.
pub const ANY_TAG: i32 = -1;

/// Start of an extent, and thus of a `.threads` file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHeader {
    /// The [`FileHeader`]. Each extent has one, because the process that reserved the first extent may have ended before writing it.
    pub file_header: [u8; FILE_HEADER_BYTES],
    /// When the process's recording began, in ticks. Together with `process`, it identifies the process in the process file.
    pub start: u64,
    /// Id of the process.
    pub process: u32,
    /// Size of the extent in bytes, including this header; a multiple of [`EXTENT_ALIGNMENT`].
    pub size: u32,
    /// [`Checksum`] of the three fields above.
    pub checksum: u64,
    /// Always 0.
    pub reserved: u64,
}

impl ExtentHeader {
    /// Creates a header with its checksums.
    pub fn new(process: u32, start: u64, size: u32) -> ExtentHeader {
        let file_header = FileHeader::new(FileKind::WAITS, VERSION).to_bytes();
        let header = ExtentHeader { file_header, start, process, size, checksum: 0, reserved: 0 };
        ExtentHeader { checksum: header.fields_checksum(), ..header }
    }

    /// Returns true if the checksums match and a recorder of this version wrote the header.
    pub fn is_intact(&self) -> bool {
        FileHeader::read(&self.file_header) == Ok(FileHeader::new(FileKind::WAITS, VERSION)) && self.checksum == self.fields_checksum()
    }

    fn fields_checksum(&self) -> u64 {
        Checksum::new().add_word(self.start).add_word((self.process as u64) << 32 | self.size as u64).value()
    }
}

/// Start of a chunk.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitsChunkHeader {
    /// [`CHUNK_MAGIC`].
    pub magic: u32,
    /// A constant of [`chunk_kind`].
    pub kind: u32,
    /// Number of the thread. A process's threads are numbered in the order in which their recording began.
    pub thread: u32,
    /// Number of the thread's records of this kind in earlier chunks.
    pub first: u32,
    /// Size of the chunk in bytes, including this header; a multiple of [`CHUNK_ALIGNMENT`].
    pub size: u32,
    /// Always 0.
    pub reserved: u32,
    /// [`Checksum`] of the fields above.
    pub checksum: u64,
}

impl WaitsChunkHeader {
    /// Creates a header with its checksum.
    pub const fn new(kind: u32, thread: u32, first: u32, size: u32) -> WaitsChunkHeader {
        let header = WaitsChunkHeader { magic: CHUNK_MAGIC, kind, thread, first, size, reserved: 0, checksum: 0 };
        WaitsChunkHeader { checksum: header.fields_checksum(), ..header }
    }

    /// Returns true if the header starts with [`CHUNK_MAGIC`] and its checksum matches.
    pub const fn is_intact(&self) -> bool {
        self.magic == CHUNK_MAGIC && self.checksum == self.fields_checksum()
    }

    const fn fields_checksum(&self) -> u64 {
        let sum = Checksum::new().add_word((self.magic as u64) << 32 | self.kind as u64);
        sum.add_word((self.thread as u64) << 32 | self.first as u64).add_word(self.size as u64).value()
    }
}

/// Kinds of chunks.
pub mod chunk_kind {
    /// A [`ThreadHeader`](super::ThreadHeader), at the start of the thread's recording.
    pub const THREAD: u32 = 1;
    /// [`CallRecord`](super::CallRecord)s, ordered by entry.
    pub const CALLS: u32 = 2;
    /// [`SampleRecord`](super::SampleRecord)s, ordered by time.
    pub const SAMPLES: u32 = 3;
    /// Stacks: a u64 count, then that many return addresses, innermost first. The n-th stack of the thread has number n.
    pub const STACKS: u32 = 4;
}

/// A recorded thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThreadHeader {
    /// The thread's id in the operating system.
    pub thread: u32,
    /// Always 0.
    pub reserved: u32,
    /// When the thread's recording began, in ticks.
    pub begin: u64,
    /// The monotonic clock at `begin`, in ns.
    pub begin_ns: u64,
    /// The `object` of the [`kind::THREAD_CREATE`] record for this thread; 0 for a process's first thread.
    pub token: u64,
    /// Time of a later anchor, in ticks.
    pub anchor_ticks: u64,
    /// The monotonic clock at that anchor, in ns.
    pub anchor_ns: u64,
}

/// A call made by the program. Written when the call begins, completed when it returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallRecord {
    /// When the call began, in ticks.
    pub enter: u64,
    /// When the call returned, in ticks; 0 before that.
    pub exit: u64,
    /// The kind of call, a constant of [`kind`]. 0 ends the chunk.
    pub kind: u16,
    /// The called function, an index into [`FUNCTIONS`].
    pub function: u16,
    /// Number of the caller's stack among the thread's stacks.
    pub stack: u32,
    /// Communicator, lock, condition variable, futex address, or token of a thread.
    pub object: u64,
    /// Rank of the message's other process, or of the collective operation's root, relative to the communicator.
    pub peer: i32,
    /// Tag of a message.
    pub tag: i32,
    /// The message's size in bytes, the number of participants in a barrier, or the number of woken threads. For a failed call, its error
    /// number.
    pub size_or_count: u64,
    /// Handle of the request that the call starts or completes. For a wait on a condition variable, its mutex.
    pub request: u64,
    /// The thread's processor time at the end of the call, in ns; 0 if it was not measured. See [`kind::CPU_AT_ENTER`].
    pub cpu_ns: u64,
}

/// A sample of the code that a thread executed while it computed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRecord {
    /// Time in ticks. 0 ends the chunk.
    pub time: u64,
    /// Address of the instruction.
    pub address: u64,
    /// Number of the sample's stack of return addresses among the thread's stacks.
    pub stack: u32,
    /// Number of calls that the thread had begun: the sample lies between call `calls - 1` and call `calls`.
    pub calls: u32,
    /// Number of events that the thread had written to its stream of paths, plus 1. 0 if unknown, or if the program records no stream.
    pub position: u64,
}

crate::layout::layouts! {
    ExtentHeader { file_header, start, process, size, checksum, reserved }
    WaitsChunkHeader { magic, kind, thread, first, size, reserved, checksum }
    ThreadHeader { thread, reserved, begin, begin_ns, token, anchor_ticks, anchor_ns }
    CallRecord { enter, exit, kind, function, stack, object, peer, tag, size_or_count, request, cpu_ns }
    SampleRecord { time, address, stack, calls, position }
}

/// Kinds of [`CallRecord`]s.
pub mod kind {
    /// Ends the chunk.
    pub const END: u16 = 0;
    /// A blocking send, described by `peer`, `tag`, `object` and `size_or_count`.
    pub const SEND: u16 = 1;
    /// A synchronous send.
    pub const SYNC_SEND: u16 = 2;
    /// A blocking receive. `peer` and `tag` are as requested. If either is a wildcard, a [`COMPLETED`] record follows.
    pub const RECV: u16 = 3;
    /// A non-blocking send, with `request`.
    pub const ISEND: u16 = 4;
    /// A non-blocking synchronous send.
    pub const SYNC_ISEND: u16 = 5;
    /// A non-blocking receive.
    pub const IRECV: u16 = 6;
    /// A call that waits for requests, each followed by a [`COMPLETED`] record.
    pub const WAIT: u16 = 7;
    /// A request that the preceding record completed, or that record itself if `request` is 0. `peer` and `tag` are the actual ones, and
    /// `size_or_count` is 1 if the request was cancelled.
    pub const COMPLETED: u16 = 8;
    /// The send of a combined send and receive; [`SENDRECV_RECV`] follows.
    pub const SENDRECV: u16 = 9;
    /// The receive of a combined send and receive.
    pub const SENDRECV_RECV: u16 = 10;
    /// A wait for a message that does not receive the message.
    pub const PROBE: u16 = 11;
    /// A collective operation in which each process waits for all others.
    pub const COLLECTIVE_ALL: u16 = 12;
    /// A collective operation in which all processes wait for the root (`peer`).
    pub const COLLECTIVE_FROM_ROOT: u16 = 13;
    /// A collective operation in which the root (`peer`) waits for all other processes.
    pub const COLLECTIVE_TO_ROOT: u16 = 14;
    /// A collective operation in which each rank waits for the lower ranks.
    pub const COLLECTIVE_SCAN: u16 = 15;
    /// Added to the kind of a collective operation if it is non-blocking.
    pub const NON_BLOCKING: u16 = 0x10;
    /// Added to the kind of a non-blocking message or a collective operation if a persistent request is created.
    pub const PERSISTENT: u16 = 0x20;
    /// A persistent request (`request`) is started.
    pub const START: u16 = 0x30;
    /// A request (`request`) is freed.
    pub const REQUEST_FREE: u16 = 0x31;
    /// An MPI call that may wait, and that the analysis has no rule for.
    pub const MPI_OTHER: u16 = 0x32;
    /// Initialisation of MPI. Its end is the origin of the rank's times.
    pub const MPI_INIT: u16 = 0x33;
    /// Finalisation of MPI.
    pub const MPI_FINALIZE: u16 = 0x34;
    /// An MPI call that transfers data and never waits for another process.
    pub const MPI_TRANSFER: u16 = 0x35;
    /// A call that sends to several processes and receives from several processes; [`MEETING_SEND`] and [`MEETING_RECV`] records follow.
    /// If it has a `request`, the call only starts the transfers.
    pub const MEETING: u16 = 0x36;
    /// A send of a [`MEETING`], described by `peer`, `tag` and `object`.
    pub const MEETING_SEND: u16 = 0x37;
    /// A receive of a [`MEETING`].
    pub const MEETING_RECV: u16 = 0x38;
    /// The lock of a window at a process is acquired. `object` identifies the window and the process, and is the same in all processes.
    pub const WINDOW_LOCK: u16 = 0x39;
    /// The lock of a window is released.
    pub const WINDOW_UNLOCK: u16 = 0x3a;
    /// A [`MEETING`] is prepared; `request` is persistent.
    pub const MEETING_INIT: u16 = 0x3b;
    /// A contended lock (mutex, rwlock or spin lock at `object`) is acquired.
    pub const LOCK: u16 = 0x40;
    /// A lock is released.
    pub const UNLOCK: u16 = 0x41;
    /// A wait for the condition variable `object`. The mutex `request` is released during the wait.
    pub const CONDITION_WAIT: u16 = 0x42;
    /// A call that wakes one thread that waits for a condition variable (`size_or_count` is 1), or all of them (`u64::MAX`).
    pub const CONDITION_WAKE: u16 = 0x43;
    /// A thread barrier of `size_or_count` threads.
    pub const BARRIER: u16 = 0x44;
    /// A semaphore that was 0 is decremented.
    pub const SEMAPHORE_WAIT: u16 = 0x45;
    /// A semaphore is incremented.
    pub const SEMAPHORE_POST: u16 = 0x46;
    /// A wait for the end of thread `object` (a token).
    pub const JOIN: u16 = 0x47;
    /// Thread `object` is created.
    pub const THREAD_CREATE: u16 = 0x48;
    /// The thread ends.
    pub const THREAD_EXIT: u16 = 0x49;
    /// A wait for a futex at `object`.
    pub const FUTEX_WAIT: u16 = 0x4a;
    /// At most `size_or_count` waiters of a futex are woken.
    pub const FUTEX_WAKE: u16 = 0x4b;
    /// The thread sleeps, or waits for something that is not recorded (input, a file).
    pub const BLOCKED: u16 = 0x4c;
    /// The thread's processor time when the next record begins (`cpu_ns`). Since the end of the last long call, the thread was runnable
    /// without a processor for `object` ns.
    pub const CPU_AT_ENTER: u16 = 0x4d;
    /// A wait for the end of a process. `object` is its process id, 0 if none has ended, or -1.
    pub const PROCESS_WAIT: u16 = 0x4e;
    /// Process `object` was forked.
    pub const FORK: u16 = 0x4f;
}

macro_rules! functions {
    ($($name:ident)*) => {
        /// Names of the recorded functions, in the order of [`CallName`].
        pub const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];
        /// A recorded function; its value is the index of its name.
        #[allow(non_camel_case_types, missing_docs, reason = "the names are those of C")]
        #[repr(u16)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum CallName { $($name),* }
    };
}

// The order is part of the layout: append new functions at the end, or increase the version.
functions! {
    MPI_Send MPI_Bsend MPI_Rsend MPI_Ssend MPI_Isend MPI_Ibsend MPI_Irsend MPI_Issend MPI_Irecv MPI_Send_init MPI_Bsend_init
    MPI_Rsend_init MPI_Ssend_init MPI_Recv_init MPI_Recv MPI_Sendrecv MPI_Sendrecv_replace MPI_Start MPI_Startall MPI_Request_free
    MPI_Probe MPI_Iprobe MPI_Mprobe MPI_Mrecv MPI_Wait MPI_Waitall MPI_Waitany MPI_Waitsome MPI_Test MPI_Testall MPI_Testany
    MPI_Testsome MPI_Barrier MPI_Allgather MPI_Allgatherv MPI_Allreduce MPI_Alltoall MPI_Alltoallv MPI_Alltoallw MPI_Reduce_scatter
    MPI_Reduce_scatter_block MPI_Bcast MPI_Scatter MPI_Scatterv MPI_Reduce MPI_Gather MPI_Gatherv MPI_Scan MPI_Exscan MPI_Ibarrier
    MPI_Iallgather MPI_Iallgatherv MPI_Iallreduce MPI_Ialltoall MPI_Ialltoallv MPI_Ialltoallw MPI_Ireduce_scatter
    MPI_Ireduce_scatter_block MPI_Ibcast MPI_Iscatter MPI_Iscatterv MPI_Ireduce MPI_Igather MPI_Igatherv MPI_Iscan MPI_Iexscan
    MPI_Comm_dup MPI_Comm_dup_with_info MPI_Comm_split MPI_Comm_split_type MPI_Comm_create MPI_Cart_create MPI_Cart_sub MPI_Graph_create
    MPI_Dist_graph_create MPI_Dist_graph_create_adjacent MPI_Intercomm_merge MPI_Comm_idup MPI_Comm_create_group MPI_Intercomm_create
    MPI_Comm_free MPI_Comm_disconnect MPI_Init MPI_Init_thread MPI_Finalize MPI_Abort MPI_Accumulate MPI_Buffer_detach MPI_Comm_accept
    MPI_Comm_connect MPI_Comm_join MPI_Comm_spawn MPI_Comm_spawn_multiple MPI_Compare_and_swap MPI_Fetch_and_op MPI_File_close
    MPI_File_get_position_shared MPI_File_iread MPI_File_iread_all MPI_File_iread_at MPI_File_iread_at_all MPI_File_iread_shared
    MPI_File_iwrite MPI_File_iwrite_all MPI_File_iwrite_at MPI_File_iwrite_at_all MPI_File_iwrite_shared MPI_File_open
    MPI_File_preallocate MPI_File_read MPI_File_read_all MPI_File_read_all_begin MPI_File_read_all_end MPI_File_read_at
    MPI_File_read_at_all MPI_File_read_at_all_begin MPI_File_read_at_all_end MPI_File_read_ordered MPI_File_read_ordered_begin
    MPI_File_read_ordered_end MPI_File_read_shared MPI_File_seek_shared MPI_File_set_size MPI_File_set_view MPI_File_sync MPI_File_write
    MPI_File_write_all MPI_File_write_all_begin MPI_File_write_all_end MPI_File_write_at MPI_File_write_at_all
    MPI_File_write_at_all_begin MPI_File_write_at_all_end MPI_File_write_ordered MPI_File_write_ordered_begin MPI_File_write_ordered_end
    MPI_File_write_shared MPI_Get MPI_Get_accumulate MPI_Improbe MPI_Imrecv MPI_Ineighbor_allgather MPI_Ineighbor_allgatherv
    MPI_Ineighbor_alltoall MPI_Ineighbor_alltoallv MPI_Ineighbor_alltoallw MPI_Neighbor_allgather MPI_Neighbor_allgatherv
    MPI_Neighbor_alltoall MPI_Neighbor_alltoallv MPI_Neighbor_alltoallw MPI_Put MPI_Raccumulate MPI_Rget MPI_Rget_accumulate MPI_Rput
    MPI_Win_allocate MPI_Win_allocate_shared MPI_Win_complete MPI_Win_create MPI_Win_create_dynamic MPI_Win_fence MPI_Win_flush
    MPI_Win_flush_all MPI_Win_flush_local MPI_Win_flush_local_all MPI_Win_free MPI_Win_lock MPI_Win_lock_all MPI_Win_post MPI_Win_start
    MPI_Win_sync MPI_Win_unlock MPI_Win_unlock_all MPI_Win_wait pthread_create pthread_join pthread_exit pthread_mutex_lock
    pthread_mutex_timedlock pthread_mutex_unlock pthread_rwlock_rdlock pthread_rwlock_wrlock pthread_rwlock_timedrdlock
    pthread_rwlock_timedwrlock pthread_rwlock_unlock pthread_spin_lock pthread_spin_unlock pthread_cond_wait pthread_cond_timedwait
    pthread_cond_clockwait pthread_cond_signal pthread_cond_broadcast pthread_barrier_wait sem_wait sem_timedwait sem_clockwait sem_post
    futex sleep usleep nanosleep clock_nanosleep poll ppoll select pselect epoll_wait epoll_pwait read recv recvfrom recvmsg accept
    accept4 wait wait3 wait4 waitpid waitid fork pause flock lockf fsync process_exit thrd_join mtx_lock
    MPI_Barrier_init MPIX_Barrier_init MPI_Allgather_init MPIX_Allgather_init MPI_Allgatherv_init MPIX_Allgatherv_init
    MPI_Allreduce_init MPIX_Allreduce_init MPI_Alltoall_init MPIX_Alltoall_init MPI_Alltoallv_init MPIX_Alltoallv_init
    MPI_Alltoallw_init MPIX_Alltoallw_init MPI_Reduce_scatter_init MPIX_Reduce_scatter_init MPI_Reduce_scatter_block_init
    MPIX_Reduce_scatter_block_init MPI_Bcast_init MPIX_Bcast_init MPI_Scatter_init MPIX_Scatter_init MPI_Scatterv_init
    MPIX_Scatterv_init MPI_Reduce_init MPIX_Reduce_init MPI_Gather_init MPIX_Gather_init MPI_Gatherv_init MPIX_Gatherv_init
    MPI_Scan_init MPIX_Scan_init MPI_Exscan_init MPIX_Exscan_init MPI_Win_test mtx_timedlock mtx_unlock cnd_wait cnd_timedwait
    cnd_signal cnd_broadcast thrd_create thrd_exit
    MPI_Neighbor_allgather_init MPIX_Neighbor_allgather_init MPI_Neighbor_allgatherv_init MPIX_Neighbor_allgatherv_init
    MPI_Neighbor_alltoall_init MPIX_Neighbor_alltoall_init MPI_Neighbor_alltoallv_init MPIX_Neighbor_alltoallv_init
    MPI_Neighbor_alltoallw_init MPIX_Neighbor_alltoallw_init MPI_Cancel
    readv write writev send sendto sendmsg semop semtimedop mq_send mq_timedsend mq_receive mq_timedreceive msgsnd msgrcv sigwait
    sigwaitinfo sigtimedwait sigsuspend fdatasync pthread_timedjoin_np pthread_clockjoin_np
}
