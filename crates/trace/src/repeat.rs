//! Makes runs repeatable: what differs from run to run is fixed, or answered from a recorded first run. Remaining divergence is detected.
//!
//! | aspect | how it is made repeatable |
//! |---|---|
//! | addresses | randomisation is off (`personality`) |
//! | time | the vdso is hidden, so that each query is a system call, answered from the first run; `rdtsc` traps and reads a counter |
//! | randomness | `AT_RANDOM` is overwritten; `getrandom` and reads of `/dev/urandom` are answered from the first run |
//! | processes | process and thread ids are answered from the first run; the process's id is translated back where a call takes it |
//! | core | tracer and program share one core, which is also several times faster |
//!
//! Not fixed: `rdrand`, races between threads, outside input, asynchronous signals. So every system call, with its result and
//! data, is compared with the first run's; the first difference is a [`RepeatDivergence`].

use crate::calls::call_name;
use crate::memory::Memory;
use crate::ptrace::Tid;
use crate::shown_mappings::MappingsShownToProgram;
use crate::sink::ThreadNumber;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// The aspects of a run that are made repeatable; each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedRunConditions {
    /// True if addresses are not randomised.
    pub addresses: bool,
    /// True if the time is that of the first run.
    pub time: bool,
    /// True if random numbers are those of the first run.
    pub randomness: bool,
    /// True if process ids are those of the first run.
    pub processes: bool,
    /// The core that tracer and program run on, if it is fixed.
    pub core: Option<usize>,
}

impl FixedRunConditions {
    /// Everything fixed except the core.
    pub const ALL: Self = Self { addresses: true, time: true, randomness: true, processes: true, core: None };
    /// Nothing fixed.
    pub const NONE: Self = Self { addresses: false, time: false, randomness: false, processes: false, core: None };
}

/// A recorded answer of the kernel that differs from run to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCallAnswer {
    thread: ThreadNumber,
    number: u64,
    result: i64,
    /// The bytes written to memory, each with the index of the pointer argument.
    written: Vec<(usize, Vec<u8>)>,
}

/// A system call, reduced to what is compared between runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatedCall {
    /// The call's number.
    pub number: u64,
    /// The call's result; 1 stands for any process or thread id.
    pub result: i64,
    /// Hash of the path that the call named, or of the data that it transferred.
    pub data: u64,
}

/// A record of a run, from which later runs are answered and with which they are compared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunLog {
    /// The kernel's answers that may differ in other runs, in order.
    pub answers: Vec<RecordedCallAnswer>,
    /// The system calls of each thread, in order.
    pub calls: Vec<Vec<RepeatedCall>>,
    process: Tid,
    /// True if the run was followed to its end.
    is_complete: bool,
}

/// The first difference between two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatDivergence {
    /// The thread in which the runs differ.
    pub thread: ThreadNumber,
    /// Number of equal system calls of the thread before the difference.
    pub position: usize,
    /// The system call of the first run; `None` if that run made no more calls.
    pub expected: Option<RepeatedCall>,
    /// The system call of this run; `None` if this run made no more calls.
    pub found: Option<RepeatedCall>,
}

impl std::fmt::Display for RepeatDivergence {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let describe = |call: &Option<RepeatedCall>| match call {
            Some(call) => format!("{} = {}", call_name(call.number), call.result),
            None => "no more system calls".to_owned(),
        };
        write!(
            f,
            "thread {}, system call {}: {} in the first run, {} in this one",
            self.thread.0,
            self.position + 1,
            describe(&self.expected),
            describe(&self.found)
        )?;
        match (self.expected, self.found) {
            (Some(a), Some(b)) if a.number == b.number && a.result == b.result => f.write_str(" with other data"),
            _ => Ok(()),
        }
    }
}

/// Records the system calls of a first run, or answers those of a later run from that record and compares the two runs.
pub struct Repeater {
    recipe: FixedRunConditions,
    first: Option<Arc<RunLog>>,
    log: RunLog,
    /// What the program reads about its own mappings.
    pub shown: MappingsShownToProgram,
    /// Indexes of the first run's unused answers by thread and call, in reverse order.
    next: HashMap<(ThreadNumber, u64), Vec<usize>>,
    pending: HashMap<Tid, PendingCall>,
    /// Interrupted calls, which the kernel restarts when their threads resume.
    interrupted: HashMap<Tid, PendingCall>,
    random_files: Vec<i64>,
    divergence: Option<RepeatDivergence>,
}

struct PendingCall {
    number: u64,
    arguments: [u64; 6],
    answer: Option<usize>,
    reads_mappings: bool,
    hash: Xxh3,
}

/// How to handle a system call that is about to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEntry {
    Run,
    /// Run the call with these first two arguments.
    RunWith([u64; 2]),
    /// Skip the call. The tracer supplies its result.
    Skip,
}

/// A call, the part of the recipe that covers it, and the argument index and length of each buffer that the call writes.
type AnsweredCall = (i64, FixedRunCondition, &'static [(usize, usize)]);

/// The system calls that are answered from the first run. A buffer length of 0 means that the call's result is the length.
const CALLS_ANSWERED_FROM_LOG: &[AnsweredCall] = &[
    (libc::SYS_clock_gettime, FixedRunCondition::Time, &[(1, 16)]),
    (libc::SYS_gettimeofday, FixedRunCondition::Time, &[(0, 16), (1, 8)]),
    (libc::SYS_time, FixedRunCondition::Time, &[(0, 8)]),
    (libc::SYS_times, FixedRunCondition::Time, &[(0, 32)]),
    (libc::SYS_getrusage, FixedRunCondition::Time, &[(1, 144)]),
    (libc::SYS_sysinfo, FixedRunCondition::Time, &[(0, 112)]),
    (libc::SYS_getcpu, FixedRunCondition::Time, &[(0, 4), (1, 4)]),
    (libc::SYS_getrandom, FixedRunCondition::Randomness, &[(0, 0)]),
    (libc::SYS_getpid, FixedRunCondition::Processes, &[]),
    (libc::SYS_gettid, FixedRunCondition::Processes, &[]),
    (libc::SYS_getppid, FixedRunCondition::Processes, &[]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum FixedRunCondition {
    Time,
    Randomness,
    Processes,
}

impl Repeater {
    /// Creates the repeater for a first run (`None`), or for a run that repeats `first`.
    pub fn new(recipe: FixedRunConditions, first: Option<Arc<RunLog>>, shown: MappingsShownToProgram) -> Self {
        let mut next: HashMap<(ThreadNumber, u64), Vec<usize>> = HashMap::new();
        for (index, answer) in first.iter().flat_map(|log| log.answers.iter().enumerate()).rev() {
            next.entry((answer.thread, answer.number)).or_default().push(index);
        }
        let log = RunLog::default();
        Self {
            recipe,
            first,
            log,
            shown,
            next,
            pending: HashMap::new(),
            interrupted: HashMap::new(),
            random_files: Vec::new(),
            divergence: None,
        }
    }

    /// Sets the process id of this run.
    pub fn begin(&mut self, process: Tid) {
        self.log.process = process;
    }

    /// Returns the record of the run, and the run's divergence from the first run. Ending before the first run did counts as divergence,
    /// unless the run was truncated. `is_complete` says whether it was followed to its end.
    pub fn finish(mut self, is_complete: bool, is_truncated: bool) -> (RunLog, Option<RepeatDivergence>) {
        if let (Some(first), None, true) = (&self.first, &self.divergence, !is_truncated) {
            let longer = first.calls.iter().enumerate().find(|(t, calls)| self.log.calls.get(*t).map_or(0, Vec::len) < calls.len());
            self.divergence = longer.map(|(thread, calls)| {
                let position = self.log.calls.get(thread).map_or(0, Vec::len);
                RepeatDivergence { thread: ThreadNumber(thread as u32), position, expected: calls.get(position).copied(), found: None }
            });
        }
        self.log.is_complete = is_complete;
        (self.log, self.divergence)
    }

    /// Handles the start of a system call.
    pub fn enter(&mut self, tid: Tid, thread: ThreadNumber, number: u64, arguments: [u64; 6], memory: &Memory) -> CallEntry {
        // The kernel restarts an interrupted call that has a time limit under a different number.
        let interrupted = self.interrupted.remove(&tid);
        if let (libc::SYS_restart_syscall, Some(call)) = (number as i64, interrupted) {
            self.pending.insert(tid, call);
            return CallEntry::Run;
        }
        let mut hash = Xxh3::new();
        crate::calls::hash_call_input(number, &arguments, memory, &mut hash);
        let answered = self.first.is_some() && self.is_answered_from_log(number, &arguments);
        let answer = if answered { self.next.get_mut(&(thread, number)).and_then(Vec::pop) } else { None };
        let reads_mappings = number as i64 == libc::SYS_read && self.shown.is_answered(arguments[0]);
        self.pending.insert(tid, PendingCall { number, arguments, answer, reads_mappings, hash });
        match &self.first {
            _ if answer.is_some() || reads_mappings => CallEntry::Skip,
            Some(first) if self.recipe.processes => {
                let own = |id: u64| if id == first.process as u64 { self.log.process as u64 } else { id };
                let named = match count_process_arguments(number) {
                    0 => return CallEntry::Run,
                    1 => [own(arguments[0]), arguments[1]],
                    _ => [own(arguments[0]), own(arguments[1])],
                };
                if named == arguments[..2] { CallEntry::Run } else { CallEntry::RunWith(named) }
            }
            _ => CallEntry::Run,
        }
    }

    /// Returns true if the system call that a thread is in reads the program's mappings.
    pub fn is_reading_mappings(&self, tid: Tid) -> bool {
        self.pending.get(&tid).is_some_and(|call| call.reads_mappings)
    }

    /// Handles the end of a system call. Returns the result that replaces the kernel's, if any.
    pub fn exit(&mut self, tid: Tid, thread: ThreadNumber, result: i64, memory: &Memory) -> std::io::Result<Option<i64>> {
        // Results of calls that a signal has interrupted and that the kernel restarts.
        const RESTARTED_CALL_RESULTS: std::ops::RangeInclusive<i64> = -516..=-512;
        let Some(mut call) = self.pending.remove(&tid) else { return Ok(None) };
        if RESTARTED_CALL_RESULTS.contains(&result) {
            self.interrupted.insert(tid, call);
            return Ok(None);
        }
        let result = match (call.answer, self.first.clone()) {
            (Some(index), Some(first)) => {
                let answer = &first.answers[index];
                for (argument, bytes) in &answer.written {
                    memory.write(call.arguments[*argument], bytes)?;
                }
                CallResult::Replaced(answer.result)
            }
            _ if call.reads_mappings => {
                let text =
                    self.shown.read(self.log.process, call.arguments[0], usize::try_from(call.arguments[2]).unwrap_or(usize::MAX))?;
                // If the buffer is not mapped, the call fails as it would in the kernel.
                let written = memory.write(call.arguments[1], &text);
                CallResult::Replaced(written.map_or(-i64::from(libc::EFAULT), |()| text.len() as i64))
            }
            _ if self.is_answered_from_log(call.number, &call.arguments) => {
                self.record_call(thread, &call, result, memory);
                CallResult::Kept(result)
            }
            _ => self.translate_result(&call, thread, result),
        };
        self.track_open_mapping_files(&call, result.value());
        crate::calls::hash_call_output(call.number, &call.arguments, result.value(), memory, &mut call.hash);
        self.compare_with_first_run(thread, &call, result.value());
        Ok(match result {
            CallResult::Replaced(result) => Some(result),
            CallResult::Kept(_) => None,
        })
    }

    fn is_answered_from_log(&self, number: u64, arguments: &[u64; 6]) -> bool {
        let on = |part| match part {
            FixedRunCondition::Time => self.recipe.time,
            FixedRunCondition::Randomness => self.recipe.randomness,
            FixedRunCondition::Processes => self.recipe.processes,
        };
        let random_read = number as i64 == libc::SYS_read && self.recipe.randomness && self.random_files.contains(&(arguments[0] as i64));
        random_read || CALLS_ANSWERED_FROM_LOG.iter().any(|(n, part, _)| *n as u64 == number && on(*part))
    }

    fn record_call(&mut self, thread: ThreadNumber, call: &PendingCall, result: i64, memory: &Memory) {
        let pointers =
            CALLS_ANSWERED_FROM_LOG.iter().find(|(n, ..)| *n as u64 == call.number).map_or(&[(1, 0)][..], |(_, _, pointers)| pointers);
        let mut written = Vec::new();
        for (argument, length) in pointers {
            let length = if *length == 0 { usize::try_from(result).unwrap_or(0) } else { *length };
            if call.arguments[*argument] != 0 && result >= 0 {
                written.push((*argument, memory.read_some(call.arguments[*argument], length)));
            }
        }
        self.log.answers.push(RecordedCallAnswer { thread, number: call.number, result, written });
    }

    fn translate_result(&mut self, call: &PendingCall, thread: ThreadNumber, result: i64) -> CallResult {
        let is_id = matches!(call.number as i64, libc::SYS_set_tid_address | libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone);
        match (&self.first, is_id && self.recipe.processes && result > 0 && thread.0 == 0) {
            (Some(first), true) if call.number as i64 == libc::SYS_set_tid_address => CallResult::Replaced(i64::from(first.process)),
            _ => CallResult::Kept(result),
        }
    }

    /// Keeps track of the open files that yield random numbers or list the program's mappings.
    fn track_open_mapping_files(&mut self, call: &PendingCall, result: i64) {
        match call.number as i64 {
            libc::SYS_close => {
                self.random_files.retain(|f| *f != call.arguments[0] as i64);
                self.shown.note_descriptor_closed(call.arguments[0]);
            }
            libc::SYS_openat | libc::SYS_open | libc::SYS_openat2 if result >= 0 => {
                self.shown.note_descriptor_opened(self.log.process, result as u64);
                self.random_files.retain(|f| *f != result);
                if [b"/dev/urandom".as_slice(), b"/dev/random"].iter().any(|path| crate::calls::hash_path(path) == call.hash.digest()) {
                    self.random_files.push(result);
                }
            }
            _ => {}
        }
    }

    fn compare_with_first_run(&mut self, thread: ThreadNumber, call: &PendingCall, result: i64) {
        let result = if crate::calls::has_process_id(call.number) && result > 0 { 1 } else { result };
        let record = RepeatedCall { number: call.number, result, data: call.hash.digest() };
        let index = thread.0 as usize;
        if self.log.calls.len() <= index {
            self.log.calls.resize(index + 1, Vec::new());
        }
        let position = self.log.calls[index].len();
        self.log.calls[index].push(record);
        if let (Some(first), None) = (&self.first, &self.divergence) {
            let expected = first.calls.get(index).and_then(|calls| calls.get(position)).copied();
            // Calls after the end of a truncated record are not known.
            if expected != Some(record) && (expected.is_some() || first.is_complete) {
                self.divergence = Some(RepeatDivergence { thread, position, expected, found: Some(record) });
            }
        }
    }
}

enum CallResult {
    Replaced(i64),
    Kept(i64),
}

impl CallResult {
    fn value(&self) -> i64 {
        match self {
            Self::Replaced(result) | Self::Kept(result) => *result,
        }
    }
}

/// Returns how many leading arguments of a system call are ids of processes or threads.
fn count_process_arguments(number: u64) -> usize {
    match number as i64 {
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo => 2,
        libc::SYS_kill
        | libc::SYS_tkill
        | libc::SYS_sched_getaffinity
        | libc::SYS_sched_setaffinity
        | libc::SYS_sched_getparam
        | libc::SYS_sched_setparam
        | libc::SYS_sched_getscheduler
        | libc::SYS_sched_setscheduler
        | libc::SYS_getpgid
        | libc::SYS_setpgid
        | libc::SYS_getsid
        | libc::SYS_prlimit64 => 1,
        _ => 0,
    }
}
