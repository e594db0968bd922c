//! What a thread did between two calls.
//!
//! Samples name the code of a block. One with enough samples of its own is divided by them; a shorter one by the samples of all
//! blocks of the thread that lie between
//! the same two calls; without any, it is the functions that both calls are in. Parts add up to the block, in nanoseconds.

use crate::codes::{Codes, own_frames};
use crate::process_file::ProcessFile;
use crate::recording::RecordedThread;
use crate::sample_paths::{SamplePaths, TimedPath, is_function};
use crate::symbols::{StackFrame, Symbols};
use anyhow::Result;
use std::collections::HashMap;
use trodden_waits::analysis::TimeBlock;
use trodden_waits::{CodeId, LocationState};
use trodden_wire::waits::{NO_STACK, SampleRecord, kind};

/// Samples by which a block is divided rather than by those of others like it.
const ENOUGH: usize = 8;
/// Codes of a block, at most: rarer ones count as the most frequent.
const MOST: usize = 12;

/// Stacks before and behind a block; `NO_STACK` for none.
type Between = (u32, u32);

/// The samples and stacks of a thread.
#[derive(Default)]
pub struct ThreadBlocks {
    samples: Vec<(u32, CodeId)>,
    at: usize,
    pools: HashMap<Between, Vec<(CodeId, u64)>>,
    stacks: Vec<Vec<u64>>,
    own: HashMap<u32, Vec<StackFrame>>,
    between: HashMap<Between, (CodeId, u32)>,
    sites: HashMap<(u32, u16), CodeId>,
}

impl ThreadBlocks {
    /// Reads samples and stacks, and all calls once.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(thread: &RecordedThread, process: &ProcessFile, names: &mut BlockNames) -> Result<Self> {
        let stacks = thread.stacks()?;
        let records = thread.samples()?;
        let taken = names.paths.as_mut().map(|paths| paths.of_samples(process, thread.number, &records)).transpose()?;
        let mut taken = taken.unwrap_or_else(|| vec![None; records.len()]).into_iter();
        let mut known: HashMap<(u64, u32, Option<TimedPath>), CodeId> = HashMap::new();
        let mut name = |sample: &SampleRecord, taken: Option<TimedPath>| {
            *known.entry((sample.address, sample.stack, taken)).or_insert_with_key(|(_, _, taken)| {
                let stack = stacks.get(sample.stack as usize).map_or(&[][..], Vec::as_slice);
                let own = own_frames(&mut names.symbols, process, Some(sample.address), stack);
                let is_on_stack = |taken: &&TimedPath| own.iter().any(|frame| is_function(&frame.function, &taken.function));
                let taken = taken.as_ref().filter(is_on_stack).cloned();
                names.codes.sample(&own, taken)
            })
        };
        let samples: Vec<(u32, CodeId)> = records.iter().map(|sample| (sample.calls, name(sample, taken.next().flatten()))).collect();
        let mut blocks = ThreadBlocks { samples, stacks, ..ThreadBlocks::default() };
        blocks.pool(thread)?;
        Ok(blocks)
    }

    fn pool(&mut self, thread: &RecordedThread) -> Result<()> {
        let mut pools: HashMap<Between, HashMap<CodeId, u64>> = HashMap::new();
        let mut before = NO_STACK;
        for (index, call) in (0..).zip(thread.calls()) {
            if self.at == self.samples.len() {
                break;
            }
            if is_part(call.kind) {
                continue;
            }
            for (_, code) in self.take(index) {
                *pools.entry((before, call.stack)).or_default().entry(code).or_default() += 1;
            }
            before = call.stack;
        }
        self.at = 0;
        self.pools = pools.into_iter().map(|(between, counts)| (between, most(counts.into_iter().collect()))).collect();
        Ok(())
    }

    /// Samples of the block in front of a call.
    fn take(&mut self, index: u32) -> Vec<(u32, CodeId)> {
        let from = self.at;
        while self.samples.get(self.at).is_some_and(|(calls, _)| *calls <= index) {
            self.at += 1;
        }
        self.samples[from..self.at].to_vec()
    }

    /// What the thread did in `ns` between a call with the stack `before` and call number `index` with the stack `next`.
    pub fn divide(
        &mut self,
        names: &mut BlockNames,
        process: &ProcessFile,
        index: u32,
        (before, next): Between,
        ns: u64,
    ) -> Vec<TimeBlock> {
        let samples = self.take(index);
        if samples.len() >= ENOUGH {
            let mut counts: HashMap<CodeId, u64> = HashMap::new();
            samples.iter().for_each(|(_, code)| *counts.entry(*code).or_default() += 1);
            return parts(ns, &most(counts.into_iter().collect()));
        }
        if let Some(pool) = self.pools.get(&(before, next)) {
            return parts(ns, pool);
        }
        let (code, line) = match self.between.get(&(before, next)) {
            Some(known) => *known,
            None => {
                let (first, second) = (self.frames(names, process, before), self.frames(names, process, next));
                let found = names.codes.between(first.as_ref(), second.as_ref());
                self.between.insert((before, next), found);
                found
            }
        };
        names.codes.weigh(code, line, ns);
        vec![TimeBlock { code, state: LocationState::Computing, ns }]
    }

    fn frames(&mut self, names: &mut BlockNames, process: &ProcessFile, stack: u32) -> Option<Vec<StackFrame>> {
        let addresses = self.stacks.get(stack as usize)?;
        Some(self.own.entry(stack).or_insert_with(|| own_frames(&mut names.symbols, process, None, addresses)).clone())
    }

    /// The site of a call.
    pub fn site(&mut self, names: &mut BlockNames, process: &ProcessFile, stack: u32, function: u16, name: &'static str) -> CodeId {
        if let Some(code) = self.sites.get(&(stack, function)) {
            return *code;
        }
        let own = self.frames(names, process, stack).unwrap_or_default();
        let code = names.codes.call(&own, name);
        self.sites.insert((stack, function), code);
        code
    }
}

/// Codes and symbols of a recording.
#[derive(Default)]
pub struct BlockNames {
    /// Code blocks by number.
    pub codes: Codes,
    /// Functions and lines by address.
    pub symbols: Symbols,
    /// Streams of the program, by which samples become paths.
    pub paths: Option<Box<dyn SamplePaths>>,
}

/// Records that belong to the call in front of them or behind.
pub fn is_part(kind: u16) -> bool {
    matches!(kind, kind::COMPLETED | kind::SENDRECV_RECV | kind::MEETING_SEND | kind::MEETING_RECV | kind::CPU_AT_ENTER)
}

/// The most frequent, in a fixed order.
fn most(mut counts: Vec<(CodeId, u64)>) -> Vec<(CodeId, u64)> {
    counts.sort_by_key(|(code, count)| (std::cmp::Reverse(*count), *code));
    let rest: u64 = counts.iter().skip(MOST).map(|(_, count)| count).sum();
    counts.truncate(MOST);
    if let Some(first) = counts.first_mut() {
        first.1 += rest;
    }
    counts
}

fn parts(ns: u64, counts: &[(CodeId, u64)]) -> Vec<TimeBlock> {
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
