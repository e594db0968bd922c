//! Counts paths over iterations, which are sequences of consecutive paths in one activation of a function, in a stream
//! ([`trodden_unit::iterations`]).

use super::counters::{CounterLookup, FunctionIndex, PathRole};
use super::nesting::{CallNesting, NestingStep};
use super::symbol::StreamSymbol;
use std::collections::{BTreeMap, HashMap};

/// Counts the paths over iterations in the stream of one thread. They are given as lists of events.
pub struct IterationReader<'p, 'a> {
    lookup: &'p CounterLookup<'a>,
    nesting: CallNesting<'p, 'a>,
    iterations: usize,
    frames: Vec<FrameHistory>,
    counts: HashMap<Vec<u32>, u64>,
}

#[derive(Clone, Default)]
struct FrameHistory {
    /// Counters of the frame's most recent paths, at most K - 1, where K is the number of paths in a path over iterations. The last one is
    /// the most recent.
    paths: Vec<u32>,
    /// Whether the frame may have executed paths before those in the stream.
    is_incomplete: bool,
}

impl<'p, 'a> IterationReader<'p, 'a> {
    /// Creates a reader without counts. Paths over iterations consist of at most `iterations` paths.
    pub fn new(lookup: &'p CounterLookup<'a>, iterations: usize) -> IterationReader<'p, 'a> {
        IterationReader { lookup, nesting: CallNesting::new(lookup), iterations, frames: Vec::new(), counts: HashMap::new() }
    }

    /// Processes the next symbol of the thread's stream.
    pub fn feed_symbol(&mut self, symbol: StreamSymbol) {
        match self.nesting.feed_symbol(symbol) {
            NestingStep::Entered(_) => {
                let is_incomplete = matches!(symbol, StreamSymbol::Inherited(_));
                self.frames.push(FrameHistory { paths: Vec::new(), is_incomplete });
            }
            NestingStep::Path { counter, role, depth } => self.feed_path(counter, role, depth),
            NestingStep::Unwound(_) => self.frames.truncate(self.nesting.frames().len()),
            NestingStep::Unknown => {}
        }
    }

    fn feed_path(&mut self, counter: u32, role: PathRole, depth: usize) {
        self.frames.resize(depth, FrameHistory { paths: Vec::new(), is_incomplete: true });
        let Some(frame) = self.frames.last_mut().filter(|_| role != PathRole::Call) else { return };
        let before = frame.paths.len();
        frame.paths.push(counter);
        if before + 1 == self.iterations || !frame.is_incomplete {
            *self.counts.entry(frame.paths.clone()).or_default() += 1;
        }
        match role {
            PathRole::Leaves => drop(self.frames.pop()),
            // A frame whose path ended at a call that does not return may still continue, after a `longjmp`.
            _ if before + 1 == self.iterations => drop(frame.paths.remove(0)),
            _ => {}
        }
    }

    /// Returns, for each function, the paths over iterations (as lists of events) and their numbers of executions.
    pub fn into_iteration_counts(self) -> BTreeMap<FunctionIndex, Vec<(Vec<u64>, u64)>> {
        let mut counts: BTreeMap<FunctionIndex, Vec<(Vec<u64>, u64)>> = BTreeMap::new();
        for (path, count) in self.counts {
            let events: Option<Vec<(FunctionIndex, u64)>> = path.iter().map(|counter| self.lookup.path(*counter)).collect();
            if let Some((function, events)) = events.and_then(|events| Some((events.first()?.0, events))) {
                counts.entry(function).or_default().push((events.into_iter().map(|(_, event)| event).collect(), count));
            }
        }
        counts
    }
}
