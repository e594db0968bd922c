//! One traced run of a program, and what is watched in it.

use crate::images::Library;
use crate::launcher::ProgramStart;
use crate::parked::ParkedProcess;
use crate::repeat::{FixedRunConditions, RunLog};
use crate::subject::Executable;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// The program of a run.
#[derive(Debug)]
pub enum RunTarget {
    /// A program to be started.
    Start(Box<ProgramStart>),
    /// A running process.
    Attach(i32),
    /// A process that another run has parked.
    Adopt(ParkedProcess),
}

/// Receives the parked processes of a run: children, and the process itself once it has executed a different program.
#[derive(Clone, Copy)]
pub struct ParkedReceiver<'a>(pub &'a (dyn Fn(ParkedProcess) + Sync));

impl std::fmt::Debug for ParkedReceiver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ParkedReceiver")
    }
}

/// One traced run of a program.
#[derive(Debug)]
pub struct TraceRun<'a> {
    /// The program.
    pub target: RunTarget,
    /// The program's executable file.
    pub executable: &'a Executable,
    /// Shared libraries to watch, in the order of their numbers.
    pub libraries: &'a [Library],
    /// File addresses to watch. Hits are recorded as indexes into this list.
    pub sites: &'a [u64],
    /// The sites that are indirect jumps or calls, ascending. Each execution of such a site is recorded with the jump's target. If the site
    /// also starts a recorded block, its address occurs twice among the sites, first for the block. Trampolines may omit jumps whose
    /// targets record themselves, and repeated jumps to targets outside the sites' blocks.
    pub jumps: &'a [u64],
    /// All blocks of the files, ascending: the code that may be replaced.
    pub blocks: &'a [Range<u64>],
    /// Starts of the blocks that may also be entered in the middle, as far as such entries are known. Only the first byte of such a block
    /// may be replaced.
    pub guarded: &'a HashSet<u64>,
    /// Starts of blocks that do not record themselves. Jumps to these targets are always recorded.
    pub unwatched: &'a HashSet<u64>,
    /// The aspects of the run that are made repeatable.
    pub recipe: FixedRunConditions,
    /// The record of the first run, if this run repeats it.
    pub first: Option<Arc<RunLog>>,
    /// Ends the collection once the flag is true.
    pub stop: &'a AtomicBool,
    /// Ends the collection after this time.
    pub limit: Option<Duration>,
    /// Receives the process id once the process runs.
    pub process_sender: Option<Sender<u32>>,
    /// Receives processes that are to be traced by other runs. If there is no receiver, they continue untraced.
    pub children: Option<ParkedReceiver<'a>>,
    /// Receives messages for the user during the collection.
    pub note: fn(&str),
}
