//! Attributes the time between two calls to the code that the thread executed.
//!
//! A block is the time span between two calls. If the block has enough samples, its time is divided in proportion to them. Otherwise, it
//! is divided in proportion to the samples in all of the thread's blocks between the same two call stacks. Without any such samples, the
//! time is attributed to the functions that both call stacks have in common. The parts add up to the block's length in nanoseconds.

use crate::codes::{Codes, find_own_frames};
use crate::process_file::ProcessFile;
use crate::recording::ThreadRecording;
use crate::sample_paths::{SamplePaths, TimedPath, is_same_function};
use crate::symbols::{StackFrame, SymbolCache};
use anyhow::Result;
use std::collections::HashMap;
use trodden_waits::analysis::TimeBlock;
use trodden_waits::{CodeId, LocationState};
use trodden_wire::waits::{NO_STACK, SampleRecord, kind};

/// Minimum number of samples for a block to be divided by its own samples.
const MIN_OWN_SAMPLES: usize = 8;
/// Maximum number of codes per block. Samples of all other codes count for the most frequent code.
const MAX_CODES: usize = 12;

/// Numbers of the call stacks before and after a block; `NO_STACK` before the thread's first call and after its last.
type StackPair = (u32, u32);

/// A thread's samples and stacks.
#[derive(Default)]
pub struct ThreadBlocks {
    /// For each sample: the index of the call that follows it, and its code.
    samples: Vec<(u32, CodeId)>,
    next_sample: usize,
    /// Sample counts of all blocks between the same two stacks.
    pools: HashMap<StackPair, Vec<(CodeId, u64)>>,
    stacks: Vec<Vec<u64>>,
    frames_by_stack: HashMap<u32, Vec<StackFrame>>,
    /// Code and line of blocks without samples.
    unsampled: HashMap<StackPair, (CodeId, u32)>,
    /// Codes of call sites by stack and called function.
    sites: HashMap<(u32, u16), CodeId>,
}

impl ThreadBlocks {
    /// Reads a thread's samples and stacks, and iterates over its calls once.
    pub fn read(thread: &ThreadRecording, process: &ProcessFile, names: &mut BlockNames) -> Result<Self> {
        let stacks = thread.stacks()?;
        let records = thread.samples()?;
        let taken = names.paths.as_mut().map(|paths| paths.find_paths(process, thread.number, &records)).transpose()?;
        let mut taken = taken.unwrap_or_else(|| vec![None; records.len()]).into_iter();
        let mut known: HashMap<(u64, u32, Option<TimedPath>), CodeId> = HashMap::new();
        let mut name = |sample: &SampleRecord, taken: Option<TimedPath>| {
            *known.entry((sample.address, sample.stack, taken)).or_insert_with_key(|(_, _, taken)| {
                let stack = stacks.get(sample.stack as usize).map_or(&[][..], Vec::as_slice);
                let own = find_own_frames(&mut names.symbols, process, Some(sample.address), stack);
                let is_on_stack = |taken: &&TimedPath| own.iter().any(|frame| is_same_function(&frame.function, &taken.function));
                let taken = taken.as_ref().filter(is_on_stack).cloned();
                names.codes.intern_sample(&own, taken)
            })
        };
        let samples: Vec<(u32, CodeId)> = records.iter().map(|sample| (sample.calls, name(sample, taken.next().flatten()))).collect();
        let mut blocks = ThreadBlocks { samples, stacks, ..ThreadBlocks::default() };
        blocks.count_pools(thread)?;
        Ok(blocks)
    }

    fn count_pools(&mut self, thread: &ThreadRecording) -> Result<()> {
        let mut pools: HashMap<StackPair, HashMap<CodeId, u64>> = HashMap::new();
        let mut before = NO_STACK;
        for (index, call) in (0..).zip(thread.calls()) {
            if self.next_sample == self.samples.len() {
                break;
            }
            if is_auxiliary(call.kind) {
                continue;
            }
            for (_, code) in self.take_samples(index) {
                *pools.entry((before, call.stack)).or_default().entry(code).or_default() += 1;
            }
            before = call.stack;
        }
        self.next_sample = 0;
        self.pools = pools.into_iter().map(|(between, counts)| (between, keep_top_codes(counts.into_iter().collect()))).collect();
        Ok(())
    }

    /// Consumes the samples in the block before a call.
    fn take_samples(&mut self, index: u32) -> Vec<(u32, CodeId)> {
        let from = self.next_sample;
        while self.samples.get(self.next_sample).is_some_and(|(calls, _)| *calls <= index) {
            self.next_sample += 1;
        }
        self.samples[from..self.next_sample].to_vec()
    }

    /// Divides the `ns` nanoseconds between a call with the stack `before` and the call at `index` with the stack `next`. Must be called
    /// with ascending `index`.
    pub fn divide_block(
        &mut self,
        names: &mut BlockNames,
        process: &ProcessFile,
        index: u32,
        (before, next): StackPair,
        ns: u64,
    ) -> Vec<TimeBlock> {
        let samples = self.take_samples(index);
        if samples.len() >= MIN_OWN_SAMPLES {
            let mut counts: HashMap<CodeId, u64> = HashMap::new();
            samples.iter().for_each(|(_, code)| *counts.entry(*code).or_default() += 1);
            return divide_time(ns, &keep_top_codes(counts.into_iter().collect()));
        }
        if let Some(pool) = self.pools.get(&(before, next)) {
            return divide_time(ns, pool);
        }
        let (code, line) = match self.unsampled.get(&(before, next)) {
            Some(known) => *known,
            None => {
                let (first, second) = (self.own_frames(names, process, before), self.own_frames(names, process, next));
                let found = names.codes.intern_common_block(first.as_ref(), second.as_ref());
                self.unsampled.insert((before, next), found);
                found
            }
        };
        names.codes.add_line_weight(code, line, ns);
        vec![TimeBlock { code, state: LocationState::Computing, ns }]
    }

    fn own_frames(&mut self, names: &mut BlockNames, process: &ProcessFile, stack: u32) -> Option<Vec<StackFrame>> {
        let addresses = self.stacks.get(stack as usize)?;
        Some(self.frames_by_stack.entry(stack).or_insert_with(|| find_own_frames(&mut names.symbols, process, None, addresses)).clone())
    }

    /// Returns the code of the call site from which a call with this stack is made. `name` is the called function's name.
    pub fn call_site(&mut self, names: &mut BlockNames, process: &ProcessFile, stack: u32, function: u16, name: &'static str) -> CodeId {
        if let Some(code) = self.sites.get(&(stack, function)) {
            return *code;
        }
        let own = self.own_frames(names, process, stack).unwrap_or_default();
        let code = names.codes.intern_call_site(&own, name);
        self.sites.insert((stack, function), code);
        code
    }
}

/// A recording's codes and symbols.
#[derive(Default)]
pub struct BlockNames {
    /// Code blocks and call sites by number.
    pub codes: Codes,
    /// Functions and lines by address.
    pub symbols: SymbolCache,
    /// The paths that samples interrupted, if streams of the same run were given.
    pub paths: Option<Box<dyn SamplePaths>>,
}

/// Returns true if a record is not a call, but supplements the call before or after it.
pub fn is_auxiliary(kind: u16) -> bool {
    matches!(kind, kind::COMPLETED | kind::SENDRECV_RECV | kind::MEETING_SEND | kind::MEETING_RECV | kind::CPU_AT_ENTER)
}

/// Keeps the [`MAX_CODES`] most frequent codes, in a deterministic order. Adds the counts of the others to the most frequent code.
fn keep_top_codes(mut counts: Vec<(CodeId, u64)>) -> Vec<(CodeId, u64)> {
    counts.sort_by_key(|(code, count)| (std::cmp::Reverse(*count), *code));
    let rest: u64 = counts.iter().skip(MAX_CODES).map(|(_, count)| count).sum();
    counts.truncate(MAX_CODES);
    if let Some(first) = counts.first_mut() {
        first.1 += rest;
    }
    counts
}

fn divide_time(ns: u64, counts: &[(CodeId, u64)]) -> Vec<TimeBlock> {
    let sum: u128 = counts.iter().map(|(_, count)| u128::from(*count)).sum();
    let mut before = 0;
    let until = |count: u128| (u128::from(ns) * count / sum.max(1)) as u64;
    let part = |(code, count): &(CodeId, u64)| {
        let from = until(before);
        before += u128::from(*count);
        TimeBlock { code: *code, state: LocationState::Computing, ns: until(before) - from }
    };
    counts.iter().map(part).collect()
}
