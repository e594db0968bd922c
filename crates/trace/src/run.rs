//! One run of a collection: what runs, and what of it is watched.

use crate::images::Library;
use crate::launcher::ProgramStart;
use crate::repeat::{RepeatRecipe, RunLog};
use crate::subject::Executable;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// What runs.
#[derive(Debug)]
pub enum RunTarget {
    /// A program that is started.
    Start(Box<ProgramStart>),
    /// A process that runs already.
    Attach(i32),
}

/// One run of a collection.
#[derive(Debug)]
pub struct TraceRun<'a> {
    /// What runs.
    pub target: RunTarget,
    /// Its image.
    pub executable: &'a Executable,
    /// Shared libraries that are watched with it, in the order of their numbers.
    pub libraries: &'a [Library],
    /// Addresses of the files to watch; their places in this list are what is recorded.
    pub sites: &'a [u64],
    /// Those sites that are indirect jumps whose targets are recorded behind them, ascending.
    pub jumps: &'a [u64],
    /// All blocks of the files, ascending by address: where code can be replaced.
    pub blocks: &'a [Range<u64>],
    /// Where blocks start that code may enter in their middle, as far as is known: one byte of them may be replaced, and no more.
    pub guarded: &'a HashSet<u64>,
    /// What is made to repeat.
    pub recipe: RepeatRecipe,
    /// The first run, if this one repeats it.
    pub first: Option<Arc<RunLog>>,
    /// Ends the collection when it is set.
    pub stop: &'a AtomicBool,
    /// Ends the collection after this time.
    pub limit: Option<Duration>,
    /// Gets the number of the process when it runs.
    pub begun: Option<Sender<u32>>,
    /// Gets what the user should know while the collection goes on.
    pub note: fn(&str),
}
