//! Attributes the time between two recorded calls of a thread to the code that it executed in between.
//!
//! The time between two calls is called a *block*. If the block has enough samples, its time is divided in proportion to them. Otherwise,
//! it is divided in proportion to the samples in all of the thread's blocks between the same two call stacks. If there are none, the time
//! is attributed to the functions that both call stacks have in common. The parts always add up to the length of the block in nanoseconds.

use crate::codes::{CodeTable, find_program_frames};
use crate::process_file::ProcessFile;
use crate::recording::ThreadRecording;
use crate::sample_paths::{SamplePaths, TimedPath, is_same_function};
use crate::symbols::{StackFrame, SymbolCache};
use anyhow::Result;
use std::collections::HashMap;
use trodden_waits::analysis::TimeBlock;
use trodden_waits::{CodeId, LocationState};
use trodden_wire::waits::{NO_STACK, SampleRecord, kind};

/// Minimum number of samples in a block with which its time is divided by its own samples alone.
const MIN_SAMPLES_IN_BLOCK: usize = 8;
/// Maximum number of codes among which the time of a block is divided. Samples of the other codes are added to those of the most frequent
/// one.
const MAX_CODES_PER_BLOCK: usize = 12;

/// Numbers of the call stacks before and after a block. `NO_STACK` stands for the start and the end of the thread.
type StackIdPair = (u32, u32);

/// A thread's samples and call stacks, and what has been derived from them.
#[derive(Default)]
pub struct ThreadBlocks {
    /// For each sample: the number of the thread's records when it was taken, which identifies the block, and the code that it interrupted.
    samples: Vec<(u32, CodeId)>,
    next_sample: usize,
    /// For each pair of stacks: the number of samples of each code in all blocks between them.
    pools: HashMap<StackIdPair, Vec<(CodeId, u64)>>,
    stacks: Vec<Vec<u64>>,
    frames_by_stack: HashMap<u32, Vec<StackFrame>>,
    /// For each pair of stacks: the code and line to which blocks without samples are attributed.
    unsampled: HashMap<StackIdPair, (CodeId, u32)>,
    /// For each stack and called function: the number of the call site.
    sites: HashMap<(u32, u16), CodeId>,
}

impl ThreadBlocks {
    /// Reads a thread's samples and stacks. Counts the samples between each pair of stacks, for which all of the thread's calls are read
    /// once.
    pub fn read(thread: &ThreadRecording, process: &ProcessFile, names: &mut RecordedCodeNames) -> Result<Self> {
        let stacks = thread.stacks()?;
        let records = thread.samples()?;
        let taken = names.paths.as_mut().map(|paths| paths.find_paths(process, thread.number, &records)).transpose()?;
        let mut taken = taken.unwrap_or_else(|| vec![None; records.len()]).into_iter();
        let mut known: HashMap<(u64, u32, Option<TimedPath>), CodeId> = HashMap::new();
        let mut name = |sample: &SampleRecord, taken: Option<TimedPath>| {
            *known.entry((sample.address, sample.stack, taken)).or_insert_with_key(|(_, _, taken)| {
                let stack = stacks.get(sample.stack as usize).map_or(&[][..], Vec::as_slice);
                let own = find_program_frames(&mut names.symbols, process, Some(sample.address), stack);
                let is_on_stack = |taken: &&TimedPath| own.iter().any(|frame| is_same_function(&frame.function, &taken.function));
                let taken = taken.as_ref().filter(is_on_stack).cloned();
                names.codes.intern_sample(&own, taken)
            })
        };
        let samples: Vec<(u32, CodeId)> = records.iter().map(|sample| (sample.calls, name(sample, taken.next().flatten()))).collect();
        let mut blocks = ThreadBlocks { samples, stacks, ..ThreadBlocks::default() };
        blocks.count_samples_by_stack_pair(thread)?;
        Ok(blocks)
    }

    fn count_samples_by_stack_pair(&mut self, thread: &ThreadRecording) -> Result<()> {
        let mut pools: HashMap<StackIdPair, HashMap<CodeId, u64>> = HashMap::new();
        let mut before = NO_STACK;
        for (index, call) in (0..).zip(thread.calls()) {
            if self.next_sample == self.samples.len() {
                break;
            }
            if is_supplementary_record(call.kind) {
                continue;
            }
            for (_, code) in self.take_samples_before(index) {
                *pools.entry((before, call.stack)).or_default().entry(code).or_default() += 1;
            }
            before = call.stack;
        }
        self.next_sample = 0;
        self.pools = pools.into_iter().map(|(between, counts)| (between, keep_top_codes(counts.into_iter().collect()))).collect();
        Ok(())
    }

    /// Returns the samples in the block before the record at `index`, and moves on to the next block.
    fn take_samples_before(&mut self, index: u32) -> Vec<(u32, CodeId)> {
        let from = self.next_sample;
        while self.samples.get(self.next_sample).is_some_and(|(calls, _)| *calls <= index) {
            self.next_sample += 1;
        }
        self.samples[from..self.next_sample].to_vec()
    }

    /// Divides the block of `ns` nanoseconds before the call at `index` among codes. `before` and `next` are the stacks of the calls before
    /// and after the block. Must be called in ascending order of `index`.
    pub fn divide_block(
        &mut self,
        names: &mut RecordedCodeNames,
        process: &ProcessFile,
        index: u32,
        (before, next): StackIdPair,
        ns: u64,
    ) -> Vec<TimeBlock> {
        let samples = self.take_samples_before(index);
        if samples.len() >= MIN_SAMPLES_IN_BLOCK {
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
                let (first, second) =
                    (self.program_frames_of_stack(names, process, before), self.program_frames_of_stack(names, process, next));
                let found = names.codes.intern_common_block(first.as_ref(), second.as_ref());
                self.unsampled.insert((before, next), found);
                found
            }
        };
        names.codes.add_line_weight(code, line, ns);
        vec![TimeBlock { code, state: LocationState::Computing, ns }]
    }

    fn program_frames_of_stack(&mut self, names: &mut RecordedCodeNames, process: &ProcessFile, stack: u32) -> Option<Vec<StackFrame>> {
        let addresses = self.stacks.get(stack as usize)?;
        Some(self.frames_by_stack.entry(stack).or_insert_with(|| find_program_frames(&mut names.symbols, process, None, addresses)).clone())
    }

    /// Returns the call site of a call with this stack, as a code. `name` is the name of the called function.
    pub fn call_site(
        &mut self,
        names: &mut RecordedCodeNames,
        process: &ProcessFile,
        stack: u32,
        function: u16,
        name: &'static str,
    ) -> CodeId {
        if let Some(code) = self.sites.get(&(stack, function)) {
            return *code;
        }
        let own = self.program_frames_of_stack(names, process, stack).unwrap_or_default();
        let code = names.codes.intern_call_site(&own, name);
        self.sites.insert((stack, function), code);
        code
    }
}

/// All codes of a recording, and what is needed to name them.
#[derive(Default)]
pub struct RecordedCodeNames {
    /// Code blocks and call sites by number.
    pub codes: CodeTable,
    /// Functions and lines by address.
    pub symbols: SymbolCache,
    /// Finds the paths that samples interrupted; `None` unless the path streams of the same run were given.
    pub paths: Option<Box<dyn SamplePaths>>,
}

/// Returns true if a record is not a call of its own, but adds data to the call before or after it.
pub fn is_supplementary_record(kind: u16) -> bool {
    matches!(kind, kind::COMPLETED | kind::SENDRECV_RECV | kind::MEETING_SEND | kind::MEETING_RECV | kind::CPU_AT_ENTER)
}

/// Keeps the [`MAX_CODES_PER_BLOCK`] codes with the most samples, in a deterministic order. The samples of the other codes are added to
/// those of the first.
fn keep_top_codes(mut counts: Vec<(CodeId, u64)>) -> Vec<(CodeId, u64)> {
    counts.sort_by_key(|(code, count)| (std::cmp::Reverse(*count), *code));
    let rest: u64 = counts.iter().skip(MAX_CODES_PER_BLOCK).map(|(_, count)| count).sum();
    counts.truncate(MAX_CODES_PER_BLOCK);
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
